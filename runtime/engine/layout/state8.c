/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Optimizer states in 8 bits: which parameters have them, and where a rank's codes and absmax are.
 * Pure functions of the declaration, a rank and a number of ranks, as in shard.c.
 *
 * Blocks are cut from where a row of the whole tensor begins, and a shard has whole rows, so blocks
 * are the same for every number of ranks. A flat unit may cut a row: then it is refused. Where
 * tensor parallelism cuts the rows themselves, the states stay fp32.
 */
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"

int64_t srt_state8_row(const srt_param_t *param)
{
	int64_t row = 1;

	for (int i = 1; i < param->ndim; i++)
		row *= param->shape[i];
	return row;
}

bool srt_state8_is_coded(const srt_param_t *param)
{
	return srt_optim_in_8_bits(param->unit->engine->optim) && !param->frozen &&
	       !(param->is_cut && param->cut.dim > 0) &&
	       srt_coded_fits(param->whole_nelem, srt_state8_row(param));
}

void srt_state8_layout(const srt_engine_t *engine, int rank, int world, srt_state8_place_t *places,
		       size_t nbytes[3])
{
	size_t state = 0, absmax = 0;

	if (!srt_optim_in_8_bits(engine->optim))
		return;
	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *param = engine->params[i];
		const bool is_coded = srt_state8_is_coded(param);
		int64_t first, nelem;

		if (param->frozen)
			continue;
		nelem = srt_shard_range(param, rank, world, &first);
		if (places != NULL)
			places[i] = (srt_state8_place_t){ state, absmax };
		state += (size_t)nelem * (is_coded ? 1 : sizeof(float));
		state = srt_align_up(state, SRT_TENSOR_ALIGN);
		if (is_coded)
			absmax += (size_t)srt_coded_blocks(nelem, srt_state8_row(param)) * 2 *
				  sizeof(float);
	}
	nbytes[0] = nbytes[1] = state;
	nbytes[2] = srt_align_up(absmax, SRT_TENSOR_ALIGN);
}

srt_view_t srt_state8_view(const srt_param_t *param, int k)
{
	const srt_engine_t *engine = param->unit->engine;
	const bool is_coded = srt_state8_is_coded(param);
	srt_buffer_t *arena = engine->storage.arena[SRT_ROLE_STATE + k];

	if (k == 2)
		return is_coded ? srt_view(arena, param->shard.absmax, SRT_F32) : (srt_view_t){ 0 };
	return srt_view(arena, param->shard.state8, is_coded ? SRT_U8 : SRT_F32);
}

size_t srt_state8_nbytes(const srt_param_t *param, int k)
{
	const int64_t nelem = param->shard.nelem;

	if (!srt_state8_is_coded(param))
		return k == 2 ? 0 : (size_t)nelem * sizeof(float);
	return k < 2 ? (size_t)nelem :
		       (size_t)srt_coded_blocks(nelem, srt_state8_row(param)) * 2 * sizeof(float);
}

static srt_status_t check_rows(const srt_param_t *param, int world)
{
	const int64_t row = srt_state8_row(param);

	for (int r = 0; r < world; r++) {
		int64_t first;
		const int64_t nelem = srt_shard_range(param, r, world, &first);

		if (nelem > 0 && (first % row != 0 || nelem % row != 0))
			return srt_fail(SRT_ERR_UNSUPPORTED,
					"option state_bits is 8, but the flat unit '%s' cuts a row "
					"of parameter '%s' on rank %d of %d: blocks of states in 8 "
					"bits are within a row and a shard; use units that are not "
					"flat, or state_bits 0",
					param->unit->name, param->name, r, world);
	}
	return SRT_OK;
}

srt_status_t srt_state8_check(const srt_engine_t *engine, int world)
{
	if (!srt_optim_in_8_bits(engine->optim))
		return SRT_OK;
	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *param = engine->params[i];

		if (param->frozen)
			continue;
		if (param->dtype != SRT_F32)
			return srt_fail(SRT_ERR_UNSUPPORTED,
					"option state_bits is 8, but parameter '%s' is stored in "
					"%s: states in 8 bits need parameters stored in f32",
					param->name, srt_dtype_name(param->dtype));
		if (srt_state8_is_coded(param))
			SRT_TRY(check_rows(param, world));
	}
	return SRT_OK;
}
