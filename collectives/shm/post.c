/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges of small data in shared memory (bootstrap/oob.c): each rank writes its bytes to its
 * post, once for all other ranks. They read it even if the rank has ended since. The last rank
 * wakes the others, so a rank sleeps once, not once for each rank that it waits for. While one is
 * late, what the others have posted is seen after the slice of a sleep.
 */
#include <string.h>

#include "collectives/comm_state.h"
#include "collectives/shm/control.h"

/* Longest sleep between checks of the rank's post, its state and *stop. */
#define SLICE_S 0.02

/* The rank's post of the part that this rank takes part in. */
static srt_shm_post_t *post_of(const srt_comm_t *comm, int rank)
{
	const srt_shm_t *shm = comm->shm;

	return &shm->posts[(size_t)(shm->nposts & 1) * (size_t)comm->size + (size_t)rank];
}

static size_t part_nbytes(size_t left)
{
	return left < SRT_SHM_POST_NBYTES ? left : SRT_SHM_POST_NBYTES;
}

/* What `posted` counts when all ranks have posted the part. */
static uint32_t last_count(const srt_comm_t *comm)
{
	return comm->shm->nposts * (uint32_t)comm->size;
}

void srt_shm_post(srt_comm_t *comm, const char *what, const void *data, size_t left)
{
	const uint32_t number = ++comm->shm->nposts;
	srt_shm_post_t *post = post_of(comm, comm->rank);

	strncpy(post->what, what, sizeof(post->what) - 1);
	post->left = left;
	if (left > 0)
		memcpy(post->data, data, part_nbytes(left));
	atomic_store_explicit(&post->number, number, memory_order_release);
	srt_shm_count_flag(comm->shm->posted, last_count(comm));
}

static srt_peer_state_t state_of(const srt_comm_t *comm, int rank)
{
	return srt_control_peer_state(comm->bootstrap->control, comm->world_rank[rank]);
}

static bool has_posted(const srt_comm_t *comm, int rank)
{
	return atomic_load_explicit(&post_of(comm, rank)->number, memory_order_acquire) ==
	       comm->shm->nposts;
}

bool srt_shm_may_post(const srt_comm_t *comm, int rank)
{
	/* Read the state before the post: a rank may post and then end. */
	return state_of(comm, rank) == SRT_PEER_ALIVE || has_posted(comm, rank);
}

srt_control_result_t srt_shm_read_post(srt_comm_t *comm, int rank, const char *what, void *data,
				       size_t left, const atomic_int *stop, double deadline,
				       char theirs[SRT_CONTROL_WHAT])
{
	const srt_shm_post_t *post = post_of(comm, rank);
	char posted[SRT_CONTROL_WHAT];

	while (!has_posted(comm, rank)) {
		if (!srt_shm_may_post(comm, rank))
			return SRT_CONTROL_GONE;
		if (atomic_load(stop) != 0)
			return SRT_CONTROL_STOPPED;
		if (srt_awake_s() > deadline)
			return SRT_CONTROL_TIMEOUT;
		srt_shm_wait_flag(comm->shm->posted, last_count(comm), SLICE_S);
	}
	memcpy(posted, post->what, sizeof(posted));
	posted[sizeof(posted) - 1] = '\0';
	if (!srt_control_is_same_operation(posted, what)) {
		memcpy(theirs, posted, sizeof(posted));
		return SRT_CONTROL_OTHER;
	}
	if (post->left != left)
		return SRT_CONTROL_MALFORMED;
	if (left > 0)
		memcpy(data, post->data, part_nbytes(left));
	return SRT_CONTROL_OK;
}
