/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host functions of a start: they set this rank's words and wait for those of others.
 *
 * A host function may cost tens of microseconds on a device, so what follows each other on the
 * stream without device work between goes into one, and a wait whose end has come before it is put
 * on the stream is left out.
 *
 * A wait spins briefly if there is a core for each rank, then sleeps on the word in short slices.
 * Each slice looks for what makes waiting pointless: the communicator's poison (a death, an
 * abort, a failure elsewhere), a peer that has left, a peer that started another collective at
 * this point of the sequence, the deadline. Whoever finds one poisons, so that all later waits
 * fail at once.
 *
 * Staged, the words of the lane stand beside those of the collective: the lane's say when a slot is
 * free, and are set in the order of lane ticks on whatever streams the starts are; the
 * collective's say that a part is there, so that ranks that start different collectives never take
 * each other's parts.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/collective.h"

#define SPINS 2000
#define SLICE_S 0.01

/* What is waited for: `value` in the word `id` of some ranks. */
typedef struct wait {
	const srt_coll_start_t *start;
	srt_shm_word_t *words; /* [size][SRT_SHM_NWORDS] */
	srt_shm_word_id_t id;
	uint32_t value;
	enum { WAIT_OFFERS, WAIT_READERS, WAIT_ALL, WAIT_OWN } who;
	srt_flow_t flow; /* of WAIT_OFFERS */
} wait_t;

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* "all-gather of \"block3\"" of the collective with that number. */
static void describe_coll(srt_comm_t *comm, uint32_t id, char *text, size_t n)
{
	pthread_mutex_lock(&comm->bootstrap->mutex);
	snprintf(text, n, "a collective that is destroyed here (number %u)", (unsigned)id);
	for (srt_coll_t *c = comm->colls; c != NULL; c = c->next) {
		if (c->id == id)
			snprintf(text, n, "%s of \"%s\"", c->algorithm->name, c->name);
	}
	pthread_mutex_unlock(&comm->bootstrap->mutex);
}

/*
 * Did all ranks that have come this far start the same collective? The first rank that has a log
 * entry is compared with the first that differs; which these are depends on who has come, so all
 * ranks say what the first to look says. Until it has, nobody is poisoned.
 */
bool srt_point_disagrees(const srt_coll_start_t *start)
{
	srt_comm_t *comm = start->coll->comm;
	uint32_t first_id = 0, id;
	int first = -1;
	char a[160], b[160], text[SRT_CONTROL_TEXT] = "";

	for (int r = 0; r < comm->size; r++) {
		if (!srt_shm_logged(comm, r, start->number, &id))
			continue;
		if (first < 0) {
			first = r;
			first_id = id;
		} else if (id != first_id) {
			describe_coll(comm, first_id, a, sizeof(a));
			describe_coll(comm, id, b, sizeof(b));
			snprintf(text, sizeof(text),
				 "rank %d started %s, rank %d started %s (start %u on "
				 "communicator \"%s\"); all ranks must start the same ones "
				 "in the same order",
				 comm->world_rank[first], a, comm->world_rank[r], b,
				 (unsigned)start->number, comm->name);
			if (srt_shm_settle(comm, text))
				srt_comm_poison(comm, SRT_ERR_MISMATCH, true, "%s", text);
			return true;
		}
	}
	return false;
}

/* ---- waiting --------------------------------------------------------------------------- */

static srt_shm_word_t *word_of(const wait_t *w, int rank)
{
	return &w->words[(size_t)rank * SRT_SHM_NWORDS + w->id];
}

static bool concerns(const wait_t *w, int rank)
{
	const srt_coll_t *coll = w->start->coll;
	int me = coll->comm->rank;

	if (w->who == WAIT_OWN)
		return rank == me;
	if (rank == me)
		return false;
	if (w->who == WAIT_OFFERS)
		return srt_flow_reads(coll, w->flow, me, rank);
	return w->who == WAIT_ALL || srt_coll_reads(coll, rank, me);
}

