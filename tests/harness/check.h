/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The test harness: checks that survive NDEBUG, print file, line and values, and count.
 *
 * A test program calls CHECK...() and ends main() with `return check_done();`: exit status 0, or
 * 1 if a check failed. CHECK_SKIP(reason) ends a test that cannot run here with 77 and the reason.
 * A failed CHECK does not end the program; CHECK_OK_OR_DIE and CHECK_OR_DIE do, for what the rest
 * of the test stands on.
 */
#ifndef SRT_TESTS_CHECK_H
#define SRT_TESTS_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/status.h>

#define CHECK_SKIPPED 77

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CHECK_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECK_SANITIZED 1
#endif

static long check_count, check_failed;

/* What a test allows for that shall take `seconds`: SRT_PATIENCE times as long (10 if it is not
 * set), as the machine has other work to do, and five times that in a build with a sanitizer; but
 * always less than the 300 s of SHARDRT_TIMEOUT in tests, which it has to be told from. */
static inline double check_patience(double seconds)
{
	const char *set = getenv("SRT_PATIENCE");
	double factor = set != NULL && *set != '\0' ? strtod(set, NULL) : 10;

#ifdef CHECK_SANITIZED
	factor *= 5;
#endif
	return seconds * factor < 200 ? seconds * factor : 200;
}

/* Failures after the first 20 are counted, not printed. */
#define CHECK_REPORT(...)                                                                          \
	do {                                                                                       \
		if (++check_failed <= 20) {                                                        \
			fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                            \
			fprintf(stderr, __VA_ARGS__);                                              \
			fputc('\n', stderr);                                                       \
		}                                                                                  \
	} while (0)

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		check_count++;                                                                     \
		if (!(cond))                                                                       \
			CHECK_REPORT("failed: %s", #cond);                                         \
	} while (0)

/* With a message of its own, printf-like, e.g. the seed and sizes of the case. */
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
#define CHECK_STATUS(call, expected)                                                               \
	do {                                                                                       \
		srt_status_t check_s_ = (call);                                                    \
		check_count++;                                                                     \
		if (check_s_ != (expected))                                                        \
			CHECK_REPORT("%s: %s, expected %s; last error: %s", #call,                 \
				     srt_status_string(check_s_), srt_status_string(expected),     \
				     srt_last_error());                                            \
	} while (0)

#define CHECK_OK(call) CHECK_STATUS(call, SRT_OK)

#define CHECK_OK_OR_DIE(call)                                                                      \
	do {                                                                                       \
		srt_status_t check_s_ = (call);                                                    \
		check_count++;                                                                     \
		if (check_s_ != SRT_OK) {                                                          \
			CHECK_REPORT("cannot go on: %s: %s: %s", #call,                            \
				     srt_status_string(check_s_), srt_last_error());               \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* The last error must contain these words. */
#define CHECK_ERROR_HAS(words)                                                                     \
	do {                                                                                       \
		check_count++;                                                                     \
		if (!strstr(srt_last_error(), words))                                              \
			CHECK_REPORT("last error lacks \"%s\": %s", words, srt_last_error());      \
	} while (0)

/* What shall take so many seconds at most has not taken more, by srt_now_s() and with patience. */
#define CHECK_WITHIN(seconds, since)                                                               \
	do {                                                                                       \
		double check_s_ = srt_now_s() - (since), check_most_ = check_patience(seconds);    \
		check_count++;                                                                     \
		if (check_s_ > check_most_)                                                        \
			CHECK_REPORT("took %.3g s, not %.3g", check_s_, check_most_);              \
	} while (0)

#define CHECK_INT(a, b)                                                                            \
	do {                                                                                       \
		long long check_a_ = (long long)(a), check_b_ = (long long)(b);                    \
		check_count++;                                                                     \
		if (check_a_ != check_b_)                                                          \
			CHECK_REPORT("%s is %lld, %s is %lld", #a, check_a_, #b, check_b_);        \
	} while (0)

#define CHECK_STR(a, b)                                                                            \
	do {                                                                                       \
		const char *check_a_ = (a), *check_b_ = (b);                                       \
		check_count++;                                                                     \
		if (!check_a_ || !check_b_ || strcmp(check_a_, check_b_) != 0)                     \
			CHECK_REPORT("%s is \"%s\", %s is \"%s\"", #a,                             \
				     check_a_ ? check_a_ : "(null)", #b,                           \
				     check_b_ ? check_b_ : "(null)");                              \
	} while (0)

/* Two arrays of n floats, bit for bit; any NaN equals any NaN. */
#define CHECK_BITS(a, b, n) check_bits(__FILE__, __LINE__, #a, (a), #b, (b), (n))

static inline int check_is_nan_bits(uint32_t u)
{
	return (u & 0x7fffffffu) > 0x7f800000u;
}

static inline void check_bits(const char *file, int line, const char *aname, const float *a,
			      const char *bname, const float *b, size_t n)
{
	size_t nwrong = 0, first = 0;
	uint32_t ua = 0, ub = 0, fa = 0, fb = 0;

	for (size_t i = 0; i < n; i++) {
		memcpy(&ua, &a[i], sizeof ua);
		memcpy(&ub, &b[i], sizeof ub);
		if (ua == ub || (check_is_nan_bits(ua) && check_is_nan_bits(ub)))
			continue;
		if (!nwrong++) {
			first = i;
			fa = ua;
			fb = ub;
		}
	}
	check_count++;
	if (nwrong && ++check_failed <= 20)
		fprintf(stderr,
			"%s:%d: %zu of %zu differ; first [%zu]: %s = %.9g (%08" PRIx32
			"), %s = %.9g (%08" PRIx32 ")\n",
			file, line, nwrong, n, first, aname, (double)a[first], fa, bname,
			(double)b[first], fb);
}

/* |a - b| <= tolerance; false for NaN. */
#define CHECK_NEAR(a, b, tolerance)                                                                \
	do {                                                                                       \
		double check_a_ = (double)(a), check_b_ = (double)(b);                             \
		double check_d_ = check_a_ > check_b_ ? check_a_ - check_b_ : check_b_ - check_a_; \
		check_count++;                                                                     \
		if (!(check_d_ <= (double)(tolerance)))                                            \
			CHECK_REPORT("%s is %.17g, %s is %.17g: apart by %.3g > %.3g", #a,         \
				     check_a_, #b, check_b_, check_d_, (double)(tolerance));       \
	} while (0)

/* Ends the test here: it cannot run on this machine. The suite's end lists the reason. */
#define CHECK_SKIP(...)                                                                            \
	do {                                                                                       \
		printf("SKIP: " __VA_ARGS__);                                                      \
		putchar('\n');                                                                     \
		exit(CHECK_SKIPPED);                                                               \
	} while (0)

/* The exit status of main(). A test that checked nothing has failed. */
static inline int check_done(void)
{
	if (check_failed || !check_count) {
		fprintf(stderr, "FAIL: %ld of %ld checks failed\n", check_failed, check_count);
		return 1;
	}
	return 0;
}

#endif
