/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving one message of an exchange of small data (oob.c), and failing an exchange. The end of a
 * rank does not end an exchange in which that rank had all messages: it may have left because of
 * what they say, and the other ranks learn the same.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_EXCHANGE_H
#define SRT_COLLECTIVES_BOOTSTRAP_EXCHANGE_H

#include "collectives/comm_state.h"

/* A message that this rank waits for. */
typedef struct srt_expected {
	int rank;
	uint32_t seq;
	const char *what;
	void *data;
	size_t nbytes;
	int *fd;     /* NULL: has none */
	bool shared; /* in shared memory (shm/post.c): nbytes are those that are left */
	double start;
	/* The other ranks that this rank waits for next: from[], and the place of `rank` in the
	 * order in which their messages are fetched. */
	const bool *from;
	int place;
} srt_expected_t;

/* Receives the message of a rank, and warns if it is long in coming. SRT_CONTROL_OTHER: `theirs` is
 * the rank's operation. */
srt_control_result_t srt_exchange_receive(srt_comm_t *comm, const srt_expected_t *m,
					  char theirs[SRT_CONTROL_WHAT]);

/* Poisons the communicator according to the result of a send to a rank or a receive from it, and
 * fails. seq: of the exchange. start: when it began. */
srt_status_t srt_exchange_fail(srt_comm_t *comm, uint32_t seq, srt_control_result_t result,
			       int rank, const char *what, const char *theirs, double start);

/* Fails exchange `seq`, as the communicator is poisoned. waited_s: 0 = nothing to tell. */
srt_status_t srt_exchange_refuse(srt_comm_t *comm, uint32_t seq, const char *what, double waited_s);

#endif
