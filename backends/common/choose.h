/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Choosing a device among those that a driver lists. The backend makes the list; SHARDRT_DEVICE
 * narrows it:
 *
 *   ""              all of the best type that can be used: GPUs, else accelerators, else CPUs
 *   "gpu" "accelerator" "cpu"   all of this type that can be used
 *   "2"             the one of this number
 *   "GPU-8932..."   the one of this UUID, or of the only UUID that begins so; or MIG-
 *   "1:0", "0000:3b:00.0"   the one at this place; leading zeros do not count
 *   other text      those with this in their name or detail, upper or lower case
 *
 * A UUID must leave one device, and other text must leave devices of one name. The ranks of the
 * node are spread over them. Modules link a copy.
 */
#ifndef SRT_BACKENDS_COMMON_CHOOSE_H
#define SRT_BACKENDS_COMMON_CHOOSE_H

#include "device/backend.h"

#define SRT_CANDIDATE_NAME_NBYTES 128

/* The best first. */
typedef enum srt_candidate_type {
	SRT_CANDIDATE_GPU,
	SRT_CANDIDATE_ACCELERATOR,
	SRT_CANDIDATE_CPU,
	SRT_CANDIDATE_OTHER, /* chosen by number, place or name only */
} srt_candidate_type_t;

typedef struct srt_candidate {
	void *platform, *id; /* the driver's */
	int number;          /* -1: none */
	char place[16];      /* "1:0", "0000:3b:00.0"; "": not known */
	srt_candidate_type_t type;
	int major, minor; /* CUDA's compute capability */
	char name[SRT_CANDIDATE_NAME_NBYTES];
	char detail[SRT_CANDIDATE_NAME_NBYTES]; /* "sm_90"; the platform's name */
	unsigned char uuid[16];                 /* all 0: not known */
	const char *unusable;                   /* why, or NULL */
} srt_candidate_t;

/* A driver's devices. */
typedef struct srt_candidates {
	const char *what;      /* "OpenCL" */
	const char *selectors; /* what SHARDRT_DEVICE takes, for a message */
	/* Lists all devices; *all is host->alloc'ed. If there is none: SRT_OK with *n = 0, *all
	 * NULL and the last error set. */
	srt_status_t (*list)(const srt_host_services_t *host, srt_candidate_t **all, int *n);
} srt_candidates_t;

/* The slots `probe` and `describe` of srt_backend_device_ops_t. */
srt_status_t srt_candidates_probe(const srt_candidates_t *candidates,
				  const srt_host_services_t *host, int *ndevices);
srt_status_t srt_candidates_describe(const srt_candidates_t *candidates,
				     const srt_host_services_t *host, int number,
				     srt_device_description_t *description);

/* The device that a rank takes. */
srt_status_t srt_candidates_choose(const srt_candidates_t *candidates,
				   const srt_host_services_t *host,
				   const srt_device_request_t *request, srt_candidate_t *chosen);

#endif
