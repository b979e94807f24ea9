/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses the command line and prints --help, by the table of options; see options.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/train/options_internal.h"

static int64_t *get_int_field(train_options_t *o, const option_t *opt)
{
	return (int64_t *)(void *)((char *)o + opt->offset);
}

static double *get_real_field(train_options_t *o, const option_t *opt)
{
	return (double *)(void *)((char *)o + opt->offset);
}

static int refuse_value(char *why, size_t nwhy, const option_t *opt, const char *value)
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

static int set_option(train_options_t *o, const option_t *opt, const char *value, char *why,
		      size_t nwhy)
{
	char *end = NULL;

	errno = 0;
	switch (opt->type) {
	case OPT_STRING:
		*(const char **)(void *)((char *)o + opt->offset) = value;
		return 0;
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
static void set_initial(train_options_t *o, const option_t *opt)
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

static const option_t *find_option(const char *name, size_t n)
{
	for (size_t i = 0; i < train_option_count; i++)
		if (train_option_table[i].type != OPT_HEADING &&
		    strlen(train_option_table[i].name) == n &&
		    strncmp(train_option_table[i].name, name, n) == 0)
			return &train_option_table[i];
	return NULL;
}

/* The argument after an option, which may be its value. */
static const char *get_next(const option_t *opt, int argc, char **argv, int a)
{
	const char *next = a + 1 < argc ? argv[a + 1] : NULL;

	return opt->type == OPT_OPTIONAL && next != NULL && next[0] == '-' ? NULL : next;
}

int train_options_parse(int argc, char **argv, train_options_t *o, char *why, size_t nwhy)
{
	memset(o, 0, sizeof(*o));
	for (size_t i = 0; i < train_option_count; i++)
		set_initial(o, &train_option_table[i]);
	for (int a = 1; a < argc; a++) {
		const char *name = argv[a], *value;
		const option_t *opt;

		if (strcmp(name, "-h") == 0)
			name = "--help";
		if (strncmp(name, "--", 2) != 0) {
			snprintf(why, nwhy, "unexpected argument '%s'; --help lists the options",
				 name);
			return -1;
		}
		name += 2;
		value = strchr(name, '=');
		opt = find_option(name, value != NULL ? (size_t)(value - name) : strlen(name));
		if (opt == NULL || (opt->type == OPT_FLAG && value != NULL)) {
			snprintf(why, nwhy, "%s '%s'; --help lists the options",
				 opt != NULL ? "no value is allowed in" : "unknown option",
				 argv[a]);
			return -1;
		}
		if (value != NULL)
			value++;
		else if (opt->type != OPT_FLAG && (value = get_next(opt, argc, argv, a)) != NULL)
			a++;
		if (value == NULL && opt->type == OPT_OPTIONAL) {
			*get_int_field(o, opt) = 1;
			continue;
		}
		if (value == NULL && opt->type != OPT_FLAG) {
			snprintf(why, nwhy, "--%s needs a value", opt->name);
			return -1;
		}
		if (set_option(o, opt, value, why, nwhy) != 0)
			return -1;
	}
	if (o->eval) {
		o->steps = 0;
		o->eval_every = 1;
		o->eval_batches = 0;
	}
	if (o->min_lr < 0)
		o->min_lr = o->lr / 10;
	if (o->eval_batches < 0)
		o->eval_batches = o->eval_every < o->steps ? o->eval_every : o->steps;
	if (o->warmup < 0)
		o->warmup = o->steps / 10 < 100 ? o->steps / 10 : 100;
	if (o->decay_steps < 0 && o->schedule == SRT_SCHEDULE_STABLE)
		o->decay_steps =
			o->steps / 10 < o->steps - o->warmup ? o->steps / 10 : o->steps - o->warmup;
	return train_options_check(o, why, nwhy);
}

static void print_option(FILE *out, const option_t *opt)
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

void train_options_help(FILE *out)
{
	fprintf(out,
		"usage: shardrt-train --text FILE [options]\n"
		"       shardrt-train --tokens FILE [options]\n"
		"       shardrt-train --init FILE --text FILE --eval [options]\n"
		"       shardrt-train --init FILE --generate N [options]\n"
		"       shardrun -n RANKS shardrt-train ...\n"
		"\n"
		"Trains a GPT on the bytes of a text, or on tokens, on one or several ranks.\n");
	for (size_t i = 0; i < train_option_count; i++) {
		if (train_option_table[i].type == OPT_HEADING)
			fprintf(out, "\n%s:\n", train_option_table[i].name);
		else
			print_option(out, &train_option_table[i]);
	}
	fprintf(out,
		"\n"
		"Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 end training after the current step, or\n"
		"end a validation; --save, --hash and the log are completed. If --save or the last\n"
		"checkpoint cannot be written at the end, it is tried again for a minute, unless a\n"
		"signal has ended training; then it goes to a new folder in TMPDIR (/tmp), and the\n"
		"status is 1. Exit status: 0 success, 1 failure, 2 wrong options or text, 128 + the number of\n"
		"the signal that ended training (130: Ctrl-C, 143: SIGTERM).\n"
		"With SHARDRT_FLIGHT, SIGUSR1 writes the flight recorder's files instead.\n"
		"shardrt-info -c lists the environment variables (SHARDRT_*).\n");
}
