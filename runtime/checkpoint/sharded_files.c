/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of a rank, and their hashes (sharded_files.h). */
#include "runtime/checkpoint/sharded_files.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "runtime/checkpoint/rank_file.h"
#include "runtime/engine/shard.h"

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
		SRT_TRY(srt_copy_to_host(item->stream, to, item->view.buffer,
					 item->view.offset +
						 (size_t)(in_cell - item->first + *done) * elem,
					 n));
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
	if (s->snapshot == NULL)
		return srt_fail(SRT_ERR_OUT_OF_MEMORY,
				"no memory for a snapshot of %zu bytes: save without one, by "
				"srt_checkpoint_save()",
				total);
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

static srt_status_t write_item(srt_checkpoint_write_t *s, const srt_write_item_t *item)
{
	srt_manifest_tensor_t *t = &s->manifest.tensors[item->tensor];
	srt_manifest_box_t *b = &t->boxes[item->box];
	const size_t elem = srt_dtype_size(t->dtype);
	const unsigned char *bytes = s->block;
	int64_t run = 0, done = 0;

	for (size_t i = 0, n; i < b->nblocks; i++) {
		const size_t at = i * SRT_BLOCK_NBYTES;

		n = b->nbytes - at < SRT_BLOCK_NBYTES ? b->nbytes - at : SRT_BLOCK_NBYTES;
		if (item->snapshot != NULL)
			bytes = item->snapshot + at;
		else
			SRT_TRY(copy_bytes(item, elem, &run, &done, s->block, n));
		b->hashes[i] = srt_block_hash(bytes, n);
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
 * block. Copies them in order to or from `numbers`; NULL: counts them. */
static size_t copy_numbers(srt_checkpoint_write_t *s, int rank, bool store, uint64_t *numbers)
{
	size_t n = 0;

	for (size_t f = 0; f < s->manifest.nfiles; f++) {
		srt_manifest_file_t *file = &s->manifest.files[f];

		if (s->files[f].rank != rank)
			continue;
		if (numbers != NULL && store) {
			file->nbytes = numbers[n];
			file->header_hash = numbers[n + 1];
		} else if (numbers != NULL) {
			numbers[n] = file->nbytes;
			numbers[n + 1] = file->header_hash;
		}
		n += 2;
	}
	for (size_t i = 0; i < s->manifest.ntensors; i++) {
		for (size_t k = 0; k < s->manifest.tensors[i].nboxes; k++) {
			srt_manifest_box_t *b = &s->manifest.tensors[i].boxes[k];

			if (s->files[b->file].rank != rank)
				continue;
			if (numbers != NULL)
				memcpy(store ? b->hashes : numbers + n,
				       store ? numbers + n : b->hashes,
				       b->nblocks * sizeof(*numbers));
			n += b->nblocks;
		}
	}
	return n;
}

/* All ranks know the numbers of all. Collective. */
srt_status_t srt_checkpoint_share_hashes(srt_checkpoint_write_t *s)
{
	srt_comm_t *comm = s->engine->comm;
	uint64_t *mine, *all;
	size_t most = 0;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	for (int r = 0; r < comm->size; r++) {
		const size_t n = copy_numbers(s, r, false, NULL);

		most = n > most ? n : most;
	}
	mine = srt_comm_calloc(comm, most + 1, sizeof(*mine), "hashes of a checkpoint");
	all = mine == NULL ? NULL :
			     srt_comm_calloc(comm, (most + 1) * (size_t)comm->size, sizeof(*all),
					     "hashes of a checkpoint");
	if (all != NULL) {
		copy_numbers(s, comm->rank, false, mine);
		status = srt_comm_oob_allgather_for(comm, "sharing the hashes of a checkpoint",
						    mine, most * sizeof(*mine), all);
	}
	for (int r = 0; r < comm->size && status == SRT_OK; r++)
		copy_numbers(s, r, true, all + (size_t)r * most);
	free(all);
	free(mine);
	return status;
}
