/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tensors of an engine on their way to a file: pieces of host memory, in order -> rounded to the
 * dtype of the file, at the places that they have there. Takes a piece and one block of memory.
 * Called by save.c on rank 0.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_OUTPUT_H
#define SRT_RUNTIME_CHECKPOINT_OUTPUT_H

#include <shardrt/file.h>

#include "runtime/checkpoint/cast.h"

/* Bytes of the block in which rows of a transposed tensor are collected; a longer row is one. */
#define SRT_OUTPUT_BLOCK_NBYTES ((size_t)4 << 20)

/* A tensor in the engine and in the file. */
typedef struct srt_output_tensor {
	srt_dtype_t from, to;
	int64_t nelem;
	int64_t rows, columns; /* of a transposed one, in the engine; 0: it is not transposed */
	int64_t heads;         /* interleaved in the file; 0: none */
} srt_output_tensor_t;

typedef struct srt_output {
	srt_file_writer_t *writer; /* has the tensors in the order of the list */
	const srt_output_tensor_t *tensors;
	size_t ntensors;
	srt_stream_t *stream; /* rounds */
	srt_cast_t cast;
	void *rounded; /* a piece; NULL: no tensor is rounded */
	char *block;   /* NULL: no tensor is transposed */
} srt_output_t;

/* Allocates what the tensors need, whose list and writer are the caller's. To be closed also after
 * a failure. */
srt_status_t srt_output_open(srt_output_t *output);
void srt_output_close(srt_output_t *output);
/* Writes the piece of tensor i that begins at this byte; at most SRT_CAST_NELEM elements. */
srt_status_t srt_output_put(const srt_output_t *output, size_t i, size_t offset, const void *bytes,
			    size_t nbytes);

#endif
