/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which part of a parameter, or of a flat unit, each rank owns (<shardrt/engine_values.h>); the
 * elements of this rank's part, and the part as a view.
 */
#include <string.h>

#include <shardrt/engine.h>

#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

/* Rows of a cell are a box unless they are of several blocks. */
static void set_box(const srt_param_t *param, int rank, srt_part_t *part)
{
	const srt_engine_t *engine = param->unit->engine;
	const int cell = srt_cell_index(engine, rank);
	int64_t row0;

	srt_cell_shape(param, cell, part->size);
	if (param->is_cut)
		part->offset[param->cut.dim] = srt_cell_offset(param, cell);
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
	part->is_flat = flat || (param->is_cut && param->cut.nblocks > 1);
	part->nelem = srt_shard_range(param, rank, engine->world, &part->first);
	if (flat)
		part->shard_offset = srt_shard_flat_offset(param, rank, engine->world);
	if (!part->is_flat)
		set_box(param, rank, part);
	return SRT_OK;
}

srt_status_t srt_unit_require_flat(const srt_unit_t *unit, const char *call)
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
	srt_flat_sizes_t full;

	SRT_TRY(srt_struct_check(sizes, "srt_flat_sizes_t"));
	SRT_TRY(srt_unit_require_flat(unit, "srt_unit_flat_sizes"));
	if (rank < 0 || rank >= engine->world)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_unit_flat_sizes of '%s': rank is %d, must be 0 to %d",
				unit->name, rank, engine->world - 1);
	if (unit->flat == SRT_FLAT_VIEWS)
		total = chunk * srt_shard_count(engine, engine->world);
	srt_shard_rows(total, srt_shard_count(engine, engine->world), srt_shard_index(engine, rank),
		       &first, &nelem);
	full = (srt_flat_sizes_t){
		.size = sizeof(full),
		.flat_nelem = total,
		.shard_nelem = chunk,
		.padding = chunk - nelem,
	};
	return srt_struct_write(sizes, &full, sizeof(full), "srt_flat_sizes_t");
}

srt_status_t srt_shard_pack(const srt_param_t *param, const void *whole, srt_packed_t *packed)
{
	const srt_engine_t *engine = param->unit->engine;
	const size_t elem = srt_dtype_size(param->dtype);
	const int64_t begin = param->shard.first;
	const int64_t end = begin + param->shard.nelem;
	char *to;

	*packed = (srt_packed_t){ .elements = whole };
	if (begin == end)
		return SRT_OK;
	if (!param->is_cut) {
		packed->elements = (const char *)whole + (size_t)begin * elem;
		return SRT_OK;
	}
	to = srt_calloc((size_t)(end - begin), elem, param->name);
	if (to == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	packed->elements = packed->owned = to;
	for (int64_t at = begin, n, first; at < end; at += n) {
		n = srt_cell_run(param, srt_cell_index(engine, engine->rank), at, &first);
		n = n < end - at ? n : end - at;
		memcpy(to + (size_t)(at - begin) * elem, (const char *)whole + (size_t)first * elem,
		       (size_t)n * elem);
	}
	return SRT_OK;
}

srt_view_t srt_param_shard_view(const srt_param_t *param, int arena)
{
	const srt_engine_t *engine = param->unit->engine;
	const srt_layout_t *layout = &engine->memory.layout;
	const srt_dtype_t dtype = srt_role(param->unit, (srt_role_kind_t)arena, 1).dtype;
	const size_t part = layout->offset[arena][srt_shard_part(param->unit)];

	if (arena >= SRT_ROLE_STATE && srt_optim_in_8_bits(engine->optim))
		return srt_state8_view(param, arena - SRT_ROLE_STATE);
	return srt_view(engine->storage.arena[arena],
			part + param->shard.offset * srt_dtype_size(dtype), dtype);
}

srt_view_t srt_param_device_view(const srt_param_t *param, int arena)
{
	const srt_engine_t *engine = param->unit->engine;
	srt_view_t view = srt_param_shard_view(param, arena);

	if (engine->storage.arena_alias[arena] != NULL)
		view.buffer = engine->storage.arena_alias[arena];
	return view;
}
