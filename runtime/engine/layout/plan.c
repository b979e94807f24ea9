/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory plan: every byte that the engine allocates on a rank, from the declaration alone.
 *
 * srt_engine_build() allocates from the same srt_memory_t whose rows srt_engine_plan() adds, so the
 * plan is exact. It is a pure function of the declaration, a rank, a number of ranks, and what the
 * job's ranks run on.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

/* Gradient slots: one is written while the other is reduced. */
#define GRAD_RING 2

/* Whether the rank sums gradients of the unit: its shards, or its part of what all ranks have. */
static bool adds_gradients(const srt_engine_t *engine, const srt_unit_t *unit, int rank, int world)
{
	bool sharded = srt_roles_sharded(engine, world);

	for (size_t i = 0; i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];
		int64_t first, n = 0;

		if (param->frozen || param->nelem == 0)
			continue;
		if (sharded)
			n = srt_shard_range(param, rank, world, &first);
		else
			srt_shard_rows(param->nelem, srt_shard_replicas(engine, world),
				       srt_shard_replica(engine, rank), &first, &n);
		if (n > 0)
			return true;
	}
	return false;
}

/* Whether the rank sums some of its shards of the unit over the replicas. */
static bool adds_shards(const srt_engine_t *engine, const srt_unit_t *unit, int rank, int world)
{
	int64_t first, n;

	srt_shard_rows((int64_t)srt_shard_layout_unit(unit, rank, world, NULL),
		       srt_shard_replicas(engine, world), srt_shard_replica(engine, rank), &first,
		       &n);
	return n > 0;
}

/* The communicators of the engine. The last three are made for it: those over two dimensions of the
 * mesh, where the mesh has none for them, and groups that units are resharded to. */
enum { ALL_RANKS, SHARDS, REPLICAS, CELLS, COPY, DATA, GROUP, NCOMMS };

/* The collectives of each communicator: all ranks gather small values and sum the gradient flags,
 * shards are gathered and scattered, replicas summed. The others gather small values. */
static void count_collectives(const srt_engine_t *engine, int rank, int world,
			      srt_coll_uses_t uses[NCOMMS])
{
	const int gradients = srt_roles_sharded(engine, world) ? SHARDS : REPLICAS;
	const bool hybrid = srt_roles_hybrid(engine, world);
	const bool sums = engine->declared.ntrainable > 0;

	uses[ALL_RANKS] = (srt_coll_uses_t){ .copies = true,
					     .messages = srt_optim_has_muon(engine->optim),
					     .sums = sums,
					     .nsums = sums };
	for (int c = SHARDS; c < NCOMMS; c++)
		uses[c] = (srt_coll_uses_t){ .copies = c != REPLICAS || gradients == REPLICAS,
					     .is_split = true };
	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u];

		uses[gradients].sums |= unit->trainable_nelem > 0;
		uses[gradients].nsums += adds_gradients(engine, unit, rank, world);
		if (hybrid) {
			uses[REPLICAS].sums |= unit->trainable_nelem > 0;
			uses[REPLICAS].all_reduces = true;
			uses[REPLICAS].nsums += adds_shards(engine, unit, rank, world);
		}
	}
}

/* Whether the communicator of `rank` has `other`: they differ only in what it is over, and are in
 * one group of consecutive shards. */
static bool has_member(const srt_engine_t *engine, int comm, int group, int rank, int other)
{
	enum { SHARD = 1, REPLICA = 2, CELL = 4, ALL = 7 };
	static const unsigned over[NCOMMS] = {
		[ALL_RANKS] = ALL, [SHARDS] = SHARD,      [REPLICAS] = REPLICA,
		[CELLS] = CELL,    [COPY] = SHARD | CELL, [DATA] = SHARD | REPLICA,
		[GROUP] = SHARD,
	};
	unsigned differ = 0;

	if (srt_shard_index(engine, other) != srt_shard_index(engine, rank))
		differ |= SHARD;
	if (srt_shard_replica(engine, other) != srt_shard_replica(engine, rank))
		differ |= REPLICA;
	if (srt_cell_index(engine, other) != srt_cell_index(engine, rank))
		differ |= CELL;
	return (differ & ~over[comm]) == 0 &&
	       srt_shard_group(engine, other, group) == srt_shard_group(engine, rank, group);
}

