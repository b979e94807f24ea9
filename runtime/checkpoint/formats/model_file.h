/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model as one safetensors file, or as several with an index (index.h), in a folder of
 * Hugging Face. Several files are read as one (srt_safetensors_join()).
 */
#ifndef SRT_RUNTIME_CHECKPOINT_FORMATS_MODEL_FILE_H
#define SRT_RUNTIME_CHECKPOINT_FORMATS_MODEL_FILE_H

#include <stdbool.h>

#include "runtime/checkpoint/formats/safetensors.h"

/* The names in a folder; a model that has both is that of one file, as transformers reads it. */
#define SRT_MODEL_NAME "model.safetensors"
#define SRT_MODEL_INDEX_NAME "model.safetensors.index.json"

/* Whether a folder has a model, of one file or with an index. */
bool srt_model_file_is_in(const char *folder);
/*
 * Opens a safetensors file, an index whose name ends with ".index.json", or a folder that has
 * either, and checks all headers. As srt_safetensors_open(); SRT_ERR_NOT_FOUND, with a sentence on
 * what the folder has instead, for one without a model; SRT_ERR_FORMAT for a tensor that is not in
 * the file that the index names, or in two files.
 */
srt_status_t srt_model_file_open(const char *path, srt_safetensors_t **file);

#endif
