/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tile of a matrix product in the registers of one work-item, for devices of CPU type: MR rows of
 * NV vectors of VL floats. Vectors run over columns and every element is one FMA chain by rising
 * k, so the width of the device's vectors leaves no trace in the bits.
 *
 * Included by matmul_vector.cl and attention_vector.cl. -DVL=4, 8 or 16 is the device's native
 * width: MR x NV accumulators fit the registers that come with it. Compilers keep the tile's struct
 * in registers as long as nothing indexes it by a variable; hence the macros that write the rows
 * out.
 */
#include "backends/opencl/tuned_args.h"
#include "kernels/dialect/math.h"

#ifndef VL
#define VL 16
#endif
#if VL == 16
#define MR 12
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define EACH_ROW_AT(X, k)                                                                          \
	X(0, k) X(1, k) X(2, k) X(3, k) X(4, k) X(5, k)                                            \
	X(6, k) X(7, k) X(8, k) X(9, k) X(10, k) X(11, k)
#else
#define MR 6
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define EACH_ROW_AT(X, k) X(0, k) X(1, k) X(2, k) X(3, k) X(4, k) X(5, k)
#endif
#define NV 2
#define NR (NV * VL)
#define EACH_VECTOR(X, i) X(i, 0) X(i, 1)

#define PASTED_(a, b) a##b
#define PASTED(a, b) PASTED_(a, b)
#define VLOAD(p) PASTED(vload, VL)(0, p)
#define VSTORE(v, p) PASTED(vstore, VL)(v, 0, p)
typedef PASTED(float, VL) vec_t;

typedef struct tile {
	vec_t c[MR][NV];
} tile_t;

FN void tile_zero(tile_t *t)
{
#define ZERO(i, j) t->c[i][j] = (vec_t)(0.0f);
#define ZERO_ROW(i) EACH_VECTOR(ZERO, i)
	EACH_ROW(ZERO_ROW)
}

/* Pointers to the rows of A; rows that the tile lacks are its last one, whose results nobody
 * stores. */
#define ROW_POINTER(i) GLOBAL const float *a##i = a + MIN_OF(i, rows - 1) * rs;
#define STEP(i, j) c.c[i][j] = FMA(x, b##j, c.c[i][j]);
#define STEP_ROW(i)                                                                                \
	{                                                                                          \
		vec_t x = (vec_t)(a##i[at]);                                                       \
		EACH_VECTOR(STEP, i)                                                               \
	}

/* The chains go on over kc steps: element (i,k) of A at a[i * rs + k * cs], B a panel (kc,NR). */
FN void tile_chain(tile_t *t, GLOBAL const float *a, int64_t rs, int64_t cs, int rows,
		   GLOBAL const float *b, int64_t kc)
{
	tile_t c = *t;
	int64_t at = 0;

	EACH_ROW(ROW_POINTER)
	for (int64_t k = 0; k < kc; k++) {
		vec_t b0 = VLOAD(b), b1 = VLOAD(b + VL);

		EACH_ROW(STEP_ROW)
		b += NR;
		at += cs;
	}
	*t = c;
}

/* HEAD: the first steps, in which row i takes part from step i on: rows - 1 steps. */
#define HEAD_ROW(i, k)                                                                             \
	if (i <= k)                                                                                \
		STEP_ROW(i)
#define HEAD_STEP(k)                                                                               \
	if (k < rows - 1) {                                                                        \
		vec_t b0 = VLOAD(b), b1 = VLOAD(b + VL);                                           \
                                                                                                   \
		EACH_ROW_AT(HEAD_ROW, k)                                                           \
		b += NR;                                                                           \
		at += cs;                                                                          \
	}
FN void tile_chain_head(tile_t *t, GLOBAL const float *a, int64_t rs, int64_t cs, int rows,
			GLOBAL const float *b)
{
	tile_t c = *t;
	int64_t at = 0;

	EACH_ROW(ROW_POINTER)
	EACH_ROW(HEAD_STEP)
	*t = c;
}

/* TAIL: the last rows - 1 steps, of which row i takes the first i. */
#define TAIL_ROW(i, k)                                                                             \
	if (i > k)                                                                                 \
		STEP_ROW(i)
#define TAIL_STEP(k)                                                                               \
	if (k < rows - 1) {                                                                        \
		vec_t b0 = VLOAD(b), b1 = VLOAD(b + VL);                                           \
                                                                                                   \
		EACH_ROW_AT(TAIL_ROW, k)                                                           \
		b += NR;                                                                           \
		at += cs;                                                                          \
	}
FN void tile_chain_tail(tile_t *t, GLOBAL const float *a, int64_t rs, int64_t cs, int rows,
			GLOBAL const float *b)
{
	tile_t c = *t;
	int64_t at = 0;

	EACH_ROW(ROW_POINTER)
	EACH_ROW(TAIL_STEP)
	*t = c;
}

/* The first n columns of a vector from or to memory. */
FN vec_t load_columns(GLOBAL const float *from, int64_t n)
{
	float v[VL];

	if (n >= VL)
		return VLOAD(from);
	for (int j = 0; j < VL; j++)
		v[j] = j < n ? from[j] : 0.0f;
	return VLOAD(v);
}

FN void store_columns(vec_t x, GLOBAL float *to, int64_t n)
{
	float v[VL];

	if (n >= VL) {
		VSTORE(x, to);
		return;
	}
	VSTORE(x, v);
	for (int j = 0; j < n; j++)
		to[j] = v[j];
}

/*
 * Rows k0 <= k < k1 of a panel of `width` columns from the matrix src (row k, column j at k * ld +
 * j); the panel has n columns of it, the rest is +0. dst is the panel's row 0.
 */
FN void pack_panel(GLOBAL float *restrict dst, GLOBAL const float *restrict src, int64_t ld,
		   int width, int64_t n, int64_t k0, int64_t k1)
{
	for (int64_t k = k0; k < k1; k++) {
		GLOBAL const float *from = src + k * ld;
		GLOBAL float *to = dst + k * width;
		int j = 0;

		if (n >= width) /* a constant number of vectors */
			for (; j + 4 <= width; j += 4)
				vstore4(vload4(0, from + j), 0, to + j);
		for (; j < width; j++)
			to[j] = j < n ? from[j] : 0.0f;
	}
}

/* Packs a panel of the transposed matrix: row k, column j at j * ld + k. */
FN void pack_panel_transposed(GLOBAL float *restrict dst, GLOBAL const float *restrict src,
			      int64_t ld, int width, int64_t n, int64_t k0, int64_t k1)
{
	for (int j = 0; j < width; j += 4) {
		GLOBAL const float *s = src + j * ld;
		GLOBAL float *to = dst + j;
		const int full = j + 4 <= width && j + 4 <= n;
		int64_t k = k0;

		for (; full && k + 4 <= k1; k += 4) {
			float4 x = vload4(0, s + k), y = vload4(0, s + ld + k);
			float4 z = vload4(0, s + 2 * ld + k), w = vload4(0, s + 3 * ld + k);

			vstore4((float4)(x.x, y.x, z.x, w.x), 0, to + k * width);
			vstore4((float4)(x.y, y.y, z.y, w.y), 0, to + (k + 1) * width);
			vstore4((float4)(x.z, y.z, z.z, w.z), 0, to + (k + 2) * width);
			vstore4((float4)(x.w, y.w, z.w, w.w), 0, to + (k + 3) * width);
		}
		for (; k < k1; k++)
			for (int i = 0; i < MIN_OF(4, width - j); i++)
				to[k * width + i] = j + i < n ? s[i * ld + k] : 0.0f;
	}
}
