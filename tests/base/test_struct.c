/* SPDX-License-Identifier: BSD-3-Clause */
/* Structs that a program fills and that grow: headers older and newer than the library's. */
#include "base/base.h"
#include "tests/harness/check.h"

/* A struct of a header: yesterday's ends before `added`, tomorrow's has `later`, too. */
typedef struct yesterday {
	size_t size;
	double lr;
} yesterday_t;

typedef struct today {
	size_t size;
	double lr;
	double added;
} today_t;

typedef struct tomorrow {
	size_t size;
	double lr;
	double added;
	double later;
} tomorrow_t;

static const today_t defaults = { sizeof(today_t), 0.001, 0.5 };

static void test_read(void)
{
	const yesterday_t old = { sizeof(old), 2 };
	const today_t same = { sizeof(same), 3, 4 };
	tomorrow_t new = { sizeof(new), 5, 6, 0 };
	today_t full = defaults;

	CHECK_OK(srt_struct_read(&full, sizeof(full), NULL, "t"));
	CHECK(full.size == sizeof(full) && full.lr == 0.001 && full.added == 0.5);
	CHECK_OK(srt_struct_read(&full, sizeof(full), &old, "t"));
	CHECK(full.size == sizeof(full) && full.lr == 2 && full.added == 0.5);
	CHECK_OK(srt_struct_read(&full, sizeof(full), &same, "t"));
	CHECK(full.size == sizeof(full) && full.lr == 3 && full.added == 4);
	CHECK_OK(srt_struct_read(&full, sizeof(full), &new, "t"));
	CHECK(full.size == sizeof(full) && full.lr == 5 && full.added == 6);
	new.later = 7;
	full = defaults;
	CHECK_STATUS(srt_struct_read(&full, sizeof(full), &new, "t"), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("t.size is 32");
	CHECK(full.lr == 0.001);
}

static void test_size_not_set(void)
{
	today_t given = { 0, 3, 4 }, full = defaults;

	CHECK_STATUS(srt_struct_read(&full, sizeof(full), &given, "t"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("t.size is 0");
	CHECK_STATUS(srt_struct_write(&given, &full, sizeof(full), "t"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_struct_check(&given, "t"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_OK(srt_struct_check(&defaults, "t"));
	CHECK_OK(srt_struct_check(NULL, "t"));
	given.size = sizeof(size_t) - 1;
	CHECK_STATUS(srt_struct_read(&full, sizeof(full), &given, "t"), SRT_ERR_INVALID_ARGUMENT);
	CHECK(full.lr == 0.001 && given.lr == 3);
}

static void test_write(void)
{
	yesterday_t old[2] = { { sizeof(old[0]), 1 }, { 77, 88 } };
	tomorrow_t new = { sizeof(new), 1, 1, 1 };

	CHECK_OK(srt_struct_write(&old[0], &defaults, sizeof(defaults), "t"));
	CHECK(old[0].size == sizeof(old[0]) && old[0].lr == 0.001);
	CHECK(old[1].size == 77 && old[1].lr == 88);
	CHECK_OK(srt_struct_write(&new, &defaults, sizeof(defaults), "t"));
	CHECK(new.size == sizeof(new) && new.lr == 0.001 && new.added == 0.5 && new.later == 0);
}

static void test_array(void)
{
	const yesterday_t array[3] = { { sizeof(array[0]), 1 },
				       { sizeof(array[0]), 2 },
				       { sizeof(array[0]), 3 } };
	today_t full = defaults;

	for (size_t i = 0; i < 3; i++) {
		CHECK_OK(srt_struct_read(&full, sizeof(full), srt_struct_at(array, i), "t"));
		CHECK(full.lr == (double)(i + 1) && full.added == 0.5);
	}
}

int main(void)
{
	test_read();
	test_size_not_set();
	test_write();
	test_array();
	return check_done();
}
