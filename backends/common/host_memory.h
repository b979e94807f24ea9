/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory for backends: how much is left, and memory that other processes can map. Used by
 * backends whose device memory is the host's; a module carries its own copy.
 */
#ifndef SRT_BACKENDS_COMMON_HOST_MEMORY_H
#define SRT_BACKENDS_COMMON_HOST_MEMORY_H

#include <stddef.h>

#include "device/backend.h"

/* Bytes that this process may still take before the machine or its cgroup kills it, and the limit
 * that decides, for messages. */
typedef struct srt_memory_limit {
	size_t available;
	size_t limit;
	const char *what; /* "the machine's memory", "the memory limit of the cgroup" */
} srt_memory_limit_t;
void srt_memory_limit(srt_memory_limit_t *limit);

/* Fails with a sentence about `name` if that many bytes are not left. */
srt_status_t srt_hostmem_check(const srt_host_services_t *host, size_t nbytes, const char *name);

/* What devices say whose peer memory is of this kind (srt_backend_caps_t). */
#define SRT_HOSTMEM_KIND "host"
/* Likewise of all that is the host's memory. */
#define SRT_HOSTMEM_ID "host memory"

/* Shared memory. */
typedef struct srt_hostmem {
	unsigned char *addr;
	size_t mapped; /* bytes, whole pages */
	int fd;
} srt_hostmem_t;

/* A memfd, mapped and filled in advance (the first touch of shared pages is ten times slower than
 * the second), its bytes zero; its size is sealed, so that no rank can cut it away under another's
 * feet. */
srt_status_t srt_hostmem_create(const srt_host_services_t *host, size_t nbytes, const char *name,
				srt_hostmem_t *mem);
/* Maps a peer's; takes the descriptor over on success. */
srt_status_t srt_hostmem_import(const srt_host_services_t *host, const srt_mem_handle_t *handle,
				srt_hostmem_t *mem);
void srt_hostmem_free(srt_hostmem_t *mem);

#endif
