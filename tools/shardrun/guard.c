/* SPDX-License-Identifier: BSD-3-Clause */
/* The guard's process: see tools/shardrun/guard.h. A report is a pid to add, or -pid to remove. */
#include "tools/shardrun/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives/bootstrap/wire.h"

#define MOST_FILES 65536

static _Noreturn void run_guard(int reports)
{
	pid_t groups[SRT_WIRE_MAX_LOCAL], report;
	size_t n = 0;
	ssize_t got;

	while ((got = read(reports, &report, sizeof(report))) > 0 || (got < 0 && errno == EINTR)) {
		const pid_t group = report < 0 ? -report : report;
		size_t i = 0;

		if (got < 0)
			continue;
		while (i < n && groups[i] != group)
			i++;
		if (report < 0 && i < n)
			groups[i] = groups[--n];
		else if (report > 0 && i == n && n < SRT_WIRE_MAX_LOCAL)
			groups[n++] = group;
	}
	while (n > 0)
		kill(-groups[--n], SIGKILL);
	_exit(0);
}

static void close_range_of(unsigned first, unsigned last)
{
#ifdef SYS_close_range
	if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
		return;
#endif
	for (; first <= last && first < MOST_FILES; first++) /* Linux before 5.9 */
		close((int)first);
}

/* Closes what the guard inherits: others must see the ends of shardrun's pipes and sockets. */
static void close_files(int reports)
{
	const int null = open("/dev/null", O_RDWR);

	for (int fd = 0; fd <= STDERR_FILENO && null >= 0; fd++)
		dup2(null, fd);
	close_range_of(STDERR_FILENO + 1, (unsigned)reports - 1);
	close_range_of((unsigned)reports + 1, UINT_MAX);
}

pid_t srt_launch_guard_start(int *guard)
{
	int fds[2];
	sigset_t all;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -1;
	pid = fork();
	if (pid != 0) {
		close(fds[0]);
		if (pid > 0)
			*guard = fds[1];
		else
			close(fds[1]);
		return pid;
	}
	/* Signals for shardrun, its group or all processes of its name must not reach the guard. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	setpgid(0, 0);
	prctl(PR_SET_NAME, "srt-guard");
	close_files(fds[0]);
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
