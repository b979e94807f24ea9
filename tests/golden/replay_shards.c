/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays the tables of shards (replay.h): rows over ranks, and rows of the cells of tensor
 * parallelism.
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

srt_status_t replay_shards(golden_t *g, srt_context_t *context, verdict_t *v)
{
	if (!strcmp(g->name, "shard_table_fsdp2"))
		return run_shards(g, v);
	if (!strcmp(g->name, "shard_table_strided_dp_tp"))
		return run_cells(g, context, v);
	return srt_fail(SRT_ERR_UNSUPPORTED, "needs a replay of its table");
}
