/* SPDX-License-Identifier: BSD-3-Clause */
/* The log: on standard error by default, filtered, cut when long, and usable from many threads. */
#include "base/base.h"
#include "tests/harness/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include <sys/wait.h>

static char got[2000];
static srt_log_level_t got_level;
static atomic_int ngot;

static void receive(srt_log_level_t level, const char *message, void *arg)
{
	snprintf(got, sizeof got, "%s%s", (const char *)arg, message);
	got_level = level;
	ngot++;
}

static void count(srt_log_level_t level, const char *message, void *arg)
{
	(void)level;
	if (!strcmp(message, "message"))
		atomic_fetch_add((atomic_int *)arg, 1);
}

static void *chatter(void *arg)
{
	for (int i = 0; i < 1000; i++)
		srt_log(SRT_LOG_INFO, "%s", "message");
	return arg;
}

static void *flip(void *arg)
{
	for (int i = 0; i < 1000; i++) {
		srt_log_set(NULL, SRT_LOG_TRACE, NULL);
		srt_log_set(count, SRT_LOG_INFO, arg);
	}
	return arg;
}

static void test_threads(void)
{
	pthread_t thread[4];
	atomic_int n = 0;

	srt_log_set(count, SRT_LOG_INFO, &n);
	for (int i = 0; i < 4; i++)
		CHECK_OR_DIE(!pthread_create(&thread[i], NULL, chatter, NULL));
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	CHECK_INT(n, 4000);
	/* Switched while in use: nothing to count, but it must not crash or race. */
	CHECK_OR_DIE(!pthread_create(&thread[0], NULL, chatter, NULL));
	CHECK_OR_DIE(!pthread_create(&thread[1], NULL, flip, &n));
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	srt_log_set(NULL, SRT_LOG_TRACE, NULL);
}

/* In a child: what a program prints that sets no receiver, with SHARDRT_LOG=value. */
static void test_standard_error(const char *value, int most)
{
	char printed[200] = "", expected[200] = "";
	int ends[2], status;
	ssize_t n;
	pid_t pid;

	CHECK_OR_DIE(!pipe(ends));
	pid = fork();
	CHECK_OR_DIE(pid >= 0);
	if (pid == 0) {
		dup2(ends[1], STDERR_FILENO);
		if (value != NULL)
			setenv("SHARDRT_LOG", value, 1);
		else
			unsetenv("SHARDRT_LOG");
		for (int i = SRT_LOG_ERROR; i <= SRT_LOG_TRACE; i++)
			srt_log((srt_log_level_t)i, "message %d", i);
		_exit(0);
	}
	close(ends[1]);
	while ((n = read(ends[0], printed + strlen(printed),
			 sizeof(printed) - 1 - strlen(printed))) > 0)
		;
	close(ends[0]);
	CHECK_OR_DIE(waitpid(pid, &status, 0) == pid && status == 0);
	for (int i = SRT_LOG_ERROR; i <= most; i++)
		snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected),
			 "libshardrt: %s: message %d\n", srt_log_level_name((srt_log_level_t)i), i);
	CHECK_STR(printed, expected);
}

int main(void)
{
	char big[3000];

	test_standard_error(NULL, SRT_LOG_WARN);
	test_standard_error("info", SRT_LOG_INFO);
	test_standard_error("noise", SRT_LOG_WARN);
	test_standard_error("none", -1);
	srt_log_set(NULL, SRT_LOG_TRACE, NULL);
	CHECK(!srt_log_enabled(SRT_LOG_ERROR));
	srt_log(SRT_LOG_ERROR, "nobody listens");

	srt_log_set(receive, SRT_LOG_WARN, (void *)"> ");
	CHECK(srt_log_enabled(SRT_LOG_ERROR) && srt_log_enabled(SRT_LOG_WARN));
	CHECK(!srt_log_enabled(SRT_LOG_INFO));
	srt_log(SRT_LOG_WARN, "%d of %s", 3, "five");
	CHECK_STR(got, "> 3 of five");
	CHECK_INT(got_level, SRT_LOG_WARN);
	srt_log(SRT_LOG_INFO, "too quiet to hear");
	CHECK_INT(ngot, 1);
	memset(big, 'y', sizeof big - 1);
	big[sizeof big - 1] = '\0';
	srt_log(SRT_LOG_ERROR, "%s", big);
	CHECK_INT(ngot, 2);
	CHECK(strlen(got) > 500 && got[2] == 'y');
	srt_log_set(NULL, SRT_LOG_TRACE, NULL);
	CHECK(!srt_log_enabled(SRT_LOG_ERROR));
	srt_log(SRT_LOG_ERROR, "nobody listens");
	CHECK_INT(ngot, 2);

	CHECK_STR(srt_log_level_name(SRT_LOG_ERROR), "error");
	CHECK_STR(srt_log_level_name(SRT_LOG_TRACE), "trace");
	CHECK_STR(srt_log_level_name((srt_log_level_t)5), "?");
	CHECK_STR(srt_log_level_name((srt_log_level_t)-1), "?");
	test_threads();
	return check_done();
}
