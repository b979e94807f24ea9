/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allocation of the memory plan on this rank: buffers, slots, events, and the views of parameters
 * and gradients. Local; the ranks compare their results afterwards (build.c).
 */
#include <stdlib.h>
#include <string.h>

#include <shardrt/native.h>

#include "collectives/comm.h"
#include "runtime/engine/build/build.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

/* Some unit has tensors of the role there, perhaps without elements. */
static bool has_arena(const srt_engine_t *engine, int arena)
{
	if (arena >= SRT_ROLE_STATE)
		return arena - SRT_ROLE_STATE < engine->memory.nstates ||
		       engine->memory.layout.nbytes[arena] > 0;
	if (arena > SRT_ROLE_COMPUTE && arena < SRT_ROLE_PARTIAL) /* in slots */
		return false;
	for (size_t u = 0; u < engine->nunits; u++) {
		if (srt_role(engine->units[u], (srt_role_kind_t)arena, engine->world).spread !=
		    SRT_SPREAD_NONE)
			return true;
	}
	return false;
}

/* The kind of memory that other ranks read: one of the communicators may map it where another
 * stages. kind_of: the kind for one of them. */
static srt_mem_kind_t shared_kind(const srt_engine_t *engine,
				  srt_mem_kind_t (*kind_of)(const srt_comm_t *comm))
{
	const srt_comm_t *const comms[] = { engine->comm,          engine->comms.shard,
					    engine->comms.replica, engine->comms.copy,
					    engine->comms.data,    engine->comms.group };

	for (size_t i = 0; i < sizeof(comms) / sizeof(comms[0]); i++) {
		if (kind_of(comms[i]) == SRT_MEM_PEER)
			return SRT_MEM_PEER;
	}
	return SRT_MEM_DEVICE;
}

/* Memory of the host device, and the same for copies of the device. */
static srt_status_t create_host(const srt_engine_t *engine, size_t nbytes, const char *name,
				srt_buffer_t **buffer, srt_buffer_t **alias)
{
	SRT_TRY(srt_buffer_create(engine->home.device, SRT_MEM_PINNED, nbytes, name, buffer));
	return srt_buffer_alias(engine->device, *buffer, alias);
}

/* Memory of the device, by the program's allocator if it has one. */
static srt_status_t create_memory(srt_engine_t *engine, srt_mem_kind_t kind, size_t nbytes,
				  const char *name, srt_buffer_t **buffer)
{
	const srt_engine_options_t *o = &engine->options;
	void *memory;

	if (o->allocate == NULL || nbytes == 0)
		return srt_buffer_create(engine->device, kind, nbytes, name, buffer);
	if (kind == SRT_MEM_PEER)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"option allocate: ranks map each other's memory, and that of the "
				"program (%s) cannot be mapped: leave the option NULL, or set "
				"SHARDRT_COLLECTIVES to staged or ucx on all ranks",
				name);
	if (!engine->device->caps.host_memory)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"option allocate: the memory of device %s has no host addresses: "
				"leave the option NULL",
				engine->device->caps.name);
	memory = o->allocate(nbytes, name, o->allocate_arg);
	if (memory == NULL)
		return srt_fail(SRT_ERR_OUT_OF_MEMORY,
				"the program's allocator has no %zu bytes for %s", nbytes, name);
	engine->storage.of_program[engine->storage.nof_program++] = memory;
	if ((uintptr_t)memory % SRT_TENSOR_ALIGN != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the program's allocator gave address %p for %s, must be a "
				"multiple of %zu",
				memory, name, SRT_TENSOR_ALIGN);
	memset(memory, 0, nbytes);
	return srt_buffer_wrap(engine->device, memory, nbytes, name, buffer);
}

static srt_status_t create_arenas(srt_engine_t *engine)
{
	static const char *const names[SRT_NARENAS] = {
		[SRT_ROLE_MASTER] = "parameter shards",
		[SRT_ROLE_COMPUTE] = "parameter shards to compute with",
		[SRT_ROLE_PARTIAL] = "gradients summed within a replica",
		[SRT_ROLE_REDUCED] = "reduced gradients of a unit",
		[SRT_ROLE_GRAD] = "gradient shards",
		[SRT_ROLE_DOWNLOADED] = "gradient shards on the host",
	};
	const size_t *nbytes = engine->memory.layout.nbytes;

	for (int a = 0; a < SRT_NARENAS; a++) {
		const bool shared = srt_role_is_shared((srt_role_kind_t)a);
		const char *name = names[a] != NULL ? names[a] : "optimizer state";

		if (!has_arena(engine, a))
			continue;
		if (engine->home.stream != NULL && srt_role_is_home((srt_role_kind_t)a))
			SRT_TRY(create_host(engine, nbytes[a], name, &engine->storage.arena[a],
					    &engine->storage.arena_alias[a]));
		else
			SRT_TRY(create_memory(engine,
					      shared ? shared_kind(engine, srt_comm_mem_kind) :
						       SRT_MEM_DEVICE,
					      nbytes[a], name, &engine->storage.arena[a]));
	}
	return SRT_OK;
}

