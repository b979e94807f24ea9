/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory plan: every byte that the engine will allocate on a rank, from the declaration alone.
 *
 * srt_engine_build() allocates from the same srt_memory_t that srt_engine_plan() adds up, so the
 * plan is exact by construction. It follows the tree of units, not an order in which they run: at
 * any time the ancestors of the unit in use are whole, and at each depth one unit in use and those
 * of the prefetch window. So every depth has a ring of 1 + prefetch slots for each size class
 * (units within a factor of two), and the root has a slot of its own. A unit always uses the same
 * slot; an order that would need two units of one slot at once is an error when it occurs.
 */
#include <stdlib.h>

#include "collectives/comm.h"
#include "runtime/engine/engine.h"

/* Gradients need one slot being written and one being sent. */
#define GRAD_RING 2

static void slot_map_free(srt_slot_map_t *map)
{
	free(map->slot_of);
	free(map->nbytes);
	free(map->offset);
	*map = (srt_slot_map_t){ 0 };
}

static srt_status_t slot_map_alloc(srt_slot_map_t *map, size_t nunits)
{
	map->slot_of = srt_calloc(nunits, sizeof(*map->slot_of), "slots of units");
	map->nbytes = srt_calloc(nunits, sizeof(*map->nbytes), "slot sizes");
	map->offset = srt_calloc(nunits, sizeof(*map->offset), "slot offsets");
	if (map->slot_of == NULL || map->nbytes == NULL || map->offset == NULL) {
		slot_map_free(map);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	return SRT_OK;
}

static int size_class(size_t nbytes)
{
	int class = 0;

	while (nbytes >>= 1)
		class ++;
	return class;
}

static size_t slot_need(const srt_unit_t *unit, bool grads)
{
	return grads ? unit->trainable_nbytes : unit->full_nbytes;
}

/*
 * The slot of the unit: the ring position after that of the unit declared before it in its ring, a
 * ring being the units of one depth and size class; new slots until the ring is full.
 */
static int slot_choose(const srt_engine_t *engine, const srt_unit_t *unit, bool grads, int ring,
		       const srt_slot_map_t *map)
{
	int nearlier = 0;

	if (slot_need(unit, grads) == 0)
		return -1;
	for (size_t u = unit->index; u-- > 0;) {
		const srt_unit_t *other = engine->units[u];

		if (other->depth != unit->depth || slot_need(other, grads) == 0 ||
		    size_class(slot_need(other, grads)) != size_class(slot_need(unit, grads)))
			continue;
		/* Going back over a full ring ends at the slot that is next in turn. */
		if (++nearlier == ring)
			return map->slot_of[u];
	}
	return map->nslots;
}

/* ring: slots of a size class at one depth; 0: every unit has its own. */
static srt_status_t slot_map_plan(const srt_engine_t *engine, bool grads, int ring,
				  srt_slot_map_t *map)
{
	SRT_TRY(slot_map_alloc(map, engine->nunits));
	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u];
		size_t need = slot_need(unit, grads);
		int slot = slot_choose(engine, unit, grads, ring, map);

		map->slot_of[u] = slot;
		if (slot < 0)
			continue;
		if (slot == map->nslots)
			map->nslots++;
		if (need > map->nbytes[slot])
			map->nbytes[slot] = need;
	}
	for (int s = 0; s < map->nslots; s++) {
		map->offset[s] = map->total;
		map->total += srt_align_up(map->nbytes[s], SRT_TENSOR_ALIGN);
	}
	return SRT_OK;
}

/* Where whole gradients are written by the caller's compute. */
srt_grad_place_t srt_plan_grad_place(const srt_engine_t *engine, int world)
{
	const srt_engine_options_t *options = &engine->options;
	bool last = options->accumulation == SRT_ACCUMULATE_LAST && options->microbatches > 1;

	if (world == 1)
		return SRT_GRAD_IN_ARENA; /* nothing to send: the shard is the whole */
	if (options->strategy == SRT_STRATEGY_ZERO3)
		return last ? SRT_GRAD_IN_OWN : SRT_GRAD_IN_RING;
	/* Summed in place; a sum that is then added to earlier ones needs a place of its own. */
	return last || options->microbatches == 1 ? SRT_GRAD_IN_ARENA : SRT_GRAD_IN_RING;
}

static size_t take(size_t *at, size_t nbytes)
{
	size_t offset = *at;

	*at = srt_align_up(offset + nbytes, SRT_TENSOR_ALIGN);
	return offset;
}

static void sum_plan(srt_sum_places_t *places, size_t *at, int world)
{
	places->local_max = take(at, sizeof(float));
	places->local_bins = take(at, 2 * sizeof(double));
	places->all_max = take(at, (size_t)world * sizeof(float));
	places->all_bins = take(at, (size_t)world * 2 * sizeof(double));
	places->max = take(at, sizeof(float));
}

static void staging_plan(const srt_engine_t *engine, int world, srt_staging_t *staging)
{
	size_t n = engine->ntrainable;
	size_t at = 0;

	staging->state = take(&at, sizeof(srt_step_state_t));
	staging->params = take(&at, n * sizeof(srt_param_state_t));
	staging->segments = take(&at, n * sizeof(srt_optim_segment_t));
	staging->groups = take(&at, n * sizeof(srt_optim_group_t));
	staging->flags = take(&at, n * SRT_FLAG_NELEM * sizeof(float));
	staging->used = take(&at, n * SRT_FLAG_NELEM * sizeof(float));
	staging->norm = take(&at, sizeof(float));
	sum_plan(&staging->norm_sum, &at, world);
	sum_plan(&staging->user_sum, &at, world);
	staging->total = at;
}

