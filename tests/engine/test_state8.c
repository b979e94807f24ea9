/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Optimizer states in 8 bits in an engine: the plan is what is allocated, every strategy and
 * offload have the same bits, what is read and set or saved and loaded continues a run, and what
 * cannot be is refused. Run on several ranks by test_state8.sh; an argument is a folder for
 * checkpoints.
 */
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "tests/engine/engine_case.h"

#define H 301 /* rows of 301 to 304 elements: two blocks */
#define STEPS 6

static const srt_optim_options_t adamw8 = {
	.size = sizeof(adamw8), .kind = SRT_OPTIM_ADAMW, .lr = 0.05f, .state_bits = 8, ADAM_BASE
};
static const srt_optim_options_t adamw = {
	.size = sizeof(adamw), .kind = SRT_OPTIM_ADAMW, .lr = 0.05f, ADAM_BASE
};
static srt_context_t *context;

static void declare(engine_case_t *c, const srt_optim_options_t *optim, srt_strategy_t strategy,
		    bool offload, const case_types_t *types)
{
	srt_engine_options_t options = case_adamw(strategy);

	options.optim = optim;
	if (offload)
		options.offload = (srt_offload_t){ .params = 1, .grads = 1, .state = 1 };
	case_declare_as(c, context, &options, H, types);
}

static void create(engine_case_t *c, srt_strategy_t strategy, bool offload)
{
	declare(c, &adamw8, strategy, offload, &(case_types_t){ .stored = SRT_F32, .ngroups = 3 });
	case_build(c);
}

static void steps(engine_case_t *c, int first, int end)
{
	for (int step = first; step < end; step++)
		CHECK_OK_OR_DIE(case_step(c, step, 1));
}

/* Values and states; values first. */
typedef struct result {
	float *x[3];
} result_t;

static result_t collect(engine_case_t *c)
{
	static const srt_param_what_t what[] = { SRT_PARAM_VALUE, SRT_PARAM_STATE0,
						 SRT_PARAM_STATE1 };
	result_t r;

	for (int k = 0; k < 3; k++)
		r.x[k] = case_collect(c, what[k]);
	return r;
}

static void drop(result_t *r)
{
	for (int k = 0; k < 3; k++)
		free(r->x[k]);
}

static void check_same(const result_t *a, const result_t *b, size_t nelem, const char *what)
{
	for (int k = 0; k < 3; k++)
		CHECK_MSG(memcmp(a->x[k], b->x[k], nelem * sizeof(float)) == 0,
			  "%s: tensor %d differs", what, k);
}

/* ---- memory ------------------------------------------------------------------------------ */

static void test_plan(srt_strategy_t strategy, bool offload)
{
	const int world = srt_context_world_size(context), rank = srt_context_rank(context);
	srt_plan_t plan = SRT_PLAN_INIT, full = SRT_PLAN_INIT;
	size_t before, used, state8, state;
	engine_case_t c, f;

	declare(&f, &adamw, strategy, offload, &(case_types_t){ .stored = SRT_F32 });
	CHECK_OK(srt_engine_plan(f.engine, rank, world, &full));
	case_destroy(&f);
	before = case_allocated(context);
	declare(&c, &adamw8, strategy, offload, &(case_types_t){ .stored = SRT_F32 });
	used = case_allocated(context); /* the case's scratch */
	CHECK_OK(srt_engine_plan(c.engine, rank, world, &plan));
	CHECK_OK_OR_DIE(srt_engine_build(c.engine));
	if (!offload || case_allocated(context) > used)
		CHECK_INT(case_allocated(context) - used, case_planned(&plan));
	case_destroy(&c);
	CHECK_INT(case_allocated(context), before);
	state8 = offload ? plan.host_state : plan.optimizer_state;
	state = offload ? full.host_state : full.optimizer_state;
	/* 2 bytes and 16 of 301 instead of 8 an element, and small tensors */
	CHECK_MSG(state8 > state / 4 && state8 * 100 < state * 27,
		  "%zu bytes of state in 8 bits, %zu in fp32", state8, state);
}

