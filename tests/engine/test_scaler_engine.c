/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gradient scaler on engines: a scale leaves no trace in the bits of a step, an infinity on any
 * one rank skips the step on all, several engines share a scaler, ranks own nothing or only frozen
 * parameters, no call waits for the stream. Run by test_scaler.sh on 1 to 4 ranks.
 *
 * Parity: 003 TestShardGradScaler.test_inf_gradients_skip_optim_step | 1 to 4 | all | passes
 */
#include <math.h>

#include "tests/engine/engine_case.h"
#include "tests/harness/half.h"

#define NVALUES 6 /* of the parameter "w", a row each */

static srt_context_t *context;
static srt_stream_t *stream;
static srt_buffer_t *values; /* outside of engines */
static int rank, world;

/* An engine with a large frozen parameter and a small trainable one. */
typedef struct model {
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *w, *frozen;
	srt_dtype_t dtype;
	int64_t nvalues;
} model_t;

static void model_create(model_t *m, srt_strategy_t strategy, srt_dtype_t dtype, int64_t nvalues)
{
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = strategy,
					       .average = SRT_AVERAGE_SUM,
					       .optim = OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 0.1f,
							      .beta1 = 0.9, .beta2 = 0.99,
							      .eps = 1e-3f) };
	const srt_param_options_t frozen = { PARAM_BASE, .frozen = 1 };
	const int64_t rows = 8;

	*m = (model_t){ .dtype = dtype, .nvalues = nvalues };
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_unit_create(m->engine, NULL, "root", NULL, &m->unit));
	CHECK_OK_OR_DIE(srt_param_create(m->unit, "frozen", dtype, 1, &rows, &frozen, &m->frozen));
	CHECK_OK_OR_DIE(srt_param_create(m->unit, "w", dtype, 1, &nvalues, NULL, &m->w));
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	CHECK_OK(srt_param_init_normal(m->w, 7, 0.0f, 1.0f, stream));
}

static void model_destroy(model_t *m)
{
	CHECK_OK(srt_stream_sync(stream));
	srt_engine_destroy(m->engine);
}

/* Passes whose gradient is value * scale on this rank; bad on the rank of that number. */
static void model_passes(model_t *m, float value, int bad_rank, float bad)
{
	srt_view_t grad;
	int accumulate;

	CHECK_OK(srt_unit_forward_begin(m->unit, stream));
	CHECK_OK(srt_unit_forward_end(m->unit, stream));
	CHECK_OK(srt_unit_backward_begin(m->unit, stream));
	CHECK_OK(srt_param_grad(m->w, &grad, &accumulate));
	CHECK_OK(srt_op_fill(grad, value, m->nvalues, stream));
	if (rank == bad_rank) {
		srt_view_t last = grad;

		last.offset += (size_t)(m->nvalues - 1) * srt_dtype_bits(grad.dtype) / 8;
		CHECK_OK(srt_op_fill(last, bad, 1, stream));
	}
	CHECK_OK(srt_param_grad_ready(m->w));
	CHECK_OK(srt_unit_backward_end(m->unit, stream));
}

static void model_get(model_t *m, srt_param_what_t what, float *x)
{
	unsigned char bytes[NVALUES * 4];

	CHECK_OK(srt_param_get(m->w, what, bytes, stream));
	for (int64_t i = 0; i < m->nvalues; i++)
		x[i] = half_get(m->dtype, bytes, (size_t)i);
}

static bool models_equal(model_t *a, model_t *b)
{
	static const srt_param_what_t all[] = { SRT_PARAM_VALUE, SRT_PARAM_STATE0,
						SRT_PARAM_STATE1 };
	float x[NVALUES], y[NVALUES];
	bool equal = true;

	for (size_t i = 0; i < SRT_ARRAY_LEN(all); i++) {
		model_get(a, all[i], x);
		model_get(b, all[i], y);
		equal &= memcmp(x, y, (size_t)a->nvalues * sizeof(*x)) == 0;
	}
	return equal;
}

