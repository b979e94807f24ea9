/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The staged transport, through bounce buffers (bounce.h), for devices whose memory peers cannot
 * map.
 *
 *     gather    a slot holds a chunk of the owner's extents, which the readers copy from there
 *     scatter   a slot holds, for each other rank in order, a chunk of what that rank owns. The
 *               owner copies its chunk of each peer's slot to scratch, where the sum reads it
 *     pairs     a slot holds, for each other rank in order, a chunk of the messages to that rank,
 *               which copies it from there
 *
 * Bytes moved per rank: the part that it offers, to its slot, and the parts that it reads, from the
 * peers' slots.
 *
 * The bounce buffers have flags, too. They show when a slot is free, and are set in the order of
 * rounds, on any stream. The flags of the collective show that a part is complete. So ranks that
 * start different collectives never read each other's parts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collective.h"
#include "collectives/shm/flags.h"
#include "collectives/transports/capabilities.h"
#include "collectives/transports/staged/bounce.h"

/* ---- the choice ---------------------------------------------------------------------------- */

/* Why collectives must be staged; "": they need not be. */
static void explain_staged(const srt_comm_t *comm, char *why, size_t n)
{
	why[0] = '\0';
	for (int r = 0; r < comm->size && why[0] == '\0'; r++) {
		const srt_capabilities_t *a = srt_capabilities_of(comm, 0),
					 *b = srt_capabilities_of(comm, r);
		const int rank = comm->world_rank[r];

		if (!comm->is_world && b->has_table && b->preference != SRT_PREFER_SHM)
			snprintf(why, n,
				 "device %s of rank %d uses NCCL, which serves only the world",
				 b->device, rank);
		else if (b->preference == SRT_PREFER_STAGED)
			snprintf(why, n, "SHARDRT_COLLECTIVES is staged on rank %d", rank);
		else if (!b->peer_memory)
			snprintf(why, n, "device %s of rank %d has no memory that peers can map",
				 b->device, rank);
		else if (strcmp(b->peer_kind, a->peer_kind) != 0)
			snprintf(why, n,
				 "device %s of rank %d and device %s of rank %d cannot map each "
				 "other's memory",
				 a->device, comm->world_rank[0], b->device, rank);
	}
}

/* Checks that all ranks can stage. */
static srt_status_t check_staging(const srt_comm_t *comm, const char *why)
{
	for (int r = 0; r < comm->size; r++) {
		if (!srt_capabilities_of(comm, r)->wraps_host)
			return srt_fail(
				SRT_ERR_UNSUPPORTED,
				"communicator \"%s\": the collectives must be staged (%s), but "
				"device %s of rank %d cannot copy to and from shared host memory",
				comm->name, why, srt_capabilities_of(comm, r)->device,
				comm->world_rank[r]);
	}
	return SRT_OK;
}

static void log_choice(const srt_comm_t *comm)
{
	char why[512];

	explain_staged(comm, why, sizeof(why));
	srt_log(SRT_LOG_INFO, "communicator \"%s\": collectives are staged: %s", comm->name, why);
}

static srt_status_t choose(const srt_comm_t *comm, bool *is_chosen)
{
	char why[512];

	explain_staged(comm, why, sizeof(why));
	if (why[0] == '\0')
		return SRT_OK;
	*is_chosen = true;
	SRT_TRY(srt_capabilities_check_slots(comm));
	return check_staging(comm, why);
}

static void describe(const srt_comm_t *world, srt_capabilities_t *mine)
{
	(void)world;
	mine->slot_nbytes = srt_staging_slot_nbytes(2);
}

/* ---- communicators and collectives ---------------------------------------------------------- */

