/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered buffers: each distinct source buffer is mapped once by each peer, however many
 * collectives use it. An entry lives while a collective of this rank uses it. The descriptor is
 * passed at every creation, because destroying is local: the owner cannot know whether a peer still
 * has the mapping. Who has it closes the descriptor again.
 *
 * Memory that a driver lends (comm->lends) must not be freed while a peer has it open. So each rank
 * counts in shared memory what it has open of each owner's; an owner whose last collective on a
 * buffer goes while peers have it open leaves a lease on the buffer (backends/lease.c), which is
 * over when they have closed it, or are gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comm.h"
#include "collectives/shm/control.h"

#define NEWS_S 1.0 /* how late news of a death may be */

/* What a rank says of its buffer. */
typedef struct offer {
	uint64_t id; /* 0 = none */
	uint64_t nbytes;
	uint64_t offset;
	unsigned char opaque[64];
} offer_t;

/* Peers may have a buffer of this rank open. */
typedef struct loan {
	srt_lease_t lease;
	srt_shm_memory_t *memory; /* the counts lie in it */
	const srt_bootstrap_t *bootstrap;
	uint64_t comm_id;
	int rank, size; /* of the owner in the world; of the communicator */
	struct {
		const _Atomic uint32_t *opens; /* NULL: this rank */
		int world_rank;
	} peers[];
} loan_t;

static srt_export_t *find_export(srt_comm_t *comm, srt_buffer_t *buffer, srt_status_t *status)
{
	srt_export_t *e;

	*status = SRT_OK;
	for (e = comm->exports; e != NULL; e = e->next) {
		if (e->buffer == buffer) {
			e->nusers++;
			return e;
		}
	}
	e = srt_calloc(1, sizeof(*e), "a registered buffer");
	if (e == NULL) {
		*status = SRT_ERR_OUT_OF_MEMORY;
		return NULL;
	}
	e->buffer = buffer;
	e->id = ++comm->nexports;
	e->nusers = 1;
	e->next = comm->exports;
	comm->exports = e;
	return e;
}

/* ---- loans ---------------------------------------------------------------------------- */

static bool has_open(const loan_t *loan, int r)
{
	return loan->peers[r].opens != NULL &&
	       atomic_load_explicit(loan->peers[r].opens, memory_order_acquire) != 0 &&
	       srt_peers_state(loan->bootstrap->peers, loan->peers[r].world_rank) == SRT_PEER_ALIVE;
}

static bool loan_is_over(srt_lease_t *lease)
{
	const loan_t *loan = (const loan_t *)lease;

	for (int r = 0; r < loan->size; r++) {
		if (has_open(loan, r))
			return false;
	}
	return true;
}

/* Who waits for this rank in a collective, with its memory open, would wait in vain. */
static void loan_recall(srt_lease_t *lease)
{
	const loan_t *loan = (const loan_t *)lease;
	char text[SRT_PEERS_TEXT];

	srt_comm_left_text(loan->rank, text, sizeof(text));
	for (int r = 0; r < loan->size; r++) {
		if (has_open(loan, r))
			srt_peers_tell_abort(loan->bootstrap->peers, loan->peers[r].world_rank,
					     loan->comm_id, SRT_ERR_PEER_DEAD, text);
	}
}

static void loan_drop(srt_lease_t *lease)
{
	loan_t *loan = (loan_t *)lease;

	srt_shm_release(loan->memory);
	free(loan);
}

/* The buffer's memory stays until the peers have closed it. */
static void lend(srt_comm_t *comm, const srt_export_t *e)
{
	size_t n = (size_t)comm->size;
	loan_t *loan = srt_calloc(1, sizeof(*loan) + n * sizeof(loan->peers[0]), "a loan");

	/* Without memory for it there is nothing better than to go on. */
	if (loan == NULL)
		return;
	loan->lease.timeout_s = comm->bootstrap->timeout_s;
	loan->lease.is_over = loan_is_over;
	loan->lease.recall = loan_recall;
	loan->lease.drop = loan_drop;
	loan->memory = comm->shm->log_memory;
	atomic_fetch_add(&loan->memory->nusers, 1);
	loan->bootstrap = comm->bootstrap;
	loan->comm_id = comm->id;
	loan->rank = comm->world_rank[comm->rank];
	loan->size = comm->size;
	for (int r = 0; r < comm->size; r++) {
		loan->peers[r].world_rank = comm->world_rank[r];
		if (r != comm->rank)
			loan->peers[r].opens = srt_shm_opens(comm, comm->rank, r, e->id);
	}
	if (loan_is_over(&loan->lease))
		loan_drop(&loan->lease);
	else
		srt_buffer_lease(e->buffer, &loan->lease);
}

static void count_open(srt_comm_t *comm, int owner, uint64_t id, uint32_t change)
{
	if (comm->lends)
		atomic_fetch_add_explicit(srt_shm_opens(comm, owner, comm->rank, id), change,
					  memory_order_release);
}

