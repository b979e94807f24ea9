/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A run that is resumed by public calls alone: all that a step changes is read, set in another
 * engine of another strategy, and the next steps have the bits of a run that was not interrupted.
 * Also groups of parameters against engines that have their hyper-parameters for all, and the
 * errors of the setters.
 * Run by test_engine_types.sh.
 */
#include <math.h>

#include "runtime/engine/declare/declare.h"
#include "tests/engine/engine_case.h"

#define BEFORE 3 /* steps before the break */
#define AFTER 3

static srt_context_t *context;

/* What a program saves: tensors as their bytes, one after the other. */
typedef struct saved {
	char *tensor[SRT_PARAM_STATE2 + 1]; /* by srt_param_what_t; NULL for gradients */
	int32_t steps[MAX_CASE_PARAMS];
	srt_step_info_t group[3];
} saved_t;

typedef struct run_options {
	srt_engine_options_t engine;
	srt_dtype_t stored;
	size_t ngroups; /* 1 to 3 */
} run_options_t;

static size_t param_nbytes(const engine_case_t *c, size_t i)
{
	return (size_t)srt_param_nelem(c->param[i]) * (srt_dtype_bits(c->stored) / 8);
}

static void save(engine_case_t *c, size_t ngroups, saved_t *saved)
{
	memset(saved, 0, sizeof(*saved));
	for (int what = 0; what <= SRT_PARAM_STATE2; what++) {
		size_t at = 0;

		if (what == SRT_PARAM_GRAD)
			continue;
		saved->tensor[what] = calloc(case_nelem(c) + 1, sizeof(float));
		CHECK_OR_DIE(saved->tensor[what] != NULL);
		for (size_t i = 0; i < c->nparams; i++) {
			srt_status_t status = srt_param_get(c->param[i], (srt_param_what_t)what,
							    saved->tensor[what] + at, c->stream);

			CHECK(status == SRT_OK || (what > 0 && status == SRT_ERR_NOT_FOUND));
			at += param_nbytes(c, i);
		}
	}
	for (size_t i = 0; i < c->nparams; i++) {
		if (srt_param_requires_grad(c->param[i]))
			CHECK_OK(test_get_steps(c->engine, c->param[i], &saved->steps[i],
						c->stream));
	}
	for (size_t g = 0; g < ngroups; g++) {
		saved->group[g] = (srt_step_info_t)SRT_STEP_INFO_INIT;
		CHECK_OK(srt_optim_get_step_info(srt_engine_optim(c->engine), g, &saved->group[g],
						 c->stream));
	}
}

static void restore(engine_case_t *c, size_t ngroups, const saved_t *saved)
{
	for (int what = 0; what <= SRT_PARAM_STATE2; what++) {
		size_t at = 0;

		for (size_t i = 0; what != SRT_PARAM_GRAD && i < c->nparams; i++) {
			const char *from = saved->tensor[what] + at;

			at += param_nbytes(c, i);
			if (what == SRT_PARAM_VALUE)
				CHECK_OK(srt_param_set(c->param[i], SRT_PARAM_VALUE, from,
						       c->stream));
			else if (test_local(c->param[i], (srt_param_what_t)what).buffer != NULL)
				CHECK_OK(srt_param_set(c->param[i], (srt_param_what_t)what, from,
						       c->stream));
		}
	}
	for (size_t i = 0; i < c->nparams; i++) {
		if (srt_param_requires_grad(c->param[i]))
			CHECK_OK(
				test_set_steps(c->engine, c->param[i], saved->steps[i], c->stream));
	}
	for (size_t g = 0; g < ngroups; g++)
		CHECK_OK(srt_optim_set_step_info(srt_engine_optim(c->engine), g, &saved->group[g],
						 c->stream));
}

static void saved_free(saved_t *saved)
{
	for (int what = 0; what <= SRT_PARAM_STATE2; what++)
		free(saved->tensor[what]);
}

static void check_same(const saved_t *a, const saved_t *b, size_t nbytes, const char *what)
{
	for (int k = 0; k <= SRT_PARAM_STATE2; k++)
		CHECK_MSG(k == SRT_PARAM_GRAD || memcmp(a->tensor[k], b->tensor[k], nbytes) == 0,
			  "%s: tensor %d differs", what, k);
	CHECK_MSG(memcmp(a->steps, b->steps, sizeof(a->steps)) == 0, "%s: step counts", what);
	CHECK_MSG(memcmp(a->group, b->group, sizeof(a->group)) == 0, "%s: step states", what);
}

