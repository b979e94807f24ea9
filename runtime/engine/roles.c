/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Roles: which tensors a rank has of a parameter, and of what dtype, spread, lifetime and place.
 *
 * The plan, the layout, the allocation, the collectives, hash, save and print ask here, so a
 * strategy or a policy is defined in this file alone:
 *
 *     role            dtype     ddp    zero1   zero2   zero3   present if
 *     MASTER          stored    all    shard   shard   shard
 *     COMPUTE         compute   all    shard   shard   shard   compute is not stored
 *     UNSHARDED       compute   -      run     run     use     sharded
 *     UNSHARDED_GRAD  compute   use    step    use     use     GRAD cannot take its part
 *     SUM_GRAD        reduce    use    use     use     use     reduce is not compute, or a tree of
 *                                                              micro-batches; and GRAD cannot take
 *                                                              its part
 *     PARTIAL         f32       -      shard   shard   shard   sharded, with replicas
 *     REDUCED         reduce    -      shard   shard   shard   sharded, reduce is not stored; with
 *                                                              replicas: reduce is not PARTIAL's
 *     GRAD            stored    all    shard   shard   shard
 *     STATE           stored    all    shard   shard   shard
 *
 * zero3 is also hybrid. What the ranks of a replica sum is kept in f32 until the replicas are
 * summed too, so that hybrid has the bits of zero3; with SRT_ACCUMULATE_LAST_ALL_REDUCE it is added
 * up in the reduce dtype, as in PyTorch, and lives for a step.
 *
 * "run", "step", "use" are lifetimes of unsharded tensors: what lives for a use shares memory with
 * other units. On one rank nothing is sharded. Gradients that are added up over micro-batches
 * before they are reduced live for a step: in SUM_GRAD if they are added in the reduce dtype, else
 * in UNSHARDED_GRAD. GRAD takes the part of both where it is unsharded, has their dtype, and holds
 * nothing yet that they are added to.
 */
#include "runtime/engine/shard.h"

bool srt_roles_sharded(const srt_engine_t *engine, int world)
{
	return srt_shard_count(engine, world) > 1;
}

bool srt_roles_hybrid(const srt_engine_t *engine, int world)
{
	return srt_roles_sharded(engine, world) && srt_shard_replicas(engine, world) > 1;
}

/* Unreduced gradients are added up over the micro-batches of a step. */
bool srt_roles_defer(const srt_engine_t *engine)
{
	return (engine->options.accumulation == SRT_ACCUMULATE_LAST ||
		engine->options.accumulation == SRT_ACCUMULATE_TREE) &&
	       engine->options.microbatches > 1;
}

bool srt_roles_tree(const srt_engine_t *engine)
{
	return engine->options.accumulation == SRT_ACCUMULATE_TREE && srt_roles_defer(engine);
}

/* The unit's gradients are summed from other memory than they are written to. */
bool srt_roles_sums_apart(const srt_unit_t *unit)
{
	return unit->types.compute != unit->types.reduce || srt_roles_tree(unit->engine);
}

/* Sums in SUM_GRAD: the total and, with a tree, one partial sum for each of its levels. */
size_t srt_roles_count_sums(const srt_engine_t *engine)
{
	size_t nsums = 1;

	for (int n = engine->options.microbatches; srt_roles_tree(engine) && n > 1; n /= 2)
		nsums++;
	return nsums;
}

/* Whether gradients of this dtype can be written, or summed over ranks, where GRAD is. */
static bool grad_takes(const srt_engine_t *engine, const srt_unit_t *unit, srt_dtype_t dtype,
		       int world)
{
	if (srt_roles_sharded(engine, world) || unit->types.stored != dtype ||
	    srt_roles_tree(engine))
		return false;
	if (srt_shard_dp_size(engine, world) == 1)
		return engine->options.divide_factor == 0.0f;
	return srt_roles_defer(engine) || engine->options.microbatches == 1;
}

/* Other ranks read tensors of the role: memory of srt_comm_mem_kind(). */
bool srt_role_is_shared(srt_role_kind_t kind)
{
	return kind != SRT_ROLE_UNSHARDED && kind != SRT_ROLE_REDUCED && kind < SRT_ROLE_STATE;
}

static srt_role_t absent(void)
{
	return (srt_role_t){ .spread = SRT_SPREAD_NONE };
}

static srt_lifetime_t unsharded_lifetime(const srt_unit_t *unit)
{
	bool keeps = unit->engine->options.strategy == SRT_STRATEGY_ZERO1 ||
		     unit->engine->options.strategy == SRT_STRATEGY_ZERO2;

	if (unit->reshard == SRT_RESHARD_NEVER)
		keeps = true;
	if (unit->reshard == SRT_RESHARD_ALWAYS)
		keeps = false;
	return keeps ? SRT_LIFETIME_RUN : SRT_LIFETIME_USE;
}

