/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Portable kernels. Arguments in the order of kernels/dialect/dialect.h: a buffer and a byte offset
 * for each binding, then the struct by value. A group is a work-group, of LANES work-items or of
 * one.
 */
#include <stdio.h>

#include "backends/opencl/opencl.h"
#include "base/base.h"

/* "rows" of a kernel of kernels/rows.k; its name in the program: "k_softmax_f32". There is a
 * program of each dtype, built when first needed. */
static srt_status_t find_kernel(srt_ocl_stream_t *stream, const srt_command_t *command,
				cl_kernel *kernel)
{
	const char *dtype = srt_kernel_dtype_name(command->dtype);
	int slot = command->dtype * SRT_K_COUNT + command->kernel;
	char name[64], options[32] = "";

	*kernel = stream->kernels[slot];
	if (*kernel)
		return SRT_OK;
	snprintf(name, sizeof(name), "k_%s_%s", srt_kernel_info(command->kernel)->name, dtype);
	if (command->dtype != SRT_F32)
		snprintf(options, sizeof(options), "-DK_DTYPE=%s", dtype);
	return srt_ocl_stream_kernel(stream, slot, srt_ocl_source_of[command->kernel], options,
				     name, kernel);
}

_Static_assert(SRT_F32 == 0 && SRT_F16 == 1 && SRT_BF16 == 2, "numbers of the slots");

static cl_int set_arguments(cl_kernel kernel, const srt_command_t *command)
{
	cl_uint n = 0;
	cl_int code = CL_SUCCESS;

	for (int i = 0; i < command->nbindings && code == CL_SUCCESS; i++) {
		const srt_ocl_mem_t *mem = command->bindings[i].mem;
		cl_ulong offset = command->bindings[i].offset;

		code = clSetKernelArg(kernel, n++, sizeof(cl_mem), mem ? &mem->buffer : NULL);
		if (code == CL_SUCCESS)
			code = clSetKernelArg(kernel, n++, sizeof(offset), &offset);
	}
	if (code == CL_SUCCESS)
		code = clSetKernelArg(kernel, n, command->args_nbytes, command->args);
	return code;
}

srt_status_t srt_ocl_run_kernel(void *s, const srt_command_t *command)
{
	srt_ocl_stream_t *stream = s;
	size_t local = stream->device->lanes_as_loop ? 1 : SRT_K_LANES;
	size_t global = (size_t)command->ngroups * local;
	const srt_kernel_id_t id = (srt_kernel_id_t)command->kernel;
	cl_kernel kernel;
	cl_int code;

	if (!stream->is_selftest)
		SRT_TRY(srt_selftest_kernel(&stream->device->selftest, id,
					    (srt_dtype_t)command->dtype));
	SRT_TRY(find_kernel(stream, command, &kernel));
	code = set_arguments(kernel, command);
	if (code == CL_SUCCESS)
		code = clEnqueueNDRangeKernel(stream->queue, kernel, 1, NULL, &global, &local, 0,
					      NULL, NULL);
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(stream->device->host, code,
			    "stream \"%s\": launching kernel \"%s\" with %zu work-groups failed",
			    stream->name, srt_kernel_info(id)->name, (size_t)command->ngroups);
}
