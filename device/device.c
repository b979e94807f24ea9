/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices: opening one of a backend, and describing it. device->impl is the backend's own object.
 */
#include <stdlib.h>
#include <string.h>

#include "device/stream_queue.h"

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
	if (request->native != NULL && backend->device->native == NULL)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"backend \"%s\" cannot use a context of the program (option native "
				"of srt_context_create())",
				backend->name);
	SRT_TRY(check_present(backend));
	/* The CPU is the fallback when there is no accelerator. */
	wanted.accelerator = srt_backend_is_auto(backend_name) && backend != srt_backend_cpu();
	d = srt_calloc(1, sizeof(*d), "a device");
	if (d == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	d->backend = backend;
	d->pid = getpid();
	status = srt_backend_open(backend, &wanted, &d->impl, &d->caps);
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
	d->numerics = numerics == SRT_NUMERICS_FAST ? numerics : SRT_NUMERICS_EXACT;
	atomic_init(&d->nholders, 1);
	atomic_init(&d->allocated, 0);
	atomic_init(&d->nallocations, 0);
	atomic_init(&d->nlaunches, 0);
	pthread_mutex_init(&d->gens_lock, NULL);
	pthread_cond_init(&d->waited_cond, NULL);
	pthread_mutex_init(&d->failure_lock, NULL);
	pthread_mutex_init(&d->streams_lock, NULL);
	pthread_cond_init(&d->drained_cond, NULL);
	srt_log(SRT_LOG_INFO, "device: %s, %s%s%s, %d threads, %s streams", backend->name,
		d->caps.name, d->caps.isa[0] ? ", " : "", d->caps.isa, d->caps.threads,
		d->caps.async_streams ? "asynchronous" : "inline (no overlap)");
	*device = d;
	return SRT_OK;
}

void srt_device_prepare(srt_device_t *device, srt_dtype_t dtype)
{
	if (device->backend->device->prepare != NULL)
		device->backend->device->prepare(device->impl, dtype);
}

void srt_device_hold(srt_device_t *device)
{
	atomic_fetch_add(&device->nholders, 1);
}

void srt_device_release(srt_device_t *device)
{
	if (atomic_fetch_sub(&device->nholders, 1) > 1)
		return;
	srt_event_gens_free(device);
	device->backend->device->close(device->impl);
	pthread_cond_destroy(&device->drained_cond);
	pthread_mutex_destroy(&device->streams_lock);
	pthread_mutex_destroy(&device->failure_lock);
	pthread_cond_destroy(&device->waited_cond);
	pthread_mutex_destroy(&device->gens_lock);
	free(device);
}

void srt_device_close(srt_device_t *device)
{
	int nobjects;

	if (device == NULL || srt_device_is_inherited(device))
		return;
	nobjects = atomic_load(&device->nholders) - 1;
	if (nobjects > 0)
		srt_log(SRT_LOG_WARN,
			"device %s is closed before %d of its buffers, streams, events and "
			"communicators (%zu bytes) are destroyed; it stays open until then",
			device->caps.name, nobjects, atomic_load(&device->allocated));
	srt_device_release(device);
}

/* Returns the next stream of the set after `last` (0: the first) in the order of numbers, which
 * then stays until end_drain(); or NULL. */
static srt_stream_t *begin_drain(srt_device_t *device, uint64_t streams, uint64_t last)
{
	srt_stream_t *found = NULL;

	pthread_mutex_lock(&device->streams_lock);
	for (srt_stream_t *s = device->streams; s != NULL; s = s->next) {
		if ((streams >> s->number % 64 & 1) && s->number > last &&
		    (found == NULL || s->number < found->number))
			found = s;
	}
	if (found != NULL)
		found->ndrains++;
	pthread_mutex_unlock(&device->streams_lock);
	return found;
}

static void end_drain(srt_device_t *device, srt_stream_t *stream)
{
	pthread_mutex_lock(&device->streams_lock);
	if (--stream->ndrains == 0)
		pthread_cond_broadcast(&device->drained_cond);
	pthread_mutex_unlock(&device->streams_lock);
}

void srt_device_drain(srt_device_t *device, uint64_t streams)
{
	srt_stream_t *stream;
	uint64_t last = 0;

	while (streams && (stream = begin_drain(device, streams, last)) != NULL) {
		last = stream->number;
		srt_queue_drain(stream);
		end_drain(device, stream);
	}
}

bool srt_device_is_fast(const srt_device_t *device)
{
	return device->numerics == SRT_NUMERICS_FAST && device->caps.has_fast;
}

srt_status_t srt_device_get_info(const srt_device_t *device, srt_device_info_t *info)
{
	srt_device_info_t full;

	SRT_NOT_NULL(device);
	SRT_NOT_NULL(info);
	full = (srt_device_info_t){
		.size = sizeof(full),
		.backend = device->backend->name,
		.name = device->caps.name,
		.isa = device->caps.isa,
		.threads = device->caps.threads,
		.async_streams = device->caps.async_streams,
		.mem_nbytes = device->caps.mem_nbytes,
		.host_memory = device->caps.host_memory,
		.fast = srt_device_is_fast(device),
	};
	memcpy(full.memory_id, device->caps.memory_id, sizeof(full.memory_id));
	return srt_struct_write(info, &full, sizeof(full), "srt_device_info_t");
}

/* Reads the scratch that the device's streams hold. */
static void read_scratch_usage(const srt_device_t *device, size_t *nbytes, uint64_t *nallocations)
{
	*nbytes = 0;
	*nallocations = 0;
	if (device->backend->stream->scratch_usage != NULL)
		device->backend->stream->scratch_usage(device->impl, nbytes, nallocations);
}

size_t srt_device_allocated(const srt_device_t *device)
{
	uint64_t nallocations;
	size_t nbytes;

	if (device == NULL)
		return 0;
	read_scratch_usage(device, &nbytes, &nallocations);
	return atomic_load(&device->allocated) + nbytes;
}

size_t srt_device_available(srt_device_t *device)
{
	const srt_backend_mem_ops_t *mem = device != NULL ? device->backend->mem : NULL;
	size_t left, all;

	if (mem == NULL || mem->available == NULL)
		return 0;
	left = mem->available(device->impl);
	all = device->caps.mem_nbytes;
	return all && left > all ? all : left;
}

uint64_t srt_device_allocations(const srt_device_t *device)
{
	uint64_t nallocations;
	size_t nbytes;

	if (device == NULL)
		return 0;
	read_scratch_usage(device, &nbytes, &nallocations);
	return atomic_load(&device->nallocations) + nallocations;
}

uint64_t srt_device_launches(const srt_device_t *device)
{
	return device != NULL ? atomic_load(&device->nlaunches) : 0;
}
