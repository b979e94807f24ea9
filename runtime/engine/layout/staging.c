/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layout of the staging buffer: tables of the optimizer, gradient flags, scalars of the sums.
 */
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

static size_t reserve_bytes(size_t *at, size_t nbytes)
{
	size_t offset = *at;

	*at = srt_align_up(offset + nbytes, SRT_TENSOR_ALIGN);
	return offset;
}

static void plan_sum(srt_reproducible_sum_layout_t *layout, size_t *at, int world)
{
	layout->local_max = reserve_bytes(at, sizeof(float));
	layout->local_bins = reserve_bytes(at, 2 * sizeof(double));
	layout->all_max = reserve_bytes(at, (size_t)world * sizeof(float));
	layout->all_bins = reserve_bytes(at, (size_t)world * 2 * sizeof(double));
	layout->max = reserve_bytes(at, sizeof(float));
}

void srt_staging_plan(const srt_engine_t *engine, int world, srt_staging_t *staging)
{
	size_t n = engine->declared.ntrainable;
	srt_optim_layout_t optim;
	size_t at = 0;

	srt_optim_plan_tables(n, engine->optim->ngroups, srt_optim_in_8_bits(engine->optim),
			      &optim);
	staging->optim = reserve_bytes(&at, optim.total);
	staging->state = staging->optim + optim.states;
	staging->params = staging->optim + optim.params;
	staging->flags = reserve_bytes(&at, n * SRT_FLAG_NELEM * sizeof(float));
	staging->used = reserve_bytes(&at, n * SRT_FLAG_NELEM * sizeof(float));
	staging->norm = reserve_bytes(&at, sizeof(float));
	staging->found = reserve_bytes(&at, sizeof(float));
	staging->all_found = reserve_bytes(&at, (size_t)world * sizeof(float));
	staging->scale =
		reserve_bytes(&at, srt_roles_offload(engine) ? sizeof(srt_k_step_state_t) : 0);
	plan_sum(&staging->norm_sum, &at, srt_shard_count(engine, world) * srt_cell_count(engine));
	plan_sum(&staging->user_sum, &at, world);
	staging->total = at;
}
