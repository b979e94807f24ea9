/* SPDX-License-Identifier: BSD-3-Clause */
/* Import cache: see import_cache.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comm.h"
#include "collectives/transports/zero_copy/import_cache.h"

uint64_t srt_import_cache_id(const srt_comm_t *comm, const srt_buffer_t *buffer)
{
	const srt_import_cache_t *cache = comm->transport_data;

	for (const srt_export_t *e = cache->exports; e != NULL; e = e->next) {
		if (e->buffer == buffer)
			return e->id;
	}
	return 0;
}

static srt_export_t *find_export(srt_comm_t *comm, srt_buffer_t *buffer, srt_status_t *status)
{
	srt_import_cache_t *cache = comm->transport_data;
	srt_export_t *e;

	*status = SRT_OK;
	for (e = cache->exports; e != NULL; e = e->next) {
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
	e->id = ++cache->nexports;
	e->nusers = 1;
	e->next = cache->exports;
	cache->exports = e;
	return e;
}

static void release_export(srt_comm_t *comm, srt_export_t *e)
{
	srt_import_cache_t *cache = comm->transport_data;
	srt_export_t **link = &cache->exports;

	if (e == NULL || --e->nusers > 0)
		return;
	while (*link != e)
		link = &(*link)->next;
	*link = e->next;
	free(e);
}

static void release_import(srt_comm_t *comm, srt_import_t *import)
{
	srt_import_cache_t *cache = comm->transport_data;
	srt_import_t **link = &cache->imports;

	if (import == NULL || --import->nusers > 0)
		return;
	while (*link != import)
		link = &(*link)->next;
	*link = import->next;
	srt_buffer_destroy(import->buffer);
	free(import);
}

static srt_import_t *find_import(const srt_comm_t *comm, int rank, uint64_t id)
{
	const srt_import_cache_t *cache = comm->transport_data;
	srt_import_t *import = cache->imports;

	while (import != NULL && (import->rank != rank || import->id != id))
		import = import->next;
	return import;
}

/* Maps the buffer that `rank` offers, or finds its mapping. Closes fd or stores it, also on
 * failure. */
static srt_status_t hold_import(srt_comm_t *comm, int rank, const srt_offer_t *offer, int fd,
				srt_import_t **out)
{
	srt_import_cache_t *cache = comm->transport_data;
	srt_mem_handle_t handle = { .fd = fd, .nbytes = offer->nbytes };
	srt_import_t *import = find_import(comm, rank, offer->id);
	srt_status_t status;
	char name[64];

	if (import != NULL) {
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
	snprintf(name, sizeof(name), "buffer %llu of rank %d", (unsigned long long)offer->id,
		 comm->world_rank[rank]);
	status = srt_buffer_import(comm->device, &handle, name, &import->buffer);
	if (status != SRT_OK)
		goto free_import;
	import->rank = rank;
	import->id = offer->id;
	import->nusers = 1;
	import->next = cache->imports;
	cache->imports = import;
	*out = import;
	return SRT_OK;

free_import:
	free(import);
close_fd:
	if (fd >= 0)
		close(fd);
	return status;
}

/* Whether each rank that this one reads has a mapping here. */
static bool has_imports(const srt_comm_t *comm, const uint64_t *ids, const bool *i_read)
{
	bool has = true;

	for (int r = 0; r < comm->size && has; r++)
		has = !i_read[r] || find_import(comm, r, ids[r]) != NULL;
	return has;
}

/* Collective: exchanges the offers, if no buffer is new. *lacks: a rank needs descriptors. */
static srt_status_t ask_ranks(srt_comm_t *comm, const char *what, const uint64_t *ids,
			      const srt_offer_t *mine, srt_offer_t *offers, bool *lacks)
{
	*lacks = false;
	for (int r = 0; r < comm->size; r++)
		*lacks = *lacks || ids[r] == 0;
	if (*lacks)
		return SRT_OK;
	SRT_TRY(srt_comm_oob_allgather_for(comm, what, mine, sizeof(*mine), offers));
	for (int r = 0; r < comm->size; r++)
		*lacks = *lacks || offers[r].lacks != 0;
	return SRT_OK;
}

srt_status_t srt_import_cache_share(srt_comm_t *comm, const char *what, const srt_view_t *source,
				    const uint64_t *ids, const bool *reads_me, const bool *i_read,
				    srt_export_t **own, srt_offer_t *offers, srt_import_t **imports)
{
	srt_mem_handle_t handle = { .fd = -1 };
	srt_status_t status = SRT_OK, passed;
	srt_offer_t mine = { .offset = source->offset };
	bool lacks;
	int *fds = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*fds), what);

	*own = NULL;
	if (fds == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (source->buffer != NULL) {
		*own = find_export(comm, source->buffer, &status);
		if (status == SRT_OK)
			status = srt_buffer_export(source->buffer, &handle);
		if (status == SRT_OK) {
			mine.id = (*own)->id;
			mine.nbytes = handle.nbytes;
		}
	}
	mine.lacks = status != SRT_OK || !has_imports(comm, ids, i_read);
	for (int r = 0; r < comm->size; r++)
		fds[r] = -1;
	passed = ask_ranks(comm, what, ids, &mine, offers, &lacks);
	/* A rank that failed also takes part, with an empty offer. */
	if (passed == SRT_OK && lacks)
		passed = srt_comm_exchange_fds(comm, what, reads_me, &mine, sizeof(mine), handle.fd,
					       i_read, offers, fds);
	if (passed != SRT_OK) {
		status = passed;
		goto free_fds;
	}
	for (int r = 0; r < comm->size; r++) {
		if (r == comm->rank || !i_read[r])
			continue;
		if (status == SRT_OK && offers[r].id != 0)
			status = hold_import(comm, r, &offers[r], fds[r], &imports[r]);
		else if (fds[r] >= 0)
			close(fds[r]);
	}
free_fds:
	free(fds);
	return status;
}

void srt_import_cache_release(srt_comm_t *comm, srt_export_t *own, srt_import_t **imports)
{
	release_export(comm, own);
	for (int r = 0; r < comm->size; r++)
		release_import(comm, imports[r]);
}
