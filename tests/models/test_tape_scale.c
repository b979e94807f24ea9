/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scale of a loss scaler, read on the device by the losses: exact for powers of two in fp32,
 * applied before the gradient is rounded to 16 bits, rounded first where the loss is of 16 bits.
 */
#include "tests/harness/half.h"
#include "tests/models/tape_case.h"

enum { ROWS = 7, N = 6, VOCAB = 11 };

static srt_buffer_t *scale_buffer;

static srt_view_t put_scale(float scale)
{
	srt_view_t view = srt_view(scale_buffer, 4, SRT_F32);

	tape_put(view, &scale, 1);
	return view;
}

static srt_tensor_t *cross_entropy(tape_run_t *r)
{
	return srt_layer_cross_entropy(r->tape, r->x, r->target);
}

static srt_tensor_t *mse(tape_run_t *r)
{
	return r->x; /* the case adds it */
}

static srt_tensor_t *sum(tape_run_t *r)
{
	return srt_layer_sum(r->tape, r->x);
}

/* With a layer between, whose parameter gets a gradient too. */
static srt_tensor_t *sum_of_linear(tape_run_t *r)
{
	return srt_layer_sum(r->tape, srt_layer_linear(r->tape, r->x, r->param[0], NULL));
}

static srt_tensor_t *cross_entropy_in_f16(tape_run_t *r)
{
	srt_tensor_t *loss = cross_entropy(r);

	srt_tape_loss_dtype(r->tape, loss, SRT_F16);
	return loss;
}

static const tape_case_t cases[] = {
	{ .name = "cross-entropy", .rows = ROWS, .n = N, .targets = N, .build = cross_entropy },
	{ .name = "mse", .rows = ROWS, .n = N, .build = mse },
	{ .name = "sum", .rows = ROWS, .n = N, .targets = 1, .build = sum },
	{ .name = "sum of linear",
	  .rows = ROWS,
	  .n = N,
	  .targets = 1,
	  .shape = { { 4, N } },
	  .build = sum_of_linear },
	{ .name = "head",
	  .rows = ROWS,
	  .n = N,
	  .targets = VOCAB,
	  .shape = { { VOCAB, N } },
	  .build = tape_head },
};

enum { NCASES = sizeof(cases) / sizeof(cases[0]), CROSS_ENTROPY = 0, MSE = 1, SUM = 2 };

/* Two runs of a case at the same values: one with a scale. */
static void open_both(tape_run_t *plain, tape_run_t *scaled, const tape_case_t *c,
		      const tape_case_t *scaled_c)
{
	tape_open(plain, c);
	tape_open(scaled, scaled_c);
	memcpy(plain->xvalues, scaled->xvalues, ROWS * N * sizeof(float));
	memcpy(plain->target_values, scaled->target_values, tape_nelem(plain->target) * 4);
	for (int k = 0; k < plain->nparams; k++)
		memcpy(plain->values[k], scaled->values[k],
		       (size_t)srt_param_nelem(plain->param[k]) * 4);
}

/* In fp32 a scale of 2^k multiplies every gradient exactly; losses stay. */
static void test_powers_of_two(const tape_case_t *c)
{
	tape_run_t plain, scaled;

	open_both(&plain, &scaled, c, c);
	tape_pass(&plain);
	for (int k = -3; k <= 16; k++) {
		const float scale = ldexpf(1.0f, k);
		float want[ROWS * N], want_param[VOCAB * N];
		size_t nparam = plain.nparams ? (size_t)srt_param_nelem(plain.param[0]) : 0;

		for (int i = 0; i < ROWS * N; i++)
			want[i] = plain.xgrad[i] * scale;
		for (size_t i = 0; i < nparam; i++)
			want_param[i] = plain.grads[0][i] * scale;
		scaled.scale = put_scale(scale);
		tape_pass(&scaled);
		CHECK_BITS(scaled.losses, plain.losses, ROWS);
		CHECK_BITS(scaled.xgrad, want, ROWS * N);
		if (nparam)
			CHECK_BITS(scaled.grads[0], want_param, nparam);
	}
	tape_close(&plain);
	tape_close(&scaled);
}

