/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The gradient scaler on gradients that no engine has: options, scaled losses, the order of calls,
 * an infinity on one rank, sparse gradients, saved state. Run by test_scaler.sh on 1 to 4 ranks.
 */
#include <math.h>

#include <shardrt/shardrt.h>

#include "base/base.h"
#include "tests/harness/check.h"
#include "tests/harness/half.h"
#include "tests/harness/options.h"

#define NSTATES 2
#define GRADS 256 /* byte in memory where gradients begin */

static srt_context_t *context;
static srt_stream_t *stream;
static srt_buffer_t *memory; /* NSTATES step states, each in 128 bytes, then gradients */
static int rank, world;

static srt_scaler_t *create(const srt_scaler_options_t *options)
{
	srt_scaler_t *scaler;

	CHECK_OK_OR_DIE(srt_scaler_create(context, options, &scaler));
	return scaler;
}

static srt_scaler_t *create_disabled(void)
{
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;

	options.disabled = 1;
	return create(&options);
}

static srt_scaler_t *create_of_rule(srt_scaler_rule_t rule)
{
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;

	options.rule = rule;
	return create(&options);
}

/* A scaler whose loss was scaled. */
static srt_scaler_t *create_in_use(srt_scaler_rule_t rule)
{
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;
	srt_scaler_t *scaler;

	options.rule = rule;
	options.allow_f16 = 1;
	scaler = create(&options);
	CHECK(test_scaler_view(scaler).dtype == SRT_F32);
	return scaler;
}

static void destroy(srt_scaler_t *scaler)
{
	CHECK_OK(srt_stream_sync(stream));
	srt_scaler_destroy(scaler);
}

static srt_view_t found_view(int i)
{
	return srt_view(memory, 128 * (size_t)i, SRT_F32);
}

static void put(srt_dtype_t dtype, const float *x, size_t n)
{
	unsigned char bytes[64];

	for (size_t i = 0; i < n; i++)
		half_put(dtype, bytes, i, x[i]);
	CHECK_OK(srt_buffer_copy_from_host(memory, GRADS, bytes, n * srt_dtype_bits(dtype) / 8,
					   stream));
}

static float get(srt_dtype_t dtype, size_t offset)
{
	unsigned char bytes[4];

	CHECK_OK(srt_buffer_copy_to_host(bytes, memory, offset, srt_dtype_bits(dtype) / 8, stream));
	return half_get(dtype, bytes, 0);
}

static float found_inf(int i)
{
	return get(SRT_F32, found_view(i).offset);
}

static float scale_of(srt_scaler_t *scaler)
{
	srt_scaler_state_t state;

	CHECK_OK(srt_scaler_get_state(scaler, &state, stream));
	return state.scale;
}

/* One gradient of two elements of this rank. */
static srt_status_t unscale(srt_scaler_t *scaler, int found, srt_dtype_t dtype, const char *name)
{
	const srt_scaler_grad_t grad = { .size = sizeof(srt_scaler_grad_t),
					 .name = name,
					 .grad = srt_view(memory, GRADS, dtype),
					 .nelem = 2 };

	return srt_scaler_unscale_grads(scaler, found_view(found), &grad, 1, stream);
}

#define REFUSED(call, code, words)                                                                 \
	do {                                                                                       \
		CHECK_STATUS(call, code);                                                          \
		CHECK_ERROR_HAS(words);                                                            \
	} while (0)

#define REFUSED_OPTION(field, value, words)                                                        \
	do {                                                                                       \
		srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;                            \
		options.field = value;                                                             \
		REFUSED(srt_scaler_create(context, &options, &scaler), SRT_ERR_INVALID_ARGUMENT,   \
			words);                                                                    \
	} while (0)

