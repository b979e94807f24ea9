/* SPDX-License-Identifier: BSD-3-Clause */
/* Output of ranks with a prefix: see tools/shardrun/output.h. */
#include "tools/shardrun/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int srt_launch_output_open(srt_launch_output_t *out, int rank, int width, int target)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -1;
	/* Only on this end: the program must not see O_NONBLOCK. */
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	out->fd = fds[0];
	out->target = target;
	out->n = 0;
	out->mid_line = 0;
	snprintf(out->prefix, sizeof(out->prefix), "[%*d] ", width, rank);
	return fds[1];
}

/* Writes all bytes. If the reader is gone, drops them, and the ranks continue. */
static void write_all(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t done = write(fd, p, n);

		if (done >= 0) {
			p += done;
			n -= (size_t)done;
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			struct pollfd wait = { .fd = fd, .events = POLLOUT };
			poll(&wait, 1, -1);
		} else if (errno != EINTR) {
			return;
		}
	}
}

/* Writes the collected part of a line. ends: it ends with a newline. */
static void flush_line(srt_launch_output_t *out, int ends)
{
	char buffer[sizeof(out->prefix) + sizeof(out->line)];
	size_t k = 0;

	if (!out->mid_line) {
		k = strlen(out->prefix);
		memcpy(buffer, out->prefix, k);
	}
	memcpy(buffer + k, out->line, out->n);
	/* One write for the line: it does not mix with lines of other writers. */
	write_all(out->target, buffer, k + out->n);
	out->n = 0;
	out->mid_line = !ends;
}

void srt_launch_output_read(srt_launch_output_t *out)
{
	char chunk[16384];
	ssize_t got;

	while (out->fd >= 0) {
		got = read(out->fd, chunk, sizeof(chunk));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (got <= 0) {
			srt_launch_output_close(out);
			return;
		}
		for (ssize_t i = 0; i < got; i++) {
			out->line[out->n++] = chunk[i];
			if (chunk[i] == '\n')
				flush_line(out, 1);
			else if (out->n == sizeof(out->line))
				flush_line(out, 0);
		}
	}
}

void srt_launch_output_close(srt_launch_output_t *out)
{
	if (out->fd < 0)
		return;
	if (out->n > 0) {
		/* The next rank's line starts on a new line. */
		flush_line(out, 1);
		write_all(out->target, "\n", 1);
	}
	close(out->fd);
	out->fd = -1;
}
