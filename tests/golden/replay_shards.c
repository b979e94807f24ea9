/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays the tables of shards (replay.h): rows over ranks, rows of the cells of tensor
 * parallelism, flat parameters, chunks of sharded tensors.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"
#include "tests/golden/replay.h"
#include "tests/harness/options.h"

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
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);

	*p = (planned_t){ 0 };
	SRT_TRY(srt_mesh_create(NULL, ndim, shape, names, &p->mesh));
	options.mesh = p->mesh;
	SRT_TRY(srt_engine_create(context, &options, &p->engine));
	return srt_unit_create(p->engine, NULL, "root", NULL, &p->root);
}

/* ---- rows of cells ---------------------------------------------------------------------- */

enum { CELL_COLUMNS = 3 }; /* not recorded: rows are cut */

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
		      part.size[0] == size && part.size[1] == CELL_COLUMNS && part.offset[1] == 0 &&
			      part.nelem == CELL_COLUMNS * size && !part.is_flat &&
			      (json_is_null(first) || part.offset[0] == json_integer_value(first)),
		      "%s, rank %d: rows %lld+%lld, recorded %lld+%lld", srt_param_name(param),
		      rank, (long long)part.offset[0], (long long)part.size[0],
		      (long long)json_integer_value(first), (long long)size);
	return SRT_OK;
}

static srt_status_t run_cells(golden_t *g, srt_context_t *context, verdict_t *v)
{
	const srt_param_options_t cut = { PARAM_BASE, .placement = { .mesh_dim = "tp" } };
	srt_status_t status = SRT_OK;
	const json_t *row, *cell;
	size_t i, k;

	json_array_foreach(json_object_get(g->json, "rows"), i, row)
	{
		const int shape[] = { (int)golden_number(row, "dp", 0),
				      (int)golden_number(row, "tp", 0) };
		const int64_t sizes[] = { (int64_t)golden_number(row, "n", -1), CELL_COLUMNS };
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
	srt_flat_sizes_t sizes = SRT_FLAT_SIZES_INIT;
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
		SRT_TRY(compare_flat_param(v, srt_engine_param_at(p->engine, i), rank, param));
	}
	return SRT_OK;
}

