/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The actions of transports whose ranks share memory (zero copy, staged): they set this rank's
 * flags and wait for the flags of other ranks.
 *
 * Staged, the bounce buffers have flags too. They show when a slot is free, and are set in the
 * order of rounds, on any stream. The flags of the collective show that a part is complete. So
 * ranks that start different collectives never read each other's parts.
 */
#include "collectives/shm/flags.h"

static uint32_t round_seqno(const srt_coll_start_t *start, uint32_t round)
{
	return (start->epoch - 1) * start->coll->nrounds + round + 1;
}

static uint32_t bounce_seqno(const srt_coll_start_t *start, uint32_t round)
{
	return start->bounce_seqno + round + 1;
}

static srt_flag_wait_t make_offers_wait(const srt_coll_start_t *start, uint32_t round)
{
	const srt_coll_t *coll = start->coll;

	return (srt_flag_wait_t){
		.start = start,
		.flags = coll->flags,
		.id = SRT_SHM_PUBLISH,
		.value = round_seqno(start, round),
		.who = SRT_WAIT_OFFERS,
		.phase = srt_coll_phase(coll, round),
	};
}

static srt_flag_wait_t make_readers_wait(const srt_coll_start_t *start)
{
	return (srt_flag_wait_t){
		.start = start,
		.flags = start->coll->flags,
		.id = SRT_SHM_RELEASE,
		.value = round_seqno(start, start->coll->nrounds - 1),
		.who = SRT_WAIT_READERS,
	};
}

/* All ranks have released the earlier chunk of the round's slot. */
static srt_flag_wait_t make_slot_wait(const srt_coll_start_t *start, uint32_t round)
{
	return (srt_flag_wait_t){
		.start = start,
		.flags = start->coll->bounce->flags,
		.id = SRT_SHM_RELEASE,
		.value = bounce_seqno(start, round) - SRT_STAGING_NSLOTS,
		.who = SRT_WAIT_ALL,
	};
}

/* This rank has set the same flag of the bounce buffers `back` rounds earlier, on any stream. So
 * flags only rise, and the scratch and each slot have one user at a time. */
static srt_flag_wait_t make_own_wait(const srt_coll_start_t *start, uint32_t round,
				     srt_shm_flag_id_t id, uint32_t back)
{
	return (srt_flag_wait_t){
		.start = start,
		.flags = start->coll->bounce->flags,
		.id = id,
		.value = bounce_seqno(start, round) - back,
		.who = SRT_WAIT_OWN,
	};
}

static void set_flags(const srt_coll_start_t *start, uint32_t round, srt_shm_flag_id_t id)
{
	const srt_coll_t *coll = start->coll;
	int me = coll->comm->rank;

	if (coll->bounce != NULL)
		srt_shm_set_flag(srt_shm_flag_of(coll->bounce->flags, me, id),
				 bounce_seqno(start, round));
	srt_shm_set_flag(srt_shm_flag_of(coll->flags, me, id), round_seqno(start, round));
}

srt_status_t srt_flag_run_action(srt_coll_start_t *start, srt_action_t action, uint32_t round)
{
	bool staged = start->coll->bounce != NULL;
	srt_flag_wait_t w;

	switch (action) {
	case SRT_ACTION_RELEASE:
	case SRT_ACTION_PUBLISH: {
		srt_shm_flag_id_t id =
			action == SRT_ACTION_PUBLISH ? SRT_SHM_PUBLISH : SRT_SHM_RELEASE;
		if (staged) {
			w = make_own_wait(start, round, id, 1);
			SRT_TRY(srt_flag_wait(&w));
		}
		set_flags(start, round, id);
		return SRT_OK;
	}
	case SRT_ACTION_CLAIM:
		w = make_own_wait(start, round, SRT_SHM_PUBLISH, SRT_STAGING_NSLOTS);
		SRT_TRY(srt_flag_wait(&w));
		w = make_slot_wait(start, round);
		return srt_flag_wait(&w);
	case SRT_ACTION_AWAIT:
		if (staged) {
			w = make_own_wait(start, round, SRT_SHM_RELEASE, 1);
			SRT_TRY(srt_flag_wait(&w));
		}
		w = make_offers_wait(start, round);
		return srt_flag_wait(&w);
	case SRT_ACTION_READERS:
		w = make_readers_wait(start);
		return srt_flag_wait(&w);
	}
	return SRT_OK;
}

bool srt_flag_action_is_idle(const srt_coll_start_t *start, srt_action_t action, uint32_t round)
{
	srt_flag_wait_t w;

	if (action == SRT_ACTION_READERS) {
		w = make_readers_wait(start);
		return srt_flag_wait_is_complete(&w);
	}
	if (action == SRT_ACTION_CLAIM) {
		w = make_own_wait(start, round, SRT_SHM_PUBLISH, SRT_STAGING_NSLOTS);
		if (!srt_flag_wait_is_complete(&w))
			return false;
		w = make_slot_wait(start, round);
		return srt_flag_wait_is_complete(&w);
	}
	if (action != SRT_ACTION_AWAIT)
		return false;
	if (start->coll->bounce != NULL) {
		w = make_own_wait(start, round, SRT_SHM_RELEASE, 1);
		if (!srt_flag_wait_is_complete(&w))
			return false;
	}
	w = make_offers_wait(start, round);
	return srt_flag_wait_is_complete(&w);
}
