/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a driver lends device memory to other processes (CUDA IPC), it may refuse: in a container,
 * on a slice of a GPU, between devices that do not reach each other, for ranks in one process. What
 * it does is not known before it is tried. So each rank of a new communicator writes a pattern into
 * memory of its own, lends it to all others, and reads theirs; if anything goes wrong on any rank,
 * the collectives are staged. Called by transport.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"

#define NWORDS 64

/* What a rank lends; "" or why it cannot. */
typedef struct loan {
	uint64_t nbytes, offset;
	unsigned char opaque[64];
	char failure[320];
} loan_t;

typedef struct verdict {
	char failure[320];
} verdict_t;

static void pattern(const srt_comm_t *comm, int rank, uint64_t words[NWORDS])
{
	for (uint64_t i = 0; i < NWORDS; i++)
		words[i] = srt_mix64(comm->id ^ (uint64_t)rank << 32, i);
}

static srt_status_t lend(srt_comm_t *comm, srt_stream_t *stream, srt_buffer_t **mine, loan_t *loan)
{
	srt_mem_handle_t handle = { .fd = -1 };
	uint64_t words[NWORDS];

	SRT_TRY(srt_buffer_create(comm->device, SRT_MEM_PEER, sizeof(words), "trial of peer memory",
				  mine));
	pattern(comm, comm->rank, words);
	SRT_TRY(srt_copy_from_host(stream, *mine, 0, words, sizeof(words)));
	SRT_TRY(srt_stream_sync(stream));
	SRT_TRY(srt_buffer_export(*mine, &handle));
	loan->nbytes = handle.nbytes;
	loan->offset = handle.offset;
	memcpy(loan->opaque, handle.opaque, sizeof(loan->opaque));
	return SRT_OK;
}

/* Opens what rank `rank` lends, reads it, closes it. */
static srt_status_t borrow(srt_comm_t *comm, srt_stream_t *stream, int rank, const loan_t *loan)
{
	srt_mem_handle_t handle = { .fd = -1, .nbytes = loan->nbytes, .offset = loan->offset };
	uint64_t want[NWORDS], words[NWORDS] = { 0 };
	srt_buffer_t *theirs;
	srt_status_t status;

	if (loan->nbytes != sizeof(words))
		return srt_fail(SRT_ERR_SYSTEM, "rank %d lends %llu bytes, not %zu",
				comm->world_rank[rank], (unsigned long long)loan->nbytes,
				sizeof(words));
	memcpy(handle.opaque, loan->opaque, sizeof(handle.opaque));
	SRT_TRY(srt_buffer_import(comm->device, &handle, "of the trial", &theirs));
	status = srt_copy_to_host(stream, words, theirs, 0, sizeof(words));
	srt_buffer_destroy(theirs);
	pattern(comm, rank, want);
	if (status == SRT_OK && memcmp(words, want, sizeof(words)) != 0)
		status = srt_fail(SRT_ERR_DEVICE,
				  "what it maps of rank %d's memory has other bytes than that",
				  comm->world_rank[rank]);
	return status;
}

/* Everybody's loans; *failure is "" or what went wrong here. */
static srt_status_t try_all(srt_comm_t *comm, srt_stream_t *stream, const loan_t *mine,
			    char *failure, size_t nbytes)
{
	loan_t *loans = srt_calloc((size_t)comm->size, sizeof(*loans), "a trial of peer memory");
	srt_status_t status;

	if (loans == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_exchange_for(comm, "trying peer memory", mine, sizeof(*mine), loans);
	for (int r = 0; r < comm->size && status == SRT_OK && failure[0] == '\0'; r++) {
		/* The lender says itself why it cannot. */
		if (r == comm->rank || loans[r].failure[0] != '\0')
			continue;
		if (borrow(comm, stream, r, &loans[r]) != SRT_OK)
			snprintf(failure, nbytes, "%s", srt_last_error());
	}
	free(loans);
	return status;
}

/* The lowest rank's failure is everybody's. All have closed what they opened. */
static srt_status_t compare(srt_comm_t *comm, const char *failure, char *why, size_t nbytes)
{
	verdict_t mine = { "" }, *all;
	srt_status_t status;

	why[0] = '\0';
	all = srt_calloc((size_t)comm->size, sizeof(*all), "a trial of peer memory");
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	snprintf(mine.failure, sizeof(mine.failure), "%s", failure);
	status = srt_comm_exchange_for(comm, "trying peer memory", &mine, sizeof(mine), all);
	for (int r = 0; r < comm->size && status == SRT_OK && why[0] == '\0'; r++) {
		all[r].failure[sizeof(all[r].failure) - 1] = '\0';
		if (all[r].failure[0] != '\0')
			snprintf(why, nbytes, "on rank %d: %s", comm->world_rank[r],
				 all[r].failure);
	}
	free(all);
	return status;
}

srt_status_t srt_comm_try_peers(srt_comm_t *comm, char *why, size_t nbytes)
{
	loan_t mine = { 0 };
	srt_stream_t *stream = NULL;
	srt_buffer_t *buffer = NULL;
	srt_status_t status;

	status = srt_stream_create(comm->device, 0, "trial", &stream);
	if (status == SRT_OK)
		status = lend(comm, stream, &buffer, &mine);
	if (status != SRT_OK)
		snprintf(mine.failure, sizeof(mine.failure), "%s", srt_last_error());
	status = try_all(comm, stream, &mine, mine.failure, sizeof(mine.failure));
	if (status == SRT_OK)
		status = compare(comm, mine.failure, why, nbytes);
	srt_buffer_destroy(buffer);
	srt_stream_destroy(stream);
	return status;
}
