/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leases: somebody else's use of a buffer's memory, which must end before the memory is freed. A
 * buffer with a lease that is not over is kept by its device when it is destroyed, out of the
 * device's counts, and freed when another buffer is made or destroyed after the lease's end, or
 * when the device is closed: that alone waits, and asks for the end of leases that last longer than
 * work which is under way. So destroying a buffer never blocks. What is still leased when the wait
 * on its holders times out is freed all the same.
 *
 * Used where the driver lends device memory to peers (srt_backend_caps_t.peer_by_driver); who gives
 * leases is collectives/registry.c.
 */
#include <time.h>

#include "backends/core.h"

/* For peers that are about to close what is missing here; and before they are asked to. */
#define PATIENCE_S 2.0
#define RECALL_S 1.0

void srt_buffer_lease(srt_buffer_t *buffer, srt_lease_t *lease)
{
	lease->next = buffer->leases;
	buffer->leases = lease;
}

/* Drops those that are over, or all; false: some are left. */
static bool end_leases(srt_buffer_t *buffer, bool all)
{
	srt_lease_t **link = &buffer->leases, *lease;

	while ((lease = *link) != NULL) {
		if (!all && !lease->is_over(lease)) {
			link = &lease->next;
			continue;
		}
		*link = lease->next;
		lease->drop(lease);
	}
	return buffer->leases == NULL;
}

bool srt_buffer_keep(srt_buffer_t *buffer)
{
	srt_device_t *device = buffer->device;

	if (end_leases(buffer, false))
		return false;
	pthread_mutex_lock(&device->kept_lock);
	buffer->next_kept = device->kept;
	device->kept = buffer;
	pthread_mutex_unlock(&device->kept_lock);
	return true;
}

/* Frees what nobody uses any more, or all. How many; *left: how many it has left. */
static int reap(srt_device_t *device, bool all, int *left)
{
	srt_buffer_t **link = &device->kept, *buffer, *over = NULL;
	int n = 0;

	*left = 0;

	pthread_mutex_lock(&device->kept_lock);
	while ((buffer = *link) != NULL) {
		if (!end_leases(buffer, all)) {
			link = &buffer->next_kept;
			++*left;
			continue;
		}
		*link = buffer->next_kept;
		buffer->next_kept = over;
		over = buffer;
		n++;
	}
	pthread_mutex_unlock(&device->kept_lock);
	while ((buffer = over) != NULL) {
		over = buffer->next_kept;
		srt_buffer_free(buffer);
	}
	return n;
}

void srt_device_reap(srt_device_t *device)
{
	int left;

	reap(device, false, &left);
}

/* Whether none is left by then; *n: how many have gone. */
static bool reap_for(srt_device_t *device, double seconds, int *n)
{
	double deadline = srt_awake_s() + seconds;
	int left;

	*n = 0;
	for (;;) {
		*n += reap(device, false, &left);
		if (left == 0 || srt_awake_s() >= deadline)
			return left == 0;
		nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
	}
}

bool srt_device_reap_soon(srt_device_t *device)
{
	int n;

	reap_for(device, PATIENCE_S, &n);
	return n > 0;
}

/* Asks for the end of all; returns how long the longest may last. */
static double recall(srt_device_t *device)
{
	double timeout_s = 0;

	pthread_mutex_lock(&device->kept_lock);
	for (srt_buffer_t *buffer = device->kept; buffer != NULL; buffer = buffer->next_kept) {
		for (srt_lease_t *lease = buffer->leases; lease != NULL; lease = lease->next) {
			lease->recall(lease);
			if (lease->timeout_s > timeout_s)
				timeout_s = lease->timeout_s;
		}
	}
	pthread_mutex_unlock(&device->kept_lock);
	return timeout_s;
}

void srt_device_reap_all(srt_device_t *device)
{
	double timeout_s;
	int n;

	if (reap_for(device, RECALL_S, &n))
		return;
	timeout_s = recall(device);
	if (reap_for(device, timeout_s, &n))
		return;
	srt_log(SRT_LOG_WARN,
		"device %s is closed, and frees memory that other ranks have had open for %g s "
		"since (SHARDRT_TIMEOUT)",
		device->caps.name, timeout_s);
	reap(device, true, &n);
}
