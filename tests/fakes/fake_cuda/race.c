/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The race finder: which operations may run at the same time, by vector clocks, and whether two of
 * them touch the same bytes, at least one writing.
 *
 * Edges are: the order of a stream; record -> wait; all that the host knows to be over when it puts
 * an operation (it has synchronised with a stream or an event, or a query said so); host functions
 * with each other (they wait for each other's host-side flags). A host function ends no operation
 * for the host's other threads. Host threads count as one, and streams destroyed as their
 * successors in the slot: that hides races and invents none. Clocks move when operations run, and
 * whichever of two operations runs second does the comparing, so a missing edge is found whatever
 * the order in this run.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/fake_cuda/fake.h"

#define MAX_RECORDS 8192

/* What an operation that has run touched. */
typedef struct record {
	int slot;
	uint32_t seq;
	unsigned stream;
	const char *what;
	uintptr_t begin, end; /* of all */
	size_t n;
	fake_access_t *accesses;
} record_t;

fake_clock_t fake_host_clock, fake_fn_clock;
static bool taken[FAKE_MAX_SLOTS];
static uint32_t last_seq[FAKE_MAX_SLOTS]; /* of a slot's former owners */
static record_t *records;
static size_t nrecords;

int fake_slot_take(void)
{
	for (int i = 0; i < FAKE_MAX_SLOTS; i++)
		if (!taken[i]) {
			taken[i] = true;
			return i;
		}
	fake_complain("more than %d streams at a time", FAKE_MAX_SLOTS);
	abort();
}

void fake_slot_release(int slot)
{
	taken[slot] = false;
}

void fake_clock_join(fake_clock_t *clock, const fake_clock_t *other)
{
	for (int i = 0; i < FAKE_MAX_SLOTS; i++)
		if (clock->at[i] < other->at[i])
			clock->at[i] = other->at[i];
}

/* The first bytes that both touch and one writes, or NULL. */
static const fake_access_t *overlap(const record_t *r, const fake_access_t *accesses, size_t n)
{
	size_t i = 0, k = 0;

	while (i < r->n && k < n) {
		const fake_access_t *a = &r->accesses[i], *b = &accesses[k];

		if (a->begin < b->end && b->begin < a->end && (a->write || b->write))
			return a->begin > b->begin ? a : b;
		if (a->end < b->end)
			i++;
		else
			k++;
	}
	return NULL;
}

/* What any operation that runs from now on knows to be over: what the host knows; where a stream
 * has operations that were put before the host knew it, what the first of those does. */
static void known_by_all(fake_clock_t *floor)
{
	*floor = fake_host_clock;
	for (int i = 0; i < FAKE_MAX_SLOTS; i++) {
		const struct CUstream_st *s = fake.streams[i];
		fake_clock_t clock;

		if (s == NULL || (s->first == NULL && !s->busy))
			continue;
		clock = s->lane.clock;
		if (s->first != NULL)
			fake_clock_join(&clock, &s->first->known);
		for (int k = 0; k < FAKE_MAX_SLOTS; k++)
			if (floor->at[k] > clock.at[k])
				floor->at[k] = clock.at[k];
	}
}

void fake_race_tidy(void)
{
	size_t kept = 0, drop = nrecords > MAX_RECORDS ? nrecords - MAX_RECORDS : 0;
	fake_clock_t floor;

	if (nrecords < 64)
		return;
	known_by_all(&floor);
	for (size_t i = 0; i < nrecords; i++)
		if (i < drop || floor.at[records[i].slot] >= records[i].seq)
			free(records[i].accesses);
		else
			records[kept++] = records[i];
	nrecords = kept;
}

static void remember(const record_t *r, const fake_access_t *accesses)
{
	static size_t room, look_at = 256;

	if (nrecords >= look_at) {
		fake_race_tidy();
		look_at = nrecords + 256;
	}
	records = fake_grow(records, nrecords, &room, sizeof(*records));
	records[nrecords] = *r;
	records[nrecords].accesses = malloc(r->n * sizeof(*accesses));
	if (records[nrecords].accesses == NULL)
		abort();
	memcpy(records[nrecords].accesses, accesses, r->n * sizeof(*accesses));
	nrecords++;
}

void fake_race_note(fake_lane_t *lane, const char *what, const fake_access_t *accesses, size_t n)
{
	record_t now = { .slot = lane->slot, .stream = lane->stream, .what = what, .n = n };
	char where[160];

	if (lane->clock.at[lane->slot] < last_seq[lane->slot])
		lane->clock.at[lane->slot] = last_seq[lane->slot];
	now.seq = last_seq[lane->slot] = ++lane->clock.at[lane->slot];
	if (!n)
		return;
	now.begin = accesses[0].begin;
	now.end = accesses[n - 1].end;
	for (size_t i = 0; i < nrecords; i++) {
		const record_t *r = &records[i];
		const fake_access_t *at;

		if (lane->clock.at[r->slot] >= r->seq || r->end <= now.begin || now.end <= r->begin)
			continue;
		fake.compared++;
		at = overlap(r, accesses, n);
		if (at == NULL)
			continue;
		fake_complain("race: \"%s\" on stream %u and \"%s\" on stream %u touch the same "
			      "bytes (%s), one writes, and no event orders them",
			      r->what, r->stream, what, lane->stream,
			      fake_describe(at->begin, where, sizeof(where)));
		break;
	}
	remember(&now, accesses);
}

void fake_race_forget(uintptr_t begin, uintptr_t end)
{
	size_t kept = 0;

	for (size_t i = 0; i < nrecords; i++) {
		record_t *r = &records[i];
		size_t n = 0;

		for (size_t k = 0; k < r->n; k++)
			if (r->accesses[k].end <= begin || r->accesses[k].begin >= end)
				r->accesses[n++] = r->accesses[k];
		r->n = n;
		if (n)
			records[kept++] = *r;
		else
			free(r->accesses);
	}
	nrecords = kept;
}