static srt_status_t create_buffers(srt_engine_t *engine)
{
	static const char *const names[SRT_NSLOT_KINDS] = {
		[SRT_SLOT_PARAMS] = "unsharded parameters",
		[SRT_SLOT_GRADS] = "unsharded gradients",
		[SRT_SLOT_SUMS] = "sums of unsharded gradients",
		[SRT_SLOT_UPLOADS] = "uploaded parameter shards",
		[SRT_SLOT_PARTS] = "parameters kept for a group of ranks",
	};
	const srt_memory_t *m = &engine->memory;
	const srt_mem_kind_t shared = shared_kind(engine, srt_comm_mem_kind);
	const srt_mem_kind_t gathered = shared_kind(engine, srt_comm_gathered_kind);

	SRT_TRY(create_arenas(engine));
	for (int k = 0; k < SRT_NSLOT_KINDS; k++)
		SRT_TRY(create_memory(engine, k == SRT_SLOT_PARAMS ? gathered : shared,
				      m->slots[k].total, names[k],
				      &engine->storage.slot_buffer[k]));
	if (engine->unit_buffers.nbytes > 0)
		SRT_TRY(srt_buffer_create(engine->device, shared, engine->unit_buffers.nbytes,
					  "buffers of units", &engine->unit_buffers.memory));
	SRT_TRY(srt_buffer_create(engine->device, shared, m->staging.total, "engine tables",
				  &engine->storage.exchange));
	if (engine->home.stream == NULL) {
		srt_buffer_hold(engine->storage.exchange);
		engine->storage.staging = engine->storage.exchange;
		return SRT_OK;
	}
	SRT_TRY(create_host(engine, m->staging.total, "engine tables on the host",
			    &engine->storage.staging, &engine->storage.staging_alias));
	return create_host(engine, m->landing, "gradients that arrive on the host",
			   &engine->storage.landing, &engine->storage.landing_alias);
}

/* The memory of Muon's matrices. */
static srt_status_t create_matrices(srt_engine_t *engine)
{
	const srt_mem_kind_t shared = shared_kind(engine, srt_comm_mem_kind);
	const srt_matrices_plan_t *m = &engine->memory.matrices;
	srt_storage_t *s = &engine->storage;

	if (!srt_optim_has_muon(engine->optim))
		return SRT_OK;
	SRT_TRY(srt_matrices_place(engine));
	SRT_TRY(srt_buffer_create(engine->device, shared, m->updates, "updates of matrices",
				  &s->updates));
	SRT_TRY(srt_buffer_create(engine->device, SRT_MEM_DEVICE, m->work, "work on matrices",
				  &s->matrix_work));
	if (engine->world > 1)
		SRT_TRY(srt_buffer_create(engine->device, shared, m->owned, "whole matrices",
					  &s->matrices));
	if (engine->home.stream == NULL)
		return SRT_OK;
	SRT_TRY(srt_stream_reserve(engine->home.copy_stream, m->scratch));
	return create_host(engine, m->updates, "updates of matrices on the host", &s->updates_home,
			   &s->updates_alias);
}

/* Streams and events between the device and the host device. */
static srt_status_t create_home(srt_engine_t *engine)
{
	if (!srt_roles_offload(engine))
		return SRT_OK;
	SRT_TRY(srt_stream_create(engine->device, -1, "copies", &engine->home.copy_stream));
	SRT_TRY(srt_event_create(engine->device, &engine->home.downloaded));
	SRT_TRY(srt_event_create(engine->home.device, &engine->home.landed));
	SRT_TRY(srt_event_create(engine->home.device, &engine->home.edge));
	for (size_t u = 0; u < engine->nunits; u++)
		SRT_TRY(srt_event_create(engine->device, &engine->units[u]->unshard.uploaded));
	return srt_stream_create(engine->home.device, 0, "host", &engine->home.stream);
}

