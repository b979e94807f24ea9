/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A log of calls that all ranks must make in the same order with the same arguments, in memory that
 * the ranks share. A rank that logs its n-th call compares it with the n-th calls of the other
 * ranks that are logged already, so the last of them always compares. Nobody waits.
 */
#ifndef SRT_COLLECTIVES_VERIFY_CALL_LOG_H
#define SRT_COLLECTIVES_VERIFY_CALL_LOG_H

#include "collectives/comm_state.h"

typedef struct srt_call_log srt_call_log_t;

/* A call. `kind`, `index` and `value` must be equal on all ranks. `kind` is not 0. */
typedef struct srt_call {
	uint32_t kind;
	uint32_t index;
	uint64_t value;
	bool is_sum;   /* `part` summed over ranks must be `value` */
	uint64_t part; /* of this rank */
} srt_call_t;

/* Writes what the call is, for a message: "runs forward unit 'b0'". */
typedef void srt_call_describe_fn(const void *arg, const srt_call_t *call, char *text, size_t n);

/* Collective. A communicator of one rank, or one whose ranks share no memory, has no log: NULL. */
srt_status_t srt_call_log_create(srt_comm_t *comm, const char *what, srt_call_describe_fn *describe,
				 const void *arg, srt_call_log_t **log);
/* Local. NULL is allowed. */
void srt_call_log_destroy(srt_call_log_t *log);

/* Logs a call of this rank. SRT_ERR_MISMATCH if a rank made another one: the communicator is then
 * poisoned with the same message. NULL is allowed. */
srt_status_t srt_call_log_add(srt_call_log_t *log, const srt_call_t *call);

/* `call` ends a section of calls, e.g. a step, and is compared with what ended it on other ranks.
 * drops: the other calls of the section need not have been the same. NULL is allowed. */
srt_status_t srt_call_log_end(srt_call_log_t *log, const srt_call_t *call, bool drops);

#endif
