/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launcher of the coalescing of sparse gradients of step.h: kernels/coo.k. The scratch holds two
 * sets of (keys, order), of which one is sorted into the other in turn, the groups' counts and the
 * starts.
 */
#include "runtime/ops/ops.h"

#define ALIGN 64u

/* Byte offsets of the scratch's parts. */
typedef struct coo_layout {
	size_t keys[2], order[2], counts, starts, nbytes;
} coo_layout_t;

static srt_status_t check_shape(const char *name, const srt_coo_t *coo)
{
	int64_t nkeys = 1;

	if (coo == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: coo is NULL", name);
	if (coo->ndim < 1 || coo->ndim > SRT_COO_MAX_DIMS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: ndim is %d, must be 1 to %d", name,
				coo->ndim, SRT_COO_MAX_DIMS);
	/* Positions are numbers of 32 bits. */
	if (coo->nnz < 0 || coo->nnz > INT32_MAX || coo->block < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: %lld entries of %lld values: out of range", name,
				(long long)coo->nnz, (long long)coo->block);
	for (int d = 0; d < coo->ndim; d++)
		nkeys = srt_op_size(nkeys, coo->shape[d]);
	if (nkeys < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: the shape is negative or too large",
				name);
	return SRT_OK;
}

static coo_layout_t compute_layout(int64_t nnz)
{
	const size_t n = (size_t)nnz;
	coo_layout_t at;

	at.keys[0] = 0;
	at.keys[1] = srt_align_up(n * sizeof(int64_t), ALIGN);
	at.order[0] = 2 * at.keys[1];
	at.order[1] = at.order[0] + srt_align_up(n * sizeof(int32_t), ALIGN);
	at.starts = at.order[1] + srt_align_up(n * sizeof(int32_t), ALIGN);
	at.counts = at.starts + srt_align_up(n * sizeof(int32_t), ALIGN);
	at.nbytes = at.counts + (n / SRT_K_ELEMENTS + 1) * sizeof(int32_t);
	return at;
}

srt_status_t srt_coo_scratch(const srt_coo_t *coo, size_t *nbytes)
{
	SRT_NOT_NULL(coo);
	SRT_NOT_NULL(nbytes);
	SRT_TRY(check_shape("srt_coo_scratch", coo));
	*nbytes = compute_layout(coo->nnz).nbytes;
	return SRT_OK;
}

static srt_view_t view_part(srt_view_t scratch, size_t offset)
{
	return srt_view(scratch.buffer, scratch.offset + offset, SRT_U8);
}

/* One launch; all arguments were checked. */
static srt_status_t submit_kernel(srt_kernel_id_t kernel, srt_dtype_t dtype,
				  const srt_k_coo_t *args, const srt_view_t *views,
				  srt_stream_t *stream)
{
	return srt_launch(stream, kernel, dtype, srt_kernel_grid(kernel, args), args, sizeof(*args),
			  views, srt_kernel_info(kernel)->nplaces);
}

/* Sorted keys and their entries end in *keys, *order. */
static srt_status_t sort_keys(srt_k_coo_t *args, srt_view_t indices, srt_view_t scratch,
			      srt_view_t *keys, srt_view_t *order, srt_stream_t *stream)
{
	const coo_layout_t at = compute_layout(args->nnz);
	srt_view_t k[2], o[2];
	int which = 0;

	for (int i = 0; i < 2; i++) {
		k[i] = view_part(scratch, at.keys[i]);
		o[i] = view_part(scratch, at.order[i]);
	}
	SRT_TRY(submit_kernel(SRT_K_COO_SORT, SRT_F32, args, (srt_view_t[]){ k[0], o[0], indices },
			      stream));
	for (args->width = SRT_K_LANES; args->width < args->nnz; args->width *= 2) {
		SRT_TRY(submit_kernel(SRT_K_COO_MERGE, SRT_F32, args,
				      (srt_view_t[]){ k[1 - which], o[1 - which], k[which],
						      o[which] },
				      stream));
		which = 1 - which;
	}
	*keys = k[which];
	*order = o[which];
	return SRT_OK;
}

srt_status_t srt_op_coo_coalesce(const srt_scaler_sparse_t *sparse, srt_view_t values,
				 srt_stream_t *stream)
{
	const char *name = "srt_op_coo_coalesce";
	const srt_coo_t *coo = &sparse->coo;
	const srt_view_t indices = sparse->indices, out_indices = sparse->out_indices;
	const srt_view_t out_values = sparse->out_values, count = sparse->count;
	const srt_view_t scratch = sparse->scratch;
	const bool wide = indices.dtype == SRT_I64;
	srt_view_t keys, order, starts, counts;
	srt_k_coo_t args = { 0 };
	srt_dtype_t dtype;

	SRT_NOT_NULL(stream);
	SRT_TRY(check_shape(name, coo));
	args = (srt_k_coo_t){
		.nnz = coo->nnz,
		.block = coo->block,
		.ndim = coo->ndim,
		.wide = wide,
		.round_each = coo->round_each != 0,
	};
	for (int d = 0; d < coo->ndim; d++)
		args.shape[d] = coo->shape[d];
	const coo_layout_t at = compute_layout(coo->nnz);
	const int64_t nindices = srt_op_size(coo->nnz, coo->ndim);
	const int64_t nvalues = srt_op_size(coo->nnz, coo->block);
	const int index = wide ? SRT_OP_DTYPE_I64 : SRT_OP_DTYPE_I32;
	/* Checks each output against all other tensors, with the access letters of two kernels. */
	const int as_values = values.dtype == SRT_F16  ? SRT_OP_DTYPE_F16 :
			      values.dtype == SRT_BF16 ? SRT_OP_DTYPE_BF16 :
							 SRT_OP_DTYPE_F32;
	const srt_op_tensor_t heads[] = {
		{ "scratch", scratch, (int64_t)at.nbytes, SRT_OP_DTYPE_BYTES },
		{ "out_indices", out_indices, nindices, index },
		{ "count", count, 1, SRT_OP_DTYPE_I32 },
		{ "out_values", out_values, nvalues, as_values },
		{ "values", values, nvalues, as_values },
		{ "values", values, nvalues, as_values },
		{ "indices", indices, nindices, index },
	};
	const srt_op_tensor_t sums[] = {
		{ "out_values", out_values, nvalues, 0 },
		{ "values", values, nvalues, 0 },
		{ "scratch", scratch, (int64_t)at.nbytes, SRT_OP_DTYPE_BYTES },
		{ "indices", indices, nindices, index },
		{ "count", count, 1, SRT_OP_DTYPE_I32 },
	};

	SRT_TRY(srt_op_check(&(srt_op_call_t){ name, stream, SRT_K_COO_HEADS, false, &args }, heads,
			     &dtype));
	SRT_TRY(srt_op_check(&(srt_op_call_t){ name, stream, SRT_K_COO_SUM, false, &args }, sums,
			     &dtype));
	if (coo->nnz == 0)
		return srt_buffer_zero(count.buffer, count.offset, sizeof(int32_t), stream);
	starts = view_part(scratch, at.starts);
	counts = view_part(scratch, at.counts);
	SRT_TRY(sort_keys(&args, indices, scratch, &keys, &order, stream));
	SRT_TRY(submit_kernel(SRT_K_COO_COUNT, SRT_F32, &args, (srt_view_t[]){ counts, keys },
			      stream));
	SRT_TRY(submit_kernel(SRT_K_COO_HEADS, SRT_F32, &args,
			      (srt_view_t[]){ starts, out_indices, count, keys, counts, order,
					      indices },
			      stream));
	return submit_kernel(SRT_K_COO_SUM, dtype, &args,
			     (srt_view_t[]){ out_values, values, order, starts, count }, stream);
}
