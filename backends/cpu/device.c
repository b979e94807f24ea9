/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU as a device: chooses the instruction set, the number of threads, the kind of streams and
 * the cores once, at open. srt_device_open() tests the kernels before it returns the device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/common/host_memory.h"
#include "base/base.h"

static srt_status_t device_probe(const srt_host_services_t *host, int *ndevices)
{
	(void)host;
	*ndevices = 1;
	return SRT_OK;
}

static srt_status_t device_describe(const srt_host_services_t *host, int number,
				    srt_device_description_t *description)
{
	(void)host;
	(void)number;
	srt_cpu_model_name(description->name, sizeof(description->name));
	return SRT_OK;
}

static srt_status_t choose_isa(srt_cpu_isa_t *isa)
{
	const char *wanted = srt_config_string("SHARDRT_CPU_ISA");

	for (int i = SRT_ISA_COUNT - 1; i >= 0; i--) {
		if (strcmp(wanted, "auto") != 0 && strcmp(wanted, srt_cpu_isa_name(i)) != 0)
			continue;
		if (srt_cpu_isa_usable(i)) {
			*isa = (srt_cpu_isa_t)i;
			return SRT_OK;
		}
	}
	return srt_fail(SRT_ERR_UNSUPPORTED,
			"SHARDRT_CPU_ISA=%s, but this processor does not have these instructions, "
			"or libshardrt was built without them; leave it unset to use the best "
			"that works here",
			wanted);
}

static int choose_threads(const srt_device_request_t *request, int ncores)
{
	int share = ncores / (request->local_size > 0 ? request->local_size : 1);

	if (request->threads > 0)
		return request->threads;
	return share > 0 ? share : 1;
}

static bool choose_threaded_streams(int threads)
{
	const char *kind = srt_config_string("SHARDRT_CPU_STREAMS");

	if (strcmp(kind, "auto") == 0)
		return threads > 1;
	return strcmp(kind, "threads") == 0;
}

static void mark_stream(void *s)
{
	srt_cpu_stream_t *stream = s;

	stream->is_selftest = true;
}

static srt_status_t run_selftest(srt_cpu_device_t *device)
{
	srt_selftest_t *t = &device->selftest;

	snprintf(t->what, sizeof(t->what), "this processor with the instruction set %s",
		 srt_cpu_isa_name(device->isa));
	SRT_TRY(srt_selftest_all(t, SRT_F32));
	return device->gemm != NULL ? srt_selftest_tuned(t, SRT_F32) : SRT_OK;
}

static void fill_caps(const srt_cpu_device_t *device, srt_backend_caps_t *caps)
{
	srt_memory_limit_t limit;

	srt_memory_limit(&limit);
	*caps = (srt_backend_caps_t){
		.threads = device->threads,
		.async_streams = device->threaded_streams,
		.host_memory = 1,
		.peer_memory = 1,
		.peer_kind = SRT_HOSTMEM_KIND,
		.mem_nbytes = limit.limit == SIZE_MAX ? 0 : limit.limit,
		.has_fast = device->fast != NULL,
	};
	memcpy(caps->memory_id, limit.id, sizeof(limit.id));
	srt_cpu_model_name(caps->name, sizeof(caps->name));
	strncpy(caps->isa, srt_cpu_isa_name(device->isa), sizeof(caps->isa) - 1);
}

static void device_close(void *dev)
{
	srt_cpu_device_t *device = dev;

	srt_cpu_pool_destroy(device->pool);
	srt_cpu_onednn_close(device->fast);
	srt_selftest_destroy(&device->selftest);
	srt_cpu_unbind(device->saved_binding);
	free(device);
}

/* Without oneDNN the device's own products are used. */
static void open_fast_products(srt_cpu_device_t *device)
{
	srt_error_text_t before;

	srt_error_save(&before);
	device->fast = srt_cpu_onednn_open();
	srt_log(SRT_LOG_INFO, "numerics fast: products of bf16 operands by oneDNN%s%s",
		device->fast != NULL ? "" : ": no, ", device->fast != NULL ? "" : srt_error_last());
	srt_error_restore(&before);
}

static srt_status_t device_setup(srt_cpu_device_t *device, const srt_device_request_t *request)
{
	/* Before binding: all cores that the ranks of this node share. */
	int ncores = srt_available_cores();
	int local_size = request->local_size > 0 ? request->local_size : 1;

	SRT_TRY(choose_isa(&device->isa));
	device->gemm = srt_cpu_gemm_find(srt_cpu_isa_name(device->isa));
	device->threads = choose_threads(request, ncores);
	device->threaded_streams = choose_threaded_streams(device->threads);
	device->selftest.exact = request->exact != 0;
	device->may_spin = ncores / local_size >= device->threads;
	/* Before any thread is created: threads inherit the binding. */
	SRT_TRY(srt_cpu_bind(request->bind != NULL ? request->bind :
						     srt_config_string("SHARDRT_BIND"),
			     request->local_rank, local_size, device->threads,
			     &device->saved_binding));
	SRT_TRY(srt_cpu_pool_create(device->threads, device->may_spin, &device->pool));
	if (!request->exact && device->gemm != NULL)
		open_fast_products(device);
	return run_selftest(device);
}

static srt_status_t device_open(const srt_host_services_t *host,
				const srt_device_request_t *request, void **out,
				srt_backend_caps_t *caps)
{
	srt_cpu_device_t *device;
	srt_status_t status;

	if (request->selector != NULL && request->selector[0] &&
	    strcmp(request->selector, "0") != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"SHARDRT_DEVICE=%s: the cpu backend has one device, 0",
				request->selector);
	device = srt_calloc(1, sizeof(*device), "the cpu device");
	if (device == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	device->host = host;
	device->scratch = (srt_scratch_owner_t){
		.host = host,
		.mem = &srt_cpu_mem_ops,
		.device = device,
	};
	device->selftest = (srt_selftest_t){
		.host = host,
		.mem = &srt_cpu_mem_ops,
		.stream = &srt_cpu_stream_ops,
		.device = device,
		.mark_stream = mark_stream,
		.remedy = "SHARDRT_CPU_ISA=baseline",
		.takes_mask = true,
		.is_sure = true,
	};
	srt_selftest_init(&device->selftest);
	status = device_setup(device, request);
	if (status != SRT_OK) {
		device_close(device);
		return status;
	}
	fill_caps(device, caps);
	*out = device;
	return SRT_OK;
}

const srt_backend_device_ops_t srt_cpu_device_ops = {
	.probe = device_probe,
	.describe = device_describe,
	.open = device_open,
	.close = device_close,
};