static void test_options(void)
{
	srt_scaler_t *scaler = NULL;
	srt_scaler_state_t state;

	REFUSED_OPTION(rule, (srt_scaler_rule_t)2, "no rule 2");
	REFUSED_OPTION(init_scale, 0.0f, "init_scale is 0, must be positive");
	REFUSED_OPTION(init_scale, -1.0f, "init_scale is -1, must be positive");
	REFUSED_OPTION(init_scale, INFINITY, "init_scale is inf");
	REFUSED_OPTION(growth_factor, 1.0, "growth_factor is 1, must be above 1");
	REFUSED_OPTION(growth_factor, (double)NAN, "growth_factor is nan");
	REFUSED_OPTION(backoff_factor, 1.0, "backoff_factor is 1, must be above 0 and below 1");
	REFUSED_OPTION(backoff_factor, -0.5, "backoff_factor is -0.5");
	REFUSED_OPTION(growth_interval, 0, "growth_interval is 0, must be at least 1");
	REFUSED_OPTION(growth_interval, -3, "growth_interval is -3");
	CHECK(scaler == NULL);
	scaler = create(NULL);
	CHECK_OK(srt_scaler_get_state(scaler, &state, stream));
	CHECK(state.scale == 65536.0f && state.growth_tracker == 0);
	CHECK(state.growth_factor == 2.0 && state.backoff_factor == 0.5);
	CHECK_INT(state.growth_interval, 2000);
	destroy(scaler);
}

/* x scaled into a tensor of dtype `to`. */
static float scaled(srt_scaler_t *scaler, float x, srt_dtype_t from, int ndim, srt_dtype_t to)
{
	const srt_scaler_output_t output = { .size = sizeof(srt_scaler_output_t),
					     .x = srt_view(memory, GRADS, from),
					     .y = srt_view(memory, GRADS + 64, to),
					     .nelem = 1,
					     .ndim = ndim };

	put(from, &x, 1);
	CHECK(srt_scaler_dtype(scaler, from, ndim) == to);
	CHECK_OK(srt_scaler_scale(scaler, &output, 1, stream));
	return get(to, GRADS + 64);
}

static void test_scale(void)
{
	srt_scaler_t *plain = create(NULL);
	srt_scaler_t *sharded = create_of_rule(SRT_SCALER_SHARDED);
	srt_scaler_t *disabled = create_disabled();
	const srt_scaler_output_t narrow = { .size = sizeof(srt_scaler_output_t),
					     .x = srt_view(memory, GRADS, SRT_F16),
					     .y = srt_view(memory, GRADS + 64, SRT_F16),
					     .nelem = 1 };
	const srt_scaler_output_t matrix = { .size = sizeof(srt_scaler_output_t),
					     .x = srt_view(memory, GRADS, SRT_F32),
					     .y = srt_view(memory, GRADS, SRT_F32),
					     .nelem = 2 };
	srt_view_t view;

	for (int d = SRT_F32; d <= SRT_BF16; d++) {
		srt_dtype_t t = (srt_dtype_t)d;
		float many = t == SRT_F16 ? INFINITY : 3 * 65536.0f;

		CHECK(scaled(plain, 3.0f, t, 0, SRT_F32) == 3 * 65536.0f);
		CHECK(scaled(plain, 3.0f, t, 1, t) == many);
		CHECK(scaled(sharded, 3.0f, t, 0, t) == many);
		CHECK(scaled(sharded, 3.0f, t, 2, t) == many);
		CHECK(scaled(disabled, 3.0f, t, 0, t) == 3.0f);
	}
	REFUSED(srt_scaler_scale(plain, &narrow, 1, stream), SRT_ERR_INVALID_ARGUMENT,
		"y of output 0 is f16, must be f32");
	REFUSED(srt_scaler_scale(plain, &matrix, 1, stream), SRT_ERR_INVALID_ARGUMENT,
		"output 0 has 0 dimensions and 2 elements");
	CHECK_OK(srt_scaler_scale(plain, NULL, 0, stream));
	view = test_scaler_view(plain);
	for (int i = 0; i < 2; i++) {
		float pair[2];

		CHECK_OK(srt_buffer_copy_to_host(pair, view.buffer, view.offset, sizeof(pair),
						 stream));
		CHECK(pair[0] == (i ? 3.0f : 65536.0f));
		CHECK(pair[1] == (i ? 1.0f / 3.0f : 0x1p-16f));
		CHECK_OK(srt_scaler_set_scale(plain, 3.0f, stream));
	}
	REFUSED(srt_scaler_set_scale(plain, NAN, stream), SRT_ERR_INVALID_ARGUMENT,
		"scale is nan, must be positive");
	CHECK(test_scaler_view(disabled).buffer == NULL);
	destroy(plain);
	destroy(sharded);
	destroy(disabled);
}

