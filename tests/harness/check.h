/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checks of the tests. They survive NDEBUG, print file, line and values, and are counted.
 *
 * A test program calls CHECK...() and ends main() with `return check_done();`: exit status 0, or
 * 1 if a check failed. CHECK_SKIP(reason) ends a test that cannot run here with 77 and the reason.
 * A failed CHECK does not end the program. A failed CHECK_OK_OR_DIE or CHECK_OR_DIE does: use them
 * for a condition that the rest of the test needs.
 */
#ifndef SRT_TESTS_CHECK_H
#define SRT_TESTS_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/status.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CHECK_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECK_SANITIZED 1
#endif

/* Whether `make check-long` runs the test. */
static inline int check_is_long(void)
{
	const char *set = getenv("SRT_TEST_LONG");

	return set != NULL && set[0] != '\0';
}

#define CHECK_HERE __FILE__, __LINE__

/* Checks so far, and those that failed. */
extern long check_count, check_failed;

/* A failure, with a printf-like message. Failures after the first 20 are counted, not printed. */
#define CHECK_REPORT(...) check_report(CHECK_HERE, __VA_ARGS__)
__attribute__((format(printf, 3, 4))) void check_report(const char *file, int line,
							const char *format, ...);

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		check_count++;                                                                     \
		if (!(cond))                                                                       \
			CHECK_REPORT("failed: %s", #cond);                                         \
	} while (0)

/* With a message, printf-like, e.g. the seed and sizes of the case. */
#define CHECK_MSG(cond, ...)                                                                       \
	do {                                                                                       \
		check_count++;                                                                     \
		if (!(cond)) {                                                                     \
			CHECK_REPORT("failed: %s", #cond);                                         \
			fprintf(stderr, "    " __VA_ARGS__);                                       \
			fputc('\n', stderr);                                                       \
		}                                                                                  \
	} while (0)

#define CHECK_OR_DIE(cond)                                                                         \
	do {                                                                                       \
		check_count++;                                                                     \
		if (!(cond)) {                                                                     \
			CHECK_REPORT("failed, cannot go on: %s", #cond);                           \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* A call must return this status. */
#define CHECK_STATUS(call, expected) check_status(CHECK_HERE, #call, call, expected)
#define CHECK_OK(call) CHECK_STATUS(call, SRT_OK)
void check_status(const char *file, int line, const char *call, srt_status_t status,
		  srt_status_t expected);

#define CHECK_OK_OR_DIE(call) check_ok_or_die(CHECK_HERE, #call, call)
void check_ok_or_die(const char *file, int line, const char *call, srt_status_t status);

/* The last error must contain these words. */
#define CHECK_ERROR_HAS(words) check_error_has(CHECK_HERE, words)
void check_error_has(const char *file, int line, const char *words);

/* At most `seconds`, multiplied by the patience, have passed since a time of srt_now_s(). */
#define CHECK_WITHIN(seconds, since) check_within(CHECK_HERE, seconds, since)
void check_within(const char *file, int line, double seconds, double since);

/* How long a test waits for something that takes `seconds` on an idle machine: SRT_PATIENCE times
 * as long (10 if it is not set), and five times that in a build with a sanitizer; but always less
 * than the 300 s of SHARDRT_TIMEOUT in tests, which it must be distinguished from. */
double check_patience(double seconds);

#define CHECK_INT(a, b) check_int(CHECK_HERE, #a, (long long)(a), #b, (long long)(b))
void check_int(const char *file, int line, const char *aname, long long a, const char *bname,
	       long long b);

#define CHECK_STR(a, b) check_str(CHECK_HERE, #a, a, #b, b)
void check_str(const char *file, int line, const char *aname, const char *a, const char *bname,
	       const char *b);

/* Two arrays of n floats, bit for bit; any NaN equals any NaN. */
#define CHECK_BITS(a, b, n) check_bits(CHECK_HERE, #a, a, #b, b, n)
void check_bits(const char *file, int line, const char *aname, const float *a, const char *bname,
		const float *b, size_t n);

/* |a - b| <= tolerance; false for NaN. */
#define CHECK_NEAR(a, b, tolerance)                                                                \
	check_near(CHECK_HERE, #a, (double)(a), #b, (double)(b), (double)(tolerance))
void check_near(const char *file, int line, const char *aname, double a, const char *bname,
		double b, double tolerance);

/* Ends the test: it cannot run on this machine. The suite's end lists the reason. */
#define CHECK_SKIP(...) check_skip(__VA_ARGS__)
__attribute__((noreturn, format(printf, 1, 2))) void check_skip(const char *format, ...);

/* Runs a test in a child by fork(), for what a process does once. It fails as one check here. */
#define CHECK_IN_CHILD(test) check_in_child(CHECK_HERE, #test, test)
void check_in_child(const char *file, int line, const char *name, void (*test)(void));

/* The exit status of main(). A test that checked nothing has failed. */
int check_done(void);

#endif
