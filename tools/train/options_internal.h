/* SPDX-License-Identifier: BSD-3-Clause */
/* An option of shardrt-train is one row of a table; shared by the files that read it. */
#ifndef SRT_TOOLS_TRAIN_OPTIONS_INTERNAL_H
#define SRT_TOOLS_TRAIN_OPTIONS_INTERNAL_H

#include "tools/train/options.h"

/** The upper limit of numbers that have no other one. */
#define OPTION_BIG 2147483647.0

/** How the value of an option is written. */
enum option_type {
	OPT_STRING,
	OPT_INT,
	OPT_SIZE, /* bytes, also with suffix k, m or g */
	OPT_REAL,
	OPT_WORD,     /* index of one of the words in `words` */
	OPT_OPTIONAL, /* the same; the second word if there is no value */
	OPT_FLAG,
	OPT_HEADING, /* of --help only */
};

/** An option. */
typedef struct option {
	const char *name;
	enum option_type type;
	size_t offset;
	const char *arg;     /* as --help shows it */
	const char *initial; /* as one would type it; NULL = 0 */
	double min, max;     /* of numbers */
	const char *words;   /* "a|b|c" */
	const char *help;    /* lines after the first get the same indentation */
} option_t;

/** All options, in the order of --help. */
extern const option_t train_option_table[];
extern const size_t train_option_count;

/**
 * Checks that involve several options.
 * @return 0, or -1 with the error message.
 */
int train_options_check(const train_options_t *options, char *why, size_t nwhy);

#endif
