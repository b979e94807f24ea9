/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The writer of a model to a folder of Hugging Face: model.safetensors, or several files of a
 * bounded size and model.safetensors.index.json, with the names that transformers gives them.
 * Other files in the folder stay.
 *
 * All files are written and synced under temporary names before one is renamed. A commit that is
 * interrupted leaves the old model, the new one, or files without an index, which no reader takes
 * for a model.
 * Called by file.c.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_FORMATS_MODEL_WRITE_H
#define SRT_RUNTIME_CHECKPOINT_FORMATS_MODEL_WRITE_H

#include "runtime/checkpoint/formats/safetensors.h"

typedef struct srt_model_writer srt_model_writer_t;

/* As srt_file_writer_create_folder(). */
srt_status_t srt_model_writer_create(const char *folder, const srt_safetensors_entry_t *entries,
				     size_t nentries, const srt_file_metadata_t *metadata,
				     size_t nmetadata, size_t max_nbytes,
				     srt_model_writer_t **writer);
/* As srt_safetensors_writer_put_at(), of entry i of the list. */
srt_status_t srt_model_writer_put_at(srt_model_writer_t *writer, size_t i, size_t offset,
				     const void *data, size_t nbytes);
/* Syncs and renames all. SRT_ERR_STATE unless each entry was written; SRT_ERR_IO, with a sentence
 * on what the folder has then. */
srt_status_t srt_model_writer_commit(srt_model_writer_t *writer);
/* Removes the temporary files if there was no commit. NULL is allowed. */
void srt_model_writer_destroy(srt_model_writer_t *writer);

#endif
