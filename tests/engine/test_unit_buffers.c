/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of units: declared, in the plan, cast by the policy, saved and loaded, and broadcast from
 * rank 0 before the passes that PyTorch's DDP broadcasts before.
 * Run by test_checkpoint.sh.
 */
#include "tests/engine/engine_case.h"

static srt_context_t *context;

typedef struct buffers {
	srt_unit_buffer_t *mean, *count, *empty;
} buffers_t;

static void declare(engine_case_t *c, const srt_engine_options_t *options, buffers_t *b)
{
	const int64_t three = 3, none = 0;

	case_declare(c, context, options, 5);
	CHECK_OK_OR_DIE(srt_unit_buffer_create(c->block[0], "b0.running_mean", SRT_F32, 1, &three,
					       &b->mean));
	CHECK_OK_OR_DIE(
		srt_unit_buffer_create(c->block[0], "b0.count", SRT_I64, 0, NULL, &b->count));
	CHECK_OK_OR_DIE(srt_unit_buffer_create(c->root, "empty", SRT_F32, 1, &none, &b->empty));
}

static void set(engine_case_t *c, const buffers_t *b, int64_t count)
{
	const float mean[3] = { (float)count, 0.5f, -1.0f };

	CHECK_OK(srt_unit_buffer_set(b->mean, mean, c->stream));
	CHECK_OK(srt_unit_buffer_set(b->count, &count, c->stream));
}

static void check(engine_case_t *c, const buffers_t *b, int64_t want)
{
	float mean[3];
	int64_t count;

	CHECK_OK(srt_unit_buffer_get(b->mean, mean, c->stream));
	CHECK_OK(srt_unit_buffer_get(b->count, &count, c->stream));
	CHECK(mean[0] == (float)want && mean[1] == 0.5f && mean[2] == -1.0f);
	CHECK_INT(count, want);
}

static void test_declaring(void)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	const srt_precision_t p = { .size = sizeof(p),
				    .buffer = SRT_F16,
				    .rule = SRT_PRECISION_FSDP1 };
	const srt_unit_options_t half = { .size = sizeof(half), .precision = &p };
	const int64_t shape[] = { 2, -1 };
	srt_unit_buffer_t *none;
	size_t allocated;
	srt_unit_t *unit;
	srt_plan_t plan = SRT_PLAN_INIT;
	engine_case_t c;
	buffers_t b;

	declare(&c, &options, &b);
	CHECK_STATUS(srt_unit_buffer_create(c.root, "b0.count", SRT_F32, 1, shape, &none),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_unit_buffer_create(c.root, "b0.bias", SRT_F32, 1, shape, &none),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("declared twice");
	CHECK_STATUS(srt_unit_buffer_create(c.root, "negative", SRT_F32, 2, shape, &none),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_unit_buffer_set(b.count, &options, c.stream), SRT_ERR_STATE);
	CHECK(test_buffer_view(b.mean).buffer == NULL);
	CHECK_OK(srt_unit_create(c.engine, c.root, "half", &half, &unit));
	CHECK_OK(srt_unit_buffer_create(unit, "half.mean", SRT_F32, 1, shape, &none));
	CHECK_OK(srt_engine_plan(c.engine, c.rank, 0, &plan));
	CHECK_INT(plan.buffers, 3 * SRT_TENSOR_ALIGN);
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_engine_build(c.engine));
	CHECK_INT(case_allocated(context) - allocated, case_planned(&plan));
	CHECK(test_buffer_view(none).dtype == SRT_F16);
	CHECK(test_buffer_view(b.mean).dtype == SRT_F32);
	CHECK(srt_engine_buffer_at(c.engine, 3) == none &&
	      srt_engine_buffer_at(c.engine, 4) == NULL);
	CHECK_INT(srt_engine_buffer_count(c.engine), 4);
	CHECK(srt_engine_buffer_find(c.engine, "half.mean") == none);
	CHECK(srt_engine_buffer_find(c.engine, "b0.bias") == NULL); /* a parameter */
	CHECK(srt_engine_unit_at(c.engine, 0) == c.root);
	CHECK(srt_engine_unit_at(c.engine, srt_engine_unit_count(c.engine) - 1) == unit);
	CHECK(srt_engine_unit_at(c.engine, srt_engine_unit_count(c.engine)) == NULL);
	CHECK(srt_engine_unit_find(c.engine, "half") == unit);
	CHECK(srt_engine_unit_find(c.engine, "half.mean") == NULL);
	CHECK_STR(srt_unit_name(unit), "half");
	CHECK_INT(srt_engine_param_count(c.engine), c.nparams);
	CHECK(srt_engine_param_at(c.engine, c.nparams - 1) == c.param[c.nparams - 1]);
	CHECK(srt_engine_param_at(c.engine, c.nparams) == NULL);
	CHECK_STR(srt_unit_buffer_name(b.mean), "b0.running_mean");
	CHECK_INT(srt_unit_buffer_nelem(b.mean), 3);
	CHECK_OK(srt_unit_buffer_set(b.empty, NULL, c.stream));
	CHECK_STATUS(srt_unit_buffer_set(b.mean, NULL, c.stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_unit_buffer_create(c.root, "late", SRT_F32, 0, NULL, &none),
		     SRT_ERR_STATE);
	case_destroy(&c);
}

