/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What else a step does and leaves alone, on any number of ranks: parameters without gradients,
 * streams of one's own, resets, sums over ranks, values in and out.
 * Run by test_engine.sh on 1 to 5 ranks.
 */
#include <unistd.h>

#include "runtime/engine/checks/checks.h"
#include "tests/engine/engine_case.h"

static srt_context_t *context;

/* ---- unused, frozen, never run --------------------------------------------------------- */

static void test_untouched(srt_strategy_t strategy, int unused)
{
	const srt_engine_options_t options = case_adamw(strategy);
	const int everywhere = unused == 1 || (unused == 2 && srt_context_world_size(context) == 1);
	static const char *const names[] = { "root.frozen", "b3.bias", "never.weight",
					     "b2.unused" };
	engine_case_t c;
	float *before, *after, grad[64];

	case_declare(&c, context, &options, 5);
	c.unused = unused;
	case_build(&c);
	before = case_collect(&c, SRT_PARAM_VALUE);
	CHECK_OK_OR_DIE(case_step(&c, 0, 1));
	CHECK_OK_OR_DIE(case_step(&c, 1, 1));
	after = case_collect(&c, SRT_PARAM_VALUE);
	for (size_t i = 0; i < SRT_ARRAY_LEN(names); i++) {
		srt_param_t *param = srt_engine_param_find(c.engine, names[i]);
		size_t at = case_offset(&c, names[i]), n = (size_t)srt_param_nelem(param);
		int untouched = i < 3 || everywhere;

		CHECK_MSG((memcmp(before + at, after + at, n * sizeof(float)) == 0) == untouched,
			  "%s, unused %d", names[i], unused);
		CHECK_STATUS(srt_param_get(param, SRT_PARAM_GRAD, grad, c.stream),
			     untouched ? SRT_ERR_NOT_FOUND : SRT_OK);
		if (untouched)
			CHECK_ERROR_HAS(names[i]);
	}
	CHECK(memcmp(before, after, 15 * sizeof(float)) != 0); /* root.weight moves */
	free(before);
	free(after);
	case_destroy(&c);
}

/* ---- a stream for each phase ----------------------------------------------------------- */

static srt_status_t nap(void *arg)
{
	(void)arg;
	usleep(20000);
	return SRT_OK;
}

/* The engine orders a step after the backward pass, and its results after the step, when each
 * has a separate slow stream. */
static void test_streams(srt_strategy_t strategy)
{
	const srt_engine_options_t options = case_adamw(strategy);
	srt_stream_t *stepping, *reading;
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	engine_case_t c, plain;
	float *va, *vb;

	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "steps", &stepping));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "reads", &reading));
	case_declare(&c, context, &options, 5);
	case_declare(&plain, context, &options, 5);
	case_build(&c);
	case_build(&plain);
	for (int step = 0; step < 2; step++) {
		CHECK_OK_OR_DIE(case_step(&plain, step, 1));
		CHECK_OK(srt_stream_host_fn(c.stream, nap, NULL));
		CHECK_OK_OR_DIE(case_passes(&c, step, 1));
		CHECK_OK_OR_DIE(srt_engine_step(c.engine, stepping));
		CHECK_OK(srt_stream_host_fn(stepping, nap, NULL));
	}
	CHECK_OK(srt_engine_get_step_info(c.engine, &state, reading));
	CHECK_INT(state.step, 2);
	va = case_collect(&c, SRT_PARAM_VALUE);
	vb = case_collect(&plain, SRT_PARAM_VALUE);
	CHECK_BITS(va, vb, case_nelem(&c));
	free(va);
	free(vb);
	CHECK_OK(srt_stream_sync(stepping));
	case_destroy(&c);
	case_destroy(&plain);
	srt_stream_destroy(stepping);
	srt_stream_destroy(reading);
}

/* A step does not change values that a forward pass on another stream still reads.
 * Reliability: with ddp or on one rank, an evaluation on another stream than the next step | read
 * the values of that step | the step waits for it */
