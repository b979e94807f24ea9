/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checkpoints: unsharded parameters and buffers in one safetensors file. Calls on an engine follow
 * its rules for threads (<shardrt/engine.h>).
 */
#ifndef SHARDRT_CHECKPOINT_H
#define SHARDRT_CHECKPOINT_H

#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A metadata entry of the file's header, both strings UTF-8. Borrowed for the call. */
typedef struct srt_file_metadata {
	const char *key, *value;
} srt_file_metadata_t;

/**
 * Saves the unsharded parameters to a safetensors file, one tensor after the other, in pieces:
 * rank 0 allocates 1 MiB of host memory. Tied parameters are saved once, under their declared name;
 * buffers of units with the values of rank 0.
 * Collective, blocking. Rank 0 writes a temporary file in the same folder, syncs it and renames it:
 * at any time `path` is the complete old file or the complete new one. The whole file is allocated
 * at the start. A file that `path` names by a symbolic link is replaced, not the link; the new file
 * has the mode of the old one and the owner of the process. Temporary files PATH.tmp-* of processes
 * that were killed are removed.
 * @param path file to write; used on rank 0, NULL is allowed on the others.
 * @param metadata nmetadata entries for the header; used on rank 0; NULL if nmetadata is 0.
 * @return on all ranks: SRT_ERR_IO if rank 0 cannot write (disk full, no permission); the old file
 *         is intact, unless the sentence states that the new one is in place but not synced;
 *         SRT_ERR_INVALID_ARGUMENT if `path` is not a regular file or a string is not UTF-8;
 *         SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_engine_save(srt_engine_t *engine, const char *path,
				     const srt_file_metadata_t *metadata, size_t nmetadata,
				     srt_stream_t *stream);

/**
 * Sets the parameters and buffers from a safetensors file of unsharded tensors. Each rank reads its
 * own rows. A tied parameter may have any of its names in the file. Tensors that the engine does
 * not have are logged. Collective, blocking.
 * @param path file to read: the same file on every rank (SHARDRT_LOAD_COPIES=yes: or copies).
 * @return on all ranks: SRT_ERR_FORMAT for a malformed file, SRT_ERR_INVALID_ARGUMENT for a missing
 *         tensor or another shape or dtype (the sentence has the name and both shapes),
 *         SRT_ERR_NOT_FOUND without a file, SRT_ERR_UNSUPPORTED for more than 8 dimensions,
 *         SRT_ERR_MISMATCH if the ranks have opened different files (the sentence has both paths),
 *         SRT_ERR_STATE before srt_engine_build(): no value has changed. SRT_ERR_IO if a later read
 *         fails or the file is written to meanwhile, or the failure of the stream: some values
 *         have changed.
 */
SRT_API srt_status_t srt_engine_load(srt_engine_t *engine, const char *path, srt_stream_t *stream);

/**
 * Reads one metadata entry of a safetensors file. Local. Thread-safe.
 * @param[out] value nvalue bytes for the value and its terminating zero; set on success only.
 * @return SRT_ERR_NOT_FOUND without a file or entry, SRT_ERR_INVALID_ARGUMENT if the value does not
 *         fit nvalue bytes, SRT_ERR_FORMAT for a malformed file, SRT_ERR_IO if it cannot be read.
 */
SRT_API srt_status_t srt_file_get_metadata(const char *path, const char *key, char *value,
					   size_t nvalue);

/**
 * Counts the tensors of a safetensors file. Local. Thread-safe.
 * @param[out] ntensors set on success only.
 * @return as srt_file_get_metadata().
 */
SRT_API srt_status_t srt_file_count_tensors(const char *path, size_t *ntensors);

#ifdef __cplusplus
}
#endif
#endif