/* UNSHARDED_GRAD is what the micro-batches add to. */
bool srt_roles_keep_grads(const srt_unit_t *unit)
{
	return srt_roles_defer(unit->engine) && !srt_roles_tree(unit->engine) &&
	       unit->types.accumulate == unit->types.compute;
}

static srt_role_t unsharded_grad(const srt_unit_t *unit, int world)
{
	const srt_engine_t *engine = unit->engine;
	const srt_unit_types_t *t = &unit->types;
	srt_role_t role = { t->compute, SRT_SPREAD_ALL, SRT_LIFETIME_USE };

	if (t->compute == t->reduce && grad_takes(engine, unit, t->compute, world))
		return absent();
	if (engine->options.strategy == SRT_STRATEGY_ZERO1 || srt_roles_keep_grads(unit))
		role.lifetime = SRT_LIFETIME_STEP;
	return role;
}

static srt_role_t sum_grad(const srt_unit_t *unit, int world)
{
	const srt_engine_t *engine = unit->engine;
	const srt_unit_types_t *t = &unit->types;
	srt_role_t role = { t->reduce, SRT_SPREAD_ALL, SRT_LIFETIME_USE };

	if (!srt_roles_sums_apart(unit) || grad_takes(engine, unit, t->reduce, world))
		return absent();
	if (srt_roles_defer(engine) && !srt_roles_keep_grads(unit))
		role.lifetime = SRT_LIFETIME_STEP;
	return role;
}

static srt_role_t partial_sum(const srt_unit_t *unit, int world)
{
	const srt_engine_t *engine = unit->engine;

	if (!srt_roles_hybrid(engine, world))
		return absent();
	if (engine->options.accumulation == SRT_ACCUMULATE_LAST_ALL_REDUCE)
		return (srt_role_t){ unit->types.reduce, SRT_SPREAD_SHARD, SRT_LIFETIME_STEP };
	return (srt_role_t){ SRT_F32, SRT_SPREAD_SHARD, SRT_LIFETIME_USE };
}

static srt_role_t reduced(const srt_unit_t *unit, int world)
{
	const srt_unit_types_t *t = &unit->types;
	const srt_role_t partial = partial_sum(unit, world);

	if (!srt_roles_sharded(unit->engine, world) ||
	    t->reduce == (partial.spread != SRT_SPREAD_NONE ? partial.dtype : t->stored))
		return absent();
	return (srt_role_t){ t->reduce, SRT_SPREAD_SHARD, SRT_LIFETIME_USE };
}

/* The role of the unit's tensors in a job of `world` ranks. Pure. */
srt_role_t srt_role(const srt_unit_t *unit, srt_role_kind_t kind, int world)
{
	const srt_unit_types_t *t = &unit->types;
	bool sharded = srt_roles_sharded(unit->engine, world);
	srt_spread_t owned = sharded ? SRT_SPREAD_SHARD : SRT_SPREAD_ALL;

	switch (kind) {
	case SRT_ROLE_MASTER:
		return (srt_role_t){ t->stored, owned, SRT_LIFETIME_RUN };
	case SRT_ROLE_COMPUTE:
		if (t->compute == t->stored)
			return absent();
		return (srt_role_t){ t->compute, owned, SRT_LIFETIME_RUN };
	case SRT_ROLE_UNSHARDED:
		if (!sharded)
			return absent();
		return (srt_role_t){ t->compute, SRT_SPREAD_ALL, unsharded_lifetime(unit) };
	case SRT_ROLE_UNSHARDED_GRAD:
		return unsharded_grad(unit, world);
	case SRT_ROLE_SUM_GRAD:
		return sum_grad(unit, world);
	case SRT_ROLE_PARTIAL:
		return partial_sum(unit, world);
	case SRT_ROLE_REDUCED:
		return reduced(unit, world);
	case SRT_ROLE_GRAD:
		return (srt_role_t){ t->stored, owned, SRT_LIFETIME_STEP };
	default:
		return (srt_role_t){ t->stored, owned, SRT_LIFETIME_RUN };
	}
}

/* The role whose tensors are summed over ranks: the first one there is of SUM_GRAD, UNSHARDED_GRAD
 * (in the reduce dtype), GRAD. */
srt_role_kind_t srt_role_summed(const srt_unit_t *unit, int world)
{
	if (srt_role(unit, SRT_ROLE_SUM_GRAD, world).spread != SRT_SPREAD_NONE)
		return SRT_ROLE_SUM_GRAD;
	if (unit->types.compute == unit->types.reduce &&
	    srt_role(unit, SRT_ROLE_UNSHARDED_GRAD, world).spread != SRT_SPREAD_NONE)
		return SRT_ROLE_UNSHARDED_GRAD;
	return SRT_ROLE_GRAD;
}

/* The role whose tensors are gathered or, if nothing is sharded, computed with. */
srt_role_kind_t srt_role_gathered(const srt_unit_t *unit)
{
	return unit->types.compute == unit->types.stored ? SRT_ROLE_MASTER : SRT_ROLE_COMPUTE;
}
