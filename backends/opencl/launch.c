/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches of portable kernels. Arguments in the order of kernels/dialect.h: a buffer and a byte
 * offset for each place, then the struct by value. A group is a work-group, of LANES work-items or
 * of one.
 */
#include <stdio.h>
#include <string.h>

#include "backends/opencl/opencl.h"

/* "rows" of a kernel of kernels/rows.k; its name in the program: "k_softmax_f32". There is a program
 * of each dtype, built when first needed. */
static srt_status_t find_kernel(srt_ocl_stream_t *stream, const srt_launch_t *launch,
				cl_kernel *kernel)
{
	const char *dtype = srt_kernel_dtype_name(launch->dtype);
	int slot = launch->dtype * SRT_K_COUNT + launch->kernel;
	char name[64], options[32] = "";

	*kernel = stream->kernels[slot];
	if (*kernel)
		return SRT_OK;
	snprintf(name, sizeof(name), "k_%s_%s", srt_kernel_info(launch->kernel)->name, dtype);
	if (launch->dtype != SRT_F32)
		snprintf(options, sizeof(options), "-DK_DTYPE=%s", dtype);
	return srt_ocl_stream_kernel(stream, slot, srt_ocl_source_of[launch->kernel], options, name,
				     kernel);
}

_Static_assert(SRT_F32 == 0 && SRT_F16 == 1 && SRT_BF16 == 2, "numbers of the slots");

static cl_int set_arguments(cl_kernel kernel, const srt_launch_t *launch, const void *args)
{
	cl_uint n = 0;
	cl_int code = CL_SUCCESS;

	for (int i = 0; i < launch->nplaces && code == CL_SUCCESS; i++) {
		const srt_ocl_mem_t *mem = launch->places[i].mem;
		cl_ulong offset = launch->places[i].offset;

		code = clSetKernelArg(kernel, n++, sizeof(cl_mem), mem ? &mem->buffer : NULL);
		if (code == CL_SUCCESS)
			code = clSetKernelArg(kernel, n++, sizeof(offset), &offset);
	}
	if (code == CL_SUCCESS)
		code = clSetKernelArg(kernel, n, launch->args_nbytes, args);
	return code;
}

static srt_status_t run_launch(srt_ocl_stream_t *stream, const srt_ocl_op_t *op)
{
	const srt_launch_t *launch = &op->u.launch.launch;
	size_t local = stream->device->lanes_as_loop ? 1 : SRT_K_LANES;
	size_t global = (size_t)launch->ngroups * local;
	srt_status_t status;
	cl_kernel kernel;
	cl_int code;

	status = find_kernel(stream, launch, &kernel);
	if (status != SRT_OK)
		return status;
	code = set_arguments(kernel, launch, op->u.launch.args);
	if (code == CL_SUCCESS)
		code = clEnqueueNDRangeKernel(stream->queue, kernel, 1, NULL, &global, &local, 0,
					      NULL, NULL);
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(stream->device->host, code,
			    "stream \"%s\": launching kernel \"%s\" with %zu work-groups failed",
			    stream->ring.name, srt_kernel_info(launch->kernel)->name,
			    (size_t)launch->ngroups);
}

static srt_status_t check_launch(const srt_ocl_stream_t *stream, const srt_launch_t *launch)
{
	const srt_host_services_t *host = stream->device->host;
	const srt_kernel_info_t *info = srt_kernel_info(launch->kernel);

	if (!info || !srt_kernel_has(launch->kernel, launch->dtype))
		return SRT_ERR_UNSUPPORTED;
	for (int i = 0; i < launch->nplaces; i++) {
		const srt_ocl_mem_t *mem = launch->places[i].mem;

		if (mem && !mem->buffer)
			return host
				->fail(SRT_ERR_INVALID_ARGUMENT,
				       "kernel \"%s\": tensor %d is in pinned host memory, which "
				       "kernels of an OpenCL device do not see; copy it to "
				       "device memory first",
				       info->name, i);
	}
	return SRT_OK;
}

srt_status_t srt_ocl_put_launch(void *s, const srt_launch_t *launch)
{
	srt_ocl_stream_t *stream = s;
	srt_ocl_op_t op = { .run = run_launch };
	srt_status_t status = check_launch(stream, launch);

	if (status == SRT_OK && !stream->is_selftest)
		status = srt_selftest_kernel(&stream->device->selftest, launch->kernel,
					     launch->dtype);
	if (status != SRT_OK)
		return status;
	op.u.launch.launch = *launch;
	memcpy(op.u.launch.args, launch->args, launch->args_nbytes);
	return srt_ocl_stream_put(stream, &op);
}
