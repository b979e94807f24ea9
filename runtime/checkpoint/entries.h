/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program's entries of a sharded checkpoint. All are in the manifest, which rank 0 writes:
 * those of srt_checkpoint_options_t.entries under their key, those of rank R of N, rank_entries,
 * under "rank-R-of-N/KEY".
 */
#ifndef SRT_RUNTIME_CHECKPOINT_ENTRIES_H
#define SRT_RUNTIME_CHECKPOINT_ENTRIES_H

#include <shardrt/checkpoint.h>
#include <shardrt/coll.h>

#include "runtime/checkpoint/formats/manifest.h"

/* Rank entries of one rank as bytes: of each the lengths of key and data, the key, the data. */
typedef struct srt_packed_entries {
	unsigned char *bytes;
	size_t nbytes;
} srt_packed_entries_t;

/* The arguments of a public call. Local. */
srt_status_t srt_entries_check(const char *call, const srt_checkpoint_options_t *options);
/* Copies this rank's entries: to the manifest and, of rank_entries, to *packed, whose bytes the
 * caller frees in any case. Local. */
srt_status_t srt_entries_copy(const srt_checkpoint_options_t *options, srt_manifest_t *manifest,
			      srt_packed_entries_t *packed);
/* Adds the rank entries of all ranks to the manifest of rank 0. Collective. */
srt_status_t srt_entries_gather(srt_comm_t *comm, const srt_packed_entries_t *mine,
				srt_manifest_t *manifest);
/* The manifest has the entries that are to be loaded by this rank; store: copies them. Local. */
srt_status_t srt_entries_load(const srt_checkpoint_options_t *options,
			      const srt_manifest_t *manifest, int rank, int world, bool store);

#endif
