/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: created, reset, destroyed. Declared by unit.c and param.c, built by build.c.
 */
#include <stdlib.h>

#include "collectives/comm.h"
#include "collectives/verify/call_log.h"
#include "runtime/engine/build/build.h"
#include "runtime/engine/checks/audit.h"
#include "runtime/engine/checks/checks.h"
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
	srt_options_dims(o, &engine->comms.shard_dim, &engine->comms.replicate_dim,
			 &engine->comms.tensor_dim);
	if (mesh != NULL) {
		srt_mesh_hold(mesh);
		engine->comms.mesh = mesh;
		engine->comm = mesh->comm != NULL ? mesh->comm : engine->comm;
	}
	srt_comm_hold(engine->comm);
	engine->rank = mesh != NULL ? mesh->rank : engine->comm->rank;
	engine->world = mesh != NULL ? mesh->size : engine->comm->size;
	if (srt_shard_count(engine, engine->world) > 1)
		engine->comms.shard =
			mesh != NULL ? mesh->comms[engine->comms.shard_dim] : engine->comm;
	if (srt_shard_replicas(engine, engine->world) > 1)
		engine->comms.replica =
			mesh != NULL ? mesh->comms[engine->comms.replicate_dim] : engine->comm;
	if (srt_cell_count(engine) > 1)
		engine->comms.tensor = mesh->comms[engine->comms.tensor_dim];
}

