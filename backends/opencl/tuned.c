/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product and attention: the choice of a form, and plans.
 */
#include <stdio.h>
#include <string.h>

#include "backends/opencl/tuned.h"
#include "base/base.h"

/* The local memory and work-items that a work-group of kernels/gpu needs. */
#define LOCAL_NBYTES 34816
#define SMALL_LOCAL_NBYTES 20480

/* ---- which form ------------------------------------------------------------------------- */

/* width 0: the device's native width. */
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

/* Work-groups of up to `nitems` work-items, within the device's maximum; the portable kernels if
 * the maximum is below 64. */
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

/* ---- plans ------------------------------------------------------------------------------ */

/* Buffers are aligned to more than 16 bytes, except those over the caller's memory. */
static unsigned low_bits(const srt_binding_t *binding)
{
	const srt_ocl_mem_t *mem = binding->mem;
	size_t address = binding->offset;

	if (binding->mem != srt_gpu_scratch && mem->host != NULL)
		address += (size_t)(uintptr_t)mem->host;
	return address & 15;
}

/* The device's form, or SRT_OCL_PORTABLE if it does not support the command's type and size. */
static srt_ocl_form_t choose_form(const srt_ocl_device_t *device, const srt_command_t *command)
{
	const srt_k_attention_t *a = &command->attention;
	const srt_ocl_form_t form = device->tuning.form;
	const bool is_empty =
		command->kind != SRT_COMMAND_MATMUL && (a->queries <= 0 || a->keys <= 0);

	if (form == SRT_OCL_TILED)
		return srt_gpu_can(command) ? form : SRT_OCL_PORTABLE;
	if (command->kind != SRT_COMMAND_MATMUL && !srt_command_is_plain_attention(command))
		return SRT_OCL_PORTABLE;
	return command->dtype == SRT_F32 && !is_empty ? form : SRT_OCL_PORTABLE;
}

static void begin_plan(const srt_ocl_device_t *device, srt_ocl_form_t form,
		       const srt_command_t *command, srt_ocl_plan_t *plan)
{
	const srt_ocl_tuning_t *tuning = &device->tuning;
	const srt_gpu_t gpu = {
		.nunits = tuning->units,
		.max_items = tuning->width,
		.tile = tuning->tile,
		.cut = tuning->cut,
		.low_bits = low_bits,
	};

	plan->form = form;
	plan->tuning = tuning;
	srt_gpu_plan(&plan->gpu, form == SRT_OCL_TILED ? &gpu : NULL, command);
	if (form == SRT_OCL_VECTOR)
		plan->gpu.scratch_nbytes =
			command->kind == SRT_COMMAND_MATMUL ?
				srt_ocl_vector_matmul_plan(&plan->product, tuning,
							   &command->matmul) :
				srt_ocl_vector_attention_plan(tuning, command);
}

srt_status_t srt_ocl_plan(srt_ocl_stream_t *stream, const srt_command_t *command,
			  srt_ocl_plan_t *plan)
{
	srt_ocl_device_t *device = stream->device;
	srt_ocl_form_t form = choose_form(device, command);

	/* The vector form does not support a mask, the last binding of attention but one. */
	if (form == SRT_OCL_VECTOR && command->kind != SRT_COMMAND_MATMUL &&
	    command->bindings[command->nbindings - 2].mem != NULL)
		form = SRT_OCL_PORTABLE;
	if (form == SRT_OCL_TILED && !stream->is_selftest &&
	    !srt_selftest_has_tuned(&device->selftest, (srt_dtype_t)command->dtype))
		form = SRT_OCL_PORTABLE;
	begin_plan(device, form, command, plan);
	return srt_scratch_provide(&stream->scratch, plan->gpu.scratch_nbytes);
}

bool srt_ocl_next(srt_ocl_plan_t *plan)
{
	if (plan->form != SRT_OCL_VECTOR)
		return srt_gpu_next(&plan->gpu);
	plan->gpu.nlaunches = 0;
	if (plan->gpu.command->kind == SRT_COMMAND_MATMUL)
		return srt_ocl_vector_matmul_next(plan);
	if (plan->gpu.next++)
		return false;
	srt_ocl_vector_attention_add(plan, plan->tuning);
	return true;
}

size_t srt_ocl_command_scratch(void *dev, const srt_command_t *command)
{
	const srt_ocl_device_t *device = dev;
	srt_ocl_plan_t plan;

	begin_plan(device, choose_form(device, command), command, &plan);
	return plan.gpu.scratch_nbytes;
}
