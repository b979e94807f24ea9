/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls between steps on separate streams: what a call set is what later calls read, and a step
 * overwrites nothing that an earlier call still reads. Run by test_orders.sh on the backend "late",
 * which runs unordered commands of several streams in unlucky orders.
 */
#include "tests/engine/engine_case.h"

#define NTRIES 4

static srt_context_t *context;

typedef struct fixture {
	engine_case_t c;
	srt_stream_t *other, *third; /* besides c.stream */
	srt_param_t *param;          /* (5, 5) */
} fixture_t;

static void open_fixture(fixture_t *f, srt_strategy_t strategy)
{
	const srt_engine_options_t options = case_adamw(strategy);
	srt_device_t *device = srt_context_device(context);

	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "other", &f->other));
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "third", &f->third));
	case_declare(&f->c, context, &options, 5);
	case_build(&f->c);
	f->param = srt_engine_param_find(f->c.engine, "b0.weight");
	CHECK_INT(srt_param_nelem(f->param), 25);
	CHECK_OK_OR_DIE(case_step(&f->c, 0, 1));
}

static void close_fixture(fixture_t *f)
{
	CHECK_OK(srt_stream_sync(f->other));
	CHECK_OK(srt_stream_sync(f->third));
	case_destroy(&f->c);
	srt_stream_destroy(f->other);
	srt_stream_destroy(f->third);
}

/*
 * Reliability: an optimizer state, a step count or a learning rate that is set on one stream and
 * read on another one | the old ones | those that were set
 */
static void test_set_and_read(srt_strategy_t strategy)
{
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	float set[25], read[25];
	int32_t steps = 0;
	fixture_t f;

	open_fixture(&f, strategy);
	for (int i = 0; i < 25; i++)
		set[i] = (float)i + 0.5f;
	for (int again = 0; again < NTRIES; again++) {
		const int32_t n = 10 + again;

		set[3] = (float)again;
		CHECK_OK(srt_param_set(f.param, SRT_PARAM_STATE0, set, f.other));
		CHECK_OK(srt_param_get(f.param, SRT_PARAM_STATE0, read, f.third));
		CHECK_BITS(read, set, 25);
		CHECK_OK(test_set_steps(f.c.engine, f.param, n, f.other));
		CHECK_OK(test_get_steps(f.c.engine, f.param, &steps, f.third));
		CHECK_INT(steps, n);
		CHECK_OK(srt_optim_set_lr(srt_engine_optim(f.c.engine), SRT_OPTIM_ALL_GROUPS,
					  0.25f + (float)again, f.other));
		CHECK_OK(srt_optim_get_step_info(srt_engine_optim(f.c.engine), 0, &state, f.third));
		CHECK(state.base_lr == 0.25f + (float)again);
		state.step = n;
		CHECK_OK(srt_optim_set_step_info(srt_engine_optim(f.c.engine), 0, &state, f.other));
		CHECK_OK(srt_engine_get_step_info(f.c.engine, &state, f.third));
		CHECK_INT(state.step, n);
		/* the later of two calls */
		CHECK_OK(test_set_steps(f.c.engine, f.param, 3, f.other));
		CHECK_OK(test_set_steps(f.c.engine, f.param, 4, f.c.stream));
		CHECK_OK(srt_stream_sync(f.c.stream));
		CHECK_OK(srt_stream_sync(f.other));
		CHECK_OK(test_get_steps(f.c.engine, f.param, &steps, f.third));
		CHECK_INT(steps, 4);
	}
	close_fixture(&f);
}

/*
 * Reliability: `srt_engine_copy_step_info()` on another stream than the next step | copied the
 * numbers of that step | the step waits for it
 */
