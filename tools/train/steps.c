/* SPDX-License-Identifier: BSD-3-Clause */
/* A training step and validation. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "models/try.h"
#include "tools/train/data.h"

/* Sets t->why and t->data_failed if the text cannot be read. */
static int check_data(trainer_t *t, srt_status_t status)
{
	if (status == SRT_OK)
		return 0;
	t->data_failed = 1;
	return tool_why_failure(&t->why, "%s", srt_error_last());
}

int trainer_load_batch(trainer_t *t, int64_t step)
{
	const int64_t share = t->opt.batch / t->ndata; /* sequences of this rank */

	if (check_data(t, t->data->read_batch(t, step, t->data_rank * share, share)) != 0 ||
	    check_data(t, t->data->count_targets(t, step,
						 &t->ntargets[(step - 1) % TRAIN_WATCH])) != 0)
		return -1;
	return check_data(t, t->data->check_unchanged(t));
}

/* Copies ids and targets of a micro-batch from the host to the inputs of a tape. */
static srt_status_t copy_inputs(trainer_t *t, const srt_decoder_io_t *io, int64_t micro_batch)
{
	const int64_t n = t->micro * t->length, at = micro_batch * n;

	SRT_TRY(srt_decoder_put_positions(io, t->positions != NULL ? t->positions + at : NULL,
					  t->stream));
	return srt_decoder_put_tokens(io, t->ids + at, t->targets + at, t->stream);
}

/* Copies the first n losses of a tape to element `at` of a buffer. */
static srt_status_t keep_losses(trainer_t *t, const srt_decoder_io_t *io, srt_buffer_t *to,
				int64_t at, int64_t n)
{
	srt_view_t loss = srt_tensor_view(io->loss);

	return srt_buffer_copy(to, (size_t)at * sizeof(float), loss.buffer, loss.offset,
			       (size_t)n * sizeof(float), t->stream);
}

/* The optimizer's step, and its results: the engine's scalars, and the scale of the next step. */
static srt_status_t step_engine(trainer_t *t, size_t slot)
{
	const size_t state = offsetof(train_seen_t, states) + slot * SRT_STEP_INFO_NBYTES;
	srt_view_t view;

	if (t->scaler == NULL) {
		SRT_TRY(srt_engine_step(t->engine, t->stream));
		return srt_engine_copy_step_info(t->engine, t->results, state, t->stream);
	}
	SRT_TRY(srt_scaler_step(t->scaler, t->engine, t->stream));
	SRT_TRY(srt_scaler_update(t->scaler, t->stream));
	SRT_TRY(srt_engine_copy_step_info(t->engine, t->results, state, t->stream));
	SRT_TRY(srt_scaler_view(t->scaler, &view));
	return srt_buffer_copy(t->results, offsetof(train_seen_t, scales) + slot * sizeof(float),
			       view.buffer, view.offset, sizeof(float), t->stream);
}

srt_status_t trainer_step(trainer_t *t, int64_t step)
{
	const train_options_t *o = &t->opt;
	const int64_t micro_tokens = t->micro * t->length;
	const size_t slot = (size_t)((step - 1) % TRAIN_WATCH);
	const float mean = 1.0f / (float)t->ntargets[slot];
	const srt_view_t total =
		srt_view(t->results, offsetof(train_seen_t, totals) + slot * sizeof(float),
			 SRT_F32);
	srt_view_t scale = { 0 };

	if (t->scaler != NULL)
		SRT_TRY(srt_scaler_view(t->scaler, &scale));
	for (int64_t m = 0; m < o->accumulate; m++) {
		SRT_TRY(srt_engine_microbatch(t->engine, (int)m, (int)o->accumulate));
		SRT_TRY(copy_inputs(t, &t->train_io, m));
		SRT_TRY(srt_tape_forward(t->train_tape, t->stream));
		SRT_TRY(srt_tape_backward(t->train_tape, mean, scale, t->stream));
		SRT_TRY(keep_losses(t, &t->train_io, t->losses, m * micro_tokens, micro_tokens));
	}
	SRT_TRY(srt_engine_sum(t->engine, srt_view(t->losses, 0, SRT_F32),
			       o->accumulate * micro_tokens, o->batch * t->length, total,
			       t->stream));
	return step_engine(t, slot);
}

srt_status_t trainer_post(trainer_t *t, int64_t step)
{
	SRT_TRY(srt_buffer_copy(t->seen, (size_t)(step % 2) * sizeof(train_seen_t), t->results, 0,
				sizeof(train_seen_t), t->stream));
	return srt_event_record(t->arrived[step % 2], t->stream);
}

