/* SPDX-License-Identifier: BSD-3-Clause */
/* Options, help and messages of shardrun. Used by tools/shardrun/shardrun.c. */
#ifndef SRT_TOOLS_SHARDRUN_OPTIONS_H
#define SRT_TOOLS_SHARDRUN_OPTIONS_H

#include <stdbool.h>

#include "tools/shardrun/writer.h"

/* Exit statuses of shardrun, apart from those of ranks. */
#define SRT_LAUNCH_USAGE 2
#define SRT_LAUNCH_TIMEOUT 124
#define SRT_LAUNCH_CANNOT_RUN 126
#define SRT_LAUNCH_NOT_FOUND 127

typedef struct srt_launch_options {
	int nranks;
	bool prefix, keep_going, quiet;
	double timeout_s; /* 0 = none */
	double grace_s;
	int restarts;           /* at most */
	double restart_delay_s; /* before the first one; parsing: < 0 = not given */
	int min_ranks;          /* 0 = always nranks */
	int batch;              /* which the number of ranks divides, if it may change */
	double window_s;        /* two failures within this time are one cause */
	const char *hosts;      /* NULL = this machine; see hosts.h */
	const char *rsh;        /* the remote shell, for a shell */
	const char *part_of;    /* --part: this host's name; NULL = the whole job */
	int first, world_size;
	char **argv;
} srt_launch_options_t;

/* Returns -1, or the exit status after it has printed the help, the version or an error. */
int srt_launch_parse(int argc, char **argv, srt_launch_options_t *o);

/* "shardrun: ..." to standard error, in one write, so that it does not mix with output of ranks. Does
 * not wait for the reader after srt_launch_say_by() named a writer. */
void srt_launch_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void srt_launch_say_by(srt_launch_writer_t *writer);

#endif
