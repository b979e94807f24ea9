/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Building the engine: from the declaration to memory, views and collectives.
 *
 * Every rank makes the same collectives in the same order: unit by unit gather, reduction; then
 * the small ones of a step.
 */
#include <stdlib.h>

#include "device/device.h"
#include "collectives/comm.h"
#include "runtime/engine/engine.h"

static srt_status_t make_buffers(srt_engine_t *engine)
{
	const srt_memory_t *m = &engine->memory;
	srt_device_t *device = engine->device;
	srt_mem_kind_t shared = srt_comm_mem_kind(engine->comm);

	SRT_TRY(srt_buffer_create(device, shared, m->arena, "parameter shards", &engine->values));
	SRT_TRY(srt_buffer_create(device, shared, m->trainable, "gradient shards", &engine->grads));
	for (int k = 0; k < m->nstates; k++)
		SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, m->trainable, "optimizer state",
					  &engine->states[k]));
	SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, m->slots.total, "whole parameters",
				  &engine->slots_buffer));
	SRT_TRY(srt_buffer_create(device, shared, m->grad_slots.total, "whole gradients",
				  &engine->grad_slots_buffer));
	SRT_TRY(srt_buffer_create(device, shared, m->staging.total, "engine tables",
				  &engine->staging));
	return SRT_OK;
}

static srt_status_t make_events(srt_engine_t *engine)
{
	srt_device_t *device = engine->device;

	SRT_TRY(srt_stream_create(device, -1, "communication", &engine->comm_stream));
	SRT_TRY(srt_event_create(device, &engine->edge));
	SRT_TRY(srt_event_create(device, &engine->stepped));
	for (int s = 0; s < engine->memory.slots.nslots; s++)
		SRT_TRY(srt_event_create(device, &engine->slots[s].released));
	for (size_t u = 0; u < engine->nunits; u++) {
		SRT_TRY(srt_event_create(device, &engine->units[u]->gathered));
		SRT_TRY(srt_event_create(device, &engine->units[u]->reduced));
	}
	return SRT_OK;
}

static srt_status_t make_slots(srt_engine_t *engine)
{
	const srt_memory_t *m = &engine->memory;
	bool in_arena = srt_plan_grad_place(engine, engine->world) == SRT_GRAD_IN_ARENA;

	/* Gradients in the arena have one "slot" a unit, for the order of its uses. */
	engine->ngrad_slots = in_arena ? engine->nunits : (size_t)m->grad_slots.nslots;
	engine->slots = srt_calloc((size_t)m->slots.nslots, sizeof(srt_slot_t), "slots");
	engine->grad_slots = srt_calloc(engine->ngrad_slots, sizeof(srt_slot_t), "gradient slots");
	engine->flags = srt_calloc(SRT_FLAG_NELEM * engine->ntrainable, sizeof(*engine->flags),
				   "gradient flags");
	if (engine->slots == NULL || engine->grad_slots == NULL || engine->flags == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int s = 0; s < m->slots.nslots; s++) {
		engine->slots[s].offset = m->slots.offset[s];
		engine->slots[s].nbytes = m->slots.nbytes[s];
	}
	for (int s = 0; s < m->grad_slots.nslots; s++) {
		engine->grad_slots[s].offset = m->grad_slots.offset[s];
		engine->grad_slots[s].nbytes = m->grad_slots.nbytes[s];
	}
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_unit_t *unit = engine->units[u];

		if (m->slots.slot_of != NULL && m->slots.slot_of[u] >= 0)
			unit->slot = &engine->slots[m->slots.slot_of[u]];
		if (unit->trainable_nbytes == 0)
			continue;
		unit->grad_slot = &engine->grad_slots[in_arena ? (int)u : m->grad_slots.slot_of[u]];
	}
	return SRT_OK;
}

static void place_param(srt_engine_t *engine, srt_param_t *param, size_t arena_offset)
{
	const srt_unit_t *unit = param->unit;

	param->nrows =
		srt_shard_local_rows(engine, param, engine->rank, engine->world, &param->row0);
	param->arena_offset = arena_offset;
	param->local = srt_view(engine->values, arena_offset, param->dtype);
	param->full = param->local;
	if (unit->slot != NULL)
		param->full = srt_view(engine->slots_buffer,
				       unit->slot->offset + param->full_offset, param->dtype);
	if (param->frozen)
		return;
	param->local_grad = srt_view(engine->grads, arena_offset, param->dtype);
	param->full_grad = param->local_grad;
	if (unit->grad_slot != NULL &&
	    srt_plan_grad_place(engine, engine->world) != SRT_GRAD_IN_ARENA)
		param->full_grad =
			srt_view(engine->grad_slots_buffer,
				 unit->grad_slot->offset + param->full_offset, param->dtype);
}

static srt_status_t place_params(srt_engine_t *engine)
{
	size_t *offsets = srt_calloc(engine->nparams, sizeof(*offsets), "shard offsets");
	size_t trainable, total;

	if (offsets == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	srt_shard_layout(engine, engine->rank, engine->world, offsets, &trainable, &total);
	for (size_t i = 0; i < engine->nparams; i++)
		place_param(engine, engine->params[i], offsets[i]);
	free(offsets);
	return SRT_OK;
}

/* All that a rank does alone. */
static srt_status_t allocate(srt_engine_t *engine)
{
	SRT_TRY(make_buffers(engine));
	SRT_TRY(make_slots(engine));
	SRT_TRY(make_events(engine));
	return place_params(engine);
}

static srt_status_t make_gather(srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;
	srt_coll_desc_t desc = {
		.kind = SRT_COLL_ALL_GATHER,
		.name = unit->name,
		.dtype = SRT_F32,
		.shard = srt_view(engine->values, 0, SRT_F32),
	};
	srt_owners_t owners = { 0 };
	srt_status_t status;

	if (unit->slot == NULL)
		return SRT_OK;
	SRT_TRY(srt_shard_owners(unit, false, &owners));
	desc.full = srt_view(engine->slots_buffer, unit->slot->offset, SRT_F32);
	desc.owners = owners.owner;
	status = srt_coll_create(engine->comm, &desc, &unit->gather);
	srt_owners_free(&owners);
	return status;
}

/* Where the whole gradients of a unit begin. */
static srt_view_t unit_grads(const srt_unit_t *unit)
{
	for (size_t i = 0; i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];

		if (!param->frozen) /* the first one lies at the start of the layout */
			return param->full_grad;
	}
	return (srt_view_t){ 0 };
}

