/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Building the engine: declaration -> memory, views, collectives.
 *
 * Every rank creates the same collectives in the same order: for each unit its gather and its
 * reductions, then those of gradient flags and sums. After the build a step allocates nothing.
 */
#include <stdlib.h>

#include "device/device.h"
#include "collectives/comm.h"
#include "runtime/engine/build/build.h"
#include "runtime/engine/checks/audit.h"
#include "runtime/engine/checks/checks.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"
#include "runtime/engine/step/reproducible_sum.h"
#include "runtime/engine/step/step.h"

/* This rank's shards of the unit's part in the arena of a role. */
static srt_view_t shards_view(const srt_unit_t *unit, srt_role_kind_t role)
{
	const srt_engine_t *engine = unit->engine;
	const srt_layout_t *layout = &engine->memory.layout;

	return srt_view(engine->storage.arena[role], layout->offset[role][srt_shard_part(unit)],
			srt_role(unit, role, engine->world).dtype);
}

static srt_status_t create_gather(srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;
	const srt_slot_t *slot = unit->slot[SRT_SLOT_PARAMS],
			 *upload = unit->slot[SRT_SLOT_UPLOADS];
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_GATHER,
		.name = unit->name,
		.dtype = unit->types.compute,
	};
	srt_owners_t owners = { 0 };
	srt_status_t status;

	if (slot == NULL || engine->comms.shard == NULL)
		return SRT_OK;
	SRT_TRY(srt_shard_owners(unit, false, upload != NULL, &owners));
	desc.shard = shards_view(unit, srt_role_gathered(unit));
	if (upload != NULL)
		desc.shard = srt_view(engine->storage.slot_buffer[SRT_SLOT_UPLOADS], upload->offset,
				      desc.dtype);
	desc.full =
		srt_view(engine->storage.slot_buffer[SRT_SLOT_PARAMS], slot->offset, desc.dtype);
	desc.owners = owners.owner;
	status = srt_coll_create(engine->comms.shard, &desc, &unit->unshard.gather);
	srt_owners_free(&owners);
	return status;
}

/* Creates the all-gather of the parts that the ranks of a group keep. */
static srt_status_t create_regather(srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;
	const srt_slot_t *slot = unit->slot[SRT_SLOT_PARAMS], *part = unit->slot[SRT_SLOT_PARTS];
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_GATHER,
		.name = unit->name,
		.dtype = unit->types.compute,
	};
	srt_owners_t owners = { 0 };
	srt_status_t status;

	if (part == NULL)
		return SRT_OK;
	SRT_TRY(srt_shard_owners_group(unit, &owners));
	desc.shard =
		srt_view(engine->storage.slot_buffer[SRT_SLOT_PARTS], part->offset, desc.dtype);
	desc.full =
		srt_view(engine->storage.slot_buffer[SRT_SLOT_PARAMS], slot->offset, desc.dtype);
	desc.owners = owners.owner;
	status = srt_coll_create(engine->comms.group, &desc, &unit->unshard.regather);
	srt_owners_free(&owners);
	return status;
}

/* The start of what is summed over ranks of a unit: of its slot or, in place, of its part of the
 * arena. */
static srt_view_t sums_view(const srt_unit_t *unit)
{
	if (srt_role_summed(unit, unit->engine->world) == SRT_ROLE_GRAD)
		return shards_view(unit, SRT_ROLE_GRAD);
	for (size_t i = 0; i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];

		if (!param->frozen) /* the first one is at the start of the layout */
			return param->views.summed_grad;
	}
	return (srt_view_t){ 0 };
}

