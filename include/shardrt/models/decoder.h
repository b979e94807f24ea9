/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Decoders: one description for GPT-2 and the families of models/families.h; a root unit
 * (embedding, last norm, head) and a unit for each block.
 *
 *     x = embedding[tokens] * embed_scale + positions[position]
 *     per block:  x += post1(o(attention(q, k, v of norm1(x))))
 *                 x += post2(down(act(gate(norm2(x))) * up(norm2(x)))), or down(act(up(norm2(x))))
 *     logits = softcap(head(norm(x)))
 *
 * What a decoder does not have is left out; in a parallel block both sums read the same x. Names of
 * parameters are those of config->names: "model.layers.3.self_attn.q_proj.weight".
 *
 * Over tensor-parallel ranks (srt_model_options_t.mesh) each rank has heads / ranks heads,
 * kv_heads / ranks heads of keys and values, and ffn_width / ranks columns of the feed-forward
 * layer: q, k, v, gate and up are cut by rows, o and down by columns. The embedding and the head
 * are cut by rows, in chunks of ceil(vocab / ranks): each rank looks up its part of the vocabulary
 * and has its columns of the logits, which are never gathered but for sampling. The other
 * parameters are whole on each rank; those of norms of heads get their gradient from the heads of
 * all ranks, and norms over all heads (OLMo 2) gather the queries and keys of all ranks. The arena
 * of its tapes is of srt_decoder_mem_kind(). With tensor_parts each number of ranks that divides
 * them has the same bits.
 */
#ifndef SHARDRT_MODELS_DECODER_H
#define SHARDRT_MODELS_DECODER_H

#include <shardrt/shardrt.h>

#include <shardrt/models/layers.h>
#include <shardrt/models/rotary.h>
#include <shardrt/models/tape.h>
#include <shardrt/models/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Most layers of a decoder of which only some have a window. */
#define SRT_DECODER_MAX_PATTERN 1024

/** What a block may have, in the order of declaration. */
typedef enum srt_decoder_part {
	SRT_DECODER_NORM1, /* before attention */
	SRT_DECODER_QKV,   /* q, k and v in one projection */
	SRT_DECODER_Q,
	SRT_DECODER_K,
	SRT_DECODER_V,
	SRT_DECODER_Q_NORM,
	SRT_DECODER_K_NORM,
	SRT_DECODER_O,
	SRT_DECODER_POST1, /* after attention */
	SRT_DECODER_NORM2, /* before the feed-forward layer */
	SRT_DECODER_GATE,
	SRT_DECODER_UP,
	SRT_DECODER_DOWN,
	SRT_DECODER_POST2, /* after the feed-forward layer */
	SRT_DECODER_PARTS
} srt_decoder_part_t;

/** Names of the modules of a decoder; static. */
typedef struct srt_decoder_names {
	const char *root;                    /* kind of the root */
	const char *block;                   /* kind of a block */
	const char *blocks;                  /* of the list: block 3 is "BLOCKS.3" */
	const char *embedding, *positions;   /* positions: NULL if they are not learned */
	const char *norm, *head;             /* after the last block */
	const char *part[SRT_DECODER_PARTS]; /* in a block; NULL: it never has the part */
} srt_decoder_names_t;

/** The norms of a decoder. */
typedef enum srt_decoder_norm { SRT_DECODER_RMS = 0, SRT_DECODER_LAYERNORM } srt_decoder_norm_t;

/** Where the norms of a block are: before a layer, after it (OLMo 2), or both (Gemma 3). */
typedef enum srt_decoder_placement {
	SRT_DECODER_PRE = 0,
	SRT_DECODER_POST,
	SRT_DECODER_BOTH
} srt_decoder_placement_t;

/** RMSNorm of queries and keys: by head, or of all heads at once. */
typedef enum srt_decoder_qk_norm {
	SRT_DECODER_QK_NONE = 0,
	SRT_DECODER_QK_HEAD,
	SRT_DECODER_QK_WIDTH
} srt_decoder_qk_norm_t;

