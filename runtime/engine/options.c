/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The options of an engine: checked by the rules of torch.optim where it has them, and completed
 * with their defaults. Called by srt_engine_create().
 */
#include "runtime/engine/engine.h"

const char *srt_strategy_name(srt_strategy_t strategy)
{
	static const char *const names[] = {
		[SRT_STRATEGY_DDP] = "ddp",
		[SRT_STRATEGY_ZERO1] = "zero1",
		[SRT_STRATEGY_ZERO2] = "zero2",
		[SRT_STRATEGY_ZERO3] = "zero3",
	};

	return names[strategy];
}

/* Refuses what torch.optim refuses. The comparisons are false for NaN. */
static srt_status_t check_optimizer(const srt_engine_options_t *o)
{
	if (!(o->lr >= 0.0f && o->min_lr >= 0.0f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"options lr %g and min_lr %g must be at least 0", (double)o->lr,
				(double)o->min_lr);
	if (o->optimizer == SRT_OPTIMIZER_NONE)
		return SRT_OK;
	if (o->optimizer != SRT_OPTIMIZER_SGD) {
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

srt_status_t srt_options_check(const srt_engine_options_t *o)
{
	srt_unit_types_t types;

	SRT_TRY(srt_check_reserved(o->reserved, "srt_engine_options_t"));
	if ((unsigned)o->strategy > SRT_STRATEGY_ZERO3 || (unsigned)o->average > SRT_AVERAGE_SUM ||
	    (unsigned)o->accumulation > SRT_ACCUMULATE_TREE ||
	    (unsigned)o->optimizer > SRT_OPTIMIZER_NONE)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"one of the options strategy (%d), average (%d), accumulation "
				"(%d), optimizer (%d) is not a value of its enum",
				(int)o->strategy, (int)o->average, (int)o->accumulation,
				(int)o->optimizer);
	if (!(o->divide_factor >= 0.0f && o->divide_factor <= 0x1.fffffep127f) ||
	    (o->divide_factor != 0.0f && o->average == SRT_AVERAGE_SUM))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option divide_factor is %g, must be finite and at least 0, and 0 "
				"where nothing is divided (SRT_AVERAGE_SUM)",
				(double)o->divide_factor);
	if (o->precision != NULL)
		SRT_TRY(srt_precision_resolve(o->precision, SRT_F32, &types));
	if (o->microbatches < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option microbatches is %d, must be at least 0", o->microbatches);
	if (o->accumulation == SRT_ACCUMULATE_TREE &&
	    (o->microbatches & (o->microbatches - 1)) != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option microbatches is %d, must be a power of two with "
				"SRT_ACCUMULATE_TREE",
				o->microbatches);
	if (o->norm_p != 0 && o->norm_p != 1 && o->norm_p != 2 && o->norm_p != 3 &&
	    o->norm_p != SRT_NORM_INF)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option norm_p is %d, must be 0, 1, 2, 3 or SRT_NORM_INF",
				o->norm_p);
	if (o->max_norm != o->max_norm)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "option max_norm is NaN");
	if (o->norm_p == 0 && o->max_norm > 0.0f)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option max_norm is %g but norm_p is 0: set the norm to clip by",
				(double)o->max_norm);
	if (o->warmup < 0 || o->lr_steps < 0 || o->decay_steps < 0 ||
	    (unsigned)o->schedule > SRT_SCHEDULE_CONSTANT)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"options warmup %d, lr_steps %d and decay_steps %d must be at least "
			"0, option schedule (%d) a value of its enum",
			(int)o->warmup, (int)o->lr_steps, (int)o->decay_steps, (int)o->schedule);
	return check_optimizer(o);
}

void srt_options_complete(srt_engine_options_t *o)
{
	if (o->microbatches == 0)
		o->microbatches = 1;
	o->prefetch = o->prefetch == 0 ? 1 : o->prefetch < 0 ? 0 : o->prefetch;
	if (o->optimizer != SRT_OPTIMIZER_SGD && o->beta1 == 0.0 && o->beta2 == 0.0 &&
	    o->eps == 0.0f) {
		o->beta1 = 0.9;
		o->beta2 = 0.999;
		o->eps = 1e-8f;
	}
}

int srt_options_count_states(const srt_engine_options_t *options)
{
	if (options->optimizer == SRT_OPTIMIZER_NONE)
		return 0;
	if (options->optimizer == SRT_OPTIMIZER_SGD)
		return options->momentum != 0.0f ? 1 : 0;
	return options->amsgrad ? 3 : 2;
}
