/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the elements of a parameter are in a file with another layout (srt_file_source_t).
 * Called by load.c and save.c.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_SOURCE_H
#define SRT_RUNTIME_CHECKPOINT_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include <shardrt/checkpoint.h>

/* What a file is asked for: a parameter or buffer of the engine. */
typedef struct srt_needed {
	const char *name;
	srt_dtype_t dtype;
	int ndim;
	const int64_t *shape;
	bool is_buffer;
} srt_needed_t;

/* SRT_ERR_INVALID_ARGUMENT for a layout that the tensor cannot have. */
srt_status_t srt_source_check(const srt_file_source_t *source, const srt_needed_t *needed);

/* Where element `at` of a tensor of nelem elements is in a file with interleaved heads. *run: the
 * elements from it on that follow each other in both. heads: 0: all do. */
static inline int64_t srt_source_find(int64_t at, int64_t nelem, int64_t heads, int64_t *run)
{
	int64_t block, i;

	*run = nelem - at;
	if (heads == 0)
		return at;
	block = nelem / (3 * heads); /* the rows of one head in the query, key or value */
	i = at / block;
	*run = (i + 1) * block - at;
	return (i % heads * 3 + i / heads) * block + at % block;
}

#endif
