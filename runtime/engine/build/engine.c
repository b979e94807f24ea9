/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: created, reset, destroyed. Declared by unit.c and param.c, built by build.c.
 */
#include <stdlib.h>

#include "collectives/comm.h"
#include "collectives/verify/call_log.h"
#include "runtime/engine/build/build.h"
#include "runtime/engine/checks/audit.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"
#include "runtime/engine/step/reproducible_sum.h"
#include "runtime/engine/step/step.h"
#include "runtime/engine/values/values.h"
#include "runtime/modules/module.h"

/* The ranks of the engine and what they do: by the options, which were checked. */
static void choose_ranks(srt_engine_t *engine, srt_context_t *context)
{
	const srt_engine_options_t *o = &engine->options;
	srt_mesh_t *mesh = o->mesh;

	engine->comm = o->comm != NULL ? o->comm : srt_context_world(context);
	srt_options_dims(o, &engine->shard_dim, &engine->replicate_dim, &engine->tensor_dim);
	if (mesh != NULL) {
		srt_mesh_hold(mesh);
		engine->mesh = mesh;
		engine->comm = mesh->comm != NULL ? mesh->comm : engine->comm;
	}
	srt_comm_hold(engine->comm);
	engine->rank = mesh != NULL ? mesh->rank : engine->comm->rank;
	engine->world = mesh != NULL ? mesh->size : engine->comm->size;
	if (srt_shard_count(engine, engine->world) > 1)
		engine->shard_comm = mesh != NULL ? mesh->comms[engine->shard_dim] : engine->comm;
	if (srt_shard_replicas(engine, engine->world) > 1)
		engine->replica_comm =
			mesh != NULL ? mesh->comms[engine->replicate_dim] : engine->comm;
	if (srt_cell_count(engine) > 1)
		engine->tensor_comm = mesh->comms[engine->tensor_dim];
}

