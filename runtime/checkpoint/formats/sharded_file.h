/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A sharded checkpoint as a file of unsharded tensors, for <shardrt/file.h> (file.c) and
 * <shardrt/checkpoint_file.h>.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_FORMATS_SHARDED_FILE_H
#define SRT_RUNTIME_CHECKPOINT_FORMATS_SHARDED_FILE_H

#include <stdbool.h>

#include <shardrt/file.h>

#include "runtime/checkpoint/formats/safetensors.h"

typedef struct srt_sharded_file srt_sharded_file_t;

/* The handle of <shardrt/file.h>: one of both. */
struct srt_file {
	srt_safetensors_t *plain;
	srt_sharded_file_t *sharded;
};

/* The folder of a checkpoint that a path names, also if a save was killed while it replaced it
 * (folder.h); to be freed. NULL: it is no folder with a manifest, or there is no memory. */
char *srt_sharded_file_folder(const char *path);
/* all: with states of the optimizer. As srt_file_open() of a folder. */
srt_status_t srt_sharded_file_open(const char *folder, bool all, srt_sharded_file_t **file);
/* NULL is allowed. */
void srt_sharded_file_close(srt_sharded_file_t *file);
size_t srt_sharded_file_count(const srt_sharded_file_t *file);
/* Tensor i in the order of names; false past the end. */
bool srt_sharded_file_get(const srt_sharded_file_t *file, size_t i, srt_file_tensor_t *tensor);
/* Number of a tensor; SIZE_MAX: there is none. */
size_t srt_sharded_file_find(const srt_sharded_file_t *file, const char *name);
/* The text of an entry of the program; NULL: there is none. */
const char *srt_sharded_file_text(const srt_sharded_file_t *file, const char *key);
/* As srt_file_read(), of tensor i. */
srt_status_t srt_sharded_file_read(srt_sharded_file_t *file, size_t i, size_t offset, size_t nbytes,
				   void *data);

#endif
