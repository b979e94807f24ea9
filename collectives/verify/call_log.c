/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log of calls (call_log.h): for each rank a ring of calls and a ring of ends of
 * sections, written by that rank only.
 *
 * Calls are numbered by section and place in it. An entry has a hash of all calls up to it, so a
 * difference is found later too if the entry itself was overwritten. The calls of a section that
 * was dropped are not in the hash.
 */
#include "collectives/verify/call_log.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/comm.h"
#include "collectives/shm/control.h"

/* How far a rank may be ahead of another one and still be compared: calls, sections. */
#define NCALLS 2048u
#define NENDS 256u
/* The place of a section's end. */
#define END UINT32_MAX

typedef struct entry {
	_Atomic uint64_t number; /* section << 32 | place; 0: being written */
	_Atomic uint64_t hash;   /* of all calls up to this one */
	_Atomic uint64_t what;   /* kind << 32 | index */
	_Atomic uint64_t value, part;
} entry_t;

struct srt_call_log {
	srt_comm_t *comm;
	srt_call_describe_fn *describe;
	const void *arg;
	srt_shm_memory_t *memory;
	entry_t *entries;      /* [size][NCALLS + NENDS] */
	uint32_t section;      /* from 1 */
	uint32_t place;        /* of the next call in the section */
	uint32_t position;     /* of the section's first call in the ring */
	uint64_t before, hash; /* of the calls before this section, of all */
};

srt_status_t srt_call_log_create(srt_comm_t *comm, const char *what, srt_call_describe_fn *describe,
				 const void *arg, srt_call_log_t **out)
{
	srt_call_log_t *log;
	srt_status_t status;

	*out = NULL;
	if (comm->size == 1 || comm->shm == NULL) /* ucx: the ranks share no memory */
		return SRT_OK;
	log = srt_calloc(1, sizeof(*log), what);
	status =
		srt_comm_status_consensus(comm, what, log != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY);
	if (status == SRT_OK)
		status = srt_shm_share(comm, what,
				       (size_t)comm->size * (NCALLS + NENDS) * sizeof(entry_t),
				       &log->memory);
	if (status != SRT_OK) {
		free(log);
		return status;
	}
	log->comm = comm;
	log->describe = describe;
	log->arg = arg;
	log->entries = (entry_t *)(void *)log->memory->base;
	log->section = 1;
	*out = log;
	return SRT_OK;
}

void srt_call_log_destroy(srt_call_log_t *log)
{
	if (log == NULL)
		return;
	srt_shm_release(log->memory);
	free(log);
}

static entry_t *entry_of(const srt_call_log_t *log, int rank, uint32_t place)
{
	const uint32_t i =
		place == END ? NCALLS + log->section % NENDS : (log->position + place) % NCALLS;

	return &log->entries[(size_t)rank * (NCALLS + NENDS) + i];
}

/* What rank `rank` called at this place of the section. False if it has not called yet, or the ring
 * no longer has it. */
static bool read_entry(const srt_call_log_t *log, int rank, uint32_t place, uint64_t *hash,
		       srt_call_t *call)
{
	const uint64_t number = (uint64_t)log->section << 32 | place;
	entry_t *entry = entry_of(log, rank, place);
	uint64_t what;

	if (atomic_load(&entry->number) != number)
		return false;
	*hash = atomic_load(&entry->hash);
	what = atomic_load(&entry->what);
	*call = (srt_call_t){
		.kind = (uint32_t)(what >> 32),
		.index = (uint32_t)what,
		.value = atomic_load(&entry->value),
		.part = atomic_load(&entry->part),
	};
	return atomic_load(&entry->number) == number;
}

static void write_entry(srt_call_log_t *log, uint32_t place, const srt_call_t *call)
{
	entry_t *entry = entry_of(log, log->comm->rank, place);

	/* Sequentially consistent, as are the reads of the other ranks' entries that follow: of two
	 * ranks that log at once, at least one sees the other's entry. */
	atomic_store(&entry->number, 0);
	atomic_store(&entry->hash, log->hash);
	atomic_store(&entry->what, (uint64_t)call->kind << 32 | call->index);
	atomic_store(&entry->value, call->value);
	atomic_store(&entry->part, call->part);
	atomic_store(&entry->number, (uint64_t)log->section << 32 | place);
}

