/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of a decoder share. */
#ifndef SRT_MODELS_DECODER_IMPL_H
#define SRT_MODELS_DECODER_IMPL_H

#include <shardrt/models/decoder.h>
#include <shardrt/models/lora.h>
#include "models/model.h"

/** A module's parameters; NULL where it has none. */
typedef struct srt_decoder_pair {
	srt_param_t *weight, *bias;
} srt_decoder_pair_t;

/** The adapter of a module; NULL where it has none. */
typedef struct srt_decoder_adapter {
	srt_param_t *a, *b;
} srt_decoder_adapter_t;

typedef struct srt_decoder_block {
	srt_unit_t *unit;
	srt_unit_t *adapters; /* NULL: adapters are in `unit`, or there are none */
	srt_decoder_pair_t part[SRT_DECODER_PARTS];
	srt_decoder_adapter_t adapter[SRT_DECODER_PARTS];
} srt_decoder_block_t;

/** Cosines and sines of a device's tapes (decoder_tape.c). */
typedef struct srt_decoder_tables srt_decoder_tables_t;

struct srt_decoder {
	srt_engine_t *engine;
	srt_decoder_config_t config; /* without zeros for sizes */
	int recompute;
	const srt_mesh_t *mesh;
	int tensor_ranks; /* that the blocks are cut over */
	srt_module_t *module;
	srt_unit_t *root;
	srt_param_t *embedding, *positions, *head;
	srt_decoder_pair_t norm;
	srt_decoder_tables_t *tables;
	unsigned char *adapted;       /* as srt_lora_match() has it; NULL: no adapters */
	srt_lora_t lora;              /* without targets */
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

/** Whether a block has this part. */
int srt_decoder_has_part(const srt_decoder_config_t *config, int part);

/** Whether a part is a Linear layer. */
int srt_decoder_is_linear(int part);

/* ---- decoder_lora.c */

/** Sets d->lora and d->adapted, which is the decoder's to free, also after a failure. */
srt_status_t srt_decoder_match_lora(srt_decoder_t *d, const srt_lora_t *lora);
/** Whether a part of a block has an adapter. */
int srt_decoder_is_adapted(const srt_decoder_t *d, int64_t layer, int part);
/** Adds the adapter of a module of the block, whose weight is `base`. */
srt_status_t srt_decoder_add_adapter(const srt_decoder_t *d, srt_module_t *block, const char *name,
				     const srt_model_param_spec_t *base,
				     const srt_model_options_t *options);
/** Makes the adapters of a block a unit where they need one. */
srt_status_t srt_decoder_wrap_adapters(const srt_decoder_t *d, srt_module_t *block, int64_t layer,
				       const srt_model_options_t *options);
/** Sets the adapters of a block of the wrapped tree. */
void srt_decoder_find_adapters(srt_decoder_t *d, srt_engine_t *engine, int64_t layer);

/** Whether layer i sees only config->window tokens. */
static inline int srt_decoder_has_window(const srt_decoder_config_t *c, int64_t i)
{
	return c->window > 0 && !(i < SRT_DECODER_MAX_PATTERN && (c->full[i / 64] >> (i % 64) & 1));
}

#endif
