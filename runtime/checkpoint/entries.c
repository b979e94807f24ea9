/* SPDX-License-Identifier: BSD-3-Clause */
/* Entries of the program, of one rank and of each rank (entries.h). */
#include "runtime/checkpoint/entries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/comm.h"

/* What keys of rank entries begin with. */
#define RANK_PREFIX "rank-"
/* Bytes of each rank that are exchanged at a time. */
#define PIECE_NBYTES ((size_t)64 << 10)

/* Entry i of checked options; always succeeds then. */
static srt_status_t read_entry(const srt_checkpoint_entry_t *entries, size_t i,
			       srt_checkpoint_entry_t *entry)
{
	*entry = (srt_checkpoint_entry_t)SRT_CHECKPOINT_ENTRY_INIT;
	return srt_struct_read(entry, sizeof(*entry), srt_struct_at(entries, i),
			       "srt_checkpoint_entry_t");
}

static srt_status_t check_entry(const char *call, const srt_checkpoint_entry_t *entries, size_t i)
{
	srt_checkpoint_entry_t e, other;

	SRT_TRY(read_entry(entries, i, &e));
	SRT_TRY(srt_check_not_null(e.key, call, "the key of an entry"));
	if (e.nbytes > 0)
		SRT_TRY(srt_check_not_null(e.data, call, "the data of an entry"));
	if (e.key[0] == '\0')
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: the key of an entry is empty", call);
	for (size_t k = 0; k < i; k++) {
		SRT_TRY(read_entry(entries, k, &other));
		if (strcmp(e.key, other.key) == 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: the entry '%s' occurs twice",
					call, e.key);
	}
	return SRT_OK;
}

srt_status_t srt_entries_check(const char *call, const srt_checkpoint_options_t *o)
{
	srt_checkpoint_entry_t e;

	if (o->nentries > 0)
		SRT_TRY(srt_check_not_null(o->entries, call, "entries"));
	if (o->nrank_entries > 0)
		SRT_TRY(srt_check_not_null(o->rank_entries, call, "rank_entries"));
	for (size_t i = 0; i < o->nentries; i++) {
		SRT_TRY(check_entry(call, o->entries, i));
		SRT_TRY(read_entry(o->entries, i, &e));
		if (strncmp(e.key, RANK_PREFIX, strlen(RANK_PREFIX)) == 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"%s: the key of entry '%s' begins with " RANK_PREFIX
					", as those of rank_entries do: choose another one",
					call, e.key);
	}
	for (size_t i = 0; i < o->nrank_entries; i++)
		SRT_TRY(check_entry(call, o->rank_entries, i));
	return SRT_OK;
}

/* ---- save ------------------------------------------------------------------------------- */

/* Adds an entry to the manifest, which has memory for it. key: is freed with the manifest; NULL: no
 * memory. */