static void test_order(srt_scaler_rule_t rule)
{
	srt_scaler_t *scaler = create_of_rule(rule);
	const float clean[] = { 65536.0f, 131072.0f };
	const srt_view_t found = found_view(0), other = found_view(1);

	put(SRT_F32, clean, 2);
	REFUSED(srt_scaler_update(scaler, stream), SRT_ERR_STATE,
		"srt_scaler_update() before srt_scaler_scale()");
	REFUSED(unscale(scaler, 0, SRT_F32, NULL), SRT_ERR_STATE,
		"srt_scaler_unscale_grads() before srt_scaler_scale()");
	REFUSED(srt_scaler_step_grads(scaler, found), SRT_ERR_STATE, "before srt_scaler_scale()");
	CHECK(get(SRT_F32, GRADS) == clean[0]);
	test_scaler_view(scaler);
	for (int step = 0; step < 2; step++) {
		REFUSED(srt_scaler_update(scaler, stream), SRT_ERR_STATE, "nothing was checked");
		REFUSED(srt_scaler_step_grads(scaler, found), SRT_ERR_STATE,
			"before srt_scaler_unscale_grads()");
		CHECK_OK(unscale(scaler, 0, SRT_F32, NULL));
		REFUSED(unscale(scaler, 0, SRT_F32, NULL), SRT_ERR_STATE,
			"was called before since the last srt_scaler_update()");
		CHECK_OK(srt_scaler_step_grads(scaler, found));
		REFUSED(srt_scaler_step_grads(scaler, found), SRT_ERR_STATE,
			"srt_scaler_step_grads() was called before since");
		REFUSED(unscale(scaler, 0, SRT_F32, NULL), SRT_ERR_STATE,
			"after srt_scaler_step(): call srt_scaler_update()");
		/* Another optimizer has its own order. */
		CHECK_OK(unscale(scaler, 1, SRT_F32, NULL));
		CHECK_OK(srt_scaler_step_grads(scaler, other));
		if (step == 0)
			CHECK_OK(srt_scaler_update(scaler, stream));
		else
			CHECK_OK(srt_scaler_set_scale(scaler, 16.0f, stream));
	}
	CHECK(get(SRT_F32, GRADS) == 0x1p-48f);
	CHECK(scale_of(scaler) == 16.0f);
	destroy(scaler);
}

static bool is_same_state(const srt_scaler_state_t *a, const srt_scaler_state_t *b)
{
	return a->scale == b->scale && a->growth_tracker == b->growth_tracker &&
	       a->growth_interval == b->growth_interval && a->growth_factor == b->growth_factor &&
	       a->backoff_factor == b->backoff_factor;
}

static void test_disabled(void)
{
	srt_scaler_t *scaler = create_disabled();
	const float values[] = { INFINITY, 1.0f };
	srt_scaler_state_t state, zero = { 0 };
	float found = 5.0f;

	put(SRT_F32, values, 2);
	CHECK_OK(srt_scaler_update(scaler, stream));
	CHECK_OK(unscale(scaler, 0, SRT_F32, NULL));
	CHECK_OK(unscale(scaler, 0, SRT_F16, NULL));
	CHECK_OK(srt_scaler_step_grads(scaler, found_view(0)));
	CHECK_OK(srt_scaler_set_scale(scaler, 2.0f, stream));
	CHECK(get(SRT_F32, GRADS + 4) == 1.0f);
	CHECK_OK(srt_scaler_get_found_inf(scaler, &found, stream));
	CHECK(found == 0.0f);
	CHECK_OK(srt_scaler_get_state(scaler, &state, stream));
	CHECK(is_same_state(&state, &zero));
	CHECK_OK(srt_scaler_set_state(scaler, &state, stream));
	destroy(scaler);
}

