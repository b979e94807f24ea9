/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first values: initial ones, or those of --init, which is a file of --save or one of a GPT-2
 * of Hugging Face. Either has the model's sizes.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "models/gpt_hf.h"
#include "models/try.h"
#include "tools/train/train.h"

/* The sizes of an open file. Without metadata of ours and names of Hugging Face, those of the
 * preset stay. */
static int find_sizes(trainer_t *t, const srt_file_t *file)
{
	const char *sizes;

	if (srt_file_find_metadata(file, TRAIN_SIZES_KEY, &sizes) == SRT_OK) {
		if (train_parse_sizes(sizes, &t->config) == 0)
			return 0;
		return trainer_set_error(
			t, "--init %s: cannot parse the model size in its metadata: '%s'",
			t->opt.init, sizes);
	}
	if (!srt_gpt_hf_recognise(file, &t->hf_prefix))
		return 0;
	if (srt_gpt_hf_sizes(file, t->opt.init, t->hf_prefix, &t->config) != SRT_OK)
		return trainer_set_error(t, "--init: %s", srt_last_error());
	if (t->opt.generate > 0 || t->opt.sample > 0)
		return trainer_set_error(t,
					 "--generate and --sample print bytes, but the tokens of "
					 "--init %s, a GPT-2 of Hugging Face, are not bytes",
					 t->opt.init);
	if (t->config.heads == 0 && t->opt.heads == 0)
		return trainer_set_error(
			t,
			"--init %s: no tensor has the number of heads, and there is no config.json "
			"in its folder that has it: give --heads",
			t->opt.init);
	return 0;
}

int trainer_read_sizes(trainer_t *t)
{
	srt_file_t *file;
	int failed;

	if (access(t->opt.init, R_OK) != 0)
		return trainer_set_error(t, "cannot read --init %s: %s", t->opt.init,
					 strerror(errno));
	if (srt_file_open(t->opt.init, &file) != SRT_OK)
		return trainer_set_error(t, "--init %s: %s", t->opt.init, srt_last_error());
	t->init_ntensors = srt_file_count(file);
	failed = find_sizes(t, file);
	srt_file_close(file);
	return failed;
}

int trainer_check_ntensors(trainer_t *t)
{
	const int64_t needed = srt_gpt_ntensors(&t->config);

	if ((uint64_t)needed <= t->init_ntensors)
		return 0;
	return trainer_set_error(t,
				 "--init %s: it has %zu tensors, but a model of %" PRId64
				 " layers has %" PRId64,
				 t->opt.init, t->init_ntensors, t->config.layers, needed);
}

srt_status_t trainer_start_values(trainer_t *t)
{
	srt_file_names_t names;
	srt_status_t status;

	if (!t->opt.init)
		return srt_gpt_init(t->gpt, (uint64_t)t->opt.seed, t->stream);
	if (t->hf_prefix) {
		names = srt_gpt_hf_names(t->hf_prefix);
		status = srt_engine_load_named(t->engine, t->opt.init, &names, t->stream);
	} else {
		status = srt_engine_load(t->engine, t->opt.init, t->stream);
	}
	if (status == SRT_ERR_FORMAT || status == SRT_ERR_INVALID_ARGUMENT)
		trainer_set_error(t, "--init %s: %s", t->opt.init, srt_last_error());
	return status;
}
