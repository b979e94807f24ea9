/* SPDX-License-Identifier: BSD-3-Clause */
/* What the options determine of an engine; see options.h. */
#include "tools/train/options.h"

#include <string.h>

tool_precision_t train_options_precision(const train_options_t *o)
{
	tool_precision_t precision = { 0 };

	tool_precision((tool_dtype_t)o->dtype, (int)o->pure, (tool_reduce_t)o->reduce_dtype,
		       &precision, NULL, 0);
	return precision;
}

void train_options_engine(const train_options_t *o, const srt_precision_t *precision,
			  srt_engine_options_t *e)
{
	static const int norms[] = { 1, 2, 3, SRT_NORM_INF };
	static const srt_optimizer_t optimizers[] = { SRT_OPTIMIZER_SGD, SRT_OPTIMIZER_ADAM,
						      SRT_OPTIMIZER_ADAMW };

	memset(e, 0, sizeof(*e));
	e->strategy = (srt_strategy_t)o->strategy;
	e->precision = precision;
	e->average = SRT_AVERAGE_SUM;
	e->accumulation = (srt_accumulation_t)o->accumulate_mode;
	e->microbatches = (int)o->accumulate;
	e->optimizer = optimizers[o->optimizer];
	if (e->optimizer == SRT_OPTIMIZER_SGD) {
		e->momentum = (float)o->momentum;
	} else {
		e->beta1 = o->beta1 > 0 ? o->beta1 : SRT_OPTION_ZERO;
		e->beta2 = o->beta2 > 0 ? o->beta2 : SRT_OPTION_ZERO;
	}
	e->lr = (float)o->lr;
	e->min_lr = (float)o->min_lr;
	e->warmup = (int32_t)o->warmup;
	e->lr_steps = (int32_t)o->steps;
	tool_offload(o->offload, &e->offload, NULL, 0); /* checked with the options */
	e->norm_p = norms[o->clip_p];
	e->max_norm = (float)o->clip;
}
