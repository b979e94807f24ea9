/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays the tables of shards (replay.h): rows over ranks, rows of the cells of tensor
 * parallelism, flat parameters, chunks of sharded tensors.
 */
#include "config.h"

#include <string.h>

#include "runtime/engine/shard.h"
#include "tests/golden/replay.h"

/* ---- rows ------------------------------------------------------------------------------- */

static srt_status_t run_shards(golden_t *g, verdict_t *v)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(g->json, "rows"), i, row)
	{
		int64_t n = (int64_t)golden_number(row, "n", -1);
		int world = (int)golden_number(row, "world", 0);
		int64_t padded = (int64_t)golden_number(row, "padded_n", -1);

		for (int r = 0; r < world; r++) {
			int64_t offset, size;

			srt_shard_rows(n, world, r, &offset, &size);
			verdict_exact(v,
				      offset == json_integer_value(
							json_array_get(json_object_get(row,
										       "offsets"),
								       (size_t)r)) &&
					      size == json_integer_value(json_array_get(
							      json_object_get(row, "sizes"),
							      (size_t)r)),
				      "%lld rows on %d ranks: rank %d has %lld+%lld", (long long)n,
				      world, r, (long long)offset, (long long)size);
			/* nothing of ours is padded, but the first shard is what is padded to */
			verdict_exact(v, r > 0 || size * world == padded,
				      "%lld rows on %d ranks: %lld padded", (long long)n, world,
				      (long long)padded);
		}
	}
	return SRT_OK;
}

/* ---- engines to plan with --------------------------------------------------------------- */

/* An engine on a mesh to plan with, and its root. */
typedef struct planned {
	srt_mesh_t *mesh;
	srt_engine_t *engine;
	srt_unit_t *root;
} planned_t;

static void planned_free(planned_t *p)
{
	srt_engine_destroy(p->engine);
	srt_mesh_destroy(p->mesh);
}

static srt_status_t planned_create(planned_t *p, srt_context_t *context, int ndim, const int *shape)
{
	static const char *const names[] = { "dp", "tp" };
	srt_engine_options_t options = { .strategy = SRT_STRATEGY_ZERO3 };

	*p = (planned_t){ 0 };
	SRT_TRY(srt_mesh_create(NULL, ndim, shape, names, &p->mesh));
	options.mesh = p->mesh;
	SRT_TRY(srt_engine_create(context, &options, &p->engine));
	return srt_unit_create(p->engine, NULL, "root", NULL, &p->root);
}

/* ---- rows of cells ---------------------------------------------------------------------- */

/* [coordinate in dp, in tp, first row or null, rows] */
static srt_status_t compare_cell(verdict_t *v, const srt_param_t *param, int tp, const json_t *cell)
{
	const int rank = (int)json_integer_value(json_array_get(cell, 0)) * tp +
			 (int)json_integer_value(json_array_get(cell, 1));
	const json_t *first = json_array_get(cell, 2);
	const int64_t size = json_integer_value(json_array_get(cell, 3));
	srt_part_t part;

	SRT_TRY(srt_param_part(param, rank, &part));
	verdict_exact(v,
		      part.size[0] == size && part.size[1] == 3 && part.offset[1] == 0 &&
			      part.nelem == 3 * size && !part.is_flat &&
			      (json_is_null(first) || part.offset[0] == json_integer_value(first)),
		      "%s, rank %d: rows %lld+%lld, recorded %lld+%lld", srt_param_name(param),
		      rank, (long long)part.offset[0], (long long)part.size[0],
		      (long long)json_integer_value(first), (long long)size);
	return SRT_OK;
}

