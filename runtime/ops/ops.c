/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks and launch that all operations share: sizes, dtypes, alignment, bounds, overlap. A
 * refused call queues nothing.
 */
#include "runtime/ops/ops.h"

#include <string.h>

#include "device/stream_queue.h"

#define STRUCT_ALIGN 8u /* of tables of structs in device memory */

srt_status_t srt_op_read(const char *name, srt_stream_t *stream, const void *args, const char *type,
			 void *full, size_t nbytes)
{
	SRT_TRY(srt_check_not_null(stream, name, "stream"));
	SRT_TRY(srt_check_not_null(args, name, "args"));
	return srt_struct_read(full, nbytes, args, type);
}

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

static bool may_be_absent(char access)
{
	return strchr("rwx", access) != NULL;
}

static bool is_written(char access)
{
	return strchr("WXwx", access) != NULL;
}

static srt_dtype_t wanted_dtype(const srt_op_tensor_t *t, srt_dtype_t common)
{
	switch (t->dtype) {
	case SRT_OP_DTYPE_F32:
		return SRT_F32;
	case SRT_OP_DTYPE_F16:
		return SRT_F16;
	case SRT_OP_DTYPE_BF16:
		return SRT_BF16;
	case SRT_OP_DTYPE_F64:
		return SRT_F64;
	case SRT_OP_DTYPE_I32:
		return SRT_I32;
	case SRT_OP_DTYPE_I64:
		return SRT_I64;
	case SRT_OP_DTYPE_U8:
	case SRT_OP_DTYPE_BYTES:
		return SRT_U8;
	default:
		return common;
	}
}

static srt_dtype_t common_dtype(const srt_op_tensor_t *tensors, int ntensors)
{
	for (int i = 0; i < ntensors; i++)
		if (tensors[i].dtype == SRT_OP_DTYPE_SAME && tensors[i].view.buffer != NULL)
			return tensors[i].view.dtype;
	return SRT_F32; /* for kernels whose tensors all have fixed dtypes */
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
	if (t->view.buffer == NULL && (optional || t->nelem == 0))
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

static size_t nbytes_of(const srt_op_tensor_t *t, int64_t nelem)
{
	return (size_t)nelem * (srt_dtype_bits(t->view.dtype) / 8);
}

/* Whether output a and another tensor b share bytes in a way that the call does not allow. */
static bool overlaps(const srt_op_call_t *call, const srt_op_tensor_t *a, const srt_op_tensor_t *b,
		     bool b_is_written)
{
	if (a->view.buffer == NULL || a->view.buffer != b->view.buffer || !a->nelem || !b->nelem)
		return false;
	if (call->in_place && !b_is_written && a->view.offset == b->view.offset &&
	    a->nelem == b->nelem)
		return false;
	return a->view.offset < b->view.offset + nbytes_of(b, b->nelem) &&
	       b->view.offset < a->view.offset + nbytes_of(a, a->nelem);
}

/* Whether the rows of both have one distance and do not overlap within it. */
static bool rows_alternate(const srt_op_tensor_t *a, const srt_op_rows_t *rows_a,
			   const srt_op_tensor_t *b, const srt_op_rows_t *rows_b)
{
	const size_t ld = nbytes_of(a, rows_a->ld);
	size_t b_at;

	if (!ld || ld != nbytes_of(b, rows_b->ld))
		return false;
	/* start of b's rows, from the start of a's */
	b_at = (b->view.offset % ld + ld - a->view.offset % ld) % ld;
	return b_at >= nbytes_of(a, rows_a->width) && ld - b_at >= nbytes_of(b, rows_b->width);
}

static srt_status_t check_overlap(const srt_op_call_t *call, const char *access,
				  const srt_op_tensor_t *tensors, const srt_op_rows_t *rows)
{
	for (int i = 0; access[i]; i++) {
		if (!is_written(access[i]))
			continue;
		for (int j = 0; access[j]; j++) {
			bool written = is_written(access[j]);

			if (i == j || !overlaps(call, &tensors[i], &tensors[j], written))
				continue;
			if (rows != NULL &&
			    rows_alternate(&tensors[i], &rows[i], &tensors[j], &rows[j]))
				continue;
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"%s: %s overlaps %s in buffer \"%s\"", call->name,
					tensors[i].name, tensors[j].name,
					tensors[i].view.buffer->name);
		}
	}
	return SRT_OK;
}