static srt_status_t create_comm(srt_comm_t *comm)
{
	comm->transport_data =
		srt_comm_calloc(comm, 1, sizeof(srt_staged_comm_t), "creating a communicator");
	return comm->transport_data != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

static void destroy_comm(srt_comm_t *comm)
{
	free(comm->transport_data);
}

static srt_bounce_kind_t bounce_kind(const srt_coll_algorithm_t *algorithm)
{
	return algorithm->reduces ? SRT_BOUNCE_SUM : SRT_BOUNCE_COPY;
}

static srt_status_t plan_memory(const srt_comm_t *comm, const srt_coll_uses_t *uses,
				srt_coll_memory_t *memory)
{
	const bool has[] = { [SRT_BOUNCE_COPY] = uses->copies, [SRT_BOUNCE_SUM] = uses->sums };

	for (int kind = SRT_BOUNCE_COPY; kind <= SRT_BOUNCE_SUM; kind++) {
		if (!has[kind])
			continue;
		memory->scratch += srt_staging_nbytes(comm->size, (srt_bounce_kind_t)kind);
		memory->mapped += srt_staging_mapped_nbytes(comm->size);
	}
	return SRT_OK;
}

/* The id of this rank's bounce buffers, 0 = none. */
static uint64_t get_connect_info(const srt_comm_t *comm, const srt_coll_desc_t *desc)
{
	return srt_bounce_id(comm, bounce_kind(srt_coll_algorithm(desc->kind)));
}

static srt_status_t acquire_bounce(srt_coll_t *coll, const char *what, const uint64_t *peer_info)
{
	srt_bounce_t *bounce;

	SRT_TRY(srt_bounce_acquire(coll->comm, bounce_kind(coll->algorithm), what, peer_info,
				   &bounce));
	coll->transport_data = bounce;
	coll->has_slots = true;
	return SRT_OK;
}

static void release_bounce(srt_coll_t *coll)
{
	srt_bounce_release(coll->transport_data);
}

static srt_status_t start_rounds(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				 srt_stream_t *stream)
{
	srt_bounce_t *bounce = start->coll->transport_data;

	start->slot_seqno = bounce->nrounds;
	bounce->nrounds += start->coll->nrounds;
	return srt_step_submit_phases(start, epilogue, stream);
}

static size_t get_round_nbytes(const srt_coll_t *coll, srt_phase_t phase)
{
	const srt_bounce_t *bounce = coll->transport_data;
	size_t slot = bounce->slot_nbytes;

	if (phase == SRT_PHASE_GATHER)
		return slot;
	return srt_staging_part_nbytes(slot, coll->comm->size);
}

/* The round's slot in the segment of a rank. */
static srt_view_t slot_of(const srt_coll_start_t *start, uint32_t round, int rank)
{
	const srt_bounce_t *bounce = start->coll->transport_data;
	size_t slot = (start->slot_seqno + round) % SRT_STAGING_NSLOTS;

	return srt_view(bounce->segment[rank], slot * bounce->slot_nbytes, start->coll->dtype);
}

static srt_status_t offer_chunks(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	int me = coll->comm->rank;
	srt_phase_t phase = srt_coll_phase(coll, round);
	size_t each = get_round_nbytes(coll, phase);
	srt_view_t slot = slot_of(start, round, me);

	SRT_TRY(srt_host_step_add(start, SRT_ACTION_CLAIM, round, stream));
	if (phase == SRT_PHASE_GATHER)
		return srt_step_copy_out(start, round, &coll->owner[me], slot, stream);
	for (int r = 0; r < coll->comm->size; r++) {
		if (r != me)
			SRT_TRY(srt_step_copy_out(start, round, srt_coll_outgoing(coll, phase, r),
						  srt_view_at(&slot,
							      srt_staging_part(r, me) * each),
						  stream));
	}
	return SRT_OK;
}

/* The part of a peer in the scratch, for a scatter. */
static srt_view_t scratch_of(const srt_coll_t *coll, int peer)
{
	const srt_bounce_t *bounce = coll->transport_data;
	size_t each = get_round_nbytes(coll, SRT_PHASE_SCATTER);

	return srt_view(bounce->scratch, srt_staging_part(peer, coll->comm->rank) * each,
			coll->dtype);
}

static srt_status_t acquire_chunk(srt_coll_start_t *start, uint32_t round, int peer,
				  srt_stream_t *stream)
{
	srt_coll_t *coll = start->coll;
	int me = coll->comm->rank;
	size_t part = srt_staging_part(me, peer) * get_round_nbytes(coll, SRT_PHASE_SCATTER);
	srt_view_t slot = slot_of(start, round, peer);
	srt_step_copies_t copies = { 0 };

	if (srt_coll_phase(coll, round) != SRT_PHASE_SCATTER)
		return SRT_OK;
	SRT_TRY(srt_step_copy(start, &copies, scratch_of(coll, peer), srt_view_at(&slot, part),
			      srt_chunk_nbytes(coll, round, &coll->owner[me]), stream));
	return srt_step_copy_end(start, &copies, stream);
}

static srt_view_t locate_slot_chunk(const srt_coll_start_t *start, uint32_t round, int peer,
				    const srt_chunk_t *chunk)
{
	const srt_coll_t *coll = start->coll;
	srt_phase_t phase = srt_coll_phase(coll, round);
	srt_view_t slot = slot_of(start, round, peer);

	if (phase == SRT_PHASE_SCATTER)
		slot = scratch_of(coll, peer);
	if (phase == SRT_PHASE_PAIRS)
		slot = srt_view_at(&slot, srt_staging_part(coll->comm->rank, peer) *
						  get_round_nbytes(coll, phase));
	return srt_view_at(&slot, chunk->at);
}

/* ---- flags of the bounce buffers ------------------------------------------------------------ */

/* For the flag `id` of the bounce buffers, set `back` rounds before this one. */
static srt_flag_wait_t make_wait(const srt_coll_start_t *start, uint32_t round,
				 srt_shm_flag_id_t id, uint32_t back)
{
	const srt_bounce_t *bounce = start->coll->transport_data;

	return (srt_flag_wait_t){
		.start = start,
		.flags = bounce->flags,
		.id = id,
		.value = start->slot_seqno + round + 1 - back,
		.who = SRT_WAIT_OWN,
	};
}

/* What an action waits for. A claim waits until all ranks have released the earlier chunk of the
 * round's slot. The other waits are for this rank's flags of earlier rounds, which any stream may
 * set: so flags only rise, and the scratch and each slot have one user at a time. Returns the
 * number of waits. */
static int make_waits(const srt_coll_start_t *start, srt_action_t action, uint32_t round,
		      srt_flag_wait_t waits[2])
{
	switch (action) {
	case SRT_ACTION_CLAIM:
		waits[0] = make_wait(start, round, SRT_SHM_PUBLISH, SRT_STAGING_NSLOTS);
		waits[1] = make_wait(start, round, SRT_SHM_RELEASE, SRT_STAGING_NSLOTS);
		waits[1].who = SRT_WAIT_ALL;
		return 2;
	case SRT_ACTION_PUBLISH:
		waits[0] = make_wait(start, round, SRT_SHM_PUBLISH, 1);
		return 1;
	case SRT_ACTION_RELEASE:
	case SRT_ACTION_AWAIT:
		waits[0] = make_wait(start, round, SRT_SHM_RELEASE, 1);
		return 1;
	case SRT_ACTION_READERS:
		break;
	}
	return 0;
}

static srt_status_t run_action(srt_coll_start_t *start, srt_action_t action, uint32_t round)
{
	srt_flag_wait_t w[2];
	const int n = make_waits(start, action, round, w);

	for (int i = 0; i < n; i++)
		SRT_TRY(srt_flag_wait(&w[i]));
	if (action == SRT_ACTION_PUBLISH || action == SRT_ACTION_RELEASE)
		srt_shm_set_flag(srt_shm_flag_of(w[0].flags, start->coll->comm->rank, w[0].id),
				 w[0].value + 1);
	return srt_flag_run_action(start, action, round);
}

static bool is_idle(const srt_coll_start_t *start, srt_action_t action, uint32_t round)
{
	srt_flag_wait_t w[2];
	const int n = make_waits(start, action, round, w);

	for (int i = 0; i < n; i++) {
		if (!srt_flag_wait_is_complete(&w[i]))
			return false;
	}
	return srt_flag_action_is_idle(start, action, round);
}

/* There is no wait_readers: the peers read copies. */
const srt_transport_t srt_transport_staged = {
	.name = "staged",
	.describe = describe,
	.choose = choose,
	.log_choice = log_choice,
	.create = create_comm,
	.destroy = destroy_comm,
	.plan = plan_memory,
	.connect_info = get_connect_info,
	.connects_all = true,
	.connect = acquire_bounce,
	.disconnect = release_bounce,
	.start = start_rounds,
	.run_action = run_action,
	.is_idle = is_idle,
	.round_nbytes = get_round_nbytes,
	.offer = offer_chunks,
	.acquire = acquire_chunk,
	.locate = locate_slot_chunk,
};
