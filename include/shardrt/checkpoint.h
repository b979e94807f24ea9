/* SPDX-License-Identifier: BSD-3-Clause */
/* Full tensors to and from one safetensors file. */
#ifndef SHARDRT_CHECKPOINT_H
#define SHARDRT_CHECKPOINT_H

#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A metadata entry of the file's header. */
typedef struct srt_file_metadata {
	const char *key, *value;
} srt_file_metadata_t;

/**
 * Saves the full parameters to a safetensors file, streamed tensor by tensor (no rank holds more
 * than one). Collective and blocking; rank 0 writes to a temporary name beside `path`, syncs and
 * renames: at every moment `path` is the old file or the whole new one.
 * @param metadata nmetadata strings kept in the header.
 * Tied parameters are saved once, under the name they were declared with.
 * @return SRT_ERR_IO on every rank if rank 0 cannot write (disk full, no permission);
 *         SRT_ERR_INVALID_ARGUMENT if `path` is not a regular file or a string is not UTF-8.
 */
SRT_API srt_status_t srt_engine_save(srt_engine_t *engine, const char *path,
				     const srt_file_metadata_t *metadata, size_t nmetadata,
				     srt_stream_t *stream);

/**
 * Sets the parameters from a safetensors file of full tensors. Each rank reads the file and keeps
 * its own rows. A tied parameter may be there under any of its names; tensors that the engine lacks
 * are logged. Collective and blocking; the same error on all ranks.
 * @return SRT_ERR_FORMAT for a malformed file, SRT_ERR_INVALID_ARGUMENT for a missing key or
 *         another shape (the message has the key and both sizes), SRT_ERR_NOT_FOUND without a file,
 *         SRT_ERR_UNSUPPORTED in a build without jansson: nothing is changed in those cases.
 *         SRT_ERR_IO if the disk fails after all that: values are then partly loaded.
 */
SRT_API srt_status_t srt_engine_load(srt_engine_t *engine, const char *path, srt_stream_t *stream);

/**
 * Reads one metadata entry of a safetensors file.
 * @param[out] value at most nvalue bytes with the terminating zero.
 * @return SRT_ERR_NOT_FOUND if the file has no such entry.
 */
SRT_API srt_status_t srt_file_get_metadata(const char *path, const char *key, char *value,
					   size_t nvalue);

#ifdef __cplusplus
}
#endif
#endif
