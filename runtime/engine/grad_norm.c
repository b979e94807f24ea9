/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The norm of the reduced gradients of all ranks, as a reproducible sum (reproducible_sum.c): the
 * same bits for every strategy and number of ranks.
 */
#include "runtime/engine/shard.h"

srt_view_t srt_part_grads(const srt_engine_t *engine, int part)
{
	const srt_role_kind_t role = srt_role_stepped(engine);

	/* stored dtypes: shard.c */
	return srt_view(engine->arena[role], engine->memory.layout.offset[role][part],
			(srt_dtype_t)(part / 3));
}

srt_status_t srt_grads_clear_padding(const srt_engine_t *engine, srt_stream_t *stream)
{
	for (size_t i = 0; i < engine->nparams; i++) {
		const srt_param_t *param = engine->params[i];
		const size_t elem = srt_dtype_size(param->dtype);
		const size_t nelem = (size_t)param->shard_nelem;
		const size_t end = param->shard_offset + nelem;
		const size_t padding = srt_align_up(end, srt_shard_align(param->unit)) - end;

		if (!param->frozen && padding > 0)
			SRT_TRY(srt_zero(stream, param->local_grad.buffer,
					 param->local_grad.offset + nelem * elem, padding * elem));
	}
	return SRT_OK;
}

static int list_terms(const srt_engine_t *engine, srt_terms_t *terms)
{
	/* Of what every cell has, the first one counts. */
	const size_t *nelem = srt_cell_index(engine, engine->rank) == 0 ?
				      engine->memory.layout.trainable :
				      engine->memory.layout.cut;
	int n = 0;

	for (int part = 0; part < SRT_NPARTS; part++) {
		if (nelem[part] > 0)
			terms[n++] =
				(srt_terms_t){ srt_part_grads(engine, part), (int64_t)nelem[part] };
	}
	return n;
}

srt_status_t srt_grad_norm_compute(srt_engine_t *engine, int p, srt_stream_t *stream)
{
	srt_view_t norm = srt_view(engine->staging, engine->memory.staging.norm, SRT_F32);
	const srt_reproducible_sum_t *sum = &engine->norm_sum;
	srt_terms_t terms[SRT_NPARTS];
	int nterms = list_terms(engine, terms);

	if (engine->trainable_nelem == 0)
		return SRT_OK;
	SRT_TRY(srt_reproducible_sum_max(sum, terms, nterms, stream));
	if (p == SRT_NORM_INF)
		return srt_copy(stream, norm.buffer, norm.offset, sum->max.buffer, sum->max.offset,
				sizeof(float));
	return srt_reproducible_sum_total(sum, terms, nterms, engine->trainable_nelem, p, 0, norm,
					  stream);
}

srt_status_t srt_grad_norm_check_finite(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_reproducible_sum_t *sum = &engine->norm_sum;
	srt_terms_t terms[SRT_NPARTS];

	if (engine->trainable_nelem == 0)
		return SRT_OK;
	if (engine->clipped || engine->options.norm_p == 0) /* no maximum yet, or of other values */
		SRT_TRY(srt_reproducible_sum_max(sum, terms, list_terms(engine, terms), stream));
	engine->found_inf = true;
	/* The check of the scaler on one value, which is multiplied by 1. */
	return srt_op_unscale(stream, sum->max, srt_found_inf(engine), (srt_view_t){ 0 }, 1.0f, 1);
}
