/* SPDX-License-Identifier: BSD-3-Clause */
/* What the options determine of an engine; see options.h. */
#include "tools/train/options.h"

tool_precision_t train_options_precision(const train_options_t *o)
{
	tool_precision_t precision = { 0 };

	tool_precision((tool_dtype_t)o->dtype, (int)o->pure, (tool_reduce_t)o->reduce_dtype,
		       &precision, NULL, 0);
	return precision;
}

void train_options_engine(const train_options_t *o, const srt_precision_t *precision,
			  srt_optim_options_t *optim, srt_engine_options_t *e)
{
	static const int norms[] = { 1, 2, 3, SRT_NORM_INF };
	static const srt_optim_options_t optimizers[] = {
		[TRAIN_SGD] = SRT_OPTIM_SGD_INIT,
		[TRAIN_ADAM] = SRT_OPTIM_ADAM_INIT,
		[TRAIN_ADAMW] = SRT_OPTIM_OPTIONS_INIT,
		[TRAIN_MUON] = SRT_OPTIM_OPTIONS_INIT, /* of group 0: train_options_muon() */
		[TRAIN_ADAMW8BIT] = SRT_OPTIM_OPTIONS_INIT,
	};

	*e = (srt_engine_options_t)SRT_ENGINE_OPTIONS_INIT;
	e->strategy = (srt_strategy_t)o->strategy;
	e->precision = precision;
	e->average = SRT_AVERAGE_SUM;
	e->accumulation = (srt_accumulation_t)o->accumulate_mode;
	e->microbatches = (int)o->accumulate;
	e->optim = optim;
	*optim = optimizers[o->optimizer];
	optim->state_bits = o->optimizer == TRAIN_ADAMW8BIT ? 8 : 0;
	if (optim->kind == SRT_OPTIM_SGD) {
		optim->momentum = o->momentum;
	} else {
		optim->beta1 = o->beta1;
		optim->beta2 = o->beta2;
	}
	optim->lr = (float)o->lr;
	optim->min_lr = (float)o->min_lr;
	optim->warmup = (int32_t)o->warmup;
	optim->lr_steps = (int32_t)o->steps;
	optim->schedule = (srt_schedule_t)o->schedule;
	if (optim->schedule == SRT_SCHEDULE_STABLE)
		optim->decay_steps = (int32_t)o->decay_steps;
	tool_offload(o->offload, &e->offload, NULL, 0); /* checked with the options */
	e->norm_p = norms[o->clip_p];
	e->max_norm = (float)o->clip;
}

srt_optim_options_t train_options_muon(const train_options_t *o, const srt_optim_options_t *optim)
{
	srt_optim_options_t muon = SRT_OPTIM_MUON_INIT;

	muon.lr = (float)o->muon_lr;
	muon.min_lr = o->lr > 0 ? (float)(o->muon_lr * (o->min_lr / o->lr)) : 0.0f;
	muon.momentum = o->momentum;
	muon.adjust = (srt_muon_adjust_t)o->muon_adjust;
	muon.warmup = optim->warmup;
	muon.lr_steps = optim->lr_steps;
	muon.schedule = optim->schedule;
	muon.decay_steps = optim->decay_steps;
	return muon;
}
