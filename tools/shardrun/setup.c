/* SPDX-License-Identifier: BSD-3-Clause */
/* What shardrun prepares in its process: see tools/shardrun/setup.h. */
#include "tools/shardrun/setup.h"

#include <errno.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/shardrun/options.h"

int srt_launch_open_signals(sigset_t *old_mask)
{
	static const int handled[] = { SIGCHLD, SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT,
				       SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT };
	struct sigaction inherited;
	sigset_t set;

	/* If it is ignored, which a process inherits, no child can be waited for. */
	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++) {
		/* One that is ignored stays so (nohup, a background job), for the ranks too. */
		if (sigaction(handled[i], NULL, &inherited) != 0 || inherited.sa_handler != SIG_IGN)
			sigaddset(&set, handled[i]);
	}
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, old_mask);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

void srt_launch_raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 8192) {
		limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static bool is_same_file(int a, int b)
{
	struct stat first, second;

	return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

bool srt_launch_open_writers(srt_launch_writer_t *writer[2], int wake)
{
	static srt_launch_writer_t writers[2]; /* not on the stack: their threads outlive main() */

	writer[0] = &writers[0];
	writer[1] = is_same_file(STDOUT_FILENO, STDERR_FILENO) ? &writers[0] : &writers[1];
	errno = srt_launch_writer_start(&writers[0], STDOUT_FILENO, wake);
	if (errno == 0 && writer[1] == &writers[1])
		errno = srt_launch_writer_start(&writers[1], STDERR_FILENO, wake);
	if (errno == 0)
		srt_launch_say_by(writer[1]);
	return errno == 0;
}
