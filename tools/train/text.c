/* SPDX-License-Identifier: BSD-3-Clause */
/* The text or the tokens of a run, which are the same on all ranks; see data.h. */
#include "tools/train/data.h"

#include "models/data/text.h"
#include "models/try.h"

static int open_text(trainer_t *t)
{
	const train_options_t *o = &t->opt;
	srt_text_source_t source = { .path = t->data_path,
				     .validation = o->val,
				     .are_tokens = o->tokens != NULL,
				     .evaluates = (int)o->eval };
	srt_tokenizer_t *tokenizer = NULL;
	srt_status_t status;

	if (o->tokens == NULL && trainer_open_tokenizer(t, "--text", &tokenizer) != 0)
		return -1;
	source.tokenizer = tokenizer;
	t->counts_bytes = o->tokens == NULL && tokenizer == NULL;
	status = srt_text_open(&source, &t->text);
	srt_tokenizer_close(tokenizer);
	if (status == SRT_OK)
		status = srt_text_check(t->text, t->length, t->config.vocab);
	if (status == SRT_OK) /* the ranks share the work, as all see the same file */
		status = srt_text_check_tokens(t->text, t->rank, t->world);
	if (status != SRT_OK)
		return trainer_why_data(t, status);
	t->data_id = (train_data_id_t){ srt_text_ntokens(t->text), srt_text_hash(t->text) };
	return 0;
}

static srt_status_t read_batch(trainer_t *t, int64_t step, int64_t first, int64_t count)
{
	return srt_text_batch(t->text, (uint64_t)t->opt.seed, step, first, count, t->length, t->ids,
			      t->targets);
}

static srt_status_t count_targets(trainer_t *t, int64_t step, int64_t *ntargets)
{
	(void)step;
	*ntargets = t->opt.batch * t->length;
	return SRT_OK;
}

static int64_t count_windows(const trainer_t *t)
{
	return srt_text_nwindows(t->text, t->length);
}

static void count_losses(const trainer_t *t, int64_t n, int64_t *predictions, int64_t *losses)
{
	const int64_t tokens = (int64_t)srt_text_nvalidation(t->text);
	/* Windows of --eval do not predict their first token, and have a loss of 0 for it. */
	const int64_t not_predicted = t->opt.eval ? n : 0;

	*losses = n * t->length;
	if (n == count_windows(t))
		*losses = tokens - !t->opt.eval;
	*predictions = *losses - not_predicted;
}

static int64_t read_window(trainer_t *t, int64_t w, int64_t i)
{
	return srt_text_window(t->text, w, t->length, t->ids + i * t->length,
			       t->targets + i * t->length);
}

static srt_status_t check_unchanged(trainer_t *t)
{
	return srt_text_check_unchanged(t->text);
}

const train_data_t train_text = {
	.open = open_text,
	.read_batch = read_batch,
	.count_targets = count_targets,
	.count_windows = count_windows,
	.count_losses = count_losses,
	.read_window = read_window,
	.check_unchanged = check_unchanged,
};
