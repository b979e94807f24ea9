/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opening the toy device: its seed, and the self-test. The self-test runs every portable kernel
 * through the backend's own slots, as the library will, and compares digests of the results.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fpenv.h"
#include "kernels/selftest.h"
#include "tests/backend_toy/toy.h"

static srt_status_t device_probe(const srt_host_services_t *host, int *ndevices)
{
	(void)host;
	*ndevices = 1;
	return SRT_OK;
}

/* One launch with places[i] filled from host[i] before and copied back after. */
static srt_status_t selftest_launch(toy_device_t *device, void *stream, srt_launch_t *launch,
				    unsigned char *const *host, const size_t *nbytes)
{
	srt_status_t status = SRT_OK;

	for (int i = 0; i < launch->nplaces && status == SRT_OK; i++) {
		if (!host[i])
			continue;
		status = toy_mem_ops.alloc(device, SRT_MEM_DEVICE, nbytes[i], "self-test",
					   &launch->places[i].mem);
		if (status == SRT_OK)
			status = toy_work_ops.from_host(stream, launch->places[i].mem, 0, host[i],
							nbytes[i]);
	}
	if (status == SRT_OK)
		status = toy_work_ops.launch(stream, launch);
	for (int i = 0; i < launch->nplaces && status == SRT_OK; i++)
		if (host[i])
			status = toy_work_ops.to_host(stream, host[i], launch->places[i].mem, 0,
						      nbytes[i]);
	toy_stream_sync(stream);
	for (int i = 0; i < launch->nplaces; i++)
		if (launch->places[i].mem)
			toy_mem_ops.free(device, launch->places[i].mem);
	return status;
}

static srt_status_t selftest_run(void *dev, const srt_launch_t *launch, unsigned char *const *host,
				 const size_t *nbytes)
{
	toy_device_t *device = dev;
	srt_launch_t copy = *launch;
	srt_status_t status;
	void *stream;

	status = toy_stream_ops.create(device, 0, "self-test", &stream);
	if (status != SRT_OK)
		return status;
	status = selftest_launch(device, stream, &copy, host, nbytes);
	toy_stream_ops.destroy(stream);
	return status;
}

static srt_status_t selftest(toy_device_t *device, int exact)
{
	const char *kernel = NULL;
	/* The inputs are computed on this thread. */
	srt_fpenv_t env = srt_fpenv_enter();
	srt_status_t status = srt_kernels_selftest(SRT_F32, selftest_run, device, &kernel);

	if (status == SRT_OK)
		status = srt_kernels_selftest(SRT_F16, selftest_run, device, &kernel);
	if (status == SRT_OK)
		status = srt_kernels_selftest(SRT_BF16, selftest_run, device, &kernel);

	srt_fpenv_leave(env);
	if (status != SRT_ERR_DEVICE || !kernel)
		return status;
	if (exact)
		return device->host->fail(SRT_ERR_DEVICE,
					  "toy: kernel \"%s\" gives other bits than version %d of "
					  "the numeric contract says",
					  kernel, SRT_NUMERICS_VERSION);
	device->host->log(SRT_LOG_WARN, "toy: kernel \"%s\" gives other bits", kernel);
	return SRT_OK;
}

static uint32_t number_of(const char *name, uint32_t fallback)
{
	const char *text = getenv(name);

	return text && *text ? (uint32_t)strtoul(text, NULL, 10) : fallback;
}

static void device_close(void *dev)
{
	toy_device_t *device = dev;

	pthread_cond_destroy(&device->changed);
	pthread_mutex_destroy(&device->lock);
	device->host->free(device);
}

static srt_status_t device_open(const srt_host_services_t *host,
				const srt_device_request_t *request, void **out,
				srt_backend_caps_t *caps)
{
	toy_device_t *device;
	struct timespec now;
	srt_status_t status;

	if (request->selector && request->selector[0] && strcmp(request->selector, "0") != 0)
		return host->fail(SRT_ERR_INVALID_ARGUMENT,
				  "SHARDRT_DEVICE=%s: the toy backend has one device, 0",
				  request->selector);
	device = host->alloc(sizeof(*device));
	if (!device)
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
	pthread_mutex_init(&device->lock, NULL);
	pthread_cond_init(&device->changed, NULL);
	fprintf(stderr, "toy device: TOY_SEED=%u\n", device->seed);
	status = selftest(device, request->exact);
	if (status != SRT_OK) {
		device_close(device);
		return status;
	}
	*caps = (srt_backend_caps_t){
		.name = "toy device",
		.async_streams = 1,
		.default_exact = 1,
	};
	*out = device;
	return SRT_OK;
}

const srt_backend_device_ops_t toy_device_ops = {
	.probe = device_probe,
	.open = device_open,
	.close = device_close,
};