static const train_seen_t *get_seen(trainer_t *t, int64_t step)
{
	return (const train_seen_t *)srt_buffer_host(t->seen) + step % 2;
}

srt_status_t trainer_watch(trainer_t *t, int64_t step, double *loss)
{
	const train_seen_t *seen = get_seen(t, step);

	if (srt_event_sync(t->arrived[step % 2]) != SRT_OK) /* the stream has the error */
		SRT_TRY(srt_stream_sync(t->stream));
	for (int64_t s = t->watched + 1; s <= step; s++) {
		const int64_t slot = (s - 1) % TRAIN_WATCH;
		srt_step_info_t info = SRT_STEP_INFO_INIT;
		int skipped;

		SRT_TRY(srt_step_info_decode(seen->states[slot], &info));
		skipped = info.skipped != t->skipped;
		t->skipped = info.skipped;
		t->nonfinite = isfinite(seen->totals[slot]) ? 0 : t->nonfinite + 1;
		if (t->nonfinite > 0 && (!skipped || t->nonfinite == TRAIN_STUCK) &&
		    t->diverged_at == 0)
			t->diverged_at = s - t->nonfinite + 1;
	}
	t->watched = step;
	*loss = (double)seen->totals[(step - 1) % TRAIN_WATCH] /
		(double)t->ntargets[(step - 1) % TRAIN_WATCH];
	return SRT_OK;
}

srt_status_t trainer_read(trainer_t *t, train_result_t *result)
{
	const train_seen_t *seen = get_seen(t, result->step);
	const int64_t slot = (result->step - 1) % TRAIN_WATCH;
	srt_step_info_t info = SRT_STEP_INFO_INIT;

	SRT_TRY(trainer_watch(t, result->step, &result->loss));
	SRT_TRY(srt_step_info_decode(seen->states[slot], &info));
	result->grad_norm = (double)info.grad_norm;
	result->lr = (double)info.lr;
	result->scale = t->scaler != NULL ? (double)seen->scales[slot] : 1.0;
	result->skipped = info.skipped;
	return SRT_OK;
}

/* Reads windows first .. first+micro-1 of this rank's part, which ends at `end`.
 * @param[out] n the number of losses. @return 0, or -1 with t->why and t->data_failed. */
static int load_windows(trainer_t *t, int64_t first, int64_t end, int64_t *n)
{
	*n = 0;
	for (int64_t i = 0; i < t->micro; i++) {
		int64_t w = first + i < end ? first + i : INT32_MAX; /* past the end: padding */
		int64_t copied = t->data->read_window(t, w, i);

		if (copied < 0)
			return check_data(t, SRT_ERR_IO);
		*n += copied;
	}
	return check_data(t, t->data->check_unchanged(t));
}

int64_t trainer_eval_tokens(const trainer_t *t)
{
	int64_t predictions, losses;

	t->data->count_losses(t, trainer_eval_windows(t), &predictions, &losses);
	return predictions;
}

srt_status_t trainer_evaluate(trainer_t *t, trainer_batch_fn *before, void *arg, double *loss)
{
	const int64_t windows = trainer_eval_windows(t);
	int64_t first, end, passes, predictions, losses, kept = 0;
	int stopped_by;
	float total;

	*loss = (double)NAN;
	t->data->count_losses(t, windows, &predictions, &losses);
	/* Contiguous parts; every rank runs as many passes as the rank with the most windows. */
	first = windows * t->data_rank / t->ndata;
	end = windows * (t->data_rank + 1) / t->ndata;
	passes = ((windows + t->ndata - 1) / t->ndata + t->micro - 1) / t->micro;
	for (int64_t p = 0; p < passes; p++) {
		int64_t n;

		load_windows(t, first + p * t->micro, end, &n); /* `before` agrees on a failure */
		SRT_TRY(before(t, arg, p + 1, passes, &stopped_by));
		if (stopped_by) /* the validation of a large text takes minutes */
			return SRT_OK;
		SRT_TRY(copy_inputs(t, &t->eval_io, 0));
		SRT_TRY(srt_tape_forward(t->eval_tape, t->stream));
		SRT_TRY(keep_losses(t, &t->eval_io, t->eval_losses, kept, n));
		kept += n;
	}
	SRT_TRY(srt_engine_sum(t->engine, srt_view(t->eval_losses, 0, SRT_F32), kept, losses,
			       srt_view(t->eval_total, 0, SRT_F32), t->stream));
	SRT_TRY(srt_buffer_copy_to_host(&total, t->eval_total, 0, sizeof(total), t->stream));
	*loss = (double)total / (double)predictions;
	return SRT_OK;
}
