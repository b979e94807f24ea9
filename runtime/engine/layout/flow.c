/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How the gradients of a unit go to its shards: resolved from the roles of its tensors (roles.c)
 * and from the options when the engine is built. reduce.c does what the flow says.
 */
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

/* The divisions of the unit's sum. */
static srt_status_t resolve_average(const srt_unit_t *unit, srt_unit_flow_t *flow)
{
	const srt_engine_t *engine = unit->engine;
	const float given = engine->options.divide_factor;
	const int nranks = srt_shard_dp_size(engine, engine->world);
	const float factor = given != 0.0f ? given : (float)nranks;
	srt_average_t average = engine->options.average;

	if (average == SRT_AVERAGE_DEFAULT)
		average = unit->types.reduce == SRT_F16 ? SRT_AVERAGE_FACTORS : SRT_AVERAGE_ONCE;
	switch (average) {
	case SRT_AVERAGE_FACTORS: /* those of fp16, for every dtype */
		return srt_coll_divide_factors(SRT_F16, nranks, factor, &flow->predivisor,
					       &flow->divisor);
	case SRT_AVERAGE_FIRST:
		flow->predivisor = factor;
		break;
	case SRT_AVERAGE_ONCE:
		flow->divisor = factor;
		break;
	default:
		break;
	}
	return SRT_OK;
}

static bool has_role(const srt_unit_t *unit, srt_role_kind_t kind)
{
	return srt_role(unit, kind, unit->engine->world).spread != SRT_SPREAD_NONE;
}

srt_status_t srt_unit_flow_resolve(srt_unit_t *unit)
{
	const srt_engine_t *engine = unit->engine;
	const int world = engine->world;
	srt_unit_flow_t *flow = &unit->flow;

	*flow = (srt_unit_flow_t){
		.is_sharded = srt_roles_sharded(engine, world),
		.is_tree = srt_roles_tree(engine),
		.sums_apart = srt_roles_sums_apart(unit),
		.sums_in_shard = srt_role_summed(unit, world) == SRT_ROLE_GRAD,
		.defers = srt_roles_defer(engine) || srt_roles_add_unreduced(unit, world),
		.defers_replicas = engine->options.accumulation == SRT_ACCUMULATE_LAST_ALL_REDUCE,
		.downloads = engine->options.offload.grads != 0,
		.predivisor = 1.0f,
		.divisor = 1.0f,
	};
	flow->summed_slot = flow->sums_apart ? SRT_SLOT_SUMS : SRT_SLOT_GRADS;
	flow->keeps_grads = flow->defers && (!flow->sums_apart || srt_roles_keep_grads(unit));
	flow->accumulates = flow->is_sharded && !has_role(unit, SRT_ROLE_REDUCED);
	flow->stores = has_role(unit, SRT_ROLE_PARTIAL) || has_role(unit, SRT_ROLE_REDUCED) ||
		       (!flow->is_sharded && !flow->sums_in_shard);
	if (flow->is_sharded && flow->downloads)
		flow->stores = false;
	return resolve_average(unit, flow);
}