static void test_evaluation_stream(srt_strategy_t strategy)
{
	const srt_engine_options_t options = case_adamw(strategy);
	srt_stream_t *evaluation;
	float before[25], seen[25];
	srt_param_t *param;
	srt_buffer_t *copy;
	srt_view_t values;
	engine_case_t c;

	CHECK_OK_OR_DIE(
		srt_stream_create(srt_context_device(context), 0, "evaluation", &evaluation));
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE, sizeof(seen),
					  "copy", &copy));
	case_declare(&c, context, &options, 5);
	case_build(&c);
	param = srt_engine_param_find(c.engine, "b0.weight");
	CHECK_OK_OR_DIE(case_step(&c, 0, 1));
	CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, before, c.stream));
	CHECK_OK(srt_unit_forward_begin(c.root, evaluation));
	CHECK_OK(srt_unit_forward_begin(c.block[0], evaluation));
	CHECK_OK(srt_stream_host_fn(evaluation, nap, NULL));
	CHECK_OK(srt_param_data(param, &values));
	CHECK_OK(srt_op_scale(srt_view(copy, 0, SRT_F32), values, 1.0f, 25, evaluation));
	CHECK_OK(srt_unit_forward_end(c.block[0], evaluation));
	CHECK_OK(srt_unit_forward_end(c.root, evaluation));
	CHECK_OK_OR_DIE(case_step(&c, 1, 1));
	CHECK_OK(srt_stream_sync(c.stream));
	CHECK_OK(srt_buffer_copy_to_host(seen, copy, 0, sizeof(seen), evaluation));
	CHECK_BITS(seen, before, 25);
	case_destroy(&c);
	srt_buffer_destroy(copy);
	srt_stream_destroy(evaluation);
}

/* The stream and the scratch that the next calls of the case use. */
static void swap_streams(engine_case_t *c, srt_stream_t **stream, srt_buffer_t **scratch)
{
	srt_stream_t *s = c->stream;
	srt_buffer_t *b = c->scratch;

	c->stream = *stream;
	c->scratch = *scratch;
	*stream = s;
	*scratch = b;
}

/* Micro-batches on separate streams add to one gradient, the first one slowly. */
static void test_microbatch_streams(srt_strategy_t strategy, srt_accumulation_t accumulation)
{
	srt_engine_options_t options = case_adamw(strategy);
	engine_case_t c, plain;
	srt_stream_t *other;
	srt_buffer_t *scratch;
	float *va, *vb;

	options.accumulation = accumulation;
	options.microbatches = 2;
	case_declare(&c, context, &options, 5);
	case_declare(&plain, context, &options, 5);
	case_build(&c);
	case_build(&plain);
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "other", &other));
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE,
					  (size_t)(5 * (5 + 8) * 4), "scratch", &scratch));
	for (int step = 0; step < 3; step++) {
		CHECK_OK_OR_DIE(case_step(&plain, step, 2));
		for (int m = 0; m < 2; m++) {
			CHECK_OK_OR_DIE(srt_engine_microbatch(c.engine, m, 2));
			CHECK_OK_OR_DIE(case_forward(&c, step));
			if (m == 0)
				CHECK_OK(srt_stream_host_fn(c.stream, nap, NULL));
			CHECK_OK_OR_DIE(case_backward(&c, step, m));
			if (m == 0)
				swap_streams(&c, &other, &scratch);
		}
		CHECK_OK_OR_DIE(srt_engine_step(c.engine, c.stream));
	}
	va = case_collect(&c, SRT_PARAM_VALUE);
	vb = case_collect(&plain, SRT_PARAM_VALUE);
	CHECK_BITS(va, vb, case_nelem(&c));
	free(va);
	free(vb);
	CHECK_OK(srt_stream_sync(other));
	case_destroy(&c);
	case_destroy(&plain);
	srt_buffer_destroy(scratch);
	srt_stream_destroy(other);
}

/* ---- a reset drops everything ---------------------------------------------------------- */

static void test_reset(srt_strategy_t strategy, srt_accumulation_t accumulation)
{
	srt_engine_options_t options = case_adamw(strategy);
	engine_case_t a, b;
	float *va, *vb;

	options.accumulation = accumulation;
	options.microbatches = 3;
	case_declare(&a, context, &options, 5);
	case_declare(&b, context, &options, 5);
	case_build(&a);
	case_build(&b);
	CHECK_OK_OR_DIE(case_passes(&a, 7, 2)); /* gradients that must not count */
	CHECK_OK(srt_engine_reset(a.engine));
	CHECK_OK_OR_DIE(srt_engine_microbatch(a.engine, 0, 3));
	CHECK_OK_OR_DIE(case_forward(&a, 0));
	CHECK_OK_OR_DIE(srt_unit_backward_begin(a.root, a.stream));
	CHECK_OK(srt_engine_reset(a.engine)); /* in the middle of a backward pass */
	CHECK_OK(srt_engine_check(a.engine));
	for (int step = 0; step < 2; step++) {
		CHECK_OK_OR_DIE(case_step(&a, step, 2));
		CHECK_OK_OR_DIE(case_step(&b, step, 2));
	}
	va = case_collect(&a, SRT_PARAM_VALUE);
	vb = case_collect(&b, SRT_PARAM_VALUE);
	CHECK_BITS(va, vb, case_nelem(&a));
	free(va);
	free(vb);
	case_destroy(&a);
	case_destroy(&b);
}

/* ---- sums over ranks, values in and out ------------------------------------------------ */

