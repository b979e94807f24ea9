/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs that were compiled with another header: their srt_engine_options_t ends earlier or later
 * than the library's, and an engine of it trains as one of the library's own struct.
 */
#include <shardrt/ops.h>
#include <shardrt/shardrt.h>

#include "tests/harness/check.h"

#define N 6

/* A header that ends after the strategy. */
typedef struct older_options {
	size_t size;
	srt_comm_t *comm;
	srt_mesh_t *mesh;
	const char *shard_dim, *replicate_dim;
	srt_strategy_t strategy;
} older_options_t;

/* A header with one field more. */
typedef struct newer_options {
	srt_engine_options_t known;
	int added;
} newer_options_t;

static srt_context_t *context;
static srt_stream_t *stream;

/* Three steps with the gradient 1. */
static void train(const void *options, float values[N])
{
	const int64_t shape[] = { N };
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *param;
	srt_view_t grad;
	int accumulate;

	CHECK_OK_OR_DIE(srt_engine_create(context, options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "model", NULL, &unit));
	CHECK_OK_OR_DIE(srt_param_create(unit, "w", SRT_F32, 1, shape, NULL, &param));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	CHECK_OK(srt_param_init_normal(param, 1, 0.0f, 1.0f, stream));
	for (int step = 0; step < 3; step++) {
		CHECK_OK(srt_unit_forward_begin(unit, stream));
		CHECK_OK(srt_unit_forward_end(unit, stream));
		CHECK_OK(srt_unit_backward_begin(unit, stream));
		CHECK_OK(srt_param_grad(param, &grad, &accumulate));
		CHECK_OK(srt_op_fill(grad, 1.0f, N, stream));
		CHECK_OK(srt_param_grad_ready(param));
		CHECK_OK(srt_unit_backward_end(unit, stream));
		CHECK_OK(srt_engine_step(engine, stream));
	}
	CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, values, stream));
	srt_engine_destroy(engine);
}

int main(void)
{
	const older_options_t older = { .size = sizeof(older), .strategy = SRT_STRATEGY_ZERO2 };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
	newer_options_t newer = { .known = SRT_ENGINE_OPTIONS_INIT };
	float expected[N], values[N], start[N];
	srt_engine_t *engine = NULL;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	CHECK(sizeof(older) < sizeof(options) && sizeof(newer) > sizeof(options));
	options.strategy = SRT_STRATEGY_ZERO2;
	train(&options, expected);
	train(&older, values);
	CHECK_BITS(values, expected, N);
	options.optim = &(const srt_optim_options_t){ .size = sizeof(srt_optim_options_t),
						      .kind = SRT_OPTIM_NONE };
	train(&options, start);
	CHECK(values[0] != start[0]); /* the defaults have an optimizer */

	newer.known.size = sizeof(newer);
	newer.known.strategy = SRT_STRATEGY_ZERO2;
	train(&newer, values);
	CHECK_BITS(values, expected, N);
	newer.added = 1;
	CHECK_STATUS(srt_engine_create(context, &newer.known, &engine), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("srt_engine_options_t.size is ");
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
