/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing without waiting for the reader: see tools/shardrun/writer.h. */
#include "tools/shardrun/writer.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* Up to PIPE_BUF bytes, which a pipe takes as a whole, in whole lines if possible: so lines do not
 * mix with those of other writers. */
static size_t get_piece(const char *p, size_t n)
{
	const char *end;

	if (n <= PIPE_BUF)
		return n;
	end = memrchr(p, '\n', PIPE_BUF);
	return end != NULL ? (size_t)(end - p) + 1 : PIPE_BUF;
}

static void add_progress(srt_launch_writer_t *w, size_t n)
{
	const uint64_t one = 1;

	pthread_mutex_lock(&w->mutex);
	w->nwriting -= n;
	w->nwritten += n;
	pthread_mutex_unlock(&w->mutex);
	ssize_t ignored = write(w->wake, &one, sizeof(one));
	(void)ignored; /* a full counter also wakes */
}

/* Writes all bytes. If the reader is gone, drops them, and the ranks continue. */
static void write_all(srt_launch_writer_t *w, size_t n)
{
	const char *p = w->writing;

	while (n > 0) {
		size_t piece = get_piece(p, n);
		ssize_t done = write(w->fd, p, piece);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			poll(&(struct pollfd){ .fd = w->fd, .events = POLLOUT }, 1, -1);
			continue;
		}
		if (done < 0)
			done = (ssize_t)n;
		add_progress(w, (size_t)done);
		p += done;
		n -= (size_t)done;
	}
}

static void *run_writer(void *arg)
{
	srt_launch_writer_t *w = arg;

	for (;;) {
		size_t n;

		pthread_mutex_lock(&w->mutex);
		while (w->n == 0)
			pthread_cond_wait(&w->filled, &w->mutex);
		n = w->nwriting = w->n;
		memcpy(w->writing, w->waiting, n);
		w->n = 0;
		pthread_mutex_unlock(&w->mutex);
		write_all(w, n);
	}
	return NULL;
}

int srt_launch_writer_start(srt_launch_writer_t *w, int fd, int wake)
{
	pthread_t thread;
	int err;

	w->fd = fd;
	w->wake = wake;
	pthread_mutex_init(&w->mutex, NULL);
	pthread_cond_init(&w->filled, NULL);
	err = pthread_create(&thread, NULL, run_writer, w);
	if (err == 0)
		pthread_detach(thread);
	return err;
}

size_t srt_launch_writer_room(srt_launch_writer_t *w)
{
	size_t room;

	pthread_mutex_lock(&w->mutex);
	room = sizeof(w->waiting) - w->n;
	pthread_mutex_unlock(&w->mutex);
	return room;
}

bool srt_launch_writer_put(srt_launch_writer_t *w, const char *bytes, size_t n)
{
	bool fits;

	pthread_mutex_lock(&w->mutex);
	fits = n <= sizeof(w->waiting) - w->n;
	if (fits && !w->dropping) {
		memcpy(w->waiting + w->n, bytes, n);
		w->n += n;
		pthread_cond_signal(&w->filled);
	}
	pthread_mutex_unlock(&w->mutex);
	return fits;
}

size_t srt_launch_writer_left(srt_launch_writer_t *w, size_t *nwritten)
{
	size_t left;

	pthread_mutex_lock(&w->mutex);
	left = w->dropping ? 0 : w->n + w->nwriting;
	*nwritten = w->nwritten;
	pthread_mutex_unlock(&w->mutex);
	return left;
}

void srt_launch_writer_drop(srt_launch_writer_t *w)
{
	pthread_mutex_lock(&w->mutex);
	w->dropping = true;
	w->n = 0;
	pthread_mutex_unlock(&w->mutex);
}
