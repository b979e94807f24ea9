/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses a command line and prints the options, by a table; see option_table.h. */
#include "tools/option_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/precision.h"

static int64_t *get_int_field(void *o, const tool_option_t *opt)
{
	return (int64_t *)(void *)((char *)o + opt->offset);
}

static double *get_real_field(void *o, const tool_option_t *opt)
{
	return (double *)(void *)((char *)o + opt->offset);
}

static int refuse_value(char *why, size_t nwhy, const tool_option_t *opt, const char *value)
{
	if (opt->words != NULL)
		snprintf(why, nwhy, "--%s must be one of %s, not '%s'", opt->name, opt->words,
			 value);
	else if (opt->type == OPT_SIZE)
		snprintf(why, nwhy,
			 "--%s needs a number of bytes, also with suffix k, m or g, from %.0f on, "
			 "not '%s'",
			 opt->name, opt->min, value);
	else if (opt->type == OPT_INT)
		snprintf(why, nwhy, "--%s needs a whole number from %.0f to %.0f, not '%s'",
			 opt->name, opt->min, opt->max, value);
	else
		snprintf(why, nwhy, "--%s needs a number from %g to %g, not '%s'", opt->name,
			 opt->min, opt->max, value);
	return -1;
}

/* @return bytes, or -1 for another text. */
static int64_t parse_size(const char *value)
{
	static const char suffixes[] = "kmg";
	const char *suffix;
	char *end;
	int64_t n;

	errno = 0;
	n = strtoll(value, &end, 10);
	if (errno || end == value || n < 0)
		return -1;
	suffix = *end ? strchr(suffixes, *end) : NULL;
	if (suffix != NULL && end[1] == '\0') {
		end++;
		if (__builtin_mul_overflow(n, INT64_C(1) << (10 * (suffix - suffixes + 1)), &n))
			return -1;
	}
	return *end ? -1 : n;
}

static int add_text(tool_texts_t *texts, const tool_option_t *opt, const char *value, char *why,
		    size_t nwhy)
{
	if (texts->n == TOOL_MOST_TEXTS) {
		snprintf(why, nwhy, "--%s may be given %d times", opt->name, TOOL_MOST_TEXTS);
		return -1;
	}
	texts->text[texts->n++] = value;
	return 0;
}

static int set_option(void *o, const tool_option_t *opt, const char *value, char *why, size_t nwhy)
{
	char *end = NULL;

	errno = 0;
	switch (opt->type) {
	case OPT_STRING:
		*(const char **)(void *)((char *)o + opt->offset) = value;
		return 0;
	case OPT_LIST:
		return add_text((tool_texts_t *)(void *)((char *)o + opt->offset), opt, value, why,
				nwhy);
	case OPT_INT: {
		long long n = strtoll(value, &end, 10);

		if (errno || end == value || *end || (double)n < opt->min || (double)n > opt->max)
			return refuse_value(why, nwhy, opt, value);
		*get_int_field(o, opt) = n;
		return 0;
	}
	case OPT_SIZE: {
		int64_t n = parse_size(value);

		if ((double)n < opt->min || (double)n > opt->max)
			return refuse_value(why, nwhy, opt, value);
		*get_int_field(o, opt) = n;
		return 0;
	}
	case OPT_REAL: {
		double x = strtod(value, &end);

		if (end == value || *end || !(x >= opt->min && x <= opt->max))
			return refuse_value(why, nwhy, opt, value);
		*get_real_field(o, opt) = x;
		return 0;
	}
	case OPT_WORD:
	case OPT_OPTIONAL: {
		int64_t i = tool_find_word(opt->words, value);

		if (i < 0)
			return refuse_value(why, nwhy, opt, value);
		*get_int_field(o, opt) = i;
		return 0;
	}
	default:
		*get_int_field(o, opt) = 1;
		return 0;
	}
}

/* A default may be outside the range: it means that another option determines the value. */
static void set_initial(void *o, const tool_option_t *opt)
{
	if (opt->initial == NULL || opt->type == OPT_HEADING)
		return;
	if (opt->type == OPT_STRING)
		*(const char **)(void *)((char *)o + opt->offset) = opt->initial;
	else if (opt->type == OPT_REAL)
		*get_real_field(o, opt) = strtod(opt->initial, NULL);
	else if (opt->words != NULL)
		*get_int_field(o, opt) = tool_find_word(opt->words, opt->initial);
	else
		*get_int_field(o, opt) = strtoll(opt->initial, NULL, 10);
}

