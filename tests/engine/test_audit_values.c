/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SHARDRT_AUDIT=1 and values of all kinds: zeros, subnormals, a huge range, infinities, NaN and
 * overflow are no wrong sums, in any dtype; what is exchanged, lost or differs between replicas is
 * found. Run with SHARDRT_AUDIT=1 by test_audit.sh.
 */
#include <math.h>

#include "tests/engine/planted.h"
#include "tests/harness/half.h"
#include "tests/harness/options.h"

static srt_context_t *context;
static int rank, world;

enum { ROWS = 5, COLUMNS = 150 }; /* shards of several blocks */

typedef enum values {
	RANDOM,
	ZERO,
	SUBNORMAL,
	RANGE,    /* magnitudes of all sizes, both signs; large ones cancel */
	INFINITE, /* on one rank */
	CANCELS,  /* infinities that add up to NaN */
	NAN_LAST, /* a NaN on the last rank */
	OVERFLOWS,
	NVALUES,
} values_t;

static float special(values_t values, srt_dtype_t dtype, int r, int64_t i, int step)
{
	const float x = case_random((uint32_t)r, (uint32_t)i, (uint32_t)step, 11);
	const int exponents = dtype == SRT_F16 ? 30 : 250;

	switch (values) {
	case ZERO:
		return i % 2 == 0 ? 0.0f : -0.0f;
	case SUBNORMAL:
		return x * (dtype == SRT_F16 ? 0x1p-15f : 0x1p-127f);
	case RANGE:
		if (i % 7 == 0) /* cancels, up to its rounding, between the first two ranks */
			return (r == 0 ? 1.0f : -1.0f) * (dtype == SRT_F16 ? 1e4f : 1e30f);
		return ldexpf(x, (int)(i * 37 % exponents) - exponents / 2);
	case INFINITE:
		return r == 0 && i == 300 ? INFINITY : x;
	case CANCELS:
		return i == 300 || i == 3 ? (r == 0 ? INFINITY : -INFINITY) : x;
	case NAN_LAST:
		return r == world - 1 && i == 299 ? NAN : x;
	case OVERFLOWS:
		return i % 3 == 0 ? (dtype == SRT_F16 ? 6e4f : 3e38f) : x;
	default:
		return x;
	}
}

typedef struct special {
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *param;
	srt_stream_t *stream;
} special_t;

static void special_build(special_t *s, const srt_engine_options_t *options)
{
	const int64_t shape[] = { ROWS, COLUMNS };

	CHECK_OK_OR_DIE(srt_engine_create(context, options, &s->engine));
	CHECK_OK_OR_DIE(srt_unit_create(s->engine, NULL, "root", NULL, &s->unit));
	CHECK_OK_OR_DIE(srt_param_create(s->unit, "weight", SRT_F32, 2, shape, NULL, &s->param));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "special", &s->stream));
	CHECK_OK_OR_DIE(srt_engine_build(s->engine));
	CHECK_OK(srt_param_init_constant(s->param, 0.0f, s->stream));
}

static void special_destroy(special_t *s)
{
	srt_stream_sync(s->stream);
	srt_engine_destroy(s->engine);
	srt_stream_destroy(s->stream);
}

/* One micro-batch. */
static srt_status_t special_pass(special_t *s, values_t values, int step)
{
	unsigned char given[ROWS * COLUMNS * sizeof(float)];
	int accumulate;
	srt_view_t grad;

	CHECK_OK(srt_unit_forward_begin(s->unit, s->stream));
	CHECK_OK(srt_unit_forward_end(s->unit, s->stream));
	CHECK_OK(srt_unit_backward_begin(s->unit, s->stream));
	CHECK_OK(srt_param_grad(s->param, &grad, &accumulate));
	for (int64_t i = 0; i < ROWS * COLUMNS; i++)
		half_put(grad.dtype, given, (size_t)i, special(values, grad.dtype, rank, i, step));
	CHECK_OK(srt_buffer_copy_from_host(grad.buffer, grad.offset, given,
					   ROWS * COLUMNS * srt_dtype_size(grad.dtype), s->stream));
	CHECK_OK(srt_param_grad_ready(s->param));
	return srt_unit_backward_end(s->unit, s->stream);
}