/* A forward pass whose predecessor's gradients were reduced takes rank 0's; others do not. */
static void test_broadcast(int broadcasts)
{
	srt_engine_options_t options = { .size = sizeof(options),
					 .prefetch = 1,
					 .strategy = SRT_STRATEGY_DDP,
					 .accumulation = SRT_ACCUMULATE_LAST,
					 .microbatches = 2,
					 .broadcast_buffers = broadcasts,
					 .optim = OPTIM(.kind = SRT_OPTIM_NONE) };
	engine_case_t c;
	buffers_t b;

	declare(&c, &options, &b);
	case_build(&c);
	for (int step = 0; step < 2; step++) {
		const int64_t mine = 10 * (step + 1) + c.rank, first = 10 * (step + 1);

		set(&c, &b, mine);
		CHECK_OK(srt_engine_microbatch(c.engine, 0, 2));
		CHECK_OK(case_forward(&c, step));
		check(&c, &b, broadcasts ? first : mine);
		CHECK_OK(case_backward(&c, step, 0));
		set(&c, &b, mine + 100);
		CHECK_OK(srt_engine_microbatch(c.engine, 1, 2));
		CHECK_OK(case_forward(&c, step));
		check(&c, &b, mine + 100);
		CHECK_OK(case_backward(&c, step, 1));
		CHECK_OK(srt_engine_step(c.engine, c.stream));
	}
	case_destroy(&c);
}

/* A file has rank 0's values, and all ranks load them. */
static void test_saved(const char *folder)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	char path[256];
	engine_case_t c;
	buffers_t b;

	snprintf(path, sizeof(path), "%s/buffers.safetensors", folder);
	declare(&c, &options, &b);
	case_build(&c);
	set(&c, &b, 7 + c.rank);
	CHECK_OK(srt_engine_save(c.engine, path, NULL, 0, c.stream));
	set(&c, &b, 0);
	CHECK_OK(srt_engine_load(c.engine, path, c.stream));
	check(&c, &b, 7);
	case_destroy(&c);
	case_declare(&c, context, &options, 5);
	case_build(&c);
	CHECK_OK(srt_engine_load(c.engine, path, c.stream)); /* others are not used */
	CHECK_OK(srt_engine_save(c.engine, path, NULL, 0, c.stream));
	case_destroy(&c);
	declare(&c, &options, &b);
	case_build(&c);
	CHECK_STATUS(srt_engine_load(c.engine, path, c.stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("no tensor 'b0.running_mean'");
	case_destroy(&c);
}

int main(int argc, char **argv)
{
	CHECK_OR_DIE(argc == 2);
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	test_declaring();
	test_broadcast(0);
	test_broadcast(1);
	test_saved(argv[1]);
	srt_context_destroy(context);
	return check_done();
}
