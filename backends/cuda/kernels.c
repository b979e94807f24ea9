/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The portable kernels' entries: one image a dtype (images.h). The first use of the dtype loads the
 * image and looks up all its entries. Called by launch.c and device.c.
 */
#include <stdio.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/images.h"

static const unsigned char *const images[SRT_CUDA_NDTYPES] = {
	[SRT_F32] = srt_cuda_image_portable_f32,
	[SRT_F16] = srt_cuda_image_portable_f16,
	[SRT_BF16] = srt_cuda_image_portable_bf16,
};

srt_status_t srt_cuda_module_load(srt_cuda_device_t *device, const unsigned char *image,
				  const char *what, CUmodule *module)
{
	CUresult code = device->drv->cuModuleLoadData(module, image);

	if (code == CUDA_SUCCESS)
		return SRT_OK;
	*module = NULL;
	if (code == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
		return device->host->fail(
			SRT_ERR_UNSUPPORTED,
			"the %s kernels have no machine code for CUDA device \"%s\" (sm_%d%d), only "
			"PTX of toolkit %d.%d, which is newer than the driver: install a newer driver, "
			"or build with --with-cuda-arch=sm_%d%d",
			what, device->name, device->major, device->minor, CUDA_VERSION / 1000,
			CUDA_VERSION % 1000 / 10, device->major, device->minor);
	return srt_cuda_fail(device->host, device->drv, code,
			     "loading the %s kernels (made for " SRT_CUDA_ARCH
			     ") on CUDA device \"%s\" (sm_%d%d) failed",
			     what, device->name, device->major, device->minor);
}

/*
 * A block's threads: those of the kernel's launch bounds, or fewer if the registers do not suffice.
 * LANES times a power of two, because TREE_WIDE halves them.
 */
static unsigned threads_of(int most)
{
	int n = SRT_K_LANES;

	while (n <= most / 2)
		n *= 2;
	return (unsigned)n;
}

/* A KERNEL_COLUMNS (kernels/dialect/columns.h). */
static bool sums_columns(srt_kernel_id_t kernel)
{
	switch (kernel) {
	case SRT_K_BIAS_BACKWARD:
	case SRT_K_LAYERNORM_BACKWARD_PARAMS:
	case SRT_K_RMSNORM_BACKWARD_PARAMS:
	case SRT_K_BATCHNORM_STATS:
	case SRT_K_BATCHNORM_BACKWARD_PARAMS:
		return true;
	default:
		return false;
	}
}

static srt_status_t find_entries(srt_cuda_device_t *device, srt_dtype_t dtype)
{
	const char *dtype_name = srt_kernel_dtype_name(dtype);

	for (int k = 0; k < SRT_K_COUNT; k++) {
		srt_cuda_entry_t *entry = &device->entries[dtype][k];
		char name[64];
		int nthreads = 0;
		CUresult code;

		if (!srt_kernel_has((srt_kernel_id_t)k, dtype))
			continue;
		snprintf(name, sizeof(name), "k_%s_%s", srt_kernel_info((srt_kernel_id_t)k)->name,
			 dtype_name);
		code = device->drv->cuModuleGetFunction(&entry->function, device->modules[dtype],
							name);
		if (code != CUDA_SUCCESS)
			return srt_cuda_fail(
				device->host, device->drv, code,
				"CUDA device \"%s\": kernel \"%s\" is not in its image",
				device->name, name);
		code = device->drv->cuFuncGetAttribute(&nthreads,
						       CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
						       entry->function);
		if (code != CUDA_SUCCESS)
			return srt_cuda_fail(device->host, device->drv, code,
					     "CUDA device \"%s\": kernel \"%s\" does not report "
					     "the threads of a block",
					     device->name, name);
		entry->nthreads = threads_of(nthreads);
		entry->nblocks = sums_columns((srt_kernel_id_t)k) ? SRT_K_COLUMN_PARTS : 1;
	}
	return SRT_OK;
}

/* Under the device's lock. */
static srt_status_t load_dtype(srt_cuda_device_t *device, srt_dtype_t dtype)
{
	srt_status_t status =
		srt_cuda_module_load(device, images[dtype], srt_kernel_dtype_name(dtype),
				     &device->modules[dtype]);

	if (status != SRT_OK)
		return status;
	status = find_entries(device, dtype);
	if (status == SRT_OK)
		return SRT_OK;
	device->drv->cuModuleUnload(device->modules[dtype]);
	device->modules[dtype] = NULL;
	return status;
}

srt_status_t srt_cuda_entry(srt_cuda_device_t *device, srt_kernel_id_t kernel, srt_dtype_t dtype,
			    srt_cuda_entry_t *entry)
{
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&device->lock);
	if (device->modules[dtype] == NULL)
		status = load_dtype(device, dtype);
	if (status == SRT_OK)
		*entry = device->entries[dtype][kernel];
	pthread_mutex_unlock(&device->lock);
	return status;
}

void srt_cuda_kernels_free(srt_cuda_device_t *device)
{
	for (int i = 0; i < SRT_CUDA_NDTYPES; i++)
		if (device->modules[i] != NULL)
			device->drv->cuModuleUnload(device->modules[i]);
}
