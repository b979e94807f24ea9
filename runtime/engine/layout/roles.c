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
 *     UPLOADED        compute   -      run     run     run     offload; sharded
 *     UNSHARDED       compute   -      run     run     use     sharded; offload: also ddp, run
 *     POST_FORWARD    compute   -      -       -       -       resharded to groups of ranks
 *     UNSHARDED_GRAD  compute   use    step    use     use     GRAD cannot take its part
 *     SUM_GRAD        reduce    use    use     use     use     reduce is not compute, or a tree of
 *                                                              micro-batches; and GRAD cannot take
 *                                                              its part
 *     PARTIAL         f32       -      shard   shard   shard   sharded, with replicas
 *     REDUCED         reduce    -      shard   shard   shard   sharded, reduce is not stored; with
 *                                                              replicas: reduce is not PARTIAL's
 *     GRAD            stored    all    shard   shard   shard   not offloaded
 *     DOWNLOADED      stored    all    shard   shard   shard   offload
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
 *
 * POST_FORWARD (reshard = n) lives for a step: each rank of a group of n keeps a part of the unit's
 * UNSHARDED, which is cut over the group by elements. UNSHARDED then lives for a use with every
 * strategy.
 *
 * Offload: if any option of srt_offload_t is set, MASTER, COMPUTE, DOWNLOADED and STATE are on the
 * host, where the optimizer steps. What the device needs of values is UPLOADED or, without shards,
 * UNSHARDED; with `params` it lives for a use. Reductions fill GRAD, which is downloaded at the end
 * of the backward passes; with `grads` they fill REDUCED, which is downloaded unit by unit, and
 * added up on the host.
 */
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

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

int srt_roles_group(const srt_unit_t *unit, int world)
{
	/* A group of all ranks that have shards is what these are. */
	return unit->reshard > 1 && unit->reshard < srt_shard_count(unit->engine, world) ?
		       unit->reshard :
		       0;
}

int srt_roles_groups(const srt_engine_t *engine, int world)
{
	int n = 0;

	for (size_t u = 0; u < engine->nunits && n == 0; u++)
		n = srt_roles_group(engine->units[u], world);
	return n;
}

/* Whether gradients of this dtype can be written, or summed over ranks, where GRAD is or, if it is
 * offloaded, would be. */
static bool grad_fits(const srt_engine_t *engine, const srt_unit_t *unit, srt_dtype_t dtype,
		      int world)
{
	if (srt_roles_sharded(engine, world) || unit->types.stored != dtype ||
	    srt_roles_tree(engine))
		return false;
	if (srt_shard_dp_size(engine, world) == 1)
		return engine->options.divide_factor == 0.0f;
	return srt_roles_defer(engine) || engine->options.microbatches == 1;
}

static bool grad_takes(const srt_engine_t *engine, const srt_unit_t *unit, srt_dtype_t dtype,
		       int world)
{
	return !engine->options.offload.grads && grad_fits(engine, unit, dtype, world);
}

bool srt_roles_add_unreduced(const srt_unit_t *unit, int world)
{
	return unit->engine->options.microbatches > 1 &&
	       srt_shard_dp_size(unit->engine, world) == 1 &&
	       grad_fits(unit->engine, unit, unit->types.reduce, world);
}

/* Other ranks read tensors of the role: memory of srt_comm_mem_kind(). */
bool srt_role_is_shared(srt_role_kind_t kind)
{
	return kind != SRT_ROLE_UNSHARDED && kind != SRT_ROLE_REDUCED && kind < SRT_ROLE_DOWNLOADED;
}

bool srt_roles_offload(const srt_engine_t *engine)
{
	const srt_offload_t *offload = &engine->options.offload;

	return offload->params || offload->grads || offload->state;
}

bool srt_role_is_home(srt_role_kind_t kind)
{
	return kind == SRT_ROLE_MASTER || kind == SRT_ROLE_COMPUTE || kind >= SRT_ROLE_DOWNLOADED;
}

srt_role_kind_t srt_role_stepped(const srt_engine_t *engine)
{
	return srt_roles_offload(engine) ? SRT_ROLE_DOWNLOADED : SRT_ROLE_GRAD;
}

static srt_role_t absent(void)
{
	return (srt_role_t){ .spread = SRT_SPREAD_NONE };
}

static srt_role_t uploaded(const srt_unit_t *unit, int world)
{
	const srt_engine_t *engine = unit->engine;

	if (!srt_roles_offload(engine) || !srt_roles_sharded(engine, world))
		return absent();
	return (srt_role_t){ unit->types.compute, SRT_SPREAD_SHARD,
			     engine->options.offload.params ? SRT_LIFETIME_USE : SRT_LIFETIME_RUN };
}

static srt_lifetime_t unsharded_lifetime(const srt_unit_t *unit, int world)
{
	bool keeps = unit->engine->options.strategy == SRT_STRATEGY_ZERO1 ||
		     unit->engine->options.strategy == SRT_STRATEGY_ZERO2;

	if (!srt_roles_sharded(unit->engine, world))
		keeps = !unit->engine->options.offload.params;
	if (unit->reshard == SRT_RESHARD_NEVER)
		keeps = true;
	if (unit->reshard == SRT_RESHARD_ALWAYS || unit->reshard > 1)
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
	if (engine->options.strategy == SRT_STRATEGY_ZERO1 || srt_roles_keep_grads(unit) ||
	    (t->compute == t->reduce && srt_roles_add_unreduced(unit, world)))
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
	if ((srt_roles_defer(engine) && !srt_roles_keep_grads(unit)) ||
	    srt_roles_add_unreduced(unit, world))
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
	const bool sharded = srt_roles_sharded(unit->engine, world);

	if (unit->engine->options.offload.grads)
		return (srt_role_t){ t->reduce, sharded ? SRT_SPREAD_SHARD : SRT_SPREAD_ALL,
				     SRT_LIFETIME_USE };
	if (!sharded ||
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
	case SRT_ROLE_UPLOADED:
		return uploaded(unit, world);
	case SRT_ROLE_UNSHARDED:
		if (!sharded && !srt_roles_offload(unit->engine))
			return absent();
		return (srt_role_t){ t->compute, SRT_SPREAD_ALL, unsharded_lifetime(unit, world) };
	case SRT_ROLE_POST_FORWARD:
		if (srt_roles_group(unit, world) == 0)
			return absent();
		return (srt_role_t){ t->compute, SRT_SPREAD_SHARD, SRT_LIFETIME_STEP };
	case SRT_ROLE_UNSHARDED_GRAD:
		return unsharded_grad(unit, world);
	case SRT_ROLE_SUM_GRAD:
		return sum_grad(unit, world);
	case SRT_ROLE_PARTIAL:
		return partial_sum(unit, world);
	case SRT_ROLE_REDUCED:
		return reduced(unit, world);
	case SRT_ROLE_GRAD:
		if (unit->engine->options.offload.grads)
			return absent();
		return (srt_role_t){ t->stored, owned, SRT_LIFETIME_STEP };
	case SRT_ROLE_DOWNLOADED:
		if (!srt_roles_offload(unit->engine))
			return absent();
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