static srt_status_t create_events(srt_engine_t *engine)
{
	srt_device_t *device = engine->device;

	SRT_TRY(srt_stream_create(device, -1, "communication", &engine->comm_stream));
	SRT_TRY(srt_event_create(device, &engine->home.device_edge));
	SRT_TRY(srt_event_create(engine->home.device, &engine->order.stepped));
	SRT_TRY(srt_event_create(device, &engine->order.summed));
	SRT_TRY(srt_event_create(device, &engine->order.used));
	for (size_t s = 0; s < engine->storage.nslots[SRT_SLOT_PARAMS]; s++)
		SRT_TRY(srt_event_create(device,
					 &engine->storage.slots[SRT_SLOT_PARAMS][s].released));
	for (size_t u = 0; u < engine->nunits; u++) {
		SRT_TRY(srt_event_create(device, &engine->units[u]->unshard.gathered));
		SRT_TRY(srt_event_create(device, &engine->units[u]->grads.reduced));
	}
	return SRT_OK;
}

/* The slots of a kind. Without memory for gradients or sums, which are then in an arena: one slot a
 * unit, which orders its uses. */
static srt_status_t create_slots_of(srt_engine_t *engine, srt_slot_kind_t kind)
{
	const srt_slot_map_t *map = &engine->memory.slots[kind];
	const bool of_grads = kind == SRT_SLOT_GRADS || kind == SRT_SLOT_SUMS;
	size_t extra = of_grads ? engine->nunits : 0;
	size_t nslots = (size_t)map->nslots;
	srt_slot_t *slots = srt_calloc(nslots + extra, sizeof(*slots), "slots");

	if (slots == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	engine->storage.slots[kind] = slots;
	engine->storage.nslots[kind] = nslots;
	for (size_t s = 0; s < nslots; s++) {
		slots[s].offset = map->offset[s];
		slots[s].nbytes = map->nbytes[s];
	}
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_unit_t *unit = engine->units[u];
		if (map->slot_of[u] >= 0)
			unit->slot[kind] = &slots[map->slot_of[u]];
		else if (kind == SRT_SLOT_GRADS ||
			 (kind == SRT_SLOT_SUMS && srt_roles_sums_apart(unit)))
			unit->slot[kind] = unit->trainable_nelem > 0 ? &slots[nslots + u] : NULL;
	}
	return SRT_OK;
}