static srt_status_t add_entry(srt_manifest_t *m, char *key, const void *data, size_t nbytes)
{
	srt_manifest_entry_t *to = &m->entries[m->nentries++];

	to->key = key;
	to->data = srt_calloc(nbytes + 1, 1, "an entry");
	if (to->key == NULL || to->data == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	to->nbytes = nbytes;
	if (nbytes > 0)
		memcpy(to->data, data, nbytes);
	return SRT_OK;
}

/* Memory for n more entries. */
static srt_status_t grow_entries(srt_manifest_t *m, size_t n)
{
	srt_manifest_entry_t *entries =
		srt_realloc(m->entries, m->nentries + n + 1, sizeof(*entries), "entries");

	if (entries == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memset(entries + m->nentries, 0, (n + 1) * sizeof(*entries));
	m->entries = entries;
	return SRT_OK;
}

static srt_status_t pack(const srt_checkpoint_options_t *o, srt_packed_entries_t *packed)
{
	srt_checkpoint_entry_t e;
	unsigned char *to;

	packed->nbytes = 0;
	for (size_t i = 0; i < o->nrank_entries; i++) {
		SRT_TRY(read_entry(o->rank_entries, i, &e));
		packed->nbytes += 2 * sizeof(size_t) + strlen(e.key) + 1 + e.nbytes;
	}
	packed->bytes = to = srt_calloc(packed->nbytes + 1, 1, "entries of this rank");
	if (to == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < o->nrank_entries; i++) {
		size_t lengths[2];

		SRT_TRY(read_entry(o->rank_entries, i, &e));
		lengths[0] = strlen(e.key) + 1;
		lengths[1] = e.nbytes;
		memcpy(to, lengths, sizeof(lengths));
		memcpy(to + sizeof(lengths), e.key, lengths[0]);
		to += sizeof(lengths) + lengths[0];
		if (e.nbytes > 0)
			memcpy(to, e.data, e.nbytes);
		to += e.nbytes;
	}
	return SRT_OK;
}

srt_status_t srt_entries_copy(const srt_checkpoint_options_t *options, srt_manifest_t *m,
			      srt_packed_entries_t *packed)
{
	srt_checkpoint_entry_t from;

	SRT_TRY(grow_entries(m, options->nentries));
	for (size_t i = 0; i < options->nentries; i++) {
		SRT_TRY(read_entry(options->entries, i, &from));
		SRT_TRY(add_entry(m, srt_strdup(from.key), from.data, from.nbytes));
	}
	return pack(options, packed);
}

static char *make_key(int rank, int world, const char *key)
{
	return srt_asprintf(RANK_PREFIX "%d-of-%d/%s", rank, world, key);
}

static srt_status_t unpack(srt_manifest_t *m, int rank, int world, const unsigned char *from,
			   size_t nbytes)
{
	const unsigned char *end = from + nbytes;
	size_t lengths[2];

	while (from < end) {
		memcpy(lengths, from, sizeof(lengths));
		from += sizeof(lengths);
		SRT_TRY(grow_entries(m, 1));
		SRT_TRY(add_entry(m, make_key(rank, world, (const char *)from), from + lengths[0],
				  lengths[1]));
		from += lengths[0] + lengths[1];
	}
	return SRT_OK;
}

/* Gathers the bytes in pieces: of all ranks for a moment, on rank 0 for good, bytes[rank]. nbytes:
 * by rank. Collective. */
static srt_status_t gather_pieces(srt_comm_t *comm, const srt_packed_entries_t *mine,
				  const size_t *nbytes, size_t most, unsigned char **bytes)
{
	static const char what[] = "gathering the entries of ranks";
	const size_t world = (size_t)comm->size;
	unsigned char *piece = srt_comm_calloc(comm, PIECE_NBYTES, 1, what);
	unsigned char *all = srt_comm_calloc(comm, PIECE_NBYTES * world, 1, what);
	srt_status_t status = piece != NULL && all != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	for (size_t r = 0; r < world && comm->rank == 0 && status == SRT_OK; r++) {
		bytes[r] = srt_comm_calloc(comm, nbytes[r] + 1, 1, what);
		if (bytes[r] == NULL)
			status = SRT_ERR_OUT_OF_MEMORY;
	}
	for (size_t at = 0; at < most && status == SRT_OK; at += PIECE_NBYTES) {
		const size_t n = most - at < PIECE_NBYTES ? most - at : PIECE_NBYTES;

		if (at < mine->nbytes)
			memcpy(piece, mine->bytes + at,
			       mine->nbytes - at < n ? mine->nbytes - at : n);
		status = srt_comm_oob_allgather_for(comm, what, piece, n, all);
		for (size_t r = 0; r < world && comm->rank == 0 && status == SRT_OK; r++)
			if (at < nbytes[r])
				memcpy(bytes[r] + at, all + r * n,
				       nbytes[r] - at < n ? nbytes[r] - at : n);
	}
	free(all);
	free(piece);
	return status;
}

srt_status_t srt_entries_gather(srt_comm_t *comm, const srt_packed_entries_t *mine,
				srt_manifest_t *m)
{
	static const char what[] = "gathering the entries of ranks";
	const size_t world = (size_t)comm->size;
	size_t *nbytes = srt_comm_calloc(comm, world, sizeof(*nbytes), what), most = 0;
	unsigned char **bytes = srt_comm_calloc(comm, world, sizeof(*bytes), what);
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (nbytes != NULL && bytes != NULL)
		status = srt_comm_oob_allgather_for(comm, what, &mine->nbytes, sizeof(*nbytes),
						    nbytes);
	for (size_t r = 0; r < world && status == SRT_OK; r++)
		most = nbytes[r] > most ? nbytes[r] : most;
	if (status == SRT_OK && most > 0) {
		status = gather_pieces(comm, mine, nbytes, most, bytes);
		for (int r = 0; r < comm->size && comm->rank == 0 && status == SRT_OK; r++)
			status = unpack(m, r, comm->size, bytes[r], nbytes[r]);
		status = srt_comm_status_consensus(comm, what, status);
	}
	for (size_t r = 0; bytes != NULL && r < world; r++)
		free(bytes[r]);
	free(bytes);
	free(nbytes);
	return status;
}

/* ---- load ------------------------------------------------------------------------------- */

/* The number of ranks that saved rank entries; 0: there are none. */
static int find_world(const srt_manifest_t *m)
{
	for (size_t i = 0; i < m->nentries; i++) {
		int rank, world;

		if (sscanf(m->entries[i].key, RANK_PREFIX "%d-of-%d/", &rank, &world) == 2)
			return world;
	}
	return 0;
}

static srt_status_t fail_absent(const srt_manifest_t *m, const char *key, size_t nbytes, int world)
{
	const int saved_by = find_world(m);

	if (world > 0 && saved_by > 0 && saved_by != world)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the checkpoint has no entry '%s': its rank_entries were saved by "
				"%d ranks. Load it without rank_entries, and read those of each "
				"rank by srt_checkpoint_get_entry() with a key as "
				"'" RANK_PREFIX "0-of-%d/KEY'",
				key, saved_by, saved_by);
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "the checkpoint has no entry '%s' of %zu bytes",
			key, nbytes);
}

static srt_status_t load_entry(const srt_manifest_t *m, const char *key,
			       const srt_checkpoint_entry_t *to, int world, bool store)
{
	const srt_manifest_entry_t *e = srt_manifest_find_entry(m, key);

	if (e == NULL || e->nbytes != to->nbytes)
		return fail_absent(m, key, to->nbytes, world);
	if (store && to->nbytes > 0)
		memcpy(to->data, e->data, to->nbytes);
	return SRT_OK;
}

srt_status_t srt_entries_load(const srt_checkpoint_options_t *o, const srt_manifest_t *m, int rank,
			      int world, bool store)
{
	srt_checkpoint_entry_t to;

	for (size_t i = 0; i < o->nentries; i++) {
		SRT_TRY(read_entry(o->entries, i, &to));
		SRT_TRY(load_entry(m, to.key, &to, 0, store));
	}
	for (size_t i = 0; i < o->nrank_entries; i++) {
		srt_status_t status;
		char *key;

		SRT_TRY(read_entry(o->rank_entries, i, &to));
		key = make_key(rank, world, to.key);
		if (key == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		status = load_entry(m, key, &to, world, store);
		free(key);
		SRT_TRY(status);
	}
	return SRT_OK;
}
