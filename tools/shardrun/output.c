/* SPDX-License-Identifier: BSD-3-Clause */
/* Output of ranks with a prefix: see tools/shardrun/output.h. */
#include "tools/shardrun/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_NBYTES 4096
/* Each byte of a chunk may be a newline and get a prefix. The rest is for the unfinished line, and
 * for messages of shardrun, which do not wait. */
#define ROOM_NBYTES (SRT_LAUNCH_WRITER_NBYTES / 2)

_Static_assert(ROOM_NBYTES >= CHUNK_NBYTES * (sizeof(((srt_launch_output_t *)0)->prefix) + 1) +
				      4 * sizeof(((srt_launch_output_t *)0)->line),
	       "the lines of a chunk fit");

int srt_launch_output_open(srt_launch_output_t *out, int rank, int width,
			   srt_launch_writer_t *target)
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
	out->whole_lines = width > 0;
	out->prefix[0] = '\0';
	if (rank >= 0)
		snprintf(out->prefix, sizeof(out->prefix), "[%*d] ", width, rank);
	return fds[1];
}

/* Passes on the collected part of a line. ends: it ends with a newline. */
static void flush_line(srt_launch_output_t *out, int ends)
{
	if (!out->mid_line)
		srt_launch_writer_put(out->target, out->prefix, strlen(out->prefix));
	srt_launch_writer_put(out->target, out->line, out->n);
	out->n = 0;
	out->mid_line = !ends;
}

bool srt_launch_output_ready(const srt_launch_output_t *out)
{
	return srt_launch_writer_room(out->target) >= ROOM_NBYTES;
}

bool srt_launch_output_read(srt_launch_output_t *out)
{
	char chunk[CHUNK_NBYTES];
	ssize_t got;

	if (out->fd < 0 || !srt_launch_output_ready(out))
		return true;
	got = read(out->fd, chunk, sizeof(chunk));
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return false;
	if (got < 0 && errno == EINTR)
		return true;
	if (got <= 0)
		srt_launch_output_close(out);
	for (ssize_t i = 0; i < got; i++) {
		out->line[out->n++] = chunk[i];
		if (chunk[i] == '\n')
			flush_line(out, 1);
		else if (out->n == sizeof(out->line))
			flush_line(out, 0);
	}
	return true;
}

void srt_launch_output_close(srt_launch_output_t *out)
{
	if (out->fd < 0)
		return;
	if (out->n > 0 || out->mid_line) {
		flush_line(out, 1);
		/* The next rank's line starts on a new line. */
		if (out->whole_lines)
			srt_launch_writer_put(out->target, "\n", 1);
	}
	close(out->fd);
	out->fd = -1;
}
