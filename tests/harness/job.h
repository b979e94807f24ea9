/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What tests of the collectives share: joining the job, a device, a stream, buffers with a host
 * copy of their own, and plain host functions to compare with. The device is the one of
 * SHARDRT_BACKEND.
 */
#ifndef SRT_TESTS_JOB_H
#define SRT_TESTS_JOB_H

#include <shardrt/coll.h>

#include "collectives/comm.h"
#include "tests/harness/device.h"

typedef struct job {
	srt_bootstrap_t *bootstrap;
	srt_device_t *device;
	srt_comm_t *world;
	srt_stream_t *stream;
	int rank, size;
} job_t;

void job_open(job_t *job);

/* That rank goes on when all others are past everything that needs it, and not before. */
void job_go_last(job_t *job, int rank);

/* A deadline in place of SHARDRT_TIMEOUT's, on rank 0 alone and from when no other rank waits for
 * anything: so it can end nothing but what it is tried on, however slow ranks are, and the others
 * hear of that. */
void job_set_timeout(job_t *job, double timeout_s);
void job_close(job_t *job);

/* A buffer that peers can read, and host memory of its size (zero, as the buffer is): job_put() and
 * job_get() copy the whole of one to the other. Both go with job_drop(). */
srt_buffer_t *job_buffer(job_t *job, size_t nelem, const char *name, float **host);

/* In stream order: what peers may still read needs a wait for readers before it. */
void job_put(job_t *job, srt_buffer_t *buffer, const float *host);

/* Waits for the job's stream. */
void job_get(job_t *job, float *host, srt_buffer_t *buffer);
void job_drop(srt_buffer_t *buffer, float *host);

/* Starts a collective and waits for it. Where another rank has failed before, the start is what
 * fails, and nothing is on the stream. */
srt_status_t job_start_and_wait(srt_coll_t *coll, srt_stream_t *stream);

/* Deterministic 64-bit noise of a seed and an index. */
uint64_t job_noise(uint64_t seed, uint64_t i);

#endif
