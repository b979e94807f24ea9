/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a program does between the backward passes and the end of a step: learning rates from
 * outside, dropped and skipped steps, an optimizer over its own list. The bits are compared with
 * those of an engine that needs nothing of it.
 * Run by test_engine_types.sh.
 */
#include <math.h>

#include "runtime/engine/declare/declare.h"
#include "tests/engine/engine_case.h"

static srt_context_t *context;

static void declare(engine_case_t *c, const srt_engine_options_t *options, srt_dtype_t stored)
{
	case_declare_as(c, context, options, 5, &(case_types_t){ .stored = stored });
	c->unused = 2;
	case_build(c);
}

static void check_same(engine_case_t *a, engine_case_t *b, const char *what)
{
	for (int k = 0; k <= SRT_PARAM_STATE1; k++) {
		float *x, *y;

		if (k == SRT_PARAM_GRAD || k - SRT_PARAM_STATE0 >= a->engine->memory.nstates)
			continue;
		x = case_collect(a, (srt_param_what_t)k);
		y = case_collect(b, (srt_param_what_t)k);
		CHECK_MSG(memcmp(x, y, case_nelem(a) * sizeof(*x)) == 0,
			  "%s, %s, stored %s: tensor %d differs", what,
			  srt_strategy_name(a->engine->options.strategy), srt_dtype_name(a->stored),
			  k);
		free(x);
		free(y);
	}
}

/* ---- learning rates ---------------------------------------------------------------------- */

static double schedule(const srt_optim_options_t *o, int step)
{
	const double base = (double)o->lr, min = (double)o->min_lr;
	const int decay =
		o->schedule == SRT_SCHEDULE_STABLE ? o->decay_steps : o->lr_steps - o->warmup;
	double x;

	if (step < o->warmup)
		return base * step / o->warmup;
	if (step >= o->lr_steps)
		return min;
	x = (double)(o->lr_steps - step) / decay;
	if (o->schedule == SRT_SCHEDULE_COSINE)
		return min + (base - min) * (1.0 - cos(M_PI * x)) / 2.0;
	return x > 1.0 ? base : min + (base - min) * x;
}