/* Matrices of the blocks are in group 1, vectors in group 2. */
static void declare(engine_case_t *c, const run_options_t *o, srt_strategy_t strategy)
{
	srt_engine_options_t options = o->engine;
	case_types_t types = { .stored = o->stored };

	options.strategy = strategy;
	types.ngroups = o->ngroups;
	case_declare_as(c, context, &options, 5, &types);
	c->unused = 1; /* step counts of parameters differ */
	c->delay = 1;
	case_build(c);
}

/* b2.unused has a gradient in every other step. */
static void steps(engine_case_t *c, int first, int n)
{
	for (int step = first; step < first + n; step++) {
		c->unused = step % 2;
		CHECK_OK_OR_DIE(case_step(c, step, 1));
	}
}

static void test_resume(const run_options_t *o, srt_strategy_t from, srt_strategy_t to)
{
	engine_case_t whole, first, second;
	saved_t saved, a, b;

	declare(&whole, o, from);
	steps(&whole, 0, BEFORE + AFTER);
	save(&whole, o->ngroups, &a);
	CHECK_INT(a.group[0].step, BEFORE + AFTER);
	declare(&first, o, from);
	steps(&first, 0, BEFORE);
	save(&first, o->ngroups, &saved);
	case_destroy(&first);
	declare(&second, o, to);
	restore(&second, o->ngroups, &saved);
	steps(&second, BEFORE, AFTER);
	save(&second, o->ngroups, &b);
	check_same(&a, &b, case_nelem(&whole) * (srt_dtype_bits(o->stored) / 8),
		   srt_strategy_name(to));
	CHECK(a.steps[0] == BEFORE + AFTER);
	saved_free(&saved);
	saved_free(&a);
	saved_free(&b);
	case_destroy(&whole);
	case_destroy(&second);
}

static void test_resumes(void)
{
	static const srt_precision_t bf16 = { .size = sizeof(bf16),
					      .param = SRT_BF16,
					      .reduce = SRT_F32 };
	const run_options_t runs[] = {
		{ { ENGINE_BASE, .norm_p = 2, .max_norm = 1.0f,
		    .optim = OPTIM(.kind = SRT_OPTIM_ADAM, .lr = 0.05f, .min_lr = 0.01f,
				   .warmup = 2, .lr_steps = 5, .amsgrad = 1, ADAM_BASE) },
		  SRT_F32,
		  1 },
		{ { ENGINE_BASE, .optim = OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 0.05f, ADAM_BASE) },
		  SRT_BF16,
		  3 },
		{ { ENGINE_BASE, .precision = &bf16,
		    .optim = OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 0.05f, ADAM_BASE) },
		  SRT_F32,
		  3 },
		{ { ENGINE_BASE,
		    .optim = OPTIM(.kind = SRT_OPTIM_SGD, .lr = 0.1f, .momentum = 0.9) },
		  SRT_F32,
		  1 },
		{ { ENGINE_BASE,
		    .optim = OPTIM(.kind = SRT_OPTIM_SGD, .lr = 0.1f, .momentum = 0.9) },
		  SRT_F16,
		  2 },
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(runs); i++) {
		test_resume(&runs[i], SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO3);
		test_resume(&runs[i], SRT_STRATEGY_ZERO3, SRT_STRATEGY_DDP);
	}
}

/* ---- groups ------------------------------------------------------------------------------ */

