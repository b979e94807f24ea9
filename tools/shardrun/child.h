/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's process: starting it, and saying how it ended. Used by tools/shardrun/shardrun.c. */
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
	int rank, size;
	const char *address; /* SHARDRT_BOOTSTRAP */
	int keep_stdin;      /* else /dev/null */
	int out_fd, err_fd;  /* -1 = ours */
	sigset_t mask;       /* the signal mask that the program shall start with */
} srt_launch_spec_t;

/*
 * Starts the program in a process group of its own, to be killed when this process dies.
 * Returns 0, or the errno of what failed with *what = "run", "fork" ...
 */
int srt_launch_child_start(const srt_launch_spec_t *spec, srt_launch_child_t *child,
			   const char **what);

/* "exited with status 3", "was killed by signal 9 (Killed)". */
void srt_launch_child_describe(int status, char *text, size_t size);
/* The shell's number: the exit status, or 128 + signal. */
int srt_launch_child_code(int status);

#endif
