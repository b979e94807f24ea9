/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The asynchronous (sticky) error of a device: a status and a message that are never cleared. Waits
 * on any of its streams check it after the driver's wait has returned.
 */
#include <stdio.h>
#include <time.h>

#include "device/device.h"

void srt_device_fail(srt_device_t *device, srt_status_t status, const char *sentence)
{
	bool is_first;

	pthread_mutex_lock(&device->failure_lock);
	is_first = atomic_load(&device->failure) == SRT_OK;
	if (is_first) {
		snprintf(device->failure_text, sizeof(device->failure_text), "%s", sentence);
		atomic_store(&device->failure, (int)status);
	}
	pthread_mutex_unlock(&device->failure_lock);
	if (is_first)
		srt_log(SRT_LOG_ERROR, "device %s failed: %s", device->caps.name, sentence);
}

srt_status_t srt_device_check(const srt_device_t *device)
{
	srt_status_t status = (srt_status_t)atomic_load(&device->failure);

	return status == SRT_OK ? SRT_OK : srt_fail(status, "%s", device->failure_text);
}

srt_status_t srt_device_waited(srt_device_t *device, srt_status_t status)
{
	const srt_backend_device_ops_t *ops = device->backend->device;
	char sentence[sizeof(device->failure_text)];

	if (status == SRT_OK)
		return srt_device_check(device);
	if (status != SRT_ERR_DEVICE || ops->poll_error == NULL)
		return status;
	snprintf(sentence, sizeof(sentence), "%s", srt_error_last());
	if (ops->poll_error(device->impl) == SRT_OK)
		return srt_fail(status, "%s", sentence);
	/* A rank that dies may cause this error: wait for the report of its death. */
	for (int ms = 0; ms < atomic_load(&device->news_ms) && !atomic_load(&device->failure); ms++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	srt_device_fail(device, status, sentence);
	return srt_device_check(device);
}
