/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An encoder-decoder Transformer with a tied embedding, in evaluation mode: torch.nn.Transformer
 * (post-LN, relu, no masks) between an embedding E and x E^T + bias. One root unit (embedding,
 * final norms, BatchNorm, output bias) and one unit for each layer of encoder and decoder.
 *
 *     src = E[src ids] + vocab_bias + long_buffer;  tgt = bn(E[tgt ids])
 *     encoder layer:  x = norm1(x + attention(x)); x = norm2(x + linear2(relu(linear1(x))))
 *     decoder layer:  the same with attention over the encoder's output as a second part
 *     out = decoder_norm(decoder(tgt, encoder_norm(encoder(src)))) E^T + bias
 *
 * bn is BatchNorm1d over the batch items with running statistics. The loss is the cross-entropy of
 * out against the tgt ids, by row. Names and order of parameters are those of torch's module;
 * srt_engine_materialize() gives them its distributions.
 */
#ifndef SRT_MODELS_TRANSFORMER_H
#define SRT_MODELS_TRANSFORMER_H

#include <shardrt/shardrt.h>

#include "models/model.h"
#include <shardrt/models/tape.h>

/** Sizes of a Transformer. */
typedef struct srt_transformer_config {
	int64_t layers; /* of the encoder, and as many of the decoder */
	int64_t heads, width, ff, vocab;
	int64_t batch; /* items of a batch: bn has a weight and a bias for each */
} srt_transformer_config_t;

/** A Transformer declared on an engine. Opaque. */
typedef struct srt_transformer srt_transformer_t;

/** Tensors of a recorded Transformer. */
typedef struct srt_transformer_io {
	srt_tensor_t *src,
		*tgt; /* (tokens*batch,1), SRT_I32, inputs; token t of item b at t*batch+b */
	srt_tensor_t *vocab_bias, *long_buffer; /* (1,width), SRT_F32, inputs */
	srt_tensor_t *logits; /* (tgt tokens*batch,vocab), kept; token t of item b at b*tokens+t */
	srt_tensor_t *loss;   /* (tgt tokens*batch,1), kept; in the order of the logits */
} srt_transformer_io_t;

/**
 * Declares modules, units and parameters on an engine that is not built yet. Local, needs no data.
 * @param[out] transformer owned by the caller, must not outlive the engine.
 * @return SRT_ERR_INVALID_ARGUMENT for sizes below 1 or a width that the heads do not divide.
 */
srt_status_t srt_transformer_declare(srt_engine_t *engine, const srt_transformer_config_t *config,
				     const srt_model_options_t *options,
				     srt_transformer_t **transformer);

/** Frees the description, not the engine's parameters. NULL is allowed. */
void srt_transformer_destroy(srt_transformer_t *transformer);

/**
 * Records the model with its loss and finishes the tape. The loss has the dtype of the logits
 * (srt_tape_loss_dtype()).
 * @param src_tokens, tgt_tokens tokens of each item.
 * @param running_mean, running_var (batch), of one float dtype: bn's statistics, of the caller.
 */
srt_status_t srt_transformer_record_loss(const srt_transformer_t *transformer, srt_tape_t *tape,
					 int64_t src_tokens, int64_t tgt_tokens,
					 srt_view_t running_mean, srt_view_t running_var,
					 srt_transformer_io_t *io);

#endif
