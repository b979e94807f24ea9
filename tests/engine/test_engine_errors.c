/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the engine refuses, and with which words: bad declarations, calls out of order, ranks that
 * declare or do different things. With an argument, a rank dies in the middle of a step and the
 * others must say so. Run by test_engine_errors.sh.
 */
#include <math.h>
#include <signal.h>

#include "runtime/engine/checks/checks.h"
#include "tests/engine/engine_case.h"

static srt_context_t *context;
static int rank, world;

static const srt_engine_options_t plain = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0.1f);

static void test_options(void)
{
	srt_engine_options_t o = plain;
	srt_engine_t *engine = NULL;

	o.norm_p = 4;
	CHECK_STATUS(srt_engine_create(context, &o, &engine), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("norm_p");
	o.norm_p = 0;
	o.max_norm = 1.0f;
	CHECK_STATUS(srt_engine_create(context, &o, &engine), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("max_norm");
	o = plain;
	o.microbatches = -1;
	CHECK_STATUS(srt_engine_create(context, &o, &engine), SRT_ERR_INVALID_ARGUMENT);
	o = plain;
	o.prefetch = -1;
	CHECK_STATUS(srt_engine_create(context, &o, &engine), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("prefetch is -1");
	o = plain;
	o.max_norm = NAN;
	CHECK_STATUS(srt_engine_create(context, &o, &engine), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("option max_norm");
	/* What torch.optim refuses, and what it would ignore. */
	static const struct {
		srt_optim_options_t options; /* but for the size */
		const char *words;
	} bad[] = {
		{ { .lr = -0.1f }, "option lr" },
		{ { .lr = NAN }, "option lr" },
		{ { .lr = INFINITY }, "option lr is inf" },
		{ { .min_lr = -0.1f }, "option min_lr" },
		{ { .min_lr = INFINITY }, "option min_lr" },
		{ { .warmup = 11, .lr_steps = 10 }, "warmup 11" },
		{ { .decay_steps = 11, .lr_steps = 10 }, "decay_steps 11" },
		{ { .momentum = -0.5 }, "option momentum" },
		{ { .dampening = NAN }, "option dampening" },
		{ { .nesterov = 1 }, "option nesterov" },
		{ { .nesterov = 1, .momentum = 0.9, .dampening = 0.1f }, "option nesterov" },
		{ { .kind = SRT_OPTIM_ADAM, .beta1 = 1.0 }, "beta1 1" },
		{ { .kind = SRT_OPTIM_ADAM, .beta2 = -0.1 }, "beta2 -0.1" },
		{ { .kind = SRT_OPTIM_ADAMW, .beta2 = (double)NAN }, "beta2 nan" },
		{ { .kind = SRT_OPTIM_ADAMW, .eps = -2.0f }, "option eps is -2" },
		{ { .kind = SRT_OPTIM_ADAM, .momentum = 0.9 }, "is Adam: only SGD" },
		{ { .kind = SRT_OPTIM_ADAMW, .dampening = 0.1f }, "option dampening" },
		{ { .kind = SRT_OPTIM_ADAMW, .nesterov = 1 }, "option nesterov" },
		{ { .beta1 = 0.9 }, "is SGD: only Adam and AdamW" },
		{ { .beta2 = -1 }, "option beta2" },
		{ { .kind = (srt_optim_kind_t)7 }, "kind of an optimizer is 7" },
		{ { .warmup = -1 }, "warmup -1" },
		{ { .eps = 1e-8f }, "option eps" },
		{ { .amsgrad = 1 }, "option amsgrad" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		srt_optim_options_t optim = bad[i].options;

		optim.size = sizeof(optim);
		o = plain;
		o.optim = &optim;
		CHECK_MSG(srt_engine_create(context, &o, &engine) == SRT_ERR_INVALID_ARGUMENT,
			  "bad options %zu", i);
		CHECK_ERROR_HAS(bad[i].words);
	}
	CHECK(engine == NULL);
	srt_engine_destroy(NULL);
}

static void test_declarations(void)
{
	const int64_t shape[SRT_MAX_DIMS + 1] = { 4, 4, 4, 4, 4 }, negative[] = { 2, -1 };
	const int64_t huge[] = { INT64_MAX / 2, INT64_MAX / 2 };
	const int64_t half[] = { INT64_C(1) << 25, INT64_C(1) << 26 };
	srt_engine_t *engine, *other;
	srt_unit_t *root, *unit, *none = NULL;
	srt_param_t *param, *p = NULL;
	srt_stream_t *stream;

	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	CHECK_OK_OR_DIE(srt_engine_create(context, &plain, &engine));
	CHECK_OK_OR_DIE(srt_engine_create(context, &plain, &other));
	CHECK_STATUS(srt_engine_build(engine), SRT_ERR_STATE);
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &root));
	CHECK_STATUS(srt_unit_create(engine, NULL, "second", NULL, &none),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'second'");
	CHECK_ERROR_HAS("already has the root 'root'");
	CHECK_STATUS(srt_unit_create(engine, root, "root", NULL, &none), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_unit_create(other, root, "x", NULL, &none), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("another engine");
	CHECK_OK_OR_DIE(srt_unit_create(engine, root, "unit", NULL, &unit));
	CHECK_OK_OR_DIE(srt_param_create(unit, "w", SRT_F32, 2, shape, NULL, &param));

	CHECK_STATUS(srt_param_create(unit, "s", SRT_F32, 0, shape, NULL, &p),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'s' is a scalar");
	CHECK_ERROR_HAS("1-D with one element");
	CHECK_STATUS(srt_param_create(unit, "i", SRT_I32, 1, shape, NULL, &p),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("i32");
	CHECK_STATUS(srt_param_create(unit, "h", SRT_F16, 1, shape, NULL, &p),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'h' has dtype f16 and 'w' has f32");
	CHECK_STATUS(srt_param_create(unit, "f64", SRT_F64, 1, shape, NULL, &p),
		     SRT_ERR_UNSUPPORTED);
	CHECK_STATUS(srt_param_create(unit, "n", SRT_F32, 2, negative, NULL, &p),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_param_create(unit, "d", SRT_F32, SRT_MAX_DIMS + 1, shape, NULL, &p),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_param_create(unit, "b", SRT_F32, 2, huge, NULL, &p),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("too large");
	/* each alone would do, the sum over the units is too much */
	CHECK_OK_OR_DIE(srt_unit_create(other, NULL, "root", NULL, &none));
	CHECK_OK(srt_param_create(none, "half", SRT_F32, 2, half, NULL, &p));
	p = NULL;
	CHECK_OK_OR_DIE(srt_unit_create(other, none, "unit", NULL, &none));
	CHECK_STATUS(srt_param_create(none, "other half", SRT_F32, 2, half, NULL, &p),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("too large");
	CHECK_STATUS(srt_param_create(root, "w", SRT_F32, 1, shape, NULL, &p),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("declared twice");
	CHECK(p == NULL);

	CHECK_STATUS(srt_param_tie(root, param, "tie"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'tie' of unit 'root'");
	CHECK_ERROR_HAS("'w' of unit 'unit'");
	CHECK_STATUS(srt_param_tie(unit, param, "w"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_OK(srt_param_tie(unit, param, "tie"));
	CHECK_STATUS(srt_param_create(unit, "tie", SRT_F32, 1, shape, NULL, &p),
		     SRT_ERR_INVALID_ARGUMENT);

	CHECK_STATUS(srt_unit_forward_begin(root, stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("before srt_engine_build()");
	CHECK_STATUS(srt_param_init_constant(param, 1.0f, stream), SRT_ERR_STATE);
	CHECK_STATUS(srt_engine_step(engine, stream), SRT_ERR_STATE);
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	CHECK_STATUS(srt_engine_build(engine), SRT_ERR_STATE);
	CHECK_STATUS(srt_unit_create(engine, root, "late", NULL, &none), SRT_ERR_STATE);
	CHECK_STATUS(srt_param_create(unit, "late", SRT_F32, 1, shape, NULL, &p), SRT_ERR_STATE);
	CHECK_STATUS(srt_param_tie(unit, param, "late"), SRT_ERR_STATE);
	srt_engine_destroy(engine);
	srt_engine_destroy(other);
	srt_stream_destroy(stream);
}

/*
 * Names are found among many others, by alias too, and refused the second time.
 *
 * Reliability: many tensors | names compared one by one | a hash table
 */
static void test_many_names(void)
{
	enum { N = 1000 };
	const int64_t shape[] = { 1 };
	srt_engine_t *engine;
	static srt_param_t *params[N];
	srt_param_t *again = NULL;
	srt_unit_t *root, *unit;
	char name[32];

	CHECK_OK_OR_DIE(srt_engine_create(context,
					  &(srt_engine_options_t)ENGINE_SGD(SRT_STRATEGY_DDP, 0),
					  &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &root));
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "%d", i);
		CHECK_OK_OR_DIE(srt_unit_create(engine, root, name, NULL, &unit));
		CHECK_OK_OR_DIE(srt_param_create(unit, name, SRT_F32, 1, shape, NULL, &params[i]));
		snprintf(name, sizeof(name), "alias %d", i);
		CHECK_OK_OR_DIE(srt_param_tie(unit, params[i], name));
	}
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "%d", i);
		CHECK(srt_engine_param_find(engine, name) == params[i]);
		CHECK_STATUS(srt_unit_create(engine, root, name, NULL, &unit),
			     SRT_ERR_INVALID_ARGUMENT);
		snprintf(name, sizeof(name), "alias %d", i);
		CHECK(srt_engine_param_find(engine, name) == params[i]);
		CHECK_STATUS(srt_param_create(root, name, SRT_F32, 1, shape, NULL, &again),
			     SRT_ERR_INVALID_ARGUMENT);
	}
	CHECK(srt_engine_param_find(engine, "1000") == NULL);
	srt_engine_destroy(engine);
}

/* A tensor that no machine holds: the sentence says what else the plan wants. */
static void test_out_of_memory(void)
{
	const int64_t shape[] = { INT64_C(1) << 21, INT64_C(1) << 21 };
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *param;

	CHECK_OK_OR_DIE(srt_device_get_info(srt_context_device(context), &info));
	if (strcmp(info.backend, "toy") == 0)
		return; /* takes memory from malloc, which may promise more than there is */
	CHECK_OK_OR_DIE(srt_engine_create(context, &plain, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &root));
	CHECK_OK_OR_DIE(srt_param_create(root, "w", SRT_F32, 2, shape, NULL, &param));
	CHECK_STATUS(srt_engine_build(engine), SRT_ERR_OUT_OF_MEMORY);
	CHECK_ERROR_HAS("; the plan of this rank is ");
	srt_engine_destroy(engine);
}

static void test_order(void)
{
	srt_engine_options_t o = plain;
	srt_view_t view;
	int accumulate;
	engine_case_t c;
	float value = 0;

	o.microbatches = 2;
	case_declare(&c, context, &o, 5);
	CHECK_STATUS(srt_param_address(c.tied, SRT_PARAM_VALUE, &view), SRT_ERR_STATE);
	CHECK_ERROR_HAS("srt_param_address");
	case_build(&c);
	CHECK_STATUS(srt_param_address(c.tied, SRT_PARAM_STATE0, &view), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("must be SRT_PARAM_VALUE or SRT_PARAM_GRAD");
	CHECK_STATUS(srt_unit_forward_begin(c.block[0], c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("'b0'");
	CHECK_ERROR_HAS("begin the root 'root' first");
	CHECK_STATUS(srt_unit_forward_end(c.root, c.stream), SRT_ERR_STATE);
	CHECK_STATUS(srt_unit_backward_begin(c.root, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("without a forward pass");
	CHECK_STATUS(srt_param_data(c.tied, &view), SRT_ERR_STATE);
	CHECK_ERROR_HAS("'root.weight'");
	CHECK_STATUS(srt_engine_step(c.engine, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("without a backward pass in micro-batch 1 of 1");
	CHECK_STATUS(srt_engine_microbatch(c.engine, 0, 3), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("planned for 2");
	CHECK_STATUS(srt_engine_microbatch(c.engine, 2, 2), SRT_ERR_INVALID_ARGUMENT);
	CHECK_OK(srt_engine_microbatch(c.engine, 0, 2));
	CHECK_STATUS(srt_engine_microbatch(c.engine, 1, 2), SRT_ERR_STATE);
	CHECK_ERROR_HAS("ran no backward pass");

	CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
	CHECK_STATUS(srt_unit_forward_begin(c.root, c.stream), SRT_ERR_STATE);
	CHECK_STATUS(srt_unit_forward_begin(c.inner, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("outside that of its parent 'b1'");
	CHECK_OK(srt_unit_forward_begin(c.block[1], c.stream));
	CHECK_STATUS(srt_unit_forward_end(c.root, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("before that of its unit 'b1'");
	CHECK_STATUS(srt_param_set(c.tied, SRT_PARAM_VALUE, &value, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("in use");
	CHECK_STATUS(srt_engine_save(NULL, "x", NULL, 0, c.stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_unit_backward_begin(c.root, c.stream), SRT_ERR_STATE);
	CHECK_OK(srt_unit_forward_end(c.block[1], c.stream));
	CHECK_OK(srt_unit_forward_end(c.root, c.stream));

	CHECK_STATUS(srt_unit_backward_begin(c.block[1], c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("outside that of its parent");
	CHECK_STATUS(srt_param_grad(c.tied, &view, &accumulate), SRT_ERR_STATE);
	CHECK_OK(srt_unit_backward_begin(c.root, c.stream));
	CHECK_STATUS(srt_param_grad(c.param[1], &view, &accumulate), SRT_ERR_STATE);
	CHECK_ERROR_HAS("frozen");
	CHECK_STATUS(srt_unit_backward_begin(c.block[0], c.stream), SRT_ERR_STATE);
	CHECK_STATUS(srt_unit_backward_end(c.block[1], c.stream), SRT_ERR_STATE);
	CHECK_OK(srt_unit_backward_end(c.root, c.stream));
	CHECK_STATUS(srt_engine_step(c.engine, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("micro-batch 1 of 2");
	CHECK_STATUS(srt_engine_microbatch(c.engine, 0, 2), SRT_ERR_STATE);
	CHECK_OK(srt_engine_check(c.engine));
	/* None of the refused calls has harmed anything. */
	CHECK_OK(srt_engine_reset(c.engine));
	CHECK_STATUS(srt_param_set(c.tied, SRT_PARAM_VALUE, NULL, c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_OK(case_passes(&c, 0, 1));
	CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
	CHECK_STATUS(srt_engine_step(c.engine, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("inside the forward pass");
	CHECK_OK(srt_unit_forward_end(c.root, c.stream));
	CHECK_OK(srt_engine_step(c.engine, c.stream));
	CHECK_OK(case_step(&c, 0, 2));
	case_destroy(&c);
}

/* Gradients of one micro-batch are final after its backward pass: ddp would overwrite them, zero3
 * add. */
static void test_second_backward(srt_strategy_t strategy)
{
	srt_engine_options_t o = plain;
	engine_case_t c;

	o.strategy = strategy;
	o.microbatches = 2;
	case_declare(&c, context, &o, 5);
	case_build(&c);
	CHECK_OK(case_passes(&c, 0, 1));
	CHECK_OK(case_forward(&c, 0));
	CHECK_STATUS(srt_unit_backward_begin(c.root, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("second backward pass");
	CHECK_ERROR_HAS("micro-batch 1 of 1");
	CHECK_OK(srt_engine_step(c.engine, c.stream));
	CHECK_OK(case_step(&c, 1, 2));
	CHECK_OK(case_step(&c, 2, 1));
	case_destroy(&c);
}

/* Recomputation in the backward pass, a unit used twice, evaluation between steps. */
static void test_other_orders(srt_strategy_t strategy)
{
	srt_engine_options_t o = plain;
	engine_case_t c;

	o.strategy = strategy;
	case_declare(&c, context, &o, 5);
	c.check = 1;
	case_build(&c);
	CHECK_OK(case_forward(&c, 0)); /* evaluation before the first step */
	for (int step = 0; step < 3; step++) {
		CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
		for (int use = 0; use < 2; use++) {
			CHECK_OK(srt_unit_forward_begin(c.block[0], c.stream));
			CHECK_OK(srt_unit_forward_end(c.block[0], c.stream));
		}
		CHECK_OK(srt_unit_forward_begin(c.block[1], c.stream));
		CHECK_OK(srt_unit_forward_end(c.block[1], c.stream));
		CHECK_OK(srt_unit_forward_end(c.root, c.stream));
		CHECK_OK(case_backward_unit(&c, c.root, "root", step, 0));
		CHECK_OK(srt_unit_forward_begin(c.block[1], c.stream));
		CHECK_OK(srt_unit_forward_end(c.block[1], c.stream));
		CHECK_OK(case_backward_unit(&c, c.block[1], "b1", step, 0));
		CHECK_OK(srt_unit_backward_end(c.block[1], c.stream));
		for (int use = 0; use < 2; use++) {
			CHECK_OK(case_backward_unit(&c, c.block[0], "b0", step, use));
			CHECK_OK(srt_unit_backward_end(c.block[0], c.stream));
		}
		CHECK_STATUS(srt_unit_backward_begin(c.block[0], c.stream), SRT_ERR_STATE);
		CHECK_OK(srt_unit_backward_end(c.root, c.stream));
		CHECK_OK(case_forward(&c, step)); /* and between backward and step */
		CHECK_OK(srt_engine_step(c.engine, c.stream));
		CHECK_OK(case_forward(&c, step));
	}
	case_destroy(&c);
}

/* A unit that is being recomputed keeps its slot, and its values. */
static void test_recompute_in_use(void)
{
	float value[5 * 6] = { 0 };
	engine_case_t c;

	case_declare(&c, context, &plain, 5);
	case_build(&c);
	CHECK_OK(case_forward(&c, 0));
	CHECK_OK(srt_unit_backward_begin(c.root, c.stream));
	CHECK_OK(srt_unit_forward_begin(c.block[3], c.stream));
	if (c.block[1]->slot[SRT_SLOT_PARAMS] != NULL) { /* the same as that of block 3 */
		CHECK(c.block[1]->slot[SRT_SLOT_PARAMS] == c.block[3]->slot[SRT_SLOT_PARAMS]);
		CHECK_STATUS(srt_unit_forward_begin(c.block[1], c.stream), SRT_ERR_STATE);
		CHECK_ERROR_HAS("'b3', which is still in use");
	}
	CHECK_STATUS(srt_param_set(srt_engine_param_find(c.engine, "b3.bias"), SRT_PARAM_VALUE,
				   value, c.stream),
		     SRT_ERR_STATE);
	CHECK_ERROR_HAS("in use");
	CHECK_OK(srt_engine_check(c.engine));
	CHECK_OK(srt_unit_forward_end(c.block[3], c.stream));
	CHECK_OK(srt_unit_forward_begin(c.block[1], c.stream));
	CHECK_OK(srt_unit_forward_end(c.block[1], c.stream));
	CHECK_OK(srt_engine_reset(c.engine));
	case_destroy(&c);
}

/* ---- ranks that differ ----------------------------------------------------------------- */

static void test_done_differently(srt_strategy_t strategy)
{
	srt_engine_options_t o = plain;
	engine_case_t c;

	o.strategy = strategy;
	case_declare(&c, context, &o, 5);
	case_build(&c);
	CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
	CHECK_STATUS(srt_unit_forward_begin(c.block[rank == world - 1], c.stream),
		     SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("forward order differs: rank 0 runs forward unit 'b0'");
	CHECK_ERROR_HAS("runs forward unit 'b1'");
	CHECK_OK(srt_engine_reset(c.engine));

	/* One rank has one unit more. */
	CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
	if (rank == 0) {
		CHECK_STATUS(srt_unit_forward_begin(c.block[0], c.stream), SRT_ERR_MISMATCH);
	} else {
		CHECK_OK(srt_unit_forward_end(c.root, c.stream));
		CHECK_STATUS(srt_unit_backward_begin(c.root, c.stream), SRT_ERR_MISMATCH);
	}
	CHECK_ERROR_HAS("rank 0 runs forward unit 'b0'");
	CHECK_ERROR_HAS("runs backward unit 'root'");
	CHECK_OK(srt_engine_reset(c.engine));
	CHECK_OK(case_step(&c, 0, 1));
	CHECK_OK(srt_stream_sync(c.stream));
	case_wait_for_all(context);

	/* Later, when no rank is in that step any more, the calls themselves show it. */
	if (strategy == SRT_STRATEGY_ZERO3) {
		srt_status_t status = srt_unit_forward_begin(c.root, c.stream);
		srt_unit_t *unit = c.block[rank == world - 1 ? 2 : 3];

		/* b0 was prefetched on all ranks; then they go apart. */
		if (status == SRT_OK)
			status = srt_unit_forward_begin(unit, c.stream);
		if (status == SRT_OK)
			status = srt_stream_sync(c.stream);
		CHECK_MSG(status == SRT_ERR_MISMATCH, "%s: %s", srt_status_string(status),
			  srt_error_last());
		CHECK_ERROR_HAS("b2");
		CHECK_ERROR_HAS("b3");
	}
	case_destroy(&c);
}

/* ---- a rank dies ----------------------------------------------------------------------- */

static int survive(void)
{
	const int victim = world - 1;
	srt_status_t status = SRT_OK;
	engine_case_t c;

	case_declare(&c, context, &plain, 5);
	case_build(&c);
	for (int step = 0; status == SRT_OK && step < 1000; step++) {
		if (step == 3 && rank == victim) {
			CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
			raise(SIGKILL);
		}
		status = case_step(&c, step, 1);
		if (status == SRT_OK)
			status = srt_stream_sync(c.stream);
	}
	CHECK_STATUS(status, SRT_ERR_PEER_DEAD);
	CHECK_ERROR_HAS("rank");
	printf("rank %d survives: %s\n", rank, srt_error_last());
	srt_engine_reset(c.engine);
	case_destroy(&c);
	return check_done();
}

int main(int argc, char **argv)
{
	int status;

	(void)argv;
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	if (argc > 1) {
		status = survive();
		srt_context_destroy(context);
		return status;
	}
	test_options();
	test_declarations();
	test_many_names();
	test_out_of_memory();
	test_order();
	test_second_backward(SRT_STRATEGY_DDP);
	test_second_backward(SRT_STRATEGY_ZERO3);
	test_other_orders(SRT_STRATEGY_DDP);
	test_other_orders(SRT_STRATEGY_ZERO3);
	test_recompute_in_use();
	if (world > 1) {
		test_done_differently(SRT_STRATEGY_DDP);
		test_done_differently(SRT_STRATEGY_ZERO3);
	}
	srt_context_destroy(context);
	return check_done();
}
