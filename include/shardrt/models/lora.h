/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LoRA: small trainable adapters next to the frozen Linear layers of a decoder, and the folders in
 * which PEFT keeps them.
 *
 *     y = x W^T + b + s (x A^T) B^T        A (r,in), B (out,r), s = alpha / r or alpha / sqrt(r)
 *
 * srt_model_options_t.lora declares them; W, b and all other parameters are then frozen. Their
 * names are MODULE.lora_A.weight and MODULE.lora_B.weight, in PEFT's files with "base_model.model."
 * in front. Over tensor-parallel ranks an adapter is cut as its base is: B by rows where the base
 * is cut by rows, A by columns where it is cut by columns; the other of both is whole.
 */
#ifndef SHARDRT_MODELS_LORA_H
#define SHARDRT_MODELS_LORA_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/shardrt.h>

#include <shardrt/models/decoder.h>
#include <shardrt/models/families.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The largest r. */
#define SRT_LORA_MAX_R 65536

/** Which Linear layers of the blocks have adapters, and of which size. Zero-initialise. */
typedef struct srt_lora {
	int64_t r;
	double alpha;
	int rslora; /* s = alpha / sqrt(r) */
	/* The layers as PEFT's target_modules has them: names of modules, or ends of names that
	 * begin after a '.'; ntargets 0: all. */
	const char *const *targets;
	size_t ntargets;
	const char *pattern; /* not NULL: instead of targets, an expression that names match */
} srt_lora_t;

/** What the product with B is multiplied by: s. */
SRT_API double srt_lora_scaling(const srt_lora_t *lora);

/**
 * Which modules of a decoder have adapters. Local.
 * @param[out] matches layers * SRT_DECODER_PARTS flags: of part k of block i at
 *        i * SRT_DECODER_PARTS + k; written on a failure too.
 * @return SRT_ERR_INVALID_ARGUMENT, with a sentence, for an r or alpha out of range, a target that
 *         matches no Linear layer of a block, or one that matches another module;
 *         SRT_ERR_UNSUPPORTED for an expression that is malformed, or in a library without PCRE2;
 *         SRT_ERR_FORMAT for one that takes too many steps.
 */
SRT_API srt_status_t srt_lora_match(const srt_lora_t *lora, const srt_decoder_config_t *config,
				    unsigned char *matches);

/** The sizes of the adapters that a decoder was declared with, without targets; NULL: it has none.
 */
SRT_API const srt_lora_t *srt_decoder_lora(const srt_decoder_t *decoder);

/** Number of elements of all adapters of a decoder; 0 without any. */
SRT_API int64_t srt_decoder_lora_nparams(const srt_decoder_t *decoder);

/** Initial values of the adapters alone, as PEFT's: A uniform in +-1/sqrt(in), B zero. As
 * srt_decoder_init(), which gives them the same ones. */
SRT_API srt_status_t srt_decoder_init_lora(srt_decoder_t *decoder, uint64_t seed,
					   srt_stream_t *stream);

/**
 * srt_engine_load_named() of all parameters but adapters: those of the base. Weights that the
 * decoder has in 8 bits are rounded from the floats of the file, of which each rank reads its rows.
 * @param names with `find`; `keeps` is not used.
 */
SRT_API srt_status_t srt_decoder_load_base(srt_decoder_t *decoder, const char *path,
					   const srt_file_names_t *names, srt_stream_t *stream);

/* ---- folders ---------------------------------------------------------------------------- */

/**
 * Reads adapter_config.json of a folder of PEFT. What changes results and is not of srt_lora_t is
 * refused by its key: DoRA, biases, patterns of ranks, layers that are chosen by number, and keys
 * that are not known, unless they are null, false or empty. lora_dropout, of training alone, is not
 * read.
 * @param[out] lora freed by srt_lora_destroy(); set on success only.
 * @return SRT_ERR_NOT_FOUND, SRT_ERR_IO, SRT_ERR_FORMAT if it is not JSON or a value has another
 *         type, SRT_ERR_INVALID_ARGUMENT for what the library does not have, SRT_ERR_UNSUPPORTED in
 *         a library without jansson.
 */
SRT_API srt_status_t srt_lora_read(const char *folder, srt_lora_t **lora);

/** srt_lora_read() of a text of nbytes. @param path for sentences. */
SRT_API srt_status_t srt_lora_parse(const char *text, size_t nbytes, const char *path,
				    srt_lora_t **lora);

/** Frees what srt_lora_read() made. NULL is allowed. */
SRT_API void srt_lora_destroy(srt_lora_t *lora);

/**
 * Sets the adapters of a decoder from adapter_model.safetensors of a folder, whose tensors must be
 * those of the decoder. Each rank reads its rows. Collective, blocking.
 * @param family of the decoder; NULL: one of a preset.
 * @return as srt_engine_load_named(); SRT_ERR_INVALID_ARGUMENT for a tensor that the decoder does
 *         not have.
 */
SRT_API srt_status_t srt_decoder_load_lora(srt_decoder_t *decoder, const srt_family_t *family,
					   const char *folder, srt_stream_t *stream);

/** What srt_decoder_save_lora() writes apart from the adapters. */
typedef struct srt_lora_save {
	const srt_family_t *family; /* as in srt_decoder_load_lora() */
	const char *base;           /* base_model_name_or_path; NULL: null */
} srt_lora_save_t;

/**
 * Writes adapter_model.safetensors and adapter_config.json to a folder, which PEFT loads. Each file
 * is the complete old or the complete new one at any time. Collective, blocking.
 * @param folder on the rank that writes, which has one whole adapter at a time in host memory; is
 *        made unless it is there. NULL on the others.
 * @return on the rank that writes alone: SRT_ERR_IO, SRT_ERR_INVALID_ARGUMENT if `folder` is no
 *         folder; SRT_ERR_STATE for a decoder without adapters.
 */
SRT_API srt_status_t srt_decoder_save_lora(srt_decoder_t *decoder, const srt_lora_save_t *options,
					   const char *folder, srt_stream_t *stream);

/**
 * Writes a model with W + s B A for W: computed in fp32, rounded once to the dtype of W in the
 * file. Other tensors are copied. Streamed: a few MiB and one adapter in memory. Local, blocking.
 * @param base, adapter folders of the model and of PEFT. @param family, config of `base`.
 * @param folder is made unless it is there; gets the weights alone.
 * @param max_nbytes as srt_file_writer_create_folder().
 * @return SRT_ERR_INVALID_ARGUMENT for an adapter that does not fit, with the tensor.
 */
SRT_API srt_status_t srt_lora_merge(const char *base, const srt_family_t *family,
				    const srt_decoder_config_t *config, const char *adapter,
				    const char *folder, size_t max_nbytes);

#ifdef __cplusplus
}
#endif
#endif