static bool is_over(const wait_t *w)
{
	for (int r = 0; r < w->start->coll->comm->size; r++) {
		if (concerns(w, r) && !srt_shm_reached(word_of(w, r), w->value))
			return false;
	}
	return true;
}

/* The deadline has passed: names all ranks whose word is behind. */
static void poison_late(const wait_t *w, double waited_s)
{
	const srt_coll_t *coll = w->start->coll;
	srt_comm_t *comm = coll->comm;
	char list[128] = "";
	size_t n = 0;
	int late = 0;

	for (int r = 0; r < comm->size; r++) {
		if (!concerns(w, r) || srt_shm_reached(word_of(w, r), w->value))
			continue;
		if (n + 8 < sizeof(list))
			n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%d", late ? ", " : "",
					      comm->world_rank[r]);
		late++;
	}
	srt_comm_poison(comm, SRT_ERR_TIMEOUT, true,
			"%s of \"%s\": rank%s %s %s not %s it within %.3g s (SHARDRT_TIMEOUT)",
			coll->algorithm->name, coll->name, late == 1 ? "" : "s", late ? list : "?",
			late == 1 ? "has" : "have",
			w->id == SRT_SHM_RELEASE ? "finished" : "reached", waited_s);
}

static srt_status_t fail_wait(const srt_coll_start_t *start, double since)
{
	double waited_s = since > 0 ? srt_awake_s() - since : 0;

	return srt_comm_fail(start->coll->comm, waited_s, "%s of \"%s\"",
			     start->coll->algorithm->name, start->coll->name);
}

/* Past the spinning. */
static srt_status_t wait_slowly(const wait_t *w, int rank)
{
	srt_comm_t *comm = w->start->coll->comm;
	srt_shm_word_t *word = word_of(w, rank);
	double since = srt_awake_s(), timeout_s = comm->bootstrap->timeout_s;

	for (;;) {
		double waited_s;

		/* The state before the word: a rank that set it and left has done its part. */
		srt_peer_state_t state =
			srt_control_peer_state(comm->bootstrap->control, comm->world_rank[rank]);
		if (srt_shm_reached(word, w->value))
			return SRT_OK;
		if (state == SRT_PEER_LEFT) {
			/* Who has left reads nothing any more. */
			if (w->id == SRT_SHM_RELEASE)
				return SRT_OK;
			srt_comm_poison_left(comm, rank);
		}
		if (srt_comm_poisoned(comm))
			return fail_wait(w->start, since);
		(void)srt_point_disagrees(w->start);
		waited_s = srt_awake_s() - since;
		if (waited_s >= timeout_s)
			poison_late(w, waited_s);
		if (srt_comm_poisoned(comm))
			return fail_wait(w->start, since);
		srt_shm_sleep(word, w->value,
			      timeout_s - waited_s < SLICE_S ? timeout_s - waited_s : SLICE_S);
	}
}

static srt_status_t wait_word(const wait_t *w, int rank)
{
	const srt_shm_word_t *word = word_of(w, rank);

	if (srt_comm_poisoned(w->start->coll->comm))
		return fail_wait(w->start, 0);
	if (srt_shm_reached(word, w->value))
		return SRT_OK;
	for (int i = 0; w->start->coll->comm->shm->spin && i < SPINS; i++) {
		relax();
		if (srt_shm_reached(word, w->value))
			return SRT_OK;
	}
	return wait_slowly(w, rank);
}

/* Rank + 1 first: not everybody at the same one. */
static srt_status_t wait_for(const wait_t *w)
{
	const srt_comm_t *comm = w->start->coll->comm;

	for (int k = 1; k <= comm->size; k++) {
		int rank = (comm->rank + k) % comm->size;

		if (concerns(w, rank))
			SRT_TRY(wait_word(w, rank));
	}
	return SRT_OK;
}

