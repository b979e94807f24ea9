/* SPDX-License-Identifier: BSD-3-Clause */
/* The guard's process: see tools/shardrun/guard.h. A report is a pid to add, or -pid to remove. */
#include "tools/shardrun/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "collectives/bootstrap/wire.h"

static _Noreturn void run_guard(int reports)
{
	pid_t groups[SRT_WIRE_MAX_LOCAL], report;
	size_t n = 0;
	ssize_t got;

	while ((got = read(reports, &report, sizeof(report))) > 0 || (got < 0 && errno == EINTR)) {
		if (got < 0)
			continue;
		if (report > 0 && n < SRT_WIRE_MAX_LOCAL)
			groups[n++] = report;
		for (size_t i = 0; report < 0 && i < n; i++) {
			if (groups[i] == -report)
				groups[i] = groups[--n];
		}
	}
	while (n > 0)
		kill(-groups[--n], SIGKILL);
	_exit(0);
}

int srt_launch_guard_start(void)
{
	int fds[2], null;
	sigset_t all;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -1;
	pid_t pid = fork();
	if (pid != 0) {
		close(fds[0]);
		if (pid > 0)
			return fds[1];
		close(fds[1]);
		return -1;
	}
	/* Signals for shardrun, its group or all processes of its name must not reach the guard. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	setpgid(0, 0);
	prctl(PR_SET_NAME, "srt-guard");
	/* Readers of shardrun's output must see its end. */
	null = open("/dev/null", O_RDWR);
	for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
		dup2(null, fd);
	close(fds[1]);
	run_guard(fds[0]);
}

/* Without a guard the direct children still end with shardrun: child.c. */
static void send_report(int guard, pid_t report)
{
	while (write(guard, &report, sizeof(report)) < 0 && errno == EINTR)
		;
}

void srt_launch_guard_add(int guard, pid_t pid)
{
	send_report(guard, pid);
}

void srt_launch_guard_remove(int guard, pid_t pid)
{
	send_report(guard, -pid);
}
