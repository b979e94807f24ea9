/* SPDX-License-Identifier: BSD-3-Clause */
/* The records of a communicator: see collectives/flight/flight.h. */
#include "collectives/flight/flight.h"

#include <stdlib.h>
#include <string.h>

#define CALL_NWORDS (sizeof(srt_flight_call_t) / sizeof(uint64_t))
#define WAIT_NWORDS (sizeof(srt_flight_wait_t) / sizeof(uint64_t))

_Static_assert(sizeof(srt_flight_call_t) % sizeof(uint64_t) == 0, "is copied in words");
_Static_assert(sizeof(srt_flight_wait_t) % sizeof(uint64_t) == 0, "is copied in words");

typedef struct call {
	_Atomic uint32_t seqno;    /* odd: being written */
	_Atomic uint64_t progress; /* index of the call << 32 | srt_flight_state_t */
	_Atomic uint64_t words[CALL_NWORDS];
} call_t;

typedef struct wait {
	_Atomic uint32_t use; /* wait_use_t */
	_Atomic uint32_t seqno;
	_Atomic uint64_t words[WAIT_NWORDS];
} wait_t;

typedef enum wait_use {
	WAIT_FREE,
	WAIT_CLAIMED, /* the record is not written yet */
	WAIT_ACTIVE,
	WAIT_FAILED,
} wait_use_t;

struct srt_flight {
	call_t calls[SRT_FLIGHT_NCALLS];
	wait_t waits[SRT_FLIGHT_NWAITS];
	_Atomic uint32_t ncalls; /* recorded so far, modulo 2^32 */
};

srt_flight_t *srt_flight_create(void)
{
	return srt_calloc(1, sizeof(srt_flight_t), "the flight recorder");
}

void srt_flight_destroy(srt_flight_t *flight)
{
	free(flight);
}

/* ---- records ------------------------------------------------------------------------------ */

/* Each word is stored after the odd number and before the even one; in read_words() loaded in the
 * same way. So a reader that has read a word of a later write sees another number after it. */
static void write_words(_Atomic uint32_t *seqno, _Atomic uint64_t *words, const void *record,
			size_t nwords)
{
	for (size_t i = 0; i < nwords; i++) {
		uint64_t word;

		memcpy(&word, (const unsigned char *)record + i * sizeof(word), sizeof(word));
		atomic_store_explicit(&words[i], word, memory_order_release);
	}
	atomic_store_explicit(seqno, atomic_load_explicit(seqno, memory_order_relaxed) + 1,
			      memory_order_release);
}

