/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Proves that the harness can fail: tests/harness/test_harness.sh runs this with the name of a
 * check and expects exit status 1 and the place and values in the output. Compiled with NDEBUG.
 */
#include "base/base.h"
#include "tests/harness/check.h"

int main(int argc, char **argv)
{
	const char *which = argc > 1 ? argv[1] : "";
	const float a[] = { 1.0f, 0.0f, 3.0f }, b[] = { 1.0f, -0.0f, 3.0f };

	if (!strcmp(which, "nothing"))
		return check_done();
	CHECK(1 == 1);
	if (!strcmp(which, "check"))
		CHECK(1 == 2);
	if (!strcmp(which, "die"))
		CHECK_OR_DIE(1 == 2);
	if (!strcmp(which, "ok"))
		CHECK_OK(srt_fail(SRT_ERR_IO, "the sentence"));
	if (!strcmp(which, "ok_or_die"))
		CHECK_OK_OR_DIE(srt_fail(SRT_ERR_IO, "the sentence"));
	if (!strcmp(which, "status"))
		CHECK_STATUS(srt_fail(SRT_ERR_IO, "the sentence"), SRT_ERR_STATE);
	if (!strcmp(which, "int"))
		CHECK_INT(41, 42);
	if (!strcmp(which, "str"))
		CHECK_STR("one", "two");
	if (!strcmp(which, "bits"))
		CHECK_BITS(a, b, 3); /* the sign of a zero */
	if (!strcmp(which, "near"))
		CHECK_NEAR((double)a[0], (double)b[1], 0.5);
	if (!strcmp(which, "nan"))
		CHECK_NEAR((a[1] / b[1]), 0.0, 1e30);
	if (!strcmp(which, "late"))
		CHECK_WITHIN(1, srt_now_s() - 7);
	if (!strcmp(which, "hung"))
		CHECK_WITHIN(1, srt_now_s() - 250);
	if (!strcmp(which, "skip"))
		CHECK_SKIP("because of %s", "this");
	return check_done();
}