/* All ranks report the same message: that of the first one. */
static srt_status_t fail_mismatch(srt_call_log_t *log, char text[SRT_CONTROL_TEXT])
{
	if (srt_shm_set_mismatch(log->comm, text))
		srt_comm_poison(log->comm, SRT_ERR_MISMATCH, true, "%s", text);
	return srt_fail(SRT_ERR_MISMATCH, "%s", text);
}

/* Both ranks called something at this place, and this or an earlier call differs. */
static bool describe_difference(const srt_call_log_t *log, const int ranks[2], uint32_t place,
				char text[2][160])
{
	srt_call_t calls[2];
	uint64_t hashes[2];

	if (!read_entry(log, ranks[0], place, &hashes[0], &calls[0]) ||
	    !read_entry(log, ranks[1], place, &hashes[1], &calls[1]) || hashes[0] == hashes[1])
		return false;
	for (int i = 0; i < 2; i++)
		log->describe(log->arg, &calls[i], text[i], sizeof(text[i]));
	return true;
}

/* Rank `other` called something else at this place or before: the first difference that the rings
 * still have. */
static srt_status_t fail_call(srt_call_log_t *log, int other, uint32_t last)
{
	const int me = log->comm->rank;
	const int ranks[2] = { other < me ? other : me, other < me ? me : other };
	char what[2][160] = { "makes a call", "makes another one" }, text[SRT_CONTROL_TEXT];
	uint32_t place = log->place < NCALLS ? 0 : log->place - NCALLS;

	while (place < log->place && !describe_difference(log, ranks, place, what))
		place++;
	if (place == log->place)
		describe_difference(log, ranks, last, what);
	snprintf(text, sizeof(text),
		 "the calls of the ranks differ: rank %d %s, rank %d %s; all ranks must make the "
		 "same calls with the same arguments in the same order, evaluations included",
		 srt_comm_world_rank(log->comm, ranks[0]), what[0],
		 srt_comm_world_rank(log->comm, ranks[1]), what[1]);
	return fail_mismatch(log, text);
}

/* The parts of all ranks make up the value, once all ranks have called. */
static srt_status_t check_sum(srt_call_log_t *log, const srt_call_t *call)
{
	uint64_t hash, sum = 0;
	char what[160], text[SRT_CONTROL_TEXT];
	srt_call_t theirs;

	for (int r = 0; r < log->comm->size; r++) {
		if (!read_entry(log, r, log->place, &hash, &theirs))
			return SRT_OK;
		sum += theirs.part;
	}
	if (sum == call->value)
		return SRT_OK;
	log->describe(log->arg, call, what, sizeof(what));
	snprintf(text, sizeof(text), "every rank %s, but together the ranks have %llu", what,
		 (unsigned long long)sum);
	return fail_mismatch(log, text);
}

/* Writes this rank's entry and compares it with those of the other ranks that are there. A child by
 * fork() shares the memory, but its calls are not those of the rank. */
static srt_status_t log_call(srt_call_log_t *log, uint32_t place, const srt_call_t *call)
{
	char what[160];

	if (log->comm->bootstrap->is_child) {
		log->describe(log->arg, call, what, sizeof(what));
		return srt_comm_fail(log->comm, 0, "it %s", what);
	}
	write_entry(log, place, call);
	for (int r = 0; r < log->comm->size; r++) {
		srt_call_t theirs;
		uint64_t hash;

		if (read_entry(log, r, place, &hash, &theirs) && hash != log->hash)
			return fail_call(log, r, place);
	}
	return SRT_OK;
}

static uint64_t hash_call(uint64_t hash, const srt_call_t *call)
{
	const uint64_t words[] = { call->kind, call->index, call->value };

	return srt_hash64(hash, words, sizeof(words));
}

srt_status_t srt_call_log_add(srt_call_log_t *log, const srt_call_t *call)
{
	srt_status_t status;

	if (log == NULL)
		return SRT_OK;
	log->hash = hash_call(log->hash, call);
	status = log_call(log, log->place, call);
	if (status == SRT_OK && call->is_sum)
		status = check_sum(log, call);
	log->place++;
	return status;
}

srt_status_t srt_call_log_end(srt_call_log_t *log, const srt_call_t *call, bool drops)
{
	srt_status_t status;

	if (log == NULL)
		return SRT_OK;
	log->hash = hash_call(drops ? log->before : log->hash, call);
	status = log_call(log, END, call);
	/* The number of calls that are dropped may differ. */
	log->position = drops ? 0 : log->position + log->place;
	log->section++;
	log->place = 0;
	log->before = log->hash;
	return status;
}
