/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of a rank, and their hashes (sharded_files.h). */
#include "runtime/checkpoint/sharded_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash128.h"
#include "collectives/comm.h"
#include "runtime/checkpoint/formats/rank_file.h"
#include "runtime/engine/engine.h"

/* ---- files ------------------------------------------------------------------------------ */

static srt_status_t open_files(srt_checkpoint_write_t *s)
{
	size_t *nentries = srt_calloc(s->manifest.nfiles + 1, sizeof(*nentries), "files");
	srt_status_t status = nentries != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	/* the items have the order of the manifest, as the entries of a file */
	for (size_t i = 0; i < s->nitems && status == SRT_OK; i++) {
		srt_write_item_t *item = &s->items[i];

		item->entry = nentries[s->manifest.tensors[item->tensor].boxes[item->box].file]++;
	}
	for (size_t f = 0; f < s->manifest.nfiles && status == SRT_OK; f++)
		if (s->files[f].rank == s->engine->rank)
			status =
				srt_rank_file_create(&s->manifest, f, s->temporary, &s->writers[f]);
	free(nentries);
	return status;
}

/* Copies the next n bytes of a box; *run and *done (elements of it) go on. */
static srt_status_t copy_bytes(const srt_write_item_t *item, size_t elem, int64_t *run,
			       int64_t *done, unsigned char *to, size_t nbytes)
{
	while (nbytes > 0) {
		const int64_t left = item->walk.nelem - *done;
		const size_t n = (size_t)left * elem < nbytes ? (size_t)left * elem : nbytes;
		int64_t in_box, in_cell;

		srt_walk_run(&item->walk, *run, &in_box, &in_cell);
		SRT_TRY(srt_buffer_copy_to_host(to, item->view.buffer,
						item->view.offset +
							(size_t)(in_cell - item->first + *done) *
								elem,
						n, item->stream));
		to += n;
		nbytes -= n;
		*done += (int64_t)(n / elem);
		if (*done == item->walk.nelem) {
			*done = 0;
			++*run;
		}
	}
	return SRT_OK;
}

srt_status_t srt_checkpoint_take_snapshot(srt_checkpoint_write_t *s)
{
	size_t total = 0, at = 0;

	for (size_t i = 0; i < s->nitems; i++)
		total += s->manifest.tensors[s->items[i].tensor].boxes[s->items[i].box].nbytes;
	s->snapshot = malloc(total + 1); /* not cleared: all of it is overwritten */
	if (s->snapshot == NULL) {
		srt_log(SRT_LOG_WARN,
			"rank %d has no memory for a copy of the %zu bytes that it saves: training "
			"waits until all ranks have written their files",
			s->engine->rank, total);
		return SRT_OK;
	}
	for (size_t i = 0; i < s->nitems; i++) {
		srt_write_item_t *item = &s->items[i];
		const srt_manifest_tensor_t *t = &s->manifest.tensors[item->tensor];
		int64_t run = 0, done = 0;

		item->snapshot = s->snapshot + at;
		SRT_TRY(copy_bytes(item, srt_dtype_size(t->dtype), &run, &done, item->snapshot,
				   t->boxes[item->box].nbytes));
		at += t->boxes[item->box].nbytes;
	}
	return SRT_OK;
}

void srt_checkpoint_drop_snapshot(srt_checkpoint_write_t *s)
{
	for (size_t i = 0; i < s->nitems; i++)
		s->items[i].snapshot = NULL;
	free(s->snapshot);
	s->snapshot = NULL;
}

/* The bytes of a box that has them in one run in memory of the host; NULL: to be copied. What
 * changes them has ended. */
static srt_status_t find_bytes(const srt_write_item_t *item, size_t elem,
			       const unsigned char **bytes)
{
	const unsigned char *host = srt_buffer_host(item->view.buffer);
	int64_t in_box, in_cell;

	*bytes = item->snapshot;
	if (item->snapshot != NULL || host == NULL || item->walk.nruns != 1)
		return SRT_OK;
	srt_walk_run(&item->walk, 0, &in_box, &in_cell);
	*bytes = host + item->view.offset + (size_t)(in_cell - item->first) * elem;
	return srt_stream_sync(item->stream);
}