srt_status_t srt_engine_create(srt_context_t *context, const srt_engine_options_t *options,
			       srt_engine_t **out)
{
	srt_engine_options_t read;
	srt_optim_options_t optim;
	srt_precision_t precision = SRT_PRECISION_INIT;
	srt_engine_t *engine;
	srt_status_t status;

	SRT_NOT_NULL(context);
	SRT_TRY(srt_check_not_null(out, __func__, "engine"));
	SRT_TRY(srt_options_read(options, &read, &optim));
	SRT_TRY(srt_struct_read(&precision, sizeof(precision), read.precision, "srt_precision_t"));
	engine = srt_calloc(1, sizeof(*engine), "engine");
	if (engine == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	engine->context = context;
	engine->device = srt_context_device(context);
	engine->options = read;
	status = srt_engine_optim_new(engine, &optim);
	if (status != SRT_OK) {
		free(engine);
		return status;
	}
	engine->precision = precision;
	engine->options.precision = &engine->precision;
	engine->step.nmicrobatches = 1;
	choose_ranks(engine, context);
	*out = engine;
	return SRT_OK;
}

/* No wait of its collectives for other ranks lasts long from here. */
static void close_colls(const srt_engine_t *engine)
{
	static const char what[] = "the engine";

	for (size_t u = 0; u < engine->nunits; u++) {
		srt_coll_close(engine->units[u]->unshard.gather, what);
		srt_coll_close(engine->units[u]->unshard.regather, what);
		srt_coll_close(engine->units[u]->grads.reduce, what);
		srt_coll_close(engine->units[u]->grads.all_reduce, what);
	}
	srt_coll_close(engine->scalars.reduce_flags, what);
	srt_coll_close(engine->unit_buffers.broadcast, what);
	srt_coll_close(engine->scalars.gather_found, what);
	srt_coll_close(engine->matrices.gather, what);
	srt_coll_close(engine->matrices.scatter, what);
	srt_reproducible_sum_close(&engine->scalars.user_sum, what);
	srt_reproducible_sum_close(&engine->scalars.norm_sum, what);
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
	srt_stream_destroy(engine->home.copy_stream);
	srt_stream_destroy(engine->home.stream);
	srt_reproducible_sum_destroy(&engine->scalars.user_sum);
	srt_reproducible_sum_destroy(&engine->scalars.norm_sum);
	srt_coll_destroy(engine->scalars.reduce_flags);
	srt_coll_destroy(engine->unit_buffers.broadcast);
	srt_coll_destroy(engine->scalars.gather_found);
	srt_coll_destroy(engine->matrices.gather);
	srt_coll_destroy(engine->matrices.scatter);
	srt_optim_free(engine->optim);
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_audit_free(engine->units[u]->audit);
		srt_unit_free(engine->units[u]);
	}
	for (size_t s = 0; s < engine->storage.nslots[SRT_SLOT_PARAMS]; s++)
		srt_event_destroy(engine->storage.slots[SRT_SLOT_PARAMS][s].released);
	srt_event_destroy(engine->home.device_edge);
	srt_event_destroy(engine->order.stepped);
	srt_event_destroy(engine->order.summed);
	srt_event_destroy(engine->order.used);
	srt_event_destroy(engine->home.edge);
	srt_event_destroy(engine->home.downloaded);
	srt_event_destroy(engine->home.landed);
	for (int a = 0; a < SRT_NARENAS; a++) {
		srt_buffer_destroy(engine->storage.arena_alias[a]);
		srt_buffer_destroy(engine->storage.arena[a]);
	}
	for (int k = 0; k < SRT_NSLOT_KINDS; k++) {
		srt_buffer_destroy(engine->storage.slot_buffer[k]);
		free(engine->storage.slots[k]);
	}
	srt_buffer_destroy(engine->storage.staging_alias);
	srt_buffer_destroy(engine->storage.staging);
	srt_buffer_destroy(engine->storage.exchange);
	srt_buffer_destroy(engine->storage.landing_alias);
	srt_buffer_destroy(engine->storage.landing);
	srt_buffer_destroy(engine->storage.updates_alias);
	srt_buffer_destroy(engine->storage.updates_home);
	srt_buffer_destroy(engine->storage.updates);
	srt_buffer_destroy(engine->storage.matrices);
	srt_buffer_destroy(engine->storage.matrix_work);
	srt_buffer_destroy(engine->unit_buffers.memory);
	for (size_t i = 0; i < engine->unit_buffers.n; i++)
		srt_unit_buffer_free(engine->unit_buffers.all[i]);
	free(engine->unit_buffers.all);
	for (size_t i = 0; i < engine->storage.nof_program; i++)
		engine->options.free(engine->storage.of_program[i], engine->options.allocate_arg);
	srt_memory_free(&engine->memory);
	srt_call_log_destroy(engine->checks.calls);
	free(engine->scalars.flags);
	srt_names_free(&engine->declared.units);
	srt_names_free(&engine->declared.params);
	srt_names_free(&engine->declared.unit_buffers);
	if (engine->modules != NULL)
		srt_tree_free(engine->modules->tree);
	free(engine->units);
	free(engine->params);
	for (size_t i = 0; i < SRT_ARRAY_LEN(engine->comms.own); i++) {
		if (engine->comms.own[i] != NULL)
			srt_comm_release(engine->comms.own[i]);
	}
	srt_mesh_destroy(engine->comms.mesh);
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

		unit->pass.next_forward = u + 1 < n ? engine->units[u + 1] : NULL;
		unit->pass.next_backward = u > 1 ? engine->units[u - 1] : NULL;
	}
	if (n > 1)
		engine->units[0]->pass.next_backward = engine->units[n - 1];
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

		unit->pass.in_forward = unit->pass.in_backward = false;
		unit->unshard.is_gathered = unit->unshard.is_prefetched =
			unit->unshard.is_uploaded = false;
		unit->unshard.has_part = false;
		unit->pass.recompute = unit->pass.uses = 0;
		srt_check_set_views(unit);
		if (unit->slot[SRT_SLOT_PARAMS] != NULL)
			unit->slot[SRT_SLOT_PARAMS]->holder = NULL;
	}
	srt_full_drop(engine);
	srt_reduce_clear(engine);
	srt_engine_expect_declared(engine);
	engine->step.last_forward = engine->step.last_backward = NULL;
	engine->writes.open = false;
	return status == SRT_OK ? srt_verify_end(engine, SRT_ACTION_RESET) : status;
}