/** A decoder. Zero is the default of most of them. */
typedef struct srt_decoder_config {
	const srt_decoder_names_t *names;
	int64_t layers, width, heads, vocab, context;
	int64_t kv_heads;  /* 0: heads */
	int64_t head_dim;  /* 0: width / heads */
	int64_t ffn_width; /* 0: 4 * width */

	srt_decoder_norm_t norm;
	float norm_eps;
	int norm_one_plus; /* RMSNorm's weight is added to 1 */
	srt_decoder_placement_t placement;
	srt_decoder_qk_norm_t qk_norm;

	int rotary; /* positions: 0: learned, 1: rotary, with `rope` */
	srt_rope_t rope;
	int has_window_rope; /* layers with a window have window_rope (Gemma 3) */
	srt_rope_t window_rope;

	int qkv_bias, o_bias;
	float scale;    /* of q.k; 0: 1 / sqrt(head_dim) */
	int64_t window; /* tokens that are seen, with the query's own; 0: all */
	/* Bit i % 64 of [i / 64]: layer i sees all tokens; with a window of the others. */
	uint64_t full[SRT_DECODER_MAX_PATTERN / 64];

	int gated; /* down(act(gate) * up), else down(act(up)) */
	srt_glu_t act;
	int ffn_bias;
	int parallel; /* attention and feed-forward layer read the same x */

	int tied;          /* the head is the embedding */
	float embed_scale; /* 0: none; rounded to the dtype of the embedding's output */
	float softcap;     /* of the logits; 0: none */
	int has_padding;   /* lookups of token `padding` give its row no gradient */
	int64_t padding;
	float init_std; /* of initial values; 0: 0.02 */
	/* 0 or 1: none; a power of two up to SRT_TAPE_MOST_PARTS that divides kv_heads and
	 * ffn_width: srt_tape_set_tensor_parts(). The embedding and the head are cut in as many
	 * parts of ceil(vocab / parts) rows. */
	int tensor_parts;
} srt_decoder_config_t;

/** A decoder declared on an engine. Opaque. */
typedef struct srt_decoder srt_decoder_t;

/** Keys and values of the tokens of some sequences, which passes read and extend. Opaque. */
typedef struct srt_decoder_cache srt_decoder_cache_t;

/** The whole parameters in the compute dtype, gathered for many forward passes. Opaque. */
typedef struct srt_decoder_weights srt_decoder_weights_t;

/** What a tape computes. */
typedef struct srt_decoder_pass {
	int64_t batch,
		context; /* rows of tokens, and tokens of a row; context <= config->context */
	int documents; /* rows may have several documents (srt_decoder_put_positions()); no cache */
	int loss;      /* with targets and the loss of each token; else logits */
	const int64_t *row; /* logits: of this row only, read at each forward pass; NULL: of all */
	/* Not NULL, on a forward tape: the tokens are new ones of sequences in this cache, which
	 * outlives the tape: `context` tokens of one sequence, batch 1, or with `step` one token of
	 * each of the first `batch` sequences, context 1. */
	srt_decoder_cache_t *cache;
	int step;
	/* Not NULL, on a forward tape: the pass reads these instead of gathering its units, so it
	 * is this rank's alone. */
	const srt_decoder_weights_t *weights;
	srt_tensor_t **hidden; /* NULL, or layers + 1, set: inputs of the blocks and what the head
				 * reads, kept */
} srt_decoder_pass_t;

