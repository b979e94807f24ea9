/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rotary position embedding, of whole heads and of a part, dense and with gaps between rows, by
 * both directions, in f32, f16 and bf16, against a plain reference.
 */
#include "tests/kernels/kernel_check.h"

typedef struct rotary {
	srt_dtype_t dtype;
	int64_t rows, heads, head_dim, dim, ldx, ldy, copied;
} rotary_t;

enum { POSITIONS = 11 };

/* want = x rotated, added onto old if `add`; where no row is, old stays. */
static void rotate(const rotary_t *t, const srt_k_rotary_t *args, const float *x,
		   const int32_t *positions, const float *cosines, const float *sines,
		   const float *old, float *want)
{
	const int64_t half = t->dim / 2, width = t->heads * t->head_dim;

	for (int64_t k = 0; k < t->rows * width; k++) {
		const int64_t row = k / width, i = k % t->head_dim;
		const float *head = x + row * t->ldx + k % width - i;
		const int64_t to = row * t->ldy + k % width, p = positions[row];
		const int known = p >= 0 && p < POSITIONS;
		float v = head[i];

		if (i < t->dim && k % width / t->head_dim < t->heads - t->copied) {
			const float c = known ? cosines[p * half + i % half] : NAN;
			const float s = known ? sines[p * half + i % half] : NAN;
			const float sign = args->backward ? -1.0f : 1.0f;
			const float a = head[i] * c;
			const float b = head[i < half ? i + half : i - half] * (sign * s);

			v = i < half ? a - b : a + b;
		}
		want[to] = args->accumulate ? old[to] + v : v;
	}
}

static float *make(srt_dtype_t dtype, int64_t n)
{
	float *x = kc_floats(n, kc_hard);

	kc_round(dtype, x, n);
	return x;
}

/* In place: y is x. */
static void check_rotary(const rotary_t *t, int backward, int accumulate, int in_place)
{
	const srt_k_rotary_t args = { .rows = t->rows,
				      .heads = t->heads,
				      .head_dim = t->head_dim,
				      .dim = t->dim,
				      .ldx = t->ldx,
				      .ldy = in_place ? t->ldx : t->ldy,
				      .npositions = POSITIONS,
				      .copied = t->copied,
				      .backward = backward,
				      .accumulate = accumulate };
	rotary_t shape = *t;
	const int64_t ntable = POSITIONS * t->dim / 2;
	float *x = make(t->dtype, t->rows * t->ldx), *old, *want;
	float *cosines = kc_floats(ntable, kc_mild), *sines = kc_floats(ntable, kc_mild);
	int32_t *positions = malloc(((size_t)t->rows + 1) * sizeof(*positions));

	CHECK_OR_DIE(positions != NULL);
	shape.ldy = args.ldy;
	for (int64_t r = 0; r < t->rows; r++) /* outside of the tables, too */
		positions[r] = (int32_t)(random32() % (POSITIONS + 2)) - 1;
	old = make(t->dtype, t->rows * shape.ldy);
	want = kc_floats(t->rows * shape.ldy, NULL);
	memcpy(want, in_place ? x : old, (size_t)(t->rows * shape.ldy) * sizeof(*want));
	rotate(&shape, &args, x, positions, cosines, sines, old, want);
	kc_begin_as(t->dtype, SRT_K_ROTARY, &args, in_place ? "in place" : "rotary");
	kc_out(in_place ? x : old, want, t->rows * shape.ldy);
	if (in_place)
		kc_same(0);
	else
		kc_in_t(x, t->rows * t->ldx);
	kc_in(positions, (size_t)t->rows * sizeof(*positions));
	kc_in(cosines, (size_t)ntable * sizeof(*cosines));
	kc_in(sines, (size_t)ntable * sizeof(*sines));
	kc_run();
	free(x);
	free(old);
	free(want);
	free(cosines);
	free(sines);
	free(positions);
}

int main(void)
{
	static const rotary_t shapes[] = {
		{ .rows = 0, .heads = 2, .head_dim = 4, .dim = 4, .ldx = 8, .ldy = 8 },
		{ .rows = 7, .heads = 1, .head_dim = 2, .dim = 2, .ldx = 2, .ldy = 2 },
		{ .rows = 13, .heads = 3, .head_dim = 64, .dim = 64, .ldx = 192, .ldy = 192 },
		{ .rows = 9,
		  .heads = 3,
		  .head_dim = 64,
		  .dim = 64,
		  .ldx = 192,
		  .ldy = 192,
		  .copied = 1 },
		{ .rows = 3,
		  .heads = 2,
		  .head_dim = 8,
		  .dim = 8,
		  .ldx = 16,
		  .ldy = 16,
		  .copied = 2 },
		{ .rows = 9, .heads = 5, .head_dim = 20, .dim = 6, .ldx = 100, .ldy = 113 },
		{ .rows = 5, .heads = 2, .head_dim = 131, .dim = 130, .ldx = 301, .ldy = 262 },
		{ .rows = 5, .heads = 2, .head_dim = 3, .dim = 0, .ldx = 6, .ldy = 6 },
		{ .rows = 3, .heads = 2, .head_dim = 600, .dim = 596, .ldx = 1200, .ldy = 1200 },
	};

	for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
		for (int d = SRT_F32; d <= SRT_BF16; d++) {
			rotary_t t = shapes[k];

			t.dtype = (srt_dtype_t)d;
			for (int backward = 0; backward < 2; backward++) {
				check_rotary(&t, backward, 0, 0);
				check_rotary(&t, backward, 1, 0);
				check_rotary(&t, backward, 0, 1);
			}
		}
	}
	return kc_done();
}