/* An infinity on one rank, or none (bad -1), while the last rank has no gradient at all. */
static void test_found(srt_scaler_rule_t rule, int bad, float value)
{
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;
	srt_scaler_t *scaler;
	const float grads[] = { 65536.0f, rank == bad ? value : -32768.0f };
	const bool is_empty = world > 1 && rank == world - 1;
	float want = bad < 0 || (bad == world - 1 && world > 1) ? 0.0f : 1.0f, found = -1;

	options.rule = rule;
	options.growth_interval = 1;
	scaler = create(&options);
	test_scaler_view(scaler);
	put(SRT_F32, grads, 2);
	CHECK_OK(is_empty ? srt_scaler_unscale_grads(scaler, found_view(0), NULL, 0, stream) :
			    unscale(scaler, 0, SRT_F32, "w"));
	CHECK(found_inf(0) == want);
	CHECK(get(SRT_F32, GRADS) == (is_empty ? 65536.0f : 1.0f));
	CHECK_OK(srt_scaler_get_found_inf(scaler, &found, stream));
	CHECK(found == want);
	CHECK_OK(srt_scaler_update(scaler, stream));
	CHECK(scale_of(scaler) == (want != 0.0f ? 32768.0f : 131072.0f));
	CHECK_OK(srt_scaler_get_found_inf(scaler, &found, stream));
	CHECK(found == 0.0f);
	/* What was found is forgotten at the next check. */
	put(SRT_F32, (const float[]){ 1.0f, 1.0f }, 2);
	CHECK_OK(unscale(scaler, 0, SRT_F32, "w"));
	CHECK(found_inf(0) == 0.0f);
	destroy(scaler);
}

/* Findings are shared in the scaler's communicator: all ranks but 0, which takes no part. */
static void test_group(void)
{
	int ranks[16], n = 0;
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;
	srt_scaler_t *scaler;

	options.rule = SRT_SCALER_SHARDED;
	for (int r = 1; r < world && r < 16; r++)
		ranks[n++] = r;
	if (n == 0)
		return;
	CHECK_OK_OR_DIE(srt_comm_create_group(srt_context_world(context), ranks, n, "others",
					      &options.comm));
	if (rank > 0) {
		const float grads[] = { 1.0f, rank == world - 1 && n > 1 ? INFINITY : 1.0f };

		scaler = create(&options);
		test_scaler_view(scaler);
		put(SRT_F32, grads, 2);
		CHECK_OK(unscale(scaler, 0, SRT_F32, NULL));
		CHECK(found_inf(0) == (n > 1 ? 1.0f : 0.0f));
		destroy(scaler);
	}
	srt_comm_destroy(options.comm);
}

static void test_f16(void)
{
	srt_scaler_t *plain = create(NULL), *sharded = create_in_use(SRT_SCALER_SHARDED);
	srt_scaler_t *allowed = create_in_use(SRT_SCALER_PLAIN);
	const float values[] = { 1024.0f, 2048.0f };

	test_scaler_view(plain);
	put(SRT_F16, values, 2);
	REFUSED(unscale(plain, 0, SRT_F16, "fc.weight"), SRT_ERR_INVALID_ARGUMENT,
		"the gradient of 'fc.weight' is f16");
	REFUSED(unscale(plain, 0, SRT_F16, NULL), SRT_ERR_INVALID_ARGUMENT,
		"the gradient of '0' is f16");
	CHECK_OK(unscale(sharded, 0, SRT_F16, "fc.weight"));
	CHECK(get(SRT_F16, GRADS) == 0x1p-6f);
	CHECK_OK(unscale(allowed, 0, SRT_F16, "fc.weight"));
	CHECK(get(SRT_F16, GRADS) == 0x1p-22f);
	CHECK_OK(unscale(plain, 0, SRT_BF16, NULL));
	destroy(plain);
	destroy(sharded);
	destroy(allowed);
}