static srt_status_t create_reduce(srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;
	bool sharded = srt_roles_sharded(engine, engine->world);
	bool apart =
		unit->grads.partial_sums.buffer != NULL || unit->grads.reduced_sums.buffer != NULL;
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = sharded ? SRT_COLL_REDUCE_SCATTER : SRT_COLL_ALL_REDUCE,
		.name = unit->name,
		.dtype = unit->types.reduce,
	};
	srt_owners_t owners = { 0 };
	srt_status_t status;

	if (unit->trainable_nelem == 0 || srt_shard_dp_size(engine, engine->world) == 1)
		return SRT_OK;
	if (sharded)
		SRT_TRY(srt_shard_owners(unit, true, apart, &owners));
	else
		SRT_TRY(srt_shard_owners_in_place(unit, &owners));
	desc.full = sums_view(unit);
	if (sharded)
		desc.shard = !apart ? shards_view(unit, SRT_ROLE_GRAD) :
			     unit->grads.partial_sums.buffer != NULL ? unit->grads.partial_sums :
								       unit->grads.reduced_sums;
	desc.owners = owners.owner;
	status = srt_coll_create(sharded ? engine->comms.shard : engine->comms.replica, &desc,
				 &unit->grads.reduce);
	srt_owners_free(&owners);
	return status;
}

/* The sum over the replicas of what was summed within each. */
static srt_status_t create_all_reduce(srt_unit_t *unit)
{
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_REDUCE,
		.name = unit->name,
		.dtype = unit->grads.partial_sums.dtype,
		.full = unit->grads.partial_sums,
	};
	srt_owners_t owners = { 0 };
	srt_status_t status;

	if (unit->grads.partial_sums.buffer == NULL)
		return SRT_OK;
	SRT_TRY(srt_shard_owners_replicas(unit, &owners));
	desc.owners = owners.owner;
	status = srt_coll_create(unit->engine->comms.replica, &desc, &unit->grads.all_reduce);
	srt_owners_free(&owners);
	return status;
}

/* Every rank owns every flag, so each rank sums all of them. */
static srt_status_t create_flags(srt_engine_t *engine)
{
	const srt_coll_segment_t all = { .nelem = SRT_FLAG_NELEM * engine->declared.ntrainable };
	size_t world = (size_t)engine->world;
	srt_coll_owner_t *owners =
		srt_comm_calloc(engine->comm, world, sizeof(*owners), "owners of gradient flags");
	srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_REDUCE_SCATTER,
		.name = "gradient flags",
		.dtype = SRT_F32,
		.full = srt_view(engine->storage.exchange, engine->memory.staging.flags, SRT_F32),
		.shard = srt_view(engine->storage.exchange, engine->memory.staging.used, SRT_F32),
		.owners = owners,
	};
	srt_status_t status;

	if (owners == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t r = 0; r < world; r++)
		owners[r] = (srt_coll_owner_t){ &all, 1 };
	status = srt_coll_create(engine->comm, &desc, &engine->scalars.reduce_flags);
	free(owners);
	return status;
}

/* Whether any rank found an infinity or NaN. */
static srt_status_t create_found(srt_engine_t *engine)
{
	const srt_staging_t *staging = &engine->memory.staging;

	if (engine->world == 1)
		return SRT_OK;
	return srt_coll_create_gather(engine->comm,
				      srt_view(engine->storage.exchange, staging->found, SRT_F32),
				      srt_view(engine->storage.exchange, staging->all_found,
					       SRT_F32),
				      1, "found infinities", &engine->scalars.gather_found);
}

static srt_status_t create_collectives(srt_engine_t *engine)
{
	const srt_staging_t *staging = &engine->memory.staging;

	for (size_t u = 0; u < engine->nunits; u++) {
		SRT_TRY(create_gather(engine->units[u]));
		SRT_TRY(create_regather(engine->units[u]));
		SRT_TRY(create_reduce(engine->units[u]));
		SRT_TRY(create_all_reduce(engine->units[u]));
	}
	SRT_TRY(srt_buffers_create_broadcast(engine));
	if (engine->declared.ntrainable > 0)
		SRT_TRY(create_flags(engine));
	SRT_TRY(create_found(engine));
	SRT_TRY(srt_matrices_create(engine));
	SRT_TRY(srt_reproducible_sum_create(engine, &staging->norm_sum, engine->comms.copy,
					    "gradient norm", true, &engine->scalars.norm_sum));
	return srt_reproducible_sum_create(engine, &staging->user_sum, engine->comms.data,
					   "sum over ranks", false, &engine->scalars.user_sum);
}

