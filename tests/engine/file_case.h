/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of files and folders with other names and layouts have in common: an engine, and a
 * file of its tensors. Element i of tensor k is 1000003 * k + 65599 * i, modulo 2^24, in the
 * engine, for every strategy and flat form; neighbours differ in bf16, too.
 */
#ifndef SRT_TESTS_FILE_CASE_H
#define SRT_TESTS_FILE_CASE_H

#include <shardrt/shardrt.h>

#include "tests/harness/check.h"

enum { FILE_NTENSORS = 10 };

typedef struct file_tensor {
	const char *name, *in_file;
	int ndim;
	int64_t shape[2];
	int transposed;
	int64_t heads; /* interleaved in the file */
} file_tensor_t;

extern const file_tensor_t file_tensors[FILE_NTENSORS];

int64_t file_count(int k);
float file_value(int k, int64_t i);
/* The values of tensor k as the file has them; to be freed. */
float *file_make_values(int k);
/* Writes them, and a constant. Tensor `missing` is left out, `wrong` has its sizes as the engine.
 * -1: none. */
void file_write(const char *path, int missing, int wrong);
/* srt_file_names_t.find. */
int file_find(const char *name, srt_file_source_t *source, void *arg);
/* As file_find(), but two heads of "plain" are interleaved, which cannot be. */
int file_find_heads(const char *name, srt_file_source_t *source, void *arg);
/* Knows no name. */
int file_find_none(const char *name, srt_file_source_t *source, void *arg);
srt_engine_t *file_create_engine(srt_context_t *context, srt_strategy_t strategy, srt_flat_t flat);
/* The engine has the values, rounded once to this dtype. */
void file_check_values(srt_engine_t *engine, srt_dtype_t dtype, srt_stream_t *stream);

#endif
