/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hyper-parameters: checked by the rules of torch.optim, and completed with its defaults.
 */
#include "runtime/optimizer/optimizer.h"

/* The comparisons are false for NaN. */
srt_status_t srt_optim_check_group(srt_optimizer_t kind, const srt_group_options_t *o)
{
	SRT_TRY(srt_check_reserved(o->reserved, "srt_group_options_t"));
	if (!(o->lr >= 0.0f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "option lr %g must be at least 0",
				(double)o->lr);
	if (o->weight_decay != o->weight_decay)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "option weight_decay is NaN");
	if (kind == SRT_OPTIMIZER_NONE)
		return SRT_OK;
	if (kind != SRT_OPTIMIZER_SGD) {
		if (o->beta1 >= 0.0 && o->beta1 < 1.0 && o->beta2 >= 0.0 && o->beta2 < 1.0 &&
		    o->eps >= 0.0f)
			return SRT_OK;
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"options beta1 %g and beta2 %g must be in [0, 1), option eps %g at "
				"least 0",
				o->beta1, o->beta2, (double)o->eps);
	}
	if (o->amsgrad)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option amsgrad is set, but the optimizer is SGD: only Adam and "
				"AdamW have it");
	if (!(o->momentum >= 0.0f) || o->dampening != o->dampening)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option momentum %g must be at least 0, option dampening %g must "
				"not be NaN",
				(double)o->momentum, (double)o->dampening);
	if (o->nesterov && (o->momentum == 0.0f || o->dampening != 0.0f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option nesterov needs a momentum (now %g) and a dampening of 0 "
				"(now %g)",
				(double)o->momentum, (double)o->dampening);
	return SRT_OK;
}

srt_status_t srt_optim_check_schedule(float min_lr, int32_t warmup, int32_t lr_steps,
				      srt_schedule_t schedule, int32_t decay_steps)
{
	if (!(min_lr >= 0.0f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "option min_lr %g must be at least 0",
				(double)min_lr);
	if (warmup < 0 || lr_steps < 0 || decay_steps < 0 ||
	    (unsigned)schedule > SRT_SCHEDULE_CONSTANT)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"options warmup %d, lr_steps %d and decay_steps %d must be at least "
			"0, option schedule (%d) a value of its enum",
			(int)warmup, (int)lr_steps, (int)decay_steps, (int)schedule);
	return SRT_OK;
}

void srt_optim_complete_group(srt_optimizer_t kind, srt_group_options_t *o)
{
	if (kind != SRT_OPTIMIZER_SGD && o->beta1 == 0.0 && o->beta2 == 0.0 && o->eps == 0.0f) {
		o->beta1 = 0.9;
		o->beta2 = 0.999;
		o->eps = 1e-8f;
	}
}

int srt_optim_count_states_of(srt_optimizer_t kind, const srt_group_options_t *groups,
			      size_t ngroups)
{
	int most = 0;

	for (size_t g = 0; g < ngroups; g++) {
		int n = 0;

		if (kind == SRT_OPTIMIZER_SGD)
			n = groups[g].momentum != 0.0f ? 1 : 0;
		else if (kind != SRT_OPTIMIZER_NONE)
			n = groups[g].amsgrad ? 3 : 2;
		most = n > most ? n : most;
	}
	return most;
}
