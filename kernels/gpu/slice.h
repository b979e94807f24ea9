/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a work-group of the matrix product (gpu_matmul.k) brings slices of A and B into shared
 * memory while it works on the slice before: floats on CUDA by copies of the hardware (GPU_COPY),
 * other types and on OpenCL in chunks of four elements through registers. Elements beyond the
 * operand are the padding.
 */
#ifndef SRT_KERNELS_GPU_SLICE_H
#define SRT_KERNELS_GPU_SLICE_H

#include "kernels/gpu/gpu.h"

#define SLICE SRT_GPU_SLICE
#define PAD 4 /* floats between the rows of a slice, against conflicts of banks */
#define ROW(width) ((width) + PAD) /* from step to step of a slice, (SLICE,width) */
#define CHUNKS 8                   /* of four elements: most that a work-item loads of a slice */
#define WIDENED(bits) K_PASTE(from, _, K_DTYPE)((T)(bits))
#if GPU_COPIES && T_IS_F32
#define COPIES 1
#else
#define COPIES 0
#endif
#define IS_F32(flag) (T_IS_F32 | (flag)) /* floats, whatever T is */

/*
 * A or B: which elements, and how this work-item loads them: chunks of four neighbours in k
 * (along_k) or of four rows or columns, which become rows of the slice (SLICE,width). Neighbours
 * in the group load neighbours in memory: all of a row of the slice, or 8 steps of k in pairs.
 */
typedef struct operand {
	GLOBAL const unsigned char *from; /* chunk 0 of the next slice */
	int64_t near, far;                /* bytes from there to the others */
	int64_t step;                     /* bytes from slice to slice */
	int to;                           /* chunk 0 in the slice */
	int is_f32;                       /* floats, whatever T is */
	int along_k;
	int vector;       /* chunks are aligned */
	int kk, ii;       /* chunk 0: step of k, row or column of the matrix */
	int n;            /* rows or columns of the matrix */
	uint32_t padding; /* the bits of what is not there */
#if COPIES
	uint32_t row, slice; /* bytes from copy to copy, and from slice to slice */
	gpu_at_t at, both;   /* where the next slice goes, and the sum of both places */
#endif
} operand_t;

#define NCHUNKS (width * SLICE / 4 / nitems)
/* Chunk c is NEAR_STEPS(c) times `near` and FAR_STEPS(c) times `far` from chunk 0. */
#define PER_GROUP (2 * width > nitems ? 2 * width / nitems : 1)
#define NEAR_STEPS(c) ((c) % PER_GROUP)
#define FAR_STEPS(c) ((c) / PER_GROUP)
#define ROWS_AT_ONCE (4 * nitems / width)

/* p: of the batch item; first, n: rows or columns, the tile's first one. */
GPU_FN void start_operand(operand_t *x, GLOBAL const T *p, int64_t ld, int first, int n, int k,
			  const int width, const int nitems)
{
	const int nbytes = IS_F32(x->is_f32) ? 4 : 2;
	const int kk = x->along_k ? ITEM / 2 / width * 8 + (ITEM & 1) * 4 : ITEM / (width / 4);
	const int ii = x->along_k ? ITEM / 2 % width : ITEM % (width / 4) * 4;
	const int64_t k_step = nbytes * (x->along_k ? 1 : ld),
		      i_step = nbytes * (x->along_k ? ld : 1);

	x->n = n;
	x->kk = kk;
	x->ii = first + ii;
	x->from = (GLOBAL const unsigned char *)p + (k + kk) * k_step + (first + ii) * i_step;
	x->step = SLICE * k_step;
	x->near = x->along_k ? nitems / 2 * i_step : ROWS_AT_ONCE * k_step;
	x->far = x->along_k ? 8 * k_step : PER_GROUP * x->near;
	x->to = kk * ROW(width) + ii;
}

/* Four neighbours as they are stored: floats, or halves in the first two words. */
GPU_FN uint4 load_chunk(const operand_t *x, GLOBAL const unsigned char *from)
{
	uint4 v;

	if (IS_F32(x->is_f32)) {
		v = WIDE(GLOBAL const, uint4, from);
	} else {
		uint2 h = WIDE(GLOBAL const, uint2, from);

		v.x = h.x;
		v.y = h.y;
		v.z = 0;
		v.w = 0;
	}
	return v;
}

