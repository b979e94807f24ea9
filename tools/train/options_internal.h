/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files that read the options of shardrt-train share. */
#ifndef SRT_TOOLS_TRAIN_OPTIONS_INTERNAL_H
#define SRT_TOOLS_TRAIN_OPTIONS_INTERNAL_H

#include "tools/option_table.h"
#include "tools/train/options.h"

/** All options. */
extern const tool_options_t train_option_table;

/**
 * Checks that involve several options.
 * @return 0, or -1 with the error message.
 */
int train_options_check(const train_options_t *options, char *why, size_t nwhy);

#endif
