/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration table: sorted, complete, its defaults valid; values of each type, malformed and
 * hostile ones; unknown variables and their nearest names.
 */
#include "base/base.h"
#include "tests/harness/check.h"

static void clean_environment(void)
{
	for (size_t i = 0; i < srt_config_count(); i++)
		unsetenv(srt_config_at(i)->name);
}

static void test_table(void)
{
	for (size_t i = 0; i < srt_config_count(); i++) {
		const srt_config_entry_t *e = srt_config_at(i);
		const char *value = NULL;
		int is_set = 7;

		CHECK(!strncmp(e->name, "SHARDRT_", 8));
		if (i)
			CHECK_MSG(strcmp(srt_config_at(i - 1)->name, e->name) < 0, "%s", e->name);
		CHECK(e->default_value != NULL && e->unit != NULL && e->range != NULL &&
		      e->help != NULL);
		CHECK_MSG(strlen(e->help) > 10 && e->help[strlen(e->help) - 1] == '.', "%s",
			  e->name);
		CHECK_OK(srt_config_value(e->name, &value, &is_set));
		CHECK_STR(value, e->default_value);
		CHECK_INT(is_set, 0);
		if (e->type == SRT_CONFIG_STRING)
			continue;
		/* The default must pass its own check when written in the environment. */
		CHECK_MSG(e->default_value[0], "%s", e->name);
		setenv(e->name, e->default_value, 1);
		CHECK_OK(srt_config_value(e->name, &value, &is_set));
		CHECK_INT(is_set, 1);
		setenv(e->name, "certainly not", 1);
		value = NULL;
		CHECK_STATUS(srt_config_value(e->name, &value, &is_set), SRT_ERR_INVALID_ARGUMENT);
		CHECK(value == NULL);
		CHECK_ERROR_HAS(e->name);
		CHECK_ERROR_HAS("certainly not");
		CHECK_STATUS(srt_config_check_all(), SRT_ERR_INVALID_ARGUMENT);
		CHECK_STR(srt_config_string(e->name), e->default_value);
		unsetenv(e->name);
	}
	CHECK(srt_config_at(srt_config_count()) == NULL);
	CHECK(srt_config_at(SIZE_MAX) == NULL);
	CHECK_OK(srt_config_check_all());
}

/* `good` parses, `bad` does not. */
static void try_value(const char *name, const char *text, int good)
{
	const char *value = "untouched";
	int is_set = -1;

	setenv(name, text, 1);
	CHECK_MSG(srt_config_value(name, &value, &is_set) ==
			  (good ? SRT_OK : SRT_ERR_INVALID_ARGUMENT),
		  "%s=%s", name, text);
	CHECK_STR(value, good ? text : "untouched");
	CHECK_INT(is_set, good ? 1 : -1);
	unsetenv(name);
}

static void test_values(void)
{
	static const char *const good_threads[] = { "0", "1", "4096", "007" };
	static const char *const bad_threads[] = {
		"-1",
		"4097",
		"1.5",
		" 1",
		"1 ",
		"+1",
		"0x10",
		"1e2",
		"a",
		"-",
		"99999999999999999999",
		"9223372036854775808",
		"-9223372036854775809",
		"1\n",
		"NaN",
		"1k",
	};
	static const char *const good_times[] = { "1", "0.001", "1e6", "2.5", ".5", "3.", "1e-3" };
	static const char *const bad_times[] = {
		"0", "-1", "inf", "nan", "0x1p3",   "1,5", "1e", "1e99", "1e999999999999999999999",
		".", "",   "1s",  " 1",  "1000001",
	};
	static const char *const good_isas[] = { "auto", "baseline", "avx2", "avx512", "neon" };
	static const char *const bad_isas[] = {
		"AVX2", "avx", "avx2|avx512", "|", "auto|", "avx2 ", "sse",
	};
	char big[5000];

	for (size_t i = 0; i < SRT_ARRAY_LEN(good_threads); i++)
		try_value("SHARDRT_THREADS", good_threads[i], 1);
	for (size_t i = 0; i < SRT_ARRAY_LEN(bad_threads); i++)
		try_value("SHARDRT_THREADS", bad_threads[i], 0);
	for (size_t i = 0; i < SRT_ARRAY_LEN(good_times); i++)
		try_value("SHARDRT_TIMEOUT", good_times[i], 1);
	for (size_t i = 0; i < SRT_ARRAY_LEN(bad_times); i++) {
		if (bad_times[i][0])
			try_value("SHARDRT_TIMEOUT", bad_times[i], 0);
	}
	for (size_t i = 0; i < SRT_ARRAY_LEN(good_isas); i++)
		try_value("SHARDRT_CPU_ISA", good_isas[i], 1);
	for (size_t i = 0; i < SRT_ARRAY_LEN(bad_isas); i++)
		try_value("SHARDRT_CPU_ISA", bad_isas[i], 0);
	memset(big, '1', sizeof big - 1);
	big[sizeof big - 1] = '\0';
	try_value("SHARDRT_THREADS", big, 0);
	try_value("SHARDRT_TIMEOUT", big, 0);
	try_value("SHARDRT_CPU_ISA", big, 0);
	try_value("SHARDRT_DEVICE", big, 1);

	setenv("SHARDRT_THREADS", "17", 1);
	CHECK_INT(srt_config_int("SHARDRT_THREADS"), 17);
	setenv("SHARDRT_THREADS", "17x", 1);
	CHECK_INT(srt_config_int("SHARDRT_THREADS"), 0);
	setenv("SHARDRT_THREADS", "", 1);
	CHECK_INT(srt_config_int("SHARDRT_THREADS"), 0);
	CHECK_OK(srt_config_check_all());
	unsetenv("SHARDRT_THREADS");
	setenv("SHARDRT_TIMEOUT", "2.25", 1);
	CHECK(srt_config_seconds("SHARDRT_TIMEOUT") == 2.25);
	setenv("SHARDRT_TIMEOUT", "15e-1", 1);
	CHECK(srt_config_seconds("SHARDRT_TIMEOUT") == 1.5);
	setenv("SHARDRT_TIMEOUT", "-3", 1);
	CHECK(srt_config_seconds("SHARDRT_TIMEOUT") == 600);
	unsetenv("SHARDRT_TIMEOUT");

	const char *value = "untouched";
	CHECK_STATUS(srt_config_value("SHARDRT_NOTHING", &value, NULL), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_config_value("", &value, NULL), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_config_value("PATH", &value, NULL), SRT_ERR_NOT_FOUND);
	CHECK_STR(value, "untouched");
}

