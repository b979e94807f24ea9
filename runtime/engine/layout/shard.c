/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sharding: which elements of a parameter each rank owns and where its arena has them.
 *
 * The only file that divides by the number of ranks. Dimension 0 of d rows is cut into chunks of
 * ceil(d/W), as PyTorch's fully_shard does; the last ranks may own fewer rows or none (5 rows over
 * 4 ranks: 2, 2, 1, 0). Of a flat unit the elements of all its parameters are cut like that, and a
 * rank owns of each parameter what is in its chunk. All functions are pure functions of the
 * declaration, a rank and a number of ranks, so every rank can compute the layout of every other
 * rank.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/comm.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

static int dim_size(const srt_mesh_t *mesh, int dim)
{
	return dim >= 0 ? mesh->shape[dim] : 1;
}

int srt_shard_count(const srt_engine_t *engine, int world)
{
	if (engine->options.strategy == SRT_STRATEGY_DDP)
		return 1;
	return engine->comms.mesh != NULL ? dim_size(engine->comms.mesh, engine->comms.shard_dim) :
					    world;
}

int srt_shard_replicas(const srt_engine_t *engine, int world)
{
	if (engine->comms.mesh != NULL)
		return dim_size(engine->comms.mesh, engine->comms.replicate_dim);
	return engine->options.strategy == SRT_STRATEGY_DDP ? world : 1;
}

int srt_shard_dp_size(const srt_engine_t *engine, int world)
{
	return srt_shard_count(engine, world) * srt_shard_replicas(engine, world);
}

int srt_shard_index(const srt_engine_t *engine, int rank)
{
	if (engine->options.strategy == SRT_STRATEGY_DDP)
		return 0;
	if (engine->comms.mesh == NULL)
		return rank;
	return engine->comms.shard_dim >= 0 ?
		       srt_mesh_coordinate_of(engine->comms.mesh, rank, engine->comms.shard_dim) :
		       0;
}

int srt_shard_rank(const srt_engine_t *engine, int rank, int index)
{
	if (engine->comms.mesh == NULL)
		return engine->options.strategy == SRT_STRATEGY_DDP ? rank : index;
	if (engine->comms.shard_dim < 0)
		return rank;
	return rank + (index - srt_shard_index(engine, rank)) *
			      engine->comms.mesh->stride[engine->comms.shard_dim];
}

int srt_shard_replica(const srt_engine_t *engine, int rank)
{
	if (engine->comms.mesh == NULL)
		return engine->options.strategy == SRT_STRATEGY_DDP ? rank : 0;
	return engine->comms.replicate_dim >= 0 ?
		       srt_mesh_coordinate_of(engine->comms.mesh, rank,
					      engine->comms.replicate_dim) :
		       0;
}

int srt_shard_first_copy(const srt_engine_t *engine, bool cells, int rank)
{
	int r = 0;

	while (srt_shard_index(engine, r) != srt_shard_index(engine, rank) ||
	       (cells && srt_cell_index(engine, r) != srt_cell_index(engine, rank)))
		r++;
	return r;
}

int srt_shard_group(const srt_engine_t *engine, int rank, int n)
{
	return srt_shard_index(engine, rank) / n;
}

bool srt_shard_is_tree(const srt_engine_t *engine)
{
	return !srt_roles_hybrid(engine, engine->world) ||
	       engine->comms.replicate_dim < engine->comms.shard_dim;
}

int64_t srt_shard_flat_chunk(const srt_unit_t *unit, int world)
{
	int64_t offset, size;

	srt_shard_rows((int64_t)unit->flat_nelem, srt_shard_count(unit->engine, world), 0, &offset,
		       &size);
	return size;
}

static int64_t clamp(int64_t value, int64_t most)
{
	return value < 0 ? 0 : value > most ? most : value;
}

/* The rank's chunk begins this many elements after the parameter. */
static int64_t flat_distance(const srt_param_t *param, int rank, int world)
{
	return srt_shard_flat_chunk(param->unit, world) *
		       srt_shard_index(param->unit->engine, rank) -
	       (int64_t)param->flat_offset;
}

int64_t srt_shard_flat_offset(const srt_param_t *param, int rank, int world)
{
	return clamp(-flat_distance(param, rank, world), srt_shard_flat_chunk(param->unit, world));
}

static int64_t flat_range(const srt_param_t *param, int rank, int world, int64_t *first)
{
	const int64_t nelem = srt_cell_nelem(param, srt_cell_index(param->unit->engine, rank));
	const int64_t distance = flat_distance(param, rank, world);

	*first = clamp(distance, nelem);
	return clamp(distance + srt_shard_flat_chunk(param->unit, world), nelem) - *first;
}

