/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rounds of starts: the actions of host steps, which post messages and wait for them. At most
 * two rounds of receives and two rounds of sends of a start are pending.
 *
 * A barrier is one round: in step k, ranks wait for a message of rank - 2^k and send one to
 * rank + 2^k, log2(ranks) messages each.
 */
#include "collectives/persistent/wait.h"
#include "collectives/transports/ucx/internal.h"

/* A receive slot has a part for each peer, except in a broadcast. Direct messages have no limit,
 * but all ranks must have the same rounds. */
size_t srt_ucx_round_nbytes(const srt_coll_t *coll, srt_phase_t phase)
{
	const srt_comm_t *comm = coll->comm;
	const size_t slot = srt_ucx_comm_of(comm)->slot_nbytes;

	if (phase == SRT_PHASE_SIGNAL ||
	    (phase != SRT_PHASE_SCATTER && srt_ucx_comm_of(comm)->all_direct))
		return SIZE_MAX;
	if (coll->algorithm->has_root)
		return slot;
	return srt_staging_part_nbytes(slot, comm->size);
}

/* ---- where parts are ----------------------------------------------------------------------- */

/* Number of the round in the set of slots. */
static uint32_t seqno_of(const srt_coll_start_t *start, uint32_t round)
{
	return start->slot_seqno + round;
}

static size_t slot_at(const srt_coll_start_t *start, uint32_t round)
{
	return seqno_of(start, round) % SRT_STAGING_NSLOTS *
	       srt_ucx_slots_of(start->coll)->slot_nbytes;
}

size_t srt_ucx_received_at(const srt_coll_start_t *start, uint32_t round, int peer)
{
	const srt_coll_t *coll = start->coll;

	if (coll->algorithm->has_root)
		return slot_at(start, round);
	return slot_at(start, round) +
	       srt_staging_part(peer, coll->comm->rank) *
		       srt_ucx_round_nbytes(coll, srt_coll_phase(coll, round));
}

size_t srt_ucx_sent_at(const srt_coll_start_t *start, uint32_t round, int peer)
{
	const srt_coll_t *coll = start->coll;
	const srt_phase_t phase = srt_coll_phase(coll, round);

	if (phase == SRT_PHASE_GATHER)
		return slot_at(start, round);
	return slot_at(start, round) +
	       srt_staging_part(peer, coll->comm->rank) * srt_ucx_round_nbytes(coll, phase);
}

/* Whether the round's messages are received in a slot. */
static bool receives_in_slot(const srt_coll_start_t *start, uint32_t round)
{
	const srt_coll_t *coll = start->coll;

	return srt_ucx_slots_of(coll) != NULL &&
	       (srt_coll_phase(coll, round) == SRT_PHASE_SCATTER ||
		!srt_ucx_comm_of(coll->comm)->direct);
}

static bool sends_from_slot(const srt_coll_t *coll)
{
	return srt_ucx_slots_of(coll) != NULL && srt_ucx_slots_of(coll)->sent != NULL;
}

/* ---- posting; called with the worker's mutex held -------------------------------------------- */

/* Adds the round's chunks of the extents in a buffer of the collective. */
static bool add_chunks(srt_ucx_op_t *op, const srt_extents_t *extents, srt_view_t view, bool shard)
{
	const srt_coll_t *coll = op->start->coll;
	char *base = srt_view_host(view);
	srt_chunk_iter_t at = { 0 };
	srt_chunk_t chunk;

	while (srt_chunk_next(coll, op->round, extents, &at, &chunk)) {
		if (!srt_ucx_op_add(op, base + (shard ? chunk.shard_offset : chunk.full_offset),
				    chunk.nbytes))
			return false;
	}
	return true;
}

static void drop(srt_ucx_op_t *op)
{
	srt_ucx_worker_t *w = srt_ucx_worker_of(op->start->coll->comm);

	op->next = w->free_ops;
	w->free_ops = op;
}