static void test_copied_state(srt_strategy_t strategy)
{
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	unsigned char bytes[SRT_STEP_INFO_NBYTES];
	srt_buffer_t *copy;
	fixture_t f;

	open_fixture(&f, strategy);
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE,
					  sizeof(bytes), "copy", &copy));
	for (int step = 1; step <= NTRIES; step++) {
		CHECK_OK(srt_engine_copy_step_info(f.c.engine, copy, 0, f.other));
		CHECK_OK_OR_DIE(case_step(&f.c, step, 1));
		CHECK_OK(srt_stream_sync(f.c.stream));
		CHECK_OK(srt_buffer_copy_to_host(bytes, copy, 0, sizeof(bytes), f.other));
		CHECK_OK(srt_step_info_decode(bytes, &state));
		CHECK_INT(state.step, step);
	}
	close_fixture(&f);
	srt_buffer_destroy(copy);
}

/*
 * Reliability: the reduced gradient, read on another stream than that of
 * `srt_engine_finish_backward()` or `srt_engine_clip()` | not reduced, or not clipped | waits for
 * them
 */
static void test_reduced_gradients(srt_strategy_t strategy)
{
	float read[25], expected[25];
	fixture_t f, plain;

	open_fixture(&f, strategy);
	open_fixture(&plain, strategy);
	for (int step = 1; step <= NTRIES; step++) {
		CHECK_OK_OR_DIE(case_passes(&plain.c, step, 1));
		CHECK_OK_OR_DIE(case_passes(&f.c, step, 1));
		CHECK_OK(srt_engine_finish_backward(plain.c.engine, plain.c.stream));
		CHECK_OK(srt_engine_finish_backward(f.c.engine, f.c.stream));
		for (int clipped = 0; clipped < 2; clipped++) {
			CHECK_OK(srt_param_get(f.param, SRT_PARAM_GRAD, read, f.third));
			CHECK_OK(srt_param_get(plain.param, SRT_PARAM_GRAD, expected,
					       plain.c.stream));
			CHECK_BITS(read, expected, 25);
			if (clipped)
				break;
			CHECK_OK(srt_engine_clip(plain.c.engine, 2, 1e-3f, plain.c.stream));
			CHECK_OK(srt_engine_clip(f.c.engine, 2, 1e-3f, f.c.stream));
		}
		CHECK_OK(srt_engine_step(plain.c.engine, plain.c.stream));
		CHECK_OK(srt_engine_step(f.c.engine, f.c.stream));
	}
	close_fixture(&f);
	close_fixture(&plain);
}

/*
 * Reliability: sums over ranks on several streams | used the same memory at the same time | one
 * after the other
 */
static void test_sums(srt_strategy_t strategy)
{
	const int64_t all = srt_context_world_size(context);
	float values[2], totals[2];
	srt_buffer_t *buffer;
	fixture_t f;

	open_fixture(&f, strategy);
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE,
					  4 * sizeof(float), "values", &buffer));
	for (int again = 0; again < NTRIES; again++) {
		srt_stream_t *const streams[] = { f.other, f.third };

		for (int i = 0; i < 2; i++) {
			const size_t at = (size_t)i * 2 * sizeof(float);

			values[i] = (float)(again + 1) * (i ? 1000.0f : 0.25f);
			CHECK_OK(srt_buffer_copy_from_host(buffer, at, &values[i], sizeof(float),
							   streams[i]));
			CHECK_OK(srt_engine_sum(f.c.engine, srt_view(buffer, at, SRT_F32), 1, all,
						srt_view(buffer, at + sizeof(float), SRT_F32),
						streams[i]));
		}
		for (int i = 1; i >= 0; i--) {
			CHECK_OK(srt_buffer_copy_to_host(&totals[i], buffer,
							 ((size_t)i * 2 + 1) * sizeof(float),
							 sizeof(float), streams[i]));
			CHECK(totals[i] == values[i] * (float)all);
		}
	}
	close_fixture(&f);
	srt_buffer_destroy(buffer);
}

int main(void)
{
	static const srt_strategy_t strategies[] = { SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO3 };

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	for (size_t s = 0; s < SRT_ARRAY_LEN(strategies); s++) {
		test_set_and_read(strategies[s]);
		test_copied_state(strategies[s]);
		test_reduced_gradients(strategies[s]);
		test_sums(strategies[s]);
	}
	srt_context_destroy(context);
	return check_done();
}