/* Plans for the communicator of a rank. members: [size of engine->comm], for its ranks. */
static srt_status_t plan_comm(const srt_engine_t *engine, int comm, int size, int rank, int world,
			      const srt_coll_uses_t *uses, int *members, srt_coll_memory_t *memory)
{
	int n = 0, at = 0;

	if (world != srt_comm_size(engine->comm)) /* another job's, of unknown nodes and devices */
		return srt_coll_plan(engine->comm, NULL, size, 0, uses, memory);
	for (int r = 0; r < world; r++) {
		if (r == rank)
			at = n;
		if (has_member(engine, comm, comm == GROUP ? size : world, rank, r))
			members[n++] = srt_comm_world_rank(engine->comm, r);
	}
	return srt_coll_plan(engine->comm, members, n, at, uses, memory);
}

/* The memory that the collectives need besides their buffers. */
static srt_status_t plan_collectives(const srt_engine_t *engine, int rank, int world,
				     srt_coll_memory_t *memory)
{
	const int shards = srt_shard_count(engine, world);
	const int replicas = srt_shard_replicas(engine, world), cells = srt_cell_count(engine);
	const int group = srt_roles_groups(engine, world);
	const int sizes[NCOMMS] = { world,
				    shards,
				    replicas,
				    shards == 1 ? cells : 1, /* of the norm */
				    shards > 1 && cells > 1 ? shards * cells : 1,
				    shards > 1 && replicas > 1 ? shards * replicas : 1,
				    group > 0 ? group : 1 };
	bool gathers_units[NCOMMS] = { [SHARDS] = true, [GROUP] = true };
	int *members =
		srt_calloc((size_t)srt_comm_size(engine->comm), sizeof(*members), "a memory plan");
	srt_status_t status = members != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	srt_coll_uses_t uses[NCOMMS];

	count_collectives(engine, rank, world, uses);
	*memory = (srt_coll_memory_t){ 0 };
	for (int c = NCOMMS - 1; c >= 0 && status == SRT_OK; c--) {
		srt_coll_memory_t one;

		if (sizes[c] == 1)
			continue;
		if (c != ALL_RANKS && sizes[c] == world) { /* the communicator of all ranks */
			uses[ALL_RANKS].sums |= uses[c].sums;
			uses[ALL_RANKS].nsums += uses[c].nsums;
			gathers_units[ALL_RANKS] |= gathers_units[c];
			continue;
		}
		status = plan_comm(engine, c, sizes[c], rank, world, &uses[c], members, &one);
		if (status != SRT_OK)
			break;
		memory->scratch += one.scratch;
		memory->mapped += one.mapped;
		memory->maps_sources |= one.maps_sources;
		memory->maps_full |= one.maps_full && gathers_units[c];
		memory->maps_messages |= one.maps_messages && uses[c].messages;
	}
	free(members);
	return status;
}

/* Bytes of other ranks that are mapped here: their shards, unsharded gradients and tables. */
static size_t plan_peer_mapped(const srt_engine_t *engine, int rank, int world,
			       const srt_memory_t *memory, bool maps_full)
{
	const bool hybrid = srt_roles_hybrid(engine, world);
	const int cell = srt_cell_index(engine, rank), group = srt_roles_groups(engine, world);
	bool mapped[SRT_NARENAS] = { false };
	size_t of_slots = 0, peers = 0;
	srt_layout_t layout;

	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u];
		srt_role_kind_t summed = srt_role_summed(unit, world);

		mapped[srt_role_gathered(unit)] |=
			srt_roles_sharded(engine, world) && !srt_roles_offload(engine);
		mapped[SRT_ROLE_GRAD] |= unit->trainable_nelem > 0 && summed == SRT_ROLE_GRAD;
		mapped[SRT_ROLE_UNSHARDED_GRAD] |= summed == SRT_ROLE_UNSHARDED_GRAD;
	}
	mapped[SRT_ROLE_UPLOADED] = srt_roles_offload(engine);
	if (mapped[SRT_ROLE_UPLOADED])
		of_slots += memory->slots[SRT_SLOT_UPLOADS].total;
	if (mapped[SRT_ROLE_UNSHARDED_GRAD])
		of_slots += memory->slots[SRT_SLOT_GRADS].total;
	of_slots += memory->slots[SRT_SLOT_SUMS].total;
	if (maps_full)
		of_slots += memory->slots[SRT_SLOT_PARAMS].total;
	/* Rank 0 broadcasts. */
	if (engine->options.broadcast_buffers && rank != 0)
		peers += engine->unit_buffers.nbytes;
	for (int r = 0; r < world; r++) {
		if (r == rank || (world == srt_comm_size(engine->comm) &&
				  !srt_comm_same_node(engine->comm, rank, r)))
			continue;
		srt_shard_layout(engine, r, world, NULL, &layout);
		peers += memory->staging.total;
		if (srt_cell_index(engine, r) != cell)
			continue;
		if (hybrid && srt_shard_index(engine, r) == srt_shard_index(engine, rank))
			peers += layout.nbytes[SRT_ROLE_PARTIAL];
		if (hybrid && srt_shard_replica(engine, r) != srt_shard_replica(engine, rank))
			continue;
		for (int a = 0; a < SRT_NARENAS; a++)
			peers += mapped[a] ? layout.nbytes[a] : 0;
		peers += of_slots;
		if (group > 0 &&
		    srt_shard_group(engine, r, group) == srt_shard_group(engine, rank, group))
			peers += memory->slots[SRT_SLOT_PARTS].total;
	}
	return peers;
}

