/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Start-up of every tool: descriptors 0 to 2 are open, the library's log goes to standard error at
 * the level of SHARDRT_LOG, and unknown SHARDRT_* variables get a warning. Uses the public
 * interface only.
 */
#ifndef SRT_TOOLS_COMMON_H
#define SRT_TOOLS_COMMON_H

#include <stdio.h>

/** Exit status for wrong options and other errors of the user. */
#define TOOL_EXIT_USAGE 2

/**
 * Opens closed descriptors, connects the log and warns about unknown variables (on rank 0 only, as
 * all ranks have the same).
 * @param name the tool's name, the start of each line; not copied.
 */
void tool_start(const char *name);

/**
 * Checks all SHARDRT_* variables, before the rank joins a job. All ranks usually have the same
 * malformed variable: rank 0 prints it at once. The others wait for a second, in which the launcher
 * ends them.
 * @return 0, or TOOL_EXIT_USAGE after the first malformed one was printed.
 */
int tool_check_config(void);

/** Prints "name: message" to standard error. */
void tool_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Makes a text fit to be shown: control characters, which could drive a terminal, become '?'. */
void tool_make_printable(char *text);

/** Prints a text of several lines. Control bytes, which a terminal interprets, become '?'. */
void tool_print_text(FILE *out, const char *text, size_t nbytes);

/** Formats a number of bytes, e.g. "3.2 MiB". @param text 32 bytes. @return text. */
const char *tool_bytes(double nbytes, char text[32]);

#endif
