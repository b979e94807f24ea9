/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of Hugging Face's GPT-2: the names of their tensors, and the sizes of the model in them.
 *
 *     blocks.0.attn.qkv.weight (3*width,width)     h.0.attn.c_attn.weight (width,3*width)
 *     blocks.0.attn.proj.weight, fc, out           h.0.attn.c_proj.weight, mlp.c_fc, mlp.c_proj
 *     blocks.0.ln1.weight, ln2, lnf                h.0.ln_1.weight, ln_2, ln_f
 *     wte.weight, wpe.weight, head.weight          the same, the same, lm_head.weight
 *
 * The matrices of the blocks are transposed there. All names but lm_head.weight may have the prefix
 * "transformer.". The query, key and value are in the same order in both.
 */
#ifndef SRT_MODELS_GPT_HF_H
#define SRT_MODELS_GPT_HF_H

#include <shardrt/shardrt.h>

#include <shardrt/models/families.h>

/** The prefix that files of a model with a head have. */
#define SRT_GPT_HF_PREFIX "transformer."

/** Whether a file has the names of a GPT-2 of Hugging Face: ln_f.weight, with or without prefix.
 * @param[out] prefix "" or SRT_GPT_HF_PREFIX; set if it has. */
int srt_gpt_hf_recognise(const srt_file_t *file, const char **prefix);

/**
 * The name of a parameter of srt_decoder_declare() in a file of Hugging Face.
 * @param[out] name nname bytes. @param[out] transposed 1: a matrix, transposed in the file.
 * @return 1, or 0 for a name that a GPT does not have.
 */
int srt_gpt_to_hf(const char *ours, const char *prefix, char *name, size_t nname, int *transposed);

/** The reverse. @return 1, or 0 for another name. */
int srt_gpt_from_hf(const char *theirs, const char *prefix, char *name, size_t nname,
		    int *transposed);

/** Whether a tensor is one of the constants that such files have: the mask of the attention. */
int srt_gpt_hf_is_constant(const char *name);

/** Names for srt_engine_load_named(), which rounds to the engine's dtype.
 * @param prefix static, by srt_gpt_hf_recognise(). */
srt_file_names_t srt_gpt_hf_names(const char *prefix);

/**
 * The sizes of the model in a file of Hugging Face. No tensor has the number of heads: it is that
 * of config.json in the same folder if that is there, else `heads`, else one for each 64 of the
 * width, as in all published GPT-2. The head is tied if there is a config.json that does not say
 * otherwise, although the file may have one, as Hugging Face's own loading does it; without
 * config.json, if the file has none.
 * @param prefix by srt_gpt_hf_recognise(). @param heads by the user; 0: not given.
 * @param[out] config set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT if a tensor is missing, the number of heads is not known or not
 *         `heads`, config.json has other sizes than the tensors, or something that a GPT does not
 *         have; SRT_ERR_IO,
 *         SRT_ERR_FORMAT for a config.json that cannot be read.
 */
srt_status_t srt_gpt_hf_sizes(const srt_file_t *file, const char *path, const char *prefix,
			      int64_t heads, srt_decoder_config_t *config);

/**
 * Whether a model may be written to a file next to a config.json that is there: without one, or if
 * it is of a model of these sizes.
 * @return as srt_gpt_hf_sizes().
 */
srt_status_t srt_gpt_hf_check_config(const char *path, const srt_decoder_config_t *config);

#endif
