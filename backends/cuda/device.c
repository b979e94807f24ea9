/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A CUDA device: its primary context, which all CUDA code of the process shares, and its
 * properties. srt_device_open() tests the kernels before it returns the device.
 */
#include <stdio.h>
#include <string.h>

#include "backends/cuda/fast.h"
#include "base/base.h"

/* Memory that the driver and cuBLASLt may allocate later: kernels loaded at their first use; local
 * memory of kernels, which grows with the device; and partly filled blocks of 2 MiB. docs/cuda.md,
 * "Memory". */
#define LATER_FIXED ((size_t)128 << 20)
#define LATER_PART 128

/* ---- what there is ----------------------------------------------------------------------- */

static srt_status_t device_probe(const srt_host_services_t *host, int *ndevices)
{
	return srt_candidates_probe(&srt_cuda_candidates, host, ndevices);
}

static srt_status_t device_describe(const srt_host_services_t *host, int number,
				    srt_device_description_t *description)
{
	return srt_candidates_describe(&srt_cuda_candidates, host, number, description);
}

/* ---- open and close ---------------------------------------------------------------------- */

static void mark_stream(void *s)
{
	srt_cuda_stream_t *stream = s;

	stream->is_selftest = true;
}

/* Frees objects of the context before the context. */
static void device_close(void *dev)
{
	srt_cuda_device_t *device = dev;

	if (device->context != NULL) {
		srt_cuda_scope_t scope = srt_cuda_enter(device);

		srt_cuda_fast_close(device->fast);
		srt_cuda_kernels_free(device);
		srt_cuda_tuned_free(device);
		if (device->stream != NULL)
			device->drv->cuStreamDestroy(device->stream);
		srt_cuda_leave(scope);
		if (!device->is_native)
			device->drv->cuDevicePrimaryCtxRelease(device->id);
	}
	srt_selftest_destroy(&device->selftest);
	pthread_mutex_destroy(&device->lock);
	device->host->free(device);
}

/* With the context current. */
static srt_status_t read_properties(srt_cuda_device_t *device)
{
	const srt_cuda_driver_t *drv = device->drv;
	int pitch = 0;
	CUresult code;

	code = drv->cuDeviceTotalMem(&device->mem_nbytes, device->id);
	if (code == CUDA_SUCCESS)
		code = drv->cuDeviceGetAttribute(&pitch, CU_DEVICE_ATTRIBUTE_MAX_PITCH, device->id);
	if (code == CUDA_SUCCESS)
		code = drv->cuCtxGetStreamPriorityRange(&device->priority_low,
							&device->priority_high);
	if (code == CUDA_SUCCESS)
		code = drv->cuStreamCreateWithPriority(&device->stream, CU_STREAM_NON_BLOCKING,
						       device->priority_low);
	device->max_pitch = pitch > 0 ? (size_t)pitch : 0;
	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, drv, code, "opening CUDA device \"%s\" failed",
			     device->name);
}

static srt_status_t run_selftest(srt_cuda_device_t *device)
{
	srt_cuda_entry_t entry;
	srt_status_t status = srt_cuda_entry(device, SRT_K_FILL, SRT_F32, &entry);

	if (status == SRT_OK)
		status = srt_selftest_all(&device->selftest, SRT_F32);
	return status == SRT_OK ? srt_cuda_tuned_setup(device) : status;
}

/* Loading a module and freeing memory may wait for all work of the device, including a collective
 * whose peer waits for this rank. */
static void device_prepare(void *dev, srt_dtype_t dtype)
{
	srt_cuda_device_t *device = dev;
	srt_cuda_entry_t entry;
	srt_cuda_scope_t scope;

	if (dtype != SRT_F16 && dtype != SRT_BF16)
		return;
	scope = srt_cuda_enter(device);
	srt_cuda_entry(device, SRT_K_FILL, dtype, &entry); /* the first launch reports a failure */
	srt_cuda_leave(scope);
	srt_selftest_type(&device->selftest, dtype);
	if (device->tuning.wanted)
		srt_selftest_has_tuned(&device->selftest, dtype);
}

/* Uses the program's context, and describes its device. */
static srt_status_t use_native(srt_cuda_device_t *device, CUcontext context,
			       srt_candidate_t *chosen)
{
	const srt_host_services_t *host = device->host;
	const srt_cuda_driver_t *drv = device->drv;
	CUcontext popped;
	srt_candidate_t *all;
	CUdevice id;
	CUresult code;
	int n;

	code = drv->cuCtxPushCurrent(context);
	if (code == CUDA_SUCCESS) {
		code = drv->cuCtxGetDevice(&id);
		drv->cuCtxPopCurrent(&popped);
	}
	if (code != CUDA_SUCCESS)
		return srt_cuda_fail(host, drv, code,
				     "the CUDA context of the program (option native of "
				     "srt_context_create()) cannot be used");
	SRT_TRY(srt_cuda_candidates.list(host, &all, &n));
	for (int i = 0; i < n; i++)
		if ((CUdevice)(intptr_t)all[i].id == id)
			*chosen = all[i];
	host->free(all);
	if (chosen->unusable != NULL)
		return host->fail(SRT_ERR_UNSUPPORTED, "CUDA device \"%s\" cannot be used: %s",
				  chosen->name, chosen->unusable);
	device->context = context;
	device->is_native = true;
	return SRT_OK;
}