srt_status_t srt_point_wait_all(const srt_coll_start_t *start, srt_shm_word_t *words,
				srt_shm_word_id_t id, uint32_t value)
{
	const wait_t w = {
		.start = start, .words = words, .id = id, .value = value, .who = WAIT_ALL
	};

	return wait_for(&w);
}

/* ---- what the waits of a round are -------------------------------------------------------- */

static uint32_t tick(const srt_coll_start_t *start, uint32_t round)
{
	return (start->epoch - 1) * start->coll->nrounds + round + 1;
}

static uint32_t lane_tick(const srt_coll_start_t *start, uint32_t round)
{
	return start->lane_tick + round + 1;
}

static wait_t offers(const srt_coll_start_t *start, uint32_t round)
{
	const srt_coll_t *coll = start->coll;

	return (wait_t){
		.start = start,
		.words = coll->words,
		.id = SRT_SHM_PUBLISH,
		.value = tick(start, round),
		.who = WAIT_OFFERS,
		.flow = srt_coll_flow(coll, round),
	};
}

static wait_t readers(const srt_coll_start_t *start)
{
	return (wait_t){
		.start = start,
		.words = start->coll->words,
		.id = SRT_SHM_RELEASE,
		.value = tick(start, start->coll->nrounds - 1),
		.who = WAIT_READERS,
	};
}

/* All have released what was in the round's slot before. */
static wait_t slot(const srt_coll_start_t *start, uint32_t round)
{
	return (wait_t){
		.start = start,
		.words = start->coll->lane->words,
		.id = SRT_SHM_RELEASE,
		.value = lane_tick(start, round) - SRT_STAGING_NSLOTS,
		.who = WAIT_ALL,
	};
}

/* This rank has done the same in the lane `back` rounds before, on whatever stream: words only
 * rise, the scratch has one user at a time, and so has a slot. */
static wait_t turn(const srt_coll_start_t *start, uint32_t round, srt_shm_word_id_t id,
		   uint32_t back)
{
	return (wait_t){
		.start = start,
		.words = start->coll->lane->words,
		.id = id,
		.value = lane_tick(start, round) - back,
		.who = WAIT_OWN,
	};
}

/* ---- host functions ------------------------------------------------------------------- */

static void set_words(const srt_coll_start_t *start, uint32_t round, srt_shm_word_id_t id)
{
	const srt_coll_t *coll = start->coll;
	int me = coll->comm->rank;

	if (coll->lane != NULL)
		srt_shm_set(&coll->lane->words[(size_t)me * SRT_SHM_NWORDS + id],
			    lane_tick(start, round));
	srt_shm_set(srt_coll_word(coll, me, id), tick(start, round));
}

static srt_status_t run_action(const srt_coll_start_t *start, srt_action_t action, uint32_t round)
{
	bool staged = start->coll->lane != NULL;
	wait_t w;

	switch (action) {
	case SRT_ACTION_RELEASE:
	case SRT_ACTION_PUBLISH: {
		srt_shm_word_id_t id =
			action == SRT_ACTION_PUBLISH ? SRT_SHM_PUBLISH : SRT_SHM_RELEASE;
		if (staged) {
			w = turn(start, round, id, 1);
			SRT_TRY(wait_for(&w));
		}
		set_words(start, round, id);
		return SRT_OK;
	}
	case SRT_ACTION_CLAIM:
		w = turn(start, round, SRT_SHM_PUBLISH, SRT_STAGING_NSLOTS);
		SRT_TRY(wait_for(&w));
		w = slot(start, round);
		return wait_for(&w);
	case SRT_ACTION_AWAIT:
		if (staged) {
			w = turn(start, round, SRT_SHM_RELEASE, 1);
			SRT_TRY(wait_for(&w));
		}
		w = offers(start, round);
		return wait_for(&w);
	case SRT_NACTIONS:
		break;
	}
	return SRT_OK;
}