/* ---- entries -------------------------------------------------------------------------- */

static void release_export(srt_comm_t *comm, srt_export_t *e)
{
	srt_export_t **link = &comm->exports;

	if (e == NULL || --e->nusers > 0)
		return;
	while (*link != e)
		link = &(*link)->next;
	*link = e->next;
	if (comm->lends)
		lend(comm, e);
	free(e);
}

static void release_import(srt_comm_t *comm, srt_import_t *import)
{
	srt_import_t **link = &comm->imports;

	if (import == NULL || --import->nusers > 0)
		return;
	while (*link != import)
		link = &(*link)->next;
	*link = import->next;
	srt_buffer_destroy(import->buffer);
	count_open(comm, import->rank, import->id, (uint32_t)-1);
	free(import);
}

/* Maps what rank `rank` offers, or finds that it is mapped. Takes fd over, also on failure. */
static srt_status_t find_import(srt_comm_t *comm, int rank, const offer_t *offer, int fd,
				srt_import_t **out)
{
	srt_mem_handle_t handle = { .fd = fd, .nbytes = offer->nbytes, .offset = offer->offset };
	srt_import_t *import;
	srt_status_t status;
	char name[64];

	for (import = comm->imports; import != NULL; import = import->next) {
		if (import->rank != rank || import->id != offer->id)
			continue;
		if (fd >= 0)
			close(fd);
		import->nusers++;
		*out = import;
		return SRT_OK;
	}
	import = srt_calloc(1, sizeof(*import), "a peer's buffer");
	if (import == NULL) {
		status = SRT_ERR_OUT_OF_MEMORY;
		goto close_fd;
	}
	memcpy(handle.opaque, offer->opaque, sizeof(handle.opaque));
	snprintf(name, sizeof(name), "buffer %llu of rank %d", (unsigned long long)offer->id,
		 comm->world_rank[rank]);
	count_open(comm, rank, offer->id, 1);
	status = srt_buffer_import(comm->device, &handle, name, &import->buffer);
	if (status != SRT_OK) {
		count_open(comm, rank, offer->id, (uint32_t)-1);
		goto free_import;
	}
	import->rank = rank;
	import->id = offer->id;
	import->nusers = 1;
	import->next = comm->imports;
	comm->imports = import;
	*out = import;
	return SRT_OK;

free_import:
	free(import);
close_fd:
	if (fd >= 0)
		close(fd);
	return status;
}

srt_status_t srt_registry_share(srt_comm_t *comm, const char *what, srt_buffer_t *buffer,
				const bool *reads_me, const bool *i_read, srt_export_t **own,
				srt_import_t **imports)
{
	srt_mem_handle_t handle = { .fd = -1 };
	srt_status_t status, passed;
	offer_t mine = { 0 }, *offers;
	int *fds;

	*own = NULL;
	memset(imports, 0, (size_t)comm->size * sizeof(*imports));
	offers = srt_calloc((size_t)comm->size, sizeof(*offers), what);
	fds = srt_calloc((size_t)comm->size, sizeof(*fds), what);
	if (offers == NULL || fds == NULL) {
		status = SRT_ERR_OUT_OF_MEMORY;
		goto free_tables;
	}
	status = SRT_OK;
	if (buffer != NULL) {
		*own = find_export(comm, buffer, &status);
		if (status == SRT_OK)
			status = srt_buffer_export(buffer, &handle);
		if (status == SRT_OK) {
			mine.id = (*own)->id;
			mine.nbytes = handle.nbytes;
			mine.offset = handle.offset;
			memcpy(mine.opaque, handle.opaque, sizeof(mine.opaque));
		}
	}
	/* A rank that failed takes part all the same, with an empty offer. */
	passed = srt_comm_pass(comm, what, reads_me, &mine, sizeof(mine), handle.fd, i_read, offers,
			       fds);
	if (passed != SRT_OK) {
		status = passed;
		goto free_tables;
	}
	for (int r = 0; r < comm->size; r++) {
		if (r == comm->rank || !i_read[r])
			continue;
		if (status == SRT_OK && offers[r].id != 0) {
			status = find_import(comm, r, &offers[r], fds[r], &imports[r]);
			/* Memory of a rank that has ended cannot be mapped. */
			if (status != SRT_OK && srt_comm_await_news(comm, r, NEWS_S))
				status = srt_comm_fail(comm, 0, "%s", what);
		} else if (fds[r] >= 0) {
			close(fds[r]);
		}
	}
free_tables:
	free(fds);
	free(offers);
	return status;
}

void srt_registry_release(srt_comm_t *comm, srt_export_t *own, srt_import_t **imports)
{
	release_export(comm, own);
	for (int r = 0; imports != NULL && r < comm->size; r++)
		release_import(comm, imports[r]);
}
