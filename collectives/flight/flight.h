/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flight recorder. Each communicator records its last starts of collectives and its last
 * exchanges, and the waits for other ranks that are in progress. With SHARDRT_FLIGHT=FOLDER all of
 * it is written to FOLDER/rank-N.json when a communicator fails, and at SIGUSR1 (flight_file.c).
 * `shardrt-info --flight` compares the files of the ranks.
 *
 * Recording allocates nothing and takes no lock. A record is read while it is written: it has a
 * sequence number that is odd during a write, and a reader that sees it change calls the record
 * torn.
 */
#ifndef SRT_COLLECTIVES_FLIGHT_FLIGHT_H
#define SRT_COLLECTIVES_FLIGHT_FLIGHT_H

#include <stdatomic.h>

#include "base/base.h"
#include "collectives/bootstrap/internal.h"

/* Calls that a communicator keeps. */
#define SRT_FLIGHT_NCALLS 256u
/* Waits at a time that a communicator keeps: one a stream and one of its caller. More are not
 * recorded. */
#define SRT_FLIGHT_NWAITS 8u
/* Names that are longer, with their 0, are cut. */
#define SRT_FLIGHT_NAME 80
/* Ranks of a wait that are listed. */
#define SRT_FLIGHT_NRANKS 12

/* A start of a collective, or an exchange. */
typedef struct srt_flight_call {
	uint32_t number; /* of the start or the exchange on the communicator, from 1 */
	uint32_t dtype;
	const char *kind; /* the algorithm's name, or "exchange": over the control channel */
	uint64_t nbytes;
	double began_s; /* by srt_now_s() */
	char name[SRT_FLIGHT_NAME];
} srt_flight_call_t;

typedef enum srt_flight_state {
	SRT_FLIGHT_RUNNING,
	SRT_FLIGHT_COMPLETE,
	SRT_FLIGHT_FAILED,
} srt_flight_state_t;

/* Why a rank waits for others. */
typedef enum srt_flight_why {
	SRT_FLIGHT_DATA,    /* their bytes */
	SRT_FLIGHT_READERS, /* that they have read this rank's bytes */
	SRT_FLIGHT_ITSELF,  /* an earlier start, on another stream of this rank */
} srt_flight_why_t;

#define SRT_FLIGHT_NO_ROUND UINT32_MAX

/* A wait for other ranks. */
typedef struct srt_flight_wait {
	uint32_t number; /* of the start or the exchange */
	uint32_t why;    /* srt_flight_why_t */
	const char *kind;
	uint32_t round;  /* from 0, or SRT_FLIGHT_NO_ROUND */
	uint32_t nranks; /* that the rank waits for; the first SRT_FLIGHT_NRANKS are listed */
	int32_t ranks[SRT_FLIGHT_NRANKS]; /* world ranks */
	double since_s;
	char name[SRT_FLIGHT_NAME];
} srt_flight_wait_t;

/* The records of a communicator. */
typedef struct srt_flight srt_flight_t;

/* NULL on failure, with the last error set. */
srt_flight_t *srt_flight_create(void);
void srt_flight_destroy(srt_flight_t *flight);

/* Records a call, which begins now. `kind` is not copied. Called by one thread at a time. Returns
 * the call's index. */
uint32_t srt_flight_begin(srt_flight_t *flight, const char *kind, srt_dtype_t dtype,
			  uint32_t number, uint64_t nbytes, const char *name);
/* Records how a call ended; only the first end of a call counts. Thread-safe. */
void srt_flight_end(srt_flight_t *flight, uint32_t index, srt_flight_state_t state);

/* Records a wait, or how it goes on: `slot` is -1 or the result of the last call for it. The name
 * is copied to the record. Returns the slot, -1 if all are in use. Thread-safe. */
int srt_flight_wait(srt_flight_t *flight, int slot, srt_flight_wait_t *wait, const char *name);
/* The wait is over. The record of one that failed is kept. */
void srt_flight_wait_end(srt_flight_t *flight, int slot, bool failed);
/* Adds a rank that the wait is for. */
void srt_flight_wait_add(srt_flight_wait_t *wait, int world_rank);

/* ---- reading, by any thread ------------------------------------------------------------- */

/* The calls that the ring still has are those from srt_flight_first() to before _ncalls(). */
uint32_t srt_flight_ncalls(const srt_flight_t *flight);
uint32_t srt_flight_first(const srt_flight_t *flight);
/* False if the record is torn, or the ring no longer has it. */
bool srt_flight_read_call(const srt_flight_t *flight, uint32_t index, srt_flight_call_t *call,
			  srt_flight_state_t *state);
/* Whether the slot is in use. A torn record has nranks UINT32_MAX. */
bool srt_flight_read_wait(const srt_flight_t *flight, size_t slot, srt_flight_wait_t *wait,
			  bool *failed);

/* ---- flight_file.c: files of the records ------------------------------------------------ */

/* With SHARDRT_FLIGHT: this process writes its records to the folder until srt_flight_close().
 * `address` tells jobs apart. A folder that cannot be used is a warning. */
void srt_flight_open(srt_bootstrap_t *bootstrap, const char *address);
void srt_flight_close(srt_bootstrap_t *bootstrap);
/* A communicator has failed: the next srt_flight_flush() writes the file. Called with the
 * bootstrap's mutex held. */
void srt_flight_request(srt_bootstrap_t *bootstrap);
/* Returns when the records of the failures that were requested are in the file. Called before the
 * failure is returned to the program, which may then exit. */
void srt_flight_flush(srt_bootstrap_t *bootstrap);

#endif
