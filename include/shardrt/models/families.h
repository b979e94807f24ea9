/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The decoders by name: presets, and families of Hugging Face. A family is a row of a table: how
 * its config.json becomes a description (<shardrt/models/decoder.h>), and how its files keep the
 * parameters. Names of parameters are those of its files.
 */
#ifndef SHARDRT_MODELS_FAMILIES_H
#define SHARDRT_MODELS_FAMILIES_H

#include <shardrt/shardrt.h>

#include <shardrt/models/decoder.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A preset: "nano", "char", "gpt2-124m". @return SRT_ERR_NOT_FOUND for another name, with a
 * sentence that has the names. */
SRT_API srt_status_t srt_decoder_preset(const char *name, srt_decoder_config_t *config);

/** The i-th preset's name, NULL past the end. */
SRT_API const char *srt_decoder_preset_name(size_t i);

/** A family: llama, qwen2, qwen3, mistral, olmo2, gemma3_text, gpt_neox, gpt2. Static. */
typedef struct srt_family srt_family_t;

/** The model_type of config.json. */
SRT_API const char *srt_family_name(const srt_family_t *family);

/** The i-th family, NULL past the end. */
SRT_API const srt_family_t *srt_family_at(size_t i);

/**
 * Reads a config.json, in the spelling of transformers 4 or 5. A key that is missing has the
 * default of transformers; keys that transformers does not read for this family are not read.
 * @param path the file, for sentences too. @param[out] family, config set on success only.
 * @return SRT_ERR_NOT_FOUND, SRT_ERR_IO if it cannot be read, SRT_ERR_FORMAT if it is not JSON or a
 *         value has another type, SRT_ERR_INVALID_ARGUMENT, with key and value, for what the
 *         library does not have, SRT_ERR_UNSUPPORTED in a library without jansson.
 */
SRT_API srt_status_t srt_family_read_config(const char *path, const srt_family_t **family,
					    srt_decoder_config_t *config);

/** srt_family_read_config() of a text of nbytes. */
SRT_API srt_status_t srt_family_parse_config(const char *text, size_t nbytes, const char *path,
					     const srt_family_t **family,
					     srt_decoder_config_t *config);

/**
 * Reads a config.json as text.
 * @param[out] text nbytes and a terminating zero, freed by the caller; set on success only.
 * @return SRT_ERR_NOT_FOUND, SRT_ERR_IO, SRT_ERR_FORMAT if it is longer than 1 MiB.
 */
SRT_API srt_status_t srt_family_read_text(const char *path, char **text, size_t *nbytes);

/**
 * Sets "dtype" and "torch_dtype" of a config.json, whatever of the two it has; the rest stays as it
 * is. Without both it gets "torch_dtype", which all versions of transformers read.
 * @param text one that srt_family_parse_config() has accepted.
 * @param dtype SRT_F32, SRT_F16 or SRT_BF16.
 * @param[out] changed freed by the caller; set on success only.
 */
SRT_API srt_status_t srt_family_set_dtype(const char *text, srt_dtype_t dtype, char **changed);

/** How a file or folder has the parameters of a decoder, for srt_family_names(). */
typedef struct srt_family_file {
	const srt_family_t *family;
	const srt_decoder_config_t *config;
	int bare; /* names have no "model." or "transformer.", as of a model without a head */
} srt_family_file_t;

/**
 * Compares the tensors of a file with a config.json.
 * @param path for sentences. @param[out] match set on success only; borrows config.
 * @return SRT_ERR_INVALID_ARGUMENT if the file has blocks that the decoder does not have, or not
 *         the embedding of its size.
 */
SRT_API srt_status_t srt_family_match(const srt_family_t *family,
				      const srt_decoder_config_t *config, const srt_file_t *file,
				      const char *path, srt_family_file_t *match);

/** Names for srt_engine_load_named(). @param match borrowed while they are used. */
SRT_API srt_file_names_t srt_family_names(const srt_family_file_t *match);

#ifdef __cplusplus
}
#endif
#endif