/* One step: each parameter moves as in an engine that has its group's options for all. */
static void test_groups(srt_optim_kind_t kind, srt_strategy_t strategy)
{
	srt_optim_options_t optim = SRT_OPTIM_SGD_INIT, group = SRT_OPTIM_OPTIONS_INIT;
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = strategy, .optim = &optim,
					       .norm_p = 2, .max_norm = 0.5f };
	const case_types_t types = { .ngroups = 3 };
	engine_case_t c, plain;
	float *all, *one;

	if (kind == SRT_OPTIM_SGD)
		optim.momentum = 0.9;
	else
		optim = group;
	optim.kind = kind;
	optim.lr = 0.1f;
	optim.min_lr = 0.01f;
	optim.lr_steps = 10;
	case_declare_as(&c, context, &options, 5, &types);
	case_build(&c);
	CHECK_OK_OR_DIE(case_step(&c, 0, 1));
	all = case_collect(&c, SRT_PARAM_VALUE);
	for (size_t g = 0; g < 3; g++) {
		srt_engine_options_t alone = options;

		CHECK_OK(srt_optim_group_options(srt_engine_optim(c.engine), g, &group));
		alone.optim = &group;
		case_declare(&plain, context, &alone, 5);
		case_build(&plain);
		CHECK_OK_OR_DIE(case_step(&plain, 0, 1));
		one = case_collect(&plain, SRT_PARAM_VALUE);
		for (size_t i = 0, at = 0; i < c.nparams; i++) {
			size_t n = (size_t)srt_param_nelem(c.param[i]);

			if (c.param[i]->group == g)
				CHECK_BITS(all + at, one + at, n);
			at += n;
		}
		free(one);
		case_destroy(&plain);
	}
	CHECK_STATUS(srt_optim_group_options(srt_engine_optim(c.engine), 3, &group),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_engine_group_create(c.engine, &group, &(size_t){ 0 }), SRT_ERR_STATE);
	free(all);
	case_destroy(&c);
}

/*
 * 0 is 0, and the defaults are in the initialisers.
 *
 * Reliability: an option that is 0 next to one that is not | `eps` alone set both betas to 0 | the
 * defaults are in the initialiser, and 0 is 0
 */
static void test_defaults(srt_strategy_t strategy)
{
	srt_optim_options_t optim = SRT_OPTIM_OPTIONS_INIT, group = SRT_OPTIM_SGD_INIT;
	srt_engine_options_t options = { ENGINE_BASE, .strategy = strategy };
	engine_case_t c;
	size_t index;
	float *m, *grad;

	case_declare(&c, context, &options, 5); /* torch.optim.AdamW */
	CHECK_OK(srt_optim_group_options(srt_engine_optim(c.engine), 0, &group));
	CHECK(group.kind == SRT_OPTIM_ADAMW && group.lr == 1e-3f);
	CHECK(group.beta1 == 0.9 && group.beta2 == 0.999 && group.eps == 1e-8f);
	CHECK(group.weight_decay == 0.01f);
	case_destroy(&c);

	options.optim = &optim;
	optim.beta1 = 0;
	case_declare(&c, context, &options, 5);
	CHECK_OK(srt_optim_group_options(srt_engine_optim(c.engine), 0, &group));
	CHECK(group.beta1 == 0 && group.beta2 == 0.999);
	CHECK_OK(srt_engine_group_create(c.engine, &group, &index));
	CHECK_OK(srt_optim_group_options(srt_engine_optim(c.engine), index, &group));
	CHECK(group.beta1 == 0);
	case_build(&c);
	CHECK_OK_OR_DIE(case_step(&c, 0, 1));
	m = case_collect(&c, SRT_PARAM_STATE0);
	grad = case_collect(&c, SRT_PARAM_GRAD);
	for (size_t i = 0; i < case_nelem(&c); i++) /* +0 and -0 are the same moment */
		CHECK_MSG(m[i] == grad[i], "moment %g of gradient %g", (double)m[i],
			  (double)grad[i]);
	free(m);
	free(grad);
	case_destroy(&c);
}

