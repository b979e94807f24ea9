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
	srt_unit_t *codes;    /* of weights in 8 bits, else NULL */
	srt_unit_t *adapters; /* NULL: adapters are in `unit`, or there are none */
	srt_decoder_pair_t part[SRT_DECODER_PARTS];
	srt_param_t *scales[SRT_DECODER_PARTS]; /* the weight is codes; else NULL */
	srt_decoder_adapter_t adapter[SRT_DECODER_PARTS];
} srt_decoder_block_t;

/** Cosines, then sines, (npositions, dim/2) each, of the positions from 0 on; on a device. */
typedef struct srt_decoder_tables srt_decoder_tables_t;
struct srt_decoder_tables {
	srt_decoder_tables_t *next;
	srt_device_t *device;
	int64_t npositions;
	srt_buffer_t *all, *windows; /* of config.rope and config.window_rope; else NULL */
};

struct srt_decoder {
	srt_engine_t *engine;
	srt_decoder_config_t config; /* without zeros for sizes */
	int recompute, is_int8, sequence_parallel;
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

/** The tables of a tape: those of an earlier one if they have its positions. */
srt_status_t srt_decoder_find_tables(srt_decoder_t *d, srt_device_t *device, int64_t npositions,
				     const srt_decoder_tables_t **found);
/** Frees tables and those after it. NULL is allowed. */
void srt_decoder_tables_destroy(srt_decoder_tables_t *tables);

/** The description with sizes for zeros. */
srt_decoder_config_t srt_decoder_complete(const srt_decoder_config_t *config);

/* ---- decoder_parts.c */

/** Whether a block has this part. */
int srt_decoder_has_part(const srt_decoder_config_t *config, int part);

/** Whether a part is a Linear layer. */
int srt_decoder_is_linear(int part);

/** The initial values of the weight of a part. */
srt_init_t srt_decoder_init_of(const srt_decoder_t *d, int part);

/* ---- decoder_load.c */

/** The first failure of a rank, each of which has read its own part of a file. Collective. */
srt_status_t srt_decoder_share_status(const srt_decoder_t *d, srt_status_t status);

/* ---- decoder_int8.c */

/** Scales of a row of n columns. */
static inline int64_t srt_decoder_count_scales(int64_t n)
{
	return (n + SRT_QUANT_BLOCK - 1) / SRT_QUANT_BLOCK;
}
/** Whether a parameter or module is of weights in 8 bits. */
int srt_decoder_is_int8_name(const char *name);
/** Adds codes and scales to a module of the block, instead of its weight, which `base` is. */
srt_status_t srt_decoder_add_int8(const srt_decoder_t *d, srt_module_t *block, const char *name,
				  const srt_model_param_spec_t *base,
				  const srt_model_options_t *options);
/** Makes the codes and scales of a block a unit. */
srt_status_t srt_decoder_wrap_int8(const srt_decoder_t *d, srt_module_t *block,
				   const srt_model_options_t *options);
/** Sets the codes and scales of a block of the wrapped tree. */
void srt_decoder_find_int8(srt_decoder_t *d, srt_engine_t *engine, int64_t layer);
/** The scales of codes of the decoder `arg`; NULL: it has none of them. */
srt_param_t *srt_decoder_find_scales(const srt_param_t *codes, const void *arg);

/* ---- decoder_lora.c, lora_files.c */

/** Whether a parameter is of an adapter. */
int srt_lora_is_adapter(const char *name);

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