static srt_status_t post_receive(srt_coll_start_t *start, uint32_t round, int peer)
{
	const srt_coll_t *coll = start->coll;
	const srt_phase_t phase = srt_coll_phase(coll, round);
	const srt_extents_t *extents = srt_coll_incoming(coll, phase, peer);
	const size_t nbytes = srt_chunk_nbytes(coll, round, extents);
	const bool shard = phase == SRT_PHASE_PAIRS;
	srt_ucx_op_t *op;
	bool added;

	if (!srt_phase_reads(coll, phase, coll->comm->rank, peer) || nbytes == 0)
		return SRT_OK;
	op = srt_ucx_op_begin(start, round, peer, false);
	if (op == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (receives_in_slot(start, round))
		added = srt_ucx_op_add(op,
				       srt_ucx_slots_of(coll)->received_host +
					       srt_ucx_received_at(start, round, peer),
				       nbytes);
	else
		added = add_chunks(op, extents, shard ? coll->shard : coll->full, shard);
	if (!added) {
		drop(op);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	srt_ucx_op_post(op, false);
	return SRT_OK;
}

/* Each rank starts with rank + 1, so that they do not all use the same peer. */
static srt_status_t post_receives(srt_coll_start_t *start, uint32_t round)
{
	const srt_comm_t *comm = start->coll->comm;

	srt_ucx_start_of(start)->nposted = round + 1;
	for (int k = 1; k < comm->size; k++)
		SRT_TRY(post_receive(start, round, (comm->rank + k) % comm->size));
	return SRT_OK;
}

static srt_status_t post_send(srt_coll_start_t *start, uint32_t round, int peer)
{
	const srt_coll_t *coll = start->coll;
	const int me = coll->comm->rank;
	const srt_phase_t phase = srt_coll_phase(coll, round);
	const srt_extents_t *extents = srt_coll_outgoing(coll, phase, peer);
	const size_t nbytes = srt_chunk_nbytes(coll, round, extents);
	srt_ucx_op_t *op;
	bool added;

	if (!srt_phase_reads(coll, phase, peer, me) || nbytes == 0)
		return SRT_OK;
	op = srt_ucx_op_begin(start, round, peer, true);
	if (op == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (sends_from_slot(coll)) {
		op->nusers = &srt_ucx_slots_of(coll)
				      ->nusing[seqno_of(start, round) % SRT_STAGING_NSLOTS];
		added = srt_ucx_op_add(op,
				       srt_ucx_slots_of(coll)->sent_host +
					       srt_ucx_sent_at(start, round, peer),
				       nbytes);
	} else {
		added = add_chunks(op, extents, coll->source,
				   coll->algorithm->source == SRT_SOURCE_SHARD);
	}
	if (!added) {
		drop(op);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	srt_ucx_op_post(op, !srt_coll_reads(coll, me, peer));
	return SRT_OK;
}

static srt_status_t post_sends(srt_coll_start_t *start, uint32_t round)
{
	const srt_comm_t *comm = start->coll->comm;

	srt_ucx_start_of(start)->npublished = round + 1;
	for (int k = 1; k < comm->size; k++)
		SRT_TRY(post_send(start, round, (comm->rank + k) % comm->size));
	return SRT_OK;
}

/* Whether the receives of the next round can be posted: its slot is free. In an all-reduce the sums
 * are received where the parts were sent from. */
static bool can_post_receives(const srt_coll_start_t *start)
{
	const uint32_t round = srt_ucx_start_of(start)->nposted;

	if (!srt_ucx_happened(start, SRT_UCX_RECEIVED, round))
		return false;
	if (srt_coll_phase_index(start->coll, round) == 1 &&
	    !srt_ucx_happened(start, SRT_UCX_PHASE_SENT, 0))
		return false;
	return !receives_in_slot(start, round) ||
	       srt_ucx_happened(start, SRT_UCX_RELEASED, seqno_of(start, round) - 1);
}

/* ---- actions ------------------------------------------------------------------------------- */

static srt_status_t lock_and(srt_coll_start_t *start, uint32_t round,
			     srt_status_t (*post)(srt_coll_start_t *start, uint32_t round))
{
	srt_ucx_worker_t *w = srt_ucx_worker_of(start->coll->comm);
	srt_status_t status;

	srt_ucx_lock(w);
	status = post(start, round);
	srt_ucx_unlock(w);
	return status;
}

/* The receives first: a message that finds its receive is not copied. */
static srt_status_t post_round(srt_coll_start_t *start, uint32_t round)
{
	srt_ucx_worker_t *w = srt_ucx_worker_of(start->coll->comm);

	if (srt_ucx_start_of(start)->nposted == round && can_post_receives(start))
		SRT_TRY(post_receives(start, round));
	SRT_TRY(post_sends(start, round));
	if (sends_from_slot(start->coll)) {
		srt_ucx_slots_of(start->coll)->npublished++;
		srt_ucx_notify(w);
	}
	srt_ucx_thread_wake(w);
	return SRT_OK;
}

static srt_status_t post_next_receives(srt_coll_start_t *start, uint32_t round)
{
	if (srt_ucx_start_of(start)->nposted == round + 1 && round + 1 < start->coll->nrounds &&
	    can_post_receives(start))
		return post_receives(start, round + 1);
	return SRT_OK;
}

static srt_status_t publish(srt_coll_start_t *start, uint32_t round)
{
	if (sends_from_slot(start->coll))
		SRT_TRY(srt_ucx_wait(start, SRT_UCX_PUBLISHED, seqno_of(start, round)));
	SRT_TRY(srt_ucx_wait(start, SRT_UCX_SENT, round));
	return lock_and(start, round, post_round);
}

static srt_status_t await(srt_coll_start_t *start, uint32_t round)
{
	while (srt_ucx_start_of(start)->nposted <= round) {
		const uint32_t next = srt_ucx_start_of(start)->nposted;

		SRT_TRY(srt_ucx_wait(start, SRT_UCX_RECEIVED, next));
		if (srt_coll_phase_index(start->coll, next) == 1)
			SRT_TRY(srt_ucx_wait(start, SRT_UCX_PHASE_SENT, 0));
		if (receives_in_slot(start, next))
			SRT_TRY(srt_ucx_wait(start, SRT_UCX_RELEASED, seqno_of(start, next) - 1));
		SRT_TRY(lock_and(start, next, post_receives));
	}
	SRT_TRY(lock_and(start, round, post_next_receives));
	return srt_ucx_wait(start, SRT_UCX_RECEIVED, round);
}

static srt_status_t release(srt_coll_start_t *start, uint32_t round)
{
	srt_ucx_worker_t *w = srt_ucx_worker_of(start->coll->comm);

	SRT_TRY(srt_ucx_wait(start, SRT_UCX_RELEASED, seqno_of(start, round)));
	srt_ucx_lock(w);
	srt_ucx_slots_of(start->coll)->nreleased++;
	srt_ucx_notify(w);
	srt_ucx_unlock(w);
	return SRT_OK;
}

static srt_status_t claim(srt_coll_start_t *start, uint32_t round)
{
	SRT_TRY(srt_ucx_wait(start, SRT_UCX_PUBLISHED, seqno_of(start, round) - 1));
	return srt_ucx_wait(start, SRT_UCX_SLOT_SENT, seqno_of(start, round));
}

/* Messages without bytes. */
static srt_status_t post_signals(srt_coll_start_t *start, uint32_t distance)
{
	const srt_comm_t *comm = start->coll->comm;
	const int step = (int)distance;
	srt_ucx_op_t *recv = srt_ucx_op_begin(start, 0,
					      (comm->rank - step + comm->size) % comm->size, false),
		     *send;

	if (recv == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	srt_ucx_op_post(recv, false);
	send = srt_ucx_op_begin(start, 0, (comm->rank + step) % comm->size, true);
	if (send == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	srt_ucx_op_post(send, false);
	return SRT_OK;
}

static srt_status_t run_barrier(srt_coll_start_t *start)
{
	for (uint32_t step = 1; step < (uint32_t)start->coll->comm->size; step *= 2) {
		SRT_TRY(lock_and(start, step, post_signals));
		SRT_TRY(srt_ucx_wait(start, SRT_UCX_RECEIVED, 0));
	}
	return SRT_OK;
}

srt_status_t srt_ucx_run_action(srt_coll_start_t *start, srt_action_t action, uint32_t round)
{
	const bool signals = action != SRT_ACTION_READERS &&
			     srt_coll_phase(start->coll, round) == SRT_PHASE_SIGNAL;

	switch (action) {
	case SRT_ACTION_RELEASE:
		return release(start, round);
	case SRT_ACTION_CLAIM:
		return claim(start, round);
	case SRT_ACTION_PUBLISH:
		return publish(start, round);
	case SRT_ACTION_AWAIT:
		return signals ? run_barrier(start) : await(start, round);
	case SRT_ACTION_READERS:
		return srt_ucx_wait(start, SRT_UCX_ALL_SENT, 0);
	}
	return SRT_OK;
}

static bool happened(const srt_coll_start_t *start, srt_ucx_event_t event, uint32_t value)
{
	srt_ucx_worker_t *w = srt_ucx_worker_of(start->coll->comm);
	bool yes;

	srt_ucx_lock(w);
	yes = srt_ucx_happened(start, event, value);
	srt_ucx_unlock(w);
	return yes;
}

bool srt_ucx_is_idle(const srt_coll_start_t *start, srt_action_t action, uint32_t round)
{
	switch (action) {
	case SRT_ACTION_RELEASE:
		return srt_ucx_slots_of(start->coll) == NULL;
	case SRT_ACTION_CLAIM:
		return happened(start, SRT_UCX_PUBLISHED, seqno_of(start, round) - 1) &&
		       happened(start, SRT_UCX_SLOT_SENT, seqno_of(start, round));
	case SRT_ACTION_READERS:
		return happened(start, SRT_UCX_ALL_SENT, 0);
	case SRT_ACTION_PUBLISH: /* a barrier sends where it waits */
		return srt_coll_phase(start->coll, round) == SRT_PHASE_SIGNAL;
	case SRT_ACTION_AWAIT:
		break;
	}
	return false;
}
