/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tuned matrix product and attention: backends/gpu on this backend's streams. Their kernels are
 * images of their own, loaded when a type is first wanted and tested against the portable ones
 * (backends/common/selftest.h) before anything else is done with them.
 */
#include <limits.h>
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

/* ---- backends/gpu ------------------------------------------------------------------------- */

/* An operation on its stream. */
typedef struct work {
	srt_cuda_stream_t *stream;
	CUdeviceptr scratch;
	bool fast; /* attention's products are cuBLASLt's */
} work_t;

static CUdeviceptr address_of(const work_t *work, const srt_binding_t *place)
{
	const srt_cuda_mem_t *mem = place->mem;

	if (place->mem == srt_gpu_scratch)
		return work->scratch;
	return mem ? mem->address : 0;
}

static unsigned low_bits(const srt_binding_t *place)
{
	const srt_cuda_mem_t *mem = place->mem;
	const size_t start = place->mem == srt_gpu_scratch ? 0 : (size_t)mem->address;

	return (start + place->offset) & 15;
}

static srt_status_t scratch(void *w, size_t nbytes)
{
	work_t *work = w;

	return srt_cuda_scratch(work->stream, nbytes, &work->scratch);
}

static srt_status_t launch(void *w, srt_gpu_kernel_t which, srt_dtype_t dtype,
			   const srt_binding_t *places, const void *args, size_t args_nbytes,
			   int64_t ngroups)
{
	const work_t *work = w;
	const srt_gpu_kernel_info_t *info = &srt_gpu_kernels[which];
	const unsigned grid[3] = { (unsigned)ngroups, 1, 1 };
	CUdeviceptr addresses[SRT_COMMAND_MAX_BINDINGS];
	unsigned long long offsets[SRT_COMMAND_MAX_BINDINGS];
	void *params[2 * SRT_COMMAND_MAX_BINDINGS + 1];
	int n = 0;

	(void)args_nbytes;
	for (int i = 0; i < info->nplaces; i++) {
		addresses[i] = address_of(work, &places[i]);
		offsets[i] = places[i].offset;
		params[n++] = &addresses[i];
		params[n++] = &offsets[i];
	}
	params[n] = (void *)args;
	return srt_cuda_launch_function(work->stream,
					work->stream->device->tuning.functions[dtype][which], grid,
					info->nitems ? (unsigned)info->nitems : SRT_K_LANES, params,
					info->name);
}

static srt_status_t product(void *w, const srt_gpu_matmul_t *args, srt_dtype_t dtype,
			    const srt_binding_t *places)
{
	const work_t *work = w;
	CUdeviceptr addresses[3];

	for (int i = 0; i < 3; i++)
		addresses[i] = address_of(work, &places[i]) + places[i].offset;
	return srt_cuda_fast_product(work->stream, args, dtype, addresses);
}

/* work: NULL for questions. */
static srt_gpu_t gpu_of(const srt_cuda_device_t *device, work_t *work)
{
	const srt_cuda_tuning_t *tuning = &device->tuning;

	return (srt_gpu_t){
		.stream = work,
		.nunits = tuning->nunits,
		.max_items = MAX_ITEMS,
		.tile = tuning->tile,
		.cut = tuning->cut,
		.low_bits = low_bits,
		.scratch = scratch,
		.launch = launch,
		.product = work && work->fast ? product : NULL,
	};
}

/* ---- loading and testing ----------------------------------------------------------------- */

static srt_status_t load_images(srt_cuda_device_t *device, srt_dtype_t dtype)
{
	srt_cuda_tuning_t *tuning = &device->tuning;
	const char *type = srt_kernel_dtype_name(dtype);
	char name[64];

	snprintf(name, sizeof(name), "tuned %s", type);
	SRT_TRY(srt_cuda_module_load(device, images[dtype], name, &tuning->modules[dtype]));
	for (int k = 0; k < SRT_GPU_KERNEL_COUNT; k++) {
		CUresult code;

		snprintf(name, sizeof(name), "k_%s_%s", srt_gpu_kernels[k].name, type);
		code = device->drv->cuModuleGetFunction(&tuning->functions[dtype][k],
							tuning->modules[dtype], name);
		if (code != CUDA_SUCCESS)
			return srt_cuda_fail(
				device->host, device->drv, code,
				"CUDA device \"%s\": kernel \"%s\" is not in its image",
				device->name, name);
	}
	return SRT_OK;
}

static srt_status_t load(void *device, srt_dtype_t dtype)
{
	srt_cuda_scope_t scope = srt_cuda_enter(device);
	srt_status_t status = load_images(device, dtype);

	srt_cuda_leave(scope);
	return status;
}

static void force(void *device_impl, int tile, int cut)
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
	device->selftest.prepare = load;
	device->selftest.ntiles = SRT_GPU_TILE_COUNT;
	device->selftest.force = force;
	device->selftest.takes_mask = true;
	device->selftest.is_sure = true;
	return srt_selftest_tuned(&device->selftest, SRT_F32);
}

void srt_cuda_tuned_free(srt_cuda_device_t *device)
{
	for (int i = 0; i < SRT_CUDA_NDTYPES; i++)
		if (device->tuning.modules[i])
			device->drv->cuModuleUnload(device->tuning.modules[i]);
}

/* ---- commands ----------------------------------------------------------------------------- */

/* The last two bindings of attention are lengths and mask. */
static bool is_masked(const srt_command_t *command)
{
	return command->bindings[command->nbindings - 2].mem ||
	       command->bindings[command->nbindings - 1].mem;
}

/* Whether cuBLASLt makes attention's products. It knows no lengths and no masks. */
static bool is_fast(const srt_cuda_device_t *device, const srt_command_t *command)
{
	return device->fast && !command->exact && !is_masked(command);
}

bool srt_cuda_can_tuned(srt_cuda_stream_t *stream, const srt_command_t *command)
{
	const srt_dtype_t dtype = (srt_dtype_t)command->dtype;

	if (!stream->device->tuning.wanted || !srt_gpu_can(command))
		return false;
	return stream->is_selftest || srt_selftest_has_tuned(&stream->device->selftest, dtype);
}

srt_status_t srt_cuda_run_tuned(srt_cuda_stream_t *stream, const srt_command_t *command)
{
	const bool is_product = command->kind == SRT_COMMAND_MATMUL;
	work_t work = { .stream = stream };
	srt_gpu_t gpu;

	work.fast = !is_product && is_fast(stream->device, command);
	gpu = gpu_of(stream->device, &work);
	return is_product ? srt_gpu_matmul(&gpu, command) : srt_gpu_attention(&gpu, command);
}

size_t srt_cuda_command_scratch(void *dev, const srt_command_t *command)
{
	srt_cuda_device_t *device = dev;
	const srt_gpu_t gpu = gpu_of(device, NULL);
	const bool is_product = command->kind == SRT_COMMAND_MATMUL;
	size_t fast = 0;

	if (is_product && !command->exact)
		fast = srt_cuda_fast_matmul_memory(device, command);
	if (fast || !device->tuning.wanted)
		return fast;
	return srt_gpu_command_scratch(&gpu, command, !is_product && is_fast(device, command));
}