/** Tensors of a recorded decoder; those that do not apply are NULL. */
typedef struct srt_decoder_io {
	srt_tensor_t *ids;     /* (batch*context,1), SRT_I32, input */
	srt_tensor_t *targets; /* (batch*context,1), SRT_I32, input; below 0: none */
	srt_tensor_t
		*positions; /* (batch*context,1), SRT_I32, inputs: srt_decoder_put_positions() */
	srt_tensor_t *first, *window_first;
	srt_tensor_t *rows, *lengths; /* of a pass with a cache */
	srt_tensor_t *loss;           /* (batch*context,1), kept; 0 without a target */
	srt_tensor_t *logits;         /* (batch*context,vocab) or (1,vocab), SRT_F32, kept */
	int64_t batch, context, window;
	srt_decoder_cache_t *cache;
} srt_decoder_io_t;

/**
 * Checks sizes.
 * @param tensor_ranks tensor-parallel ranks, 1 = none.
 * @return SRT_ERR_INVALID_ARGUMENT, with a sentence, for sizes below 1 or too large, heads that do
 *         not divide the width without head_dim, kv_heads that do not divide heads, heads or
 *         kv_heads that the tensor-parallel ranks do not divide, or a vocabulary without a part for
 *         the last of them.
 */
SRT_API srt_status_t srt_decoder_check(const srt_decoder_config_t *config, int tensor_ranks);

/**
 * Declares units and parameters on an engine that is not built yet. Local, needs no data.
 * @param[out] decoder owned by the caller, must not outlive the engine.
 */
SRT_API srt_status_t srt_decoder_declare(srt_engine_t *engine, const srt_decoder_config_t *config,
					 const srt_model_options_t *options,
					 srt_decoder_t **decoder);

/** Frees the description and the tables of its tapes, not the engine's parameters. After its
 * tapes. NULL is allowed. */
SRT_API void srt_decoder_destroy(srt_decoder_t *decoder);

/** What it was declared with, with sizes for zeros. */
SRT_API const srt_decoder_config_t *srt_decoder_config(const srt_decoder_t *decoder);

/** The kind of memory of the arenas of its tapes: srt_tape_mem_kind(). */
SRT_API srt_mem_kind_t srt_decoder_mem_kind(const srt_decoder_t *decoder);

/** Number of parameter tensors (tied ones once). */
SRT_API int64_t srt_decoder_ntensors(const srt_decoder_config_t *config);

/** Number of parameters (tied ones once), without lookup tables and vectors if `matmul_only`. */
SRT_API int64_t srt_decoder_nparams(const srt_decoder_config_t *config, int matmul_only);

/** Floating point operations of forward and backward pass for one token at this context. */
SRT_API double srt_decoder_flops_per_token(const srt_decoder_config_t *config, int64_t context);

/** Initial values: N(0, init_std), o and down N(0, init_std/sqrt(2*layers)), biases 0, norms 1. */
SRT_API srt_status_t srt_decoder_init(srt_decoder_t *decoder, uint64_t seed, srt_stream_t *stream);

/** Records a pass and finishes the tape. @param[out] io set on success only. */
SRT_API srt_status_t srt_decoder_record(srt_decoder_t *decoder, srt_tape_t *tape,
					const srt_decoder_pass_t *pass, srt_decoder_io_t *io);

/** srt_decoder_record() of the loss of `batch` rows of one document each. */
SRT_API srt_status_t srt_decoder_record_loss(srt_decoder_t *decoder, srt_tape_t *tape,
					     int64_t batch, int64_t context, srt_decoder_io_t *io);

/** Fills the ids, and the targets if the pass has them: (batch*context) numbers each. Copies from
 * the host as srt_buffer_copy_from_host(). */
SRT_API srt_status_t srt_decoder_put_tokens(const srt_decoder_io_t *io, const int32_t *ids,
					    const int32_t *targets, srt_stream_t *stream);

/**
 * Fills the inputs that depend on positions, before a forward pass; those of a tape whose arena
 * other tapes share, before each. Copies from the host as srt_buffer_copy_from_host().
 * @param positions (batch*context): a document begins where one is not that of the token before it
 *        plus 1, and at each row's beginning; below config->context. NULL: 0, 1, ... in each row.
 */
