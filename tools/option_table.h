/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of a program as a table: one row for parsing, default, range and --help of each. */
#ifndef SRT_TOOLS_OPTION_TABLE_H
#define SRT_TOOLS_OPTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** The upper limit of numbers that have no other one. */
#define OPTION_BIG 2147483647.0

/** How the value of an option is written. */
enum tool_option_type {
	OPT_STRING,
	OPT_INT,
	OPT_SIZE, /* bytes, also with suffix k, m or g */
	OPT_REAL,
	OPT_WORD,     /* index of one of the words in `words` */
	OPT_OPTIONAL, /* the same; the second word if there is no value */
	OPT_FLAG,
	OPT_LIST,    /* a string, several times: tool_texts_t */
	OPT_HEADING, /* of --help only */
};

/** An option. */
typedef struct tool_option {
	const char *name;
	enum tool_option_type type;
	size_t offset;
	const char *arg;     /* as --help shows it */
	const char *initial; /* as one would type it; NULL = 0 */
	double min, max;     /* of numbers */
	const char *words;   /* "a|b|c" */
	const char *help;    /* lines after the first get the same indentation */
} tool_option_t;

/** The values of an option that may be given several times. */
#define TOOL_MOST_TEXTS 16
typedef struct tool_texts {
	const char *text[TOOL_MOST_TEXTS]; /* borrowed from argv */
	int n;
} tool_texts_t;

/** The options of a program. Values are in a struct: int64_t of numbers, words and flags, double,
 * const char *. */
typedef struct tool_options {
	const tool_option_t *rows; /* in the order of --help */
	size_t count;
	bool has_argument; /* one argument may have no option */
	size_t argument;   /* offset of its const char * in the struct */
} tool_options_t;

/**
 * Parses a command line.
 * @param values the struct, all zero; gets the defaults, then what is given.
 * @param[out] why the error message, nwhy bytes.
 * @return 0, or -1.
 */
int tool_options_parse(const tool_options_t *options, int argc, char **argv, void *values,
		       char *why, size_t nwhy);

/** Prints the options for --help. */
void tool_options_print(const tool_options_t *options, FILE *out);

/* Rows of a table, in a file that defines FIELD(f), the offset of a field. */
#define HEADING(text)                                                                              \
	{                                                                                          \
		text, OPT_HEADING, 0, NULL, NULL, 0, 0, NULL, NULL                                 \
	}
#define STRING(name, f, arg, initial, help)                                                        \
	{                                                                                          \
		name, OPT_STRING, FIELD(f), arg, initial, 0, 0, NULL, help                         \
	}
#define INT(name, f, initial, min, max, help)                                                      \
	{                                                                                          \
		name, OPT_INT, FIELD(f), "N", initial, min, max, NULL, help                        \
	}
#define SIZE(name, f, initial, min, max, help)                                                     \
	{                                                                                          \
		name, OPT_SIZE, FIELD(f), "BYTES", initial, min, max, NULL, help                   \
	}
#define REAL(name, f, initial, min, max, help)                                                     \
	{                                                                                          \
		name, OPT_REAL, FIELD(f), "X", initial, min, max, NULL, help                       \
	}
#define WORD(name, f, initial, words, help)                                                        \
	{                                                                                          \
		name, OPT_WORD, FIELD(f), words, initial, 0, 0, words, help                        \
	}
#define OPTIONAL(name, f, arg, initial, words, help)                                               \
	{                                                                                          \
		name, OPT_OPTIONAL, FIELD(f), arg, initial, 0, 0, words, help                      \
	}
#define FLAG(name, f, help)                                                                        \
	{                                                                                          \
		name, OPT_FLAG, FIELD(f), NULL, NULL, 0, 0, NULL, help                             \
	}
#define LIST(name, f, arg, help)                                                                   \
	{                                                                                          \
		name, OPT_LIST, FIELD(f), arg, NULL, 0, 0, NULL, help                              \
	}

#endif
