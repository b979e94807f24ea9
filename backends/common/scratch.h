/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scratch of a stream: device memory that the stream's tuned operations use one after the other.
 * srt_stream_reserve() allocates it in advance; else it grows when an operation needs more. Only
 * the thread that submits uses it. Each module links a copy.
 */
#ifndef SRT_BACKENDS_COMMON_SCRATCH_H
#define SRT_BACKENDS_COMMON_SCRATCH_H

#include <stdatomic.h>

#include "device/backend.h"

/* Scratch state that a device's streams share; zero-initialised except the first three. */
typedef struct srt_scratch_owner {
	const srt_host_services_t *host;
	const srt_backend_mem_ops_t *mem;
	void *device;
	atomic_size_t nbytes;          /* of all streams */
	_Atomic uint64_t nallocations; /* so far */
} srt_scratch_owner_t;

typedef struct srt_scratch_block {
	struct srt_scratch_block *older;
	void *mem;
	size_t nbytes;
} srt_scratch_block_t;

typedef struct srt_scratch {
	srt_scratch_owner_t *owner;
	srt_scratch_block_t *newest; /* NULL: none yet */
} srt_scratch_t;

/* Ensures that the newest block has at least nbytes; it stays the newest until the next call. Its
 * contents are undefined. Older blocks remain, because work in the stream may still use them. */
srt_status_t srt_scratch_provide(srt_scratch_t *scratch, size_t nbytes);
/* srt_scratch_provide() that replaces all blocks by one; the stream is idle. */
srt_status_t srt_scratch_reserve(srt_scratch_t *scratch, size_t nbytes);
/* The newest block's memory object; NULL: none yet. */
static inline void *srt_scratch_mem(const srt_scratch_t *scratch)
{
	return scratch->newest != NULL ? scratch->newest->mem : NULL;
}
/* Frees all blocks; the stream is idle. */
void srt_scratch_free(srt_scratch_t *scratch);

#endif