static srt_step_info_t model_state(model_t *m)
{
	srt_step_info_t state = SRT_STEP_INFO_INIT;

	CHECK_OK(srt_engine_get_step_info(m->engine, &state, stream));
	return state;
}

static srt_scaler_t *create_in_use(srt_scaler_rule_t rule, int disabled)
{
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;
	srt_scaler_t *scaler;

	options.rule = rule;
	options.disabled = disabled;
	options.init_scale = 1024.0f;
	options.growth_interval = 2;
	CHECK_OK_OR_DIE(srt_scaler_create(context, &options, &scaler));
	test_scaler_view(scaler);
	return scaler;
}

static float scale_of(srt_scaler_t *scaler)
{
	srt_scaler_state_t state;

	CHECK_OK(srt_scaler_get_state(scaler, &state, stream));
	return state.scale;
}

static void destroy(srt_scaler_t *scaler)
{
	CHECK_OK(srt_stream_sync(stream));
	srt_scaler_destroy(scaler);
}

/* With the scale, and with half of the calls explicit, the bits of a step without a scaler. */
static void test_same_bits(srt_strategy_t strategy, srt_dtype_t dtype, int disabled)
{
	srt_scaler_t *scaler = create_in_use(SRT_SCALER_SHARDED, disabled);
	model_t plain, scaled;
	float scale = 1024.0f;

	model_create(&plain, strategy, dtype, NVALUES);
	model_create(&scaled, strategy, dtype, NVALUES);
	for (int step = 0; step < 5; step++) {
		float g = 0.25f + 0.125f * (float)(rank + step);

		model_passes(&plain, g, -1, 0);
		model_passes(&scaled, disabled ? g : g * scale, -1, 0);
		if (step % 2) {
			CHECK_OK(srt_engine_finish_backward(plain.engine, stream));
			CHECK_OK(srt_engine_clip(plain.engine, 2, 0.5f, stream));
			CHECK_OK(srt_engine_finish_backward(scaled.engine, stream));
			CHECK_OK(srt_scaler_unscale(scaler, scaled.engine, stream));
			CHECK_OK(srt_engine_clip(scaled.engine, 2, 0.5f, stream));
		}
		CHECK_OK(srt_engine_step(plain.engine, stream));
		CHECK_OK(srt_scaler_step(scaler, scaled.engine, stream));
		CHECK_OK(srt_scaler_update(scaler, stream));
		scale *= step % 2 ? 2.0f : 1.0f;
		CHECK(disabled || scale_of(scaler) == scale);
		CHECK_MSG(models_equal(&plain, &scaled), "strategy %d, %s, step %d", (int)strategy,
			  srt_dtype_name(dtype), step);
	}
	CHECK_INT(model_state(&scaled).step, 5);
	model_destroy(&plain);
	model_destroy(&scaled);
	destroy(scaler);
}

/* Two engines, and an infinity in the first one's gradient on one rank: that one is skipped. */
static void test_skip(srt_strategy_t strategy, srt_dtype_t dtype, int64_t nvalues, int bad_rank)
{
	srt_scaler_t *scaler = create_in_use(SRT_SCALER_SHARDED, 0);
	model_t first, second, untouched;
	float found = -1;

	model_create(&first, strategy, dtype, nvalues);
	model_create(&second, strategy, SRT_F32, nvalues);
	model_create(&untouched, strategy, dtype, nvalues);
	model_passes(&untouched, 1.0f, -1, 0);
	CHECK_OK(srt_engine_step(untouched.engine, stream));
	model_passes(&first, 1024.0f, -1, 0);
	CHECK_OK(srt_scaler_step(scaler, first.engine, stream));
	CHECK_OK(srt_scaler_update(scaler, stream));

	model_passes(&first, 1024.0f, bad_rank, bad_rank % 2 ? NAN : INFINITY);
	model_passes(&second, 1024.0f, -1, 0);
	CHECK_OK(srt_scaler_step(scaler, first.engine, stream));
	CHECK_OK(srt_scaler_step(scaler, second.engine, stream));
	CHECK_OK(srt_scaler_get_found_inf(scaler, &found, stream));
	CHECK(found == 1.0f);
	CHECK_OK(srt_scaler_update(scaler, stream));
	CHECK(models_equal(&first, &untouched));
	CHECK(model_state(&first).step == 1 && model_state(&first).skipped == 1);
	CHECK(model_state(&second).step == 1 && model_state(&second).skipped == 0);
	CHECK(scale_of(scaler) == 512.0f);

	/* The next step is not skipped. */
	model_passes(&first, 512.0f, -1, 0);
	model_passes(&untouched, 1.0f, -1, 0);
	CHECK_OK(srt_scaler_step(scaler, first.engine, stream));
	CHECK_OK(srt_scaler_update(scaler, stream));
	CHECK_OK(srt_engine_step(untouched.engine, stream));
	CHECK(models_equal(&first, &untouched));
	model_destroy(&first);
	model_destroy(&second);
	model_destroy(&untouched);
	destroy(scaler);
}