/* Values and moments set from this rank's elements are those set from the unsharded tensor. */
static void test_set_local(srt_strategy_t strategy)
{
	static const srt_param_what_t whats[] = { SRT_PARAM_VALUE, SRT_PARAM_STATE0 };
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = strategy,
					       .optim = OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 0.1f,
							      ADAM_BASE) };
	srt_param_t *param;
	engine_case_t c;
	int64_t nelem;
	srt_part_t part;
	float *set, *got;

	case_declare(&c, context, &options, 5);
	case_build(&c);
	param = srt_engine_param_find(c.engine, "b1.weight");
	CHECK_OR_DIE(param != NULL);
	nelem = srt_param_nelem(param);
	set = calloc((size_t)nelem, sizeof(*set));
	got = calloc((size_t)nelem, sizeof(*got));
	CHECK_OR_DIE(set != NULL && got != NULL);
	CHECK_OK(srt_param_part(param, c.engine->rank, &part));
	for (size_t k = 0; k < SRT_ARRAY_LEN(whats); k++) {
		for (int64_t i = 0; i < nelem; i++)
			set[i] = (float)(i + 1) * (k == 0 ? 0.5f : 0.25f);
		CHECK_OK(srt_param_set_local(param, whats[k], set + part.first, c.stream));
		CHECK_OK_OR_DIE(srt_param_get(param, whats[k], got, c.stream));
		CHECK_BITS(got, set, (size_t)nelem);
	}
	CHECK_STATUS(srt_param_set_local(param, SRT_PARAM_GRAD, set, c.stream), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_param_set_local(param, SRT_PARAM_STATE2, set, c.stream),
		     SRT_ERR_NOT_FOUND);
	free(set);
	free(got);
	case_destroy(&c);
}

/*
 * A learning rate that was forgotten is refused, one of 0 that was set is not.
 *
 * Reliability: a learning rate that was forgotten | steps that change nothing | the step is
 * refused
 */
