/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of a rank, and their hashes (sharded_files.h). */
#include "runtime/checkpoint/sharded_files.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "collectives/comm.h"
#include "runtime/engine/shard.h"

/* ---- files ------------------------------------------------------------------------------ */

/* Where PyTorch's readers find the boxes of a file: DCP_SHARDING_INFO. To be freed. */
static char *write_offsets(const srt_checkpoint_write_t *s, const srt_safetensors_entry_t *entries,
			   const size_t *items, size_t n)
{
	json_t *root = json_object();
	char *text;

	for (size_t i = 0; i < n; i++) {
		const srt_write_item_t *item = &s->items[items[i]];
		const srt_manifest_tensor_t *t = &s->manifest.tensors[item->tensor];
		json_t *offsets = json_array();

		for (int d = 0; d < t->ndim; d++)
			json_array_append_new(offsets,
					      json_integer(t->boxes[item->box].box.offset[d]));
		json_object_set_new(root, entries[i].name,
				    json_pack("{s:o}", "saved_offsets", offsets));
	}
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	if (text == NULL)
		srt_fail(SRT_ERR_OUT_OF_MEMORY,
			 "no memory for the offsets of a checkpoint's boxes");
	return text;
}

static srt_status_t open_file(srt_checkpoint_write_t *s, size_t file,
			      srt_safetensors_entry_t *entries, size_t *items)
{
	char *path = srt_asprintf("%s/%s", s->temporary, s->manifest.files[file].name);
	char *offsets = NULL;
	srt_status_t status = SRT_OK;
	size_t n = 0;

	for (size_t i = 0; i < s->nitems && status == SRT_OK; i++) {
		const srt_manifest_tensor_t *t = &s->manifest.tensors[s->items[i].tensor];
		const srt_manifest_box_t *b = &t->boxes[s->items[i].box];

		if (b->file != file)
			continue;
		entries[n] = (srt_safetensors_entry_t){ .dtype = t->dtype, .ndim = t->ndim };
		memcpy(entries[n].shape, b->box.size, sizeof(b->box.size));
		entries[n].name = srt_manifest_key(t->kind, t->name);
		s->items[i].entry = n;
		items[n] = i;
		status = entries[n].name != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
		n++;
	}
	if (status == SRT_OK)
		offsets = write_offsets(s, entries, items, n);
	if (status == SRT_OK && (path == NULL || offsets == NULL))
		status = SRT_ERR_OUT_OF_MEMORY;
	if (status == SRT_OK) {
		const srt_file_metadata_t metadata[] = { { "format", "pt" },
							 { "DCP_VERSION", "1.0" },
							 { "DCP_SHARDING_INFO", offsets },
							 { SRT_CHECKPOINT_ID_KEY,
							   s->manifest.id } };

		status = srt_safetensors_writer_create(path, entries, n, metadata, 4,
						       &s->writers[file]);
	}
	for (size_t i = 0; i < n; i++)
		free((void *)(uintptr_t)entries[i].name);
	free(offsets);
	free(path);
	return status;
}

static srt_status_t open_files(srt_checkpoint_write_t *s)
{
	srt_safetensors_entry_t *entries =
		srt_calloc(s->nitems + 1, sizeof(*entries), "the tensors of a file");
	size_t *items = srt_calloc(s->nitems + 1, sizeof(*items), "the tensors of a file");
	srt_status_t status = entries != NULL && items != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	for (size_t f = 0; f < s->manifest.nfiles && status == SRT_OK; f++)
		if (s->files[f].rank == s->engine->rank)
			status = open_file(s, f, entries, items);
	free(items);
	free(entries);
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

/* Syncs the rank's files, and reads their headers back. */
static srt_status_t close_files(srt_checkpoint_write_t *s)
{
	for (size_t f = 0; f < s->manifest.nfiles; f++) {
		srt_manifest_file_t *file = &s->manifest.files[f];
		srt_safetensors_t *opened;
		srt_status_t status;
		char *path;

		if (s->writers[f] == NULL)
			continue;
		SRT_TRY(srt_safetensors_writer_commit(s->writers[f]));
		path = srt_asprintf("%s/%s", s->temporary, file->name);
		if (path == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		status = srt_safetensors_open(path, &opened);
		free(path);
		SRT_TRY(status);
		file->nbytes = srt_safetensors_identity(opened)->nbytes;
		file->header_hash = srt_safetensors_identity(opened)->header_hash;
		srt_safetensors_close(opened);
	}
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
