/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sharding: which rows of a parameter each rank owns and where its arena has them.
 *
 * The only file that divides by the number of ranks. Dimension 0 of d rows is cut into chunks of
 * ceil(d/W), as PyTorch's fully_shard does; the last ranks may own fewer rows or none (5 rows over
 * 4 ranks: 2, 2, 1, 0). All functions are pure functions of the declaration, a rank and a number of
 * ranks, so every rank can compute the layout of every other rank.
 */
#include <stdlib.h>

#include "runtime/engine/engine.h"

/* Rows [*offset, *offset + *size) of nrows belong to `rank` of nranks. */
void srt_shard_rows(int64_t nrows, int nranks, int rank, int64_t *offset, int64_t *size)
{
	int64_t chunk = nrows / nranks + (nrows % nranks != 0);
	/* Compare by division: chunk * rank may pass INT64_MAX for ranks without rows. */
	int64_t first = chunk > 0 && rank > nrows / chunk ? nrows : chunk * rank;

	*offset = first;
	*size = nrows - first < chunk ? nrows - first : chunk;
}

/* Number of ranks that parameters are cut over: 1 if every rank has everything. */
int srt_shard_count(const srt_engine_t *engine, int world)
{
	return engine->options.strategy == SRT_STRATEGY_ZERO3 ? world : 1;
}

/* Number of rows of a parameter that a rank owns; *row0 is the first. */
int64_t srt_shard_local_rows(const srt_engine_t *engine, const srt_param_t *param, int rank,
			     int world, int64_t *row0)
{
	int nshards = srt_shard_count(engine, world);
	int64_t nrows;

	srt_shard_rows(param->shape[0], nshards, nshards == 1 ? 0 : rank, row0, &nrows);
	return nrows;
}

static size_t layout_params(const srt_engine_t *engine, int rank, int world, bool frozen, size_t at,
			    size_t *offsets)
{
	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u];

		for (size_t i = 0; i < unit->nparams; i++) {
			const srt_param_t *param = unit->params[i];
			int64_t row0;

			if (param->frozen != frozen)
				continue;
			if (offsets != NULL)
				offsets[param->index] = at;
			at += (size_t)srt_shard_local_rows(engine, param, rank, world, &row0) *
			      param->row_nbytes;
			at = srt_align_up(at, SRT_TENSOR_ALIGN);
		}
	}
	return at;
}

/*
 * Lays out the arena of a rank: the trainable parameters of all units, then the frozen ones, unit
 * by unit in order of declaration.
 * offsets: byte offset by parameter index, or NULL. trainable, total: bytes. No sum overflows:
 * srt_param_create() checked the sum over all unsharded parameters with their padding.
 */
void srt_shard_layout(const srt_engine_t *engine, int rank, int world, size_t *offsets,
		      size_t *trainable, size_t *total)
{
	*trainable = layout_params(engine, rank, world, false, 0, offsets);
	*total = layout_params(engine, rank, world, true, *trainable, offsets);
}

static srt_status_t alloc_owners(const srt_unit_t *unit, srt_owners_t *owners)
{
	size_t world = (size_t)unit->engine->world;

	owners->owner = srt_calloc(world, sizeof(*owners->owner), "owners of a collective");
	owners->segments = srt_calloc(world * unit->nparams, sizeof(*owners->segments),
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
 * Owners of a unit whose parameters are sharded. full_offset counts from the unit's slot,
 * shard_offset from the start of the owner's arena.
 */
srt_status_t srt_shard_owners(const srt_unit_t *unit, bool trainable_only, srt_owners_t *owners)
{
	const srt_engine_t *engine = unit->engine;
	size_t *offsets = srt_calloc(engine->nparams, sizeof(*offsets), "shard offsets");
	size_t trainable, total;
	srt_status_t status;

	if (offsets == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = alloc_owners(unit, owners);
	for (int r = 0; status == SRT_OK && r < engine->world; r++) {
		srt_shard_layout(engine, r, engine->world, offsets, &trainable, &total);
		for (size_t i = 0; i < unit->nparams; i++) {
			const srt_param_t *param = unit->params[i];
			size_t elem = srt_dtype_bits(param->dtype) / 8;
			int64_t row0;
			int64_t nrows =
				srt_shard_local_rows(engine, param, r, engine->world, &row0);

			if (trainable_only && param->frozen)
				continue;
			add_segment(owners, r,
				    &(srt_coll_segment_t){
					    .full_offset = param->unsharded_offset / elem +
							   (size_t)(row0 * param->row_nelem),
					    .shard_offset = offsets[param->index] / elem,
					    .nelem = (size_t)(nrows * param->row_nelem),
				    });
		}
	}
	free(offsets);
	return status;
}

/*
 * Owners for a sum in place over unsharded gradients. The owner of an element is the rank that sums
 * it, so each tensor is cut evenly by elements. Offsets count from the unit's unsharded gradients.
 */
srt_status_t srt_shard_owners_in_place(const srt_unit_t *unit, srt_owners_t *owners)
{
	int world = unit->engine->world;

	SRT_TRY(alloc_owners(unit, owners));
	for (int r = 0; r < world; r++) {
		for (size_t i = 0; i < unit->nparams; i++) {
			const srt_param_t *param = unit->params[i];
			size_t elem = srt_dtype_bits(param->dtype) / 8;
			int64_t first, nelem;

			if (param->frozen)
				continue;
			srt_shard_rows(param->nelem, world, r, &first, &nelem);
			add_segment(owners, r,
				    &(srt_coll_segment_t){
					    .full_offset =
						    param->unsharded_offset / elem + (size_t)first,
					    .nelem = (size_t)nelem,
				    });
		}
	}
	return SRT_OK;
}

void srt_owners_free(srt_owners_t *owners)
{
	free(owners->owner);
	free(owners->segments);
	*owners = (srt_owners_t){ 0 };
}
