/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory for backends: the free bytes, and memory that other processes can map. Used by
 * backends whose device memory is host memory; each module links a copy.
 */
#ifndef SRT_BACKENDS_COMMON_HOST_MEMORY_H
#define SRT_BACKENDS_COMMON_HOST_MEMORY_H

#include <stddef.h>

#include "device/backend.h"

/* Bytes that this process may still allocate before the kernel kills it, and the limit that
 * applies, for messages. */
typedef struct srt_memory_limit {
	size_t available;
	size_t limit;
	const char *what; /* "the machine's memory", "the memory limit of the cgroup" */
	/* The memory_id of devices whose memory is host memory: equal in processes with the same
	 * limit. Ranks in a cgroup each, with limits, share no memory. */
	unsigned char id[16];
} srt_memory_limit_t;
void srt_memory_limit(srt_memory_limit_t *limit);

/* Fails with a message about `name` if fewer than nbytes are free. */
srt_status_t srt_hostmem_check(const srt_host_services_t *host, size_t nbytes, const char *name);

/* The peer_kind of devices with this kind of peer memory (srt_backend_caps_t). */
#define SRT_HOSTMEM_KIND "host"

/* Shared memory. */
typedef struct srt_hostmem {
	unsigned char *addr;
	size_t mapped; /* bytes, whole pages */
	int fd;        /* -1: a peer's memory */
} srt_hostmem_t;

/* Maps a new memfd with zero bytes. Its pages are allocated in advance, because the first access to
 * a shared page is ten times slower than the second. Its size is sealed, so that a peer cannot
 * truncate it. */
srt_status_t srt_hostmem_create(const srt_host_services_t *host, size_t nbytes, const char *name,
				srt_hostmem_t *mem);
/* Maps a peer's memfd, which must be sealed; protection: PROT_READ, PROT_WRITE. The caller closes
 * the descriptor, which the mapping does not need. */
srt_status_t srt_hostmem_import(const srt_host_services_t *host, const srt_mem_handle_t *handle,
				int protection, srt_hostmem_t *mem);
void srt_hostmem_free(srt_hostmem_t *mem);

#endif
