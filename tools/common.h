/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every tool does first: the library's log to standard error as SHARDRT_LOG says, a warning
 * for SHARDRT_* variables that the library does not know. Public interface only.
 */
#ifndef SRT_TOOLS_COMMON_H
#define SRT_TOOLS_COMMON_H

#include <stdio.h>

/** Exit status for bad options and other mistakes of the caller. */
#define TOOL_EXIT_USAGE 2

/**
 * Connects the log and warns about unknown variables (on rank 0 only, as all ranks have the same).
 * @param name the tool's name, kept; stands in front of each line.
 */
void tool_start(const char *name);

/**
 * Checks all SHARDRT_* variables, before a job is joined. Of a mistake that all ranks have rank 0
 * speaks; the others wait a second, so that a launcher ends them before they repeat it.
 * @return 0, or TOOL_EXIT_USAGE after the first malformed one was printed.
 */
int tool_check_config(void);

/** Prints "name: message" to standard error. */
void tool_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Formats bytes for people, e.g. "3.2 MiB". @param text room for 32 bytes. @return text. */
const char *tool_bytes(double nbytes, char text[32]);

#endif