static int optimizer_states(const srt_engine_options_t *options)
{
	if (options->optimizer == SRT_OPTIMIZER_SGD)
		return options->momentum != 0.0f ? 1 : 0;
	return options->amsgrad ? 3 : 2;
}

static bool adds_gradients(const srt_engine_t *engine, const srt_unit_t *unit, int rank, int world)
{
	bool sharded = srt_shard_count(engine, world) > 1;

	for (size_t i = 0; i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];
		int64_t first, n = 0;

		if (param->frozen || param->nelem == 0)
			continue;
		if (sharded)
			n = srt_shard_local_rows(engine, param, rank, world, &first);
		else
			srt_shard_rows(param->nelem, world, rank, &first, &n);
		if (n > 0)
			return true;
	}
	return false;
}

/* Reductions that sum something on the rank: the gradient flags and the units' gradients. */
static size_t count_sums(const srt_engine_t *engine, int rank, int world)
{
	size_t n = engine->ntrainable > 0;

	for (size_t u = 0; world > 1 && u < engine->nunits; u++)
		n += adds_gradients(engine, engine->units[u], rank, world);
	return n;
}

/* What the other ranks let this one map where it lies: their shards and whole gradients. */
static size_t peer_plan(const srt_engine_t *engine, int rank, int world, const srt_memory_t *memory)
{
	size_t peers = 0;

	for (int r = 0; r < world; r++) {
		size_t trainable, total;

		if (r == rank)
			continue;
		srt_shard_layout(engine, r, world, NULL, &trainable, &total);
		if (srt_shard_count(engine, world) > 1)
			peers += total;
		if (srt_plan_grad_place(engine, world) == SRT_GRAD_IN_ARENA)
			peers += trainable;
		peers += memory->grad_slots.total + memory->staging.total;
	}
	return peers;
}

/* Plans the memory of a rank. memory: to be freed with srt_memory_free(). */
srt_status_t srt_memory_plan(const srt_engine_t *engine, int rank, int world, srt_memory_t *memory)
{
	const srt_engine_options_t *options = &engine->options;
	srt_grad_place_t place = srt_plan_grad_place(engine, world);
	srt_status_t status = SRT_OK;
	srt_coll_memory_t colls;
	/* A window over all units: each has its own. */
	int ring = options->prefetch < (int)engine->nunits ? 1 + options->prefetch : 0;

	*memory = (srt_memory_t){ .nstates = optimizer_states(options) };
	srt_shard_layout(engine, rank, world, NULL, &memory->trainable, &memory->arena);
	staging_plan(engine, world, &memory->staging);
	srt_coll_plan(engine->comm, world, count_sums(engine, rank, world), &colls);
	memory->coll_scratch = colls.scratch;
	if (srt_shard_count(engine, world) > 1)
		status = slot_map_plan(engine, false, ring, &memory->slots);
	if (status == SRT_OK && place != SRT_GRAD_IN_ARENA)
		status = slot_map_plan(engine, true, place == SRT_GRAD_IN_RING ? GRAD_RING : 0,
				       &memory->grad_slots);
	if (status != SRT_OK) {
		srt_memory_free(memory);
		return status;
	}
	memory->peer_mapped = colls.mapped;
	if (colls.maps_sources)
		memory->peer_mapped += peer_plan(engine, rank, world, memory);
	return SRT_OK;
}

void srt_memory_free(srt_memory_t *memory)
{
	slot_map_free(&memory->slots);
	slot_map_free(&memory->grad_slots);
}

srt_status_t srt_engine_beside(srt_engine_t *engine, size_t activations, size_t scratch)
{
	if (engine == NULL || engine->build_begun)
		return srt_fail(SRT_ERR_STATE, "srt_engine_beside() of %s",
				engine == NULL ? "no engine" : "an engine that is built");
	engine->activations = activations;
	engine->scratch = scratch;
	return SRT_OK;
}

srt_status_t srt_engine_plan(const srt_engine_t *engine, int rank, int world_size, srt_plan_t *plan)
{
	srt_memory_t memory;
	int world;

	if (engine == NULL || plan == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"a plan needs an engine and a place for the result");
	world = world_size == 0 ? engine->world : world_size;
	if (world < 1 || rank < 0 || rank >= world)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"cannot plan for rank %d of %d: ranks count from 0 to one less "
				"than their number",
				rank, world);
	SRT_TRY(srt_memory_plan(engine, rank, world, &memory));
	*plan = (srt_plan_t){
		.param_shards = memory.arena,
		.grad_shards = memory.trainable,
		.optimizer_state = memory.trainable * (size_t)memory.nstates,
		.unsharded = memory.slots.total,
		.unsharded_grads = memory.grad_slots.total,
		.staging = memory.staging.total + memory.coll_scratch,
		.peer_mapped = memory.peer_mapped,
		.nslots = memory.slots.nslots,
	};
	plan->total = plan->param_shards + plan->grad_shards + plan->optimizer_state +
		      plan->unsharded + plan->unsharded_grads + plan->staging;
	plan->activations = engine->activations;
	plan->scratch = engine->scratch;
	if (!srt_add_size(plan->total, plan->activations, &plan->rank_total) ||
	    !srt_add_size(plan->rank_total, plan->scratch, &plan->rank_total))
		plan->rank_total = SIZE_MAX;
	srt_memory_free(&memory);
	return SRT_OK;
}
