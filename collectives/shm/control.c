/* SPDX-License-Identifier: BSD-3-Clause */
/* Control memory of a communicator: see shm/control.h. Sleeping is a futex on the word itself. */
#include "collectives/shm/control.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define SLOTS_NBYTES ((size_t)64 << 10)
#define MIN_SLOTS 16u

static srt_status_t make_memfd(srt_comm_t *comm, size_t nbytes, int *out)
{
	int fd = memfd_create("shardrt-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	/* fallocate: an error here instead of SIGBUS at the first use. */
	if (fd < 0 || fallocate(fd, 0, 0, (off_t)nbytes) != 0 ||
	    fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
		srt_status_t status =
			srt_fail(SRT_ERR_OUT_OF_MEMORY,
				 "rank %d: no %zu bytes of shared control memory: %s",
				 comm->world_rank[comm->rank], nbytes, strerror(errno));
		if (fd >= 0)
			close(fd);
		return status;
	}
	*out = fd;
	return SRT_OK;
}

/* Maps what rank 0 made, if it is what it should be. */
static srt_status_t map_memfd(srt_comm_t *comm, int fd, size_t nbytes, srt_shm_memory_t **out)
{
	int rank = comm->world_rank[comm->rank];
	struct stat st;
	srt_shm_memory_t *memory;
	void *p;

	if (fd < 0)
		return srt_fail(SRT_ERR_SYSTEM, "rank %d got no control memory from rank %d", rank,
				comm->world_rank[0]);
	/* Without the seals the file could be cut away under our feet. */
	if (fstat(fd, &st) != 0 || st.st_size != (off_t)nbytes ||
	    (fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) == 0)
		return srt_fail(SRT_ERR_SYSTEM,
				"rank %d: rank %d's control memory is not sealed "
				"memory of %zu bytes",
				rank, comm->world_rank[0], nbytes);
	memory = srt_calloc(1, sizeof(*memory), "control memory");
	if (memory == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	p = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		free(memory);
		return srt_fail(SRT_ERR_OUT_OF_MEMORY,
				"rank %d cannot map %zu bytes of control memory: %s", rank, nbytes,
				strerror(errno));
	}
	*memory = (srt_shm_memory_t){ .base = p, .nbytes = nbytes, .nusers = 1 };
	*out = memory;
	return SRT_OK;
}

static void release_memory(srt_shm_memory_t *memory)
{
	if (memory == NULL || --memory->nusers > 0)
		return;
	munmap(memory->base, memory->nbytes);
	free(memory);
}

/* Collective: zeroed memory that all ranks share; the caller is its first user. */
static srt_status_t share_memory(srt_comm_t *comm, const char *what, size_t nbytes,
				 srt_shm_memory_t **out)
{
	size_t n = (size_t)comm->size;
	srt_shm_memory_t *memory = NULL;
	srt_status_t status = SRT_OK, passed;
	int fd = -1;
	bool *to = srt_calloc(n, sizeof(*to), what);
	bool *from = srt_calloc(n, sizeof(*from), what);
	int *fds = srt_calloc(n, sizeof(*fds), what);
	unsigned char byte = 0, *bytes = srt_calloc(n, 1, what);

	if (to == NULL || from == NULL || fds == NULL || bytes == NULL) {
		status = SRT_ERR_OUT_OF_MEMORY;
		goto free_tables;
	}
	for (size_t r = 0; r < n; r++) {
		to[r] = comm->rank == 0;
		from[r] = r == 0;
	}
	if (comm->rank == 0)
		status = make_memfd(comm, nbytes, &fd);
	passed = srt_comm_pass(comm, what, to, &byte, 1, fd, from, bytes, fds);
	if (passed != SRT_OK) {
		status = passed;
		goto close_fd;
	}
	if (comm->rank != 0)
		fd = fds[0];
	if (status == SRT_OK)
		status = map_memfd(comm, fd, nbytes, &memory);
	status = srt_comm_agree(comm, what, status);
	if (status == SRT_OK)
		*out = memory;
	else
		release_memory(memory);
close_fd:
	if (fd >= 0)
		close(fd);
free_tables:
	free(bytes);
	free(fds);
	free(from);
	free(to);
	return status;
}

srt_status_t srt_shm_create(srt_comm_t *comm)
{
	size_t log_nbytes = (size_t)comm->size * SRT_SHM_LOG_LENGTH * sizeof(uint64_t);
	size_t nbytes = log_nbytes + sizeof(srt_shm_verdict_t);
	srt_shm_t *shm;
	srt_status_t status;

	if (comm->size == 1)
		return SRT_OK;
	shm = srt_calloc(1, sizeof(*shm), "a communicator");
	if (shm == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = share_memory(comm, "making a communicator", nbytes, &shm->log_memory);
	if (status != SRT_OK) {
		free(shm);
		return status;
	}
	shm->log = (_Atomic uint64_t *)(void *)shm->log_memory->base;
	shm->verdict = (srt_shm_verdict_t *)(void *)(shm->log_memory->base + log_nbytes);
	/* Spinning takes the core that a peer on the same one needs. */
	shm->spin = comm->bootstrap->local_size <= sysconf(_SC_NPROCESSORS_ONLN);
	comm->shm = shm;
	return SRT_OK;
}

void srt_shm_destroy(srt_shm_t *shm)
{
	if (shm == NULL)
		return;
	release_memory(shm->slots);
	release_memory(shm->log_memory);
	free(shm);
}

srt_status_t srt_shm_take_words(srt_comm_t *comm, const char *what, srt_shm_memory_t **memory,
				srt_shm_word_t **words)
{
	srt_shm_t *shm = comm->shm;
	size_t slot = (size_t)comm->size * SRT_SHM_NWORDS * sizeof(srt_shm_word_t);

	/* The same decision on all ranks: they take words in the same order. */
	if (shm->next_slot == shm->nslots) {
		size_t nslots = SLOTS_NBYTES / slot;
		srt_shm_memory_t *fresh;

		if (nslots < MIN_SLOTS)
			nslots = MIN_SLOTS;
		SRT_TRY(share_memory(comm, what, nslots * slot, &fresh));
		release_memory(shm->slots);
		shm->slots = fresh;
		shm->nslots = nslots;
		shm->next_slot = 0;
	}
	*words = (srt_shm_word_t *)(void *)(shm->slots->base + shm->next_slot++ * slot);
	*memory = shm->slots;
	shm->slots->nusers++;
	return SRT_OK;
}

void srt_shm_release_words(srt_shm_memory_t *memory)
{
	release_memory(memory);
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
	return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

void srt_shm_set(srt_shm_word_t *word, uint32_t epoch)
{
	/* Sequentially consistent, like the sleeper's two steps: either it sees the new value, or
	 * we see the sleeper. */
	atomic_store(&word->value, epoch);
	if (atomic_load(&word->nsleepers) != 0)
		futex(&word->value, FUTEX_WAKE, INT32_MAX, NULL);
}

void srt_shm_sleep(srt_shm_word_t *word, uint32_t epoch, double seconds)
{
	struct timespec timeout = {
		.tv_sec = (time_t)seconds,
		.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9),
	};
	uint32_t seen;

	/* A rank killed here leaves the count too high: that costs a system call per epoch. */
	atomic_fetch_add(&word->nsleepers, 1);
	seen = atomic_load(&word->value);
	if ((int32_t)(seen - epoch) < 0)
		futex(&word->value, FUTEX_WAIT, seen, &timeout);
	atomic_fetch_sub(&word->nsleepers, 1);
}

void srt_shm_log_start(srt_comm_t *comm, uint32_t start, uint32_t coll)
{
	size_t i = (size_t)comm->rank * SRT_SHM_LOG_LENGTH + start % SRT_SHM_LOG_LENGTH;

	atomic_store_explicit(&comm->shm->log[i], (uint64_t)start << 32 | coll,
			      memory_order_release);
}

bool srt_shm_logged(const srt_comm_t *comm, int rank, uint32_t start, uint32_t *coll)
{
	size_t i = (size_t)rank * SRT_SHM_LOG_LENGTH + start % SRT_SHM_LOG_LENGTH;
	uint64_t entry = atomic_load_explicit(&comm->shm->log[i], memory_order_acquire);

	*coll = (uint32_t)entry;
	return entry >> 32 == start;
}

bool srt_shm_settle(srt_comm_t *comm, char text[SRT_PEERS_TEXT])
{
	srt_shm_verdict_t *verdict = comm->shm->verdict;
	uint32_t state = 0;

	if (atomic_compare_exchange_strong(&verdict->state, &state, 1)) {
		memcpy(verdict->text, text, SRT_PEERS_TEXT);
		atomic_store_explicit(&verdict->state, 2, memory_order_release);
		return true;
	}
	/* A rank that is killed while it writes poisons by its death. */
	if (state != 2)
		return false;
	memcpy(text, verdict->text, SRT_PEERS_TEXT);
	text[SRT_PEERS_TEXT - 1] = '\0';
	return true;
}
