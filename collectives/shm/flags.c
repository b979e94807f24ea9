/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for flags. A wait spins shortly if there is a core for each rank, and then sleeps on the
 * flag in short slices. After each slice it checks the reasons to give up: the communicator's
 * poison (a death, an abort, a failure of another rank), a peer that has left, a peer that started
 * another collective under this number, the deadline, which is soon if this rank destroys the
 * collective. A rank that finds one poisons the
 * communicator, so that all later waits fail at once.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/shm/flags.h"

#define SPINS 2000
#define SLICE_S 0.01

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static srt_shm_flag_t *flag_of(const srt_flag_wait_t *w, int rank)
{
	return &w->flags[(size_t)rank * SRT_SHM_NFLAGS + w->id];
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

bool srt_flag_wait_is_complete(const srt_flag_wait_t *w)
{
	for (int r = 0; r < w->start->coll->comm->size; r++) {
		if (waits_for(w, r) && !srt_shm_flag_reached(flag_of(w, r), w->value))
			return false;
	}
	return true;
}

/* Lists the ranks that have not set their flag, "1, 3". Returns how many they are. */
static int list_late_ranks(const srt_flag_wait_t *w, char *list, size_t nbytes)
{
	const srt_comm_t *comm = w->start->coll->comm;
	size_t n = 0;
	int late = 0;

	list[0] = '\0';
	for (int r = 0; r < comm->size; r++) {
		if (!waits_for(w, r) || srt_shm_flag_reached(flag_of(w, r), w->value))
			continue;
		if (n + 8 < nbytes)
			n += (size_t)snprintf(list + n, nbytes - n, "%s%d", late ? ", " : "",
					      comm->world_rank[r]);
		late++;
	}
	return late;
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
		if (waits_for(w, r) && !srt_shm_flag_reached(flag_of(w, r), w->value))
			srt_flight_wait_add(&record, comm->world_rank[r]);
	}
	return srt_flight_wait(comm->flight, slot, &record, w->start->coll->name);
}

/* The collective is being destroyed. */
static void poison_destroyed(const srt_flag_wait_t *w)
{
	const srt_coll_t *coll = w->start->coll;
	char list[128];
	int late = list_late_ranks(w, list, sizeof(list));

	srt_comm_poison(coll->comm, SRT_ERR_ABORTED, true,
			"%s while %s of \"%s\" waited for rank%s %s", coll->closing_text,
			coll->algorithm->name, coll->name, late == 1 ? "" : "s", late ? list : "?");
}

/* The deadline has passed. */
static void poison_late(const srt_flag_wait_t *w, double waited_s)
{
	const srt_coll_t *coll = w->start->coll;
	srt_comm_t *comm = coll->comm;
	char list[128], stopped[160];
	int late = list_late_ranks(w, list, sizeof(list));

	srt_wait_list_stopped(comm, stopped, sizeof(stopped));
	srt_comm_poison(
		comm, SRT_ERR_TIMEOUT, true,
		"%s of \"%s\": rank %d gave up after %.3g s (SHARDRT_TIMEOUT): rank%s %s did not "
		"%s it%s",
		coll->algorithm->name, coll->name, comm->world_rank[comm->rank], waited_s,
		late == 1 ? "" : "s", late ? list : "?",
		w->id == SRT_SHM_RELEASE ? "finish" : "reach", stopped);
}

srt_status_t srt_flag_wait_fail(const srt_coll_start_t *start, double since)
{
	double waited_s = since > 0 ? srt_awake_s() - since : 0;

	return srt_comm_fail(start->coll->comm, waited_s, "%s of \"%s\"",
			     start->coll->algorithm->name, start->coll->name);
}

/* Waits by sleeping. *slot: of the wait's record. */
static srt_status_t sleep_until_set(const srt_flag_wait_t *w, int rank, int *slot)
{
	srt_comm_t *comm = w->start->coll->comm;
	srt_shm_flag_t *flag = flag_of(w, rank);
	double since = srt_awake_s(), timeout_s = comm->bootstrap->timeout_s;
	double closing_since = 0, recorded_since = srt_now_s();
	bool warned = false;
	char what[160];

	snprintf(what, sizeof(what), "%s of \"%s\"", w->start->coll->algorithm->name,
		 w->start->coll->name);
	for (;;) {
		double waited_s;

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
		if (srt_comm_poisoned(comm))
			return srt_flag_wait_fail(w->start, since);
		(void)srt_start_order_differs(w->start);
		waited_s = srt_awake_s() - since;
		if (closing_since == 0 && atomic_load(&w->start->coll->is_closing))
			closing_since = srt_awake_s();
		if (closing_since > 0 && srt_awake_s() - closing_since >= comm->bootstrap->close_s)
			poison_destroyed(w);
		if (!warned && waited_s >= srt_wait_warn_s(comm)) {
			warned = true;
			srt_wait_warn(comm, what, waited_s);
		}
		if (waited_s >= timeout_s)
			poison_late(w, waited_s);
		if (srt_comm_poisoned(comm))
			return srt_flag_wait_fail(w->start, since);
		/* Again each time: another stream's wait may have replaced it. */
		srt_wait_publish(comm, what);
		srt_shm_wait_flag(flag, w->value,
				  timeout_s - waited_s < SLICE_S ? timeout_s - waited_s : SLICE_S);
	}
}

static srt_status_t wait_flag(const srt_flag_wait_t *w, int rank)
{
	const srt_shm_flag_t *flag = flag_of(w, rank);
	srt_status_t status;
	int slot = -1;

	if (srt_comm_poisoned(w->start->coll->comm))
		return srt_flag_wait_fail(w->start, 0);
	if (srt_shm_flag_reached(flag, w->value))
		return SRT_OK;
	for (int i = 0; w->start->coll->comm->shm->spin && i < SPINS; i++) {
		cpu_relax();
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