static srt_status_t make_reduce(srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;
	bool sharded = engine->options.strategy == SRT_STRATEGY_ZERO3;
	srt_coll_desc_t desc = {
		.kind = sharded ? SRT_COLL_REDUCE_SCATTER : SRT_COLL_ALL_REDUCE,
		.name = unit->name,
		.dtype = SRT_F32,
	};
	srt_owners_t owners = { 0 };
	srt_status_t status;

	if (unit->grad_slot == NULL || engine->world == 1)
		return SRT_OK;
	if (sharded)
		SRT_TRY(srt_shard_owners(unit, true, &owners));
	else
		SRT_TRY(srt_shard_owners_in_place(unit, &owners));
	desc.full = unit_grads(unit);
	if (sharded)
		desc.shard = srt_view(engine->grads, 0, SRT_F32);
	desc.owners = owners.owner;
	status = srt_coll_create(engine->comm, &desc, &unit->reduce);
	srt_owners_free(&owners);
	return status;
}

/* Every rank owns every flag: all sum all flags. */
static srt_status_t make_flags(srt_engine_t *engine)
{
	const srt_coll_segment_t all = { .nelem = SRT_FLAG_NELEM * engine->ntrainable };
	size_t world = (size_t)engine->world;
	srt_coll_owner_t *owners = srt_calloc(world, sizeof(*owners), "owners of gradient flags");
	srt_coll_desc_t desc = {
		.kind = SRT_COLL_REDUCE_SCATTER,
		.name = "gradient flags",
		.dtype = SRT_F32,
		.full = srt_view(engine->staging, engine->memory.staging.flags, SRT_F32),
		.shard = srt_view(engine->staging, engine->memory.staging.used, SRT_F32),
		.owners = owners,
	};
	srt_status_t status;

	if (owners == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t r = 0; r < world; r++)
		owners[r] = (srt_coll_owner_t){ &all, 1 };
	status = srt_coll_create(engine->comm, &desc, &engine->reduce_flags);
	free(owners);
	return status;
}

static srt_status_t make_collectives(srt_engine_t *engine)
{
	bool sharded = srt_shard_count(engine, engine->world) > 1;
	const srt_staging_t *staging = &engine->memory.staging;

	for (size_t u = 0; u < engine->nunits; u++) {
		SRT_TRY(make_gather(engine->units[u]));
		SRT_TRY(make_reduce(engine->units[u]));
	}
	if (engine->ntrainable > 0)
		SRT_TRY(make_flags(engine));
	SRT_TRY(srt_sum_create(engine, &staging->norm_sum, sharded, "gradient norm",
			       &engine->norm_sum));
	return srt_sum_create(engine, &staging->user_sum, engine->world > 1, "sum over ranks",
			      &engine->user_sum);
}

static srt_status_t allocate_as_planned(srt_engine_t *engine, const srt_plan_t *plan)
{
	srt_status_t status = allocate(engine);

	return status == SRT_ERR_OUT_OF_MEMORY ? srt_room_fail(plan, srt_last_error()) : status;
}

/* Here no work of this engine is on its way, so the device may wait for what it has. */
static void prepare_kernels(const srt_engine_t *engine)
{
	bool done[SRT_DTYPE_COUNT] = { false };

	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_dtype_t dtype = engine->params[i]->dtype;

		if (!done[dtype])
			srt_device_prepare(engine->device, dtype);
		done[dtype] = true;
	}
}

srt_status_t srt_engine_build(srt_engine_t *engine)
{
	srt_plan_t plan;

	if (engine == NULL || engine->built)
		return srt_fail(SRT_ERR_STATE, "srt_engine_build() of %s",
				engine == NULL ? "no engine" : "an engine that is built");
	if (engine->nunits == 0)
		return srt_fail(SRT_ERR_STATE, "srt_engine_build() of an engine without units");
	if (engine->build_begun)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_build() failed before and left the engine half made: "
				"destroy it and make another one");
	SRT_TRY(srt_engine_compare(engine));
	engine->build_begun = true;
	prepare_kernels(engine);
	SRT_TRY(srt_memory_plan(engine, engine->rank, engine->world, &engine->memory));
	SRT_TRY(srt_comm_status_consensus(engine->comm, "making the memory plan",
					  srt_engine_plan(engine, engine->rank, engine->world,
							  &plan)));
	SRT_TRY(srt_room_compare(engine, &plan));
	SRT_TRY(srt_comm_status_consensus(engine->comm, "allocating the memory plan",
					  allocate_as_planned(engine, &plan)));
	SRT_TRY(make_collectives(engine));
	SRT_TRY(srt_optim_create(engine, engine->comm_stream));
	srt_engine_expect_declared(engine);
	engine->built = true;
	engine->order_checked = engine->world == 1;
	return SRT_OK;
}