SRT_API srt_status_t srt_decoder_put_positions(const srt_decoder_io_t *io, const int32_t *positions,
					       srt_stream_t *stream);

/**
 * Allocates a cache for tapes of this decoder: 2 * layers * sequences * length rows of this rank's
 * kv_heads * head_dim values in the compute dtype of the blocks. After srt_decoder_declare().
 * @param length most tokens of a sequence, up to config->context.
 * @param[out] cache owned by the caller.
 * @return SRT_ERR_INVALID_ARGUMENT for sizes out of range, SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_decoder_cache_create(srt_decoder_t *decoder, srt_device_t *device,
					      int64_t sequences, int64_t length,
					      srt_decoder_cache_t **cache);
/** Frees it; after its tapes. NULL is allowed. */
SRT_API void srt_decoder_cache_destroy(srt_decoder_cache_t *cache);
/** Bytes of device memory. */
SRT_API size_t srt_decoder_cache_nbytes(const srt_decoder_cache_t *cache);
/** Copies the first ntokens tokens of a sequence over those of another one. Asynchronous.
 * @return SRT_ERR_INVALID_ARGUMENT for numbers outside of the cache, or from == to. */
SRT_API srt_status_t srt_decoder_cache_move(srt_decoder_cache_t *cache, int64_t from, int64_t to,
					    int64_t ntokens, srt_stream_t *stream);

/**
 * Allocates memory for all parameters in the compute dtypes of their units, outside of the engine's
 * plan (srt_decoder_weights_nbytes()). After srt_engine_build().
 * @param[out] weights owned by the caller.
 * @return SRT_ERR_UNSUPPORTED with several tensor-parallel ranks, SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_decoder_weights_create(srt_decoder_t *decoder, srt_device_t *device,
						srt_decoder_weights_t **weights);
/** Frees it; after its tapes. NULL is allowed. */
SRT_API void srt_decoder_weights_destroy(srt_decoder_weights_t *weights);
/** Bytes of device memory. */
SRT_API size_t srt_decoder_weights_nbytes(const srt_decoder_weights_t *weights);
/** Takes the present values, with the bits that a forward pass gathers. Collective; outside of
 * passes, as srt_unit_full_params_begin(). */
SRT_API srt_status_t srt_decoder_weights_gather(srt_decoder_weights_t *weights,
						srt_stream_t *stream);

/**
 * Fills all inputs of a pass with a cache, which reads n new tokens of one sequence.
 * @param before tokens that the sequence has in the cache, those after them are replaced; before +
 *        n is at most its length.
 * @param ids (n), n from 1 to io->context; the pass's other rows have no token.
 */
SRT_API srt_status_t srt_decoder_put_chunk(const srt_decoder_io_t *io, int64_t sequence,
					   int64_t before, const int32_t *ids, int64_t n,
					   srt_stream_t *stream);
/** Fills all inputs of a pass with `step`: ids[i] is the new token of sequence i, which has
 * before[i] tokens in the cache, less than its length; n up to io->batch sequences. */
SRT_API srt_status_t srt_decoder_put_step(const srt_decoder_io_t *io, const int32_t *before,
					  const int32_t *ids, int64_t n, srt_stream_t *stream);

/** Bytes of the angles that its tapes of rotary positions read, in device memory; the tapes that
 * were recorded have made them. 0 without rotary positions. */
SRT_API size_t srt_decoder_tables_nbytes(const srt_decoder_t *decoder);

/** What training with `batch` sequences at a time needs, exact. @param[out] nbytes of the arena.
 * @param[out] scratch bytes that the stream keeps (srt_tape_scratch_nbytes()). */
SRT_API srt_status_t srt_decoder_memory(srt_decoder_t *decoder, srt_device_t *device, int64_t batch,
					int64_t context, size_t *nbytes, size_t *scratch);

#ifdef __cplusplus
}
#endif
#endif