/* 60000 + 60000 - 60000 at one place: finite if it is rounded once. */
static void test_sparse(srt_scaler_rule_t rule, srt_dtype_t dtype, float want, float want_found)
{
	static const float values[] = { 60000.0f, 60000.0f, -60000.0f, 16.0f };
	static const int32_t indices[] = { 3, 3, 3, 1 };
	const bool is_f16 = dtype == SRT_F16;
	const srt_coo_t coo = { .nnz = 4, .block = 1, .ndim = 1, .shape = { 5 } };
	srt_scaler_t *scaler = create_in_use(rule);
	srt_scaler_sparse_t sparse = { .size = sizeof(srt_scaler_sparse_t),
				       .coo = coo,
				       .indices = srt_view(memory, 384, SRT_I32) };
	srt_scaler_grad_t grad = { .size = sizeof(srt_scaler_grad_t),
				   .grad = srt_view(memory, GRADS, dtype),
				   .sparse = &sparse };
	size_t nbytes;

	CHECK_OK(srt_coo_scratch(&coo, &nbytes));
	CHECK_OR_DIE(nbytes <= srt_buffer_nbytes(memory) - 1024);
	if (is_f16) {
		sparse.out_indices = srt_view(memory, 448, SRT_I32);
		sparse.out_values = srt_view(memory, 512, dtype);
		sparse.count = srt_view(memory, 576, SRT_I32);
		sparse.scratch = srt_view(memory, 1024, SRT_U8);
	}
	put(dtype, values, 4);
	CHECK_OK(srt_buffer_copy_from_host(memory, 384, indices, sizeof(indices), stream));
	CHECK_OK(srt_scaler_set_scale(scaler, 4.0f, stream));
	CHECK_OK(srt_scaler_unscale_grads(scaler, found_view(0), &grad, 1, stream));
	CHECK(found_inf(0) == want_found);
	CHECK(get(dtype, is_f16 ? 512 : GRADS + 12) == 4.0f); /* coalesced ones are sorted */
	CHECK(get(dtype, is_f16 ? 514 : GRADS) == want);
	destroy(scaler);
}

/* A saved scaler goes on as if it had never been away. */
static void test_state(void)
{
	srt_scaler_options_t options = SRT_SCALER_OPTIONS_INIT;
	srt_scaler_t *a, *b = create(NULL);
	srt_scaler_state_t state, other;

	options.init_scale = 3.0f;
	options.growth_factor = 1.1;
	options.backoff_factor = 0.9;
	options.growth_interval = 3;
	a = create(&options);
	test_scaler_view(a);
	test_scaler_view(b);
	for (int step = 0; step < 12; step++) {
		const float grads[] = { 1.0f, step == 6 ? INFINITY : 1.0f };

		put(SRT_F32, grads, 2);
		CHECK_OK(unscale(a, 0, SRT_F32, NULL));
		CHECK_OK(srt_scaler_update(a, stream));
		if (step > 4) {
			put(SRT_F32, grads, 2);
			CHECK_OK(unscale(b, 0, SRT_F32, NULL));
			CHECK_OK(srt_scaler_update(b, stream));
		}
		CHECK_OK(srt_scaler_get_state(a, &state, stream));
		if (step == 4) {
			CHECK_INT(state.growth_tracker, 2);
			CHECK_OK(srt_scaler_set_state(b, &state, stream));
		}
		CHECK_OK(srt_scaler_get_state(b, &other, stream));
		if (step >= 4)
			CHECK(is_same_state(&state, &other));
	}
	REFUSED(srt_scaler_set_state(b, &(srt_scaler_state_t){ 0 }, stream),
		SRT_ERR_INVALID_ARGUMENT, "the state is empty, perhaps saved by a disabled scaler");
	other.growth_tracker = -1;
	REFUSED(srt_scaler_set_state(b, &other, stream), SRT_ERR_INVALID_ARGUMENT,
		"growth_tracker -1");
	other = state;
	other.backoff_factor = 2.0;
	REFUSED(srt_scaler_set_state(b, &other, stream), SRT_ERR_INVALID_ARGUMENT,
		"backoff_factor is 2");
	CHECK(scale_of(b) == state.scale);
	destroy(a);
	destroy(b);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE, 4096,
					  "gradients", &memory));
	test_options();
	test_scale();
	test_disabled();
	test_f16();
	test_group();
	for (srt_scaler_rule_t rule = SRT_SCALER_PLAIN; rule <= SRT_SCALER_SHARDED; rule++) {
		test_order(rule);
		for (int bad = -1; bad < world; bad++)
			test_found(rule, bad, bad % 2 ? NAN : -INFINITY);
	}
	test_sparse(SRT_SCALER_SHARDED, SRT_F16, 15000.0f, 0.0f);
	test_sparse(SRT_SCALER_PLAIN, SRT_F16, INFINITY, 1.0f);
	test_sparse(SRT_SCALER_PLAIN, SRT_F32, 15000.0f, 0.0f);
	test_state();
	CHECK_OK(srt_stream_sync(stream));
	srt_buffer_destroy(memory);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
