/* SPDX-License-Identifier: BSD-3-Clause */
/* Why a program ends: a sentence and the exit status. Ranks agree on it: see ranks.h. */
#ifndef SRT_TOOLS_WHY_H
#define SRT_TOOLS_WHY_H

#include <stdbool.h>

/** An error in options, data or files. */
typedef struct tool_why {
	char text[512]; /* "": none */
	int status;     /* the exit status */
} tool_why_t;

/** Sets the sentence of wrong options, for exit status 2: shardrun does not start the job again.
 * Control bytes, which could drive a terminal, become '?'. @return -1. */
int tool_why_usage(tool_why_t *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Sets the sentence of files or a system that fail, for exit status 1. @return -1. */
int tool_why_failure(tool_why_t *why, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/** Sets the sentence of a failed call of the system, and adds the text of `error`, an errno. The
 * exit status is 2 for a wrong path and the like in the first start of a job, else 1. @return -1.
 */
int tool_why_system(tool_why_t *why, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/** Whether the launcher has started the job again: the paths and the text were right before. */
bool tool_is_started_again(void);

#endif
