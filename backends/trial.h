/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The self-test of a backend whose kernels are compiled code of the device: the portable kernels on
 * their fixed inputs (kernels/selftest.h), through the backend's own tables, and what becomes of a
 * device that fails. All of SRT_F32 when the device is opened; a 16-bit kernel, whose code may not
 * be there yet, before its first launch. A module carries its own copy.
 */
#ifndef SRT_BACKENDS_TRIAL_H
#define SRT_BACKENDS_TRIAL_H

#include <pthread.h>
#include <stdbool.h>

#include "backends/backend.h"

typedef struct srt_trial {
	const srt_host_services_t *host;
	const srt_backend_mem_ops_t *mem;
	const srt_backend_stream_ops_t *stream;
	const srt_backend_work_ops_t *work;
	void *device;
	/* Called with a new stream: it is the trial's, and launches what has not been tried. */
	void (*mark_stream)(void *stream);
	char what[192];     /* "OpenCL device \"Name\"" */
	const char *remedy; /* what may help beside another driver: " or SHARDRT_X", "" */

	pthread_mutex_t lock;                        /* of `tried`; held by who tries a kernel */
	bool tried[SRT_BF16 - SRT_F32][SRT_K_COUNT]; /* 16-bit kernels that passed */
} srt_trial_t;

void srt_trial_init(srt_trial_t *trial);
void srt_trial_destroy(srt_trial_t *trial);

/* Runs every kernel of SRT_F32 against its digest. A failure refuses the device in exact mode, else
 * it is logged. */
srt_status_t srt_trial_device(srt_trial_t *trial, bool exact);
/* Before a launch on a stream other than the trial's: the same for one kernel if it is a 16-bit one
 * that has not been tried. A failure refuses the launch, and every later one. Thread-safe. */
srt_status_t srt_trial_kernel(srt_trial_t *trial, srt_kernel_id_t kernel, srt_dtype_t dtype,
			      bool exact);

#endif
