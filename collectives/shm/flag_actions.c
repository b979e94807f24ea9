/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The actions of transports whose ranks share memory (zero copy, staged): they set this rank's
 * flags of the collective, and wait for the flags of other ranks.
 */
#include "collectives/shm/flags.h"

static uint32_t round_seqno(const srt_coll_start_t *start, uint32_t round)
{
	return (start->epoch - 1) * start->coll->nrounds + round + 1;
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

static void set_flag(const srt_coll_start_t *start, uint32_t round, srt_shm_flag_id_t id)
{
	const srt_coll_t *coll = start->coll;

	srt_shm_set_flag(srt_shm_flag_of(coll->flags, coll->comm->rank, id),
			 round_seqno(start, round));
}

srt_status_t srt_flag_run_action(srt_coll_start_t *start, srt_action_t action, uint32_t round)
{
	srt_flag_wait_t w;

	switch (action) {
	case SRT_ACTION_RELEASE:
		set_flag(start, round, SRT_SHM_RELEASE);
		break;
	case SRT_ACTION_CLAIM: /* there are no slots */
		break;
	case SRT_ACTION_PUBLISH:
		set_flag(start, round, SRT_SHM_PUBLISH);
		break;
	case SRT_ACTION_AWAIT:
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

	if (action == SRT_ACTION_RELEASE || action == SRT_ACTION_PUBLISH)
		return false;
	if (action == SRT_ACTION_CLAIM)
		return true;
	w = action == SRT_ACTION_AWAIT ? make_offers_wait(start, round) : make_readers_wait(start);
	return srt_flag_wait_is_complete(&w);
}
