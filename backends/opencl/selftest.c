/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The self-test: portable kernels on their fixed inputs, launched as any other, and the digest of
 * what comes back (kernels/selftest.h). All of SRT_F32 when the device is opened, by device.c; a
 * 16-bit one, and so its program, before its first launch, by launch.c.
 */
#include "backends/opencl/opencl.h"
#include "base/fpenv.h"

typedef struct selftest {
	srt_ocl_device_t *device;
	void *stream;
	bool failed; /* to run: the last error says why */
} selftest_t;

static srt_status_t upload(const selftest_t *t, srt_launch_t *launch, unsigned char *const *host,
			   const size_t *nbytes)
{
	for (int i = 0; i < launch->nplaces; i++) {
		srt_status_t status;

		if (!host[i])
			continue;
		status = srt_ocl_mem_ops.alloc(t->device, SRT_MEM_DEVICE, nbytes[i], "self-test",
					       &launch->places[i].mem);
		if (status == SRT_OK)
			status = srt_ocl_work_ops.from_host(t->stream, launch->places[i].mem, 0,
							    host[i], nbytes[i]);
		if (status != SRT_OK)
			return status;
	}
	return SRT_OK;
}

static srt_status_t download(const selftest_t *t, const srt_launch_t *launch,
			     unsigned char *const *host, const size_t *nbytes)
{
	const char *access = srt_kernel_info(launch->kernel)->access;

	for (int i = 0; i < launch->nplaces; i++) {
		srt_status_t status;

		if (!host[i] || access[i] == 'R' || access[i] == 'r')
			continue;
		status = srt_ocl_work_ops.to_host(t->stream, host[i], launch->places[i].mem, 0,
						  nbytes[i]);
		if (status != SRT_OK)
			return status;
	}
	return SRT_OK;
}

static srt_status_t run_case(void *context, const srt_launch_t *wanted, unsigned char *const *host,
			     const size_t *nbytes)
{
	selftest_t *t = context;
	srt_launch_t launch = *wanted;
	srt_status_t status = upload(t, &launch, host, nbytes);

	if (status == SRT_OK)
		status = srt_ocl_work_ops.launch(t->stream, &launch);
	if (status == SRT_OK)
		status = srt_ocl_stream_sync(t->stream);
	if (status == SRT_OK)
		status = download(t, &launch, host, nbytes);
	for (int i = 0; i < launch.nplaces; i++)
		if (launch.places[i].mem)
			srt_ocl_mem_ops.free(t->device, launch.places[i].mem);
	t->failed = status != SRT_OK;
	return status;
}

/* Other bits: refused, or said. */
static srt_status_t judge(const srt_ocl_device_t *device, const char *kernel, int exact)
{
	const srt_host_services_t *host = device->host;

	if (exact)
		return host->fail(SRT_ERR_DEVICE,
				  "kernel \"%s\" gives other bits than version %d of the numeric "
				  "contract says on OpenCL device \"%s\"; the device is refused in "
				  "exact mode: try another driver or SHARDRT_OPENCL_LANES, or "
				  "SHARDRT_NUMERICS=fast",
				  kernel, SRT_NUMERICS_VERSION, device->name);
	host->log(SRT_LOG_WARN,
		  "kernel \"%s\" gives other bits than the numeric contract says on OpenCL device "
		  "\"%s\": results are not those of other devices",
		  kernel, device->name);
	return SRT_OK;
}

/* only: a kernel, or -1. */
static srt_status_t run_cases(srt_ocl_device_t *device, int only, srt_dtype_t dtype, int exact)
{
	selftest_t t = { .device = device };
	const char *kernel = NULL;
	srt_status_t status;
	srt_fpenv_t env;

	status = srt_ocl_stream_ops.create(device, 0, "self-test", &t.stream);
	if (status != SRT_OK)
		return status;
	((srt_ocl_stream_t *)t.stream)->is_trial = true;
	/* The inputs are computed here. */
	env = srt_fpenv_enter();
	if (only >= 0)
		status = srt_kernels_selftest_one((srt_kernel_id_t)only, dtype, run_case, &t,
						  &kernel);
	else
		status = srt_kernels_selftest(dtype, run_case, &t, &kernel);
	srt_fpenv_leave(env);
	srt_ocl_stream_ops.destroy(t.stream);
	if (status == SRT_OK || t.failed || !kernel)
		return status;
	return judge(device, kernel, exact);
}

srt_status_t srt_ocl_selftest(srt_ocl_device_t *device, int exact)
{
	return run_cases(device, -1, SRT_F32, exact);
}

srt_status_t srt_ocl_try_kernel(const srt_ocl_stream_t *stream, srt_kernel_id_t kernel,
				srt_dtype_t dtype)
{
	srt_ocl_device_t *device = stream->device;
	bool *tried = &device->tried[dtype == SRT_BF16][kernel];
	srt_status_t status = SRT_OK;

	if (dtype == SRT_F32 || stream->is_trial)
		return SRT_OK;
	/* Whoever comes second waits for the verdict. */
	pthread_mutex_lock(&device->tried_lock);
	if (!*tried) {
		status = run_cases(device, (int)kernel, dtype, device->exact);
		*tried = status == SRT_OK;
	}
	pthread_mutex_unlock(&device->tried_lock);
	return status;
}