static const tool_option_t *find_option(const tool_options_t *options, const char *name, size_t n)
{
	for (size_t i = 0; i < options->count; i++)
		if (options->rows[i].type != OPT_HEADING && strlen(options->rows[i].name) == n &&
		    strncmp(options->rows[i].name, name, n) == 0)
			return &options->rows[i];
	return NULL;
}

/* The argument after an option, which may be its value. */
static const char *get_next(const tool_option_t *opt, int argc, char **argv, int a)
{
	const char *next = a + 1 < argc ? argv[a + 1] : NULL;

	return opt->type == OPT_OPTIONAL && next != NULL && next[0] == '-' ? NULL : next;
}

/* The value of the option, in the same argument (NULL: not there) or the next one. */
static int read_value(const tool_option_t *opt, const char *value, int argc, char **argv, int *a,
		      void *values, char *why, size_t nwhy)
{
	if (value == NULL && opt->type != OPT_FLAG &&
	    (value = get_next(opt, argc, argv, *a)) != NULL)
		++*a;
	if (value == NULL && opt->type == OPT_OPTIONAL) {
		*get_int_field(values, opt) = 1;
		return 0;
	}
	if (value == NULL && opt->type != OPT_FLAG) {
		snprintf(why, nwhy, "--%s needs a value", opt->name);
		return -1;
	}
	return set_option(values, opt, value, why, nwhy);
}

/* An argument that is no option. */
static int read_argument(const tool_options_t *options, const char *text, void *values, char *why,
			 size_t nwhy)
{
	const char **argument = (const char **)(void *)((char *)values + options->argument);

	if (text[0] != '-' && options->has_argument && *argument == NULL) {
		*argument = text;
		return 0;
	}
	snprintf(why, nwhy, "unexpected argument '%s'; --help lists the options", text);
	return -1;
}

int tool_options_parse(const tool_options_t *options, int argc, char **argv, void *values,
		       char *why, size_t nwhy)
{
	for (size_t i = 0; i < options->count; i++)
		set_initial(values, &options->rows[i]);
	for (int a = 1; a < argc; a++) {
		const char *name = argv[a], *value;
		const tool_option_t *opt;

		if (strcmp(name, "-h") == 0)
			name = "--help";
		if (strncmp(name, "--", 2) != 0) {
			if (read_argument(options, name, values, why, nwhy) != 0)
				return -1;
			continue;
		}
		name += 2;
		value = strchr(name, '=');
		opt = find_option(options, name,
				  value != NULL ? (size_t)(value - name) : strlen(name));
		if (opt == NULL || (opt->type == OPT_FLAG && value != NULL)) {
			snprintf(why, nwhy, "%s '%s'; --help lists the options",
				 opt != NULL ? "no value is allowed in" : "unknown option",
				 argv[a]);
			return -1;
		}
		if (read_value(opt, value != NULL ? value + 1 : NULL, argc, argv, &a, values, why,
			       nwhy) != 0)
			return -1;
	}
	return 0;
}

static void print_option(FILE *out, const tool_option_t *opt)
{
	char left[64];

	snprintf(left, sizeof(left), "--%s%s%s", opt->name, opt->arg != NULL ? " " : "",
		 opt->arg != NULL ? opt->arg : "");
	fprintf(out, "  %-30s ", left);
	if (strlen(left) > 30)
		fprintf(out, "\n%33s", "");
	for (const char *p = opt->help; *p; p++) {
		fputc(*p, out);
		if (*p == '\n')
			fprintf(out, "%33s", "");
	}
	if (opt->initial != NULL && opt->initial[0] != '-' && opt->initial[0] != '\n')
		fprintf(out, " [%s]", opt->initial);
	fputc('\n', out);
}

void tool_options_print(const tool_options_t *options, FILE *out)
{
	for (size_t i = 0; i < options->count; i++) {
		if (options->rows[i].type == OPT_HEADING)
			fprintf(out, "\n%s:\n", options->rows[i].name);
		else
			print_option(out, &options->rows[i]);
	}
}
