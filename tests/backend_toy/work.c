/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the toy device's queues run: copies, and the portable kernels in the form that kernels/cpu.c
 * makes of them for this processor (a real device compiles kernels/ for itself).
 */
#include <string.h>

#include "tests/backend_toy/toy.h"

static unsigned char *at(const void *mem, size_t offset)
{
	return ((const toy_mem_t *)mem)->bytes + offset;
}

static srt_status_t run_copy(toy_stream_t *stream, toy_op_t *op)
{
	(void)stream;
	if (op->u.copy.src)
		memcpy(op->u.copy.dst, op->u.copy.src, op->u.copy.nbytes);
	else
		memset(op->u.copy.dst, 0, op->u.copy.nbytes);
	return SRT_OK;
}

static srt_status_t put_copy(void *stream, unsigned char *dst, const unsigned char *src,
			     size_t nbytes)
{
	toy_op_t *op = toy_op_new(stream, 0);

	if (!op)
		return SRT_ERR_OUT_OF_MEMORY;
	op->run = run_copy;
	op->u.copy.dst = dst;
	op->u.copy.src = src;
	op->u.copy.nbytes = nbytes;
	return toy_stream_put(stream, op);
}

static srt_status_t work_copy(void *stream, void *dst, size_t dst_offset, void *src,
			      size_t src_offset, size_t nbytes)
{
	return put_copy(stream, at(dst, dst_offset), at(src, src_offset), nbytes);
}

static srt_status_t work_zero(void *stream, void *dst, size_t offset, size_t nbytes)
{
	return put_copy(stream, at(dst, offset), NULL, nbytes);
}

/* The source is the caller's again on return, so the operation carries a copy. */
static srt_status_t work_from_host(void *stream, void *dst, size_t offset, const void *src,
				   size_t nbytes)
{
	toy_op_t *op = toy_op_new(stream, nbytes);

	if (!op)
		return SRT_ERR_OUT_OF_MEMORY;
	memcpy(op->bytes, src, nbytes);
	op->run = run_copy;
	op->u.copy.dst = at(dst, offset);
	op->u.copy.src = op->bytes;
	op->u.copy.nbytes = nbytes;
	return toy_stream_put(stream, op);
}

static srt_status_t work_to_host(void *stream, void *dst, void *src, size_t offset, size_t nbytes)
{
	srt_status_t status = toy_stream_sync(stream);

	if (status == SRT_OK)
		memcpy(dst, at(src, offset), nbytes);
	return status;
}

static srt_status_t run_launch(toy_stream_t *stream, toy_op_t *op)
{
	const srt_launch_t *launch = &op->u.launch.launch;
	srt_kernel_cpu_fn *run = srt_kernel_cpu(launch->kernel, launch->dtype, stream->device->isa);
	unsigned char *places[SRT_LAUNCH_MAX_PLACES] = { 0 };

	for (int i = 0; i < launch->nplaces; i++)
		if (launch->places[i].mem)
			places[i] = at(launch->places[i].mem, launch->places[i].offset);
	run(places, op->u.launch.args, 0, launch->ngroups);
	return SRT_OK;
}

static srt_status_t work_launch(void *stream, const srt_launch_t *launch)
{
	const toy_stream_t *s = stream;
	toy_op_t *op;

	if (!srt_kernel_cpu(launch->kernel, launch->dtype, s->device->isa))
		return SRT_ERR_UNSUPPORTED;
	op = toy_op_new(stream, 0);
	if (!op)
		return SRT_ERR_OUT_OF_MEMORY;
	op->run = run_launch;
	op->u.launch.launch = *launch;
	memcpy(op->u.launch.args, launch->args, launch->args_nbytes);
	return toy_stream_put(stream, op);
}

const srt_backend_work_ops_t toy_work_ops = {
	.copy = work_copy,
	.from_host = work_from_host,
	.to_host = work_to_host,
	.zero = work_zero,
	.launch = work_launch,
};
