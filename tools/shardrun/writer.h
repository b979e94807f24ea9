/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writing to a descriptor whose reader may stall, without waiting for it: a thread writes from a
 * buffer of limited size. Polling for POLLOUT would not do: a write to a terminal, a socket or a
 * file of a network may wait all the same, and O_NONBLOCK would change the descriptor for the other
 * processes that share it. Used by tools/shardrun/output.c and shardrun.c.
 */
#ifndef SRT_TOOLS_SHARDRUN_WRITER_H
#define SRT_TOOLS_SHARDRUN_WRITER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define SRT_LAUNCH_WRITER_NBYTES ((size_t)256 << 10)

typedef struct srt_launch_writer {
	int fd;
	int wake; /* an eventfd of the caller: written to when the thread has made progress */
	pthread_mutex_t mutex;
	pthread_cond_t filled;
	size_t n;        /* bytes in `waiting` */
	size_t nwriting; /* bytes that the thread has still to write */
	size_t nwritten; /* in all: shows progress */
	bool dropping;   /* the reader was given up */
	char waiting[SRT_LAUNCH_WRITER_NBYTES], writing[SRT_LAUNCH_WRITER_NBYTES];
} srt_launch_writer_t;

/* Starts the thread; the writer lives until the process ends. Returns 0 or an errno. */
int srt_launch_writer_start(srt_launch_writer_t *w, int fd, int wake);

/* How many bytes srt_launch_writer_put() takes. */
size_t srt_launch_writer_room(srt_launch_writer_t *w);
/* Takes all bytes, or none if there is no room. */
bool srt_launch_writer_put(srt_launch_writer_t *w, const char *bytes, size_t n);

/* Bytes that are not yet written; *nwritten = bytes written so far. */
size_t srt_launch_writer_left(srt_launch_writer_t *w, size_t *nwritten);
/* Drops what is not yet written, and all that comes. */
void srt_launch_writer_drop(srt_launch_writer_t *w);

#endif
