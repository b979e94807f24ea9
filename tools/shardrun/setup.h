/* SPDX-License-Identifier: BSD-3-Clause */
/* What shardrun prepares in its process. Used by tools/shardrun/shardrun.c. */
#ifndef SRT_TOOLS_SHARDRUN_SETUP_H
#define SRT_TOOLS_SHARDRUN_SETUP_H

#include <signal.h>
#include <stdbool.h>

#include "tools/shardrun/writer.h"

/* Blocks the signals that shardrun handles. Returns a signalfd for them, or -1 with errno set. */
int srt_launch_open_signals(sigset_t *old_mask);

/* Many ranks have many pipes and sockets. */
void srt_launch_raise_file_limit(void);

/*
 * Starts the writers to the standard output and to the standard error; they are the same writer if
 * both are the same pipe, terminal or file, so that lines keep their order. Messages of shardrun go
 * through the second one. Returns false with errno set.
 */
bool srt_launch_open_writers(srt_launch_writer_t *writer[2], int wake);

#endif
