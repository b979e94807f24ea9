/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of sharded checkpoints in builds that lack a library which they need. */
#include <sys/stat.h>

#include <shardrt/checkpoint.h>
#include <shardrt/checkpoint_file.h>

#include "base/base.h"
#include "runtime/checkpoint/formats/sharded_file.h"

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
	SRT_TRY(srt_struct_check(options, "srt_checkpoint_options_t"));
	return refuse("srt_checkpoint_save");
}

srt_status_t srt_checkpoint_load(srt_engine_t *engine, const char *folder,
				 const srt_checkpoint_options_t *options, srt_stream_t *stream)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_struct_check(options, "srt_checkpoint_options_t"));
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
				       srt_checkpoint_write_t **write, srt_stream_t *stream)
{
	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(write);
	SRT_TRY(srt_struct_check(options, "srt_checkpoint_options_t"));
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

/* ---- without an engine ------------------------------------------------------------------ */

srt_status_t srt_checkpoint_verify(const char *folder,
				   void (*report)(const char *sentence, void *arg), void *arg,
				   srt_checkpoint_verified_t *verified)
{
	SRT_NOT_NULL(folder);
	(void)report;
	(void)arg;
	SRT_TRY(srt_struct_check(verified, "srt_checkpoint_verified_t"));
	return refuse("srt_checkpoint_verify");
}

srt_status_t srt_checkpoint_reshard(const char *from, int nranks, const char *to)
{
	SRT_NOT_NULL(from);
	SRT_NOT_NULL(to);
	(void)nranks;
	return refuse("srt_checkpoint_reshard");
}

char *srt_sharded_file_folder(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? srt_strdup(path) : NULL;
}

srt_status_t srt_sharded_file_open(const char *folder, bool all, srt_sharded_file_t **file)
{
	(void)folder;
	(void)all;
	(void)file;
	return refuse("reading a sharded checkpoint");
}

/* There is none, so these are not reached. */
void srt_sharded_file_close(srt_sharded_file_t *file)
{
	(void)file;
}

size_t srt_sharded_file_count(const srt_sharded_file_t *file)
{
	(void)file;
	return 0;
}

bool srt_sharded_file_get(const srt_sharded_file_t *file, size_t i, srt_file_tensor_t *tensor)
{
	(void)file;
	(void)i;
	(void)tensor;
	return false;
}

size_t srt_sharded_file_find(const srt_sharded_file_t *file, const char *name)
{
	(void)file;
	(void)name;
	return SIZE_MAX;
}

const char *srt_sharded_file_text(const srt_sharded_file_t *file, const char *key)
{
	(void)file;
	(void)key;
	return NULL;
}

srt_status_t srt_sharded_file_read(srt_sharded_file_t *file, size_t i, size_t offset, size_t nbytes,
				   void *data)
{
	(void)file;
	(void)i;
	(void)offset;
	(void)nbytes;
	(void)data;
	return refuse("reading a sharded checkpoint");
}

/* Every file is a plain one. */
static srt_status_t fail_plain(void)
{
	return srt_fail(SRT_ERR_NOT_FOUND, "the file is no sharded checkpoint");
}

srt_status_t srt_file_get_checkpoint(const srt_file_t *file, srt_file_checkpoint_t *checkpoint)
{
	SRT_NOT_NULL(file);
	SRT_NOT_NULL(checkpoint);
	SRT_TRY(srt_struct_check(checkpoint, "srt_file_checkpoint_t"));
	return fail_plain();
}

srt_status_t srt_file_get_group(const srt_file_t *file, size_t i, srt_step_info_t *info)
{
	SRT_NOT_NULL(file);
	SRT_NOT_NULL(info);
	SRT_TRY(srt_struct_check(info, "srt_step_info_t"));
	(void)i;
	return fail_plain();
}

srt_status_t srt_file_get_entry(const srt_file_t *file, size_t i, const char **key,
				const void **data, size_t *nbytes)
{
	SRT_NOT_NULL(file);
	SRT_NOT_NULL(key);
	(void)i;
	(void)data;
	(void)nbytes;
	return fail_plain();
}

srt_status_t srt_file_get_saved(const srt_file_t *file, const char *name, srt_file_saved_t *saved)
{
	SRT_NOT_NULL(file);
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(saved);
	SRT_TRY(srt_struct_check(saved, "srt_file_saved_t"));
	return fail_plain();
}

srt_status_t srt_file_get_box(const srt_file_t *file, const char *name, size_t i,
			      srt_file_box_t *box)
{
	SRT_NOT_NULL(file);
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(box);
	(void)i;
	return fail_plain();
}