static void test_sum(void)
{
	const srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	int world = srt_context_world_size(context), rank = srt_context_rank(context);
	const int64_t per_rank = 100, mine = rank == 0 && world > 1 ? 0 : per_rank;
	const int64_t all = world > 1 ? per_rank * (world - 1) : per_rank;
	srt_buffer_t *values, *total;
	float x[100], sum;
	double plain = 0;
	engine_case_t c;

	case_declare(&c, context, &options, 5);
	case_build(&c);
	for (int r = world > 1; r < world; r++) {
		for (uint32_t i = 0; i < 100; i++) {
			float v = case_random((uint32_t)r, i, 3, 4) * (i % 7 ? 1.0f : 1e4f);

			plain += (double)v;
			if (r == rank)
				x[i] = v;
		}
	}
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE, sizeof(x),
					  "values", &values));
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE, sizeof(sum),
					  "total", &total));
	for (int again = 0; again < 3; again++) {
		if (mine > 0)
			CHECK_OK(srt_buffer_copy_from_host(values, 0, x, sizeof(x), c.stream));
		CHECK_OK(srt_engine_sum(c.engine, srt_view(values, 0, SRT_F32), mine, all,
					srt_view(total, 0, SRT_F32), c.stream));
		CHECK_OK(srt_buffer_copy_to_host(&sum, total, 0, sizeof(sum), c.stream));
		CHECK_NEAR((double)sum, plain, 1e-6 * (plain < 0 ? -plain : plain) + 1e-2);
	}
	CHECK_STATUS(srt_engine_sum(c.engine, srt_view(values, 0, SRT_F32), 2, 1,
				    srt_view(total, 0, SRT_F32), c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	srt_buffer_destroy(values);
	srt_buffer_destroy(total);
	case_destroy(&c);
}

static void test_values(srt_strategy_t strategy)
{
	const srt_engine_options_t options = case_adamw(strategy);
	engine_case_t c;
	float full[5 * 8], back[5 * 8];
	int64_t shape[SRT_MAX_DIMS], next = 0;
	srt_param_t *param;

	case_declare(&c, context, &options, 5);
	case_build(&c);
	param = srt_engine_param_find(c.engine, "b3.weight");
	CHECK_INT(srt_param_shape(param, shape), 2);
	CHECK(shape[0] == 5 && shape[1] == 8);
	for (size_t i = 0; i < 40; i++)
		full[i] = (float)i + 0.5f;
	for (int again = 0; again < 2; again++) { /* the second time its slot is gathered already */
		full[7] += 1.0f;
		CHECK_OK(srt_param_set(param, SRT_PARAM_VALUE, full, c.stream));
		CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, back, c.stream));
		CHECK_BITS(full, back, 40);
	}
	CHECK_OK(srt_param_init_constant(param, 2.5f, c.stream));
	CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, c.rank == 0 ? back : NULL, c.stream));
	CHECK(c.rank != 0 || (back[0] == 2.5f && back[39] == 2.5f));
	CHECK_OK(srt_param_get(param, SRT_PARAM_STATE1, c.rank == 0 ? back : NULL, c.stream));
	for (int r = 0; r < srt_context_world_size(context); r++) {
		srt_part_t part;

		CHECK_OK(srt_param_part(param, r, &part));
		CHECK_INT(part.ndim, 2);
		CHECK_INT(part.is_flat, 0);
		CHECK_INT(part.offset[0], strategy == SRT_STRATEGY_DDP ? 0 : next);
		CHECK_INT(part.offset[1], 0);
		CHECK_INT(part.size[1], 8);
		CHECK_INT(part.first, part.offset[0] * 8);
		CHECK_INT(part.nelem, part.size[0] * 8);
		next = part.offset[0] + part.size[0];
	}
	CHECK_INT(next, 5);
	CHECK(srt_engine_param_find(c.engine, "head.weight") == c.tied);
	CHECK(srt_engine_param_find(c.engine, "nothing") == NULL);
	CHECK(srt_engine_param_at(c.engine, 0) == c.param[0]);
	CHECK(srt_engine_param_at(c.engine, c.nparams) == NULL);
	case_destroy(&c);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	for (srt_strategy_t s = SRT_STRATEGY_DDP; s <= SRT_STRATEGY_ZERO3; s++) {
		test_values(s);
		test_untouched(s, 0);
		test_untouched(s, 1);
		test_untouched(s, 2);
		test_streams(s);
		test_evaluation_stream(s);
		test_microbatch_streams(s, SRT_ACCUMULATE_EVERY);
		test_microbatch_streams(s, SRT_ACCUMULATE_LAST);
		test_reset(s, SRT_ACCUMULATE_EVERY);
		test_reset(s, SRT_ACCUMULATE_LAST);
	}
	test_sum();
	srt_context_destroy(context);
	return check_done();
}
