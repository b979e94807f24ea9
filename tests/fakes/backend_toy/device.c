/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening the toy device: its seed, and the self-test. The self-test runs every portable kernel
 * through the backend's own slots, as the library will.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backends/common/selftest.h"
#include "tests/fakes/backend_toy/toy.h"

static srt_status_t device_probe(const srt_host_services_t *host, int *ndevices)
{
	(void)host;
	*ndevices = 1;
	return SRT_OK;
}

/* Every kernel by the backend's own slots. */
static srt_status_t selftest(toy_device_t *device, bool exact)
{
	srt_selftest_t t = {
		.host = device->host,
		.mem = &toy_mem_ops,
		.stream = &toy_stream_ops,
		.device = device,
		.what = "the toy device",
		.remedy = "another processor",
		.exact = exact,
	};
	srt_status_t status;

	srt_selftest_init(&t);
	status = srt_selftest_all(&t, SRT_F32);
	if (status == SRT_OK)
		status = srt_selftest_all(&t, SRT_F16);
	if (status == SRT_OK)
		status = srt_selftest_all(&t, SRT_BF16);
	srt_selftest_destroy(&t);
	return status;
}

static uint32_t number_of(const char *name, uint32_t fallback)
{
	const char *text = getenv(name);

	return text != NULL && *text ? (uint32_t)strtoul(text, NULL, 10) : fallback;
}

static void device_close(void *dev)
{
	toy_device_t *device = dev;

	device->host->free(device);
}

static srt_status_t device_open(const srt_host_services_t *host,
				const srt_device_request_t *request, void **out,
				srt_backend_caps_t *caps)
{
	toy_device_t *device;
	struct timespec now;
	srt_status_t status;

	if (request->selector != NULL && request->selector[0] &&
	    strcmp(request->selector, "0") != 0)
		return host->fail(SRT_ERR_INVALID_ARGUMENT,
				  "SHARDRT_DEVICE=%s: the toy backend has one device, 0",
				  request->selector);
	device = host->alloc(sizeof(*device));
	if (device == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	clock_gettime(CLOCK_REALTIME, &now);
	*device = (toy_device_t){
		.host = host,
		.seed = number_of("TOY_SEED", (uint32_t)now.tv_nsec ^ (uint32_t)getpid() << 16),
		.delay_us = number_of("TOY_DELAY_US", 200),
	};
	for (int isa = 0; isa < SRT_ISA_COUNT; isa++)
		if (srt_cpu_isa_usable(isa))
			device->isa = isa;
	fprintf(stderr, "toy device: TOY_SEED=%u\n", device->seed);
	status = selftest(device, request->exact != 0);
	if (status != SRT_OK) {
		device_close(device);
		return status;
	}
	*caps = (srt_backend_caps_t){
		.name = "toy device",
		.async_streams = 1,
	};
	*out = device;
	return SRT_OK;
}

const srt_backend_device_ops_t toy_device_ops = {
	.probe = device_probe,
	.open = device_open,
	.close = device_close,
};