static void test_no_lr(srt_strategy_t strategy)
{
	const srt_engine_options_t options = ENGINE_SGD(strategy, 0);
	const srt_optim_options_t group = { .size = sizeof(group), .kind = SRT_OPTIM_SGD };
	const srt_param_options_t how = { PARAM_BASE, .group = 1 };
	const int64_t shape[] = { 2 };
	srt_param_t *param;
	engine_case_t c;
	size_t index;

	case_declare(&c, context, &options, 5);
	CHECK_OK(srt_engine_group_create(c.engine, &group, &index));
	CHECK_OK(srt_param_create(c.root, "x", SRT_F32, 1, shape, &how, &param));
	case_build(&c);
	CHECK_OK_OR_DIE(case_passes(&c, 0, 1));
	CHECK_STATUS(srt_engine_step(c.engine, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("group 0 has no learning rate");
	CHECK_ERROR_HAS("srt_optim_set_lr()");
	CHECK_OK(srt_optim_set_lr(srt_engine_optim(c.engine), 0, 0.5f, c.stream));
	CHECK_STATUS(srt_engine_step(c.engine, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("group 1 has no learning rate");
	CHECK_STATUS(srt_optim_set_lr(srt_engine_optim(c.engine), SRT_OPTIM_ALL_GROUPS, INFINITY,
				      c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_optim_set_lr(srt_engine_optim(c.engine), SRT_OPTIM_ALL_GROUPS, NAN,
				      c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_optim_set_lr(srt_engine_optim(c.engine), SRT_OPTIM_ALL_GROUPS, -1.0f,
				      c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_OK(
		srt_optim_set_lr(srt_engine_optim(c.engine), SRT_OPTIM_ALL_GROUPS, 0.0f, c.stream));
	CHECK_OK(srt_engine_step(c.engine, c.stream));
	CHECK_OK(srt_stream_sync(c.stream));
	case_destroy(&c);
}

/* The rate of one group, then of all. */
static void test_group_lr(srt_strategy_t strategy)
{
	const srt_engine_options_t options = ENGINE_SGD(strategy, 0.1f);
	const case_types_t types = { .ngroups = 3 };
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	engine_case_t c;

	case_declare_as(&c, context, &options, 5, &types);
	CHECK_STATUS(srt_optim_set_lr(srt_engine_optim(c.engine), 1, 0.5f, c.stream),
		     SRT_ERR_STATE);
	case_build(&c);
	CHECK_OK(srt_optim_set_lr(srt_engine_optim(c.engine), 1, 0.5f, c.stream));
	CHECK_OK_OR_DIE(case_step(&c, 0, 1));
	CHECK_OK(srt_optim_get_step_info(srt_engine_optim(c.engine), 1, &state, c.stream));
	CHECK(state.lr == 0.5f && state.step == 1);
	CHECK_OK(srt_optim_get_step_info(srt_engine_optim(c.engine), 2, &state, c.stream));
	CHECK(state.lr == 0.025f);
	CHECK_OK(srt_engine_get_step_info(c.engine, &state, c.stream));
	CHECK(state.lr == 0.1f);
	CHECK_OK(srt_optim_set_lr(srt_engine_optim(c.engine), SRT_OPTIM_ALL_GROUPS, 0.75f,
				  c.stream));
	CHECK_OK_OR_DIE(case_step(&c, 1, 1));
	for (size_t g = 0; g < 3; g++) {
		CHECK_OK(srt_optim_get_step_info(srt_engine_optim(c.engine), g, &state, c.stream));
		CHECK(state.lr == 0.75f && state.step == 2);
	}
	CHECK_STATUS(srt_optim_set_lr(srt_engine_optim(c.engine), 3, 0.5f, c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_optim_set_lr(srt_engine_optim(c.engine), 1, -0.5f, c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	case_destroy(&c);
}

static void test_errors(void)
{
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_DDP,
					       .optim = OPTIM(.kind = SRT_OPTIM_ADAM, .lr = 0.1f,
							      ADAM_BASE) };
	const int64_t shape[] = { 2 };
	static const struct {
		float weight_decay, lr_scale;
	} bad[] = { { -0.5f, 1 }, { NAN, 1 }, { 0, -0.5f }, { INFINITY, 1 }, { 0, INFINITY } };
	srt_param_options_t how = SRT_PARAM_OPTIONS_INIT;
	srt_optim_options_t group = SRT_OPTIM_ADAM_INIT;
	srt_step_info_t state = { .size = sizeof(srt_step_info_t), .step = 1, .base_lr = -1.0f };
	srt_param_t *param;
	engine_case_t c;
	size_t index;
	float x[64] = { 0 };

	case_declare(&c, context, &options, 5);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		how.weight_decay = bad[i].weight_decay;
		how.lr_scale = bad[i].lr_scale;
		CHECK_STATUS(srt_param_create(c.root, "x", SRT_F32, 1, shape, &how, &param),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("parameter 'x': option ");
	}
	group.beta1 = 1;
	CHECK_STATUS(srt_engine_group_create(c.engine, &group, &index), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("beta1");
	group = (srt_optim_options_t)SRT_OPTIM_SGD_INIT;
	CHECK_STATUS(srt_engine_group_create(c.engine, &group, &index), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("srt_engine_group_create: option kind of group");
	CHECK_STATUS(srt_param_create(c.root, "x", SRT_F32, 1, shape,
				      &(srt_param_options_t){ PARAM_BASE, .group = 1 }, &param),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'x' is 1, must be less than 1");
	CHECK_STATUS(srt_param_set(c.tied, SRT_PARAM_STATE0, x, c.stream), SRT_ERR_STATE);
	CHECK_STATUS(test_set_steps(c.engine, c.tied, 1, c.stream), SRT_ERR_STATE);
	case_build(&c);
	CHECK_STATUS(srt_param_set(c.tied, SRT_PARAM_STATE2, x, c.stream), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_param_set(c.tied, SRT_PARAM_GRAD, x, c.stream), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_param_set(c.tied, SRT_PARAM_STATE0, NULL, c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(test_set_steps(c.engine, c.tied, -1, c.stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_INT(srt_optim_find(srt_engine_optim(c.engine), "root.frozen"),
		  srt_optim_count(srt_engine_optim(c.engine)));
	CHECK_STATUS(srt_optim_step(srt_engine_optim(c.engine), c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("srt_engine_step() steps it");
	CHECK_STATUS(srt_optim_set_used(srt_engine_optim(c.engine), 0, 1, c.stream), SRT_ERR_STATE);
	srt_optim_destroy(srt_engine_optim(c.engine)); /* the engine's */
	CHECK_STATUS(srt_optim_set_step_info(srt_engine_optim(c.engine), 0, &state, c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_optim_set_step_info(srt_engine_optim(c.engine), 3, &state, c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	case_destroy(&c);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	test_resumes();
	for (srt_strategy_t s = SRT_STRATEGY_DDP; s <= SRT_STRATEGY_ZERO3; s++) {
		test_groups(SRT_OPTIM_SGD, s);
		test_groups(SRT_OPTIM_ADAMW, s);
		test_group_lr(s);
		test_set_local(s);
	}
	test_defaults(SRT_STRATEGY_ZERO3);
	test_no_lr(SRT_STRATEGY_ZERO1);
	test_errors();
	srt_context_destroy(context);
	return check_done();
}
