/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's process: starting it, and describing how it ended. Used by tools/shardrun/shardrun.c. */
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
	int out_fd, err_fd;  /* -1 = inherited */
	sigset_t mask;       /* the signal mask of the program */
} srt_launch_spec_t;

/*
 * Starts the program in a new process group, which is killed when this process dies. Returns 0, or
 * an errno with *what = the step that failed: "run", "fork for" ...
 */
int srt_launch_child_start(const srt_launch_spec_t *spec, srt_launch_child_t *child,
			   const char **what);

/* "exited with status 3", "was killed by signal 9 (Killed)". */
void srt_launch_child_describe(int status, char *text, size_t size);
/* The exit code as a shell reports it: the exit status, or 128 + signal. */
int srt_launch_child_code(int status);

#endif