int64_t srt_shard_range(const srt_param_t *param, int rank, int world, int64_t *first)
{
	const srt_engine_t *engine = param->unit->engine;
	int64_t shape[SRT_MAX_DIMS], row0, nrows, row_nelem = 1;

	if (param->unit->flat != SRT_FLAT_NO)
		return flat_range(param, rank, world, first);
	srt_cell_shape(param, srt_cell_index(engine, rank), shape);
	srt_shard_rows(shape[0], srt_shard_count(engine, world), srt_shard_index(engine, rank),
		       &row0, &nrows);
	for (int i = 1; i < param->ndim; i++)
		row_nelem *= shape[i];
	*first = row0 * row_nelem;
	return nrows * row_nelem;
}

int srt_shard_part(const srt_unit_t *unit)
{
	if (unit->types.stored == SRT_U8)
		return SRT_PART_BYTES;
	/* the float dtypes follow each other in their enum */
	return ((int)unit->types.stored - SRT_F32) * 3 + ((int)unit->types.compute - SRT_F32);
}

/* The shards in a part of an arena, in their order there. */
typedef enum zone { ZONE_CUT, ZONE_WHOLE, ZONE_FROZEN, NZONES } zone_t;

static zone_t zone_of(const srt_param_t *param)
{
	return param->frozen ? ZONE_FROZEN : param->is_cut ? ZONE_CUT : ZONE_WHOLE;
}

bool srt_shard_is_contiguous(const srt_unit_t *unit)
{
	for (size_t i = 1; i < unit->nparams; i++) {
		if (zone_of(unit->params[i]) != zone_of(unit->params[0]))
			return false;
	}
	return unit->flat != SRT_FLAT_NO && unit->nparams > 0;
}

/* The chunk as it is, with what aligns and pads it; or, of parameters in several zones, their
 * ranges one after another. */
static size_t layout_flat(const srt_unit_t *unit, int rank, int world, zone_t zone, size_t at,
			  size_t *offsets)
{
	const bool contiguous = srt_shard_is_contiguous(unit);
	size_t end = at;

	for (size_t i = 0; i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];
		int64_t first;

		if (zone_of(param) != zone)
			continue;
		if (offsets != NULL)
			offsets[param->index] =
				contiguous ?
					at + (size_t)srt_shard_flat_offset(param, rank, world) :
					end;
		end += (size_t)srt_shard_range(param, rank, world, &first);
	}
	if (contiguous && zone_of(unit->params[0]) == zone)
		end = at + (size_t)srt_shard_flat_chunk(unit, world);
	return srt_align_up(end, srt_unit_align(unit));
}

/* Elements from the start of `at` to where the unit's shards of this zone end. */
static size_t layout_unit(const srt_unit_t *unit, int rank, int world, zone_t zone, size_t at,
			  size_t *offsets)
{
	if (unit->flat != SRT_FLAT_NO)
		return layout_flat(unit, rank, world, zone, at, offsets);
	for (size_t i = 0; i < unit->nparams; i++) {
		const srt_param_t *param = unit->params[i];
		int64_t first;

		if (zone_of(param) != zone)
			continue;
		if (offsets != NULL)
			offsets[param->index] = at;
		at += (size_t)srt_shard_range(param, rank, world, &first);
		at = srt_align_up(at, srt_unit_align(unit));
	}
	return at;
}

size_t srt_shard_layout_unit(const srt_unit_t *unit, int rank, int world, size_t *offsets)
{
	const size_t cut = layout_unit(unit, rank, world, ZONE_CUT, 0, offsets);

	return layout_unit(unit, rank, world, ZONE_WHOLE, cut, offsets);
}

size_t srt_shard_layout_unit_all(const srt_unit_t *unit, int rank, int world, size_t *offsets)
{
	const size_t trainable = srt_shard_layout_unit(unit, rank, world, offsets);

	return layout_unit(unit, rank, world, ZONE_FROZEN, trainable, offsets);
}

size_t srt_shard_most_nelem(const srt_unit_t *unit, int rank, int world)
{
	if (unit->flat == SRT_FLAT_NO || srt_shard_is_contiguous(unit))
		return srt_shard_layout_unit_all(unit, srt_shard_rank(unit->engine, rank, 0), world,
						 NULL);
	/* Each zone ends with an alignment. */
	return srt_align_up((size_t)srt_shard_flat_chunk(unit, world) +
				    NZONES * srt_unit_align(unit),
			    srt_unit_align(unit));
}