/* In 16 bits: the fp32 gradient of the same values, scaled in fp32, is rounded once. */
static void test_rounding(const tape_case_t *c, srt_dtype_t dtype, float scale)
{
	tape_case_t half = *c;
	tape_run_t plain, scaled;

	half.dtype = dtype;
	open_both(&plain, &scaled, c, &half);
	plain.scale = scaled.scale = put_scale(scale);
	tape_pass(&scaled);
	tape_pass(&plain);
	for (int i = 0; i < ROWS * N; i++)
		CHECK_MSG(scaled.xgrad[i] == half_round(dtype, plain.xgrad[i]),
			  "%s in %s, scale %g: gradient %d is %g, in f32 %g", c->name,
			  srt_dtype_name(dtype), (double)scale, i, (double)scaled.xgrad[i],
			  (double)plain.xgrad[i]);
	tape_close(&plain);
	tape_close(&scaled);
}

/* A sum in f16 is a loss in f16: its scale is rounded, then its product with grad_scale (0.5). */
static void test_f16_loss(float scale, float want)
{
	tape_case_t c = cases[SUM];
	tape_run_t r;

	c.dtype = SRT_F16;
	tape_open(&r, &c);
	r.scale = put_scale(scale);
	tape_pass(&r);
	for (int i = 0; i < ROWS * N; i++)
		CHECK_MSG(r.xgrad[i] == want, "scale %g: the gradient is %g", (double)scale,
			  (double)r.xgrad[i]);
	tape_close(&r);
}

/* A cross-entropy that the program has in f16: at a scale of 65536 no gradient is finite, while the
 * same in fp32 is. The loss itself does not change. */
static void test_loss_dtype(void)
{
	tape_case_t c = cases[CROSS_ENTROPY], in_f16 = c;
	tape_run_t plain, rounded;

	in_f16.build = cross_entropy_in_f16;
	open_both(&plain, &rounded, &c, &in_f16);
	plain.scale = rounded.scale = put_scale(65536.0f);
	tape_pass(&plain);
	tape_pass(&rounded);
	CHECK_BITS(rounded.losses, plain.losses, ROWS);
	for (int i = 0; i < ROWS * N; i++)
		CHECK(isfinite(plain.xgrad[i]) && !isfinite(rounded.xgrad[i]));
	plain.scale = put_scale(2048.0f);
	tape_pass(&plain);
	put_scale(2049.0f); /* halfway: to even */
	tape_pass(&rounded);
	CHECK_BITS(rounded.xgrad, plain.xgrad, ROWS * N);
	rounded.scale = (srt_view_t){ 0 };
	plain.scale = (srt_view_t){ 0 };
	tape_pass(&plain);
	tape_pass(&rounded);
	CHECK_BITS(rounded.xgrad, plain.xgrad, ROWS * N);
	tape_close(&plain);
	tape_close(&rounded);
}

int main(void)
{
	tape_begin();
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, SRT_MEM_DEVICE, 16, "scale", &scale_buffer));
	for (int i = 0; i < NCASES; i++)
		test_powers_of_two(&cases[i]);
	for (int i = CROSS_ENTROPY; i <= MSE; i++) {
		for (srt_dtype_t dtype = SRT_F16; dtype <= SRT_BF16; dtype++) {
			test_rounding(&cases[i], dtype, 1024.0f);
			test_rounding(&cases[i], dtype, 0x1p-16f);
			test_rounding(&cases[i], dtype, 3.3f);
		}
	}
	test_f16_loss(65536.0f, INFINITY);
	test_f16_loss(65519.0f, 32752.0f); /* 65504 in f16 */
	test_f16_loss(2049.0f, 1024.0f);
	test_f16_loss(0x1p-24f, 0.0f); /* half of it: to even */
	test_loss_dtype();
	srt_buffer_destroy(scale_buffer);
	return tape_end();
}
