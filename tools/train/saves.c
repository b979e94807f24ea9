/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run saves between two steps and after the last one, and what it says if that fails. */
#include "models/try.h"
#include "tools/common.h"
#include "tools/train/train.h"

srt_status_t trainer_warn_of_save(trainer_t *t, train_report_t *report, int64_t step,
				  srt_status_t status)
{
	if (status != SRT_ERR_IO)
		return status;
	if (t->rank == 0) {
		train_report_end_line(report);
		tool_error("warning: step %lld is not saved: %s", (long long)step, t->why.text);
	}
	t->why.text[0] = '\0';
	return SRT_OK;
}

srt_status_t trainer_save_between(trainer_t *t, train_report_t *report, int64_t step)
{
	if (t->opt.save != NULL)
		SRT_TRY(trainer_warn_of_save(t, report, step, trainer_save(t, t->opt.save)));
	if (t->opt.checkpoint != NULL) {
		SRT_TRY(trainer_warn_of_save(t, report, t->checkpointed,
					     trainer_end_checkpoint(t)));
		SRT_TRY(trainer_warn_of_save(t, report, step, trainer_begin_checkpoint(t, step)));
	}
	train_report_resume(report);
	return SRT_OK;
}

/* Prints that nothing is saved. */
static void report_divergence(const trainer_t *t)
{
	const train_options_t *o = &t->opt;

	if (t->rank != 0)
		return;
	if (o->save != NULL)
		tool_error("the loss is not finite since step %lld: nothing is saved, %s is "
			   "unchanged",
			   (long long)t->diverged_at, o->save);
	if (o->checkpoint != NULL)
		tool_error(
			"the loss is not finite since step %lld: no checkpoint is saved; the "
			"latest one in %s, if there is one, is of an earlier step: go on from it "
			"with --resume and a lower --lr",
			(long long)t->diverged_at, o->checkpoint);
}

/* The status of a last save. The run goes on to its end if a file cannot be written. */
static srt_status_t report_last_save(trainer_t *t, srt_status_t status)
{
	if (status != SRT_ERR_IO)
		return status;
	if (t->rank == 0)
		tool_error("%s", t->why.text);
	t->why.text[0] = '\0';
	t->save_failed = 1;
	return SRT_OK;
}

srt_status_t trainer_save_last(trainer_t *t, train_report_t *report, int hurry)
{
	srt_status_t status;

	if (t->diverged_at) {
		report_divergence(t);
		return trainer_warn_of_save(t, report, t->checkpointed, trainer_end_checkpoint(t));
	}
	if (t->opt.save != NULL) {
		SRT_TRY(report_last_save(t, trainer_save_at_end(t, hurry)));
		if (t->rank == 0 && !t->save_failed)
			printf("saved %s\n", t->opt.save);
	}
	if (t->opt.checkpoint == NULL)
		return SRT_OK;
	status = trainer_end_checkpoint(t);
	if (status == SRT_OK && t->checkpointed == t->done)
		return SRT_OK;
	SRT_TRY(trainer_warn_of_save(t, report, t->checkpointed, status));
	return report_last_save(t, trainer_checkpoint_at_end(t, hurry));
}
