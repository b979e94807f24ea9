/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launcher of srt_op_copy_strided() of <shardrt/ops.h>: kernels/strided.k. The dimensions are put
 * into the order in which y lies, neighbours that are one run in both tensors become one, and the
 * last two are cut into tiles.
 */
#include "runtime/ops/ops.h"

#include <stdlib.h>

#define TILE 64       /* side of a tile where rows or columns are far apart in one of the tensors */
#define TILE_RUN 4096 /* elements of a tile of runs */

static const char op_name[] = "srt_op_copy_strided";

typedef struct dim {
	int64_t size, y, x;
} dim_t;

/* Outermost first, as y lies. */
static int by_stride(const void *a, const void *b)
{
	const dim_t *p = a, *q = b;

	if (p->y != q->y)
		return p->y < q->y ? 1 : -1;
	return p->x < q->x ? 1 : p->x > q->x ? -1 : 0;
}

static srt_status_t check_shape(const srt_strided_t *s)
{
	if (s == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: shape is NULL", op_name);
	if (s->ndim < 0 || s->ndim > SRT_STRIDED_MAX_DIMS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: %d dimensions, at most %d are",
				op_name, s->ndim, SRT_STRIDED_MAX_DIMS);
	for (int d = 0; d < s->ndim; d++)
		if (s->size[d] < 0 || s->stride_y[d] < 0 || s->stride_x[d] < 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"%s: dimension %d has size %lld and strides %lld and %lld: "
					"none may be negative",
					op_name, d, (long long)s->size[d],
					(long long)s->stride_y[d], (long long)s->stride_x[d]);
	return SRT_OK;
}

/* The dimensions of more than one index, as y lies; -1 where there is a size of 0. */
static int sorted_dims(const srt_strided_t *s, dim_t *dims)
{
	int n = 0;

	for (int d = 0; d < s->ndim; d++) {
		if (s->size[d] == 0)
			return -1;
		if (s->size[d] > 1)
			dims[n++] = (dim_t){ s->size[d], s->stride_y[d], s->stride_x[d] };
	}
	qsort(dims, (size_t)n, sizeof(*dims), by_stride);
	return n;
}

/* From the first element to the last of the dimensions from `first` on; -1: too large. */
static int64_t compute_extent(const dim_t *dims, int first, int n, bool of_y)
{
	int64_t end = 1;

	for (int d = first; d < n; d++) {
		int64_t reach = srt_op_size(dims[d].size - 1, of_y ? dims[d].y : dims[d].x);

		if (reach < 0 || __builtin_add_overflow(end, reach, &end))
			return -1;
	}
	return end;
}

/* Each stride of y is larger than the extent of all smaller ones. */
static srt_status_t check_apart(const dim_t *dims, int n)
{
	for (int d = 0; d < n; d++) {
		int64_t below = compute_extent(dims, d + 1, n, true);

		if (below >= 0 && dims[d].y < below)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"%s: elements of y overlap: a stride of %lld over a part "
					"that reaches %lld",
					op_name, (long long)dims[d].y, (long long)below);
	}
	return SRT_OK;
}

static int merge_dims(dim_t *dims, int n)
{
	int last = 0;

	for (int d = 1; d < n; d++) {
		dim_t *outer = &dims[last];

		if (outer->y == dims[d].size * dims[d].y && outer->x == dims[d].size * dims[d].x)
			*outer = (dim_t){ outer->size * dims[d].size, dims[d].y, dims[d].x };
		else
			dims[++last] = dims[d];
	}
	return n ? last + 1 : 0;
}

/* Moves the dimension with the smallest stride of x to the last but one, unless it is the last. */
static void bring_near(dim_t *dims, int n)
{
	int best = n - 1;

	for (int d = 0; d < n - 1; d++)
		if (dims[d].x && dims[d].x < dims[best].x)
			best = d;
	if (best < n - 2) {
		dim_t swapped = dims[n - 2];

		dims[n - 2] = dims[best];
		dims[best] = swapped;
	}
}

static srt_k_strided_t kernel_args(const dim_t *dims, int n, int32_t nbytes)
{
	srt_k_strided_t args = { .nbytes = nbytes };
	const int first = SRT_STRIDED_MAX_DIMS - n;

	for (int d = 0; d < SRT_STRIDED_MAX_DIMS; d++) {
		const dim_t dim = d < first ? (dim_t){ 1, 0, 0 } : dims[d - first];

		args.size[d] = dim.size;
		args.stride_y[d] = dim.y;
		args.stride_x[d] = dim.x;
	}
	args.tile_rows = args.tile_columns = TILE;
	if (args.stride_y[4] <= 1 && args.stride_x[4] <= 1) {
		args.tile_columns = args.size[4] < TILE_RUN ? args.size[4] : TILE_RUN;
		args.tile_rows = TILE_RUN / args.tile_columns;
	}
	return args;
}

srt_status_t srt_op_copy_strided(srt_view_t y, srt_view_t x, const srt_strided_t *shape,
				 srt_stream_t *stream)
{
	srt_op_call_t call = { op_name, stream, SRT_K_COPY_STRIDED, false, NULL };
	dim_t dims[SRT_STRIDED_MAX_DIMS];
	srt_op_rows_t rows[2] = { { 0, 0 }, { 0, 0 } };
	srt_k_strided_t args;
	srt_dtype_t dtype;
	int n, bits;

	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(shape);
	SRT_TRY(check_shape(shape));
	n = sorted_dims(shape, dims);
	if (n > 0) {
		SRT_TRY(check_apart(dims, n));
		rows[0] = (srt_op_rows_t){ compute_extent(dims, 1, n, true), dims[0].y };
		rows[1] = (srt_op_rows_t){ compute_extent(dims, 1, n, false), dims[0].x };
	}
	const srt_op_tensor_t tensors[] = {
		{ "y", y, n < 0 ? 0 : compute_extent(dims, 0, n, true), 0 },
		{ "x", x, n < 0 ? 0 : compute_extent(dims, 0, n, false), 0 },
	};

	SRT_TRY(srt_op_check_rows(&call, srt_kernel_info(call.kernel)->access, tensors, rows,
				  &dtype));
	if (n < 0)
		return SRT_OK;
	bits = (int)srt_dtype_bits(dtype);
	if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
		return srt_fail(SRT_ERR_UNSUPPORTED, "%s: elements of %d bits", op_name, bits);
	n = merge_dims(dims, n);
	bring_near(dims, n);
	args = kernel_args(dims, n, bits / 8);
	call.args = &args;
	return srt_op_put(&call, SRT_COMMAND_KERNEL, tensors, 2, SRT_F32);
}
