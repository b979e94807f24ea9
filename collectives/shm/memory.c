/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that ranks of a node share: a sealed memfd, created by one rank, sent over the control
 * channel and mapped by the others. Used for control memory (shm/control.c) and for bounce buffers
 * (transports/staged/bounce.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/memfd.h"
#include "collectives/comm.h"
#include "collectives/shm/control.h"

static srt_status_t make_memfd(srt_comm_t *comm, const char *what, size_t nbytes, int *out)
{
	int fd = memfd_create("shardrt-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || !srt_memfd_allocate(fd, nbytes) || !srt_memfd_seal(fd)) {
		srt_status_t status =
			srt_fail(SRT_ERR_OUT_OF_MEMORY,
				 "rank %d: %s: cannot allocate %s of shared memory: %s",
				 comm->world_rank[comm->rank], what, srt_bytes(nbytes).text,
				 strerror(errno));
		if (fd >= 0)
			close(fd);
		return status;
	}
	*out = fd;
	return SRT_OK;
}

/* Maps the memory of `owner`, after checks of its size and seals. */
static srt_status_t map_memfd(srt_comm_t *comm, int owner, int fd, size_t nbytes,
			      srt_shm_memory_t **out)
{
	int rank = comm->world_rank[comm->rank];
	srt_shm_memory_t *memory;
	void *p;

	if (fd < 0)
		return srt_fail(SRT_ERR_SYSTEM, "rank %d received no shared memory from rank %d",
				rank, comm->world_rank[owner]);
	if (!srt_memfd_is_sealed(fd, nbytes))
		return srt_fail(SRT_ERR_SYSTEM,
				"rank %d: rank %d's shared memory is not sealed "
				"memory of %s",
				rank, comm->world_rank[owner], srt_bytes(nbytes).text);
	memory = srt_calloc(1, sizeof(*memory), "shared memory");
	if (memory == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED) {
		free(memory);
		return srt_fail(SRT_ERR_OUT_OF_MEMORY, "rank %d cannot map %s of shared memory: %s",
				rank, srt_bytes(nbytes).text, strerror(errno));
	}
	*memory = (srt_shm_memory_t){ .base = p, .nbytes = nbytes, .nusers = 1 };
	*out = memory;
	return SRT_OK;
}

void srt_shm_release(srt_shm_memory_t *memory)
{
	if (memory == NULL || --memory->nusers > 0)
		return;
	munmap(memory->base, memory->nbytes);
	free(memory);
}

/* Sends descriptors from the owners (owner[r]: rank r creates one) to all ranks and maps them. */
static srt_status_t share_memory(srt_comm_t *comm, const char *what, const bool *owner,
				 size_t nbytes, srt_shm_memory_t **memory)
{
	size_t n = (size_t)comm->size;
	unsigned char byte = 0, *bytes = srt_comm_calloc(comm, n, 1, what);
	int *fds = srt_comm_calloc(comm, n, sizeof(*fds), what);
	bool *to = srt_comm_calloc(comm, n, sizeof(*to), what);
	srt_status_t status = SRT_OK, passed;
	int fd = -1;

	if (bytes == NULL || fds == NULL || to == NULL) {
		status = SRT_ERR_OUT_OF_MEMORY;
		goto free_tables;
	}
	for (size_t r = 0; r < n; r++)
		to[r] = owner[comm->rank];
	if (owner[comm->rank])
		status = make_memfd(comm, what, nbytes, &fd);
	passed = srt_comm_exchange_fds(comm, what, to, &byte, 1, fd, owner, bytes, fds);
	if (passed != SRT_OK) {
		status = passed;
		goto close_fd;
	}
	fds[comm->rank] = fd;
	for (int r = 0; r < comm->size; r++) {
		if (owner[r] && status == SRT_OK)
			status = map_memfd(comm, r, fds[r], nbytes, &memory[r]);
		if (r != comm->rank && fds[r] >= 0)
			close(fds[r]);
	}
	status = srt_comm_status_consensus(comm, what, status);
	for (int r = 0; r < comm->size && status != SRT_OK; r++) {
		srt_shm_release(memory[r]);
		memory[r] = NULL;
	}
close_fd:
	if (fd >= 0)
		close(fd);
free_tables:
	free(to);
	free(fds);
	free(bytes);
	return status;
}

srt_status_t srt_shm_share(srt_comm_t *comm, const char *what, size_t nbytes,
			   srt_shm_memory_t **out)
{
	size_t n = (size_t)comm->size;
	srt_shm_memory_t **memory = srt_comm_calloc(comm, n, sizeof(*memory), what);
	bool *owner = srt_comm_calloc(comm, n, sizeof(*owner), what);
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (memory != NULL && owner != NULL) {
		owner[0] = true;
		status = share_memory(comm, what, owner, nbytes, memory);
	}
	if (status == SRT_OK)
		*out = memory[0];
	free(owner);
	free(memory);
	return status;
}

srt_status_t srt_shm_share_each(srt_comm_t *comm, const char *what, size_t nbytes,
				srt_shm_memory_t **memory)
{
	bool *owner = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*owner), what);
	srt_status_t status;

	if (owner == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int r = 0; r < comm->size; r++)
		owner[r] = true;
	status = share_memory(comm, what, owner, nbytes, memory);
	free(owner);
	return status;
}
