/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Launches of portable and tuned kernels. Arguments in the order of kernels/dialect/dialect.h: a
 * buffer and a byte offset for each binding, then the struct by value. A group is a work-group: of
 * LANES work-items or of one, or of the number in the tuned kernel's table.
 */
#include <stdio.h>

#include "backends/opencl/tuned.h"
#include "base/base.h"

#define NPORTABLE (SRT_OCL_NDTYPES * SRT_K_COUNT)
_Static_assert(NPORTABLE + SRT_OCL_NDTYPES * SRT_OCL_TUNED_COUNT <= SRT_OCL_MAX_KERNELS,
	       "slots of a stream");

/* The kernels of this folder, from SRT_OCL_MATMUL_PACK on. */
static const srt_gpu_kernel_info_t vector_kernels[] = {
	{ "matmul_vector", "matmul_pack", 1 },
	{ "matmul_vector", "matmul_tiles", 1 },
	{ "attention_vector", "attention_vector", 1 },
	{ "attention_vector", "attention_backward_vector", 1 },
};
_Static_assert(SRT_ARRAY_LEN(vector_kernels) == SRT_OCL_TUNED_COUNT - SRT_OCL_MATMUL_PACK, "table");

/* "rows" of a kernel of kernels/rows.k; its name in the program: "k_softmax_f32". There is a
 * program of each dtype, built when first needed. */
static srt_status_t find_portable(srt_ocl_stream_t *stream, const srt_command_t *command,
				  cl_kernel *kernel)
{
	const char *dtype = srt_kernel_dtype_name(command->dtype);
	const int slot = command->dtype * SRT_K_COUNT + command->kernel;
	char name[64], options[32] = "";

	*kernel = stream->kernels[slot];
	if (*kernel != NULL)
		return SRT_OK;
	snprintf(name, sizeof(name), "k_%s_%s", srt_kernel_info(command->kernel)->name, dtype);
	if (command->dtype != SRT_F32)
		snprintf(options, sizeof(options), "-DK_DTYPE=%s", dtype);
	return srt_ocl_stream_kernel(stream, slot, srt_ocl_source_of[command->kernel], options,
				     name, kernel);
}

static srt_status_t find_tuned(srt_ocl_stream_t *stream, const srt_command_t *command,
			       const srt_gpu_kernel_info_t *info, cl_kernel *kernel)
{
	const srt_ocl_tuning_t *tuning = &stream->device->tuning;
	const char *dtype = srt_kernel_dtype_name(command->dtype);
	const int slot = NPORTABLE + command->dtype * SRT_OCL_TUNED_COUNT + command->kernel;
	char name[64], options[64];

	*kernel = stream->kernels[slot];
	if (*kernel != NULL)
		return SRT_OK;
	if (command->kernel >= SRT_OCL_MATMUL_PACK)
		return srt_ocl_stream_kernel(stream, slot, info->source, tuning->options,
					     info->name, kernel);
	snprintf(name, sizeof(name), "k_%s_%s", info->name, dtype);
	snprintf(options, sizeof(options), "-DK_DTYPE=%s %s", dtype, tuning->options);
	return srt_ocl_stream_kernel(stream, slot, info->source, options, name, kernel);
}

static cl_int set_arguments(const srt_ocl_stream_t *stream, cl_kernel kernel,
			    const srt_command_t *command)
{
	cl_uint n = 0;
	cl_int code = CL_SUCCESS;

	for (int i = 0; i < command->nbindings && code == CL_SUCCESS; i++) {
		const bool is_scratch = command->bindings[i].mem == srt_gpu_scratch;
		const srt_ocl_mem_t *mem =
			is_scratch ? srt_scratch_mem(&stream->scratch) : command->bindings[i].mem;
		cl_ulong offset = command->bindings[i].offset;

		code = clSetKernelArg(kernel, n++, sizeof(cl_mem),
				      mem != NULL ? &mem->buffer : NULL);
		if (code == CL_SUCCESS)
			code = clSetKernelArg(kernel, n++, sizeof(offset), &offset);
	}
	if (code == CL_SUCCESS)
		code = clSetKernelArg(kernel, n, command->args_nbytes, command->args);
	return code;
}

/* NULL: a portable kernel. */
static const srt_gpu_kernel_info_t *tuned_info(const srt_command_t *command)
{
	if (command->kind != SRT_COMMAND_TUNED)
		return NULL;
	return command->kernel >= SRT_OCL_MATMUL_PACK ?
		       &vector_kernels[command->kernel - SRT_OCL_MATMUL_PACK] :
		       &srt_gpu_kernels[command->kernel];
}

srt_status_t srt_ocl_launch(srt_ocl_stream_t *stream, const srt_command_t *command)
{
	srt_ocl_device_t *device = stream->device;
	const srt_gpu_kernel_info_t *tuned = tuned_info(command);
	size_t local = device->lanes_as_loop ? 1 : SRT_K_LANES, global;
	cl_kernel kernel;
	cl_int code;

	if (tuned != NULL && tuned->nitems)
		local = (size_t)tuned->nitems;
	global = (size_t)command->ngroups * local;
	if (tuned == NULL && !stream->is_selftest)
		SRT_TRY(srt_selftest_kernel(&device->selftest, command->kernel, command->dtype));
	SRT_TRY(tuned != NULL ? find_tuned(stream, command, tuned, &kernel) :
				find_portable(stream, command, &kernel));
	code = set_arguments(stream, kernel, command);
	if (code == CL_SUCCESS)
		code = clEnqueueNDRangeKernel(stream->queue, kernel, 1, NULL, &global, &local, 0,
					      NULL, NULL);
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(device->host, code,
			    "stream \"%s\": launching kernel \"%s\" with %zu work-groups failed",
			    stream->name,
			    tuned != NULL ? tuned->name : srt_kernel_info(command->kernel)->name,
			    (size_t)command->ngroups);
}
