/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Import cache: a peer maps each source buffer once, however many collectives use it. An entry
 * exists while a collective of this rank uses it. Destroying is local, so the owner does not know
 * whether a peer still has the mapping. If no buffer is new, the ranks first ask each other whether
 * one lacks a mapping. Only then, or if one is new, all descriptors are sent; a peer that has the
 * mapping closes its own.
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

/* A rank's source, as the peers receive it. */
typedef struct srt_offer {
	uint64_t id; /* of its buffer's srt_export_t; 0 = it has none */
	uint64_t nbytes;
	uint64_t offset; /* bytes from the buffer */
	uint64_t lacks;  /* this rank has not mapped all buffers that it reads */
} srt_offer_t;

/* The id of the buffer's srt_export_t, 0 if it has none. */
uint64_t srt_import_cache_id(const srt_comm_t *comm, const srt_buffer_t *buffer);
/*
 * Collective: makes `source` (buffer NULL = none) visible to the peers. ids: [size] all ranks'
 * srt_import_cache_id(), the same on all of them. imports: [size] NULL. On success, if i_read[r],
 * offers[r] is that of rank r and imports[r] its buffer, mapped here, or NULL; *own is this rank's
 * export or NULL. Undone by srt_import_cache_release().
 */
srt_status_t srt_import_cache_share(srt_comm_t *comm, const char *what, const srt_view_t *source,
				    const uint64_t *ids, const bool *reads_me, const bool *i_read,
				    srt_export_t **own, srt_offer_t *offers,
				    srt_import_t **imports);
void srt_import_cache_release(srt_comm_t *comm, srt_export_t *own, srt_import_t **imports);

#endif