/* No gradient is called wrong. */
static void test_special(const srt_engine_options_t *options, int nmicro)
{
	special_t s;

	special_build(&s, options);
	for (int values = 0; values < NVALUES; values++) {
		for (int m = 0; m < nmicro; m++) {
			CHECK_OK_OR_DIE(srt_engine_microbatch(s.engine, m, nmicro));
			CHECK_MSG(special_pass(&s, (values_t)values, m) == SRT_OK,
				  "strategy %d, param %d, reduce %d, average %d, values %d: %s",
				  (int)options->strategy, (int)options->precision->param,
				  (int)options->precision->reduce, (int)options->average, values,
				  srt_error_last());
		}
		CHECK_OK(srt_engine_reset(s.engine));
	}
	special_destroy(&s);
}

static void test_specials(void)
{
	static const srt_strategy_t strategies[] = { SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO3,
						     SRT_STRATEGY_ZERO1 };
	int turn = 0;

	for (int param = SRT_F32; param <= SRT_BF16; param++) {
		for (int reduce = SRT_F32; reduce <= SRT_BF16; reduce++) {
			for (int average = SRT_AVERAGE_ONCE; average <= SRT_AVERAGE_SUM;
			     average++, turn++) {
				const srt_precision_t p = { .size = sizeof(p),
							    .param = (srt_dtype_t)param,
							    .reduce = (srt_dtype_t)reduce };
				const int nmicro = 1 + turn % 2;
				const srt_engine_options_t o = {
					.size = sizeof(o),
					.prefetch = 1,
					.strategy = strategies[turn % 3],
					.precision = &p,
					.microbatches = nmicro,
					.accumulation = turn % 4 == 3 ? SRT_ACCUMULATE_LAST :
									SRT_ACCUMULATE_EVERY,
					.average = (srt_average_t)average,
					.skip_nonfinite = 1,
					.optim = OPTIM_SGD(0.1f)
				};

				test_special(&o, nmicro);
			}
		}
	}
}

/* Two exchanged elements, an infinity that is lost, one that appears. */
static void test_changes(void)
{
	static const struct {
		const char *words;
		change_t change;
		values_t values;
		float delta;
	} changes[] = {
		{ "random projection is off by", EXCHANGE, RANDOM, 0.0f },
		{ "lacks an infinity or NaN that a rank contributed", SET, INFINITE, 1.0f },
		{ "lacks an infinity or NaN that a rank contributed", SET, NAN_LAST, 0.0f },
		{ "is finite and too small to overflow", SET, RANDOM, INFINITY },
		{ "is finite and too small to overflow", SET, ZERO, NAN },
		{ "random projection is off by", SET, ZERO, 0x1p-130f },
	};
	const srt_engine_options_t o = ENGINE_SGD(SRT_STRATEGY_DDP, 0.1f);
	special_t s;

	special_build(&s, &o);
	for (size_t k = 0; k < SRT_ARRAY_LEN(changes); k++) {
		/* Each step has other weights: no pair of elements may be unlucky. */
		for (int step = 0; step < (changes[k].change == EXCHANGE ? 20 : 1); step++) {
			const int bad = world - 1;
			const int64_t i = changes[k].values == INFINITE ? 300 :
					  changes[k].values == NAN_LAST ? 299 :
									  10 * (int64_t)step;

			fault = (struct planted_fault){ .param = s.param,
							.where = AFTER_STORE,
							.change = changes[k].change,
							.rank = bad,
							.element = i,
							.delta = changes[k].delta };
			CHECK_STATUS(special_pass(&s, changes[k].values, step), SRT_ERR_DEVICE);
			CHECK_ERROR_HAS(changes[k].words);
			fault.param = NULL;
			CHECK_OK(srt_engine_reset(s.engine));
			CHECK_OK(special_pass(&s, ZERO, step));
			CHECK_OK(srt_engine_step(s.engine, s.stream));
		}
	}
	special_destroy(&s);
}

/* A change that is below the rounding of the sums: replicas that differ are found all the same. */
static void test_replicas(void)
{
	const srt_engine_options_t o = ENGINE_SGD(SRT_STRATEGY_DDP, 0.1f);
	special_t s;
	char text[160];

	if (world == 1)
		return;
	special_build(&s, &o);
	fault = (struct planted_fault){ .param = s.param,
					.where = AFTER_STORE,
					.rank = world - 1,
					.element = 7,
					.delta = 0x1p-20f };
	CHECK_STATUS(special_pass(&s, RANDOM, 0), SRT_ERR_DEVICE);
	snprintf(text, sizeof(text),
		 "'weight' of unit 'root' in step 1, micro-batch 1 of 1, differs "
		 "between rank 0 and rank %d",
		 world - 1);
	CHECK_ERROR_HAS(text);
	fault.param = NULL;
	special_destroy(&s);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	test_specials();
	test_changes();
	test_replicas();
	srt_context_destroy(context);
	return check_done();
}
