/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GGUF, version 3: a model in one file, which llama.cpp and others run. What the file of a decoder
 * of Hugging Face has:
 *
 *     gguf_keys.c       keys with values, and the header
 *     gguf_families.c   table of families: architecture, keys, what readers lack
 *     gguf_tensors.c    tensors: their names, types and places
 *     gguf_encode.c     values as F32, F16, BF16 and Q8_0
 *     gguf_tokenizer.c  keys of the tokenizer; gguf_pre.c: its kind for readers
 *
 * Architectures, keys and names are those of llama.cpp and its converter.
 */
#ifndef SRT_MODELS_GGUF_H
#define SRT_MODELS_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shardrt/models/families.h>

#include "models/string.h"

/** Tensors, and the first of them in the file, begin at multiples of this. */
#define SRT_GGUF_ALIGNMENT 32
/** Values of a block of Q8_0, and its bytes. */
#define SRT_GGUF_Q8_VALUES 32
#define SRT_GGUF_Q8_NBYTES 34

/** Types of tensors, with the numbers of the format. */
typedef enum srt_gguf_type {
	SRT_GGUF_F32 = 0,
	SRT_GGUF_F16 = 1,
	SRT_GGUF_Q8_0 = 8, /* blocks of 32 values: a scale in F16, then a byte for each value */
	SRT_GGUF_BF16 = 30
} srt_gguf_type_t;

/* ---- gguf_keys.c */

/** Keys with values, as the bytes of the file. All zero at first. */
typedef struct srt_gguf_keys {
	srt_string_t bytes; /* owned */
	uint64_t n;
} srt_gguf_keys_t;

/** Appends a key. @return SRT_ERR_OUT_OF_MEMORY. */
srt_status_t srt_gguf_put_u32(srt_gguf_keys_t *keys, const char *key, uint32_t value);
srt_status_t srt_gguf_put_f32(srt_gguf_keys_t *keys, const char *key, float value);
srt_status_t srt_gguf_put_bool(srt_gguf_keys_t *keys, const char *key, bool value);
srt_status_t srt_gguf_put_string(srt_gguf_keys_t *keys, const char *key, const char *text,
				 size_t nbytes);
/** Arrays of n values. */
srt_status_t srt_gguf_put_i32s(srt_gguf_keys_t *keys, const char *key, const int32_t *values,
			       size_t n);
srt_status_t srt_gguf_put_f32s(srt_gguf_keys_t *keys, const char *key, const float *values,
			       size_t n);
/** Begins an array of n strings, which srt_gguf_add_string() appends. */
srt_status_t srt_gguf_begin_strings(srt_gguf_keys_t *keys, const char *key, size_t n);
srt_status_t srt_gguf_add_string(srt_gguf_keys_t *keys, const char *text, size_t nbytes);

/** Frees what it has. */
void srt_gguf_clear_keys(srt_gguf_keys_t *keys);

/* ---- gguf_families.c */

/** A row of the table of families. */
typedef struct srt_gguf_family {
	const char *name; /* model_type of config.json */
	const char *arch; /* general.architecture */
	bool pairs;       /* rotary pairs are neighbours: rows of q and k are moved */
	bool factors;     /* readers take factors of frequencies, for rope_type llama3 */
	bool windows;     /* readers have layers with a window */
	bool part;        /* only a part of a head may be rotated */
	bool needs_head;  /* readers need a head, also a tied one */
	unsigned biases;  /* bits of parts that may have one */
	unsigned zeros;   /* bits of parts that readers expect one of */
	unsigned acts;    /* bits of activations */
} srt_gguf_family_t;

/**
 * Finds the row of a family, and checks that readers of GGUF can compute the model.
 * @param path of config.json, for the sentence.
 * @param[in,out] config zeros for sizes become sizes.
 * @return SRT_ERR_UNSUPPORTED, with the key and what readers do.
 */
srt_status_t srt_gguf_find_family(const srt_family_t *family, const char *path,
				  srt_decoder_config_t *config, const srt_gguf_family_t **row);

/** Appends the keys of a model, but for those of its tokenizer. @param type of matrices. */
srt_status_t srt_gguf_put_model(srt_gguf_keys_t *keys, const srt_gguf_family_t *row,
				const srt_decoder_config_t *config, srt_gguf_type_t type);

