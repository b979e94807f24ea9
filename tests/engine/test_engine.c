/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps of the engine on any number of ranks: ddp and zero3 have the same bits in every mode, and
 * gradients and norm are what a plain computation on the host says.
 * Run by test_engine.sh on 1 to 5 ranks.
 */
#include "tests/engine/engine_case.h"

#define STEPS 3

static srt_context_t *context;
static srt_comm_t *self; /* this rank alone */

/* All results of a run. */
typedef struct result {
	float *value, *grad, *state0, *state1, *state2;
	srt_step_info_t step;
	unsigned char hash[16];
	int has_hash;
} result_t;

static void result_free(result_t *r)
{
	free(r->value);
	free(r->grad);
	free(r->state0);
	free(r->state1);
	free(r->state2);
}

static void run(const srt_engine_options_t *options, int64_t h, int unused, int nmicro,
		result_t *result)
{
	engine_case_t c;
	srt_status_t hashed;

	case_declare(&c, context, options, h);
	c.unused = unused;
	c.delay = c.check = 1;
	case_build(&c);
	for (int step = 0; step < STEPS; step++)
		CHECK_OK_OR_DIE(case_step(&c, step, nmicro));
	result->step = (srt_step_info_t)SRT_STEP_INFO_INIT;
	CHECK_OK(srt_engine_get_step_info(c.engine, &result->step, c.stream));
	result->value = case_collect(&c, SRT_PARAM_VALUE);
	result->grad = case_collect(&c, SRT_PARAM_GRAD);
	result->state0 = case_collect(&c, SRT_PARAM_STATE0);
	result->state1 = case_collect(&c, SRT_PARAM_STATE1);
	result->state2 = case_collect(&c, SRT_PARAM_STATE2);
	hashed = srt_engine_hash(c.engine, result->hash, c.stream);
	result->has_hash = hashed == SRT_OK;
	CHECK(hashed == SRT_OK || hashed == SRT_ERR_UNSUPPORTED);
	case_destroy(&c);
}

static void check_equal(const char *what, const result_t *a, const result_t *b, size_t n)
{
	long failed = check_failed;

	CHECK_BITS(a->value, b->value, n);
	CHECK_BITS(a->grad, b->grad, n);
	CHECK_BITS(a->state0, b->state0, n);
	CHECK_BITS(a->state1, b->state1, n);
	CHECK_BITS(a->state2, b->state2, n);
	CHECK_BITS(&a->step.grad_norm, &b->step.grad_norm, 1);
	CHECK_BITS(&a->step.clip_coef, &b->step.clip_coef, 1);
	CHECK_INT(a->step.step, b->step.step);
	CHECK(memcmp(a->hash, b->hash, sizeof(a->hash)) == 0 || !a->has_hash);
	if (check_failed > failed)
		fprintf(stderr, "    in: %s\n", what);
}

/* ddp against the other strategies, and several prefetch windows. */
static void compare_strategies(const char *what, srt_engine_options_t options, int64_t h,
			       int unused, int nmicro)
{
	static const struct {
		srt_strategy_t strategy;
		int prefetch;
	} others[] = { { SRT_STRATEGY_ZERO3, 1 },
		       { SRT_STRATEGY_ZERO1, 1 },
		       { SRT_STRATEGY_ZERO2, 1 },
		       { SRT_STRATEGY_ZERO3, 3 },
		       { SRT_STRATEGY_ZERO3, 0 } };
	const size_t nothers = nmicro == 1 && unused == 0 ? SRT_ARRAY_LEN(others) : 3;
	size_t n = case_total_nelem(context, h);
	result_t ddp, other;

	options.strategy = SRT_STRATEGY_DDP;
	options.microbatches = nmicro;
	run(&options, h, unused, nmicro, &ddp);
	for (size_t i = 0; i < nothers; i++) {
		options.strategy = others[i].strategy;
		options.prefetch = others[i].prefetch;
		run(&options, h, unused, nmicro, &other);
		check_equal(what, &ddp, &other, n);
		result_free(&other);
	}
	result_free(&ddp);
}

