/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work of a rank that may take longer than SHARDRT_TIMEOUT, such as writing to a slow disk. While
 * it works, a thread exchanges small messages with the other ranks, so that their wait goes on. A
 * rank that is killed, or that is stopped for longer than SHARDRT_TIMEOUT, ends the wait as always.
 *
 *     srt_long_work_begin(&work, comm, doing);      all ranks
 *     status = ...                              without calls of the communicator
 *     status = srt_long_work_end(&work, status);    all ranks: the same result
 *
 * Called by saves and loads.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_LONG_WORK_H
#define SRT_RUNTIME_CHECKPOINT_LONG_WORK_H

#include <pthread.h>
#include <stdbool.h>

#include "collectives/comm.h"
#include "runtime/checkpoint/doing.h"

typedef struct srt_long_work {
	srt_comm_t *comm;
	srt_doing_t doing;
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool is_done; /* protected by mutex */

	/* of the thread, until it is joined */
	srt_status_t status;
	srt_error_text_t why;
} srt_long_work_t;

/* doing: for messages. */
void srt_long_work_begin(srt_long_work_t *work, srt_comm_t *comm, srt_doing_t doing);
/* Waits for the work of all ranks. Returns the first failure of any rank, on all ranks. */
srt_status_t srt_long_work_end(srt_long_work_t *work, srt_status_t status);

#endif
