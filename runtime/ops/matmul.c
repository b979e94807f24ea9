/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launchers of the matrix product of <shardrt/ops.h>, and of the sum of its parts. For the product
 * the backend takes its tuned version if it has one for these shapes, else kernels/matmul.k. In
 * exact mode both have the same bits.
 */
#include "runtime/ops/ops.h"

static const char op_name[] = "srt_op_matmul";

/* Elements from the view's first to its last: `batch` matrices of (rows,cols), rows ld apart. */
static int64_t compute_extent(int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
	int64_t row, item, end;

	if (rows == 0 || cols == 0 || batch == 0)
		return 0;
	row = srt_op_size(rows - 1, ld);
	item = srt_op_size(batch - 1, stride);
	if (row < 0 || item < 0 || __builtin_add_overflow(row, item, &end) ||
	    __builtin_add_overflow(end, cols, &end))
		return -1;
	return end;
}

/* *ld: the distance between `rows` stored rows of `cols` elements; 0 becomes that of dense rows. */
static srt_status_t set_ld(const char *name, int64_t *ld, int64_t rows, int64_t cols)
{
	if (*ld == 0)
		*ld = cols;
	if (*ld >= cols || rows <= 1)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"%s: ld%s is %lld, less than the %lld columns that are stored", op_name,
			name, (long long)*ld, (long long)cols);
}

/* *mm: a copy of a program's struct, checked, with the ld of dense rows in place of 0. */
static srt_status_t read_shape(const srt_matmul_t *given, srt_matmul_t *mm)
{
	bool ta, tb;

	*mm = (srt_matmul_t)SRT_MATMUL_INIT;
	SRT_TRY(srt_struct_read(mm, sizeof(*mm), given, "srt_matmul_t"));
	ta = mm->trans_a;
	tb = mm->trans_b;
	if (mm->m < 0 || mm->n < 0 || mm->k < 0 || mm->batch < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: m %lld, n %lld, k %lld, batch %lld: none may be negative",
				op_name, (long long)mm->m, (long long)mm->n, (long long)mm->k,
				(long long)mm->batch);
	if (mm->lda < 0 || mm->ldb < 0 || mm->ldc < 0 || mm->stride_a < 0 || mm->stride_b < 0 ||
	    mm->stride_c < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: a distance between rows or batch items is negative", op_name);
	SRT_TRY(set_ld("a", &mm->lda, ta ? mm->k : mm->m, ta ? mm->m : mm->k));
	SRT_TRY(set_ld("b", &mm->ldb, tb ? mm->n : mm->k, tb ? mm->k : mm->n));
	return set_ld("c", &mm->ldc, mm->m, mm->n);
}

/* Items of C must not share elements: one after the other, or in disjoint columns of the rows. */
static srt_status_t check_items(const srt_matmul_t *mm)
{
	bool follows = mm->stride_c >= compute_extent(mm->m, mm->n, mm->ldc, 1, 0);
	bool in_columns = mm->stride_c >= mm->n &&
			  compute_extent(1, mm->n, 0, mm->batch, mm->stride_c) <= mm->ldc;

	if (mm->batch <= 1 || follows || in_columns)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"%s: with stride_c %lld the %lld items of C overlap", op_name,
			(long long)mm->stride_c, (long long)mm->batch);
}

/* dtype: of the operands. */
static srt_k_matmul_t make_args(const srt_matmul_t *mm, srt_dtype_t dtype)
{
	return (srt_k_matmul_t){
		.m = mm->m,
		.n = mm->n,
		.k = mm->k,
		.batch = mm->batch,
		.lda = mm->lda,
		.ldb = mm->ldb,
		.ldc = mm->ldc,
		.stride_a = mm->stride_a,
		.stride_b = mm->stride_b,
		.stride_c = mm->stride_c,
		.alpha = mm->alpha,
		.trans_a = mm->trans_a != 0,
		.trans_b = mm->trans_b != 0,
		.accumulate = mm->accumulate != 0,
		.c_is_f32 = mm->c.dtype == SRT_F32 && dtype != SRT_F32,
	};
}

srt_status_t srt_op_matmul_memory(srt_device_t *device, const srt_matmul_t *mm, srt_dtype_t dtype,
				  size_t *nbytes)
{
	srt_command_t command = { .kind = SRT_COMMAND_MATMUL, .dtype = (uint16_t)dtype };
	srt_matmul_t full;

	SRT_NOT_NULL(device);
	SRT_NOT_NULL(mm);
	SRT_NOT_NULL(nbytes);
	SRT_TRY(read_shape(mm, &full));
	command.matmul = make_args(&full, dtype);
	if (full.m > 0 && full.n > 0 && full.batch > 0)
		srt_op_scratch(device, &command, nbytes);
	return SRT_OK;
}