GPU_FN uint32_t load_one(const operand_t *x, GLOBAL const unsigned char *from, int i)
{
	if (IS_F32(x->is_f32))
		return ((GLOBAL const uint32_t *)from)[i];
	return ((GLOBAL const uint16_t *)from)[i];
}

/* A chunk of which only so many elements are there. */
GPU_FN uint4 load_some(const operand_t *x, GLOBAL const unsigned char *from, int n)
{
	const int halves = !IS_F32(x->is_f32);
	const uint32_t padding = halves ? x->padding >> 16 : x->padding;
	uint32_t e0 = padding, e1 = padding, e2 = padding, e3 = padding;
	uint4 v;

	if (n > 0)
		e0 = load_one(x, from, 0);
	if (n > 1)
		e1 = load_one(x, from, 1);
	if (n > 2)
		e2 = load_one(x, from, 2);
	if (n > 3)
		e3 = load_one(x, from, 3);
	v.x = halves ? e0 | e1 << 16 : e0;
	v.y = halves ? e2 | e3 << 16 : e1;
	v.z = e2;
	v.w = e3;
	return v;
}

/* The next slice. whole: all of it is there, and aligned; else of k on, nk steps are. */
GPU_FN void load_slice(uint4 *to, operand_t *x, int whole, int nk, const int width,
		       const int nitems)
{
	GPU_UNROLLED
	for (int c = 0; c < NCHUNKS; c++) {
		GLOBAL const unsigned char *from =
			x->from + NEAR_STEPS(c) * x->near + FAR_STEPS(c) * x->far;

		if (whole) {
			to[c] = load_chunk(x, from);
		} else {
			const int kk = x->kk + (x->along_k ? 8 * FAR_STEPS(c) : ROWS_AT_ONCE * c);
			const int ii = x->ii + (x->along_k ? nitems / 2 * NEAR_STEPS(c) : 0);
			const int n =
				x->along_k ? (ii < x->n ? nk - kk : 0) : (kk < nk ? x->n - ii : 0);

			to[c] = n >= 4 && x->vector ? load_chunk(x, from) : load_some(x, from, n);
		}
	}
	x->from += x->step;
}

GPU_FN float4 widened(const operand_t *x, uint4 from)
{
	float4 v;

	if (IS_F32(x->is_f32)) {
		v.x = FLOAT_OF((int)from.x);
		v.y = FLOAT_OF((int)from.y);
		v.z = FLOAT_OF((int)from.z);
		v.w = FLOAT_OF((int)from.w);
	} else {
		v.x = WIDENED(from.x & 0xffff);
		v.y = WIDENED(from.x >> 16);
		v.z = WIDENED(from.y & 0xffff);
		v.w = WIDENED(from.y >> 16);
	}
	return v;
}

GPU_FN void store_slice(LOCAL float *s, const uint4 *from, const operand_t *x, const int width,
			const int nitems)
{
	s += x->to;
	if (x->along_k) {
		GPU_UNROLLED
		for (int c = 0; c < NCHUNKS; c++) {
			LOCAL float *to =
				s + NEAR_STEPS(c) * (nitems / 2) + FAR_STEPS(c) * 8 * ROW(width);
			float4 v = widened(x, from[c]);

			/* In this order compilers do not make one store of it and the other. */
			to[ROW(width)] = v.y;
			to[0] = v.x;
			to[2 * ROW(width)] = v.z;
			to[3 * ROW(width)] = v.w;
		}
	} else {
		GPU_UNROLLED
		for (int c = 0; c < NCHUNKS; c++)
			WIDE(LOCAL, float4, s + c * ROWS_AT_ONCE * ROW(width)) =
				widened(x, from[c]);
	}
}

#if COPIES
/*
 * Floats are copied without a detour through registers. Along k a work-item copies single elements
 * of 2 steps of k, and neighbours are 8 steps of 4 rows; else chunks, or where these are not
 * aligned four elements of a step that are a quarter of the width apart. So neighbours write to
 * all banks.
 */
#define AT_ONCE (nitems / 8) /* rows or columns, along k */

