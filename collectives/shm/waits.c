/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Warnings of long waits. A wait that is too long is mostly that of a rank that called something
 * else than the others. So each rank shares what it waits for, and the warning has it of all ranks.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comm.h"

#define WARN_S 10.0

double srt_wait_warn_s(const srt_comm_t *comm)
{
	const double half = comm->bootstrap->timeout_s / 2;

	return half < WARN_S ? half : WARN_S;
}

void srt_wait_publish(srt_comm_t *comm, const char *what)
{
	uint64_t words[SRT_WAIT_NWORDS] = { 0 };
	size_t n = strlen(what);
	srt_wait_t *wait;

	if (comm->bootstrap->waits == NULL) /* the world is being created */
		return;
	memcpy(words, what, n < sizeof(words) ? n : sizeof(words) - 1);
	wait = &comm->bootstrap->waits[comm->world_rank[comm->rank]];
	for (size_t i = 0; i < SRT_WAIT_NWORDS; i++)
		atomic_store_explicit(&wait->words[i], words[i], memory_order_relaxed);
}

void srt_wait_read(const srt_comm_t *comm, int rank, char text[SRT_WAIT_TEXT])
{
	srt_wait_t *wait = &comm->bootstrap->waits[comm->world_rank[rank]];

	for (size_t i = 0; i < SRT_WAIT_NWORDS; i++) {
		const uint64_t word = atomic_load_explicit(&wait->words[i], memory_order_relaxed);

		memcpy(text + i * sizeof(word), &word, sizeof(word));
	}
	text[SRT_WAIT_TEXT - 1] = '\0';
}

/* Whether a process is stopped, by /proc: "PID (NAME) STATE ...". */
static bool is_stopped(int32_t pid)
{
	char path[64], stat[256];
	const char *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, stat, sizeof(stat) - 1);
	close(fd);
	stat[n > 0 ? n : 0] = '\0';
	state = strrchr(stat, ')');
	return state != NULL && (state[1] == ' ' && (state[2] == 'T' || state[2] == 't'));
}

void srt_wait_list_stopped(const srt_comm_t *comm, char *text, size_t size)
{
	const srt_bootstrap_t *b = comm->bootstrap;
	size_t n = 0;

	text[0] = '\0';
	for (int r = 0; b->pid_of != NULL && r < b->world_size && n < size; r++) {
		if (b->pid_of[r] != 0 && is_stopped(b->pid_of[r]))
			n += (size_t)snprintf(text + n, size - n,
					      "; rank %d is stopped (SIGSTOP or a debugger)", r);
	}
}

void srt_wait_warn(const srt_comm_t *comm, const char *what, double waited_s)
{
	char text[SRT_WAIT_TEXT], others[640] = "", stopped[160];
	size_t n = 0;

	for (int r = 0; comm->bootstrap->waits != NULL && r < comm->size && n + 1 < sizeof(others);
	     r++) {
		if (r == comm->rank)
			continue;
		srt_wait_read(comm, r, text);
		n += (size_t)snprintf(others + n, sizeof(others) - n, "; rank %d %s%s",
				      comm->world_rank[r],
				      text[0] != '\0' ? "waits in " : "waits for no other rank",
				      text);
	}
	srt_wait_list_stopped(comm, stopped, sizeof(stopped));
	srt_log(SRT_LOG_WARN,
		"rank %d has waited %.3g s in %s on communicator \"%s\"%s%s; all ranks must call "
		"the same functions in the same order",
		comm->world_rank[comm->rank], waited_s, what, comm->name, others, stopped);
}