/* The unit of a row, declared and compared on all ranks. */
static srt_status_t run_flat_unit(verdict_t *v, const planned_t *p, const json_t *row)
{
	const srt_unit_options_t options = { .size = sizeof(options), .flat = SRT_FLAT_VIEWS };
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

/* The chunks of a tensor, one for each rank, with their locations. */
typedef struct chunks {
	size_t n;
	srt_shard_location_t *locations;
	srt_shard_t *shards;
} chunks_t;

static srt_status_t chunks_create(chunks_t *c, size_t n)
{
	*c = (chunks_t){ .n = n,
			 .locations = srt_calloc(n + 1, sizeof(*c->locations), "locations"),
			 .shards = srt_calloc(n + 1, sizeof(*c->shards), "chunks") };
	return c->locations != NULL && c->shards != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

static void chunks_free(chunks_t *c)
{
	free(c->locations);
	free(c->shards);
}

static srt_status_t chunks_cut(chunks_t *c, int dim, int ndim, const int64_t *shape)
{
	const srt_sharding_t sharding = {
		.size = sizeof(sharding), .dim = dim, .locations = c->locations, .nlocations = c->n
	};

	return srt_sharding_resolve(&sharding, (int)c->n, ndim, shape, c->shards, c->n);
}

/* Each location is a rank, the last one first: the chunks are in the order of the locations. */
static srt_status_t compare_chunks(verdict_t *v, const json_t *row, chunks_t *c)
{
	const json_t *offsets = json_object_get(row, "offsets");
	const json_t *sizes = json_object_get(row, "sizes");
	const int64_t n = (int64_t)golden_number(row, "n", -1);

	for (size_t r = 0; r < c->n; r++)
		c->locations[r] = (srt_shard_location_t){ .rank = (int)(c->n - 1 - r) };
	SRT_TRY(chunks_cut(c, -1, 1, &n));
	for (size_t r = 0; r < c->n; r++) {
		const srt_shard_t *chunk = &c->shards[r];

		verdict_exact(v,
			      chunk->offset[0] == json_integer_value(json_array_get(offsets, r)) &&
				      chunk->size[0] ==
					      json_integer_value(json_array_get(sizes, r)) &&
				      chunk->location.rank == c->locations[r].rank,
			      "%lld in %zu chunks: chunk %zu has %lld+%lld", (long long)n, c->n, r,
			      (long long)chunk->offset[0], (long long)chunk->size[0]);
	}
	return SRT_OK;
}

static int read_shape(const json_t *row, int64_t *shape)
{
	const json_t *sizes = json_object_get(row, "shape");

	for (size_t d = 0; d < SRT_MAX_DIMS; d++)
		shape[d] = json_integer_value(json_array_get(sizes, d));
	return (int)json_array_size(sizes);
}

/* A tensor of several dimensions, its chunks on ranks in any order. */
static srt_status_t compare_boxes(verdict_t *v, const json_t *row, chunks_t *c)
{
	const json_t *placements = json_object_get(row, "placements"), *shard;
	const int dim = (int)golden_number(row, "dim", 0);
	int64_t shape[SRT_MAX_DIMS];
	const int ndim = read_shape(row, shape);
	size_t i;

	for (size_t r = 0; r < c->n; r++)
		c->locations[r].rank = (int)json_integer_value(json_array_get(placements, r));
	SRT_TRY(chunks_cut(c, dim, ndim, shape));
	verdict_exact(v, json_array_size(json_object_get(row, "shards")) == c->n, "%zu chunks",
		      c->n);
	json_array_foreach(json_object_get(row, "shards"), i, shard)
	{
		const json_t *offsets = json_object_get(shard, "offsets");
		const json_t *sizes = json_object_get(shard, "sizes");
		bool is_same = i < c->n &&
			       c->shards[i].location.rank == (int)golden_number(shard, "rank", -1);

		for (size_t d = 0; is_same && d < (size_t)ndim; d++)
			is_same = c->shards[i].offset[d] ==
					  json_integer_value(json_array_get(offsets, d)) &&
				  c->shards[i].size[d] ==
					  json_integer_value(json_array_get(sizes, d));
		verdict_exact(v, is_same, "%d dimensions in %zu chunks along %d: chunk %zu", ndim,
			      c->n, dim, i);
	}
	return SRT_OK;
}

/* A dimension that the tensor does not have. One with a name cannot be given here. */
static srt_status_t compare_refused(verdict_t *v, const json_t *row, chunks_t *c)
{
	const json_t *dim = json_object_get(row, "dim");
	int64_t shape[SRT_MAX_DIMS];
	const int ndim = read_shape(row, shape);
	srt_status_t status = SRT_ERR_INVALID_ARGUMENT;

	if (json_is_integer(dim))
		status = chunks_cut(c, (int)json_integer_value(dim), ndim, shape);
	verdict_exact(v, !golden_is_set(row, "ok") && status == SRT_ERR_INVALID_ARGUMENT,
		      "chunks along dimension %d of %d", (int)json_integer_value(dim), ndim);
	return SRT_OK;
}

typedef srt_status_t chunks_fn(verdict_t *v, const json_t *row, chunks_t *c);

/* The rows of an array; without a world they have placements, or one rank. */
static srt_status_t run_chunks(golden_t *g, verdict_t *v, const char *array, chunks_fn *compare)
{
	const json_t *rows = json_object_get(g->json, array), *row;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const json_t *placements = json_object_get(row, "placements");
		const double world = golden_number(row, "world", 1);
		chunks_t c;
		srt_status_t status =
			chunks_create(&c, placements != NULL ? json_array_size(placements) :
							       (size_t)world);

		if (status == SRT_OK)
			status = compare(v, row, &c);
		chunks_free(&c);
		SRT_TRY(status);
	}
	verdict_exact(v, json_array_size(rows) > 0, "%s has no rows", array);
	return SRT_OK;
}

static srt_status_t run_chunk_tables(golden_t *g, verdict_t *v)
{
	SRT_TRY(run_chunks(g, v, "rows", compare_chunks));
	SRT_TRY(run_chunks(g, v, "nd", compare_boxes));
	return run_chunks(g, v, "errors", compare_refused);
}

srt_status_t replay_shards(golden_t *g, srt_context_t *context, verdict_t *v)
{
	if (golden_is_named(g, "shard_table_fsdp2"))
		return run_shards(g, v);
	if (golden_is_named(g, "shard_table_strided_dp_tp"))
		return run_cells(g, context, v);
	if (golden_is_named(g, "fsdp1_flat_shards"))
		return run_flat(g, context, v);
	if (golden_is_named(g, "shard_table_chunk_spec"))
		return run_chunk_tables(g, v);
	return srt_fail(SRT_ERR_UNSUPPORTED, "needs a replay of its table");
}
