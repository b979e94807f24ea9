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
	return engine->comms.tensor_dim >= 0 ? engine->comms.mesh->shape[engine->comms.tensor_dim] :
					       1;
}

int srt_cell_index(const srt_engine_t *engine, int rank)
{
	return engine->comms.tensor_dim >= 0 ?
		       srt_mesh_coordinate_of(engine->comms.mesh, rank, engine->comms.tensor_dim) :
		       0;
}

void srt_cell_describe(srt_param_t *param)
{
	param->cut.nblocks = param->is_cut && param->cut.nblocks > 1 ? param->cut.nblocks : 1;
	param->cut.outer = param->cut.nblocks;
	param->cut.extent = param->whole_nelem;
	param->cut.inner = 1;
	if (!param->is_cut)
		return;
	param->cut.extent = param->shape[param->cut.dim] / param->cut.nblocks;
	for (int i = 0; i < param->cut.dim; i++)
		param->cut.outer *= param->shape[i];
	for (int i = param->cut.dim + 1; i < param->ndim; i++)
		param->cut.inner *= param->shape[i];
}

/* The part of extent that a cell has: consecutive parts of equal size, the last ones shorter. */
static int64_t chunk_of(const srt_param_t *param, int index, int64_t *offset)
{
	const int ncells = param->is_cut ? srt_cell_count(param->unit->engine) : 1;
	const int nparts = param->is_cut && param->cut.nparts > 1 ? param->cut.nparts : ncells;
	const int each = nparts / ncells, first = param->is_cut ? index * each : 0;
	int64_t last, size;

	srt_shard_rows(param->cut.extent, nparts, first, offset, &size);
	srt_shard_rows(param->cut.extent, nparts, first + each - 1, &last, &size);
	return last + size - *offset;
}

void srt_cell_shape(const srt_param_t *param, int index, int64_t *shape)
{
	int64_t offset;

	memcpy(shape, param->shape, (size_t)param->ndim * sizeof(*shape));
	if (param->is_cut)
		shape[param->cut.dim] = chunk_of(param, index, &offset) * param->cut.nblocks;
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

	return param->cut.outer * chunk_of(param, index, &offset) * param->cut.inner;
}

int64_t srt_cell_run(const srt_param_t *param, int index, int64_t at, int64_t *first)
{
	int64_t offset;
	const int64_t run = chunk_of(param, index, &offset) * param->cut.inner;

	*first = 0;
	if (run == 0)
		return 0;
	*first = (at / run * param->cut.extent + offset) * param->cut.inner + at % run;
	return run - at % run;
}