/* The groups of ranks that units are resharded to. */
static srt_status_t check_groups(const srt_engine_t *engine, int world)
{
	const int nshards = srt_shard_count(engine, world), n = srt_roles_groups(engine, world);

	for (size_t u = 0; u < engine->nunits && nshards > 1; u++) {
		const srt_unit_t *unit = engine->units[u];
		const int group = srt_roles_group(unit, world);

		if (unit->reshard > 1 && unit->reshard != world && nshards % unit->reshard != 0)
			return srt_fail(
				SRT_ERR_INVALID_ARGUMENT,
				"option reshard of unit '%s' is %d, must be a factor of the "
				"%d ranks that its parameters are sharded over",
				unit->name, unit->reshard, nshards);
		if (group > 0 && group != n)
			return srt_fail(SRT_ERR_UNSUPPORTED,
					"option reshard of unit '%s' is %d, of another unit %d: "
					"units are resharded to groups of one size",
					unit->name, group, n);
	}
	return SRT_OK;
}

/* Plans the memory of a rank. memory: to be freed with srt_memory_free(). */
srt_status_t srt_memory_plan(const srt_engine_t *engine, int rank, int world, srt_memory_t *memory)
{
	const srt_engine_options_t *options = &engine->options;
	const int rings[SRT_NSLOT_KINDS] = {
		/* A prefetch window over all units: one slot a unit. */
		[SRT_SLOT_PARAMS] =
			options->prefetch < (int)engine->nunits ? 1 + options->prefetch : 0,
		[SRT_SLOT_GRADS] = GRAD_RING,
		[SRT_SLOT_UPLOADS] =
			options->prefetch < (int)engine->nunits ? 1 + options->prefetch : 0,
		[SRT_SLOT_SUMS] = GRAD_RING,
	};
	srt_status_t status = SRT_OK;
	srt_matrices_plan_t matrices;
	srt_coll_memory_t colls;

	SRT_TRY(check_groups(engine, world));
	SRT_TRY(srt_state8_check(engine, world));
	SRT_TRY(srt_matrices_plan(engine, rank, world, &matrices));
	*memory =
		(srt_memory_t){ .nstates = srt_engine_count_states(engine), .matrices = matrices };
	srt_shard_layout(engine, rank, world, NULL, &memory->layout);
	srt_staging_plan(engine, world, &memory->staging);
	SRT_TRY(plan_collectives(engine, rank, world, &colls));
	memory->coll_scratch = colls.scratch;
	if (engine->options.offload.grads)
		memory->landing = memory->layout.nbytes[SRT_ROLE_REDUCED];
	for (int k = 0; k < SRT_NSLOT_KINDS && status == SRT_OK; k++)
		status = srt_slot_map_plan(engine, (srt_slot_kind_t)k, rank, world, rings[k],
					   &memory->slots[k]);
	if (status != SRT_OK) {
		srt_memory_free(memory);
		return status;
	}
	memory->peer_mapped = colls.mapped;
	if (colls.maps_sources)
		memory->peer_mapped +=
			plan_peer_mapped(engine, rank, world, memory, colls.maps_full);
	if (colls.maps_messages)
		memory->peer_mapped += matrices.peers;
	return SRT_OK;
}

void srt_memory_free(srt_memory_t *memory)
{
	for (int k = 0; k < SRT_NSLOT_KINDS; k++)
		srt_slot_map_free(&memory->slots[k]);
}

srt_status_t srt_engine_plan_extra(srt_engine_t *engine, size_t activations, size_t scratch)
{
	SRT_NOT_NULL(engine);
	if (engine->build_begun)
		return srt_fail(SRT_ERR_STATE, "srt_engine_plan_extra() after srt_engine_build()");
	engine->declared.activations = activations;
	engine->declared.scratch = scratch;
	return SRT_OK;
}

