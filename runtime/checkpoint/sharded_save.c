/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engine -> folder (sharded.h). Every rank makes the list of all boxes of all ranks, writes its
 * files, and shares their hashes; rank 0 writes the manifest and renames the folder.
 */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <shardrt/engine_optimizer.h>
#include <shardrt/version.h>

#include "collectives/comm.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/sharded.h"
#include "runtime/engine/shard.h"

/* A box that this rank saves. */
typedef struct item {
	size_t tensor, box; /* of the manifest */
	size_t entry;       /* of its file's writer */
	srt_view_t view;    /* the rank's shard, or the buffer */
	srt_stream_t *stream;
	srt_walk_t walk; /* [0]: the box, [1]: the cell */
	int64_t first;   /* element of the cell where the shard begins */
} item_t;

typedef struct saver {
	srt_engine_t *engine;
	srt_saved_tensor_t *tensors;
	srt_manifest_t manifest;
	srt_saved_file_t *files;
	srt_safetensors_writer_t **writers; /* by file of the manifest; NULL: of another rank */
	item_t *items;
	size_t nitems;
	srt_folder_t folder; /* on rank 0 */
	char *temporary;
	unsigned char *block;
} saver_t;

static srt_status_t share_status(const saver_t *s, const char *folder, const char *verb,
				 srt_status_t status)
{
	const size_t n = strlen(folder);
	char doing[160];

	snprintf(doing, sizeof(doing), "%s checkpoint %s%s", verb, n > 96 ? "..." : "",
		 n > 96 ? folder + n - 96 : folder);
	return srt_comm_status_consensus(s->engine->comm, doing, status);
}

/* ---- what is saved ---------------------------------------------------------------------- */

static srt_status_t add_items(saver_t *s, size_t tensor, srt_stream_t *home, srt_stream_t *stream)
{
	const srt_saved_tensor_t *saved = &s->tensors[tensor];
	const srt_manifest_tensor_t *t = &s->manifest.tensors[tensor];
	const srt_param_t *p = saved->param;
	srt_shard_boxes_t shard = { 0 };
	size_t mine = 0;

	if (p != NULL)
		SRT_TRY(srt_shard_boxes(p, s->engine->rank, &shard));
	for (size_t b = 0; b < t->nboxes; b++) {
		const srt_box_t *box = &t->boxes[b].box;
		item_t *item = &s->items[s->nitems];

		if (s->files[t->boxes[b].file].rank != s->engine->rank)
			continue;
		*item = (item_t){ .tensor = tensor, .box = b, .first = shard.first };
		item->stream = p != NULL ? home : stream;
		item->view = p == NULL ? srt_view(s->engine->buffers_memory, saved->buffer->offset,
						  t->dtype) :
			     saved->kind == SRT_MANIFEST_VALUE ?
					 p->local :
					 srt_param_shard_view(p, SRT_ROLE_STATE + (int)saved->kind -
									 SRT_MANIFEST_STATE0);
		srt_walk_begin(&item->walk, t->ndim, box->size,
			       (srt_walk_array_t){ box->size, NULL },
			       p == NULL ? (srt_walk_array_t){ t->shape, NULL } :
					   (srt_walk_array_t){ shard.cell, shard.boxes[mine].at });
		mine++;
		s->nitems++;
	}
	free(shard.boxes);
	return SRT_OK;
}

static srt_status_t list_items(saver_t *s, srt_stream_t *home, srt_stream_t *stream)
{
	size_t total = 0;

	for (size_t i = 0; i < s->manifest.ntensors; i++)
		total += s->manifest.tensors[i].nboxes;
	s->items = srt_calloc(total + 1, sizeof(*s->items), "the boxes of a checkpoint");
	if (s->items == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < s->manifest.ntensors; i++)
		SRT_TRY(add_items(s, i, home, stream));
	return SRT_OK;
}