static srt_status_t create_slots(srt_engine_t *engine)
{
	for (int k = 0; k < SRT_NSLOT_KINDS; k++)
		SRT_TRY(create_slots_of(engine, (srt_slot_kind_t)k));
	engine->scalars.flags = srt_calloc(SRT_FLAG_NELEM * engine->declared.ntrainable,
					   sizeof(*engine->scalars.flags), "gradient flags");
	return engine->scalars.flags != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

/* The unsharded tensor in the unit's slot of a kind. */
static srt_view_t slot_view(const srt_param_t *param, srt_slot_kind_t kind, srt_dtype_t dtype)
{
	const srt_engine_t *engine = param->unit->engine;

	return srt_view(engine->storage.slot_buffer[kind],
			param->unit->slot[kind]->offset +
				param->unsharded_offset * srt_dtype_size(dtype),
			dtype);
}

/* packed: the shard among those of the unit alone. */
static void create_grad_views(srt_param_t *param, size_t packed)
{
	const srt_unit_t *unit = param->unit;
	const srt_unit_types_t *t = &unit->types;
	const srt_engine_t *engine = unit->engine;
	const int world = engine->world;

	param->views.local_grad = srt_param_shard_view(param, (int)srt_role_stepped(engine));
	param->views.device_grad = (srt_view_t){ 0 };
	if (engine->storage.arena[SRT_ROLE_GRAD] != NULL)
		param->views.device_grad = srt_param_shard_view(param, SRT_ROLE_GRAD);
	param->views.unsharded_grad = param->views.device_grad;
	if (srt_role(unit, SRT_ROLE_UNSHARDED_GRAD, world).spread != SRT_SPREAD_NONE)
		param->views.unsharded_grad = slot_view(param, SRT_SLOT_GRADS, t->compute);
	switch (srt_role_summed(unit, world)) {
	case SRT_ROLE_SUM_GRAD:
		param->views.summed_grad = slot_view(param, SRT_SLOT_SUMS, t->reduce);
		break;
	case SRT_ROLE_UNSHARDED_GRAD:
		param->views.summed_grad = param->views.unsharded_grad;
		break;
	default:
		param->views.summed_grad = param->views.device_grad;
	}
	param->views.reduced_grad = param->views.device_grad;
	if (unit->grads.partial_sums.buffer != NULL)
		param->views.reduced_grad = unit->grads.partial_sums;
	if (unit->grads.reduced_sums.buffer != NULL)
		param->views.reduced_grad = unit->grads.reduced_sums;
	if (param->views.reduced_grad.buffer != param->views.device_grad.buffer)
		param->views.reduced_grad.offset +=
			packed * srt_dtype_size(param->views.reduced_grad.dtype);
}

/* Where sums over ranks of the unit are made, if not in the gradient shards. *at: bytes of the
 * units before it. */
static srt_view_t sums_view(const srt_unit_t *unit, srt_role_kind_t arena, size_t *at)
{
	const srt_engine_t *engine = unit->engine;
	const srt_role_t role = srt_role(unit, arena, engine->world);
	const size_t offset = role.lifetime == SRT_LIFETIME_STEP ? *at : 0;

	if (role.spread == SRT_SPREAD_NONE || unit->trainable_nelem == 0)
		return (srt_view_t){ 0 };
	*at += unit->grads.shard_nelem * srt_dtype_size(role.dtype);
	return srt_view(engine->storage.arena[arena], offset, role.dtype);
}

static void create_sums_views(srt_engine_t *engine)
{
	size_t partial = 0, reduced = 0;

	for (size_t u = 0; u < engine->nunits; u++) {
		srt_unit_t *unit = engine->units[u];

		unit->grads.shard_nelem =
			srt_shard_layout_unit(unit, engine->rank, engine->world, NULL);
		unit->grads.partial_sums = sums_view(unit, SRT_ROLE_PARTIAL, &partial);
		unit->grads.reduced_sums = sums_view(unit, SRT_ROLE_REDUCED, &reduced);
	}
}

static void create_param_views(srt_param_t *param, const size_t *offsets, const size_t *packed,
			       const srt_state8_place_t *state8)
{
	const srt_unit_t *unit = param->unit;
	const srt_engine_t *engine = unit->engine;

	param->shard.nelem =
		srt_shard_range(param, engine->rank, engine->world, &param->shard.first);
	param->shard.nbytes = (size_t)param->shard.nelem * srt_dtype_size(param->dtype);
	param->shard.offset = offsets[param->index];
	param->shard.upload_offset = packed[param->index];
	param->shard.state8 = state8[param->index].state;
	param->shard.absmax = state8[param->index].absmax;
	param->views.local = srt_param_shard_view(param, SRT_ROLE_MASTER);
	param->views.unsharded = param->views.local;
	if (srt_role_gathered(unit) == SRT_ROLE_COMPUTE) {
		param->views.local_compute = srt_param_shard_view(param, SRT_ROLE_COMPUTE);
		param->views.unsharded = param->views.local_compute;
	}
	if (unit->slot[SRT_SLOT_PARAMS] != NULL)
		param->views.unsharded = slot_view(param, SRT_SLOT_PARAMS, unit->types.compute);
	if (!param->frozen)
		create_grad_views(param, packed[param->index]);
}

static srt_status_t create_views(srt_engine_t *engine)
{
	const size_t n = engine->nparams;
	size_t *offsets = srt_calloc(2 * n, sizeof(*offsets), "shard offsets");
	srt_state8_place_t *state8 = srt_calloc(n, sizeof(*state8), "shard offsets");
	size_t nbytes[3];
	srt_layout_t layout;

	if (offsets == NULL || state8 == NULL) {
		free(offsets);
		free(state8);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	srt_state8_layout(engine, engine->rank, engine->world, state8, nbytes);
	srt_shard_layout(engine, engine->rank, engine->world, offsets, &layout);
	for (size_t u = 0; u < engine->nunits; u++)
		srt_shard_layout_unit_all(engine->units[u], engine->rank, engine->world,
					  offsets + n);
	create_sums_views(engine);
	for (size_t i = 0; i < n; i++)
		create_param_views(engine->params[i], offsets, offsets + n, state8);
	free(offsets);
	free(state8);
	return SRT_OK;
}

srt_status_t srt_engine_allocate(srt_engine_t *engine)
{
	SRT_TRY(create_home(engine));
	SRT_TRY(create_buffers(engine));
	SRT_TRY(create_matrices(engine));
	SRT_TRY(create_slots(engine));
	SRT_TRY(create_events(engine));
	SRT_TRY(create_views(engine));
	for (size_t u = 0; u < engine->nunits; u++)
		SRT_TRY(srt_unit_flow_resolve(engine->units[u]));
	return SRT_OK;
}
