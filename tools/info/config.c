/* SPDX-License-Identifier: BSD-3-Clause */
/* The configuration table: with its values, and as the page docs/environment.md. */
#include "tools/common.h"
#include "tools/info/info.h"

#include <stdio.h>
#include <string.h>

#include <shardrt/config.h>

static const char *const type_name[] = {
	[SRT_CONFIG_STRING] = "text",  [SRT_CONFIG_ENUM] = "word", [SRT_CONFIG_INT] = "number",
	[SRT_CONFIG_BOOL] = "yes, no", [SRT_CONFIG_TIME] = "time", [SRT_CONFIG_SIZE] = "size",
};

int info_config(void)
{
	int status = 0;

	for (size_t i = 0; i < srt_config_count(); i++) {
		const srt_config_entry_t *e = srt_config_at(i);
		const char *value = "";
		int is_set = 0;

		if (srt_config_value(e->name, &value, &is_set) != SRT_OK) {
			printf("%s: %s\n", e->name, srt_error_last());
			status = TOOL_EXIT_USAGE;
			continue;
		}
		if (is_set && strcmp(e->name, "SHARDRT_TOKEN") == 0)
			value = "*"; /* a secret */
		printf("%s=%s%s%s%s\n", e->name, value, *e->unit ? " " : "", e->unit,
		       is_set ? "  (set)" : "");
		printf("    %s\n", e->help);
		printf("    %s%s%s; default: %s\n", type_name[e->type], *e->range ? ", " : "",
		       e->range, *e->default_value ? e->default_value : "empty");
	}
	return status;
}

/* A '|' would end the cell of a markdown table. */
static void print_cell(const char *text)
{
	for (; *text; text++)
		printf(*text == '|' ? "\\|" : "%c", *text);
}

void info_config_page(void)
{
	puts("# Environment variables\n\n"
	     "All variables that libshardrt reads. An option of a program overrides the variable,\n"
	     "and the variable overrides the default. A variable that is set to an empty string\n"
	     "counts as not set, except `SHARDRT_BOOTSTRAP`. A malformed value is an error on every\n"
	     "rank when the context is created. The tools warn about `SHARDRT_*` variables that are\n"
	     "not in this table.\n\n"
	     "`shardrt-info --config-page` prints this page; `shardrt-info -c` prints the present\n"
	     "values.\n\n"
	     "| Variable | Values | Default | Meaning |\n"
	     "|---|---|---|---|");
	for (size_t i = 0; i < srt_config_count(); i++) {
		const srt_config_entry_t *e = srt_config_at(i);

		printf("| `%s` | ", e->name);
		if (*e->range)
			print_cell(e->range);
		else
			print_cell(type_name[e->type]);
		printf("%s%s | %s | ", *e->unit ? " " : "", e->unit,
		       *e->default_value ? e->default_value : "empty");
		print_cell(e->help);
		printf(" |\n");
	}
}