static srt_status_t take_groups(saver_t *s, srt_stream_t *stream)
{
	srt_manifest_t *m = &s->manifest;
	srt_engine_t *engine = s->engine;

	m->groups = srt_calloc(engine->ngroups + 1, sizeof(*m->groups), "groups of parameters");
	if (m->groups == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (m->ngroups = 0; m->ngroups < engine->ngroups; m->ngroups++) {
		m->groups[m->ngroups].has_lr = engine->optim->has_lr[m->ngroups];
		SRT_TRY(srt_engine_group_state(engine, (int32_t)m->ngroups, stream,
					       &m->groups[m->ngroups].state));
	}
	for (size_t i = 0; i < m->ntensors; i++) {
		srt_param_t *p = s->tensors[i].param;

		if (s->tensors[i].kind == SRT_MANIFEST_VALUE && !p->frozen)
			SRT_TRY(srt_param_steps(p, stream, &m->tensors[i].steps));
	}
	return SRT_OK;
}

static srt_status_t take_entries(saver_t *s, const srt_checkpoint_options_t *options)
{
	srt_manifest_t *m = &s->manifest;

	m->entries = srt_calloc(options->nentries + 1, sizeof(*m->entries), "entries");
	if (m->entries == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (m->nentries = 0; m->nentries < options->nentries;) {
		const srt_checkpoint_entry_t *from = &options->entries[m->nentries];
		srt_manifest_entry_t *to = &m->entries[m->nentries++];

		to->key = srt_strdup(from->key);
		to->data = srt_calloc(from->nbytes + 1, 1, "an entry");
		if (to->key == NULL || to->data == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		to->nbytes = from->nbytes;
		if (from->nbytes > 0)
			memcpy(to->data, from->data, from->nbytes);
	}
	return SRT_OK;
}

/* All that is saved, as lists. On return `home` comes after the work until now. */
static srt_status_t describe(saver_t *s, const srt_checkpoint_options_t *options,
			     srt_stream_t *stream)
{
	srt_engine_t *engine = s->engine;
	srt_stream_t *home;
	size_t n;

	s->block = srt_calloc(SRT_BLOCK_NBYTES, 1, "a block of a checkpoint");
	s->tensors = srt_saved_tensors(engine, &n);
	if (s->block == NULL || s->tensors == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	SRT_TRY(srt_saved_manifest(engine, s->tensors, n, &s->manifest, &s->files));
	s->manifest.world = engine->world;
	s->manifest.numerics_version = srt_numerics_version();
	s->manifest.optimizer = srt_strdup(srt_optimizer_name(engine->options.optimizer));
	s->writers = srt_calloc(s->manifest.nfiles + 1, sizeof(*s->writers), "files");
	if (s->manifest.optimizer == NULL || s->writers == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	SRT_TRY(take_groups(s, stream));
	SRT_TRY(take_entries(s, options));
	if (options->scaler != NULL) {
		s->manifest.has_scaler = true;
		SRT_TRY(srt_scaler_get_state(options->scaler, stream, &s->manifest.scaler));
	}
	/* Edge: the last step or change, perhaps on another stream -> the copies. */
	SRT_TRY(srt_stream_wait_event(stream, engine->stepped));
	SRT_TRY(srt_home_enter(engine, stream, &home));
	return list_items(s, home, stream);
}

/* ---- files ------------------------------------------------------------------------------ */

/* Where PyTorch's readers find the boxes of a file: DCP_SHARDING_INFO. To be freed. */
static char *write_offsets(const saver_t *s, const srt_safetensors_entry_t *entries,
			   const size_t *items, size_t n)
{
	json_t *root = json_object();
	char *text;

	for (size_t i = 0; i < n; i++) {
		const item_t *item = &s->items[items[i]];
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

static srt_status_t open_file(saver_t *s, size_t file, srt_safetensors_entry_t *entries,
			      size_t *items)
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

static srt_status_t open_files(saver_t *s)
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
static srt_status_t copy_bytes(const item_t *item, size_t elem, int64_t *run, int64_t *done,
			       unsigned char *to, size_t nbytes)
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

static srt_status_t write_item(saver_t *s, const item_t *item)
{
	srt_manifest_tensor_t *t = &s->manifest.tensors[item->tensor];
	srt_manifest_box_t *b = &t->boxes[item->box];
	const size_t elem = srt_dtype_size(t->dtype);
	int64_t run = 0, done = 0;

	for (size_t i = 0, n; i < b->nblocks; i++) {
		const size_t at = i * SRT_BLOCK_NBYTES;

		n = b->nbytes - at < SRT_BLOCK_NBYTES ? b->nbytes - at : SRT_BLOCK_NBYTES;
		SRT_TRY(copy_bytes(item, elem, &run, &done, s->block, n));
		b->hashes[i] = srt_block_hash(s->block, n);
		SRT_TRY(srt_safetensors_writer_put_at(s->writers[b->file], item->entry, at,
						      s->block, n));
	}
	return SRT_OK;
}

/* Syncs the rank's files, and reads their headers back. */
static srt_status_t close_files(saver_t *s)
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

static srt_status_t write_files(saver_t *s)
{
	SRT_TRY(open_files(s));
	for (size_t i = 0; i < s->nitems; i++)
		SRT_TRY(write_item(s, &s->items[i]));
	return close_files(s);
}

/* ---- the manifest ----------------------------------------------------------------------- */

/* The numbers that a rank finds while it writes: size and header of each file, hashes of each
 * block. Copies them in order to or from `numbers`; NULL: counts them. */
static size_t copy_numbers(saver_t *s, int rank, bool store, uint64_t *numbers)
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
static srt_status_t share_numbers(saver_t *s)
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

/* ---- the call --------------------------------------------------------------------------- */

/* Rank 0 makes the temporary folder, and the others learn its name. Collective. */
static srt_status_t create_folder(saver_t *s, const char *path)
{
	srt_comm_t *comm = s->engine->comm;
	char *all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(s->manifest.id),
				    "the identifier of a checkpoint");
	char *trimmed = NULL;
	srt_status_t status = all != NULL ? srt_folder_trim(path, &trimmed) : SRT_ERR_OUT_OF_MEMORY;

	if (status == SRT_OK && comm->rank == 0)
		status = srt_folder_create(&s->folder, path);
	status = share_status(s, path, "beginning to save", status);
	if (status == SRT_OK)
		status = srt_comm_oob_allgather_for(comm, "sharing the identifier of a checkpoint",
						    s->folder.id, sizeof(s->folder.id), all);
	if (status == SRT_OK) {
		memcpy(s->manifest.id, all, sizeof(s->manifest.id));
		s->temporary = srt_folder_temporary(trimmed, s->manifest.id);
		status = s->temporary != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	}
	free(trimmed);
	free(all);
	return status;
}

static void saver_clear(saver_t *s)
{
	for (size_t f = 0; s->writers != NULL && f < s->manifest.nfiles; f++)
		srt_safetensors_writer_destroy(s->writers[f]);
	srt_folder_close(&s->folder);
	srt_manifest_clear(&s->manifest);
	free(s->writers);
	free(s->items);
	free(s->files);
	free(s->tensors);
	free(s->temporary);
	free(s->block);
}

srt_status_t srt_checkpoint_save(srt_engine_t *engine, const char *folder,
				 const srt_checkpoint_options_t *options, srt_stream_t *stream)
{
	const srt_checkpoint_options_t defaults = { 0 };
	saver_t s = { .engine = engine, .folder = { .fd = -1 } };
	srt_status_t status;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_checkpoint_save"));
	SRT_TRY(srt_full_check(engine, "srt_checkpoint_save"));
	if (options == NULL)
		options = &defaults;
	status = srt_checkpoint_check(engine, "srt_checkpoint_save", options);
	if (status == SRT_OK)
		status = describe(&s, options, stream);
	status = share_status(&s, folder, "preparing", status);
	if (status == SRT_OK)
		status = create_folder(&s, folder);
	if (status == SRT_OK) {
		status = write_files(&s);
		status = share_status(&s, folder, "writing", status);
	}
	if (status == SRT_OK)
		status = share_numbers(&s);
	if (status == SRT_OK) {
		if (engine->rank == 0)
			status = srt_manifest_save(&s.manifest, s.temporary);
		if (engine->rank == 0 && status == SRT_OK)
			status = srt_folder_commit(&s.folder);
		status = share_status(&s, folder, "completing", status);
	}
	saver_clear(&s);
	return status;
}
