/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Import cache: a peer maps each source buffer once, however many collectives use it. An entry
 * exists while a collective of this rank uses it. The descriptor is sent at every creation.
 * Destroying is local, so the owner does not know whether a peer still has the mapping. A peer that
 * has it closes the descriptor.
 */
#ifndef SRT_COLLECTIVES_TRANSPORTS_ZERO_COPY_IMPORT_CACHE_H
#define SRT_COLLECTIVES_TRANSPORTS_ZERO_COPY_IMPORT_CACHE_H

#include "collectives/comm_state.h"

/* A buffer of this rank that peers have mapped. Freed with the last collective that uses it. */
typedef struct srt_export {
	struct srt_export *next;
	srt_buffer_t *buffer;
	uint64_t id; /* never used twice */
	int nusers;
} srt_export_t;

/* A peer's buffer that is mapped here. Freed with the last collective that uses it. */
typedef struct srt_import {
	struct srt_import *next;
	int rank;
	uint64_t id; /* of the owner's srt_export_t */
	srt_buffer_t *buffer;
	int nusers;
} srt_import_t;

/* The transport_data of a communicator. */
typedef struct srt_import_cache {
	uint64_t nexports; /* so far */
	srt_export_t *exports;
	srt_import_t *imports;
} srt_import_cache_t;

/*
 * Collective: makes `buffer` (NULL = none) visible to the peers. On success imports[r] is rank r's
 * buffer, mapped here, or NULL, and *own is this rank's export or NULL. Undone by
 * srt_import_cache_release().
 */
srt_status_t srt_import_cache_share(srt_comm_t *comm, const char *what, srt_buffer_t *buffer,
				    const bool *reads_me, const bool *i_read, srt_export_t **own,
				    srt_import_t **imports);
void srt_import_cache_release(srt_comm_t *comm, srt_export_t *own, srt_import_t **imports);

#endif
