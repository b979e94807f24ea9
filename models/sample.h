/* SPDX-License-Identifier: BSD-3-Clause */
/* Choosing a token from a row of logits or probabilities, on the host. */
#ifndef SRT_MODELS_SAMPLE_H
#define SRT_MODELS_SAMPLE_H

#include <shardrt/models/generate.h>

/** Memory of a choice. Opaque. */
typedef struct srt_sampler srt_sampler_t;

/** Whether the likeliest token is taken: temperatures below 1e-5, which would make infinities of
 * logits, count as 0 (as in vLLM). */
static inline int srt_is_greedy(const srt_sampling_t *sampling)
{
	return sampling->temperature < 1e-5f;
}

srt_status_t srt_sampler_create(int64_t vocab, srt_sampler_t **sampler);
/** NULL is allowed. */
void srt_sampler_destroy(srt_sampler_t *sampler);

/** The row to fill before a choice, (vocab). */
float *srt_sampler_row(srt_sampler_t *sampler);

/**
 * Chooses one of the first n tokens of the row. If srt_is_greedy(), the row has logits, and the
 * likeliest token is taken. Else the row has probabilities: of the top_k largest the fewest largest
 * that have top_p of their sum are kept (the order of transformers), and one of these is drawn by a
 * random number of (sampling->seed, key, position). Of equal ones the lower token counts as larger.
 * NaN counts as the smallest.
 */
int32_t srt_sampler_choose(srt_sampler_t *sampler, const srt_sampling_t *sampling, int64_t n,
			   uint64_t key, uint64_t position);

#endif
