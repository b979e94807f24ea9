/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocation of the memory plan on this rank: buffers, slots, events, and the views of parameters
 * and gradients. Local; the ranks compare their results afterwards (build.c).
 */
#include <stdlib.h>

#include "collectives/comm.h"
#include "runtime/engine/engine.h"

static srt_status_t create_buffers(srt_engine_t *engine)
{
	const srt_memory_t *m = &engine->memory;
	srt_device_t *device = engine->device;
	srt_mem_kind_t shared = srt_comm_mem_kind(engine->comm);

	SRT_TRY(srt_buffer_create(device, shared, m->arena, "parameter shards", &engine->values));
	SRT_TRY(srt_buffer_create(device, shared, m->trainable, "gradient shards", &engine->grads));
	for (int k = 0; k < m->nstates; k++)
		SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, m->trainable, "optimizer state",
					  &engine->states[k]));
	SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, m->slots.total, "unsharded parameters",
				  &engine->slots_buffer));
	SRT_TRY(srt_buffer_create(device, shared, m->grad_slots.total, "unsharded gradients",
				  &engine->grad_slots_buffer));
	SRT_TRY(srt_buffer_create(device, shared, m->staging.total, "engine tables",
				  &engine->staging));
	return SRT_OK;
}

static srt_status_t create_events(srt_engine_t *engine)
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

static srt_status_t create_slots(srt_engine_t *engine)
{
	const srt_memory_t *m = &engine->memory;
	bool in_arena = srt_plan_grad_location(engine, engine->world) == SRT_GRAD_IN_ARENA;

	/* Gradients in the arena: one slot a unit without memory, which orders its uses. */
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

static void create_param_views(srt_engine_t *engine, srt_param_t *param, size_t arena_offset)
{
	const srt_unit_t *unit = param->unit;

	param->nrows =
		srt_shard_local_rows(engine, param, engine->rank, engine->world, &param->row0);
	param->arena_offset = arena_offset;
	param->local = srt_view(engine->values, arena_offset, param->dtype);
	param->unsharded = param->local;
	if (unit->slot != NULL)
		param->unsharded =
			srt_view(engine->slots_buffer, unit->slot->offset + param->unsharded_offset,
				 param->dtype);
	if (param->frozen)
		return;
	param->local_grad = srt_view(engine->grads, arena_offset, param->dtype);
	param->unsharded_grad = param->local_grad;
	if (unit->grad_slot != NULL &&
	    srt_plan_grad_location(engine, engine->world) != SRT_GRAD_IN_ARENA)
		param->unsharded_grad =
			srt_view(engine->grad_slots_buffer,
				 unit->grad_slot->offset + param->unsharded_offset, param->dtype);
}

static srt_status_t create_views(srt_engine_t *engine)
{
	size_t *offsets = srt_calloc(engine->nparams, sizeof(*offsets), "shard offsets");
	size_t trainable, total;

	if (offsets == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	srt_shard_layout(engine, engine->rank, engine->world, offsets, &trainable, &total);
	for (size_t i = 0; i < engine->nparams; i++)
		create_param_views(engine, engine->params[i], offsets[i]);
	free(offsets);
	return SRT_OK;
}

srt_status_t srt_engine_allocate(srt_engine_t *engine)
{
	SRT_TRY(create_buffers(engine));
	SRT_TRY(create_slots(engine));
	SRT_TRY(create_events(engine));
	return create_views(engine);
}
