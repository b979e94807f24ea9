/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the launchers of the tuned matrix product and attention (matmul.c, attention.c) share:
 * the choice of a form, scratch, launches.
 */
#include <stdio.h>
#include <string.h>

#include "backends/opencl/tuned.h"
#include "base/base.h"

static const struct {
	const char *source, *name;
} kernels[SRT_OCL_TUNED_COUNT] = {
	[SRT_OCL_MATMUL_PACK] = { "matmul_vector", "matmul_pack" },
	[SRT_OCL_MATMUL_TILES] = { "matmul_vector", "matmul_tiles" },
	[SRT_OCL_ATTENTION] = { "attention_vector", "attention_vector" },
	[SRT_OCL_ATTENTION_BACKWARD] = { "attention_vector", "attention_backward_vector" },
};

#define FIRST_SLOT (SRT_OCL_NDTYPES * SRT_K_COUNT)
/* What a work-group of kernels/gpu needs. */
#define LOCAL_NBYTES 34816
#define SMALL_LOCAL_NBYTES 20480
_Static_assert(SRT_OCL_GPU_SLOT + SRT_OCL_NDTYPES * SRT_GPU_KERNEL_COUNT <= SRT_OCL_MAX_KERNELS,
	       "slots of a stream");

/* ---- which form ------------------------------------------------------------------------- */

/* width 0: the device's own. */
static void choose_vector(srt_ocl_device_t *device, int width)
{
	srt_ocl_tuning_t *tuning = &device->tuning;
	cl_uint native = 0, units = 0;

	clGetDeviceInfo(device->id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof(native), &native,
			NULL);
	clGetDeviceInfo(device->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL);
	tuning->form = SRT_OCL_VECTOR;
	tuning->width = width ? width : native >= 16 ? 16 : native >= 8 ? 8 : 4;
	tuning->units = units ? (int)units : 1;
	snprintf(tuning->options, sizeof(tuning->options), "-DVL=%d", tuning->width);
}

/* Work-groups of up to `nitems` work-items, at most those that the device can have; the portable
 * kernels where 64 are too many. */
static void choose_tiled(srt_ocl_device_t *device, int nitems)
{
	srt_ocl_tuning_t *tuning = &device->tuning;
	size_t largest = 0, sizes[8] = { 0 };
	cl_uint dimensions = 0, units = 0;
	cl_ulong local = 0;

	clGetDeviceInfo(device->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(largest), &largest, NULL);
	clGetDeviceInfo(device->id, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, sizeof(dimensions),
			&dimensions, NULL);
	if (dimensions <= SRT_ARRAY_LEN(sizes))
		clGetDeviceInfo(device->id, CL_DEVICE_MAX_WORK_ITEM_SIZES,
				dimensions * sizeof(sizes[0]), sizes, NULL);
	clGetDeviceInfo(device->id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(local), &local, NULL);
	clGetDeviceInfo(device->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof(units), &units, NULL);
	if (largest < 256 || sizes[0] < 256 || local < LOCAL_NBYTES)
		nitems = 64;
	if (largest < 64 || sizes[0] < 64 || local < SMALL_LOCAL_NBYTES)
		return;
	tuning->form = SRT_OCL_TILED;
	tuning->width = nitems;
	tuning->units = units ? (int)units : 1;
	snprintf(tuning->options, sizeof(tuning->options), "%s",
		 device->type & CL_DEVICE_TYPE_CPU ? "-DSRT_GPU_ROLLED" : "");
}