/* Whether C is of floats and the operands have 16 bits. */
static bool is_mixed(const srt_matmul_t *mm)
{
	const srt_view_t *operand = mm->a.buffer != NULL ? &mm->a :
				    mm->b.buffer != NULL ? &mm->b :
							   &mm->bias;

	return mm->c.dtype == SRT_F32 && operand->buffer != NULL &&
	       (operand->dtype == SRT_F16 || operand->dtype == SRT_BF16);
}

srt_status_t srt_op_matmul(const srt_matmul_t *shape, srt_stream_t *stream)
{
	srt_matmul_t mm;
	srt_k_matmul_t args;
	srt_op_call_t call = { op_name, stream, SRT_K_MATMUL, false, &args };
	srt_dtype_t dtype;

	SRT_NOT_NULL(stream);
	SRT_TRY(srt_check_not_null(shape, __func__, "mm"));
	SRT_TRY(read_shape(shape, &mm));
	const srt_op_tensor_t tensors[] = {
		{ "c", mm.c, compute_extent(mm.m, mm.n, mm.ldc, mm.batch, mm.stride_c),
		  is_mixed(&mm) ? SRT_OP_DTYPE_F32 : SRT_OP_DTYPE_SAME },
		{ "a", mm.a,
		  compute_extent(mm.trans_a ? mm.k : mm.m, mm.trans_a ? mm.m : mm.k, mm.lda,
				 mm.batch, mm.stride_a),
		  0 },
		{ "b", mm.b,
		  compute_extent(mm.trans_b ? mm.n : mm.k, mm.trans_b ? mm.k : mm.n, mm.ldb,
				 mm.batch, mm.stride_b),
		  0 },
		{ "bias", mm.bias, mm.n, 0 },
	};

	SRT_TRY(srt_op_check(&call, tensors, &dtype));
	SRT_TRY(check_items(&mm));
	if (mm.m == 0 || mm.n == 0 || mm.batch == 0)
		return SRT_OK;
	args = make_args(&mm, dtype);
	return srt_op_put(&call, SRT_COMMAND_MATMUL, tensors, 4, dtype);
}

/* The parts from the second one to the end of the last. */
static srt_op_tensor_t list_other_parts(const srt_sum_parts_t *a, int64_t nelem)
{
	const int64_t all = srt_op_pitched_size(a->nparts, nelem, a->stride);
	srt_op_tensor_t t = { "parts", a->parts, -1, SRT_OP_DTYPE_F32 };

	if (a->nparts == 1 || nelem == 0)
		return (srt_op_tensor_t){ .name = "parts", .dtype = SRT_OP_DTYPE_F32 };
	if (all < 0 || all > INT64_MAX / (int64_t)sizeof(float))
		return t; /* the sum of offsets might overflow */
	t.nelem = all - a->stride;
	t.view.offset += (size_t)a->stride * sizeof(float);
	return t;
}

srt_status_t srt_op_sum_parts(const srt_sum_parts_t *args, srt_stream_t *stream)
{
	srt_sum_parts_t a = SRT_SUM_PARTS_INIT;
	int64_t nelem;

	SRT_OP_READ(srt_sum_parts_t, a, args, stream);
	nelem = srt_op_size(a.rows, a.n);
	if (a.nparts < 1 || a.nparts > SRT_SUM_PARTS_MAX)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: nparts is %d, must be 1 to %d",
				__func__, a.nparts, SRT_SUM_PARTS_MAX);
	if (a.stride != 0 && a.stride < nelem)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: stride is %lld, less than the %lld elements of a part",
				__func__, (long long)a.stride, (long long)nelem);
	a.stride = a.stride ? a.stride : nelem;
	const bool one_row = a.bias.buffer == NULL; /* fills the groups of the grid */
	const srt_k_sum_parts_t kernel = { .rows = one_row ? 1 : a.rows,
					   .n = one_row ? nelem : a.n,
					   .stride = a.stride,
					   .nparts = a.nparts,
					   .accumulate = a.accumulate != 0 };
	const srt_op_tensor_t tensors[] = {
		{ "out", a.out, nelem, 0 },
		{ "parts", a.parts, nelem, SRT_OP_DTYPE_F32 },
		list_other_parts(&a, nelem),
		{ "bias", a.bias, a.n, 0 },
	};

	return srt_op_launch(__func__, SRT_K_SUM_PARTS, a.out.dtype == SRT_F32, &kernel, tensors,
			     stream);
}
