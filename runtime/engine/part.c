/* SPDX-License-Identifier: BSD-3-Clause */
/* Which part of a parameter each rank owns, for programs (<shardrt/engine_shard.h>). */
#include <shardrt/engine_shard.h>

#include "runtime/engine/shard.h"

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

	if (rank < 0 || rank >= engine->world)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_param_part of '%s': rank is %d, must be 0 to %d", param->name,
				rank, engine->world - 1);
	*part = (srt_part_t){ .ndim = param->ndim, .is_flat = param->is_cut && param->nblocks > 1 };
	part->nelem = srt_shard_range(param, rank, engine->world, &part->first);
	if (!part->is_flat)
		set_box(param, rank, part);
	return SRT_OK;
}
