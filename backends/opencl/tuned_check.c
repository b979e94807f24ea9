/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tries the tuned kernels against the portable ones (backends/tuned_check.h): floats at start-up,
 * 16 bits before their first launch. Where the driver's compiler fails on a tuned kernel, or makes
 * other bits of it, the device works with the portable ones and the log says so; a form that was
 * asked for by name is then an error. Called by device.c, matmul.c and attention.c.
 */
#include "backends/opencl/tuned.h"
#include "backends/tuned_check.h"
#include "base/base.h"

static void force(void *device_impl, int tile, int cut)
{
	srt_ocl_device_t *device = device_impl;
	bool fits = !tile || srt_gpu_kernels[tile - 1].nitems <= device->tuning.width;

	device->tuning.tile = fits ? tile : 0;
	device->tuning.cut = cut;
}

/* Under the lock, if others may be there. */
static srt_status_t try_type(srt_ocl_device_t *device, srt_dtype_t dtype)
{
	const bool tiled = device->tuning.form == SRT_OCL_TILED;
	srt_tuned_check_t check = {
		.host = device->host,
		.mem = &srt_ocl_mem_ops,
		.work = &srt_ocl_work_ops,
		.device = device,
		.dtype = dtype,
		/* A device of CPU type has this form in tests alone, which have their own cases. */
		.ntiles = tiled && !(device->type & CL_DEVICE_TYPE_CPU) ? SRT_GPU_TILE_COUNT : 0,
		.force = force,
		.takes_mask = tiled,
	};
	bool works = false;
	srt_status_t status;

	device->tuned[dtype] = -1;
	SRT_TRY(srt_ocl_stream_ops.create(device, 0, "self-test", &check.stream));
	((srt_ocl_stream_t *)check.stream)->is_trial = true;
	status = srt_tuned_check(&check, "SHARDRT_OPENCL_TUNED", device->trial.what, &works);
	srt_ocl_stream_ops.destroy(check.stream);
	device->tuned[dtype] = works ? 1 : -1;
	return status;
}

srt_status_t srt_ocl_tuned_check(srt_ocl_device_t *device)
{
	srt_status_t status = SRT_OK;

	if (device->tuning.form != SRT_OCL_PORTABLE)
		status = try_type(device, SRT_F32);
	if (device->tuned[SRT_F32] < 0)
		device->tuning.form = SRT_OCL_PORTABLE;
	return status;
}

/* Whoever comes second waits for the verdict. The portable kernels compute the same, so that a
 * failure is no reason to refuse what was asked for. */
bool srt_ocl_tuned_has(srt_ocl_stream_t *stream, srt_dtype_t dtype)
{
	srt_ocl_device_t *device = stream->device;
	bool has;

	if (device->tuning.form != SRT_OCL_TILED)
		return device->tuning.form == SRT_OCL_VECTOR && dtype == SRT_F32;
	if (dtype == SRT_F32 || stream->is_trial)
		return true;
	pthread_mutex_lock(&device->tuned_lock);
	if (device->tuned[dtype] == 0)
		try_type(device, dtype);
	has = device->tuned[dtype] > 0;
	pthread_mutex_unlock(&device->tuned_lock);
	return has;
}