/* The communicator over two of the mesh's dimensions, which have `first` and `second` ranks (NULL:
 * one); the other ranks differ in `third`. Collective. */
static srt_status_t join_dims(srt_engine_t *engine, srt_comm_t *first, srt_comm_t *second,
			      int third, int colour, const char *name, srt_comm_t **own,
			      srt_comm_t **joined)
{
	*joined = third == 1 ? engine->comm : second == NULL ? first : second;
	if (engine->world == 1)
		*joined = NULL;
	if (first == NULL || second == NULL || third == 1)
		return SRT_OK;
	SRT_TRY(srt_comm_split(engine->comm, colour, name, own));
	*joined = *own;
	return SRT_OK;
}

/* The communicators over two dimensions, and those that units are resharded to. Collective. */
static srt_status_t create_comms(srt_engine_t *engine)
{
	const int group = srt_roles_groups(engine, engine->world);
	const int rank = engine->rank, replicas = srt_shard_replicas(engine, engine->world);

	SRT_TRY(join_dims(engine, engine->comms.shard, engine->comms.tensor, replicas,
			  srt_shard_replica(engine, rank), "a copy of the model",
			  &engine->comms.own[0], &engine->comms.copy));
	SRT_TRY(join_dims(engine, engine->comms.shard, engine->comms.replica,
			  srt_cell_count(engine), srt_cell_index(engine, rank),
			  "data parallel ranks", &engine->comms.own[1], &engine->comms.data));
	if (group == 0)
		return SRT_OK;
	SRT_TRY(srt_comm_split(engine->comms.shard, srt_shard_group(engine, rank, group),
			       "resharded parameters", &engine->comms.own[2]));
	engine->comms.group = engine->comms.own[2];
	return SRT_OK;
}

static bool has_gradients(const srt_unit_t *unit)
{
	for (size_t i = 0; i < unit->nparams; i++)
		if (!unit->params[i]->frozen)
			return true;
	return false;
}

/* SRT_ACCUMULATE_TREE: refuses what the tree over micro-batches and ranks cannot do. */
static srt_status_t check_tree(const srt_engine_t *engine)
{
	const int nranks = srt_shard_dp_size(engine, engine->world);

	if (engine->options.accumulation != SRT_ACCUMULATE_TREE)
		return SRT_OK;
	if (!srt_shard_is_tree(engine))
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"SRT_ACCUMULATE_TREE on a mesh needs the dimension '%s' before "
				"'%s': consecutive ranks have consecutive micro-batches",
				engine->comms.mesh->names[engine->comms.replicate_dim],
				engine->comms.mesh->names[engine->comms.shard_dim]);
	if ((nranks & (nranks - 1)) != 0)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"SRT_ACCUMULATE_TREE needs a number of ranks that is a power of "
				"two, not %d: its sums are the same at every such number only",
				nranks);
	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u];

		if (has_gradients(unit) && unit->types.reduce != SRT_F32)
			return srt_fail(SRT_ERR_UNSUPPORTED,
					"SRT_ACCUMULATE_TREE needs gradients that are reduced in "
					"f32, those of unit '%s' are reduced in %s: set the "
					"precision's reduce to SRT_F32",
					unit->name, srt_dtype_name(unit->types.reduce));
	}
	return SRT_OK;
}

static srt_status_t make_plan(srt_engine_t *engine, srt_plan_t *plan)
{
	SRT_TRY(srt_memory_plan(engine, engine->rank, engine->world, &engine->memory));
	return srt_engine_plan(engine, engine->rank, engine->world, plan);
}