static void test_strategies(void)
{
	srt_engine_options_t o = case_adamw(SRT_STRATEGY_DDP);
	srt_optim_options_t optim = SRT_OPTIM_SGD_INIT;

	optim.lr = 0.05f;
	compare_strategies("adamw", o, 5, 0, 1);
	compare_strategies("adamw, unused everywhere", o, 7, 1, 1);
	compare_strategies("adamw, unused on rank 0", o, 5, 2, 1);
	compare_strategies("every micro-batch", o, 5, 2, 3);
	o.accumulation = SRT_ACCUMULATE_LAST;
	compare_strategies("last micro-batch", o, 5, 2, 3);
	o.average = SRT_AVERAGE_SUM;
	o.norm_p = SRT_NORM_INF;
	o.optim = &optim;
	optim.momentum = 0.9;
	optim.nesterov = 1;
	compare_strategies("sgd, sum, last", o, 6, 0, 2);
	optim.momentum = 0.0;
	optim.nesterov = 0;
	o.norm_p = 0;
	o.max_norm = 0.0f;
	compare_strategies("plain sgd, no norm, one row", o, 1, 0, 1);
	optim = (srt_optim_options_t)SRT_OPTIM_ADAM_INIT;
	optim.lr = 0.05f;
	o.norm_p = 3;
	optim.warmup = 2;
	optim.lr_steps = 5;
	compare_strategies("adam, schedule", o, 13, 1, 1);
	optim.amsgrad = 1;
	optim.maximize = 1;
	compare_strategies("adam, amsgrad, maximize", o, 5, 2, 2);
}

/* ---- gradients against a plain computation --------------------------------------------- */

/* This rank's gradients of one micro-batch, not reduced. */
static float *local_grads(int64_t h, int unused, int micro)
{
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_DDP);
	engine_case_t c;
	float *grads;

	options.comm = self;
	case_declare(&c, context, &options, h);
	c.unused = unused;
	case_build(&c);
	CHECK_OK_OR_DIE(case_forward(&c, 0));
	CHECK_OK_OR_DIE(case_backward(&c, 0, micro));
	CHECK_OK_OR_DIE(srt_engine_step(c.engine, c.stream));
	grads = case_collect(&c, SRT_PARAM_GRAD);
	case_destroy(&c);
	return grads;
}

/* The tree of docs/numerics.md: neighbours 2i and 2i+1, left + right, an odd last one passes up. */
static float tree_sum(float *x, int n)
{
	while (n > 1) {
		for (int i = 0; i < n / 2; i++)
			x[i] = x[2 * i] + x[2 * i + 1];
		if (n % 2)
			x[n / 2] = x[n - 1];
		n = (n + 1) / 2;
	}
	return x[0];
}

static float plain_sum(float *x, int n)
{
	float sum = x[0];

	for (int i = 1; i < n; i++)
		sum += x[i];
	return sum;
}

/* sum: how ranks are added. */
static float *reduce_on_host(const float *local, size_t n, float (*sum)(float *, int))
{
	int world = srt_context_world_size(context);
	float *all = calloc(n * (size_t)world, sizeof(*all)), *out = calloc(n, sizeof(*out));
	float x[64];

	CHECK_OR_DIE(all != NULL && out != NULL && world <= 64);
	CHECK_OK_OR_DIE(
		srt_comm_oob_allgather(srt_context_world(context), local, n * sizeof(*local), all));
	for (size_t i = 0; i < n; i++) {
		for (int r = 0; r < world; r++)
			x[r] = all[(size_t)r * n + i];
		out[i] = sum(x, world) / (float)world;
	}
	free(all);
	return out;
}

static float *engine_grads(srt_strategy_t strategy, srt_accumulation_t accumulation, int64_t h,
			   int unused, int nmicro)
{
	srt_engine_options_t options = case_adamw(strategy);
	engine_case_t c;
	float *grads;

	options.accumulation = accumulation;
	options.microbatches = nmicro;
	case_declare(&c, context, &options, h);
	c.unused = unused;
	case_build(&c);
	CHECK_OK_OR_DIE(case_step(&c, 0, nmicro));
	grads = case_collect(&c, SRT_PARAM_GRAD);
	case_destroy(&c);
	return grads;
}

