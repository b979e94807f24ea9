/* SPDX-License-Identifier: BSD-3-Clause */
/* What a folder of Hugging Face has apart from weights: config.json, and files of its tokenizer. */
#ifndef SRT_TOOLS_MODEL_FOLDER_H
#define SRT_TOOLS_MODEL_FOLDER_H

#include <stdint.h>

#include <shardrt/dtype.h>
#include <shardrt/status.h>

/** Room for a path in such a folder; a longer one is cut, and names no file. */
#define TOOL_CONFIG_NBYTES 3072

/** The config.json that a path means: that of a folder, or the file itself.
 * @param config TOOL_CONFIG_NBYTES. */
void tool_find_config(const char *path, char *config);

/** Tokens of a sequence: those that are wanted, or without them (0) the positions of the model, at
 * most 1024. */
int64_t tool_find_length(int64_t wanted, int64_t positions);

/**
 * Writes config.json with another dtype; the file is replaced as a whole. Local, blocking.
 * @param text one that was read: srt_family_set_dtype().
 * @param dtype of the weights.
 * @return SRT_ERR_IO if it cannot be written, SRT_ERR_OUT_OF_MEMORY.
 */
srt_status_t tool_write_config(const char *folder, const char *text, srt_dtype_t dtype);

/**
 * Copies generation_config.json and the files of a tokenizer, those that are there. Local,
 * blocking.
 * @return as srt_file_copy().
 */
srt_status_t tool_copy_model_files(const char *from, const char *to);

#endif
