/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Output of ranks through pipes, with the prefix "[rank] " in front of each line (shardrun
 * --prefix), or with several hosts. Lines of different ranks never mix; the bytes are not changed.
 */
#ifndef SRT_TOOLS_SHARDRUN_OUTPUT_H
#define SRT_TOOLS_SHARDRUN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/shardrun/writer.h"

/* One pipe of one rank. */
typedef struct srt_launch_output {
	int fd; /* reading end, -1 = none or ended */
	srt_launch_writer_t *target;
	char prefix[16];
	bool whole_lines;
	int mid_line; /* the start of this line was too long and is already passed on */
	size_t n;     /* bytes of the unfinished line */
	char line[8192];
} srt_launch_output_t;

/* Makes the pipe; returns the writing end, for the child, or -1. rank: that of the prefix, in
 * `width` characters; -1 = none, or the lines have one already. width 0: the last line is passed on
 * as it is. */
int srt_launch_output_open(srt_launch_output_t *out, int rank, int width,
			   srt_launch_writer_t *target);
/* Whether the target has room for what one read gives. While it has not, the rank has to wait. */
bool srt_launch_output_ready(const srt_launch_output_t *out);
/* Reads once if the target has room, and passes on the lines. Closes the pipe at its end. Returns
 * false if the pipe is empty at present. */
bool srt_launch_output_read(srt_launch_output_t *out);
/* Passes on an unfinished last line and closes; the target must have room. */
void srt_launch_output_close(srt_launch_output_t *out);

#endif