/* Bytes of one rank's state, written down: of each trainable parameter and its shard. */
static void test_bytes(void)
{
	const int world = srt_context_world_size(context), rank = srt_context_rank(context);
	srt_plan_t plan = SRT_PLAN_INIT;
	size_t want = 0, absmax = 0;
	engine_case_t c;

	create(&c, SRT_STRATEGY_ZERO3, false);
	CHECK_OK(srt_engine_plan(c.engine, rank, world, &plan));
	for (size_t i = 0; i < c.nparams; i++) {
		int64_t shape[SRT_MAX_DIMS], row = 1;
		int ndim = srt_param_shape(c.param[i], shape);
		srt_part_t part;

		if (!srt_param_requires_grad(c.param[i]))
			continue;
		for (int d = 1; d < ndim; d++)
			row *= shape[d];
		CHECK_OK(srt_param_part(c.param[i], rank, &part));
		if (srt_param_nelem(c.param[i]) >= 4096 && row >= 4) {
			want += 2 * (((size_t)part.nelem + 63) / 64 * 64);
			absmax += (size_t)(part.nelem / row * ((row + 255) / 256)) * 8;
		} else {
			want += 2 * (((size_t)part.nelem * 4 + 63) / 64 * 64);
		}
	}
	CHECK_INT(plan.optimizer_state, want + (absmax + 63) / 64 * 64);
	case_destroy(&c);
}

/* ---- bits -------------------------------------------------------------------------------- */

static result_t train(srt_strategy_t strategy, bool offload, size_t *nelem)
{
	engine_case_t c;
	result_t r;

	create(&c, strategy, offload);
	steps(&c, 0, STEPS);
	r = collect(&c);
	*nelem = case_nelem(&c);
	case_destroy(&c);
	return r;
}

static void test_strategies(const result_t *want, size_t nelem)
{
	for (int s = SRT_STRATEGY_ZERO1; s <= SRT_STRATEGY_ZERO3; s++) {
		result_t got = train((srt_strategy_t)s, false, &nelem);

		check_same(want, &got, nelem, srt_strategy_name((srt_strategy_t)s));
		drop(&got);
	}
}

static void test_offload(const result_t *want, size_t nelem)
{
	result_t got = train(SRT_STRATEGY_ZERO3, true, &nelem);

	check_same(want, &got, nelem, "offload");
	drop(&got);
}

/* The run in two halves: values, states and step counts are read in one engine and set in another
 * one of another strategy. */
static void test_resume(const result_t *want, srt_strategy_t from, srt_strategy_t to)
{
	engine_case_t a, b;
	result_t half, again, got;
	size_t at = 0;

	create(&a, from, false);
	steps(&a, 0, STEPS / 2);
	half = collect(&a);
	create(&b, to, false);
	for (size_t i = 0; i < b.nparams; i++) {
		CHECK_OK(srt_param_set(b.param[i], SRT_PARAM_VALUE, half.x[0] + at, b.stream));
		for (int k = 0; k < 2 && srt_param_requires_grad(b.param[i]); k++)
			CHECK_OK(srt_param_set(b.param[i], (srt_param_what_t)(SRT_PARAM_STATE0 + k),
					       half.x[1 + k] + at, b.stream));
		at += (size_t)srt_param_nelem(b.param[i]);
		if (srt_param_requires_grad(b.param[i])) {
			int32_t n;

			CHECK_OK(test_get_steps(a.engine, a.param[i], &n, a.stream));
			CHECK_OK(test_set_steps(b.engine, b.param[i], n, b.stream));
		}
	}
	again = collect(&b);
	check_same(&half, &again, case_nelem(&b), "values that were set");
	steps(&b, STEPS / 2, STEPS);
	got = collect(&b);
	check_same(want, &got, case_nelem(&b), "a run of two engines");
	case_destroy(&a);
	case_destroy(&b);
	drop(&half);
	drop(&again);
	drop(&got);
}

