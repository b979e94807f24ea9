/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The steps that algorithms put on a stream: publish, wait, release, copy.
 *
 * A wait spins briefly if there is a core for each rank, then sleeps on the word in short slices.
 * Each slice looks for what makes waiting pointless: the communicator's poison (a death, an
 * abort, a failure elsewhere), a peer that has left, a peer that started another collective at
 * this point of the sequence, the deadline. Whoever finds one poisons, so that all later waits
 * fail at once.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/collective.h"

#define SPINS 2000
#define SLICE_S 0.01

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
 * ranks say what the first to look says.
 */
static void check_order(const srt_coll_start_t *start)
{
	srt_comm_t *comm = start->coll->comm;
	uint32_t first_id = 0, id;
	int first = -1;
	char a[160], b[160], text[SRT_PEERS_TEXT] = "";

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
			return;
		}
	}
}

/* The deadline has passed: names all ranks whose word is behind. */
static void poison_late(const srt_coll_start_t *start, srt_shm_word_id_t id, double waited_s)
{
	srt_comm_t *comm = start->coll->comm;
	char list[128] = "";
	size_t n = 0;
	int late = 0;

	for (int r = 0; r < comm->size; r++) {
		if (r == comm->rank ||
		    srt_shm_reached(srt_coll_word(start->coll, r, id), start->epoch))
			continue;
		if (n + 8 < sizeof(list))
			n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%d", late ? ", " : "",
					      comm->world_rank[r]);
		late++;
	}
	srt_comm_poison(comm, SRT_ERR_TIMEOUT, true,
			"%s of \"%s\": rank%s %s %s not %s it within %.3g s (SHARDRT_TIMEOUT)",
			start->coll->algorithm->name, start->coll->name, late == 1 ? "" : "s",
			late ? list : "?", late == 1 ? "has" : "have",
			id == SRT_SHM_RELEASE ? "finished" : "reached", waited_s);
}

static srt_status_t fail_wait(const srt_coll_start_t *start, double since)
{
	double waited_s = since > 0 ? srt_now_s() - since : 0;

	return srt_comm_fail(start->coll->comm, waited_s, "%s of \"%s\"",
			     start->coll->algorithm->name, start->coll->name);
}

/* Past the spinning. */
static srt_status_t wait_slowly(const srt_coll_start_t *start, int peer, srt_shm_word_id_t id)
{
	srt_coll_t *coll = start->coll;
	srt_comm_t *comm = coll->comm;
	srt_shm_word_t *word = srt_coll_word(coll, peer, id);
	double since = srt_now_s(), timeout_s = comm->bootstrap->timeout_s;

	for (;;) {
		double waited_s;

		/* The state before the word: a rank that set it and left has done its part. */
		srt_peer_state_t state =
			srt_peers_state(comm->bootstrap->peers, comm->world_rank[peer]);
		if (srt_shm_reached(word, start->epoch))
			return SRT_OK;
		if (state == SRT_PEER_LEFT) {
			/* Who has left reads nothing any more. */
			if (id == SRT_SHM_RELEASE)
				return SRT_OK;
			srt_comm_poison_left(comm, peer);
		}
		if (srt_comm_poisoned(comm))
			return fail_wait(start, since);
		check_order(start);
		waited_s = srt_now_s() - since;
		if (waited_s >= timeout_s)
			poison_late(start, id, waited_s);
		if (srt_comm_poisoned(comm))
			return fail_wait(start, since);
		srt_shm_sleep(word, start->epoch,
			      timeout_s - waited_s < SLICE_S ? timeout_s - waited_s : SLICE_S);
	}
}

static srt_status_t wait_word(const srt_coll_start_t *start, int peer, srt_shm_word_id_t id)
{
	const srt_shm_word_t *word = srt_coll_word(start->coll, peer, id);

	if (srt_comm_poisoned(start->coll->comm))
		return fail_wait(start, 0);
	if (srt_shm_reached(word, start->epoch))
		return SRT_OK;
	for (int i = 0; start->coll->comm->shm->spin && i < SPINS; i++) {
		relax();
		if (srt_shm_reached(word, start->epoch))
			return SRT_OK;
	}
	return wait_slowly(start, peer, id);
}

/* ---- host functions ------------------------------------------------------------------- */