/* A dimension that is neither for shards nor for replicas is for tensor parallelism. */
static srt_status_t check_tensor_dim(const srt_engine_t *engine)
{
	const char *name;

	if (srt_cell_count(engine) == 1)
		return SRT_OK;
	name = engine->comms.mesh->names[engine->comms.tensor_dim];
	if (strcmp(name, "tp") == 0)
		return SRT_OK;
	for (size_t u = 0; u < engine->nunits; u++)
		for (size_t i = 0; i < engine->units[u]->nparams; i++)
			if (engine->units[u]->params[i]->is_cut)
				return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"strategy %s has no use for dimension '%s' of the mesh: no parameter is "
			"cut over it (srt_placement_t)",
			srt_strategy_name(engine->options.strategy), name);
}

/* Values and state, on the device or the host. */
static void place_owned(const srt_engine_t *engine, const srt_memory_t *memory, srt_plan_t *plan)
{
	const size_t *arenas = memory->layout.nbytes;
	size_t state = 0;

	for (int k = 0; k < SRT_OPTIM_MAX_STATES; k++)
		state += arenas[SRT_ROLE_STATE + k];
	if (!srt_roles_offload(engine)) {
		plan->param_shards = arenas[SRT_ROLE_MASTER] + arenas[SRT_ROLE_COMPUTE];
		plan->optimizer_state = state;
		return;
	}
	plan->host_params = arenas[SRT_ROLE_MASTER] + arenas[SRT_ROLE_COMPUTE];
	plan->host_grads = arenas[SRT_ROLE_DOWNLOADED] + memory->landing;
	plan->host_state = state;
	plan->host_staging = memory->staging.total + memory->matrices.updates;
	plan->host_total =
		plan->host_params + plan->host_grads + plan->host_state + plan->host_staging;
}

srt_status_t srt_engine_plan(const srt_engine_t *engine, int rank, int world_size, srt_plan_t *out)
{
	srt_plan_t plan;
	srt_memory_t memory;
	const size_t *arenas = memory.layout.nbytes;
	int world;

	SRT_NOT_NULL(engine);
	SRT_TRY(srt_check_not_null(out, __func__, "plan"));
	SRT_TRY(srt_struct_check(out, "srt_plan_t"));
	world = world_size == 0 ? engine->world : world_size;
	if (world < 1 || rank < 0 || rank >= world)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_plan: rank is %d, must be 0 to %d", rank, world - 1);
	if (engine->comms.mesh != NULL && world != engine->world)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_plan: world_size is %d, but the engine's mesh has %d "
				"ranks: use a mesh to plan with of that size",
				world, engine->world);
	SRT_TRY(check_tensor_dim(engine));
	SRT_TRY(srt_memory_plan(engine, rank, world, &memory));
	plan = (srt_plan_t){
		.size = sizeof(plan),
		.param_shards = memory.slots[SRT_SLOT_UPLOADS].total,
		.grad_shards = arenas[SRT_ROLE_GRAD],
		.buffers = engine->unit_buffers.nbytes,
		.unsharded =
			memory.slots[SRT_SLOT_PARAMS].total + memory.slots[SRT_SLOT_PARTS].total,
		.unsharded_grads =
			memory.slots[SRT_SLOT_GRADS].total + memory.slots[SRT_SLOT_SUMS].total,
		.staging = memory.staging.total + arenas[SRT_ROLE_PARTIAL] +
			   arenas[SRT_ROLE_REDUCED] + memory.coll_scratch +
			   memory.matrices.updates + memory.matrices.owned + memory.matrices.work,
		.peer_mapped = memory.peer_mapped,
		.nslots = memory.slots[SRT_SLOT_PARAMS].nslots,
	};
	place_owned(engine, &memory, &plan);
	plan.scratch = engine->declared.scratch;
	/* Matrices are iterated on the stream of srt_engine_step(), with offload the engine's. */
	if (srt_roles_offload(engine))
		plan.staging += memory.matrices.scratch;
	else if (memory.matrices.scratch > plan.scratch)
		plan.scratch = memory.matrices.scratch;
	plan.total = plan.param_shards + plan.grad_shards + plan.optimizer_state + plan.buffers +
		     plan.unsharded + plan.unsharded_grads + plan.staging;
	plan.activations = engine->declared.activations;
	if (!srt_add_size(plan.total, plan.activations, &plan.rank_total) ||
	    !srt_add_size(plan.rank_total, plan.scratch, &plan.rank_total))
		plan.rank_total = SIZE_MAX;
	srt_memory_free(&memory);
	return srt_struct_write(out, &plan, sizeof(plan), "srt_plan_t");
}
