/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A parameter whose rows are the queries of all heads, then the keys, then the values, in a file
 * that has the query, key and value of each head together (srt_file_source_t.interleaved_heads).
 * Used by load.c and save.c.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_INTERLEAVED_H
#define SRT_RUNTIME_CHECKPOINT_INTERLEAVED_H

#include <stdint.h>

/* Where element `at` of a parameter of nelem elements is in the file. *run: the elements from it on
 * that follow each other in both. heads: 0: all do. */
static inline int64_t srt_interleaved_find(int64_t at, int64_t nelem, int64_t heads, int64_t *run)
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
