/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cells: what a rank computes with of a parameter that is cut over the tensor-parallel dimension of
 * the mesh (srt_placement_t). A cell is then sharded as a whole tensor is.
 *
 * The whole tensor is seen as (outer, extent, inner), and extent is cut in chunks of ceil(extent /
 * ranks). outer has the dimensions before the one that is cut, and the blocks of it; inner those
 * after it. A cell is (outer, chunk, inner), so it is a run of chunk * inner elements of the whole
 * tensor for each outer index. A parameter that is not cut is one run.
 */
#include <string.h>

#include "runtime/engine/declare/declare.h"

int srt_cell_count(const srt_engine_t *engine)
{
	return engine->tensor_dim >= 0 ? engine->mesh->shape[engine->tensor_dim] : 1;
}

int srt_cell_index(const srt_engine_t *engine, int rank)
{
	return engine->tensor_dim >= 0 ?
		       srt_mesh_coordinate_of(engine->mesh, rank, engine->tensor_dim) :
		       0;
}

void srt_cell_describe(srt_param_t *param)
{
	param->nblocks = param->is_cut && param->nblocks > 1 ? param->nblocks : 1;
	param->outer = param->nblocks;
	param->extent = param->whole_nelem;
	param->inner = 1;
	if (!param->is_cut)
		return;
	param->extent = param->shape[param->cut_dim] / param->nblocks;
	for (int i = 0; i < param->cut_dim; i++)
		param->outer *= param->shape[i];
	for (int i = param->cut_dim + 1; i < param->ndim; i++)
		param->inner *= param->shape[i];
}

/* The part of extent that a cell has. */
static int64_t chunk_of(const srt_param_t *param, int index, int64_t *offset)
{
	int64_t size;

	srt_shard_rows(param->extent, param->is_cut ? srt_cell_count(param->unit->engine) : 1,
		       param->is_cut ? index : 0, offset, &size);
	return size;
}

void srt_cell_shape(const srt_param_t *param, int index, int64_t *shape)
{
	int64_t offset;

	memcpy(shape, param->shape, (size_t)param->ndim * sizeof(*shape));
	if (param->is_cut)
		shape[param->cut_dim] = chunk_of(param, index, &offset) * param->nblocks;
}

int64_t srt_cell_offset(const srt_param_t *param, int index)
{
	int64_t offset;

	chunk_of(param, index, &offset);
	return offset;
}

int64_t srt_cell_nelem(const srt_param_t *param, int index)
{
	int64_t offset;

	return param->outer * chunk_of(param, index, &offset) * param->inner;
}

int64_t srt_cell_run(const srt_param_t *param, int index, int64_t at, int64_t *first)
{
	int64_t offset;
	const int64_t run = chunk_of(param, index, &offset) * param->inner;

	*first = 0;
	if (run == 0)
		return 0;
	*first = (at / run * param->extent + offset) * param->inner + at % run;
	return run - at % run;
}
