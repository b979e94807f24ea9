/* SPDX-License-Identifier: BSD-3-Clause */
/* The module of the backend "late"; see late.h. */
#include "tests/fakes/backend_late/late.h"

static srt_status_t device_probe(const srt_host_services_t *host, int *ndevices)
{
	return toy_device_ops.probe(host, ndevices);
}

static srt_status_t device_open(const srt_host_services_t *host,
				const srt_device_request_t *request, void **out,
				srt_backend_caps_t *caps)
{
	srt_status_t status = toy_device_ops.open(host, request, out, caps);

	if (status == SRT_OK)
		((toy_device_t *)*out)->delay_us = 0;
	return status;
}

static void device_close(void *device)
{
	late_streams_release(device);
	late_mem_release(device);
	toy_device_ops.close(device);
}

static const srt_backend_device_ops_t device_ops = {
	.probe = device_probe,
	.open = device_open,
	.close = device_close,
};

static const srt_backend_t late = {
	.abi = SRT_BACKEND_ABI,
	.kernels = srt_kernels_digest,
	.name = "late",
	.aliases = "",
	.device = &device_ops,
	.mem = &late_mem_ops,
	.stream = &late_stream_ops,
};

const srt_backend_t *srt_backend_module(const srt_host_services_t *host, uint32_t abi)
{
	(void)host;
	(void)abi;
	return &late;
}
