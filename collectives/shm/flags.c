/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for flags. A wait spins shortly, and yields its core meanwhile if ranks share cores. Then
 * it sleeps on the flag in short slices. Before each slice it checks whether a peer has left and
 * the other reasons to give up (collectives/persistent/wait.h).
 */
#include <sched.h>

#include "collectives/persistent/wait.h"
#include "collectives/shm/flags.h"

#define SPINS 2000
#define YIELDS 50 /* of ranks without a core each */

static srt_shm_flag_t *flag_of(const srt_flag_wait_t *w, int rank)
{
	return srt_shm_flag_of(w->flags, rank, w->id);
}

static bool waits_for(const srt_flag_wait_t *w, int rank)
{
	const srt_coll_t *coll = w->start->coll;
	int me = coll->comm->rank;

	if (w->who == SRT_WAIT_OWN)
		return rank == me;
	if (rank == me)
		return false;
	if (w->who == SRT_WAIT_OFFERS)
		return srt_phase_reads(coll, w->phase, me, rank);
	return w->who == SRT_WAIT_ALL || srt_coll_reads(coll, rank, me);
}

static bool is_late(const srt_flag_wait_t *w, int rank)
{
	return waits_for(w, rank) && !srt_shm_flag_reached(flag_of(w, rank), w->value);
}

bool srt_flag_wait_is_complete(const srt_flag_wait_t *w)
{
	for (int r = 0; r < w->start->coll->comm->size; r++) {
		if (is_late(w, r))
			return false;
	}
	return true;
}

static void add_late(const void *arg, srt_late_ranks_t *late)
{
	const srt_flag_wait_t *w = arg;
	const srt_comm_t *comm = w->start->coll->comm;

	for (int r = 0; r < comm->size; r++) {
		if (is_late(w, r))
			srt_late_ranks_add(late, comm->world_rank[r]);
	}
}

/* The round of the flag's value, unless the flags count something else. */
static uint32_t round_of(const srt_flag_wait_t *w)
{
	const srt_coll_start_t *start = w->start;
	const srt_coll_t *coll = start->coll;

	if (w->flags != coll->flags || w->who == SRT_WAIT_READERS)
		return SRT_FLIGHT_NO_ROUND;
	return w->value - 1 - (start->epoch - 1) * coll->nrounds;
}

/* Records the wait, or the ranks that it is still for. */
static int record_wait(const srt_flag_wait_t *w, int slot, double since)
{
	const srt_comm_t *comm = w->start->coll->comm;
	srt_flight_wait_t record = {
		.number = w->start->number,
		.kind = w->start->coll->algorithm->name,
		.why = w->who == SRT_WAIT_OWN   ? SRT_FLIGHT_ITSELF :
		       w->id == SRT_SHM_RELEASE ? SRT_FLIGHT_READERS :
						  SRT_FLIGHT_DATA,
		.round = round_of(w),
		.since_s = since,
	};

	for (int r = 0; r < comm->size; r++) {
		if (is_late(w, r))
			srt_flight_wait_add(&record, comm->world_rank[r]);
	}
	return srt_flight_wait(comm->flight, slot, &record, w->start->coll->name);
}

/* Waits by sleeping. *slot: of the wait's record. */
static srt_status_t sleep_until_set(const srt_flag_wait_t *w, int rank, int *slot)
{
	srt_comm_t *comm = w->start->coll->comm;
	srt_shm_flag_t *flag = flag_of(w, rank);
	const double recorded_since = srt_now_s();
	srt_wait_checks_t checks;

	srt_wait_begin(&checks, w->start, add_late, w,
		       w->id == SRT_SHM_RELEASE ? "finish" : "reach");
	for (;;) {
		double slice_s = 0;

		/* Read the state before the flag: a rank may set its flag and then leave. */
		srt_peer_state_t state =
			srt_control_peer_state(comm->bootstrap->control, comm->world_rank[rank]);
		if (srt_shm_flag_reached(flag, w->value))
			return SRT_OK;
		*slot = record_wait(w, *slot, recorded_since);
		if (state == SRT_PEER_LEFT) {
			/* A rank that has left does not read any more. */
			if (w->id == SRT_SHM_RELEASE)
				return SRT_OK;
			srt_comm_poison_left(comm, rank);
		}
		SRT_TRY(srt_wait_check(&checks, &slice_s));
		srt_shm_wait_flag(flag, w->value, slice_s);
	}
}

static srt_status_t wait_flag(const srt_flag_wait_t *w, int rank)
{
	const bool spins = srt_bootstrap_spins(w->start->coll->comm->bootstrap);
	const srt_shm_flag_t *flag = flag_of(w, rank);
	srt_status_t status;
	int slot = -1;

	if (srt_comm_poisoned(w->start->coll->comm))
		return srt_wait_fail(w->start, 0);
	if (srt_shm_flag_reached(flag, w->value))
		return SRT_OK;
	for (int i = 0; i < (spins ? SPINS : YIELDS); i++) {
		if (spins)
			srt_wait_relax();
		else
			sched_yield();
		if (srt_shm_flag_reached(flag, w->value))
			return SRT_OK;
	}
	status = sleep_until_set(w, rank, &slot);
	srt_flight_wait_end(w->start->coll->comm->flight, slot, status != SRT_OK);
	srt_wait_publish(w->start->coll->comm, "");
	return status;
}

/* Each rank starts with rank + 1, so that they do not all wait for the same peer. */
srt_status_t srt_flag_wait(const srt_flag_wait_t *w)
{
	const srt_comm_t *comm = w->start->coll->comm;

	for (int k = 1; k <= comm->size; k++) {
		int rank = (comm->rank + k) % comm->size;

		if (waits_for(w, rank))
			SRT_TRY(wait_flag(w, rank));
	}
	return SRT_OK;
}

srt_status_t srt_flag_wait_all(const srt_coll_start_t *start, srt_shm_flag_t *flags,
			       srt_shm_flag_id_t id, uint32_t value)
{
	const srt_flag_wait_t w = {
		.start = start, .flags = flags, .id = id, .value = value, .who = SRT_WAIT_ALL
	};

	return srt_flag_wait(&w);
}
