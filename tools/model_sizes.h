/* SPDX-License-Identifier: BSD-3-Clause */
/* A model's sizes in saved files: as text for a preset, as config.json for one of Hugging Face. */
#ifndef SRT_TOOLS_MODEL_SIZES_H
#define SRT_TOOLS_MODEL_SIZES_H

#include <stddef.h>

#include <shardrt/models/decoder.h>

/** The metadata entry of a saved file that holds the model's sizes. */
#define TOOL_SIZES_KEY "shardrt.gpt"
/** The entry of a checkpoint that holds the config.json of a model of Hugging Face. */
#define TOOL_CONFIG_KEY "config.json"
/** Room for the sizes. */
#define TOOL_SIZES_NBYTES 256
/** Writes the entry. */
void tool_print_sizes(const srt_decoder_config_t *config, char *text, size_t text_nbytes);
/**
 * Parses the entry: the text that tool_print_sizes() writes, and no other. Does not check the
 * sizes: see srt_decoder_check().
 * @return 0, or -1, and *config is unchanged.
 */
int tool_parse_sizes(const char *text, srt_decoder_config_t *config);

#endif