struct unknown {
	int n;
	char text[400];
};

static void note_unknown(const char *name, const char *nearest, void *arg)
{
	struct unknown *u = arg;

	u->n++;
	snprintf(u->text, sizeof u->text, "%s~%s", name, nearest != NULL ? nearest : "");
}

static void try_unknown(const char *name, const char *expected)
{
	struct unknown u = { 0 };

	setenv(name, "1", 1);
	CHECK_INT(srt_config_unknown(note_unknown, &u), 1);
	CHECK_INT(u.n, 1);
	CHECK_STR(u.text, expected);
	unsetenv(name);
}

static void test_unknown(void)
{
	char longest[300] = "SHARDRT_";
	char cut[200] = "SHARDRT_";
	struct unknown u = { 0 };

	CHECK_INT(srt_config_unknown(note_unknown, &u), 0);
	CHECK_INT(srt_config_unknown(NULL, NULL), 0);
	CHECK_INT(u.n, 0);
	try_unknown("SHARDRT_THREAD", "SHARDRT_THREAD~SHARDRT_THREADS");
	try_unknown("SHARDRT_BAKCEND", "SHARDRT_BAKCEND~SHARDRT_BACKEND");
	try_unknown("SHARDRT_TIMEOUTS", "SHARDRT_TIMEOUTS~SHARDRT_TIMEOUT");
	try_unknown("SHARDRT_CPUISA", "SHARDRT_CPUISA~SHARDRT_CPU_ISA");
	try_unknown("SHARDRT_LOGS", "SHARDRT_LOGS~SHARDRT_LOG");
	try_unknown("SHARDRT_BIN", "SHARDRT_BIN~SHARDRT_BIND");
	try_unknown("SHARDRT_FOO", "SHARDRT_FOO~");
	try_unknown("SHARDRT_LO", "SHARDRT_LO~");
	try_unknown("SHARDRT_", "SHARDRT_~");
	try_unknown("SHARDRT_ZZZZZZZZZZZZ", "SHARDRT_ZZZZZZZZZZZZ~");
	memset(longest + 8, 'A', sizeof longest - 9);
	memset(cut + 8, 'A', 127 - 8);
	strcpy(cut + 127, "~");
	try_unknown(longest, cut);
	/* Not ours. */
	setenv("SHARDRTX", "1", 1);
	setenv("MY_SHARDRT_THREAD", "1", 1);
	CHECK_INT(srt_config_unknown(NULL, NULL), 0);
}

/* Numbers of ranks that other launchers set. */
static void test_others(void)
{
	static const char *const good[] = { "0", "7", "1048576" };
	static const char *const bad[] = { "-1", "1048577", "2(x3)", " 1", "x" };
	int value;

	unsetenv("WORLD_SIZE");
	CHECK(srt_config_foreign("WORLD_SIZE") == NULL);
	CHECK_OK(srt_config_foreign_int("WORLD_SIZE", &value));
	CHECK_INT(value, -1);
	setenv("WORLD_SIZE", "", 1);
	CHECK(srt_config_foreign("WORLD_SIZE") == NULL);
	CHECK(srt_config_is_empty("WORLD_SIZE"));
	CHECK_OK(srt_config_foreign_int("WORLD_SIZE", &value));
	CHECK_INT(value, -1);
	for (size_t i = 0; i < SRT_ARRAY_LEN(good); i++) {
		setenv("WORLD_SIZE", good[i], 1);
		CHECK_OK(srt_config_foreign_int("WORLD_SIZE", &value));
		CHECK_INT(value, atoi(good[i]));
		CHECK_STR(srt_config_foreign("WORLD_SIZE"), good[i]);
		CHECK(!srt_config_is_empty("WORLD_SIZE"));
	}
	for (size_t i = 0; i < SRT_ARRAY_LEN(bad); i++) {
		setenv("WORLD_SIZE", bad[i], 1);
		CHECK_STATUS(srt_config_foreign_int("WORLD_SIZE", &value),
			     SRT_ERR_INVALID_ARGUMENT);
	}
	srt_config_set_default("WORLD_SIZE", "8"); /* it is set */
	CHECK_STR(srt_config_foreign("WORLD_SIZE"), "x");
	setenv("WORLD_SIZE", "", 1);
	srt_config_set_default("WORLD_SIZE", "8");
	CHECK_STR(srt_config_foreign("WORLD_SIZE"), "8");
	unsetenv("WORLD_SIZE");
	CHECK(!srt_config_is_empty("WORLD_SIZE"));
}

int main(void)
{
	clean_environment();
	test_table();
	test_others();
	test_values();
	test_unknown();
	return check_done();
}