static srt_status_t device_setup(srt_cuda_device_t *device, const srt_device_request_t *request)
{
	const srt_host_services_t *host = device->host;
	srt_candidate_t chosen = { 0 };
	srt_cuda_scope_t scope;
	srt_status_t status;
	CUresult code;

	status = srt_cuda_driver(host, &device->drv);
	if (status == SRT_OK)
		status =
			request->native != NULL ?
				use_native(device, request->native->context, &chosen) :
				srt_candidates_choose(&srt_cuda_candidates, host, request, &chosen);
	if (status != SRT_OK)
		return status;
	device->id = (CUdevice)(intptr_t)chosen.id;
	device->major = chosen.major;
	device->minor = chosen.minor;
	device->selftest.exact = request->exact != 0;
	snprintf(device->name, sizeof(device->name), "%s", chosen.name);
	memcpy(device->uuid, chosen.uuid, sizeof(device->uuid));
	snprintf(device->bus, sizeof(device->bus), "%s", chosen.bus);
	snprintf(device->selftest.what, sizeof(device->selftest.what), "CUDA device \"%s\"",
		 device->name);
	code = CUDA_SUCCESS;
	if (!device->is_native)
		code = device->drv->cuDevicePrimaryCtxRetain(&device->context, device->id);
	if (code != CUDA_SUCCESS) {
		device->context = NULL;
		return srt_cuda_fail(host, device->drv, code,
				     "opening CUDA device \"%s\" (%s) failed", device->name,
				     chosen.bus);
	}
	scope = srt_cuda_enter(device);
	status = read_properties(device);
	if (status == SRT_OK)
		status = run_selftest(device);
	if (status == SRT_OK && request->fast)
		device->fast = srt_cuda_fast_open(device);
	srt_cuda_leave(scope);
	return status;
}

static void fill_caps(const srt_cuda_device_t *device, srt_backend_caps_t *caps)
{
	*caps = (srt_backend_caps_t){
		.async_streams = 1,
		.mem_nbytes = device->mem_nbytes,
		.driver_overhead = LATER_FIXED + device->mem_nbytes / LATER_PART,
		.has_fast = device->fast != NULL,
	};
	snprintf(caps->name, sizeof(caps->name), "%s", device->name);
	memcpy(caps->memory_id, device->uuid, sizeof(caps->memory_id));
}

static srt_status_t device_open(const srt_host_services_t *host,
				const srt_device_request_t *request, void **out,
				srt_backend_caps_t *caps)
{
	srt_cuda_device_t *device = host->alloc(sizeof(*device));
	srt_status_t status;
	srt_fpenv_t env;

	if (device == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(device, 0, sizeof(*device));
	device->host = host;
	pthread_mutex_init(&device->lock, NULL);
	device->scratch = (srt_scratch_owner_t){
		.host = host,
		.mem = &srt_cuda_mem_ops,
		.device = device,
	};
	device->selftest = (srt_selftest_t){
		.host = host,
		.mem = &srt_cuda_mem_ops,
		.stream = &srt_cuda_stream_ops,
		.device = device,
		.mark_stream = mark_stream,
		.remedy = "another driver",
	};
	srt_selftest_init(&device->selftest);
	env = srt_fpenv_enter();
	status = device_setup(device, request);
	srt_fpenv_leave(env);
	if (status != SRT_OK) {
		device_close(device);
		return status;
	}
	fill_caps(device, caps);
	*out = device;
	return SRT_OK;
}

/* According to cuda.h, the call "may also return error codes from previous, asynchronous launches":
 * these are sticky errors of the context. Only allocations use this stream. */
static srt_status_t device_poll_error(void *dev)
{
	srt_cuda_device_t *device = dev;
	srt_cuda_scope_t scope = srt_cuda_enter(device);
	CUresult code = device->drv->cuStreamSynchronize(device->stream);

	srt_cuda_leave(scope);
	if (code == CUDA_SUCCESS)
		return SRT_OK;
	return srt_cuda_fail(device->host, device->drv, code, "CUDA device \"%s\"", device->name);
}

static void device_native(void *dev, void **context, void **id)
{
	const srt_cuda_device_t *device = dev;

	*context = device->context;
	*id = (void *)(intptr_t)device->id;
}

const srt_backend_device_ops_t srt_cuda_device_ops = {
	.probe = device_probe,
	.describe = device_describe,
	.open = device_open,
	.prepare = device_prepare,
	.close = device_close,
	.poll_error = device_poll_error,
	.native = device_native,
};