srt_status_t srt_op_check_rows(const srt_op_call_t *call, const char *access,
			       const srt_op_tensor_t *tensors, const srt_op_rows_t *rows,
			       srt_dtype_t *dtype)
{
	if (call->stream == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: stream is NULL", call->name);
	*dtype = common_dtype(tensors, (int)strlen(access));
	for (int i = 0; access[i]; i++)
		SRT_TRY(check_tensor(call, &tensors[i], *dtype, may_be_absent(access[i])));
	return check_overlap(call, access, tensors, rows);
}

static srt_status_t check_call(const srt_op_call_t *call, const srt_op_tensor_t *tensors,
			       const srt_op_rows_t *rows, srt_dtype_t *dtype)
{
	const srt_kernel_info_t *kernel = srt_kernel_info(call->kernel);

	SRT_TRY(srt_op_check_rows(call, kernel->access, tensors, rows, dtype));
	if (!srt_kernel_has(call->kernel, *dtype))
		return srt_fail(SRT_ERR_UNSUPPORTED, "%s: there is no kernel \"%s\" for %s",
				call->name, kernel->name, srt_dtype_name(*dtype));
	return SRT_OK;
}

srt_status_t srt_op_check(const srt_op_call_t *call, const srt_op_tensor_t *tensors,
			  srt_dtype_t *dtype)
{
	return check_call(call, tensors, NULL, dtype);
}

srt_status_t srt_op_put(const srt_op_call_t *call, srt_command_kind_t kind,
			const srt_op_tensor_t *tensors, int ntensors, srt_dtype_t dtype)
{
	srt_command_t command = {
		.kind = (uint16_t)kind,
		.kernel = (uint16_t)call->kernel,
		.dtype = (uint16_t)dtype,
		.args_nbytes = srt_kernel_info(call->kernel)->args_nbytes,
		.ngroups = 1,
	};
	srt_view_t views[SRT_COMMAND_MAX_BINDINGS];
	srt_status_t status;

	if (kind != SRT_COMMAND_ATTENTION_BACKWARD) /* several kernels */
		command.ngroups = srt_kernel_grid(call->kernel, call->args);
	memcpy(command.args, call->args, command.args_nbytes);
	for (int i = 0; i < ntensors; i++)
		views[i] = tensors[i].view;
	status = srt_command_bind(call->stream, &command, views, ntensors);
	if (status == SRT_OK && command.ngroups > 0)
		status = srt_queue_put(call->stream, &command);
	if (status != SRT_OK)
		srt_fail_prefix(status, "%s: ", call->name);
	return status;
}

srt_status_t srt_op_launch(const char *name, srt_kernel_id_t kernel, bool in_place,
			   const void *args, const srt_op_tensor_t *tensors, srt_stream_t *stream)
{
	const srt_op_call_t call = { name, stream, kernel, in_place, args };

	return srt_op_launch_rows(&call, tensors, NULL);
}

srt_status_t srt_op_launch_rows(const srt_op_call_t *call, const srt_op_tensor_t *tensors,
				const srt_op_rows_t *rows)
{
	srt_dtype_t dtype;

	SRT_TRY(check_call(call, tensors, rows, &dtype));
	return srt_op_put(call, SRT_COMMAND_KERNEL, tensors, srt_kernel_info(call->kernel)->nplaces,
			  dtype);
}

void srt_op_scratch(srt_device_t *device, srt_command_t *command, size_t *nbytes)
{
	const srt_backend_stream_ops_t *ops = device->backend->stream;
	size_t wanted = 0;

	command->exact = device->numerics == SRT_NUMERICS_EXACT;
	if (ops->scratch != NULL)
		wanted = ops->scratch(device->impl, command);
	*nbytes = wanted > *nbytes ? wanted : *nbytes;
}
