/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fixture of the tests of collectives: a rank's job, device and stream, and buffers with a copy
 * on the host. The device is the one of SHARDRT_BACKEND.
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

/* SRT_TEST_NODES="1 3": the ranks are told that rank 0 is alone on the first node, and that all
 * other nodes have 3 ranks. To be called before the world is created. */
void job_pretend_nodes(srt_bootstrap_t *bootstrap);

/* Returns on that rank when all others have called it, and on the others at once. */
void job_go_last(job_t *job, int rank);

/* Replaces the deadline of SHARDRT_TIMEOUT on rank 0 when no other rank waits: so only the wait
 * under test can time out, however slow the ranks are. The other ranks learn of it. */
void job_set_timeout(job_t *job, double timeout_s);

void job_close(job_t *job);

/* A buffer that peers can read, and host memory of its size (zero, as the buffer is): job_put() and
 * job_get() copy all of one to the other. job_drop() frees both. */
srt_buffer_t *job_buffer(job_t *job, size_t nelem, const char *name, float **host);

/* In stream order: what peers may still read needs a wait for readers before it. */
void job_put(job_t *job, srt_buffer_t *buffer, const float *host);

/* Waits for the job's stream. */
void job_get(job_t *job, float *host, srt_buffer_t *buffer);
void job_drop(srt_buffer_t *buffer, float *host);

/* A group of all ranks, which the caller destroys. */
srt_comm_t *job_group_of_all(job_t *job, const char *name);

/* Starts a collective and waits for it. If another rank has failed before, the start fails and
 * nothing is on the stream. */
srt_status_t job_start_and_wait(srt_coll_t *coll, srt_stream_t *stream);

/* Deterministic 64-bit noise of a seed and an index. */
uint64_t job_noise(uint64_t seed, uint64_t i);

#endif
