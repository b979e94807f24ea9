/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GPT: a pre-LN decoder of one root unit (wte, wpe, lnf, head) and one unit per block.
 *
 *     x = wte[tokens] + wpe[0..context-1]
 *     per block:  x += attn.proj(attention(attn.qkv(ln1(x))));  x += out(gelu(fc(ln2(x))))
 *     logits = head(lnf(x))
 *
 * Parameters: wte.weight (vocab,width), wpe.weight (context,width), per block "blocks.<i>."
 * ln1.weight ln1.bias attn.qkv.weight (3*width,width) [attn.qkv.bias] attn.proj.weight
 * attn.proj.bias ln2.weight ln2.bias fc.weight (mult*width,width) fc.bias out.weight out.bias,
 * then lnf.weight lnf.bias head.weight (vocab,width; another name of wte.weight when tied).
 *
 * Over tensor-parallel ranks (srt_model_options_t.mesh) each rank has heads / ranks heads and
 * mult * width / ranks columns of the feed-forward layer: attn.qkv and fc are cut by rows,
 * attn.proj.weight and out.weight by columns. wte.weight and head.weight are cut by rows, in chunks
 * of ceil(vocab / ranks): each rank looks up its part of the vocabulary and has its columns of the
 * logits, which are never gathered but for sampling. The other parameters are whole on each rank.
 * The arena of its tapes is of srt_gpt_mem_kind().
 */
#ifndef SRT_MODELS_GPT_H
#define SRT_MODELS_GPT_H

#include <shardrt/shardrt.h>

#include "models/model.h"
#include <shardrt/models/tape.h>

/** Sizes of a GPT. */
typedef struct srt_gpt_config {
	int64_t layers, heads, width, context, vocab;
	int64_t mult;  /* the feed-forward layer is mult * width wide */
	int tied;      /* head.weight is wte.weight */
	int attn_bias; /* attn.qkv has a bias */
} srt_gpt_config_t;

/** A GPT declared on an engine. Opaque. */
typedef struct srt_gpt srt_gpt_t;

/** Tensors of a recorded GPT; those that do not apply are NULL. */
typedef struct srt_gpt_io {
	srt_tensor_t *ids;     /* (batch*context,1), SRT_I32, input */
	srt_tensor_t *targets; /* (batch*context,1), SRT_I32, input; with a loss */
	srt_tensor_t *loss;    /* (batch*context,1), kept; with a loss */
	srt_tensor_t *logits;  /* (1,vocab), SRT_F32, kept; of one row, for sampling */
} srt_gpt_io_t;

/** Sizes by name: "nano", "char", "gpt2-124m". @return SRT_ERR_NOT_FOUND for another name, with a
 * sentence that has the names. */
srt_status_t srt_gpt_preset(const char *name, srt_gpt_config_t *config);

/** The i-th preset's name, NULL past the end. */
const char *srt_gpt_preset_name(size_t i);

/**
 * Checks sizes.
 * @param tensor_ranks tensor-parallel ranks, 1 = none.
 * @return SRT_ERR_INVALID_ARGUMENT for sizes below 1, a width that the heads do not divide, heads
 *         that the tensor-parallel ranks do not divide, or a vocabulary without a part for the last
 *         of them.
 */
srt_status_t srt_gpt_check(const srt_gpt_config_t *config, int tensor_ranks);

/**
 * Declares units and parameters on an engine that is not built yet. Local, needs no data.
 * @param[out] gpt owned by the caller, must not outlive the engine.
 */
srt_status_t srt_gpt_declare(srt_engine_t *engine, const srt_gpt_config_t *config,
			     const srt_model_options_t *options, srt_gpt_t **gpt);

/** Frees the description, not the engine's parameters. NULL is allowed. */
void srt_gpt_destroy(srt_gpt_t *gpt);

/** The sizes it was declared with. */
const srt_gpt_config_t *srt_gpt_config(const srt_gpt_t *gpt);

/** The kind of memory of the arenas of its tapes: srt_tape_mem_kind(). */
srt_mem_kind_t srt_gpt_mem_kind(const srt_gpt_t *gpt);

/** Number of parameter tensors (tied ones once). */
int64_t srt_gpt_ntensors(const srt_gpt_config_t *config);

/** Number of parameters (tied ones once), without lookup tables if `matmul_only`. */
int64_t srt_gpt_nparams(const srt_gpt_config_t *config, int matmul_only);

/** Floating point operations of forward and backward pass for one token at this context. */
double srt_gpt_flops_per_token(const srt_gpt_config_t *config, int64_t context);

/** Initial values: N(0, .02), residual projections N(0, .02/sqrt(2*layers)), biases 0, norms 1. */
srt_status_t srt_gpt_init(srt_gpt_t *gpt, uint64_t seed, srt_stream_t *stream);

/** Records the model with its loss for `batch` sequences of `context` tokens. */
srt_status_t srt_gpt_record_loss(const srt_gpt_t *gpt, srt_tape_t *tape, int64_t batch,
				 int64_t context, srt_gpt_io_t *io);

/** Records the model for one sequence up to the logits of row *row, read at each forward pass. */
srt_status_t srt_gpt_record_logits(const srt_gpt_t *gpt, srt_tape_t *tape, int64_t context,
				   const int64_t *row, srt_gpt_io_t *io);

/** What training with `batch` sequences at a time needs, exact. @param[out] nbytes of the arena.
 * @param[out] scratch bytes that the stream keeps (srt_tape_scratch_nbytes()). */
srt_status_t srt_gpt_memory(const srt_gpt_t *gpt, srt_device_t *device, int64_t batch,
			    int64_t context, size_t *nbytes, size_t *scratch);

#endif
