/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses a device from a driver's list. The backend provides the list; SHARDRT_DEVICE filters it:
 *
 *   ""              all usable devices of the best type: GPUs, else accelerators, else CPUs
 *   "gpu" "accelerator" "cpu"   all usable devices of this type
 *   "2"             the device with this number
 *   "GPU-8932..."   the device with this UUID, or with the only UUID of this prefix; or MIG-
 *   "1:0", "0000:3b:00.0"   the device with this bus address; leading zeros are ignored
 *   other text      devices whose name or detail contains the text, upper or lower case
 *
 * A UUID must match one device; other text must match devices of one name. The ranks of the node
 * are distributed over the matching devices. Each module links a copy.
 */
#ifndef SRT_BACKENDS_COMMON_CHOOSE_H
#define SRT_BACKENDS_COMMON_CHOOSE_H

#include "device/backend.h"

#define SRT_CANDIDATE_NAME_NBYTES 128

/* In order of preference. */
typedef enum srt_candidate_type {
	SRT_CANDIDATE_GPU,
	SRT_CANDIDATE_ACCELERATOR,
	SRT_CANDIDATE_CPU,
	SRT_CANDIDATE_OTHER, /* chosen by number, bus address or name only */
} srt_candidate_type_t;

typedef struct srt_candidate {
	void *platform, *id; /* objects of the driver */
	int number;          /* -1: none */
	char bus[16];        /* bus address "1:0", "0000:3b:00.0"; "": unknown */
	srt_candidate_type_t type;
	int major, minor; /* CUDA's compute capability */
	char name[SRT_CANDIDATE_NAME_NBYTES];
	char detail[SRT_CANDIDATE_NAME_NBYTES]; /* "sm_90"; the platform's name */
	unsigned char uuid[16];                 /* all 0: unknown */
	const char *unusable;                   /* the reason, or NULL */
} srt_candidate_t;

/* How to list a driver's devices. */
typedef struct srt_candidates {
	const char *what;      /* "OpenCL" */
	const char *selectors; /* valid values of SHARDRT_DEVICE, for a message */
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

/* Chooses the device of a rank. */
srt_status_t srt_candidates_choose(const srt_candidates_t *candidates,
				   const srt_host_services_t *host,
				   const srt_device_request_t *request, srt_candidate_t *chosen);

#endif