srt_status_t srt_ocl_tuning_choose(srt_ocl_device_t *device)
{
	static const struct {
		const char *name;
		srt_ocl_form_t form;
		int width;
	} forms[] = {
		{ "vector", SRT_OCL_VECTOR, 0 },  { "vector4", SRT_OCL_VECTOR, 4 },
		{ "vector8", SRT_OCL_VECTOR, 8 }, { "vector16", SRT_OCL_VECTOR, 16 },
		{ "tiled", SRT_OCL_TILED, 256 },  { "tiled8", SRT_OCL_TILED, 64 },
	};
	const char *wanted = device->host->config("SHARDRT_OPENCL_TUNED");
	const bool by_type = strcmp(wanted, "auto") == 0;

	device->tuning = (srt_ocl_tuning_t){ .form = SRT_OCL_PORTABLE };
	if (by_type)
		wanted = device->type & CL_DEVICE_TYPE_CPU ? "vector" : "tiled";
	for (size_t i = 0; i < SRT_ARRAY_LEN(forms); i++) {
		if (strcmp(wanted, forms[i].name) != 0)
			continue;
		if (forms[i].form == SRT_OCL_VECTOR)
			choose_vector(device, forms[i].width);
		else
			choose_tiled(device, forms[i].width);
	}
	if (!by_type && device->tuning.form == SRT_OCL_PORTABLE && strcmp(wanted, "portable") != 0)
		return device->host
			->fail(SRT_ERR_UNSUPPORTED,
			       "SHARDRT_OPENCL_TUNED=%s, but OpenCL device \"%s\" has no "
			       "work-groups of 64 work-items with 20 KiB; leave it unset",
			       wanted, device->name);
	return SRT_OK;
}

bool srt_ocl_can_tuned(srt_ocl_stream_t *stream, const srt_command_t *command)
{
	srt_ocl_device_t *device = stream->device;
	const srt_dtype_t dtype = (srt_dtype_t)command->dtype;
	const srt_k_attention_t *a = &command->attention;

	switch (device->tuning.form) {
	case SRT_OCL_PORTABLE:
		return false;
	case SRT_OCL_TILED:
		return srt_gpu_can(command) &&
		       (stream->is_selftest || srt_selftest_has_tuned(&device->selftest, dtype));
	case SRT_OCL_VECTOR:
		break;
	}
	if (dtype != SRT_F32)
		return false;
	/* The vector form has no mask of bytes, which is the last binding of attention. */
	return command->kind == SRT_COMMAND_MATMUL ||
	       (a->queries > 0 && a->keys > 0 && !command->bindings[command->nbindings - 1].mem);
}

srt_status_t srt_ocl_run_tuned(srt_ocl_stream_t *stream, const srt_command_t *command)
{
	const bool is_product = command->kind == SRT_COMMAND_MATMUL;
	srt_gpu_t gpu;

	if (stream->device->tuning.form == SRT_OCL_VECTOR)
		return is_product ? srt_ocl_vector_matmul(stream, command) :
				    srt_ocl_vector_attention(stream, command);
	gpu = srt_ocl_gpu(stream->device, stream);
	return is_product ? srt_gpu_matmul(&gpu, command) : srt_gpu_attention(&gpu, command);
}

size_t srt_ocl_command_scratch(void *dev, const srt_command_t *command)
{
	const srt_ocl_device_t *device = dev;
	srt_gpu_t gpu;

	if (device->tuning.form == SRT_OCL_TILED) {
		gpu = srt_ocl_gpu(device, NULL);
		return srt_gpu_command_scratch(&gpu, command, false);
	}
	if (device->tuning.form != SRT_OCL_VECTOR || command->dtype != SRT_F32)
		return 0;
	return command->kind == SRT_COMMAND_MATMUL ?
		       srt_ocl_vector_matmul_scratch(device, &command->matmul) :
		       srt_ocl_vector_attention_scratch(device, command);
}

/* ---- places and scratch ----------------------------------------------------------------- */

srt_ocl_at_t srt_ocl_at(const srt_binding_t *place, int64_t floats)
{
	const srt_ocl_mem_t *mem = place->mem;

	if (!mem)
		return (srt_ocl_at_t){ .buffer = NULL };
	return (srt_ocl_at_t){ .buffer = mem->buffer,
			       .offset = place->offset + (cl_ulong)floats * sizeof(float) };
}

