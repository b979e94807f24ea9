/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's process: see tools/shardrun/child.h. */
#include "tools/shardrun/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/shardrun/guard.h"

static int set_number(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	return setenv(name, text, 1);
}

static bool set_environment(const srt_launch_spec_t *spec)
{
	if (spec->rank < 0)
		return true;
	if (spec->address != NULL &&
	    (setenv("SHARDRT_BOOTSTRAP", spec->address, 1) != 0 ||
	     set_number("SHARDRT_RESTART_COUNT", spec->restart_count) != 0))
		return false;
	return set_number("SHARDRT_RANK", spec->rank) == 0 &&
	       set_number("SHARDRT_WORLD_SIZE", spec->size) == 0 &&
	       set_number("SHARDRT_LOCAL_RANK", spec->local_rank) == 0 &&
	       set_number("SHARDRT_LOCAL_SIZE", spec->local_size) == 0;
}

/* In the child; returns only on failure. */
static void exec_program(const srt_launch_spec_t *spec, pid_t parent)
{
	setpgid(0, 0);
	srt_launch_guard_add(spec->guard, getpid());
	/* If the launcher and the guard are killed, the rank still ends. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		return;
	if (getppid() != parent) {
		errno = ESRCH; /* it ended before prctl() */
		return;
	}
	int in_fd = spec->in_fd >= 0 ? spec->in_fd : open("/dev/null", O_RDONLY);
	if (in_fd < 0 || (in_fd != STDIN_FILENO && dup2(in_fd, STDIN_FILENO) < 0))
		return;
	if (in_fd != STDIN_FILENO)
		close(in_fd);
	if ((spec->out_fd >= 0 && dup2(spec->out_fd, STDOUT_FILENO) < 0) ||
	    (spec->err_fd >= 0 && dup2(spec->err_fd, STDERR_FILENO) < 0))
		return;
	if (!set_environment(spec))
		return;
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &spec->mask, NULL);
	execvp(spec->argv[0], spec->argv);
}

int srt_launch_child_start(const srt_launch_spec_t *spec, srt_launch_child_t *child,
			   const char **what)
{
	int report[2], err = 0;
	pid_t parent = getpid();
	ssize_t n;

	*what = "make a pipe for";
	if (pipe2(report, O_CLOEXEC) != 0)
		return errno;
	*what = "fork for";
	pid_t pid = fork();
	if (pid < 0) {
		err = errno;
		close(report[0]);
		close(report[1]);
		return err;
	}
	if (pid == 0) {
		exec_program(spec, parent);
		err = errno;
		n = write(report[1], &err, sizeof(err));
		_exit(127);
	}
	setpgid(pid, pid); /* also here, as either may run first; an error after exec is ignored */
	close(report[1]);
	/* The pipe closes when the program has started. */
	do {
		n = read(report[0], &err, sizeof(err));
	} while (n < 0 && errno == EINTR);
	close(report[0]);
	if (n == (ssize_t)sizeof(err)) {
		srt_launch_guard_remove(spec->guard, pid);
		while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
		*what = "run";
		return err;
	}
	child->pid = pid;
	return 0;
}

void srt_launch_child_describe(int status, char *text, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else
		snprintf(text, size, "exited with status %d", WEXITSTATUS(status));
}

int srt_launch_child_code(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
