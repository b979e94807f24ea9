/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The index of a model of several safetensors files, as transformers writes it: a JSON object whose
 * "weight_map" has the file of each tensor. Other keys, such as "metadata" with the total size, are
 * skipped: the headers of the files have the sizes.
 *
 * Nothing in the text is trusted: names of files are names in the folder of the index, a tensor is
 * named once, and memory is in proportion to the text.
 * Used by model_file.c and the tests.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_FORMATS_INDEX_H
#define SRT_RUNTIME_CHECKPOINT_FORMATS_INDEX_H

#include <stddef.h>

#include <shardrt/status.h>

/* Longest text of an index, in bytes, and most files that it may name. */
#define SRT_INDEX_MAX_NBYTES ((size_t)100000000)
#define SRT_INDEX_MAX_FILES 99999

/* A tensor and its file. Strings live as long as the text. */
typedef struct srt_index_tensor {
	const char *name, *file;
} srt_index_tensor_t;

/* A parsed index; tensors in the order of names, each file once, in the order of names. */
typedef struct srt_index {
	size_t ntensors, tensor_room, nfiles;
	srt_index_tensor_t *tensors;
	const char **files;
} srt_index_t;

/*
 * Parses and checks an index. `text` has nbytes bytes and a terminating zero; strings are decoded
 * in it, and the index refers to it. `index` is all zero at the call; the caller frees it in any
 * case. SRT_ERR_FORMAT: malformed, the message says what and where.
 */
srt_status_t srt_index_parse(char *text, size_t nbytes, srt_index_t *index);
/* Number of a file in index->files, which must have it. */
size_t srt_index_file(const srt_index_t *index, const char *name);
/* Frees the tables. */
void srt_index_free(srt_index_t *index);

#endif
