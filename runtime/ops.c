/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks and launch that all operations share: sizes, dtypes, alignment, bounds, overlap. A
 * refused call has put nothing on the stream.
 */
#include "runtime/ops.h"

#include <string.h>

#define STRUCT_ALIGN 8u /* of tables of structs in device memory */

int64_t srt_op_size(int64_t a, int64_t b)
{
	int64_t r;

	if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &r))
		return -1;
	return r;
}

int64_t srt_op_size3(int64_t a, int64_t b, int64_t c)
{
	return srt_op_size(srt_op_size(a, b), c);
}

static bool may_be_absent(const srt_kernel_info_t *kernel, int place)
{
	return strchr("rwx", kernel->access[place]) != NULL;
}

static bool is_written(const srt_kernel_info_t *kernel, int place)
{
	return strchr("WXwx", kernel->access[place]) != NULL;
}

static srt_dtype_t wanted_dtype(const srt_op_tensor_t *t, srt_dtype_t common)
{
	switch (t->dtype) {
	case SRT_OP_DTYPE_F32:
		return SRT_F32;
	case SRT_OP_DTYPE_F64:
		return SRT_F64;
	case SRT_OP_DTYPE_I32:
		return SRT_I32;
	case SRT_OP_DTYPE_BYTES:
		return SRT_U8;
	default:
		return common;
	}
}

static srt_dtype_t common_dtype(const srt_op_tensor_t *tensors, int ntensors)
{
	for (int i = 0; i < ntensors; i++)
		if (tensors[i].dtype == SRT_OP_DTYPE_SAME && tensors[i].view.buffer)
			return tensors[i].view.dtype;
	return SRT_F32; /* what kernels without a tensor of free dtype are launched as */
}

static srt_status_t check_tensor(const srt_op_call_t *call, const srt_op_tensor_t *t,
				 srt_dtype_t common, bool optional)
{
	srt_dtype_t dtype = wanted_dtype(t, common);
	srt_status_t status;

	if (t->nelem < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: the size of %s is negative or too large", call->name, t->name);
	/* An absent tensor without elements is an empty shard. */
	if (!t->view.buffer && (optional || t->nelem == 0))
		return SRT_OK;
	status = srt_view_check(&t->view, (size_t)t->nelem, t->name);
	if (status != SRT_OK)
		return srt_fail_prefix(status, "%s: ", call->name);
	if (t->view.dtype != dtype)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: %s is %s, must be %s", call->name,
				t->name, srt_dtype_name(t->view.dtype), srt_dtype_name(dtype));
	if (t->dtype == SRT_OP_DTYPE_BYTES && t->view.offset % STRUCT_ALIGN)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: %s starts at byte %zu of buffer \"%s\", must be a multiple of "
				"%u",
				call->name, t->name, t->view.offset, t->view.buffer->name,
				STRUCT_ALIGN);
	return SRT_OK;
}

static size_t end_of(const srt_op_tensor_t *t)
{
	return t->view.offset + (size_t)t->nelem * (srt_dtype_bits(t->view.dtype) / 8);
}

/* Whether output a and another tensor b share bytes in a way that the call does not allow. */
static bool overlaps(const srt_op_call_t *call, const srt_op_tensor_t *a, const srt_op_tensor_t *b,
		     bool b_is_written)
{
	if (!a->view.buffer || a->view.buffer != b->view.buffer || !a->nelem || !b->nelem)
		return false;
	if (call->in_place && !b_is_written && a->view.offset == b->view.offset &&
	    a->nelem == b->nelem)
		return false;
	return a->view.offset < end_of(b) && b->view.offset < end_of(a);
}

static srt_status_t check_overlap(const srt_op_call_t *call, const srt_op_tensor_t *tensors,
				  const srt_kernel_info_t *kernel)
{
	for (int i = 0; i < kernel->nplaces; i++) {
		if (!is_written(kernel, i))
			continue;
		for (int j = 0; j < kernel->nplaces; j++) {
			bool written = is_written(kernel, j);

			if (i == j || !overlaps(call, &tensors[i], &tensors[j], written))
				continue;
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"%s: %s overlaps %s in buffer \"%s\"", call->name,
					tensors[i].name, tensors[j].name,
					tensors[i].view.buffer->name);
		}
	}
	return SRT_OK;
}

srt_status_t srt_op_check(const srt_op_call_t *call, const srt_op_tensor_t *tensors,
			  srt_dtype_t *dtype)
{
	const srt_kernel_info_t *kernel = srt_kernel_info(call->kernel);

	if (!call->stream)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: stream is NULL", call->name);
	*dtype = common_dtype(tensors, kernel->nplaces);
	for (int i = 0; i < kernel->nplaces; i++)
		SRT_TRY(check_tensor(call, &tensors[i], *dtype, may_be_absent(kernel, i)));
	if (!srt_kernel_has(call->kernel, *dtype))
		return srt_fail(SRT_ERR_UNSUPPORTED, "%s: there is no kernel \"%s\" for %s",
				call->name, kernel->name, srt_dtype_name(*dtype));
	return check_overlap(call, tensors, kernel);
}

srt_status_t srt_op_put(const srt_op_call_t *call, const srt_op_tensor_t *tensors,
			srt_dtype_t dtype)
{
	const srt_kernel_info_t *kernel = srt_kernel_info(call->kernel);
	srt_view_t views[SRT_LAUNCH_MAX_PLACES];
	srt_status_t status;

	for (int i = 0; i < kernel->nplaces; i++)
		views[i] = tensors[i].view;
	status = srt_launch(call->stream, call->kernel, dtype,
			    srt_kernel_grid(call->kernel, call->args), call->args,
			    kernel->args_nbytes, views, kernel->nplaces);
	if (status != SRT_OK)
		srt_fail_prefix(status, "%s: ", call->name);
	return status;
}

srt_status_t srt_op_launch(const srt_op_call_t *call, const srt_op_tensor_t *tensors)
{
	srt_dtype_t dtype;

	SRT_TRY(srt_op_check(call, tensors, &dtype));
	return srt_op_put(call, tensors, dtype);
}