static void begin_write(_Atomic uint32_t *seqno)
{
	atomic_store_explicit(seqno, atomic_load_explicit(seqno, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

static void read_words(const _Atomic uint64_t *words, void *record, size_t nwords)
{
	for (size_t i = 0; i < nwords; i++) {
		const uint64_t word =
			atomic_load_explicit(&((_Atomic uint64_t *)(uintptr_t)words)[i],
					     memory_order_acquire);

		memcpy((unsigned char *)record + i * sizeof(word), &word, sizeof(word));
	}
}

static uint32_t load_seqno(const _Atomic uint32_t *seqno)
{
	return atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)seqno, memory_order_acquire);
}

/* Copies a name, which is the last field of a record, and fills its last word with zeros. Returns
 * the number of words of the record that are in use. */
static size_t copy_name(void *record, char name[SRT_FLIGHT_NAME], const char *from)
{
	size_t n = strlen(from);
	const size_t at = (size_t)(name - (char *)record);

	n = n < SRT_FLIGHT_NAME ? n : SRT_FLIGHT_NAME - 1;
	memset(name + n / sizeof(uint64_t) * sizeof(uint64_t), 0, sizeof(uint64_t));
	memcpy(name, from, n);
	return (at + n) / sizeof(uint64_t) + 1;
}

/* ---- calls ---------------------------------------------------------------------------------- */

uint32_t srt_flight_begin(srt_flight_t *flight, const char *kind, srt_dtype_t dtype,
			  uint32_t number, uint64_t nbytes, const char *name)
{
	const uint32_t index = atomic_load_explicit(&flight->ncalls, memory_order_relaxed);
	call_t *call = &flight->calls[index % SRT_FLIGHT_NCALLS];
	srt_flight_call_t record; /* most of the name stays unset */
	size_t nwords;

	record.number = number;
	record.dtype = (uint32_t)dtype;
	record.kind = kind;
	record.nbytes = nbytes;
	record.began_s = srt_now_s();
	nwords = copy_name(&record, record.name, name);
	begin_write(&call->seqno);
	atomic_store_explicit(&call->progress, (uint64_t)index << 32 | SRT_FLIGHT_RUNNING,
			      memory_order_release);
	write_words(&call->seqno, call->words, &record, nwords);
	atomic_store_explicit(&flight->ncalls, index + 1, memory_order_release);
	return index;
}

void srt_flight_end(srt_flight_t *flight, uint32_t index, srt_flight_state_t state)
{
	uint64_t running = (uint64_t)index << 32 | SRT_FLIGHT_RUNNING;

	/* A later call may have the entry already. */
	atomic_compare_exchange_strong(&flight->calls[index % SRT_FLIGHT_NCALLS].progress, &running,
				       (uint64_t)index << 32 | state);
}

uint32_t srt_flight_ncalls(const srt_flight_t *flight)
{
	return load_seqno(&flight->ncalls);
}

uint32_t srt_flight_first(const srt_flight_t *flight)
{
	const uint32_t n = srt_flight_ncalls(flight);
	const call_t *oldest = &flight->calls[n % SRT_FLIGHT_NCALLS];

	/* The number of calls wraps; an entry that was never written does not. 1: it is being
	 * written for the first time. */
	return load_seqno(&oldest->seqno) <= 1 ? 0 : n - SRT_FLIGHT_NCALLS;
}

bool srt_flight_read_call(const srt_flight_t *flight, uint32_t index, srt_flight_call_t *record,
			  srt_flight_state_t *state)
{
	const call_t *call = &flight->calls[index % SRT_FLIGHT_NCALLS];
	const uint32_t seqno = load_seqno(&call->seqno);
	uint64_t progress;

	read_words(&call->progress, &progress, 1);
	read_words(call->words, record, CALL_NWORDS);
	*state = (srt_flight_state_t)(progress & UINT32_MAX);
	return seqno % 2 == 0 && progress >> 32 == index && load_seqno(&call->seqno) == seqno;
}

/* ---- waits ---------------------------------------------------------------------------------- */

void srt_flight_wait_add(srt_flight_wait_t *wait, int world_rank)
{
	if (wait->nranks < SRT_FLIGHT_NRANKS)
		wait->ranks[wait->nranks] = world_rank;
	wait->nranks++;
}

/* A free slot, which becomes that of the caller, or -1. */
static int claim_slot(srt_flight_t *flight)
{
	for (int slot = 0; slot < (int)SRT_FLIGHT_NWAITS; slot++) {
		uint32_t unused = WAIT_FREE;

		if (atomic_compare_exchange_strong(&flight->waits[slot].use, &unused, WAIT_CLAIMED))
			return slot;
	}
	return -1;
}

int srt_flight_wait(srt_flight_t *flight, int slot, srt_flight_wait_t *record, const char *name)
{
	wait_t *wait;
	size_t nwords;

	if (slot < 0)
		slot = claim_slot(flight);
	if (slot < 0)
		return slot;
	wait = &flight->waits[slot];
	nwords = copy_name(record, record->name, name);
	begin_write(&wait->seqno);
	write_words(&wait->seqno, wait->words, record, nwords);
	atomic_store_explicit(&wait->use, WAIT_ACTIVE, memory_order_release);
	return slot;
}

void srt_flight_wait_end(srt_flight_t *flight, int slot, bool failed)
{
	if (slot >= 0)
		atomic_store_explicit(&flight->waits[slot].use, failed ? WAIT_FAILED : WAIT_FREE,
				      memory_order_release);
}

bool srt_flight_read_wait(const srt_flight_t *flight, size_t slot, srt_flight_wait_t *record,
			  bool *failed)
{
	const wait_t *wait = &flight->waits[slot];
	const uint32_t use = load_seqno(&wait->use), seqno = load_seqno(&wait->seqno);

	read_words(wait->words, record, WAIT_NWORDS);
	record->name[sizeof(record->name) - 1] = '\0';
	*failed = use == WAIT_FAILED;
	if (seqno % 2 != 0 || load_seqno(&wait->seqno) != seqno)
		record->nranks = UINT32_MAX;
	return use == WAIT_ACTIVE || use == WAIT_FAILED;
}
