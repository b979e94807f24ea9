/* SPDX-License-Identifier: BSD-3-Clause */
/* Families of devices: which there are, and what each can offer here. */
#ifndef SHARDRT_BACKEND_H
#define SHARDRT_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What is known of a device before it is opened. Filled by srt_backend_get_device(). */
typedef struct srt_device_description {
	size_t size;     /* set by SRT_DEVICE_DESCRIPTION_INIT */
	char name[128];  /* for people */
	int accelerator; /* 1: a GPU or the like, which SHARDRT_BACKEND=auto may choose; 0: a CPU */
} srt_device_description_t;

/** Sets srt_device_description_t.size. */
#define SRT_DEVICE_DESCRIPTION_INIT                                                                \
	{                                                                                          \
		.size = sizeof(srt_device_description_t)                                           \
	}

/** What a backend can offer on this machine. Filled by srt_backend_get_info(). */
typedef struct srt_backend_info {
	size_t size;      /* set by SRT_BACKEND_INFO_INIT */
	const char *name; /* as in SHARDRT_BACKEND: "cpu", "opencl"; lives as long as the process */
	const char *module; /* its file, "" = built in, not found or not loaded; lives as long as
			     * the process */
	int ndevices;       /* usable devices */
	char why_none[512]; /* if there is no device: a sentence that says why, else "" */
} srt_backend_info_t;

/** Sets srt_backend_info_t.size. */
#define SRT_BACKEND_INFO_INIT                                                                      \
	{                                                                                          \
		.size = sizeof(srt_backend_info_t)                                                 \
	}

/** Number of backends that can be asked for by number: the known families, then those loaded
 * because somebody named them. Thread-safe. */
SRT_API size_t srt_backend_count(void);

/**
 * Looks for a backend's module and its devices; nothing is opened. The call also succeeds if the
 * backend is not installed, does not load or has no device; the reason is then in `why_none`. A
 * driver that this process has not loaded is asked once, in another process, so that one that
 * crashes or hangs does not harm the program (SHARDRT_PROBE_TIMEOUT); with SHARDRT_BACKEND=cpu none
 * is asked.
 * @param i 0 .. srt_backend_count() - 1.
 * @param[out] info its size is set; filled on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for an `i` that is too large. Thread-safe.
 */
SRT_API srt_status_t srt_backend_get_info(size_t i, srt_backend_info_t *info);

/**
 * Describes a device of a backend.
 * @param i the backend's number.
 * @param number 0 .. ndevices - 1 of its info; SHARDRT_DEVICE takes it.
 * @param[out] description its size is set; filled on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for numbers that are too large, or what looking for the devices
 *         gave. Thread-safe.
 */
SRT_API srt_status_t srt_backend_get_device(size_t i, int number,
					    srt_device_description_t *description);

#ifdef __cplusplus
}
#endif
#endif
