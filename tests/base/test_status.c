/* SPDX-License-Identifier: BSD-3-Clause */
/* Status texts and the thread's last error: tables complete, cutting, nesting, one per thread. */
#include "base/base.h"
#include "tests/harness/check.h"

#include <pthread.h>
#include <stdio.h>

#include <shardrt/version.h>

static void test_texts(void)
{
	for (int s = 0; s < SRT_STATUS_COUNT; s++) {
		CHECK(srt_status_string((srt_status_t)s)[0] != '\0');
		for (int t = 0; t < s; t++)
			CHECK(strcmp(srt_status_string((srt_status_t)s),
				     srt_status_string((srt_status_t)t)) != 0);
	}
	CHECK_INT(SRT_OK, 0);
	CHECK_STR(srt_status_string(SRT_STATUS_COUNT), "unknown status");
	CHECK_STR(srt_status_string((srt_status_t)-1), "unknown status");
}

static void test_sentences(void)
{
	char big[3000];

	CHECK_STATUS(srt_fail(SRT_ERR_IO, "file %s: %d", "a", 7), SRT_ERR_IO);
	CHECK_STR(srt_error_last(), "file a: 7");
	CHECK_STATUS(srt_fail_prefix(SRT_ERR_IO, "unit %s: ", "b"), SRT_ERR_IO);
	CHECK_STR(srt_error_last(), "unit b: file a: 7");
	/* The last error as its own argument. */
	srt_fail(SRT_ERR_IO, "again: %s", srt_error_last());
	CHECK_STR(srt_error_last(), "again: unit b: file a: 7");
	CHECK_STATUS(srt_error_set(SRT_ERR_IO, srt_error_last()), SRT_ERR_IO);
	CHECK_STR(srt_error_last(), "again: unit b: file a: 7");
	srt_error_set(SRT_ERR_IO, "100%s of %n");
	CHECK_STR(srt_error_last(), "100%s of %n");

	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = '\0';
	srt_fail(SRT_ERR_IO, "%s", big);
	CHECK_INT(strlen(srt_error_last()), 1023);
	CHECK_STR(srt_error_last() + 1019, "x...");
	srt_fail_prefix(SRT_ERR_IO, "front: ");
	CHECK_INT(strlen(srt_error_last()), 1023);
	CHECK(!strncmp(srt_error_last(), "front: x", 8));
	CHECK_STR(srt_error_last() + 1019, "x...");
	srt_fail_prefix(SRT_ERR_IO, "%s", big);
	CHECK_STR(srt_error_last() + 1019, "x...");
}

static void *other_thread(void *arg)
{
	CHECK_STR(srt_error_last(), "");
	srt_fail(SRT_ERR_STATE, "of the other thread");
	return arg;
}

static void test_threads(void)
{
	pthread_t thread;

	srt_fail(SRT_ERR_STATE, "of the main thread");
	CHECK_OR_DIE(!pthread_create(&thread, NULL, other_thread, NULL));
	pthread_join(thread, NULL);
	CHECK_STR(srt_error_last(), "of the main thread");
}

/* The number and the text are of the same version. */
static void test_version(void)
{
	const int version = srt_version();
	char text[40];

	CHECK_INT(version, SRT_VERSION);
	CHECK(version >= SRT_VERSION_NUMBER(0, 1, 0));
	snprintf(text, sizeof(text), "%d.%d.%d", version / 10000, version / 100 % 100,
		 version % 100);
	CHECK_STR(srt_version_string(), text);
}

int main(void)
{
	CHECK_STR(srt_error_last(), "");
	test_texts();
	test_sentences();
	test_threads();
	test_version();
	return check_done();
}