/* Whole alignments, so the layout is cut anywhere, and the parts of small units may be empty. */
size_t srt_shard_part_nelem(const srt_unit_t *unit, int n, int index, size_t *first)
{
	const size_t align = srt_unit_align(unit);
	int64_t offset, size;

	srt_shard_rows((int64_t)(unit->unsharded_nelem / align), n, index, &offset, &size);
	if (first != NULL)
		*first = (size_t)offset * align;
	return (size_t)size * align;
}

/* Adds the arenas of a role: `nelem` elements of its dtype by part. */
static void layout_arena(srt_layout_t *layout, int arena, int part, srt_dtype_t dtype, size_t nelem)
{
	layout->offset[arena][part] = layout->nbytes[arena];
	layout->nbytes[arena] += nelem * srt_dtype_size(dtype);
}

static void layout_part(const srt_engine_t *engine, int part, srt_layout_t *layout)
{
	const srt_dtype_t stored = srt_part_stored(part), compute = srt_part_compute(part);

	layout_arena(layout, SRT_ROLE_MASTER, part, stored, layout->all[part]);
	if (compute != stored)
		layout_arena(layout, SRT_ROLE_COMPUTE, part, compute, layout->all[part]);
	if (!engine->options.offload.grads)
		layout_arena(layout, SRT_ROLE_GRAD, part, stored, layout->trainable[part]);
	if (srt_roles_offload(engine))
		layout_arena(layout, SRT_ROLE_DOWNLOADED, part, stored, layout->trainable[part]);
	for (int k = 0; k < srt_engine_count_states(engine) && !srt_optim_in_8_bits(engine->optim);
	     k++)
		layout_arena(layout, SRT_ROLE_STATE + k, part, stored, layout->trainable[part]);
}

/* Adds a unit's sums of `nelem` elements: to those of the other units, or to memory they share. */
static void layout_sums(const srt_unit_t *unit, srt_role_kind_t arena, int world, size_t nelem,
			srt_layout_t *layout)
{
	const srt_role_t role = srt_role(unit, arena, world);
	const size_t nbytes = nelem * srt_dtype_size(role.dtype);

	if (role.spread == SRT_SPREAD_NONE)
		return;
	if (role.lifetime == SRT_LIFETIME_STEP)
		layout->nbytes[arena] += nbytes;
	else if (nbytes > layout->nbytes[arena])
		layout->nbytes[arena] = nbytes;
}

/*
 * Lays out the arenas of a rank: in each part zone by zone, unit by unit in order of declaration.
 * offsets: element in its part, by parameter index; or NULL. No sum overflows: srt_param_create()
 * checked the sum over all unsharded parameters with their padding.
 */
void srt_shard_layout(const srt_engine_t *engine, int rank, int world, size_t *offsets,
		      srt_layout_t *layout)
{
	*layout = (srt_layout_t){ 0 };
	for (int zone = 0; zone < NZONES; zone++) {
		for (size_t u = 0; u < engine->nunits; u++) {
			const srt_unit_t *unit = engine->units[u];
			size_t *at = &layout->all[srt_shard_part(unit)];

			*at = layout_unit(unit, rank, world, (zone_t)zone, *at, offsets);
		}
		if (zone == ZONE_CUT)
			memcpy(layout->cut, layout->all, sizeof(layout->all));
		if (zone == ZONE_WHOLE)
			memcpy(layout->trainable, layout->all, sizeof(layout->all));
	}
	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u];
		const size_t nelem = srt_shard_layout_unit(unit, rank, world, NULL);

		for (int a = SRT_ROLE_PARTIAL; a <= SRT_ROLE_REDUCED; a++)
			layout_sums(unit, (srt_role_kind_t)a, world, nelem, layout);
	}
	for (int part = 0; part < SRT_NPARTS; part++)
		layout_part(engine, part, layout);
	srt_state8_layout(engine, rank, world, NULL, &layout->nbytes[SRT_ROLE_STATE]);
}