static srt_status_t run_cells(golden_t *g, srt_context_t *context, verdict_t *v)
{
	const srt_param_options_t cut = { .placement = { .mesh_dim = "tp" } };
	srt_status_t status = SRT_OK;
	const json_t *row, *cell;
	size_t i, k;

	json_array_foreach(json_object_get(g->json, "rows"), i, row)
	{
		const int shape[] = { (int)golden_number(row, "dp", 0),
				      (int)golden_number(row, "tp", 0) };
		const int64_t sizes[] = { (int64_t)golden_number(row, "n", -1), 3 };
		srt_param_t *param;
		planned_t p;
		char name[64];

		snprintf(name, sizeof(name), "%lld rows", (long long)sizes[0]);
		status = planned_create(&p, context, 2, shape);
		if (status == SRT_OK)
			status = srt_param_create(p.root, name, SRT_F32, 2, sizes, &cut, &param);
		json_array_foreach(json_object_get(row, "cells"), k, cell)
		{
			if (status == SRT_OK)
				status = compare_cell(v, param, shape[1], cell);
		}
		planned_free(&p);
		if (status != SRT_OK)
			break;
	}
	return status;
}

/* ---- flat parameters -------------------------------------------------------------------- */

/* A field of a row, -1 for null. */
static int64_t number_or_null(const json_t *row, const char *field)
{
	const json_t *value = json_object_get(row, field);

	return json_is_null(value) ? -1 : json_integer_value(value);
}

static srt_status_t compare_flat_param(verdict_t *v, srt_param_t *param, int rank,
				       const json_t *want)
{
	const char *name = srt_param_name(param);
	srt_part_t part;

	SRT_TRY(srt_param_part(param, rank, &part));
	verdict_exact(v, part.is_flat && srt_param_nelem(param) == number_or_null(want, "numel"),
		      "%s: %lld elements", name, (long long)srt_param_nelem(param));
	verdict_exact(v, (part.nelem > 0) == golden_is_set(want, "in_shard"),
		      "%s: rank %d has %lld elements", name, rank, (long long)part.nelem);
	if (part.nelem == 0)
		return SRT_OK;
	verdict_exact(v,
		      part.shard_offset == number_or_null(want, "offset_in_shard") &&
			      part.nelem == number_or_null(want, "numel_in_shard") &&
			      part.first == number_or_null(want, "intra_param_start") &&
			      part.first + part.nelem - 1 ==
				      number_or_null(want, "intra_param_end"),
		      "%s: rank %d has %lld+%lld at %lld, recorded %lld+%lld at %lld", name, rank,
		      (long long)part.first, (long long)part.nelem, (long long)part.shard_offset,
		      (long long)number_or_null(want, "intra_param_start"),
		      (long long)number_or_null(want, "numel_in_shard"),
		      (long long)number_or_null(want, "offset_in_shard"));
	return SRT_OK;
}

static srt_status_t compare_flat_rank(verdict_t *v, const planned_t *p, const srt_unit_t *unit,
				      int rank, const json_t *row, const json_t *want)
{
	srt_flat_sizes_t sizes;
	const json_t *param;
	size_t i;

	SRT_TRY(srt_unit_flat_sizes(unit, rank, &sizes));
	verdict_exact(v,
		      sizes.flat_nelem == number_or_null(row, "flat_numel") &&
			      sizes.shard_nelem == number_or_null(want, "shard_numel") &&
			      sizes.padding == number_or_null(want, "numel_padded"),
		      "%s, unit '%s', rank %d: %lld elements, shard %lld, padding %lld",
		      golden_text(row, "model"), golden_text(row, "unit"), rank,
		      (long long)sizes.flat_nelem, (long long)sizes.shard_nelem,
		      (long long)sizes.padding);
	json_array_foreach(json_object_get(want, "params"), i, param)
	{
		SRT_TRY(compare_flat_param(v, srt_engine_param(p->engine, i), rank, param));
	}
	return SRT_OK;
}

