/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of sharded checkpoints in builds that lack a library which they need. */
#include <shardrt/checkpoint.h>

#include "base/base.h"

static srt_status_t refuse(const char *call)
{
	return srt_fail(SRT_ERR_UNSUPPORTED,
			"%s needs jansson and libxxhash, but the library was built without one of "
			"them: install both (Debian: libjansson-dev, libxxhash-dev) and configure "
			"again",
			call);
}

srt_status_t srt_checkpoint_save(srt_engine_t *engine, const char *folder,
				 const srt_checkpoint_options_t *options, srt_stream_t *stream)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(stream);
	(void)options;
	return refuse("srt_checkpoint_save");
}

srt_status_t srt_checkpoint_load(srt_engine_t *engine, const char *folder,
				 const srt_checkpoint_options_t *options, srt_stream_t *stream)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(stream);
	(void)options;
	return refuse("srt_checkpoint_load");
}

srt_status_t srt_checkpoint_get_entry(const char *folder, const char *key, void *data, size_t ndata,
				      size_t *nbytes)
{
	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(key);
	if (ndata > 0)
		SRT_NOT_NULL(data);
	(void)nbytes;
	return refuse("srt_checkpoint_get_entry");
}

srt_status_t srt_checkpoint_latest(const char *parent, char *folder, size_t nfolder)
{
	SRT_NOT_NULL(parent);
	SRT_NOT_NULL(folder);
	(void)nfolder;
	return refuse("srt_checkpoint_latest");
}

srt_status_t srt_checkpoint_remove(const char *folder)
{
	SRT_NOT_NULL(folder);
	return refuse("srt_checkpoint_remove");
}

srt_status_t srt_checkpoint_save_begin(srt_engine_t *engine, const char *folder,
				       const srt_checkpoint_options_t *options,
				       srt_stream_t *stream, srt_checkpoint_write_t **write)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(write);
	(void)options;
	return refuse("srt_checkpoint_save_begin");
}

int srt_checkpoint_save_done(const srt_checkpoint_write_t *write)
{
	(void)write;
	return 1;
}

srt_status_t srt_checkpoint_save_end(srt_checkpoint_write_t *write)
{
	SRT_NOT_NULL(write);
	return refuse("srt_checkpoint_save_end");
}
