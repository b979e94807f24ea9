/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots: which memory each unit's unsharded parameters, gradients, sums, uploaded shards or parts
 * use.
 *
 * The map follows the tree of units, not the order in which they run. At any time the ancestors of
 * the unit in use are unsharded, and at each depth one unit in use and those of the prefetch
 * window. Each depth has a ring of slots for each size class (units within a factor of two). A unit
 * always uses the same slot; one whose tensors live longer than a use has its own. An order of
 * units that needs one slot for two units at once is refused when it occurs.
 */
#include <stdlib.h>

#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

void srt_slot_map_free(srt_slot_map_t *map)
{
	free(map->slot_of);
	free(map->nbytes);
	free(map->offset);
	*map = (srt_slot_map_t){ 0 };
}

static srt_status_t alloc_slot_map(srt_slot_map_t *map, size_t nunits)
{
	map->slot_of = srt_calloc(nunits, sizeof(*map->slot_of), "slots of units");
	map->nbytes = srt_calloc(nunits, sizeof(*map->nbytes), "slot sizes");
	map->offset = srt_calloc(nunits, sizeof(*map->offset), "slot offsets");
	if (map->slot_of == NULL || map->nbytes == NULL || map->offset == NULL) {
		srt_slot_map_free(map);
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

/* What the slots of a kind are planned for. */
typedef struct slot_plan {
	srt_slot_kind_t kind;
	int rank, world;
} slot_plan_t;

static srt_role_t slot_role(const srt_unit_t *unit, const slot_plan_t *plan)
{
	static const srt_role_kind_t roles[] = {
		[SRT_SLOT_PARAMS] = SRT_ROLE_UNSHARDED,
		[SRT_SLOT_GRADS] = SRT_ROLE_UNSHARDED_GRAD,
		[SRT_SLOT_SUMS] = SRT_ROLE_SUM_GRAD,
		[SRT_SLOT_UPLOADS] = SRT_ROLE_UPLOADED,
		[SRT_SLOT_PARTS] = SRT_ROLE_POST_FORWARD,
	};

	return srt_role(unit, roles[plan->kind], plan->world);
}

/* Bytes of the unit's slot; 0: it needs none. */
static size_t slot_nbytes(const srt_unit_t *unit, const slot_plan_t *plan)
{
	const srt_role_t role = slot_role(unit, plan);
	size_t nelem =
		plan->kind == SRT_SLOT_PARAMS ? unit->unsharded_nelem : unit->trainable_nelem;

	if (plan->kind == SRT_SLOT_SUMS)
		nelem *= srt_roles_count_sums(unit->engine);
	if (plan->kind == SRT_SLOT_UPLOADS) /* equal slots on all ranks */
		nelem = srt_shard_most_nelem(unit, plan->rank, plan->world);
	if (plan->kind == SRT_SLOT_PARTS && role.spread != SRT_SPREAD_NONE) /* the largest part */
		nelem = srt_shard_part_nelem(unit, srt_roles_group(unit, plan->world), 0, NULL);
	return role.spread == SRT_SPREAD_NONE ? 0 : nelem * srt_dtype_size(role.dtype);
}

/* The size class in which a unit shares slots with others; -1: it needs no slot, or its own. */
static int shared_class(const srt_unit_t *unit, const slot_plan_t *plan)
{
	size_t nbytes = slot_nbytes(unit, plan);

	if (nbytes == 0 || slot_role(unit, plan).lifetime != SRT_LIFETIME_USE)
		return -1;
	return size_class(nbytes);
}

/*
 * The slot of the unit. Units of one depth and size class share a ring of slots. A unit takes the
 * slot that follows the slot of the previous unit of its ring; new slots until the ring is full.
 */
static int choose_slot(const srt_unit_t *unit, const slot_plan_t *plan, int ring,
		       const srt_slot_map_t *map)
{
	int class = shared_class(unit, plan), nearlier = 0;

	for (size_t u = unit->index; class >= 0 && u-- > 0;) {
		const srt_unit_t *other = unit->engine->units[u];

		if (other->depth != unit->depth || shared_class(other, plan) != class)
			continue;
		/* One full ring back: the oldest slot, which is used next. */
		if (++nearlier == ring)
			return map->slot_of[u];
	}
	return map->nslots;
}

srt_status_t srt_slot_map_plan(const srt_engine_t *engine, srt_slot_kind_t kind, int rank,
			       int world, int ring, srt_slot_map_t *map)
{
	const slot_plan_t plan = { kind, rank, world };

	SRT_TRY(alloc_slot_map(map, engine->nunits));
	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u];
		size_t nbytes = slot_nbytes(unit, &plan);
		int slot = nbytes > 0 ? choose_slot(unit, &plan, ring, map) : -1;

		map->slot_of[u] = slot;
		if (slot < 0)
			continue;
		if (slot == map->nslots)
			map->nslots++;
		if (nbytes > map->nbytes[slot])
			map->nbytes[slot] = nbytes;
	}
	for (int s = 0; s < map->nslots; s++) {
		map->offset[s] = map->total;
		map->total += srt_align_up(map->nbytes[s], SRT_TENSOR_ALIGN);
	}
	return SRT_OK;
}