static void test_gradients(srt_strategy_t strategy)
{
	const int64_t h = 11;
	size_t n = case_total_nelem(context, h), different = 0;
	float *local = local_grads(h, 2, 0), *sum = reduce_on_host(local, n, tree_sum);
	float *other = reduce_on_host(local, n, plain_sum);
	float *grads = engine_grads(strategy, SRT_ACCUMULATE_EVERY, h, 2, 1);

	CHECK_BITS(grads, sum, n);
	/* The check can fail: adding in order of rank gives other bits from 4 ranks on. */
	for (size_t i = 0; i < n; i++)
		different += memcmp(&other[i], &grads[i], sizeof(float)) != 0;
	CHECK((different > 0) == (srt_context_world_size(context) >= 4));
	free(grads);

	/* Every micro-batch reduced, then added. */
	for (int m = 1; m < 3; m++) {
		float *next_local = local_grads(h, 2, m);
		float *next = reduce_on_host(next_local, n, tree_sum);

		for (size_t i = 0; i < n; i++) {
			sum[i] += next[i];
			local[i] += next_local[i];
		}
		free(next_local);
		free(next);
	}
	grads = engine_grads(strategy, SRT_ACCUMULATE_EVERY, h, 2, 3);
	if (srt_context_world_size(context) > 1)
		CHECK_BITS(grads, sum, n);
	free(grads);
	free(sum);

	/* Added, then reduced: the tied parameter's uses are added one by one, so not compared. */
	sum = reduce_on_host(local, n, tree_sum);
	grads = engine_grads(strategy, SRT_ACCUMULATE_LAST, h, 2, 3);
	CHECK_BITS(grads + 3 * h, sum + 3 * h, n - 3 * (size_t)h);
	free(grads);
	free(sum);
	free(other);
	free(local);
}

/* ---- the norm does not depend on the number of ranks ------------------------------------ */

/* The norm of given gradients on one rank. */
static float norm_alone(const float *grads, int64_t h, int p)
{
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_DDP);
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	engine_case_t c;
	size_t at = 0;

	options.comm = self;
	options.norm_p = p;
	case_declare(&c, context, &options, h);
	case_build(&c);
	CHECK_OK_OR_DIE(case_passes(&c, 0, 1));
	CHECK_OK_OR_DIE(srt_engine_finish_backward(c.engine, c.stream));
	for (size_t i = 0; i < c.nparams; i++) {
		srt_view_t view = test_local(c.param[i], SRT_PARAM_GRAD);
		size_t n = (size_t)srt_param_nelem(c.param[i]);

		if (view.buffer != NULL && n > 0)
			CHECK_OK(srt_buffer_copy_from_host(view.buffer, view.offset, grads + at,
							   n * sizeof(float), c.stream));
		at += n;
	}
	CHECK_OK_OR_DIE(srt_engine_step(c.engine, c.stream));
	CHECK_OK_OR_DIE(srt_engine_get_step_info(c.engine, &state, c.stream));
	case_destroy(&c);
	return state.grad_norm;
}

static void test_norm(int p)
{
	const int64_t h = 9;
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	engine_case_t c;
	float *grads, alone;
	double plain = 0;
	size_t n;

	options.norm_p = p;
	case_declare(&c, context, &options, h);
	case_build(&c);
	CHECK_OK_OR_DIE(case_step(&c, 0, 1));
	CHECK_OK_OR_DIE(srt_engine_get_step_info(c.engine, &state, c.stream));
	grads = case_collect(&c, SRT_PARAM_GRAD);
	n = case_nelem(&c);
	case_destroy(&c);
	alone = norm_alone(grads, h, p);
	CHECK_BITS(&alone, &state.grad_norm, 1);
	for (size_t i = 0; i < n; i++) {
		double x = grads[i] < 0 ? -(double)grads[i] : (double)grads[i];

		if (p == SRT_NORM_INF)
			plain = x > plain ? x : plain;
		else
			plain += p == 1 ? x : p == 2 ? x * x : x * x * x;
	}
	if (p == 2 || p == 3) { /* compare powers: no root is needed */
		double y = (double)state.grad_norm;

		CHECK_NEAR((p == 2 ? y * y : y * y * y) / plain, 1.0, 1e-6);
	} else {
		CHECK_NEAR((double)state.grad_norm / plain, 1.0, 1e-6);
	}
	CHECK(state.grad_norm > 0);
	free(grads);
}

int main(void)
{
	int rank;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	for (int r = 0; r < srt_context_world_size(context); r++) {
		srt_comm_t *group;

		CHECK_OK_OR_DIE(
			srt_comm_create_group(srt_context_world(context), &r, 1, "alone", &group));
		if (r == rank)
			self = group;
	}
	for (srt_strategy_t s = SRT_STRATEGY_DDP; s <= SRT_STRATEGY_ZERO3; s++)
		test_gradients(s);
	test_norm(1);
	test_norm(2);
	test_norm(3);
	test_norm(SRT_NORM_INF);
	test_strategies();
	srt_comm_destroy(self);
	srt_context_destroy(context);
	return check_done();
}
