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

srt_group_options_t srt_options_group(const srt_engine_options_t *o)
{
	srt_group_options_t group = {
		.lr = o->lr,
		.momentum = o->momentum,
		.dampening = o->dampening,
		.nesterov = o->nesterov,
		.beta1 = o->beta1,
		.beta2 = o->beta2,
		.eps = o->eps,
		.amsgrad = o->amsgrad,
		.maximize = o->maximize,
	};

	srt_optim_complete_group(o->optimizer, &group);
	return group;
}

srt_status_t srt_options_check(const srt_engine_options_t *o)
{
	srt_group_options_t group;
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
	SRT_TRY(srt_optim_check_schedule(o->min_lr, o->warmup, o->lr_steps, o->schedule,
					 o->decay_steps));
	group = srt_options_group(o);
	return srt_optim_check_group(o->optimizer, &group);
}

void srt_options_complete(srt_engine_options_t *o)
{
	if (o->microbatches == 0)
		o->microbatches = 1;
	o->prefetch = o->prefetch == 0 ? 1 : o->prefetch < 0 ? 0 : o->prefetch;
}

int srt_engine_count_states(const srt_engine_t *engine)
{
	return srt_optim_count_states_of(engine->options.optimizer, engine->groups,
					 engine->ngroups);
}