/* Calls between a closed gate and its opening must not wait for the stream. */
typedef struct gate {
	int is_open, was_late;
} gate_t;

static srt_status_t wait_at_gate(void *arg)
{
	gate_t *gate = arg;
	const double begin = srt_now_s();

	while (!__atomic_load_n(&gate->is_open, __ATOMIC_ACQUIRE) && !gate->was_late)
		gate->was_late = srt_now_s() - begin > 20.0;
	return SRT_OK;
}

static void test_no_wait(void)
{
	const srt_scaler_output_t loss = { .size = sizeof(srt_scaler_output_t),
					   .x = srt_view(values, 64, SRT_F32),
					   .y = srt_view(values, 64, SRT_F32),
					   .nelem = 1 };
	const srt_scaler_grad_t grad = { .size = sizeof(srt_scaler_grad_t),
					 .grad = srt_view(values, 128, SRT_F32),
					 .nelem = 8 };
	const srt_view_t found_inf = srt_view(values, 0, SRT_F32);
	srt_scaler_t *scaler = create_in_use(SRT_SCALER_PLAIN, 0);
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;
	srt_scaler_state_t saved;
	model_t m;

	CHECK_OK(srt_device_get_info(srt_context_device(context), &info));
	CHECK_OK(srt_scaler_get_state(scaler, &saved, stream));
	model_create(&m, SRT_STRATEGY_ZERO3, SRT_F32, NVALUES);
	for (int step = 0; step < 11 && info.async_streams; step++) {
		gate_t gate = { 0 };

		model_passes(&m, 1.0f, -1, 0);
		if (step > 0) /* the first step is compared with the other ranks' */
			CHECK_OK(srt_stream_host_fn(stream, wait_at_gate, &gate));
		CHECK_OK(srt_scaler_scale(scaler, &loss, 1, stream));
		CHECK_OK(srt_scaler_unscale_grads(scaler, found_inf, &grad, 1, stream));
		CHECK_OK(srt_scaler_step_grads(scaler, found_inf));
		CHECK_OK(srt_scaler_step(scaler, m.engine, stream));
		CHECK_OK(srt_scaler_update(scaler, stream));
		CHECK_OK(srt_scaler_set_scale(scaler, 8.0f, stream));
		CHECK_OK(srt_scaler_set_state(scaler, &saved, stream));
		__atomic_store_n(&gate.is_open, 1, __ATOMIC_RELEASE);
		CHECK_OK(srt_stream_sync(stream));
		CHECK(!gate.was_late);
	}
	model_destroy(&m);
	destroy(scaler);
}

#define REFUSED(call, code, words)                                                                 \
	do {                                                                                       \
		CHECK_STATUS(call, code);                                                          \
		CHECK_ERROR_HAS(words);                                                            \
	} while (0)

