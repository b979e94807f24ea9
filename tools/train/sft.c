/* SPDX-License-Identifier: BSD-3-Clause */
/* --sft: examples of answers, which are the same on all ranks; see data.h. */
#include "tools/train/data.h"

#include <inttypes.h>

#include "models/data/sft.h"
#include "models/try.h"
#include "tools/common.h"

/* Lines that are shown with why they are no examples. */
#define MOST_SHOWN 20
#define FIRST_SHOWN " (the first 20 are above)"

/* ---- opening -------------------------------------------------------------------------------- */

/* A file whose lines are reported, on rank 0. */
typedef struct shown {
	const trainer_t *t;
	const char *path;
	int64_t n;
} shown_t;

static void show_bad(void *arg, int64_t line, const char *why)
{
	shown_t *shown = arg;

	if (shown->t->rank == 0 && shown->n++ < MOST_SHOWN)
		tool_error("%s, line %" PRId64 ": %s", shown->path, line, why);
}

/* What is left out of a file, and what is trained on, on rank 0. */
static void describe(const trainer_t *t, const char *path, const srt_sft_t *sft)
{
	const srt_sft_info_t info = srt_sft_info(sft);

	if (t->rank != 0)
		return;
	if (info.nbad > 0)
		tool_error("warning: %s: %" PRId64 " of %" PRId64
			   " lines are left out, as they are "
			   "not examples to train on%s",
			   path, info.nbad, info.nbad + info.nexamples,
			   info.nbad > MOST_SHOWN ? FIRST_SHOWN : "");
	tool_error("%s: %" PRId64 " examples of %" PRId64 " %s, %" PRId64 " of them of answers, in "
		   "%" PRId64 " rows of %" PRId64 ", %.1f %% full",
		   path, info.nexamples, info.ntokens, t->counts_bytes ? "bytes" : "tokens",
		   info.nanswer_tokens, info.nrows, t->length, 100.0 * info.fill);
}

static int open_file(trainer_t *t, srt_sft_source_t *source, srt_sft_t **sft)
{
	shown_t shown = { .t = t, .path = source->path };
	srt_status_t status;

	source->report = show_bad;
	source->arg = &shown;
	status = srt_sft_open(source, sft);
	if (status == SRT_OK) {
		describe(t, source->path, *sft);
		return 0;
	}
	if (shown.n == 0 || status != SRT_ERR_INVALID_ARGUMENT || source->skips_bad)
		return trainer_why_data(t, status);
	return tool_why_usage(&t->why,
			      "%s%s: correct the lines above, or leave such lines out by "
			      "--sft-skip-bad",
			      srt_error_last(), shown.n > MOST_SHOWN ? FIRST_SHOWN : "");
}

static int open_files(trainer_t *t, srt_sft_source_t *source)
{
	const train_options_t *o = &t->opt;
	const char *train = t->data_path;
	srt_sft_info_t info;

	source->path = train;
	if (open_file(t, source, &t->sft) != 0)
		return -1;
	info = srt_sft_info(t->sft);
	t->data_id = (train_data_id_t){ (uint64_t)info.ntokens, info.hash };
	t->sft_windows = o->eval ? t->sft : NULL;
	if (o->val == NULL)
		return 0;
	source->path = o->val;
	if (open_file(t, source, &t->sft_val) != 0)
		return -1;
	info = srt_sft_info(t->sft_val);
	t->data_id.ntokens += (uint64_t)info.ntokens;
	t->data_id.hash = t->data_id.hash * UINT64_C(1099511628211) ^ info.hash;
	t->sft_windows = t->sft_val;
	return 0;
}

/* The template and the tokens that it needs. */
static int find_template(trainer_t *t, const srt_tokenizer_t *tokenizer, srt_sft_source_t *source)
{
	const train_options_t *o = &t->opt;

	source->bos = source->eos = -1;
	if (tokenizer != NULL &&
	    trainer_find_special(t, tokenizer, &source->bos, &source->eos) != 0)
		return -1;
	if (o->template == NULL) {
		if (tokenizer == NULL || source->eos >= 0)
			return 0;
		return tool_why_usage(&t->why,
				      "--sft: a completion ends with the token of the end of a "
				      "text, but neither tokenizer_config.json nor config.json has "
				      "one (eos_token, eos_token_id)");
	}
	if (tokenizer == NULL)
		return tool_why_usage(
			&t->why, "--template %s needs a tokenizer.json in the folder of --init",
			o->template);
	source->chat = srt_chat_find(o->template); /* checked with the options */
	return srt_chat_check(source->chat, tokenizer, source->bos, source->eos) == SRT_OK ?
		       0 :
		       tool_why_usage(&t->why, "--template: %s", srt_error_last());
}

static int open_sft(trainer_t *t)
{
	srt_sft_source_t source = { .context = t->length,
				    .vocab = t->config.vocab,
				    .seed = (uint64_t)t->opt.seed,
				    .batch = t->opt.batch,
				    .skips_bad = (int)t->opt.sft_skip_bad };
	srt_tokenizer_t *tokenizer = NULL;
	int error = trainer_open_tokenizer(t, "--sft", &tokenizer);

	t->counts_bytes = tokenizer == NULL;
	source.tokenizer = tokenizer;
	if (error == 0)
		error = find_template(t, tokenizer, &source);
	if (error == 0)
		error = open_files(t, &source);
	srt_tokenizer_close(tokenizer);
	if (t->sft_windows == NULL)
		t->opt.eval_every = 0; /* there is nothing to validate on */
	return error;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static srt_status_t read_batch(trainer_t *t, int64_t step, int64_t first, int64_t count)
{
	return srt_sft_batch(t->sft, step, first, count, t->ids, t->targets, t->positions);
}

static srt_status_t count_targets(trainer_t *t, int64_t step, int64_t *ntargets)
{
	return srt_sft_ntargets(t->sft, step, ntargets);
}

static int64_t count_windows(const trainer_t *t)
{
	return t->sft_windows != NULL ? srt_sft_nwindows(t->sft_windows) : 0;
}

/* All tokens have losses, 0 without a target. */
static void count_losses(const trainer_t *t, int64_t n, int64_t *predictions, int64_t *losses)
{
	*predictions = srt_sft_window_targets(t->sft_windows, n);
	*losses = n * t->length;
}

static int64_t read_window(trainer_t *t, int64_t w, int64_t i)
{
	const int64_t at = i * t->length;

	srt_sft_window(t->sft_windows, w, t->ids + at, t->targets + at, t->positions + at);
	return w < srt_sft_nwindows(t->sft_windows) ? t->length : 0;
}

/* All of it is in memory. */
static srt_status_t check_unchanged(trainer_t *t)
{
	(void)t;
	return SRT_OK;
}

const train_data_t train_sft = {
	.documents = 1,
	.open = open_sft,
	.read_batch = read_batch,
	.count_targets = count_targets,
	.count_windows = count_windows,
	.count_losses = count_losses,
	.read_window = read_window,
	.check_unchanged = check_unchanged,
};
