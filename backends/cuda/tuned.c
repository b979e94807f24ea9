/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product and attention: the plans of backends/gpu. Their kernels have separate
 * images. The first use of a type loads them and tests them against the portable kernels
 * (backends/common/selftest.h). The images of 16-bit types have attention's kernels of numerics
 * mode fast too (fast_attention.c).
 */
#include <stdio.h>
#include <string.h>

#include "backends/cuda/fast.h"
#include "backends/cuda/images.h"
#include "base/base.h"

#define MAX_ITEMS 256 /* of a block: the largest of the kernels */
#define VARIABLE "SHARDRT_CUDA_TUNED"

static const unsigned char *const images[SRT_CUDA_NDTYPES] = {
	[SRT_F32] = srt_cuda_image_tuned_f32,
	[SRT_F16] = srt_cuda_image_tuned_f16,
	[SRT_BF16] = srt_cuda_image_tuned_bf16,
};

/* ---- loading and testing ----------------------------------------------------------------- */

static srt_status_t load_images(srt_cuda_device_t *device, srt_dtype_t dtype)
{
	srt_cuda_tuning_t *tuning = &device->tuning;
	const char *type = srt_kernel_dtype_name(dtype);
	const bool has_fast = dtype != SRT_F32 && device->major >= 8;
	char name[64];

	snprintf(name, sizeof(name), "tuned %s", type);
	SRT_TRY(srt_cuda_module_load(device, images[dtype], name, &tuning->modules[dtype]));
	for (int k = 0; k < (has_fast ? SRT_CUDA_TUNED_COUNT : SRT_GPU_KERNEL_COUNT); k++) {
		CUresult code;
		int nthreads;

		snprintf(name, sizeof(name), "k_%s_%s", srt_cuda_tuned_info(k)->name, type);
		code = device->drv->cuModuleGetFunction(&tuning->functions[dtype][k],
							tuning->modules[dtype], name);
		/* A driver that loads code when it is first used does so now. */
		if (code == CUDA_SUCCESS)
			code = device->drv
				       ->cuFuncGetAttribute(&nthreads,
							    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
							    tuning->functions[dtype][k]);
		if (code != CUDA_SUCCESS)
			return srt_cuda_fail(
				device->host, device->drv, code,
				"CUDA device \"%s\": kernel \"%s\" is not in its image",
				device->name, name);
	}
	return SRT_OK;
}

static srt_status_t load_kernels(void *device, srt_dtype_t dtype)
{
	srt_cuda_scope_t scope = srt_cuda_enter(device);
	srt_status_t status = load_images(device, dtype);

	srt_cuda_leave(scope);
	return status;
}

static void force_form(void *device_impl, int tile, int cut)
{
	srt_cuda_device_t *device = device_impl;

	device->tuning.tile = tile;
	device->tuning.cut = cut;
}

srt_status_t srt_cuda_tuned_setup(srt_cuda_device_t *device)
{
	srt_cuda_tuning_t *tuning = &device->tuning;
	CUresult code = device->drv->cuDeviceGetAttribute(&tuning->nunits,
							  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
							  device->id);

	if (code != CUDA_SUCCESS)
		return srt_cuda_fail(device->host, device->drv, code,
				     "opening CUDA device \"%s\" failed", device->name);
	tuning->nunits = tuning->nunits > 0 ? tuning->nunits : 1;
	tuning->wanted = strcmp(device->host->config(VARIABLE), "portable") != 0;
	if (!tuning->wanted)
		return SRT_OK;
	device->selftest.variable = VARIABLE;
	device->selftest.prepare = load_kernels;
	device->selftest.ntiles = SRT_GPU_TILE_COUNT;
	device->selftest.force = force_form;
	device->selftest.takes_mask = true;
	device->selftest.is_sure = true;
	return srt_selftest_tuned(&device->selftest, SRT_F32);
}

void srt_cuda_tuned_free(srt_cuda_device_t *device)
{
	for (int i = 0; i < SRT_CUDA_NDTYPES; i++)
		if (device->tuning.modules[i] != NULL)
			device->drv->cuModuleUnload(device->tuning.modules[i]);
}

/* ---- plans -------------------------------------------------------------------------------- */

static unsigned low_bits(const srt_binding_t *binding)
{
	const srt_cuda_mem_t *mem = binding->mem;
	const CUdeviceptr start = binding->mem == srt_gpu_scratch ? 0 : mem->address;

	return (start + binding->offset) & 15;
}

static srt_gpu_t plan_inputs(const srt_cuda_device_t *device)
{
	const srt_cuda_tuning_t *tuning = &device->tuning;

	return (srt_gpu_t){
		.nunits = tuning->nunits,
		.max_items = MAX_ITEMS,
		.tile = tuning->tile,
		.cut = tuning->cut,
		.low_bits = low_bits,
	};
}

srt_status_t srt_cuda_plan(srt_cuda_stream_t *stream, const srt_command_t *command,
			   srt_gpu_plan_t *plan)
{
	srt_cuda_device_t *device = stream->device;
	const srt_gpu_t gpu = plan_inputs(device);
	const bool is_tuned =
		device->tuning.wanted && srt_gpu_can(command) &&
		(stream->is_selftest ||
		 srt_selftest_has_tuned(&device->selftest, (srt_dtype_t)command->dtype));

	srt_gpu_plan(plan, is_tuned ? &gpu : NULL, command);
	return srt_scratch_provide(&stream->scratch, plan->scratch_nbytes);
}

size_t srt_cuda_command_scratch(void *dev, const srt_command_t *command)
{
	srt_cuda_device_t *device = dev;
	const srt_gpu_t gpu = plan_inputs(device);
	srt_gpu_plan_t plan;
	size_t nbytes = 0;

	if (command->kind == SRT_COMMAND_MATMUL && !command->exact)
		nbytes = srt_cuda_fast_scratch(device, command);
	if (nbytes || !device->tuning.wanted || !srt_gpu_can(command))
		return nbytes;
	srt_gpu_plan(&plan, &gpu, command);
	return plan.scratch_nbytes;
}