srt_ocl_at_t srt_ocl_scratch_at(const srt_ocl_stream_t *stream, int64_t floats)
{
	return (srt_ocl_at_t){ .buffer = stream->scratch,
			       .offset = (cl_ulong)floats * sizeof(float) };
}

/* The old buffer lives on until the work in the queue that uses it is done. */
srt_status_t srt_ocl_scratch(srt_ocl_stream_t *stream, int64_t floats)
{
	const srt_host_services_t *host = stream->device->host;
	size_t nbytes = (size_t)floats * sizeof(float);
	cl_int code;

	if (nbytes <= stream->scratch_nbytes)
		return SRT_OK;
	srt_ocl_scratch_free(stream);
	stream->scratch =
		clCreateBuffer(stream->device->context, CL_MEM_READ_WRITE, nbytes, NULL, &code);
	if (code != CL_SUCCESS) {
		stream->scratch = NULL;
		return srt_ocl_fail(host, code,
				    "stream \"%s\": %zu bytes of scratch of the matrix product or "
				    "attention",
				    stream->name, nbytes);
	}
	stream->scratch_nbytes = nbytes;
	atomic_fetch_add(&stream->device->scratch_nbytes, nbytes);
	atomic_fetch_add(&stream->device->nscratch, 1);
	return SRT_OK;
}

void srt_ocl_scratch_free(srt_ocl_stream_t *stream)
{
	if (stream->scratch)
		clReleaseMemObject(stream->scratch);
	atomic_fetch_sub(&stream->device->scratch_nbytes, stream->scratch_nbytes);
	stream->scratch = NULL;
	stream->scratch_nbytes = 0;
}

/* ---- launches --------------------------------------------------------------------------- */

srt_status_t srt_ocl_tuned_enqueue(srt_ocl_stream_t *stream, cl_kernel kernel, const char *name,
				   const srt_ocl_at_t *places, int nplaces, const void *args,
				   size_t args_nbytes, const size_t global[3],
				   const size_t local[3])
{
	cl_int code = CL_SUCCESS;

	if (!global[0] || !global[1] || !global[2])
		return SRT_OK;
	for (int i = 0; i < nplaces && code == CL_SUCCESS; i++) {
		code = clSetKernelArg(kernel, 2 * (cl_uint)i, sizeof(cl_mem),
				      places[i].buffer ? &places[i].buffer : NULL);
		if (code == CL_SUCCESS)
			code = clSetKernelArg(kernel, 2 * (cl_uint)i + 1, sizeof(cl_ulong),
					      &places[i].offset);
	}
	if (code == CL_SUCCESS)
		code = clSetKernelArg(kernel, 2 * (cl_uint)nplaces, args_nbytes, args);
	if (code == CL_SUCCESS)
		code = clEnqueueNDRangeKernel(stream->queue, kernel, 3, NULL, global, local, 0,
					      NULL, NULL);
	if (code == CL_SUCCESS)
		return SRT_OK;
	return srt_ocl_fail(stream->device->host, code, "stream \"%s\": kernel \"%s\"",
			    stream->name, name);
}

srt_status_t srt_ocl_tuned_launch(srt_ocl_stream_t *stream, srt_ocl_tuned_kernel_t which,
				  const srt_ocl_at_t *places, int nplaces, const void *args,
				  size_t args_nbytes, const int64_t groups[3])
{
	static const size_t local[3] = { 1, 1, 1 };
	const size_t global[3] = { (size_t)groups[0], (size_t)groups[1], (size_t)groups[2] };
	cl_kernel kernel;

	SRT_TRY(srt_ocl_stream_kernel(stream, FIRST_SLOT + (int)which, kernels[which].source,
				      stream->device->tuning.options, kernels[which].name,
				      &kernel));
	return srt_ocl_tuned_enqueue(stream, kernel, kernels[which].name, places, nplaces, args,
				     args_nbytes, global, local);
}
