/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The norm of the reduced gradients of all ranks, as a reproducible sum (reproducible_sum.c): the
 * same bits for every strategy and number of ranks.
 */
#include "runtime/engine/engine.h"

/* The norm -> staging.norm. */
srt_status_t srt_grad_norm_compute(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_memory_t *memory = &engine->memory;
	srt_view_t grads = srt_view(engine->grads, 0, SRT_F32);
	srt_view_t norm = srt_view(engine->staging, memory->staging.norm, SRT_F32);
	int64_t nelem = (int64_t)(memory->trainable / sizeof(float));
	int p = engine->options.norm_p;

	if (p == 0 || engine->trainable_nelem == 0)
		return SRT_OK;
	SRT_TRY(srt_reproducible_sum_max(engine, &engine->norm_sum, grads, nelem, stream));
	if (p == SRT_NORM_INF)
		return srt_copy(stream, norm.buffer, norm.offset, engine->norm_sum.max.buffer,
				engine->norm_sum.max.offset, sizeof(float));
	return srt_reproducible_sum_total(engine, &engine->norm_sum, grads, nelem,
					  engine->trainable_nelem, p, 0, norm, stream);
}