static void done(srt_coll_start_t *start)
{
	atomic_fetch_sub_explicit(&start->npending, 1, memory_order_release);
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

static srt_status_t set_own(srt_coll_start_t *start, srt_shm_word_id_t id)
{
	srt_coll_t *coll = start->coll;
	srt_status_t status = SRT_OK;

	if (srt_comm_poisoned(coll->comm))
		status = fail_wait(start, 0);
	else
		srt_shm_set(srt_coll_word(coll, coll->comm->rank, id), start->epoch);
	done(start);
	return status;
}

static srt_status_t run_publish(void *arg)
{
	return set_own(arg, SRT_SHM_PUBLISH);
}

static srt_status_t run_publish2(void *arg)
{
	return set_own(arg, SRT_SHM_PUBLISH2);
}

static srt_status_t run_release(void *arg)
{
	return set_own(arg, SRT_SHM_RELEASE);
}

static srt_status_t run_await(void *arg)
{
	const srt_coll_wait_t *w = arg;
	srt_status_t status = wait_word(w->start, w->peer, SRT_SHM_PUBLISH);

	done(w->start);
	return status;
}

static srt_status_t run_await2(void *arg)
{
	const srt_coll_wait_t *w = arg;
	srt_status_t status = wait_word(w->start, w->peer, SRT_SHM_PUBLISH2);

	done(w->start);
	return status;
}

static srt_status_t run_await_all(void *arg)
{
	srt_coll_start_t *start = arg;
	const srt_comm_t *comm = start->coll->comm;
	srt_status_t status = SRT_OK;

	for (int k = 1; k < comm->size && status == SRT_OK; k++)
		status = wait_word(start, (comm->rank + k) % comm->size, SRT_SHM_PUBLISH);
	done(start);
	return status;
}

static srt_status_t run_fence(void *arg)
{
	srt_coll_start_t *start = arg;
	const srt_coll_t *coll = start->coll;
	const srt_comm_t *comm = coll->comm;
	srt_status_t status = SRT_OK;

	for (int k = 1; k < comm->size && status == SRT_OK; k++) {
		int peer = (comm->rank + k) % comm->size;
		if (coll->algorithm->reads(coll, peer, comm->rank))
			status = wait_word(start, peer, SRT_SHM_RELEASE);
	}
	done(start);
	return status;
}

/* ---- steps ---------------------------------------------------------------------------- */

srt_status_t srt_step_publish(srt_coll_start_t *start, srt_stream_t *stream)
{
	return start->coll->comm->size == 1 ? SRT_OK : put(start, stream, run_publish, start);
}

srt_status_t srt_step_publish2(srt_coll_start_t *start, srt_stream_t *stream)
{
	return start->coll->comm->size == 1 ? SRT_OK : put(start, stream, run_publish2, start);
}

srt_status_t srt_step_release(srt_coll_start_t *start, srt_stream_t *stream)
{
	return start->coll->comm->size == 1 ? SRT_OK : put(start, stream, run_release, start);
}

srt_status_t srt_step_await(srt_coll_start_t *start, int peer, srt_stream_t *stream)
{
	return put(start, stream, run_await, &start->wait[peer]);
}

srt_status_t srt_step_await2(srt_coll_start_t *start, int peer, srt_stream_t *stream)
{
	return put(start, stream, run_await2, &start->wait[peer]);
}

srt_status_t srt_step_await_all(srt_coll_start_t *start, srt_stream_t *stream)
{
	return start->coll->comm->size == 1 ? SRT_OK : put(start, stream, run_await_all, start);
}

srt_status_t srt_step_fence(srt_coll_start_t *start, srt_stream_t *stream)
{
	return start->coll->comm->size == 1 ? SRT_OK : put(start, stream, run_fence, start);
}

srt_status_t srt_step_copy(srt_coll_t *coll, int owner, srt_stream_t *stream)
{
	const srt_view_t *from = &coll->source[owner], *to = &coll->full;
	bool like_shard = coll->algorithm->source == SRT_SOURCE_SHARD;

	for (size_t i = 0; i < coll->owner[owner].nruns; i++) {
		const srt_run_t *run = &coll->owner[owner].runs[i];
		size_t src = from->offset + (like_shard ? run->shard_offset : run->full_offset);
		size_t dst = to->offset + run->full_offset;

		/* A shard that lies at its place in the full layout is there already. */
		if (from->buffer == to->buffer && src == dst)
			continue;
		SRT_TRY(srt_copy(stream, to->buffer, dst, from->buffer, src, run->nbytes));
	}
	return SRT_OK;
}