/* The unit of a row, declared and compared on all ranks. */
static srt_status_t run_flat_unit(verdict_t *v, const planned_t *p, const json_t *row)
{
	const srt_unit_options_t options = { .flat = SRT_FLAT_VIEWS };
	const json_t *ranks = json_object_get(row, "ranks"), *param, *rank;
	srt_unit_t *unit;
	size_t i;

	SRT_TRY(srt_unit_create(p->engine, p->root, "flat", &options, &unit));
	json_array_foreach(json_object_get(json_array_get(ranks, 0), "params"), i, param)
	{
		const json_t *shape = json_object_get(param, "shape");
		int64_t sizes[SRT_MAX_DIMS] = { 0 };
		srt_param_t *made;

		for (size_t d = 0; d < json_array_size(shape) && d < SRT_MAX_DIMS; d++)
			sizes[d] = json_integer_value(json_array_get(shape, d));
		SRT_TRY(srt_param_create(unit, golden_text(param, "param"), SRT_F32,
					 (int)json_array_size(shape), sizes, NULL, &made));
	}
	json_array_foreach(ranks, i, rank)
	{
		SRT_TRY(compare_flat_rank(v, p, unit, (int)i, row, rank));
	}
	return SRT_OK;
}

static srt_status_t run_flat(golden_t *g, srt_context_t *context, verdict_t *v)
{
	const int world = (int)golden_number(g->json, "world_size", 0);
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(g->json, "rows"), i, row)
	{
		planned_t p;
		srt_status_t status = planned_create(&p, context, 1, &world);

		if (status == SRT_OK)
			status = run_flat_unit(v, &p, row);
		planned_free(&p);
		SRT_TRY(status);
	}
	return SRT_OK;
}

/* ---- chunks of sharded tensors ----------------------------------------------------------- */

/* Each place is a rank, the last one first: the chunks are in the order of the places. */
static srt_status_t run_chunks(golden_t *g, verdict_t *v)
{
	enum { MAX_WORLD = 128 };
	srt_shard_place_t places[MAX_WORLD];
	srt_shard_t shards[MAX_WORLD];
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(g->json, "rows"), i, row)
	{
		const int64_t n = (int64_t)golden_number(row, "n", -1);
		const int world = (int)golden_number(row, "world", 0);
		const json_t *offsets = json_object_get(row, "offsets");
		const json_t *sizes = json_object_get(row, "sizes");
		const srt_sharding_t sharding = { .dim = -1,
						  .places = places,
						  .nplaces = (size_t)world };

		if (world < 1 || world > MAX_WORLD)
			return srt_fail(SRT_ERR_FORMAT, "row %zu is for %d ranks", i, world);
		for (int r = 0; r < world; r++)
			places[r] = (srt_shard_place_t){ .rank = world - 1 - r };
		SRT_TRY(srt_sharding_resolve(&sharding, world, 1, &n, shards, (size_t)world));
		for (int r = 0; r < world; r++)
			verdict_exact(v,
				      shards[r].offset[0] ==
						      json_integer_value(
							      json_array_get(offsets, (size_t)r)) &&
					      shards[r].size[0] ==
						      json_integer_value(
							      json_array_get(sizes, (size_t)r)) &&
					      shards[r].place.rank == world - 1 - r,
				      "%lld in %d chunks: chunk %d has %lld+%lld", (long long)n,
				      world, r, (long long)shards[r].offset[0],
				      (long long)shards[r].size[0]);
	}
	return SRT_OK;
}

srt_status_t replay_shards(golden_t *g, srt_context_t *context, verdict_t *v)
{
	if (!strcmp(g->name, "shard_table_fsdp2"))
		return run_shards(g, v);
	if (!strcmp(g->name, "shard_table_strided_dp_tp"))
		return run_cells(g, context, v);
	if (!strncmp(g->name, "fsdp1_flat_shards_", strlen("fsdp1_flat_shards_")))
		return run_flat(g, context, v);
	if (!strcmp(g->name, "shard_table_chunk_spec"))
		return run_chunks(g, v);
	return srt_fail(SRT_ERR_UNSUPPORTED, "needs a replay of its table");
}
