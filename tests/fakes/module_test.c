/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A module for tests/device/test_module.c, which says in TEST_MODULE what it is to be like:
 *
 *     old         of an older contract           refuses     returns no table, and says why
 *     silent      returns no table               incomplete  lacks tables
 *     none        without devices                cpus        two devices, both CPUs
 *     gpu         a CPU and a GPU; opening fails with what was asked for
 *     aborts, exits, hangs   a driver that does so when it is asked for its devices
 *     dies        a driver that ends the process when a device is opened
 *
 * and in TEST_MODULE_NAME its name (default opencl). No other slot does anything.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/backend.h"

static bool is(const char *kind)
{
	const char *mine = getenv("TEST_MODULE");

	return mine != NULL && strcmp(mine, kind) == 0;
}

static srt_status_t probe(const srt_host_services_t *host, int *ndevices)
{
	if (is("aborts"))
		abort();
	while (is("hangs"))
		pause();
	if (is("exits")) {
		puts("end"); /* as if it were the answer */
		exit(3);
	}
	*ndevices = is("none") ? 0 : 2;
	if (is("none"))
		host->fail(SRT_ERR_NOT_FOUND, "the list of drivers is empty");
	return SRT_OK;
}

static srt_status_t describe(const srt_host_services_t *host, int number,
			     srt_device_description_t *description)
{
	(void)host;
	strcpy(description->name, number ? "second" : "first");
	description->accelerator = is("gpu") && number == 1;
	return SRT_OK;
}

static srt_status_t open_device(const srt_host_services_t *host,
				const srt_device_request_t *request, void **device,
				srt_backend_caps_t *caps)
{
	(void)device;
	(void)caps;
	if (is("dies"))
		abort();
	return host->fail(SRT_ERR_DEVICE, "accelerator=%d", request->accelerator);
}

static void close_device(void *device)
{
	(void)device;
}

static const srt_backend_device_ops_t device_ops = {
	.probe = probe,
	.describe = describe,
	.open = open_device,
	.close = close_device,
};
static const srt_backend_mem_ops_t mem_ops;
static const srt_backend_stream_ops_t stream_ops;

const srt_backend_t *srt_backend_module(const srt_host_services_t *host, uint32_t abi)
{
	static srt_backend_t tables[2]; /* they stay when the module is loaded under two names */
	const char *name = getenv("TEST_MODULE_NAME");
	srt_backend_t *table = &tables[name != NULL];

	if (is("refuses"))
		host->fail(SRT_ERR_UNSUPPORTED, "there is no moon today");
	if (is("refuses") || is("silent"))
		return NULL;
	host->log(SRT_LOG_WARN, "module_test: entered");
	*table = (srt_backend_t){
		.abi = is("old") ? abi - 1 : SRT_BACKEND_ABI,
		.kernels = is("stale") ? "1-1" : srt_kernels_digest,
		.name = name != NULL ? name : "opencl",
		.aliases = "xpu",
		.device = &device_ops,
		.mem = &mem_ops,
		.stream = is("incomplete") ? NULL : &stream_ops,
	};
	return table;
}