static srt_status_t alloc_owners(const srt_unit_t *unit, int nranks, srt_owners_t *owners)
{
	srt_comm_t *comm = unit->engine->comm;
	size_t world = (size_t)nranks;

	owners->owner =
		srt_comm_calloc(comm, world, sizeof(*owners->owner), "owners of a collective");
	owners->segments = srt_comm_calloc(comm, world * unit->nparams, sizeof(*owners->segments),
					   "segments of a collective");
	if (owners->owner == NULL || owners->segments == NULL) {
		srt_owners_free(owners);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	for (size_t r = 0; r < world; r++)
		owners->owner[r].segments = owners->segments + r * unit->nparams;
	return SRT_OK;
}

static void add_segment(srt_owners_t *owners, int rank, const srt_coll_segment_t *segment)
{
	srt_coll_owner_t *owner = &owners->owner[rank];
	size_t at = (size_t)(owner->segments - owners->segments) + owner->nsegments;

	if (segment->nelem == 0)
		return;
	owners->segments[at] = *segment;
	owner->nsegments++;
}

/*
 * Owners of a unit whose parameters are sharded, by rank of comms.shard. full_offset counts from
 * the unit's slot, shard_offset from the start of the owner's part; packed: as
 * srt_shard_layout_unit() has it.
 */
srt_status_t srt_shard_owners(const srt_unit_t *unit, bool trainable_only, bool packed,
			      srt_owners_t *owners)
{
	const srt_engine_t *engine = unit->engine;
	const int nshards = srt_shard_count(engine, engine->world);
	size_t *offsets =
		srt_comm_calloc(engine->comm, engine->nparams, sizeof(*offsets), "shard offsets");
	srt_layout_t layout;
	srt_status_t status;

	if (offsets == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = alloc_owners(unit, nshards, owners);
	for (int s = 0; status == SRT_OK && s < nshards; s++) {
		const int rank = srt_shard_rank(engine, engine->rank, s);

		srt_shard_layout(engine, rank, engine->world, offsets, &layout);
		if (packed)
			srt_shard_layout_unit_all(unit, rank, engine->world, offsets);
		for (size_t i = 0; i < unit->nparams; i++) {
			const srt_param_t *param = unit->params[i];
			int64_t first;
			const int64_t nelem = srt_shard_range(param, rank, engine->world, &first);

			if (trainable_only && param->frozen)
				continue;
			add_segment(owners, s,
				    &(srt_coll_segment_t){
					    .full_offset = param->unsharded_offset + (size_t)first,
					    .shard_offset = offsets[param->index],
					    .nelem = (size_t)nelem,
				    });
		}
	}
	free(offsets);
	return status;
}

/*
 * Owners for a sum in place over unsharded gradients, by rank of comms.replica. The owner of an
 * element is the rank that sums it, so each tensor is cut evenly by elements. Offsets count from
 * the unit's unsharded gradients or, if those are in an arena, from the start of its part.
 */
srt_status_t srt_shard_owners_in_place(const srt_unit_t *unit, srt_owners_t *owners)
{
	const int nranks = srt_shard_replicas(unit->engine, unit->engine->world);

	const bool in_arena = srt_role_summed(unit, unit->engine->world) == SRT_ROLE_GRAD;

	SRT_TRY(alloc_owners(unit, nranks, owners));
	for (int r = 0; r < nranks; r++) {
		for (size_t i = 0; i < unit->nparams; i++) {
			const srt_param_t *param = unit->params[i];
			int64_t first, nelem;

			if (param->frozen)
				continue;
			srt_shard_rows(param->nelem, nranks, r, &first, &nelem);
			add_segment(owners, r,
				    &(srt_coll_segment_t){
					    .full_offset = (in_arena ? param->shard.offset :
								       param->unsharded_offset) +
							   (size_t)first,
					    .nelem = (size_t)nelem,
				    });
		}
	}
	return SRT_OK;
}

/* Owners for a sum in place over the shards of the replicas, as one run of elements. */
srt_status_t srt_shard_owners_replicas(const srt_unit_t *unit, srt_owners_t *owners)
{
	const int nranks = srt_shard_replicas(unit->engine, unit->engine->world);

	SRT_TRY(alloc_owners(unit, nranks, owners));
	for (int r = 0; r < nranks; r++) {
		int64_t first, nelem;

		srt_shard_rows((int64_t)unit->grads.shard_nelem, nranks, r, &first, &nelem);
		add_segment(owners, r,
			    &(srt_coll_segment_t){
				    .full_offset = (size_t)first,
				    .nelem = (size_t)nelem,
			    });
	}
	return SRT_OK;
}

/* Owners of the parts that the ranks of a group keep, by rank of comms.group. */
srt_status_t srt_shard_owners_group(const srt_unit_t *unit, srt_owners_t *owners)
{
	const int n = srt_roles_group(unit, unit->engine->world);

	SRT_TRY(alloc_owners(unit, n, owners));
	for (int r = 0; r < n; r++) {
		size_t first;
		const size_t nelem = srt_shard_part_nelem(unit, n, r, &first);

		add_segment(owners, r,
			    &(srt_coll_segment_t){ .full_offset = first, .nelem = nelem });
	}
	return SRT_OK;
}

void srt_owners_free(srt_owners_t *owners)
{
	free(owners->owner);
	free(owners->segments);
	*owners = (srt_owners_t){ 0 };
}
