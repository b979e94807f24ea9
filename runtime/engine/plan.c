/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory plan: every byte that the engine allocates on a rank, from the declaration alone.
 *
 * srt_engine_build() allocates from the same srt_memory_t whose rows srt_engine_plan() adds, so the
 * plan is exact. It is a pure function of the declaration, a rank and a number of ranks.
 */
#include "collectives/comm.h"
#include "runtime/engine/engine.h"

/* Of two gradient slots one is written while the other is reduced. */
#define GRAD_RING 2

/* Where the program writes unsharded gradients. */
srt_grad_location_t srt_plan_grad_location(const srt_engine_t *engine, int world)
{
	const srt_engine_options_t *options = &engine->options;
	bool last = options->accumulation == SRT_ACCUMULATE_LAST && options->microbatches > 1;

	if (world == 1)
		return SRT_GRAD_IN_ARENA; /* no reduction: the shard is the unsharded gradient */
	if (options->strategy == SRT_STRATEGY_ZERO3)
		return last ? SRT_GRAD_IN_UNIT_SLOT : SRT_GRAD_IN_SHARED_SLOT;
	/* Summed in place; a sum that is added to earlier ones needs memory apart from them. */
	return last || options->microbatches == 1 ? SRT_GRAD_IN_ARENA : SRT_GRAD_IN_SHARED_SLOT;
}

static int count_states(const srt_engine_options_t *options)
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

/* Bytes of other ranks that are mapped here: their shards, unsharded gradients and tables. */
static size_t plan_peer_mapped(const srt_engine_t *engine, int rank, int world,
			       const srt_memory_t *memory)
{
	size_t peers = 0;

	for (int r = 0; r < world; r++) {
		size_t trainable, total;

		if (r == rank)
			continue;
		srt_shard_layout(engine, r, world, NULL, &trainable, &total);
		if (srt_shard_count(engine, world) > 1)
			peers += total;
		if (srt_plan_grad_location(engine, world) == SRT_GRAD_IN_ARENA)
			peers += trainable;
		peers += memory->grad_slots.total + memory->staging.total;
	}
	return peers;
}

/* Plans the memory of a rank. memory: to be freed with srt_memory_free(). */
srt_status_t srt_memory_plan(const srt_engine_t *engine, int rank, int world, srt_memory_t *memory)
{
	const srt_engine_options_t *options = &engine->options;
	srt_grad_location_t place = srt_plan_grad_location(engine, world);
	srt_status_t status = SRT_OK;
	srt_coll_memory_t colls;
	/* A prefetch window over all units: one slot a unit. */
	int ring = options->prefetch < (int)engine->nunits ? 1 + options->prefetch : 0;

	*memory = (srt_memory_t){ .nstates = count_states(options) };
	srt_shard_layout(engine, rank, world, NULL, &memory->trainable, &memory->arena);
	srt_staging_plan(engine, world, &memory->staging);
	srt_coll_plan(engine->comm, world, count_sums(engine, rank, world), &colls);
	memory->coll_scratch = colls.scratch;
	if (srt_shard_count(engine, world) > 1)
		status = srt_slot_map_plan(engine, false, ring, &memory->slots);
	if (status == SRT_OK && place != SRT_GRAD_IN_ARENA)
		status = srt_slot_map_plan(engine, true,
					   place == SRT_GRAD_IN_SHARED_SLOT ? GRAD_RING : 0,
					   &memory->grad_slots);
	if (status != SRT_OK) {
		srt_memory_free(memory);
		return status;
	}
	memory->peer_mapped = colls.mapped;
	if (colls.maps_sources)
		memory->peer_mapped += plan_peer_mapped(engine, rank, world, memory);
	return SRT_OK;
}

void srt_memory_free(srt_memory_t *memory)
{
	srt_slot_map_free(&memory->slots);
	srt_slot_map_free(&memory->grad_slots);
}

srt_status_t srt_engine_plan_extra(srt_engine_t *engine, size_t activations, size_t scratch)
{
	if (engine == NULL || engine->build_begun)
		return srt_fail(SRT_ERR_STATE, "srt_engine_plan_extra() %s",
				engine == NULL ? "needs an engine" : "after srt_engine_build()");
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
				"srt_engine_plan needs an engine and a pointer for the result");
	world = world_size == 0 ? engine->world : world_size;
	if (world < 1 || rank < 0 || rank >= world)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_plan: rank is %d, must be 0 to %d", rank, world - 1);
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
