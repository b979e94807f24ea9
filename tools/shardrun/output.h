/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Output of ranks through pipes, with the prefix "[rank] " in front of each line (shardrun
 * --prefix). Lines of different ranks never mix; the bytes are not changed.
 */
#ifndef SRT_TOOLS_SHARDRUN_OUTPUT_H
#define SRT_TOOLS_SHARDRUN_OUTPUT_H

#include <stddef.h>

/* One pipe of one rank. */
typedef struct srt_launch_output {
	int fd;     /* reading end, -1 = none or ended */
	int target; /* the descriptor that the lines are written to */
	char prefix[16];
	int mid_line; /* the start of this line was too long and is already written */
	size_t n;     /* bytes of the unfinished line */
	char line[8192];
} srt_launch_output_t;

/* Makes the pipe; returns the writing end, for the child, or -1. */
int srt_launch_output_open(srt_launch_output_t *out, int rank, int width, int target);
/* Passes on the available bytes. Closes the pipe at its end. */
void srt_launch_output_read(srt_launch_output_t *out);
/* Writes an unfinished last line and closes. */
void srt_launch_output_close(srt_launch_output_t *out);

#endif
