/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of engines and optimizers as literals, in which a test names the fields that matter; and
 * calls of getters as expressions. */
#ifndef SRT_TESTS_HARNESS_OPTIONS_H
#define SRT_TESTS_HARNESS_OPTIONS_H

#include <shardrt/engine.h>
#include <shardrt/scaler.h>

/* A pointer to options of a context. */
#define CONTEXT(...)                                                                               \
	(&(const srt_context_options_t){ .size = sizeof(srt_context_options_t), __VA_ARGS__ })

/* The fields of srt_engine_options_t that are not zero by default, apart from the strategy. */
#define ENGINE_BASE .size = sizeof(srt_engine_options_t), .microbatches = 1, .prefetch = 1

/* A pointer to options of an optimizer, whose other fields are zero. */
#define OPTIM(...)                                                                                 \
	(&(const srt_optim_options_t){ .size = sizeof(srt_optim_options_t), __VA_ARGS__ })
/* SGD with a learning rate. */
#define OPTIM_SGD(rate) OPTIM(.kind = SRT_OPTIM_SGD, .lr = (rate))
/* An initialiser: an engine that steps by SGD. */
#define ENGINE_SGD(strategy_, rate)                                                                \
	{                                                                                          \
		ENGINE_BASE, .strategy = (strategy_), .optim = OPTIM_SGD(rate)                     \
	}
/* The fields of Adam and AdamW that are not zero by default, apart from lr and weight decay. */
#define ADAM_BASE .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f

/* A pointer to a mixed-precision policy, whose other fields are zero. */
#define PRECISION(...) (&(const srt_precision_t){ .size = sizeof(srt_precision_t), __VA_ARGS__ })

/* The fields of srt_param_options_t that are not zero by default. */
#define PARAM_BASE                                                                                 \
	.size = sizeof(srt_param_options_t), .weight_decay = SRT_OPTIM_GROUP_WEIGHT_DECAY,         \
	.lr_scale = 1.0f

/* The step count of a parameter in the optimizer of its engine. */
static inline srt_status_t test_get_steps(srt_engine_t *engine, const srt_param_t *param,
					  int32_t *steps, srt_stream_t *stream)
{
	const srt_optim_t *optim = srt_engine_optim(engine);

	return srt_optim_get_steps(optim, srt_optim_find(optim, srt_param_name(param)), steps,
				   stream);
}

static inline srt_status_t test_set_steps(srt_engine_t *engine, const srt_param_t *param,
					  int32_t steps, srt_stream_t *stream)
{
	srt_optim_t *optim = srt_engine_optim(engine);

	return srt_optim_set_steps(optim, srt_optim_find(optim, srt_param_name(param)), steps,
				   stream);
}

/* Views by value, for expressions; the buffer is NULL after an error. */
static inline srt_view_t test_local(srt_param_t *param, srt_param_what_t what)
{
	srt_view_t view = { 0 };

	(void)srt_param_local(param, what, &view);
	return view;
}

static inline srt_view_t test_unit_local(srt_unit_t *unit, srt_param_what_t what)
{
	srt_view_t view = { 0 };

	(void)srt_unit_local(unit, what, &view);
	return view;
}

static inline srt_view_t test_scaler_view(srt_scaler_t *scaler)
{
	srt_view_t view = { 0 };

	(void)srt_scaler_view(scaler, &view);
	return view;
}

static inline srt_view_t test_buffer_view(const srt_unit_buffer_t *buffer)
{
	srt_view_t view = { 0 };

	(void)srt_unit_buffer_view(buffer, &view);
	return view;
}

#endif