/** The positions that readers compute right: of a model whose windows they lack, those of one
 * window. */
int64_t srt_gguf_context(const srt_gguf_family_t *row, const srt_decoder_config_t *config);

/* ---- gguf_tensors.c */

/** Where the values of a tensor come from. */
typedef enum srt_gguf_source {
	SRT_GGUF_PARAMETER,
	SRT_GGUF_ZEROS,
	SRT_GGUF_FACTORS /* of rotary frequencies: srt_gguf_rope_factors() */
} srt_gguf_source_t;

/** A tensor of the file: (rows,columns), or a vector of `rows` with columns 1. */
typedef struct srt_gguf_tensor {
	char name[64];
	srt_gguf_source_t source;
	char parameter[128]; /* the name of a parameter, as <shardrt/models/families.h> has it */
	srt_gguf_type_t type;
	int ndim;
	int64_t rows, columns;
	int64_t head;          /* of q and k whose rotary pairs are neighbours: rows of a head; 0 */
	float added;           /* to each value */
	size_t offset, nbytes; /* in the data, which begin after the header */
} srt_gguf_tensor_t;

/** The tensors of a file. All zero at first. */
typedef struct srt_gguf_tensors {
	srt_gguf_tensor_t *list; /* (n), owned, in the order of the file */
	size_t n;
	size_t nbytes; /* of the data, with what is between tensors */
} srt_gguf_tensors_t;

/** What srt_gguf_list_tensors() asks of the model's file: whether it has a parameter. */
typedef bool (*srt_gguf_has_t)(const char *parameter, void *arg);

/**
 * Lists the tensors of a model: a row for each parameter, and what readers need apart from them.
 * @param type of matrices: a vector is F32, a matrix whose rows are not blocks of Q8_0 is F16.
 * @param has tells which biases the model's file has.
 * @return SRT_ERR_OUT_OF_MEMORY, SRT_ERR_INVALID_ARGUMENT for sizes that overflow.
 */
srt_status_t srt_gguf_list_tensors(const srt_gguf_family_t *row, const srt_decoder_config_t *config,
				   srt_gguf_type_t type, srt_gguf_has_t has, void *arg,
				   srt_gguf_tensors_t *tensors);

/** Frees the list. */
void srt_gguf_clear_tensors(srt_gguf_tensors_t *tensors);

/** Appends the header: keys and descriptions of tensors, up to where data begin. */
srt_status_t srt_gguf_make_header(const srt_gguf_keys_t *keys, const srt_gguf_tensors_t *tensors,
				  srt_string_t *header);

/** What readers divide frequencies by, for rope_type llama3. @param[out] factors (rope->dim / 2).
 * @return as srt_rope_inv_freq(). */
srt_status_t srt_gguf_rope_factors(const srt_rope_t *rope, float *factors);

/* ---- gguf_encode.c */

/** Bytes of n values, a multiple of a block; 0 if they overflow. */
size_t srt_gguf_nbytes(srt_gguf_type_t type, size_t n);

/** Decodes n values of a file, of dtype SRT_F32, SRT_F16 or SRT_BF16. */
void srt_gguf_decode(srt_dtype_t dtype, const void *bytes, size_t n, float *values);

/**
 * Encodes n values, a multiple of a block, rounded to nearest, in Q8_0 half away from zero.
 * @param bytes srt_gguf_nbytes().
 * @return n, or the index of a value that the type cannot have: one that is too large for F16 or a
 *         scale of Q8_0, or in Q8_0 is not finite.
 */
size_t srt_gguf_encode(srt_gguf_type_t type, const float *values, size_t n, void *bytes);

/* ---- gguf_tokenizer.c */

/**
 * Appends the keys of a tokenizer, with those of tokenizer_config.json, config.json and
 * chat_template.jinja in its folder.
 * @param folder that has tokenizer.json. @param vocab tokens of the model.
 * @return as srt_tokenizer_open(); SRT_ERR_UNSUPPORTED for a tokenizer that readers of GGUF do not
 *         have, with what is unknown.
 */
srt_status_t srt_gguf_put_tokenizer(srt_gguf_keys_t *keys, const char *folder, int64_t vocab);

#endif
