/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/engine/fault_point.h"

#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/check.h"

static int record = -1;
static fault_t planned;
static long moment, delay_ns;
static void (*leave_fn)(void *arg);
static void *leave_arg;
static atomic_long ncalls, nreceived;
static atomic_flag failed = ATOMIC_FLAG_INIT;
static bool noted;
static srt_comm_t *world;
static pthread_mutex_t world_lock = PTHREAD_MUTEX_INITIALIZER;

int fault_rank(void)
{
	static const char *const names[] = { "SHARDRT_RANK", "PMIX_RANK", "RANK" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (getenv(names[i]) != NULL)
			return atoi(getenv(names[i]));
	}
	return -1;
}

/* One line by one write, so that a rank that is killed leaves only whole lines. */
void fault_record(const char *format, ...)
{
	char line[1024];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	n = n < (int)sizeof(line) - 1 ? n : (int)sizeof(line) - 2;
	for (int i = 0; i < n; i++)
		line[i] = line[i] == '\n' ? ' ' : line[i];
	line[n++] = '\n';
	CHECK_OR_DIE(write(record, line, (size_t)n) == n);
}

void fault_open(const char *folder, int rank)
{
	const char *address = getenv("SHARDRT_BOOTSTRAP"), *host = getenv("SRT_TEST_HOST");
	char path[512];

	snprintf(path, sizeof(path), "%s/rank-%d", folder, rank);
	record = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	CHECK_OR_DIE(record >= 0);
	fault_record("pid %d", (int)getpid());
	if (address != NULL)
		fault_record("address %s", address);
	if (host != NULL)
		fault_record("host %s", host);
}

void fault_plan(fault_t fault, long at, long after_ns, void (*leave)(void *arg), void *arg)
{
	leave_fn = leave;
	leave_arg = arg;
	planned = fault;
	moment = at;
	delay_ns = after_ns;
}

void fault_set_world(srt_comm_t *comm)
{
	pthread_mutex_lock(&world_lock);
	world = comm;
	pthread_mutex_unlock(&world_lock);
}

/* Waits for the communicator if there is none yet. */
static void abort_world(void)
{
	for (bool aborted = false; !aborted;) {
		pthread_mutex_lock(&world_lock);
		if (world != NULL) {
			fault_record("fault %lld %ld", fault_now_ns(), atomic_load(&ncalls));
			srt_comm_abort(world, "a fault of the test");
			aborted = true;
		}
		pthread_mutex_unlock(&world_lock);
		if (!aborted)
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
}

/* The host is a network namespace; its interface besides lo is the cable to the other host. */
static void cut_cable(void)
{
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct if_nameindex *all = if_nameindex(), *i = all;
	struct ifreq request = { 0 };

	CHECK_OR_DIE(fd >= 0 && all != NULL);
	while (i->if_name != NULL && strncmp(i->if_name, "srt", 3) != 0)
		i++;
	CHECK_OR_DIE(i->if_name != NULL);
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", i->if_name);
	if_freenameindex(all);
	CHECK_OR_DIE(ioctl(fd, SIOCGIFFLAGS, &request) == 0);
	request.ifr_flags = (short)(request.ifr_flags & ~IFF_UP);
	CHECK_OR_DIE(ioctl(fd, SIOCSIFFLAGS, &request) == 0);
	close(fd);
}

static void fail_now(void)
{
	if (atomic_flag_test_and_set(&failed))
		return;
	if (planned == FAULT_COMM_ABORT) {
		abort_world();
		return;
	}
	fault_record("fault %lld %ld", fault_now_ns(), atomic_load(&ncalls));
	switch (planned) {
	case FAULT_KILL:
		kill(getpid(), SIGKILL);
		break;
	case FAULT_STOP:
		kill(getpid(), SIGSTOP);
		break;
	case FAULT_EXIT:
		exit(0);
	case FAULT_EXIT_0:
		_exit(0);
	case FAULT_EXIT_3:
		_exit(3);
	case FAULT_ABORT:
		abort();
	case FAULT_LEAVE:
		leave_fn(leave_arg);
		exit(0);
	case FAULT_CUT:
		cut_cable();
		break;
	default:
		break;
	}
}

static void *fail_later(void *arg)
{
	(void)arg;
	nanosleep(&(struct timespec){ .tv_sec = delay_ns / 1000000000,
				      .tv_nsec = delay_ns % 1000000000 },
		  NULL);
	fail_now();
	return NULL;
}

void fault_point(const char *call)
{
	const long n = atomic_fetch_add(&ncalls, 1) + 1;
	pthread_t thread;

	fault_record("point %ld %lld %.*s", n, fault_now_ns(), (int)strcspn(call, "("), call);
	if (planned == FAULT_NONE || moment != n)
		return;
	/* Before there is a communicator to abort, another thread waits for it. */
	if (delay_ns == 0 && (planned != FAULT_COMM_ABORT || world != NULL)) {
		fail_now();
	} else {
		CHECK_OR_DIE(pthread_create(&thread, NULL, fail_later, NULL) == 0);
		CHECK_OR_DIE(pthread_detach(thread) == 0);
	}
}

srt_status_t fault_note(const char *call, srt_status_t status)
{
	if (!noted)
		fault_record("error %lld %d %.*s: %s", fault_now_ns(), (int)status,
			     (int)strcspn(call, "("), call, srt_error_last());
	noted = true;
	return status;
}

long fault_ncalls(void)
{
	return atomic_load(&ncalls);
}

ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
	const ssize_t n = __real_recvmsg(fd, message, flags);

	if (n > 0 && atomic_fetch_add(&nreceived, 1) + 1 == -moment && planned != FAULT_NONE &&
	    planned != FAULT_COMM_ABORT)
		fail_now();
	return n;
}