srt_status_t srt_engine_create(srt_context_t *context, const srt_engine_options_t *options,
			       srt_engine_t **out)
{
	srt_engine_t *engine;

	SRT_NOT_NULL(context);
	SRT_NOT_NULL(options);
	SRT_TRY(srt_check_not_null(out, __func__, "engine"));
	SRT_TRY(srt_options_check(options));
	engine = srt_calloc(1, sizeof(*engine), "engine");
	if (engine == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	engine->context = context;
	engine->device = srt_context_device(context);
	engine->options = *options;
	srt_options_complete(&engine->options);
	engine->groups = srt_calloc(1, sizeof(*engine->groups), "groups of parameters");
	if (engine->groups == NULL) {
		free(engine);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	engine->groups[engine->ngroups++] = srt_options_group(&engine->options);
	if (options->precision != NULL) {
		engine->precision = *options->precision;
		engine->options.precision = &engine->precision;
	}
	engine->nmicrobatches = 1;
	choose_ranks(engine, context);
	*out = engine;
	return SRT_OK;
}

/* No wait of its collectives for other ranks lasts long from here. */
static void close_colls(const srt_engine_t *engine)
{
	static const char what[] = "the engine";

	for (size_t u = 0; u < engine->nunits; u++) {
		srt_coll_close(engine->units[u]->gather, what);
		srt_coll_close(engine->units[u]->regather, what);
		srt_coll_close(engine->units[u]->reduce, what);
		srt_coll_close(engine->units[u]->all_reduce, what);
	}
	srt_coll_close(engine->reduce_flags, what);
	srt_coll_close(engine->broadcast, what);
	srt_coll_close(engine->gather_found, what);
	srt_reproducible_sum_close(&engine->user_sum, what);
	srt_reproducible_sum_close(&engine->norm_sum, what);
}

void srt_engine_destroy(srt_engine_t *engine)
{
	if (engine == NULL || srt_device_is_inherited(engine->device))
		return;
	while (engine->saves != NULL)
		engine->saves->abandon(engine->saves);
	close_colls(engine);
	srt_full_drop(engine);
	srt_stream_destroy(engine->comm_stream);
	srt_stream_destroy(engine->copy_stream);
	srt_stream_destroy(engine->home_stream);
	srt_reproducible_sum_destroy(&engine->user_sum);
	srt_reproducible_sum_destroy(&engine->norm_sum);
	srt_coll_destroy(engine->reduce_flags);
	srt_coll_destroy(engine->broadcast);
	srt_coll_destroy(engine->gather_found);
	srt_optim_destroy(engine->optim);
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_audit_free(engine->units[u]->audit);
		srt_unit_free(engine->units[u]);
	}
	for (size_t s = 0; s < engine->nslots[SRT_SLOT_PARAMS]; s++)
		srt_event_destroy(engine->slots[SRT_SLOT_PARAMS][s].released);
	srt_event_destroy(engine->edge);
	srt_event_destroy(engine->stepped);
	srt_event_destroy(engine->summed);
	srt_event_destroy(engine->used);
	srt_event_destroy(engine->home_edge);
	srt_event_destroy(engine->downloaded);
	srt_event_destroy(engine->landed);
	for (int a = 0; a < SRT_NARENAS; a++) {
		srt_buffer_destroy(engine->arena_alias[a]);
		srt_buffer_destroy(engine->arena[a]);
	}
	for (int k = 0; k < SRT_NSLOT_KINDS; k++) {
		srt_buffer_destroy(engine->slot_buffer[k]);
		free(engine->slots[k]);
	}
	srt_buffer_destroy(engine->staging_alias);
	srt_buffer_destroy(engine->staging);
	srt_buffer_destroy(engine->exchange);
	srt_buffer_destroy(engine->landing_alias);
	srt_buffer_destroy(engine->landing);
	srt_buffer_destroy(engine->buffers_memory);
	for (size_t i = 0; i < engine->nbuffers; i++)
		srt_unit_buffer_free(engine->buffers[i]);
	free(engine->buffers);
	srt_memory_free(&engine->memory);
	srt_call_log_destroy(engine->calls);
	free(engine->flags);
	free(engine->groups);
	srt_names_free(&engine->unit_names);
	srt_names_free(&engine->param_names);
	srt_names_free(&engine->buffer_names);
	if (engine->modules != NULL)
		srt_tree_free(engine->modules->tree);
	free(engine->units);
	free(engine->params);
	for (size_t i = 0; i < SRT_ARRAY_LEN(engine->own_comm); i++) {
		if (engine->own_comm[i] != NULL)
			srt_comm_release(engine->own_comm[i]);
	}
	srt_mesh_destroy(engine->mesh);
	srt_comm_release(engine->comm);
	free(engine);
}

/*
 * Prefetching expects the order of the last pass; before the first pass, the order of declaration
 * and its reverse. The expected order must be the same on all ranks. After a failure the ranks may
 * have run different calls, so it starts again from the declaration.
 */
void srt_engine_expect_declared(srt_engine_t *engine)
{
	size_t n = engine->nunits;

	for (size_t u = 0; u < n; u++) {
		srt_unit_t *unit = engine->units[u];

		unit->next_forward = u + 1 < n ? engine->units[u + 1] : NULL;
		unit->next_backward = u > 1 ? engine->units[u - 1] : NULL;
	}
	if (n > 1)
		engine->units[0]->next_backward = engine->units[n - 1];
}

/* Ends the current step: no unit is in use or gathered, all gradients are dropped. */
srt_status_t srt_engine_reset(srt_engine_t *engine)
{
	srt_status_t status, synced;

	SRT_NOT_NULL(engine);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_reset"));
	status = srt_writes_end_pass(engine, engine->comm_stream);
	synced = srt_stream_sync(engine->comm_stream);
	status = status == SRT_OK ? synced : status;
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_unit_t *unit = engine->units[u];

		unit->in_forward = unit->in_backward = false;
		unit->is_gathered = unit->is_prefetched = unit->is_uploaded = false;
		unit->has_part = false;
		unit->recompute = unit->uses = 0;
		if (unit->slot[SRT_SLOT_PARAMS] != NULL)
			unit->slot[SRT_SLOT_PARAMS]->holder = NULL;
	}
	srt_full_drop(engine);
	srt_reduce_clear(engine);
	srt_engine_expect_declared(engine);
	engine->last_forward = engine->last_backward = NULL;
	engine->writing = false;
	return status == SRT_OK ? srt_verify_end(engine, SRT_ACTION_RESET) : status;
}