/* The two halves joined by a checkpoint, in which codes are saved as they are. */
static void test_checkpoint(const result_t *want, const char *folder)
{
	engine_case_t a, b;
	result_t got;
	srt_status_t status;

	create(&a, SRT_STRATEGY_ZERO3, false);
	steps(&a, 0, STEPS / 2);
	status = srt_checkpoint_save(a.engine, folder, NULL, a.stream);
	if (status == SRT_ERR_UNSUPPORTED) {
		printf("SKIP: checkpoints: %s\n", srt_error_last());
		case_destroy(&a);
		return;
	}
	CHECK_OK(status);
	case_destroy(&a);
	create(&b, SRT_STRATEGY_DDP, false);
	CHECK_OK(srt_checkpoint_load(b.engine, folder, NULL, b.stream));
	steps(&b, STEPS / 2, STEPS);
	got = collect(&b);
	check_same(want, &got, case_nelem(&b), "a run from a checkpoint");
	drop(&got);
	case_destroy(&b);
	declare(&b, &adamw, SRT_STRATEGY_DDP, false,
		&(case_types_t){ .stored = SRT_F32, .ngroups = 3 });
	case_build(&b);
	CHECK_STATUS(srt_checkpoint_load(b.engine, folder, NULL, b.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is of optimizer adamw8bit, but the engine has adamw");
	case_destroy(&b);
}

/* Tensor parallelism cuts rows, whose states stay fp32: a checkpoint of one is not loaded where
 * they are in 8 bits. */
static void test_moved(const char *folder)
{
	const int shape[] = { 1, srt_context_world_size(context) };
	const char *const names[] = { "dp", "tp" };
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	engine_case_t a, b;
	srt_status_t status;
	srt_mesh_t *mesh;

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, names, &mesh));
	options.optim = &adamw8;
	options.mesh = mesh;
	case_declare_as(&a, context, &options, H,
			&(case_types_t){ .stored = SRT_F32, .ngroups = 3, .cut_over = "tp" });
	case_build(&a);
	create(&b, SRT_STRATEGY_ZERO3, false);
	status = srt_checkpoint_save(a.engine, folder, NULL, a.stream);
	if (status != SRT_ERR_UNSUPPORTED) {
		CHECK_OK(status);
		CHECK_STATUS(srt_checkpoint_load(b.engine, folder, NULL, b.stream),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("are in fp32 in the checkpoint, but in 8 bits in the engine: load "
				"it with the number of tensor-parallel ranks");
		CHECK_STATUS(srt_checkpoint_save(b.engine, folder, NULL, b.stream), SRT_OK);
		CHECK_STATUS(srt_checkpoint_load(a.engine, folder, NULL, a.stream),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("are in 8 bits in the checkpoint, but in fp32 in the engine");
	}
	case_destroy(&a);
	case_destroy(&b);
	srt_mesh_destroy(mesh);
}

/* ---- what is refused --------------------------------------------------------------------- */

static void test_flat(void)
{
	const bool cuts = srt_context_world_size(context) > 1;
	engine_case_t c;

	declare(&c, &adamw8, SRT_STRATEGY_ZERO3, false,
		&(case_types_t){ .stored = SRT_F32, .flat = SRT_FLAT_VIEWS });
	CHECK_STATUS(srt_engine_build(c.engine), cuts ? SRT_ERR_UNSUPPORTED : SRT_OK);
	if (cuts)
		CHECK_ERROR_HAS("cuts a row of parameter 'b0.weight' on rank");
	case_destroy(&c);
	declare(&c, &adamw8, SRT_STRATEGY_ZERO3, false, &(case_types_t){ .stored = SRT_BF16 });
	CHECK_STATUS(srt_engine_build(c.engine), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("parameter 'root.weight' is stored in bf16");
	case_destroy(&c);
}

static void test_access(void)
{
	engine_case_t c;
	srt_view_t view;
	size_t i;

	create(&c, SRT_STRATEGY_ZERO3, false);
	i = srt_optim_find(srt_engine_optim(c.engine), "b0.weight");
	CHECK_STATUS(srt_param_local(c.param[2], SRT_PARAM_STATE0, &view), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("parameter 'b0.weight' are in 8 bits");
	CHECK_STATUS(srt_optim_state(srt_engine_optim(c.engine), i, 1, &view), SRT_ERR_UNSUPPORTED);
	CHECK_STATUS(srt_param_local(c.param[2], SRT_PARAM_STATE2, &view), SRT_ERR_NOT_FOUND);
	i = srt_optim_find(srt_engine_optim(c.engine), "b0.bias");
	CHECK_OK(srt_optim_state(srt_engine_optim(c.engine), i, 1, &view));
	CHECK(view.dtype == SRT_F32 || view.buffer == NULL);
	case_destroy(&c);
}

int main(int argc, char **argv)
{
	result_t want;
	size_t nelem;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	test_bytes();
	for (int s = SRT_STRATEGY_DDP; s <= SRT_STRATEGY_ZERO3; s++)
		test_plan((srt_strategy_t)s, false);
	test_plan(SRT_STRATEGY_ZERO3, true);
	want = train(SRT_STRATEGY_DDP, false, &nelem);
	test_strategies(&want, nelem);
	test_offload(&want, nelem);
	test_resume(&want, SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO3);
	test_resume(&want, SRT_STRATEGY_ZERO3, SRT_STRATEGY_ZERO1);
	if (argc > 1)
		test_checkpoint(&want, argv[1]);
	if (argc > 1 && srt_context_world_size(context) > 1)
		test_moved(argv[1]);
	drop(&want);
	test_flat();
	test_access();
	srt_context_destroy(context);
	return check_done();
}