static srt_status_t write_item(srt_checkpoint_write_t *s, const srt_write_item_t *item)
{
	srt_manifest_tensor_t *t = &s->manifest.tensors[item->tensor];
	srt_manifest_box_t *b = &t->boxes[item->box];
	const size_t elem = srt_dtype_size(t->dtype);
	const unsigned char *all, *bytes;
	int64_t run = 0, done = 0;

	SRT_TRY(find_bytes(item, elem, &all));
	for (size_t i = 0, n; i < b->nblocks; i++) {
		const size_t at = i * SRT_BLOCK_NBYTES;

		if (srt_comm_poisoned(s->engine->comm)) /* no rank waits for the rest */
			return srt_comm_fail(s->engine->comm, 0, "writing checkpoint %s", s->path);
		n = b->nbytes - at < SRT_BLOCK_NBYTES ? b->nbytes - at : SRT_BLOCK_NBYTES;
		bytes = all != NULL ? all + at : s->block;
		if (all == NULL)
			SRT_TRY(copy_bytes(item, elem, &run, &done, s->block, n));
		b->hashes[i] = srt_xxh3_64(bytes, n);
		SRT_TRY(srt_safetensors_writer_put_at(s->writers[b->file], item->entry, at, bytes,
						      n));
	}
	return SRT_OK;
}

/* Syncs the rank's files. */
static srt_status_t close_files(srt_checkpoint_write_t *s)
{
	for (size_t f = 0; f < s->manifest.nfiles; f++)
		if (s->writers[f] != NULL)
			SRT_TRY(srt_rank_file_commit(&s->manifest, f, s->temporary, s->writers[f]));
	return SRT_OK;
}

srt_status_t srt_checkpoint_write_files(srt_checkpoint_write_t *s)
{
	s->temporary = srt_folder_temporary(s->path, s->manifest.id);
	if (s->temporary == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	SRT_TRY(open_files(s));
	for (size_t i = 0; i < s->nitems; i++)
		SRT_TRY(write_item(s, &s->items[i]));
	return close_files(s);
}

/* ---- the manifest ----------------------------------------------------------------------- */

/* The numbers that a rank finds while it writes: size and header of each file, hashes of each
 * block, in the order of the manifest. at[rank]: where those of a rank begin in `numbers`, after
 * the call where they end. store: to the manifest; numbers NULL: counts them. */
static void copy_numbers(srt_checkpoint_write_t *s, bool store, uint64_t *numbers, size_t *at)
{
	for (size_t f = 0; f < s->manifest.nfiles; f++) {
		srt_manifest_file_t *file = &s->manifest.files[f];
		const int rank = s->files[f].rank;

		if (numbers != NULL && store) {
			file->nbytes = numbers[at[rank]];
			file->header_hash = numbers[at[rank] + 1];
		} else if (numbers != NULL && rank == s->engine->rank) {
			numbers[at[rank]] = file->nbytes;
			numbers[at[rank] + 1] = file->header_hash;
		}
		at[rank] += 2;
	}
	for (size_t i = 0; i < s->manifest.ntensors; i++) {
		for (size_t k = 0; k < s->manifest.tensors[i].nboxes; k++) {
			srt_manifest_box_t *b = &s->manifest.tensors[i].boxes[k];
			const int rank = s->files[b->file].rank;
			const size_t nbytes = b->nblocks * sizeof(*numbers);

			if (numbers != NULL && store)
				memcpy(b->hashes, numbers + at[rank], nbytes);
			else if (numbers != NULL && rank == s->engine->rank)
				memcpy(numbers + at[rank], b->hashes, nbytes);
			at[rank] += b->nblocks;
		}
	}
}

/* All ranks know the numbers of all. Collective. */
srt_status_t srt_checkpoint_share_hashes(srt_checkpoint_write_t *s)
{
	srt_comm_t *comm = s->engine->comm;
	const size_t world = (size_t)comm->size;
	size_t *at = srt_comm_calloc(comm, world, sizeof(*at), "hashes of a checkpoint");
	uint64_t *mine = NULL, *all = NULL;
	size_t most = 0;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (at == NULL)
		return status;
	copy_numbers(s, false, NULL, at);
	for (size_t r = 0; r < world; r++)
		most = at[r] > most ? at[r] : most;
	mine = srt_comm_calloc(comm, most + 1, sizeof(*mine), "hashes of a checkpoint");
	if (mine != NULL)
		all = srt_comm_calloc(comm, (most + 1) * world, sizeof(*all),
				      "hashes of a checkpoint");
	if (all != NULL) {
		memset(at, 0, world * sizeof(*at));
		copy_numbers(s, false, mine, at);
		status = srt_comm_oob_allgather_for(comm, "sharing the hashes of a checkpoint",
						    mine, most * sizeof(*mine), all);
	}
	for (size_t r = 0; r < world; r++)
		at[r] = r * most;
	if (status == SRT_OK)
		copy_numbers(s, true, all, at);
	free(all);
	free(mine);
	free(at);
	return status;
}
