/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/harness/check.h"

#include <math.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/harness/bits.h"

enum { SKIPPED = 77, MAX_PRINTED = 20 };

long check_count, check_failed;

void check_report(const char *file, int line, const char *format, ...)
{
	va_list args;

	if (++check_failed > MAX_PRINTED)
		return;
	fprintf(stderr, "%s:%d: ", file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

void check_status(const char *file, int line, const char *call, srt_status_t status,
		  srt_status_t expected)
{
	check_count++;
	if (status != expected)
		check_report(file, line, "%s: %s, expected %s; last error: %s", call,
			     srt_status_string(status), srt_status_string(expected),
			     srt_error_last());
}

void check_ok_or_die(const char *file, int line, const char *call, srt_status_t status)
{
	check_count++;
	if (status == SRT_OK)
		return;
	check_report(file, line, "cannot go on: %s: %s: %s", call, srt_status_string(status),
		     srt_error_last());
	exit(1);
}

void check_error_has(const char *file, int line, const char *words)
{
	check_count++;
	if (strstr(srt_error_last(), words) == NULL)
		check_report(file, line, "last error lacks \"%s\": %s", words, srt_error_last());
}

double check_patience(double seconds)
{
	const char *set = getenv("SRT_PATIENCE");
	double factor = set != NULL && *set != '\0' ? strtod(set, NULL) : 10;

#ifdef CHECK_SANITIZED
	factor *= 5;
#endif
	return seconds * factor < 200 ? seconds * factor : 200;
}

void check_within(const char *file, int line, double seconds, double since)
{
	double passed = srt_now_s() - since, most = check_patience(seconds);

	check_count++;
	if (passed > most)
		check_report(file, line, "took %.3g s, not %.3g", passed, most);
}

void check_int(const char *file, int line, const char *aname, long long a, const char *bname,
	       long long b)
{
	check_count++;
	if (a != b)
		check_report(file, line, "%s is %lld, %s is %lld", aname, a, bname, b);
}

void check_str(const char *file, int line, const char *aname, const char *a, const char *bname,
	       const char *b)
{
	check_count++;
	if (a == NULL || b == NULL || strcmp(a, b) != 0)
		check_report(file, line, "%s is \"%s\", %s is \"%s\"", aname,
			     a != NULL ? a : "(null)", bname, b != NULL ? b : "(null)");
}

void check_bits(const char *file, int line, const char *aname, const float *a, const char *bname,
		const float *b, size_t n)
{
	size_t nwrong = 0, first = 0;

	for (size_t i = 0; i < n; i++) {
		if (bits_of(a[i]) == bits_of(b[i]) || (isnan(a[i]) && isnan(b[i])))
			continue;
		if (!nwrong++)
			first = i;
	}
	check_count++;
	if (nwrong)
		check_report(file, line,
			     "%zu of %zu differ; first [%zu]: %s = %.9g (%08" PRIx32
			     "), %s = %.9g (%08" PRIx32 ")",
			     nwrong, n, first, aname, (double)a[first], bits_of(a[first]), bname,
			     (double)b[first], bits_of(b[first]));
}

void check_near(const char *file, int line, const char *aname, double a, const char *bname,
		double b, double tolerance)
{
	double distance = fabs(a - b);

	check_count++;
	if (!(distance <= tolerance))
		check_report(file, line, "%s is %.17g, %s is %.17g: apart by %.3g > %.3g", aname, a,
			     bname, b, distance, tolerance);
}

void check_skip(const char *format, ...)
{
	va_list args;

	printf("SKIP: ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	exit(SKIPPED);
}

void check_in_child(const char *file, int line, const char *name, void (*test)(void))
{
	const pid_t child = fork();
	int status = 1;

	CHECK_OR_DIE(child >= 0);
	if (child == 0) {
		check_count = check_failed = 0;
		test();
		exit(check_done());
	}
	CHECK_OR_DIE(waitpid(child, &status, 0) == child);
	check_count++;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		check_report(file, line, "%s failed", name);
}

int check_done(void)
{
	if (check_failed || !check_count) {
		fprintf(stderr, "FAIL: %ld of %ld checks failed\n", check_failed, check_count);
		return 1;
	}
	return 0;
}
