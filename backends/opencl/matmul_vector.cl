/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The matrix product for devices of CPU type, one work-item a group: operands are packed into
 * panels, then every work-item runs the tiles of MR rows and a group of columns, whose panels stay
 * in its cache while the rows pass. Equal to kernels/matmul.k bit for bit. Launched by matmul.c,
 * which cuts k into spans of whole blocks.
 */
#include "backends/opencl/vector_tile.cl"

#define PACK_STEPS 16

/* The panels of SRT_OCL_PACK_COLUMNS columns from j0 on, a few steps of k at a time, so that rows
 * of the source are read in one sweep. width is a constant at each call. */
FN void pack(const srt_ocl_pack_t *A, const int width, GLOBAL float *dst, GLOBAL const float *src,
	     int64_t j0, int64_t k0, int64_t k1)
{
	const int64_t j1 = MIN_OF(j0 + SRT_OCL_PACK_COLUMNS, A->n);

	if (A->transposed) {
		for (int64_t j = j0; j < j1; j += width)
			pack_panel_transposed(dst + j * A->k, src + j * A->ld, A->ld, width,
					      A->n - j, k0, k1);
		return;
	}
	for (int64_t k = k0; k < k1; k += PACK_STEPS)
		for (int64_t j = j0; j < j1; j += width)
			pack_panel(dst + j * A->k, src + j, A->ld, width, A->n - j, k,
				   MIN_OF(k + PACK_STEPS, k1));
}

/* Work-item (SRT_OCL_PACK_COLUMNS columns, SRT_OCL_PACK_ROWS steps of k, batch item). */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void matmul_pack(
	K_PLACES_2 srt_ocl_pack_t A)
{
	TENSOR(0, float, dst);
	TENSOR(1, const float, src);
	const int64_t group = get_global_id(0), item = group / (A.groups[0] * A.groups[1]);
	const int64_t j0 = group % A.groups[0] * SRT_OCL_PACK_COLUMNS;
	const int64_t k0 = group / A.groups[0] % A.groups[1] * SRT_OCL_PACK_ROWS;
	const int64_t k1 = MIN_OF(k0 + SRT_OCL_PACK_ROWS, A.k);

	dst += item * A.stride_dst;
	src += item * A.stride_src;
	if (A.width == NR)
		pack(&A, NR, dst, src, j0, k0, k1);
	else
		pack(&A, MR, dst, src, j0, k0, k1);
}

#define ADD(i, j) t->c[i][j] = sums[i * NV + j] + t->c[i][j];
#define ADD_ROW(i) EACH_VECTOR(ADD, i)
#define KEEP(i, j) sums[i * NV + j] = t->c[i][j];
#define KEEP_ROW(i) EACH_VECTOR(KEEP, i)

/* sums (MR,NV) go on, or begin if not `go_on`, with the sums of the tile's blocks in rising
 * order. */
FN void tile_sums(vec_t *sums, int go_on, tile_t *t, GLOBAL const float *a,
		  const srt_ocl_tiles_t *A, int rows, GLOBAL const float *b)
{
	int64_t k = 0;

	do { /* once for k = 0 too: sums of no terms are +0 */
		tile_zero(t);
		tile_chain(t, a + k * A->step_a, A->row_a, A->step_a, rows, b + k * NR,
			   MIN_OF(SRT_K_MATMUL_KB, A->k - k));
		if (go_on || k > 0) {
			EACH_ROW(ADD_ROW)
		}
		EACH_ROW(KEEP_ROW)
		k += SRT_K_MATMUL_KB;
	} while (k < A->k);
}

/* Work-item (row tile, group of columns, batch item). */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void matmul_tiles(
	K_PLACES_5 srt_ocl_tiles_t A)
{
	TENSOR(0, float, c);
	TENSOR(1, const float, a);
	TENSOR(2, const float, b);
	TENSOR(3, const float, bias);
	TENSOR(4, const float, prior); /* sums of the earlier spans; may be c */
	const int64_t group = get_global_id(0), item = group / (A.groups[0] * A.groups[1]);
	const int64_t tile = group % A.groups[0], i0 = tile * MR;
	const int64_t j0 = group / A.groups[0] % A.groups[1] * A.group;
	const int64_t j1 = MIN_OF(j0 + A.group, A.n);
	const int rows = MIN_OF(MR, A.m - i0);

	c += item * A.stride_c + i0 * A.ldc;
	prior = prior ? prior + item * A.stride_prior + i0 * A.ldprior : prior;
	a += item * A.stride_a + tile * A.panel_a;
	b += item * A.stride_b;
	for (int64_t j = j0; j < j1; j += NR) {
		vec_t sums[MR * NV];
		tile_t t;

		for (int r = 0; prior && r < rows * NV; r++)
			sums[r] = load_columns(prior + r / NV * A.ldprior + j + r % NV * VL,
					       A.n - j - r % NV * VL);
		tile_sums(sums, prior != 0, &t, a, &A, rows, b + j * A.k);
		for (int r = 0; r < rows * NV; r++) {
			const int64_t column = j + r % NV * VL, n = A.n - column;
			GLOBAL float *to = c + r / NV * A.ldc + column;
			vec_t v = sums[r] * A.alpha;

			if (n <= 0)
				continue;
			if (bias)
				v = v + load_columns(bias + column, n);
			if (A.accumulate)
				v = load_columns(to, n) + v;
			store_columns(v, to, n);
		}
	}
}