static srt_status_t allocate_plan(srt_engine_t *engine, const srt_plan_t *plan)
{
	srt_status_t status = srt_engine_allocate(engine);

	if (status == SRT_OK)
		status = srt_audit_create(engine);
	return status == SRT_ERR_OUT_OF_MEMORY ? srt_memory_check_fail(plan, srt_error_last()) :
						 status;
}

/* The device that has what the engine owns. */
static srt_status_t open_home(srt_engine_t *engine)
{
	engine->home.device = engine->device;
	return srt_roles_offload(engine) ? srt_context_host(engine->context, &engine->home.device) :
					   SRT_OK;
}

static srt_status_t create_optimizer(srt_engine_t *engine)
{
	srt_stream_t *home;

	SRT_TRY(srt_home_enter(engine, engine->comm_stream, &home));
	SRT_TRY(srt_engine_optim_create(engine, home));
	SRT_TRY(srt_check_record_all(engine, home));
	SRT_TRY(srt_home_leave(engine, engine->comm_stream));
	/* The program's own streams may read and set the tables from here on. */
	return srt_stream_sync(engine->comm_stream);
}

/* Selftests of kernels may wait for the device: the engine has queued no work yet. */
static void prepare_kernels(const srt_engine_t *engine)
{
	bool needed[SRT_DTYPE_COUNT] = { false };

	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_types_t *t = &engine->units[u]->types;

		needed[t->stored] = needed[t->compute] = needed[t->reduce] = true;
	}
	for (int dtype = SRT_DTYPE_NONE + 1; dtype < SRT_DTYPE_COUNT; dtype++) {
		if (needed[dtype])
			srt_device_prepare(engine->device, (srt_dtype_t)dtype);
	}
}

srt_status_t srt_engine_build(srt_engine_t *engine)
{
	srt_status_t status;
	srt_plan_t plan = SRT_PLAN_INIT;

	SRT_NOT_NULL(engine);
	if (engine->built)
		return srt_fail(SRT_ERR_STATE, "srt_engine_build() was called before");
	if (engine->nunits == 0)
		return srt_fail(SRT_ERR_STATE, "srt_engine_build() needs at least one unit");
	if (engine->build_begun)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_build() failed before: destroy the engine and create "
				"another one");
	if (engine->comms.mesh != NULL && engine->comms.mesh->comm == NULL)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_build() on a mesh of %d ranks to plan with: create the "
				"mesh with the communicator of these ranks",
				engine->world);
	engine->checks.on = srt_config_bool("SHARDRT_CHECK");
	engine->checks.audits = srt_config_bool("SHARDRT_AUDIT");
	SRT_TRY(srt_verify_declaration(engine));
	SRT_TRY(check_tree(engine));
	engine->build_begun = true;
	prepare_kernels(engine);
	SRT_TRY(srt_comm_status_consensus(engine->comm, "making the memory plan",
					  make_plan(engine, &plan)));
	SRT_TRY(srt_comm_status_consensus(engine->comm, "opening the host device",
					  open_home(engine)));
	SRT_TRY(srt_memory_check(engine, &plan));
	SRT_TRY(create_comms(engine));
	SRT_TRY(srt_comm_status_consensus(engine->comm, "allocating the memory plan",
					  allocate_plan(engine, &plan)));
	status = create_collectives(engine);
	/* A failure in a group of ranks: the other groups do not know of it. */
	if (status != SRT_OK && (engine->comms.mesh != NULL || engine->comms.group != NULL))
		return srt_comm_fail_alone(engine->comm, "creating collectives", status,
					   srt_error_last());
	SRT_TRY(status);
	SRT_TRY(srt_verify_create(engine));
	SRT_TRY(srt_comm_status_consensus(engine->comm, "creating the optimizer",
					  create_optimizer(engine)));
	srt_engine_expect_declared(engine);
	engine->built = true;
	engine->checks.order_checked = engine->world == 1;
	return SRT_OK;
}