/* The schedule's rate is the formula's, and set from outside it gives the same bits. */
static void test_schedule(srt_strategy_t strategy, srt_dtype_t stored, srt_schedule_t kind)
{
	srt_optim_options_t optim = SRT_OPTIM_OPTIONS_INIT;
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = strategy, .optim = &optim };
	engine_case_t a, b;
	srt_step_info_t state = SRT_STEP_INFO_INIT;

	optim.beta2 = 0.99;
	optim.eps = 1e-3f;
	optim.lr = 0.1f;
	optim.min_lr = 0.01f;
	optim.warmup = 2;
	optim.lr_steps = 7;
	optim.schedule = kind;
	optim.decay_steps = 3;
	declare(&a, &options, stored);
	optim.lr = 3.0f;
	optim.schedule = SRT_SCHEDULE_CONSTANT;
	declare(&b, &options, stored);
	optim = a.engine->optim->groups[0];
	for (int step = 0; step < 8; step++) {
		CHECK_OK_OR_DIE(case_step(&a, step, 1));
		CHECK_OK(srt_engine_get_step_info(a.engine, &state, a.stream));
		CHECK_NEAR((double)state.lr, schedule(&optim, step + 1), 2e-8);
		CHECK_OK_OR_DIE(case_passes(&b, step, 1));
		if (step % 2)
			CHECK_OK(srt_engine_finish_backward(b.engine, b.stream));
		CHECK_OK(srt_optim_set_lr(srt_engine_optim(b.engine), SRT_OPTIM_ALL_GROUPS,
					  state.lr, b.stream));
		CHECK_OK_OR_DIE(srt_engine_step(b.engine, b.stream));
	}
	check_same(&a, &b, "lr from outside");
	CHECK_STATUS(srt_optim_set_lr(srt_engine_optim(b.engine), SRT_OPTIM_ALL_GROUPS, -1.0f,
				      b.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_optim_set_lr(srt_engine_optim(b.engine), SRT_OPTIM_ALL_GROUPS, NAN,
				      b.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	case_destroy(&a);
	case_destroy(&b);
}

/* ---- steps that change nothing ----------------------------------------------------------- */

static srt_engine_options_t clipping(srt_strategy_t strategy, int norm_p)
{
	srt_engine_options_t options = case_adamw(strategy);

	options.optim = &case_adamw_eps;
	options.norm_p = norm_p;
	options.max_norm = norm_p != 0 ? 0.5f : 0.0f;
	return options;
}

/* The program reads the norm and drops the step. */
static void test_drop(srt_strategy_t strategy, srt_dtype_t stored)
{
	const srt_engine_options_t options = clipping(strategy, 2);
	srt_step_info_t state = SRT_STEP_INFO_INIT, after = SRT_STEP_INFO_INIT;
	engine_case_t a, b;

	declare(&a, &options, stored);
	declare(&b, &options, stored);
	a.delay = a.check = 1;
	for (int step = 0; step < 3; step++) {
		CHECK_OK_OR_DIE(case_passes(&a, 7 + step, 1));
		CHECK_OK(srt_engine_finish_backward(a.engine, a.stream));
		CHECK_OK(srt_engine_clip(a.engine, 2, step == 1 ? 0.25f : 0.0f, a.stream));
		CHECK_OK(srt_engine_get_step_info(a.engine, &state, a.stream));
		CHECK(state.grad_norm > 0.0f && state.step == step);
		CHECK((state.clipped_by < 1.0f) == (step == 1 && state.grad_norm > 0.25f));
		CHECK_OK(srt_engine_reset(a.engine));
		CHECK_OK_OR_DIE(case_step(&a, step, 1));
		CHECK_OK_OR_DIE(case_step(&b, step, 1));
		CHECK_OK(srt_engine_get_step_info(a.engine, &state, a.stream));
		CHECK_OK(srt_engine_get_step_info(b.engine, &after, b.stream));
		CHECK(state.step == step + 1 && state.skipped == 0);
		CHECK(memcmp(&state.grad_norm, &after.grad_norm, sizeof(float)) == 0);
		CHECK(memcmp(&state.clip_coef, &after.clip_coef, sizeof(float)) == 0);
	}
	check_same(&a, &b, "dropped steps");
	case_destroy(&a);
	case_destroy(&b);
}

/* A value on one rank that is not finite: no rank changes anything, and the next steps are those
 * of an engine without it. */
static void test_skip(srt_strategy_t strategy, srt_dtype_t stored, int norm_p, int phases)
{
	srt_engine_options_t options = clipping(strategy, norm_p);
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	engine_case_t a, b;
	int32_t steps;

	options.skip_nonfinite = 1;
	declare(&a, &options, stored);
	declare(&b, &options, stored);
	a.delay = a.check = 1;
	for (int step = 0; step < 3; step++) {
		a.poison = step == 1 ? INFINITY : NAN;
		CHECK_OK_OR_DIE(case_passes(&a, 5, 1));
		if (phases)
			CHECK_OK(srt_engine_finish_backward(a.engine, a.stream));
		if (phases == 2)
			CHECK_OK(srt_engine_clip(a.engine, 2, 1.0f, a.stream));
		CHECK_OK_OR_DIE(srt_engine_step(a.engine, a.stream));
		check_same(&a, &b, "skipped steps"); /* b has not made this step */
		CHECK_OK(srt_engine_get_step_info(a.engine, &state, a.stream));
		CHECK(state.step == step && state.skipped == step + 1);
		for (size_t i = 0; i < a.nparams; i++) {
			int32_t other;

			if (!srt_param_requires_grad(a.param[i]))
				continue;
			CHECK_OK(test_get_steps(a.engine, a.param[i], &steps, a.stream));
			CHECK_OK(test_get_steps(b.engine, b.param[i], &other, b.stream));
			CHECK_INT(steps, other);
		}
		a.poison = 0.0f;
		CHECK_OK_OR_DIE(case_step(&a, step, 1));
		CHECK_OK_OR_DIE(case_step(&b, step, 1));
		check_same(&a, &b, "after skipped steps");
	}
	CHECK_OK(srt_engine_get_step_info(b.engine, &state, b.stream));
	CHECK(state.step == 3 && state.skipped == 0);
	case_destroy(&a);
	case_destroy(&b);
}

static void count_nonfinite(srt_log_level_t level, const char *message, void *arg)
{
	if (level == SRT_LOG_WARN && strstr(message, "the norm of the gradients is ") != NULL)
		++*(int *)arg;
}

/*
 * A step that nothing skips: the norm tells on every rank, and a log message once.
 *
 * Reliability: a NaN gradient on one rank, without a scaler | all weights NaN, no word | the norm
 * shows it on every rank, one warning names the step
 */
static void test_nonfinite(srt_strategy_t strategy, int norm_p)
{
	const srt_engine_options_t options = clipping(strategy, norm_p);
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	engine_case_t c;
	int warnings = 0;

	declare(&c, &options, SRT_F32);
	srt_log_set(count_nonfinite, SRT_LOG_WARN, &warnings);
	for (int step = 0; step < 3; step++) {
		c.poison = step == 1 ? NAN : 0.0f;
		CHECK_OK_OR_DIE(case_step(&c, step, 1));
		for (int again = 0; again < 2; again++) {
			CHECK_OK(srt_engine_get_step_info(c.engine, &state, c.stream));
			CHECK((step > 0) == !isfinite(state.grad_norm));
			CHECK(state.step == step + 1 && state.skipped == 0);
			CHECK_INT(warnings, step > 0);
		}
	}
	srt_log_set(NULL, SRT_LOG_WARN, NULL);
	case_destroy(&c);
}

/* ---- an optimizer of the program's -------------------------------------------------------- */

static srt_optim_t *own_optimizer(engine_case_t *c, srt_optim_kind_t kind)
{
	srt_optim_options_t options = SRT_OPTIM_OPTIONS_INIT;
	srt_optim_param_t list[MAX_CASE_PARAMS];
	srt_optim_t *optim;
	size_t n = 0;

	CHECK_OK(srt_optim_group_options(srt_engine_optim(c->engine), 0, &options));
	options.kind = kind;
	for (size_t i = 0; i < c->nparams; i++) {
		const srt_param_t *p = c->param[i];

		if (p->frozen || p->unit == c->never || /* without a gradient on any rank */
		    (c->engine->world == 1 && strcmp(p->name, "b2.unused") == 0))
			continue;
		list[n++] = (srt_optim_param_t){
			.size = sizeof(srt_optim_param_t),
			.name = p->name,
			.nelem = p->shard.nelem,
			.value = test_local(c->param[i], SRT_PARAM_VALUE),
			.grad = test_local(c->param[i], SRT_PARAM_GRAD),
			.weight_decay = p->weight_decay,
			.lr_scale = 1.0f,
		};
	}
	CHECK_OK_OR_DIE(srt_optim_create(srt_context_device(context), &options, 1, list, n, &optim,
					 c->stream));
	return optim;
}

static void test_own_optimizer(srt_strategy_t strategy, srt_dtype_t stored, srt_dtype_t param,
			       srt_optim_kind_t kind)
{
	const srt_precision_t precision = { .size = sizeof(precision), .param = param };
	srt_optim_options_t of_engine = SRT_OPTIM_OPTIONS_INIT;
	srt_engine_options_t options = {
		ENGINE_BASE,         .strategy = strategy, .precision = &precision,
		.optim = &of_engine, .norm_p = 2,          .max_norm = 0.5f
	};
	srt_optim_t *optim;
	engine_case_t a, b;
	float *x, *y;

	if (kind == SRT_OPTIM_SGD)
		of_engine = (srt_optim_options_t)SRT_OPTIM_SGD_INIT;
	of_engine.kind = kind;
	of_engine.lr = 0.05f;
	of_engine.weight_decay = 0;
	declare(&a, &options, stored);
	of_engine.kind = SRT_OPTIM_NONE;
	options.norm_p = 0;
	options.max_norm = 0.0f;
	declare(&b, &options, stored);
	b.delay = b.check = 1;
	optim = own_optimizer(&b, kind);
	for (int step = 0; step < 3; step++) {
		CHECK_OK_OR_DIE(case_step(&a, step, 1));
		CHECK_OK_OR_DIE(case_passes(&b, step, 1));
		CHECK_OK(srt_engine_finish_backward(b.engine, b.stream));
		CHECK_OK(srt_engine_clip(b.engine, 2, 0.5f, b.stream));
		CHECK_OK(srt_engine_write_begin(b.engine, b.stream));
		CHECK_OK(srt_optim_step(optim, b.stream));
		CHECK_OK(srt_engine_write_end(b.engine, b.stream));
		CHECK_OK_OR_DIE(srt_engine_step(b.engine, b.stream));
	}
	x = case_collect(&a, SRT_PARAM_VALUE);
	y = case_collect(&b, SRT_PARAM_VALUE);
	CHECK_MSG(memcmp(x, y, case_nelem(&a) * sizeof(*x)) == 0,
		  "optimizer %d of the program's, %s, stored %s: values differ", (int)kind,
		  srt_strategy_name(strategy), srt_dtype_name(stored));
	free(x);
	free(y);
	CHECK_OK(srt_stream_sync(b.stream));
	srt_optim_destroy(optim);
	case_destroy(&a);
	case_destroy(&b);
}

int main(void)
{
	static const srt_strategy_t strategies[] = { SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO1,
						     SRT_STRATEGY_ZERO3 };
	static const srt_dtype_t stored[] = { SRT_F32, SRT_F16 };

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	for (size_t i = 0; i < SRT_ARRAY_LEN(strategies); i++) {
		const srt_strategy_t s = strategies[i];

		for (size_t d = 0; d < SRT_ARRAY_LEN(stored); d++) {
			test_schedule(s, stored[d], SRT_SCHEDULE_COSINE);
			test_schedule(s, stored[d], SRT_SCHEDULE_LINEAR);
			test_schedule(s, stored[d], SRT_SCHEDULE_STABLE);
			test_drop(s, stored[d]);
			test_skip(s, stored[d], 0, 0);
			test_skip(s, stored[d], 2, 1);
			test_skip(s, stored[d], 2, 2);
			test_own_optimizer(s, stored[d], SRT_DTYPE_NONE, SRT_OPTIM_ADAMW);
			test_own_optimizer(s, stored[d], SRT_DTYPE_NONE, SRT_OPTIM_SGD);
		}
		test_own_optimizer(s, SRT_F32, SRT_BF16, SRT_OPTIM_ADAM);
		test_nonfinite(s, i == 0 ? SRT_NORM_INF : 2);
	}
	srt_context_destroy(context);
	return check_done();
}