GPU_FN void start_fetch(operand_t *x, LOCAL float *s, GLOBAL const T *p, int64_t ld, int first,
			int n, int k, const int width, const int nitems)
{
	const int kk = x->along_k ? ITEM % 8 : ITEM / (width / 4);
	const int ii = x->along_k ? ITEM / 8 : ITEM % (width / 4) * (x->vector ? 4 : 1);

	x->from = (GLOBAL const unsigned char *)(p + (x->along_k ? k + kk + (first + ii) * ld :
								   (k + kk) * ld + first + ii));
	x->row = 4 * (x->along_k ? AT_ONCE : ROWS_AT_ONCE) * (uint32_t)ld;
	x->slice = 4 * SLICE * (x->along_k ? 1 : (uint32_t)ld);
	x->at = GPU_AT(s + kk * ROW(width) + ii);
	x->both = 2 * x->at + 4 * SLICE * ROW(width);
	GPU_KEEP(x->row);
	GPU_KEEP(x->slice);
	GPU_KEEP(x->at);
}

/* A slice that is there as a whole. */
GPU_FN void copy_slice(const operand_t *x, const int width, const int nitems)
{
	GLOBAL const unsigned char *from = x->from;

	if (x->along_k) {
		GPU_UNROLLED
		for (int c = 0; c < width / AT_ONCE; c++) {
			GPU_COPY(4, x->at + 4 * AT_ONCE * c, from);
			GPU_COPY(4, x->at + 4 * (AT_ONCE * c + 8 * ROW(width)), from + 4 * 8);
			from += x->row;
			GPU_KEEP_POINTER(from);
		}
	} else {
		GPU_UNROLLED
		for (int c = 0; c < NCHUNKS; c++) {
			const gpu_at_t at = x->at + 4 * c * ROWS_AT_ONCE * ROW(width);

			if (x->vector) {
				GPU_COPY(16, at, from);
			} else {
				GPU_UNROLLED
				for (int e = 0; e < 4; e++)
					GPU_COPY(4, at + e * width, from + e * width);
			}
			from += x->row;
			GPU_KEEP_POINTER(from);
		}
	}
}

/* One of which nk steps are there, and n rows or columns. */
GPU_FN void copy_part(LOCAL float *to, operand_t *x, int64_t ld, int n, int nk, const int width,
		      const int nitems)
{
	const int kk0 = x->along_k ? ITEM % 8 : ITEM / (width / 4);
	const int ii0 = x->along_k ? ITEM / 8 : ITEM % (width / 4) * (x->vector ? 4 : 1);
	GLOBAL const float *from =
		(GLOBAL const float *)x->from - (x->along_k ? kk0 + ii0 * ld : kk0 * ld + ii0);

	GPU_ROLLED
	for (int e = ITEM; e < width * SLICE; e += nitems) {
		const int kk = x->along_k ? e % SLICE : e / width;
		const int ii = x->along_k ? e / SLICE : e % width;
		LOCAL float *s = to + kk * ROW(width) + ii;

		if (kk < nk && ii < n)
			GPU_COPY(4, GPU_AT(s), from + (x->along_k ? kk + ii * ld : kk * ld + ii));
		else
			*s = FLOAT_OF((int)x->padding);
	}
}

#define WAIT_FOR_COPIES GPU_COPIED
GPU_FN void fetch_slice(LOCAL float *to, uint4 *way, operand_t *x, int64_t ld, int whole, int n,
			int nk, const int width, const int nitems)
{
	if (whole)
		copy_slice(x, width, nitems);
	else
		copy_part(to, x, ld, n, nk, width, nitems);
	x->from += x->slice;
	x->at = x->both - x->at;
}

GPU_FN void end_fetch(LOCAL float *to, const uint4 *way, const operand_t *x, const int width,
		      const int nitems)
{
}
#else
/* OpenCL C has no macros of a variable number of arguments. */
#define start_fetch(x, s, p, ld, first, n, k, width, nitems)                                       \
	start_operand(x, p, ld, first, n, k, width, nitems)
#define WAIT_FOR_COPIES ((void)0)
GPU_FN void fetch_slice(LOCAL float *to, uint4 *way, operand_t *x, int64_t ld, int whole, int n,
			int nk, const int width, const int nitems)
{
	load_slice(way, x, whole, nk, width, nitems);
}

GPU_FN void end_fetch(LOCAL float *to, const uint4 *way, const operand_t *x, const int width,
		      const int nitems)
{
	store_slice(to, way, x, width, nitems);
}
#endif

#endif
