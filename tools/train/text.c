/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens the text or the tokens of a run, which are the same on all ranks. */
#include "tools/train/train.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tools/model_folder.h"

/* The tokenizer of a model of Hugging Face, NULL if its folder has none: then bytes are tokens, if
 * the vocabulary is one of bytes. */
static int open_tokenizer(trainer_t *t, srt_tokenizer_t **tokenizer)
{
	char path[TOOL_CONFIG_NBYTES];

	if (tool_model_find_file(&t->model, "tokenizer.json", path))
		return srt_tokenizer_open(path, tokenizer) == SRT_OK ?
			       0 :
			       tool_why_usage(&t->why, "--text: %s", srt_error_last());
	if (t->config.vocab <= 256)
		return 0;
	return tool_why_usage(&t->why,
			      "--text: there is no %s to encode it by, and the vocabulary of "
			      "%" PRId64 " is not one of bytes: encode the text by "
			      "shardrt-tokens, and give the file to --tokens",
			      path, t->config.vocab);
}

int trainer_open_text(trainer_t *t)
{
	const train_options_t *o = &t->opt;
	srt_text_source_t source = { .path = o->tokens != NULL ? o->tokens : o->text,
				     .validation = o->val,
				     .are_tokens = o->tokens != NULL,
				     .evaluates = (int)o->eval };
	srt_tokenizer_t *tokenizer = NULL;
	srt_status_t status;

	if (t->model.family != NULL && o->tokens == NULL && open_tokenizer(t, &tokenizer) != 0)
		return -1;
	source.tokenizer = tokenizer;
	t->counts_bytes = o->tokens == NULL && tokenizer == NULL;
	status = srt_text_open(&source, &t->text);
	srt_tokenizer_close(tokenizer);
	if (status == SRT_OK)
		status = srt_text_check(t->text, t->length, t->config.vocab);
	if (status == SRT_OK) /* the ranks share the work, as all see the same file */
		status = srt_text_check_tokens(t->text, t->rank, t->world);
	if (status == SRT_OK)
		return 0;
	return status == SRT_ERR_IO || tool_is_started_again() ?
		       tool_why_failure(&t->why, "%s", srt_error_last()) :
		       tool_why_usage(&t->why, "%s", srt_error_last());
}

int trainer_compare_texts(trainer_t *t)
{
	typedef struct text_id {
		uint64_t ntokens, hash;
	} text_id_t;
	const char *unit = t->counts_bytes ? "bytes" : "tokens";
	text_id_t mine = { 0 }, *all = calloc((size_t)t->world, sizeof(*all));
	int differs = 0;

	if (all == NULL)
		return tool_why_usage(&t->why, "no memory to compare the texts of the ranks");
	if (t->text != NULL)
		mine = (text_id_t){ srt_text_ntokens(t->text), srt_text_hash(t->text) };
	if (srt_comm_oob_allgather(t->comm, &mine, sizeof(mine), all) != SRT_OK)
		differs = tool_why_usage(&t->why, "%s", srt_error_last());
	for (int r = 1; r < t->world && !differs; r++)
		if (all[r].ntokens != all[0].ntokens || all[r].hash != all[0].hash)
			differs =
				tool_why_usage(&t->why,
					       "the ranks have different texts: %s has %" PRIu64
					       " %s (hash %016" PRIx64 ") on rank %d, but %" PRIu64
					       " %s (hash %016" PRIx64 ") on rank 0",
					       t->opt.tokens != NULL ? t->opt.tokens : t->opt.text,
					       all[r].ntokens, unit, all[r].hash, r, all[0].ntokens,
					       unit, all[0].hash);
	free(all);
	return differs;
}
