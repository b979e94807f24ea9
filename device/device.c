/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices: opening one of a backend, describing it, and the services that backends get from the
 * library. The backend's own object stays behind device->impl.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/stream_queue.h"

#define SENTENCE_NBYTES 1024

static srt_status_t host_fail(srt_status_t status, const char *format, ...)
{
	char sentence[SENTENCE_NBYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	return srt_fail(status, "%s", sentence);
}

static void host_log(srt_log_level_t level, const char *format, ...)
{
	char sentence[SENTENCE_NBYTES];
	va_list args;

	if (!srt_log_enabled(level))
		return;
	va_start(args, format);
	vsnprintf(sentence, sizeof(sentence), format, args);
	va_end(args);
	srt_log(level, "%s", sentence);
}

static void *host_alloc(size_t nbytes)
{
	size_t rounded;
	void *p;

	if (!srt_add_size(nbytes, 63, &rounded)) {
		srt_fail(SRT_ERR_OUT_OF_MEMORY, "%zu bytes of host memory are more than can exist",
			 nbytes);
		return NULL;
	}
	rounded = srt_align_up(nbytes ? nbytes : 1, 64);
	p = aligned_alloc(64, rounded);
	if (!p)
		srt_fail(SRT_ERR_OUT_OF_MEMORY, "out of host memory: %zu bytes wanted", nbytes);
	return p;
}

static int host_cache_folder(const char *name, char *path, size_t path_nbytes)
{
	return srt_cache_folder(name, path, path_nbytes);
}

static const srt_host_services_t services = {
	.abi = SRT_BACKEND_ABI,
	.fail = host_fail,
	.log = host_log,
	.last_error = srt_last_error,
	.config = srt_config_string,
	.env_default = srt_config_set_default,
	.cache_folder = host_cache_folder,
	.cores = srt_available_cores,
	.alloc = host_alloc,
	.free = free,
};

const srt_host_services_t *srt_host_services(void)
{
	return &services;
}

static srt_status_t check_present(const srt_backend_t *backend)
{
	int ndevices;

	SRT_TRY(srt_backend_probe(backend, &ndevices));
	if (ndevices > 0)
		return SRT_OK;
	return srt_fail_prefix(SRT_ERR_NOT_FOUND,
			       "backend \"%s\" has no usable device: ", backend->name);
}

srt_status_t srt_device_open(const char *backend_name, const srt_device_request_t *request,
			     srt_numerics_t numerics, srt_device_t **device)
{
	srt_device_request_t wanted = *request;
	const srt_backend_t *backend;
	srt_device_t *d;
	srt_status_t status;

	SRT_TRY(srt_backend_lookup(backend_name, &backend));
	SRT_TRY(check_present(backend));
	/* The processor itself is what remains when there is no accelerator. */
	wanted.accelerator = srt_backend_is_auto(backend_name) && backend != srt_backend_cpu();
	d = srt_calloc(1, sizeof(*d), "a device");
	if (!d)
		return SRT_ERR_OUT_OF_MEMORY;
	d->backend = backend;
	status = backend->device->open(&services, &wanted, &d->impl, &d->caps);
	if (status != SRT_OK) {
		free(d);
		return wanted.accelerator ? srt_fail_prefix(status,
							    "SHARDRT_BACKEND=auto took %s (set "
							    "SHARDRT_BACKEND=cpu to go without): ",
							    backend->name) :
					    status;
	}
	if (strcmp(srt_config_string("SHARDRT_PEER_MEMORY"), "no") == 0)
		d->caps.peer_memory = 0;
	if (numerics == SRT_NUMERICS_DEFAULT)
		numerics = d->caps.default_exact ? SRT_NUMERICS_EXACT : SRT_NUMERICS_FAST;
	d->numerics = numerics;
	atomic_init(&d->allocated, 0);
	atomic_init(&d->nallocations, 0);
	atomic_init(&d->nlaunches, 0);
	pthread_mutex_init(&d->points_lock, NULL);
	pthread_mutex_init(&d->failure_lock, NULL);
	srt_log(SRT_LOG_INFO, "device: %s, %s%s%s, %d threads, %s streams", backend->name,
		d->caps.name, d->caps.isa[0] ? ", " : "", d->caps.isa, d->caps.threads,
		d->caps.async_streams ? "asynchronous" : "inline (no overlap)");
	*device = d;
	return SRT_OK;
}

void srt_device_prepare(srt_device_t *device, srt_dtype_t dtype)
{
	if (device->backend->device->prepare)
		device->backend->device->prepare(device->impl, dtype);
}

void srt_device_close(srt_device_t *device)
{
	size_t left;

	if (!device)
		return;
	left = atomic_load(&device->allocated);
	if (left)
		srt_log(SRT_LOG_WARN, "device %s is closed with %zu bytes still allocated",
			device->caps.name, left);
	srt_points_free(device);
	pthread_mutex_destroy(&device->points_lock);
	device->backend->device->close(device->impl);
	pthread_mutex_destroy(&device->failure_lock);
	free(device);
}

void srt_device_fail(srt_device_t *device, srt_status_t status, const char *sentence)
{
	pthread_mutex_lock(&device->failure_lock);
	if (atomic_load(&device->failure) == SRT_OK) {
		snprintf(device->failure_text, sizeof(device->failure_text), "%s", sentence);
		atomic_store(&device->failure, (int)status);
	}
	pthread_mutex_unlock(&device->failure_lock);
}

srt_status_t srt_device_check(const srt_device_t *device)
{
	srt_status_t status = (srt_status_t)atomic_load(&device->failure);

	return status == SRT_OK ? SRT_OK : srt_fail(status, "%s", device->failure_text);
}

srt_status_t srt_device_waited(srt_device_t *device, srt_status_t status)
{
	const srt_backend_device_ops_t *ops = device->backend->device;
	char sentence[SENTENCE_NBYTES];

	if (status == SRT_OK)
		return srt_device_check(device);
	if (status != SRT_ERR_DEVICE || ops->poll_error == NULL)
		return status;
	snprintf(sentence, sizeof(sentence), "%s", srt_last_error());
	if (ops->poll_error(device->impl) == SRT_OK)
		return srt_fail(status, "%s", sentence);
	/* A rank that dies takes its memory along: its death is then the better sentence. */
	for (int ms = 0; ms < atomic_load(&device->news_ms) && !atomic_load(&device->failure); ms++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	srt_device_fail(device, status, sentence);
	return srt_device_check(device);
}

srt_status_t srt_device_get_info(const srt_device_t *device, srt_device_info_t *info)
{
	if (!device || !info)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_device_get_info: %s is NULL",
				device ? "info" : "device");
	*info = (srt_device_info_t){
		.backend = device->backend->name,
		.name = device->caps.name,
		.isa = device->caps.isa,
		.threads = device->caps.threads,
		.async_streams = device->caps.async_streams,
		.mem_nbytes = device->caps.mem_nbytes,
		.host_memory = device->caps.host_memory,
	};
	return SRT_OK;
}

/* What the streams keep for their operations. */
static void scratch_usage(const srt_device_t *device, size_t *nbytes, uint64_t *nallocations)
{
	*nbytes = 0;
	*nallocations = 0;
	if (device->backend->stream->scratch_usage)
		device->backend->stream->scratch_usage(device->impl, nbytes, nallocations);
}

size_t srt_device_allocated(const srt_device_t *device)
{
	uint64_t nallocations;
	size_t nbytes;

	if (!device)
		return 0;
	scratch_usage(device, &nbytes, &nallocations);
	return atomic_load(&device->allocated) + nbytes;
}

size_t srt_device_available(srt_device_t *device)
{
	const srt_backend_mem_ops_t *mem = device ? device->backend->mem : NULL;
	size_t left, all;

	if (!mem || !mem->available)
		return 0;
	left = mem->available(device->impl);
	all = device->caps.mem_nbytes;
	return all && left > all ? all : left;
}

uint64_t srt_device_allocations(const srt_device_t *device)
{
	uint64_t nallocations;
	size_t nbytes;

	if (!device)
		return 0;
	scratch_usage(device, &nbytes, &nallocations);
	return atomic_load(&device->nallocations) + nallocations;
}

uint64_t srt_device_launches(const srt_device_t *device)
{
	return device ? atomic_load(&device->nlaunches) : 0;
}
