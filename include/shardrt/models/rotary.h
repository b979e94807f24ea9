/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frequencies and tables of rotary position embeddings, for srt_layer_rotary() and srt_op_rotary().
 * They are made on the host, with the same bits on every machine. Of libshardrt-models, whose
 * interface may change in every version.
 */
#ifndef SHARDRT_MODELS_ROTARY_H
#define SHARDRT_MODELS_ROTARY_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How frequencies are scaled for contexts that are longer than in pretraining (rope_type of
 * transformers: default, linear, llama3). */
typedef enum srt_rope_scaling {
	SRT_ROPE_NONE,
	SRT_ROPE_LINEAR, /* all are divided by factor */
	/* Frequencies of wavelengths above old_context / low are divided by factor, those below
	 * old_context / high stay, those between are mixed of both. */
	SRT_ROPE_LLAMA3,
} srt_rope_scaling_t;

/** What the frequencies of a rotary position embedding follow from. */
typedef struct srt_rope {
	size_t size; /* set by SRT_ROPE_INIT */
	float base;  /* rope_theta, at least 1 */
	int64_t dim; /* rotated values of a head, even */
	srt_rope_scaling_t kind;
	float factor;        /* at least 1 */
	float low, high;     /* LLAMA3: low_freq_factor, high_freq_factor, 0 < low < high */
	int64_t old_context; /* LLAMA3: original_max_position_embeddings, at least 1 */
} srt_rope_t;

/** Base 10000, no scaling. */
#define SRT_ROPE_INIT                                                                              \
	{                                                                                          \
		.size = sizeof(srt_rope_t), .base = 10000.0f, .factor = 1.0f, .low = 1.0f,         \
		.high = 4.0f, .old_context = 8192                                                  \
	}

/** Most positions of tables: each is a float without rounding. */
#define SRT_ROPE_MAX_POSITIONS ((int64_t)1 << 24)

/**
 * inv_freq (dim / 2): inv_freq[i] = 1 / base^(2 i / dim), scaled; the exponent is a quotient in
 * fp32, all else in double, rounded once.
 * SRT_ERR_INVALID_ARGUMENT for numbers that a field does not allow. Thread-safe.
 */
SRT_API srt_status_t srt_rope_inv_freq(const srt_rope_t *rope, float *inv_freq);

/**
 * cos, sin (npositions, dim / 2) of the angles position * inv_freq[i], a product in fp32, for the
 * positions from 0 on; rounded once. Errors as above, also for more than SRT_ROPE_MAX_POSITIONS,
 * and SRT_ERR_OUT_OF_MEMORY. Thread-safe.
 */
SRT_API srt_status_t srt_rope_tables(const srt_rope_t *rope, int64_t npositions, float *cos,
				     float *sin);

#ifdef __cplusplus
}
#endif
#endif
