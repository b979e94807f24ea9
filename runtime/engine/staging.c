/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layout of the staging buffer: tables of the optimizer, gradient flags, scalars of the sums.
 */
#include "runtime/engine/engine.h"

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
	size_t n = engine->ntrainable;
	size_t at = 0;

	staging->state = reserve_bytes(&at, sizeof(srt_step_state_t));
	staging->params = reserve_bytes(&at, n * sizeof(srt_param_state_t));
	staging->segments = reserve_bytes(&at, n * sizeof(srt_optim_segment_t));
	staging->groups = reserve_bytes(&at, n * sizeof(srt_optim_group_t));
	staging->flags = reserve_bytes(&at, n * SRT_FLAG_NELEM * sizeof(float));
	staging->used = reserve_bytes(&at, n * SRT_FLAG_NELEM * sizeof(float));
	staging->norm = reserve_bytes(&at, sizeof(float));
	plan_sum(&staging->norm_sum, &at, world);
	plan_sum(&staging->user_sum, &at, world);
	staging->total = at;
}
