/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a driver lends device memory to other processes (CUDA IPC), it may refuse: in a container,
 * on a slice of a GPU, between devices that do not reach each other, for ranks in one process. What
 * it does is not known before it is tried. So each rank of a new communicator writes a pattern into
 * memory of its own, lends it to all others, and reads theirs in all the ways in which collectives
 * do, as each may take another path: a copy to the host, a copy within the device (all-gather), the
 * kernel of the sums (reduce-scatter). If anything goes wrong on any rank, the collectives are
 * staged. Called by transport.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"

#define NELEM 16384
#define NBYTES (NELEM * sizeof(float))

/* What a rank lends; "" or why it cannot. */
typedef struct loan {
	uint64_t nbytes, offset;
	unsigned char opaque[64];
	char failure[320];
} loan_t;

typedef struct verdict {
	char failure[320];
} verdict_t;

/* What a rank tries with. */
typedef struct trial {
	srt_comm_t *comm;
	srt_stream_t *stream;
	srt_buffer_t *mine; /* lent to the peers */
	srt_buffer_t *read; /* what is read of a peer's: copied, then summed */
	float want[NELEM], got[2 * NELEM];
} trial_t;

/* Floats in [1, 2): a sum of one of them is that one. */
static void pattern(const srt_comm_t *comm, int rank, float *elements)
{
	for (uint64_t i = 0; i < NELEM; i++) {
		uint64_t bits = srt_mix64(comm->id ^ (uint64_t)rank << 32, i);

		elements[i] = 1.0f + (float)(bits & 0x7fffff) * 0x1p-23f;
	}
}

static srt_status_t lend(trial_t *t, loan_t *loan)
{
	srt_mem_handle_t handle = { .fd = -1 };
	srt_device_t *device = t->comm->device;

	SRT_TRY(srt_stream_create(device, 0, "trial", &t->stream));
	SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, 2 * NBYTES, "trial of peer memory",
				  &t->read));
	SRT_TRY(srt_buffer_create(device, SRT_MEM_PEER, NBYTES, "trial of peer memory", &t->mine));
	pattern(t->comm, t->comm->rank, t->want);
	SRT_TRY(srt_copy_from_host(t->stream, t->mine, 0, t->want, NBYTES));
	SRT_TRY(srt_stream_sync(t->stream));
	SRT_TRY(srt_buffer_export(t->mine, &handle));
	loan->nbytes = handle.nbytes;
	loan->offset = handle.offset;
	memcpy(loan->opaque, handle.opaque, sizeof(loan->opaque));
	return SRT_OK;
}

static srt_status_t check(const trial_t *t, const float *got, int rank, const char *what)
{
	if (memcmp(got, t->want, NBYTES) == 0)
		return SRT_OK;
	return srt_fail(SRT_ERR_DEVICE, "%s rank %d's memory has other bytes than that", what,
			t->comm->world_rank[rank]);
}

/* The sum of one rank's. */
static srt_status_t put_sum(trial_t *t, srt_buffer_t *theirs)
{
	const srt_k_reduce_ranks_t args = { .nelem = NELEM, .nranks = 1 };
	srt_view_t views[1 + SRT_K_MAX_RANKS] = { srt_view(t->read, NBYTES, SRT_F32),
						  srt_view(theirs, 0, SRT_F32) };

	return srt_launch(t->stream, SRT_K_REDUCE_RANKS, SRT_F32,
			  srt_kernel_grid(SRT_K_REDUCE_RANKS, &args), &args, sizeof(args), views,
			  srt_kernel_info(SRT_K_REDUCE_RANKS)->nplaces);
}

static srt_status_t read_all_ways(trial_t *t, srt_buffer_t *theirs, int rank)
{
	SRT_TRY(srt_copy_to_host(t->stream, t->got, theirs, 0, NBYTES));
	SRT_TRY(check(t, t->got, rank, "what it maps of"));
	SRT_TRY(srt_copy(t->stream, t->read, 0, theirs, 0, NBYTES));
	SRT_TRY(put_sum(t, theirs));
	SRT_TRY(srt_copy_to_host(t->stream, t->got, t->read, 0, 2 * NBYTES));
	SRT_TRY(check(t, t->got, rank, "its device's copy of"));
	return check(t, t->got + NELEM, rank, "what a kernel reads of");
}

/* Opens what rank `rank` lends, reads it, closes it. */
static srt_status_t borrow(trial_t *t, int rank, const loan_t *loan)
{
	srt_mem_handle_t handle = { .fd = -1, .nbytes = loan->nbytes, .offset = loan->offset };
	srt_buffer_t *theirs;
	srt_status_t status;

	if (loan->nbytes != NBYTES)
		return srt_fail(SRT_ERR_SYSTEM, "rank %d lends %llu bytes, not %zu",
				t->comm->world_rank[rank], (unsigned long long)loan->nbytes,
				NBYTES);
	memcpy(handle.opaque, loan->opaque, sizeof(handle.opaque));
	SRT_TRY(srt_buffer_import(t->comm->device, &handle, "of the trial", &theirs));
	pattern(t->comm, rank, t->want);
	status = read_all_ways(t, theirs, rank);
	srt_buffer_destroy(theirs);
	return status;
}

/* Everybody's loans; *failure is "" or what went wrong here. */
static srt_status_t try_all(trial_t *t, const loan_t *mine, char *failure, size_t nbytes)
{
	srt_comm_t *comm = t->comm;
	loan_t *loans = srt_calloc((size_t)comm->size, sizeof(*loans), "a trial of peer memory");
	srt_status_t status;

	if (loans == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_exchange_for(comm, "trying peer memory", mine, sizeof(*mine), loans);
	for (int r = 0; r < comm->size && status == SRT_OK && failure[0] == '\0'; r++) {
		/* The lender says itself why it cannot. */
		if (r == comm->rank || loans[r].failure[0] != '\0')
			continue;
		if (borrow(t, r, &loans[r]) != SRT_OK)
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
	trial_t *t = srt_calloc(1, sizeof(*t), "a trial of peer memory");
	loan_t mine = { 0 };
	srt_status_t status;

	if (t == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	t->comm = comm;
	if (lend(t, &mine) != SRT_OK)
		snprintf(mine.failure, sizeof(mine.failure), "%s", srt_last_error());
	status = try_all(t, &mine, mine.failure, sizeof(mine.failure));
	if (status == SRT_OK)
		status = compare(comm, mine.failure, why, nbytes);
	srt_buffer_destroy(t->mine);
	srt_buffer_destroy(t->read);
	srt_stream_destroy(t->stream);
	free(t);
	return status;
}
