/* SPDX-License-Identifier: BSD-3-Clause */
/* The process of one rank: how to start it, and how it ended. Used by tools/shardrun/shardrun.c. */
#ifndef SRT_TOOLS_SHARDRUN_CHILD_H
#define SRT_TOOLS_SHARDRUN_CHILD_H

#include <signal.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct srt_launch_child {
	pid_t pid;  /* 0 = reaped */
	int status; /* of waitpid, once reaped */
} srt_launch_child_t;

typedef struct srt_launch_spec {
	char **argv;
	int rank; /* -1 = it is not a rank */
	int size;
	int local_rank, local_size;
	int restart_count;   /* 0 = the first start of the job */
	const char *address; /* SHARDRT_BOOTSTRAP; NULL = it and the restarts are set already */
	int in_fd;           /* -1 = /dev/null */
	int out_fd, err_fd;  /* -1 = ours */
	int guard;           /* tools/shardrun/guard.h */
	sigset_t mask;       /* the signal mask of the program at its start */
} srt_launch_spec_t;

/*
 * Starts the program in a new process group. The group is killed when this process ends.
 * Returns 0, or an errno and the action that failed: *what = "run", "fork for", ...
 */
int srt_launch_child_start(const srt_launch_spec_t *spec, srt_launch_child_t *child,
			   const char **what);

/* "exited with status 3", "was killed by signal 9 (Killed)". */
void srt_launch_child_describe(int status, char *text, size_t size);
/* The exit status as a shell reports it: 128 + signal if the process was killed. */
int srt_launch_child_code(int status);

#endif
