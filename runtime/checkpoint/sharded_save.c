/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engine -> folder (sharded.h). Every rank makes the list of all boxes of all ranks, writes its
 * files, and shares their hashes; rank 0 writes the manifest and renames the folder.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shardrt/engine.h>
#include <shardrt/version.h>

#include "collectives/comm.h"
#include "runtime/checkpoint/sharded_files.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"

static void begin_work(srt_checkpoint_write_t *s, const char *verb)
{
	srt_long_work_begin(&s->work, s->engine->comm, srt_describe_doing(verb, s->path, NULL));
}

/* ---- what is saved ---------------------------------------------------------------------- */

static srt_status_t add_items(srt_checkpoint_write_t *s, size_t tensor, srt_stream_t *home,
			      srt_stream_t *stream)
{
	const srt_saved_tensor_t *saved = &s->tensors[tensor];
	const srt_manifest_tensor_t *t = &s->manifest.tensors[tensor];
	const srt_param_t *p = saved->param;
	srt_shard_boxes_t shard = { 0 };
	size_t mine = 0;

	if (p != NULL)
		SRT_TRY(srt_shard_boxes(p, saved->kind, s->engine->rank, &shard));
	for (size_t b = 0; b < t->nboxes; b++) {
		const srt_box_t *box = &t->boxes[b].box;
		srt_write_item_t *item = &s->items[s->nitems];

		if (s->files[t->boxes[b].file].rank != s->engine->rank)
			continue;
		*item = (srt_write_item_t){ .tensor = tensor, .box = b, .first = shard.first };
		item->stream = p != NULL ? home : stream;
		item->view = p == NULL ? srt_view(s->engine->unit_buffers.memory,
						  saved->buffer->offset, t->dtype) :
			     saved->kind == SRT_MANIFEST_VALUE ?
					 p->views.local :
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

static srt_status_t list_items(srt_checkpoint_write_t *s, srt_stream_t *home, srt_stream_t *stream)
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

static srt_status_t take_groups(srt_checkpoint_write_t *s, srt_stream_t *stream)
{
	srt_manifest_t *m = &s->manifest;
	srt_engine_t *engine = s->engine;
	srt_step_info_t info = SRT_STEP_INFO_INIT;

	m->groups =
		srt_calloc(engine->optim->ngroups + 1, sizeof(*m->groups), "groups of parameters");
	if (m->groups == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	while (m->ngroups < engine->optim->ngroups) {
		const size_t g = m->ngroups++;
		srt_manifest_group_t *group = &m->groups[g];

		group->optimizer = srt_strdup(srt_group_optimizer_name(&engine->optim->groups[g]));
		if (group->optimizer == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		group->has_lr = engine->optim->has_lr[g];
		SRT_TRY(srt_optim_get_step_info(engine->optim, g, &info, stream));
		SRT_TRY(srt_step_info_read(&group->state, &info));
	}
	for (size_t i = 0; i < m->ntensors; i++) {
		srt_param_t *p = s->tensors[i].param;

		if (s->tensors[i].kind == SRT_MANIFEST_VALUE && !p->frozen)
			SRT_TRY(srt_optim_get_steps(engine->optim, p->listed, &m->tensors[i].steps,
						    stream));
	}
	return SRT_OK;
}

/* All that is saved, as lists. On return `home` comes after the work until now. */
static srt_status_t describe(srt_checkpoint_write_t *s, const srt_checkpoint_options_t *options,
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
	s->manifest.fast = srt_device_is_fast(engine->device);
	s->manifest.optimizer = srt_strdup(srt_optimizer_name(engine->optim));
	s->writers = srt_calloc(s->manifest.nfiles + 1, sizeof(*s->writers), "files");
	if (s->manifest.optimizer == NULL || s->writers == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	SRT_TRY(take_groups(s, stream));
	SRT_TRY(srt_entries_copy(options, &s->manifest, &s->rank_entries));
	if (options->scaler != NULL) {
		s->manifest.has_scaler = true;
		SRT_TRY(srt_scaler_get_state(options->scaler, &s->manifest.scaler, stream));
	}
	/* Edge: the last step or change, perhaps on another stream -> the copies. */
	SRT_TRY(srt_stream_wait_event(stream, engine->order.stepped));
	SRT_TRY(srt_home_enter(engine, stream, &home));
	return list_items(s, home, stream);
}

/* ---- the calls -------------------------------------------------------------------------- */

/* Rank 0 makes the temporary folder, and the others learn its identifier; *has_snapshot: all ranks
 * have one. Collective. */
static srt_status_t create_folder(srt_checkpoint_write_t *s, bool *has_snapshot)
{
	typedef struct start {
		char id[SRT_CHECKPOINT_ID_LENGTH + 1];
		bool has_snapshot;
	} start_t;
	srt_comm_t *comm = s->engine->comm;
	start_t mine = { .has_snapshot = s->snapshot != NULL }, *all;
	srt_status_t status = SRT_OK;

	all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*all), "the start of a save");
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	begin_work(s, "beginning to save checkpoint");
	if (comm->rank == 0)
		status = srt_folder_create(&s->folder, s->path);
	status = srt_long_work_end(&s->work, status);
	if (status == SRT_OK) {
		memcpy(mine.id, s->folder.id, sizeof(mine.id));
		status = srt_comm_oob_allgather_for(comm, "sharing the start of a save", &mine,
						    sizeof(mine), all);
	}
	*has_snapshot = true;
	for (int r = 0; r < comm->size && status == SRT_OK; r++)
		*has_snapshot = *has_snapshot && all[r].has_snapshot;
	if (status == SRT_OK)
		memcpy(s->manifest.id, all[0].id, sizeof(s->manifest.id));
	free(all);
	return status;
}

static void free_write(srt_checkpoint_write_t *s)
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
	free(s->snapshot);
	free(s->rank_entries.bytes);
	free(s->path);
	free(s);
}

/* The state of the program and of the engine at the call, and the folder. Collective. */
static srt_status_t begin(srt_engine_t *engine, const char *call, const char *path,
			  const srt_checkpoint_options_t *given, srt_stream_t *stream,
			  bool takes_snapshot, srt_checkpoint_write_t **write)
{
	srt_checkpoint_options_t options;
	srt_checkpoint_write_t *s = srt_comm_calloc(engine->comm, 1, sizeof(*s), "a save");
	bool has_snapshot;
	srt_status_t status;

	if (s == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	s->engine = engine;
	s->folder.fd = -1;
	status = srt_checkpoint_check(engine, call, given, &options);
	if (status == SRT_OK)
		status = srt_manifest_require(call);
	if (status == SRT_OK)
		status = srt_folder_trim(path, &s->path);
	if (status == SRT_OK)
		status = describe(s, &options, stream);
	if (status == SRT_OK && takes_snapshot)
		status = srt_checkpoint_take_snapshot(s);
	status = srt_share_status(engine, srt_describe_doing("preparing checkpoint", path, NULL),
				  status);
	if (status == SRT_OK)
		status = srt_entries_gather(engine->comm, &s->rank_entries, &s->manifest);
	if (status == SRT_OK)
		status = create_folder(s, &has_snapshot);
	if (status == SRT_OK && !has_snapshot)
		srt_checkpoint_drop_snapshot(s);
	if (status == SRT_OK)
		*write = s;
	else
		free_write(s);
	return status;
}

/* The status of all ranks after this one has written its files. Rank 0 removes the folder when it
 * gives up because another rank has failed; then the cause is that rank, not the missing folder.
 * Collective. */
static srt_status_t end_writing(srt_checkpoint_write_t *s, srt_status_t mine)
{
	const srt_status_t status = srt_long_work_end(&s->work, mine);

	if (mine == SRT_OK || s->temporary == NULL || !srt_comm_poisoned(s->engine->comm) ||
	    access(s->temporary, F_OK) == 0 || errno != ENOENT)
		return status;
	return srt_comm_status_consensus(s->engine->comm, s->work.doing.text, SRT_OK);
}

/* Writes the files of this rank, now. Collective. */
static srt_status_t write_now(srt_checkpoint_write_t *s)
{
	begin_work(s, "writing checkpoint");
	return end_writing(s, srt_checkpoint_write_files(s));
}

/* After the files of all ranks were written, or not. Collective. */
static srt_status_t complete(srt_checkpoint_write_t *s, srt_status_t status)
{
	if (status == SRT_OK)
		status = srt_checkpoint_share_hashes(s);
	if (status == SRT_OK) {
		begin_work(s, "completing checkpoint");
		if (s->engine->rank == 0)
			status = srt_manifest_save(&s->manifest, s->temporary);
		if (s->engine->rank == 0 && status == SRT_OK)
			status = srt_folder_commit(&s->folder, true);
		status = srt_long_work_end(&s->work, status);
	}
	free_write(s);
	return status;
}

srt_status_t srt_checkpoint_save(srt_engine_t *engine, const char *folder,
				 const srt_checkpoint_options_t *options, srt_stream_t *stream)
{
	srt_checkpoint_write_t *s;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(engine, "srt_checkpoint_save"));
	SRT_TRY(srt_full_check(engine, "srt_checkpoint_save"));
	SRT_TRY(begin(engine, "srt_checkpoint_save", folder, options, stream, false, &s));
	return complete(s, write_now(s));
}

static void *run_thread(void *arg)
{
	srt_checkpoint_write_t *s = arg;

	s->status = srt_checkpoint_write_files(s);
	srt_error_save(&s->why);
	atomic_store_explicit(&s->is_done, true, memory_order_release);
	return NULL;
}

static void join_thread(srt_checkpoint_write_t *s)
{
	if (s->has_thread)
		pthread_join(s->thread, NULL);
	s->has_thread = false;
}

/* Removes the save from those that the engine waits for. */
static void close_save(srt_checkpoint_write_t *s)
{
	srt_open_save_t **at = &s->engine->saves;

	while (*at != &s->open)
		at = &(*at)->next;
	*at = s->open.next;
}

static void abandon_save(srt_open_save_t *open)
{
	srt_checkpoint_write_t *s =
		(srt_checkpoint_write_t *)(void *)((char *)open -
						   offsetof(srt_checkpoint_write_t, open));

	srt_log(SRT_LOG_WARN,
		"the engine is destroyed before srt_checkpoint_save_end() of %s: that "
		"checkpoint is not completed",
		s->path);
	join_thread(s);
	close_save(s);
	s->engine = NULL;
}

static void start_thread(srt_checkpoint_write_t *s)
{
	s->has_thread = srt_thread_create(&s->thread, run_thread, s) == 0;
	if (!s->has_thread) /* the same result, later */
		run_thread(s);
}

srt_status_t srt_checkpoint_save_begin(srt_engine_t *engine, const char *folder,
				       const srt_checkpoint_options_t *options,
				       srt_checkpoint_write_t **write, srt_stream_t *stream)
{
	srt_checkpoint_write_t *s;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(write);
	SRT_TRY(srt_engine_require_built(engine, "srt_checkpoint_save_begin"));
	SRT_TRY(srt_full_check(engine, "srt_checkpoint_save_begin"));
	SRT_TRY(begin(engine, "srt_checkpoint_save_begin", folder, options, stream, true, &s));
	if (s->snapshot != NULL) {
		start_thread(s);
	} else { /* some rank had no memory for its copy */
		s->status = write_now(s);
		srt_error_save(&s->why);
		atomic_store_explicit(&s->is_done, true, memory_order_release);
	}
	s->open = (srt_open_save_t){ .next = engine->saves, .abandon = abandon_save };
	engine->saves = &s->open;
	*write = s;
	return SRT_OK;
}

int srt_checkpoint_save_done(const srt_checkpoint_write_t *write)
{
	return write == NULL || atomic_load_explicit(&write->is_done, memory_order_acquire);
}

/* Several saves may be written at a time, and ranks may see them written in different orders: all
 * must end the same one. Collective. */
static srt_status_t check_same_save(const srt_checkpoint_write_t *s)
{
	typedef struct end {
		char id[SRT_CHECKPOINT_ID_LENGTH + 1];
		char folder[256]; /* its end */
	} end_t;
	srt_comm_t *comm = s->engine->comm;
	const size_t length = strlen(s->path);
	end_t mine = { 0 },
	      *all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*all), "ends of a save");
	srt_status_t status = all != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	memcpy(mine.id, s->manifest.id, sizeof(mine.id));
	snprintf(mine.folder, sizeof(mine.folder), "%s",
		 s->path + (length < sizeof(mine.folder) ? 0 : length + 1 - sizeof(mine.folder)));
	if (status == SRT_OK)
		status =
			srt_comm_oob_allgather_for(comm, "ending a save", &mine, sizeof(mine), all);
	for (int r = 1; r < comm->size && status == SRT_OK; r++)
		if (strcmp(all[r].id, all[0].id) != 0)
			status =
				srt_fail(SRT_ERR_MISMATCH,
					 "srt_checkpoint_save_end(): rank %d ends the save of %s, "
					 "rank %d that of %s: end saves in one order on all ranks; "
					 "neither checkpoint is completed",
					 comm->world_rank[0], all[0].folder, comm->world_rank[r],
					 all[r].folder);
	free(all);
	return status;
}

srt_status_t srt_checkpoint_save_end(srt_checkpoint_write_t *write)
{
	srt_status_t status;

	SRT_NOT_NULL(write);
	if (write->engine == NULL) {
		free_write(write);
		return srt_fail(SRT_ERR_STATE,
				"srt_checkpoint_save_end(): the engine was destroyed before; the "
				"checkpoint is not completed");
	}
	if (srt_device_is_inherited(write->engine->device)) /* the thread is not here */
		return srt_fail(SRT_ERR_STATE,
				"srt_checkpoint_save_end() in a child by fork(): call it in the "
				"process that began the save");
	close_save(write);
	status = check_same_save(write);
	if (status != SRT_OK) {
		srt_error_text_t why;

		srt_error_save(&why);
		join_thread(write);
		free_write(write);
		srt_error_restore(&why);
		return status;
	}
	begin_work(write, "writing checkpoint");
	join_thread(write);
	if (write->status != SRT_OK)
		srt_error_restore(&write->why);
	status = end_writing(write, write->status);
	return complete(write, status);
}
