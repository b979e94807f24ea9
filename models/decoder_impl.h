/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of a decoder share. */
#ifndef SRT_MODELS_DECODER_IMPL_H
#define SRT_MODELS_DECODER_IMPL_H

#include <shardrt/models/decoder.h>

/** A module's parameters; NULL where it has none. */
typedef struct srt_decoder_pair {
	srt_param_t *weight, *bias;
} srt_decoder_pair_t;

typedef struct srt_decoder_block {
	srt_unit_t *unit;
	srt_decoder_pair_t part[SRT_DECODER_PARTS];
} srt_decoder_block_t;

/** Cosines and sines of a device's tapes (decoder_tape.c). */
typedef struct srt_decoder_tables srt_decoder_tables_t;

struct srt_decoder {
	srt_decoder_config_t config; /* without zeros for sizes */
	int recompute;
	const srt_mesh_t *mesh;
	int tensor_ranks; /* that the blocks are cut over */
	srt_module_t *module;
	srt_unit_t *root;
	srt_param_t *embedding, *positions, *head;
	srt_decoder_pair_t norm;
	srt_decoder_tables_t *tables;
	srt_decoder_block_t blocks[]; /* config.layers */
};

struct srt_decoder_cache {
	srt_buffer_t *buffer;
	int64_t sequences, length;
	srt_dtype_t dtype;
	size_t row_nbytes;     /* of the keys, or values, of a token in a layer */
	int64_t nparts;        /* keys and values of all layers */
	srt_attention_at_t at; /* of the chunk that a pass reads */
};

/** The keys and values of a layer, without `rows` and `at`. */
srt_attention_cache_t srt_decoder_cache_of(const srt_decoder_cache_t *cache, int64_t layer);

/** The values of a parameter in srt_decoder_weights_t; buffer NULL: it has none. */
srt_view_t srt_decoder_weights_find(const srt_param_t *param, const void *weights);

/** Frees tables and those after it. NULL is allowed. */
void srt_decoder_tables_destroy(srt_decoder_tables_t *tables);

/** Whether layer i sees only config->window tokens. */
static inline int srt_decoder_has_window(const srt_decoder_config_t *c, int64_t i)
{
	return c->window > 0 && !(i < SRT_DECODER_MAX_PATTERN && (c->full[i / 64] >> (i % 64) & 1));
}

#endif
