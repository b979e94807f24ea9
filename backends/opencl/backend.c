/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backend for OpenCL devices, a module: the library's loader (backends/module.c) calls
 * srt_backend_module(). So far it finds the platforms and says why it offers no device of them.
 */
#define CL_TARGET_OPENCL_VERSION 120

#include <CL/cl.h>

#include "backends/backend.h"

#define PLATFORM_NOT_FOUND (-1001) /* of the ICD loader: no driver is registered */

static srt_status_t device_probe(const srt_host_services_t *host, int *ndevices)
{
	cl_uint nplatforms = 0;
	cl_int error = clGetPlatformIDs(0, NULL, &nplatforms);

	*ndevices = 0;
	if (error != CL_SUCCESS && error != PLATFORM_NOT_FOUND)
		return host->fail(SRT_ERR_DEVICE, "clGetPlatformIDs failed with error %d", error);
	if (nplatforms == 0)
		host->fail(SRT_ERR_NOT_FOUND,
			   "no OpenCL driver is installed here (the list of ICDs, usually "
			   "/etc/OpenCL/vendors, is empty)");
	else
		host->fail(SRT_ERR_NOT_FOUND,
			   "there are %u OpenCL platforms, but this version of the module cannot "
			   "run anything on them yet",
			   nplatforms);
	return SRT_OK;
}

static srt_status_t device_open(const srt_host_services_t *host,
				const srt_device_request_t *request, void **device,
				srt_backend_caps_t *caps)
{
	(void)request;
	(void)device;
	(void)caps;
	return host->fail(SRT_ERR_UNSUPPORTED, "the OpenCL backend cannot open a device yet");
}

static void device_close(void *device)
{
	(void)device;
}

static const srt_backend_device_ops_t device_ops = {
	.probe = device_probe,
	.open = device_open,
	.close = device_close,
};
static const srt_backend_mem_ops_t mem_ops;
static const srt_backend_stream_ops_t stream_ops;
static const srt_backend_work_ops_t work_ops;

static const srt_backend_t opencl = {
	.abi = SRT_BACKEND_ABI,
	.name = "opencl",
	.aliases = "xpu",
	.device = &device_ops,
	.mem = &mem_ops,
	.stream = &stream_ops,
	.work = &work_ops,
};

const srt_backend_t *srt_backend_module(const srt_host_services_t *host, uint32_t abi)
{
	(void)host;
	(void)abi;
	return &opencl;
}