static void test_order(void)
{
	srt_scaler_t *scaler;
	model_t m, other;

	CHECK_OK_OR_DIE(srt_scaler_create(context, NULL, &scaler));
	model_create(&m, SRT_STRATEGY_ZERO3, SRT_F32, NVALUES);
	model_create(&other, SRT_STRATEGY_ZERO3, SRT_F32, NVALUES);
	model_passes(&m, 1.0f, -1, 0);
	model_passes(&other, 1.0f, -1, 0);
	REFUSED(srt_scaler_step(scaler, m.engine, stream), SRT_ERR_STATE,
		"srt_scaler_step() before srt_scaler_scale()");
	REFUSED(srt_scaler_unscale(scaler, m.engine, stream), SRT_ERR_STATE,
		"srt_scaler_unscale() before srt_scaler_scale()");
	test_scaler_view(scaler);
	CHECK_OK(srt_scaler_unscale(scaler, m.engine, stream));
	REFUSED(srt_scaler_unscale(scaler, m.engine, stream), SRT_ERR_STATE,
		"was called before since the last srt_scaler_update()");
	CHECK_OK(srt_scaler_step(scaler, m.engine, stream));
	REFUSED(srt_scaler_unscale(scaler, m.engine, stream), SRT_ERR_STATE,
		"after srt_scaler_step()");
	REFUSED(srt_scaler_step(scaler, m.engine, stream), SRT_ERR_STATE,
		"srt_scaler_step() was called before");
	CHECK_OK(srt_scaler_step(scaler, other.engine, stream));
	CHECK_OK(srt_scaler_update(scaler, stream));
	REFUSED(srt_scaler_update(scaler, stream), SRT_ERR_STATE, "nothing was checked");
	/* What the engine refuses leaves the scaler as it is. */
	REFUSED(srt_scaler_step(scaler, m.engine, stream), SRT_ERR_STATE,
		"without a backward pass");
	REFUSED(srt_scaler_update(scaler, stream), SRT_ERR_STATE, "nothing was checked");
	model_passes(&m, 1.0f, -1, 0);
	CHECK_OK(srt_scaler_unscale(scaler, m.engine, stream));
	CHECK_OK(srt_engine_reset(m.engine)); /* drops the step */
	CHECK_OK(srt_scaler_update(scaler, stream));
	model_passes(&m, 1.0f, -1, 0);
	CHECK_OK(srt_scaler_step(scaler, m.engine, stream));
	model_destroy(&m);
	model_destroy(&other);
	destroy(scaler);
}

static void test_refused(void)
{
	srt_scaler_t *scaler = create_in_use(SRT_SCALER_PLAIN, 0);
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	srt_engine_t *engine;
	srt_unit_t *unit;
	model_t m;

	model_create(&m, SRT_STRATEGY_ZERO3, SRT_F16, NVALUES);
	model_passes(&m, 1.0f, -1, 0);
	REFUSED(srt_scaler_step(scaler, m.engine, stream), SRT_ERR_INVALID_ARGUMENT,
		"srt_scaler_step: the gradient of 'w' is f16");
	REFUSED(srt_scaler_unscale(scaler, m.engine, stream), SRT_ERR_INVALID_ARGUMENT,
		"srt_scaler_unscale: the gradient of 'w' is f16");
	CHECK_OK(srt_engine_step(m.engine, stream));
	model_destroy(&m);

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &unit));
	REFUSED(srt_scaler_unscale(scaler, engine, stream), SRT_ERR_STATE, "srt_engine_build()");
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	REFUSED(srt_scaler_step(scaler, engine, stream), SRT_ERR_STATE,
		"has no parameter with a gradient");
	srt_engine_destroy(engine);
	destroy(scaler);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	for (srt_strategy_t s = SRT_STRATEGY_DDP; s <= SRT_STRATEGY_ZERO3; s++) {
		test_same_bits(s, SRT_F32, 0);
		test_same_bits(s, SRT_BF16, 0);
		test_same_bits(s, SRT_F16, s % 2);
		for (int bad = 0; bad < world; bad++) {
			test_skip(s, bad % 2 ? SRT_F16 : SRT_F32, NVALUES, bad);
			test_skip(s, SRT_F32, 1, bad); /* only rank 0 owns an element */
		}
	}
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE, 256,
					  "values", &values));
	test_no_wait();
	test_order();
	test_refused();
	srt_buffer_destroy(values);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
