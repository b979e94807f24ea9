/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run trains on: see data.h. */
#include "tools/train/data.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tools/model_folder.h"

int trainer_why_data(trainer_t *t, srt_status_t status)
{
	return status == SRT_ERR_IO || tool_is_started_again() ?
		       tool_why_failure(&t->why, "%s", srt_error_last()) :
		       tool_why_usage(&t->why, "%s", srt_error_last());
}

int trainer_open_tokenizer(trainer_t *t, const char *option, srt_tokenizer_t **tokenizer)
{
	char path[TOOL_CONFIG_NBYTES];

	/* a model of this library has no tokenizer: texts are its bytes, as --text has them */
	if (t->model.family == NULL && t->model.hf_prefix == NULL &&
	    (t->opt.sft == NULL || t->config.vocab <= 256))
		return 0;
	if (tool_model_find_file(&t->model, "tokenizer.json", path))
		return srt_tokenizer_open(path, tokenizer) == SRT_OK ?
			       0 :
			       tool_why_usage(&t->why, "%s: %s", option, srt_error_last());
	if (t->config.vocab <= 256)
		return 0;
	return tool_why_usage(&t->why,
			      "%s: there is no %s to encode it by, and the vocabulary of "
			      "%" PRId64 " is not one of bytes%s",
			      option, path, t->config.vocab,
			      t->opt.sft != NULL ? "" :
						   ": encode the text by shardrt-tokens, and give "
						   "the file to --tokens");
}

int trainer_open_data(trainer_t *t)
{
	const train_options_t *o = &t->opt;

	t->data = o->sft != NULL ? &train_sft : &train_text;
	t->data_path = o->sft != NULL ? o->sft : o->tokens != NULL ? o->tokens : o->text;
	return t->data->open(t);
}

int trainer_compare_data(trainer_t *t)
{
	const char *unit = t->counts_bytes ? "bytes" : "tokens";
	train_data_id_t *all = calloc((size_t)t->world, sizeof(*all));
	int differs = 0;

	if (all == NULL)
		return tool_why_usage(&t->why, "no memory to compare the texts of the ranks");
	if (srt_comm_oob_allgather(t->comm, &t->data_id, sizeof(t->data_id), all) != SRT_OK)
		differs = tool_why_usage(&t->why, "%s", srt_error_last());
	for (int r = 1; r < t->world && !differs; r++)
		if (all[r].ntokens != all[0].ntokens || all[r].hash != all[0].hash)
			differs =
				tool_why_usage(&t->why,
					       "the ranks have different texts: %s has %" PRIu64
					       " %s (hash %016" PRIx64 ") on rank %d, but %" PRIu64
					       " %s (hash %016" PRIx64 ") on rank 0",
					       t->data_path, all[r].ntokens, unit, all[r].hash, r,
					       all[0].ntokens, unit, all[0].hash);
	free(all);
	return differs;
}