/* The action would have nothing to wait for. */
static bool is_idle(const srt_coll_start_t *start, srt_action_t action, uint32_t round)
{
	wait_t w;

	if (action == SRT_ACTION_CLAIM) {
		w = turn(start, round, SRT_SHM_PUBLISH, SRT_STAGING_NSLOTS);
		if (!is_over(&w))
			return false;
		w = slot(start, round);
		return is_over(&w);
	}
	if (action != SRT_ACTION_AWAIT)
		return false;
	if (start->coll->lane != NULL) {
		w = turn(start, round, SRT_SHM_RELEASE, 1);
		if (!is_over(&w))
			return false;
	}
	w = offers(start, round);
	return is_over(&w);
}

static void done(srt_coll_start_t *start)
{
	atomic_fetch_sub_explicit(&start->npending, 1, memory_order_release);
}

/* The work before it on the stream may be worth nothing, though the device has done it: peers must
 * not take what came of it. */
static srt_status_t check_device(const srt_coll_start_t *start)
{
	srt_status_t status = srt_device_check(start->coll->comm->device);

	if (status != SRT_OK)
		srt_comm_poison(start->coll->comm, status, true, "%s", srt_last_error());
	return status;
}

static srt_status_t run_point(void *arg)
{
	const srt_coll_point_t *point = arg;
	srt_coll_start_t *start = point->start;
	srt_status_t status = SRT_OK;

	if (srt_comm_poisoned(start->coll->comm))
		status = fail_wait(start, 0);
	else
		status = check_device(start);
	for (int a = 0; a < SRT_NACTIONS && status == SRT_OK; a++) {
		if (point->round[a] != 0)
			status = run_action(start, (srt_action_t)a, point->round[a] - 1);
	}
	done(start);
	return status;
}

static srt_status_t run_fence(void *arg)
{
	srt_coll_start_t *start = arg;
	wait_t w = readers(start);
	srt_status_t status = wait_for(&w);

	done(start);
	return status;
}

static srt_status_t put(srt_coll_start_t *start, srt_stream_t *stream, srt_host_fn *fn, void *arg)
{
	srt_status_t status;

	atomic_fetch_add_explicit(&start->npending, 1, memory_order_relaxed);
	status = srt_stream_host_fn(stream, fn, arg);
	if (status != SRT_OK)
		done(start);
	return status;
}

srt_status_t srt_point_put(srt_coll_start_t *start, srt_stream_t *stream)
{
	if (!start->is_open)
		return SRT_OK;
	start->is_open = false;
	return put(start, stream, run_point, &start->points[start->npoints - 1]);
}

srt_status_t srt_point_add(srt_coll_start_t *start, srt_action_t action, uint32_t round,
			   srt_stream_t *stream)
{
	srt_coll_point_t *point;

	if (start->coll->comm->size == 1 || is_idle(start, action, round))
		return SRT_OK;
	/* A host function does its actions in one order only. */
	for (int a = (int)action; start->is_open && a < SRT_NACTIONS; a++) {
		if (start->points[start->npoints - 1].round[a] != 0)
			SRT_TRY(srt_point_put(start, stream));
	}
	if (!start->is_open) {
		if (start->npoints == start->coll->npoints)
			return srt_fail(SRT_ERR_STATE, "%s of \"%s\" has more steps than planned",
					start->coll->algorithm->name, start->coll->name);
		start->points[start->npoints] = (srt_coll_point_t){ .start = start };
		start->npoints++;
		start->is_open = true;
	}
	point = &start->points[start->npoints - 1];
	point->round[action] = 1 + round;
	return SRT_OK;
}

srt_status_t srt_point_fence(srt_coll_start_t *start, srt_stream_t *stream)
{
	wait_t w = readers(start);

	return is_over(&w) ? SRT_OK : put(start, stream, run_fence, start);
}
