/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: NAME=VALUE, the only variable of the environment. */
#include <math.h>
#include <unistd.h>

#include "base/base.h"
#include "tests/fuzz/fuzz.h"

/* A value that is accepted is the one that the C library reads, and in the range. */
static void check_value(const srt_config_entry_t *e, const char *text)
{
	long long low = 0, high = INT64_MAX, value = srt_config_int(e->name);
	double seconds = srt_config_seconds(e->name);
	char *end = NULL;

	if (e->type == SRT_CONFIG_INT) {
		FUZZ_CHECK(strtoll(text, &end, 10) == value && *end == '\0');
		FUZZ_CHECK(!e->range[0] || sscanf(e->range, "%lld..%lld", &low, &high) == 2);
		FUZZ_CHECK(value >= low && value <= high);
	} else if (e->type == SRT_CONFIG_SIZE) { /* the only one has the range 1k..1g */
		FUZZ_CHECK(value >= 1 << 10 && value <= 1 << 30);
		FUZZ_CHECK(value % strtoll(text, &end, 10) == 0 && strlen(end) < 2);
	} else if (e->type == SRT_CONFIG_TIME) {
		FUZZ_CHECK(fabs(strtod(text, &end) - seconds) <= 1e-12 * seconds && *end == '\0');
		FUZZ_CHECK(seconds >= 0.001 && seconds <= 1e6);
	} else if (e->type == SRT_CONFIG_ENUM) {
		FUZZ_CHECK(strstr(e->range, text) != NULL && strchr(text, '|') == NULL);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes)
{
	char *variable = fuzz_text(input, nbytes), **outer = environ;
	char *name = strndup(variable, strcspn(variable, "="));
	const char *value = strchr(variable, '='), *text;
	int is_set = 0, number;

	environ = (char *[]){ variable, NULL };
	for (size_t i = 0; i < srt_config_count(); i++) {
		const srt_config_entry_t *e = srt_config_at(i);

		if (strcmp(e->name, name) != 0)
			continue;
		if (srt_config_value(name, &text, &is_set) != SRT_OK)
			FUZZ_CHECK(strcmp(srt_config_string(name), e->default_value) == 0);
		else if (is_set)
			check_value(e, value + 1);
	}
	FUZZ_CHECK(srt_config_unknown(NULL, NULL) <= 1);
	if (srt_config_foreign_int(name, &number) != SRT_OK)
		FUZZ_CHECK(number == -1);
	else
		FUZZ_CHECK(number >= -1 && number <= 1048576);
	environ = outer;
	free(name);
	free(variable);
	return 0;
}
