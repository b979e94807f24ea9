/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which elements of a parameter each rank held in the recorded run (replay.h).
 *
 * fully_shard cuts rows. FSDP1 concatenates the parameters of a unit and cuts the whole into equal
 * chunks; with use_orig_params each parameter begins at a multiple of 16 bytes in the dtype that it
 * is computed with, and the whole is padded to a multiple of the ranks. DDP and NO_SHARD cut
 * nothing. With tensor parallelism our own shards are those of the rank's cell: its part of a
 * parameter that is cut over the tensor-parallel ranks.
 */
#include "config.h"

#include <string.h>

#include "runtime/engine/engine.h"
#include "tests/golden/replay.h"

#define FLAT_ALIGN_NBYTES 16

bool golden_is_replicated(const golden_t *g)
{
	const char *strategy = golden_text(g->json, "sharding_strategy");

	return !strcmp(g->reference, "ddp") || !strcmp(g->reference, "single") ||
	       (strategy != NULL && !strcmp(strategy, "NO_SHARD"));
}

bool golden_is_ignored(const golden_t *g, const char *param)
{
	return golden_has(json_object_get(g->json, "ignored"), param);
}

int golden_nshards(const golden_t *g)
{
	const json_t *shape = json_object_get(json_object_get(g->json, "mesh"), "shape");

	if (golden_is_replicated(g))
		return 1;
	return golden_is_hybrid(g) ? (int)json_integer_value(json_array_get(shape, 1)) : g->dp_size;
}

int golden_shard_index(const golden_t *g, int rank)
{
	return golden_is_tensor(g) ? golden_data_index(g, rank) : rank % golden_nshards(g);
}

/* Ranks with the same data are consecutive. */
static int count_tensor_ranks(const golden_t *g)
{
	return golden_is_tensor(g) ? g->world_size / g->dp_size : 1;
}

int golden_tensor_index(const golden_t *g, int rank)
{
	return rank % count_tensor_ranks(g);
}

int golden_data_index(const golden_t *g, int rank)
{
	return rank / count_tensor_ranks(g);
}

int golden_cut_dim(const golden_t *g, const char *param)
{
	const char *dot = strrchr(param, '.'), *plan;
	char module[128];

	snprintf(module, sizeof(module), "%.*s", dot != NULL ? (int)(dot - param) : 0, param);
	plan = golden_text(json_object_get(g->json, "tp_plan"), module);
	if (plan == NULL)
		return -1;
	if (!strcmp(plan, "colwise"))
		return 0;
	return !strcmp(dot, ".weight") ? 1 : -1; /* rowwise */
}

int64_t golden_cell(const golden_t *g, const char *param, int rank, int64_t *shape)
{
	const json_t *sizes = json_object_get(golden_param(g, param), "shape");
	const int cut = golden_cut_dim(g, param);
	int64_t first = 0;

	for (size_t d = 0; d < SRT_MAX_DIMS; d++)
		shape[d] = json_integer_value(json_array_get(sizes, d));
	if (cut >= 0)
		srt_shard_rows(shape[cut], count_tensor_ranks(g), golden_tensor_index(g, rank),
			       &first, &shape[cut]);
	return cut == 0 ? first : 0;
}

srt_flat_t golden_flat(const golden_t *g)
{
	if (strcmp(g->reference, "fsdp1") != 0)
		return SRT_FLAT_NO;
	return json_is_false(json_object_get(g->json, "use_orig_params")) ? SRT_FLAT_PADDED :
									    SRT_FLAT_VIEWS;
}

bool replay_is_flat_as_recorded(const replay_t *r)
{
	return r->flat != SRT_FLAT_NO && r->flat == golden_flat(r->golden) &&
	       r->strategy != SRT_STRATEGY_DDP && !golden_is_replicated(r->golden);
}

static int64_t count_elements(const json_t *param)
{
	const json_t *shape = json_object_get(param, "shape"), *size;
	int64_t nelem = 1;
	size_t i;

	json_array_foreach(shape, i, size)
	{
		nelem *= json_integer_value(size);
	}
	return nelem;
}

/* The names of the unit's parameters. */
static const json_t *find_unit_of(const golden_t *g, const char *param)
{
	const json_t *unit;
	size_t i;

	json_array_foreach(json_object_get(g->json, "units"), i, unit)
	{
		if (golden_has(json_object_get(unit, "params"), param))
			return json_object_get(unit, "params");
	}
	return NULL;
}

/* Elements to which the parameters of a flat one are aligned. A model that is stored in 16 bits was
 * still one of fp32 when it was wrapped. */
static int64_t find_alignment(const golden_t *g)
{
	const json_t *policy = json_object_get(g->json, "mixed_precision");
	srt_dtype_t dtype = SRT_F32;

	if (golden_flat(g) == SRT_FLAT_PADDED)
		return 1;
	golden_dtype(golden_text(policy, "param_dtype"), &dtype);
	return (int64_t)(FLAT_ALIGN_NBYTES * 8 / srt_dtype_bits(dtype));
}

static int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void find_flat(const golden_t *g, const char *param, int index, int64_t *first, int64_t *n)
{
	const json_t *name;
	int64_t begin = 0, end = 0, total = 0, chunk, from, to;
	size_t i;

	json_array_foreach(find_unit_of(g, param), i, name)
	{
		const json_t *p = golden_param(g, json_string_value(name));

		total = round_up(total, find_alignment(g));
		if (!strcmp(json_string_value(name), param)) {
			begin = total;
			end = total + count_elements(p);
		}
		total += count_elements(p);
	}
	chunk = round_up(total, golden_nshards(g)) / golden_nshards(g);
	from = smaller(index * chunk, end);
	to = smaller((index + 1) * chunk, end);
	*first = from > begin ? from - begin : 0;
	*n = to > begin ? to - begin - *first : 0;
}

void golden_shard(const golden_t *g, const char *param, int rank, int64_t *first, int64_t *n)
{
	const json_t *p = golden_param(g, param);
	const size_t ndim = json_array_size(json_object_get(p, "shape"));
	const int index = golden_shard_index(g, rank);
	int64_t nelem = 1, shape[SRT_MAX_DIMS], rows;

	golden_cell(g, param, rank, shape);
	rows = shape[0];
	for (size_t d = 0; d < ndim; d++)
		nelem *= shape[d];
	*first = 0;
	*n = nelem;
	if (golden_is_replicated(g) || golden_is_ignored(g, param) || rows == 0)
		return;
	if (golden_flat(g) != SRT_FLAT_NO) {
		find_flat(g, param, index, first, n);
		return;
	}
	srt_shard_rows(rows, golden_nshards(g), index, first, n);
	*first *= nelem / rows;
	*n *= nelem / rows;
}
