/* SPDX-License-Identifier: BSD-3-Clause */
/* Which part of a parameter, or of a flat unit, each rank owns (<shardrt/engine_shard.h>). */
#include <shardrt/engine_shard.h>

#include "runtime/engine/layout/shard.h"

/* Rows of a cell are a box unless they are of several blocks. */
static void set_box(const srt_param_t *param, int rank, srt_part_t *part)
{
	const srt_engine_t *engine = param->unit->engine;
	const int cell = srt_cell_index(engine, rank);
	int64_t row0;

	srt_cell_shape(param, cell, part->size);
	if (param->is_cut)
		part->offset[param->cut_dim] = srt_cell_offset(param, cell);
	srt_shard_rows(part->size[0], srt_shard_count(engine, engine->world),
		       srt_shard_index(engine, rank), &row0, &part->size[0]);
	part->offset[0] += row0;
}

srt_status_t srt_param_part(const srt_param_t *param, int rank, srt_part_t *part)
{
	SRT_NOT_NULL(param);
	SRT_NOT_NULL(part);

	const srt_engine_t *engine = param->unit->engine;
	const bool flat = param->unit->flat != SRT_FLAT_NO;

	if (rank < 0 || rank >= engine->world)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_param_part of '%s': rank is %d, must be 0 to %d", param->name,
				rank, engine->world - 1);
	*part = (srt_part_t){ .ndim = param->ndim };
	part->is_flat = flat || (param->is_cut && param->nblocks > 1);
	part->nelem = srt_shard_range(param, rank, engine->world, &part->first);
	if (flat)
		part->shard_offset = srt_shard_flat_offset(param, rank, engine->world);
	if (!part->is_flat)
		set_box(param, rank, part);
	return SRT_OK;
}

static srt_status_t require_flat(const srt_unit_t *unit, const char *call)
{
	if (unit->flat == SRT_FLAT_NO)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: unit '%s' is not flat: set srt_unit_options_t.flat", call,
				unit->name);
	return SRT_OK;
}

srt_status_t srt_unit_flat_sizes(const srt_unit_t *unit, int rank, srt_flat_sizes_t *sizes)
{
	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(sizes);

	const srt_engine_t *engine = unit->engine;
	const int64_t chunk = srt_shard_flat_chunk(unit, engine->world);
	int64_t first, nelem, total = (int64_t)unit->flat_nelem;

	SRT_TRY(require_flat(unit, "srt_unit_flat_sizes"));
	if (rank < 0 || rank >= engine->world)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_unit_flat_sizes of '%s': rank is %d, must be 0 to %d",
				unit->name, rank, engine->world - 1);
	if (unit->flat == SRT_FLAT_VIEWS)
		total = chunk * srt_shard_count(engine, engine->world);
	srt_shard_rows(total, srt_shard_count(engine, engine->world), srt_shard_index(engine, rank),
		       &first, &nelem);
	*sizes = (srt_flat_sizes_t){
		.flat_nelem = total,
		.shard_nelem = chunk,
		.padding = chunk - nelem,
	};
	return SRT_OK;
}

srt_view_t srt_unit_local(srt_unit_t *unit, srt_param_what_t what)
{
	if (srt_check_not_null(unit, "srt_unit_local", "unit") != SRT_OK ||
	    require_flat(unit, "srt_unit_local") != SRT_OK)
		return (srt_view_t){ 0 };
	if (srt_shard_is_contiguous(unit)) /* the first parameter begins where the shard does */
		return srt_param_local(unit->params[0], what);
	srt_fail(SRT_ERR_INVALID_ARGUMENT,
		 "srt_unit_local: unit '%s' has %s: use srt_param_local() for each of them",
		 unit->name,
		 unit->nparams == 0 ? "no parameters" :
				      "frozen and trainable parameters, or parameters that are cut "
				      "over a mesh and others, whose shards are apart");
	return (srt_view_t){ 0 };
}
