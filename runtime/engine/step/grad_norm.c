/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The norm of the reduced gradients of all ranks, as a reproducible sum (reproducible_sum.c): the
 * same bits for every strategy and number of ranks.
 */
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"
#include "runtime/engine/step/reproducible_sum.h"
#include "runtime/engine/step/step.h"
#include "runtime/ops/step.h"

srt_view_t srt_part_grads(const srt_engine_t *engine, int part)
{
	const srt_role_kind_t role = srt_role_stepped(engine);

	return srt_view(engine->storage.arena[role], engine->memory.layout.offset[role][part],
			srt_part_stored(part));
}

/* Clears the elements of a part from `begin` up to `end`. */
static srt_status_t clear_grads(const srt_engine_t *engine, int part, size_t begin, size_t end,
				srt_stream_t *stream)
{
	const srt_view_t grads = srt_part_grads(engine, part);
	const size_t elem = srt_dtype_size(grads.dtype);

	if (begin == end)
		return SRT_OK;
	return srt_buffer_zero(grads.buffer, grads.offset + begin * elem, (end - begin) * elem,
			       stream);
}

srt_status_t srt_grads_clear_padding(const srt_engine_t *engine, srt_stream_t *stream)
{
	size_t at[SRT_NPARTS] = { 0 };

	/* In the order of the arenas: offsets rise. */
	for (size_t u = 0; u < 2 * engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u % engine->nunits];
		const bool cut = u < engine->nunits; /* first */
		const int part = srt_shard_part(unit);

		for (size_t i = 0; i < unit->nparams; i++) {
			const srt_param_t *param = unit->params[i];

			if (param->frozen || param->is_cut != cut)
				continue;
			SRT_TRY(clear_grads(engine, part, at[part], param->shard.offset, stream));
			at[part] = param->shard.offset + (size_t)param->shard.nelem;
		}
	}
	for (int part = 0; part < SRT_NPARTS; part++)
		SRT_TRY(clear_grads(engine, part, at[part], engine->memory.layout.trainable[part],
				    stream));
	return SRT_OK;
}

static int list_terms(const srt_engine_t *engine, srt_terms_t *terms)
{
	/* What every cell has counts in the first one. */
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
	srt_view_t norm = srt_view(engine->storage.staging, engine->memory.staging.norm, SRT_F32);
	const srt_reproducible_sum_t *sum = &engine->scalars.norm_sum;
	srt_terms_t terms[SRT_NPARTS];
	int nterms = list_terms(engine, terms);

	if (engine->declared.trainable_nelem == 0)
		return SRT_OK;
	SRT_TRY(srt_reproducible_sum_max(sum, terms, nterms, stream));
	if (p == SRT_NORM_INF)
		return srt_buffer_copy(norm.buffer, norm.offset, sum->max.buffer, sum->max.offset,
				       sizeof(float), stream);
	return srt_reproducible_sum_total(sum, terms, nterms, engine->declared.trainable_nelem, p,
					  0, norm, stream);
}

srt_status_t srt_grad_norm_check_finite(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_reproducible_sum_t *sum = &engine->scalars.norm_sum;
	srt_terms_t terms[SRT_NPARTS];

	if (engine->declared.trainable_nelem == 0)
		return SRT_OK;
	if (engine->step.clipped ||
	    engine->options.norm_p == 0) /* no maximum yet, or of other values */
		SRT_TRY(srt_reproducible_sum_max(sum, terms, list_terms(engine, terms), stream));
	engine->step.found_inf = true;
	/* The check of the scaler on one value, which is multiplied by 1. */
	return srt_op_unscale(sum->max, srt_found_inf(engine), (srt_view_t){ 0 }, 1.0f, 1, stream);
}
