/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Safetensors files, folders of them and sharded checkpoints without an engine: their tensors
 * listed, read, hashed and written. <shardrt/checkpoint.h> has the calls that save and load an
 * engine, <shardrt/checkpoint_file.h> what a sharded checkpoint has apart from tensors.
 */
#ifndef SHARDRT_FILE_H
#define SHARDRT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/checkpoint.h>
#include <shardrt/dtype.h>
#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Most dimensions of a tensor in a file. */
#define SRT_FILE_MAX_DIMS 8

/* ---- reading -------------------------------------------------------------------------- */

/** An open file, folder or sharded checkpoint, checked. Opaque. Used by one thread at a time. */
typedef struct srt_file srt_file_t;

/** A tensor of a file, filled by srt_file_at() and srt_file_find(). Strings are the file's: they
 * live until it is closed. */
typedef struct srt_file_tensor {
	size_t size;            /* set by SRT_FILE_TENSOR_INIT */
	const char *name;       /* UTF-8; may have control characters */
	const char *dtype_name; /* as in the file: "F32", "I16", ... */
	srt_dtype_t dtype;      /* SRT_DTYPE_NONE if the library has no such dtype */
	int ndim;
	int64_t shape[SRT_FILE_MAX_DIMS];
	size_t nelem, nbytes;
} srt_file_tensor_t;

/** Sets srt_file_tensor_t.size. */
#define SRT_FILE_TENSOR_INIT                                                                       \
	{                                                                                          \
		.size = sizeof(srt_file_tensor_t)                                                  \
	}

/**
 * Opens a file and checks its header completely. Or a folder of Hugging Face: model.safetensors, or
 * the files that model.safetensors.index.json names, read as one file that has the tensors of all;
 * the path of such an index means its folder. Or the folder of a sharded checkpoint
 * (srt_checkpoint_save()), whose manifest it checks: it has the unsharded parameters and buffers,
 * as a file of srt_engine_save(). Local.
 * @param path the file or folder.
 * @param[out] file owned by the caller; set on success only.
 * @return SRT_ERR_NOT_FOUND without a file, or for a folder without a model (the sentence has what
 *         is there instead), SRT_ERR_FORMAT for a malformed one, or an index that its files
 *         contradict, SRT_ERR_UNSUPPORTED for more than SRT_FILE_MAX_DIMS dimensions, or for a
 *         checkpoint in a library without libxxhash; SRT_ERR_IO if it cannot be read.
 */
SRT_API srt_status_t srt_file_open(const char *path, srt_file_t **file);

/** As srt_file_open(), and of a sharded checkpoint also the unsharded states of the optimizer:
 * "optimizer.state0.NAME" and so on. Local. */
SRT_API srt_status_t srt_file_open_all(const char *path, srt_file_t **file);

/** Closes it. NULL is allowed. */
SRT_API void srt_file_close(srt_file_t *file);

/** Number of tensors. Local. */
SRT_API size_t srt_file_count(const srt_file_t *file);

/**
 * The i-th tensor in the order of names (compared as bytes). Local.
 * @param[out] tensor its size is set; filled on success only.
 * @return SRT_ERR_NOT_FOUND past the end.
 */
SRT_API srt_status_t srt_file_at(const srt_file_t *file, size_t i, srt_file_tensor_t *tensor);

/**
 * The tensor of this name. Local.
 * @param[out] tensor its size is set; filled on success only; NULL is allowed.
 * @return SRT_ERR_NOT_FOUND if there is none.
 */
SRT_API srt_status_t srt_file_find(const srt_file_t *file, const char *name,
				   srt_file_tensor_t *tensor);

/**
 * The value of a metadata entry; of a sharded checkpoint, of an entry of the program that is text,
 * with or without zeros at its end. Local.
 * @param[out] value lives until the file is closed; set on success only.
 * @return SRT_ERR_NOT_FOUND if there is none.
 */
SRT_API srt_status_t srt_file_find_metadata(const srt_file_t *file, const char *key,
					    const char **value);

/**
 * Reads bytes offset .. offset + nbytes - 1 of a tensor. Local, blocking. Of a sharded checkpoint
 * these are complete elements; the blocks of 1 MiB that have them are read and their hashes
 * compared, so one call should read several MiB. The last block is kept for the next call.
 * @param[out] data nbytes.
 * @return SRT_ERR_NOT_FOUND without this tensor or its file, SRT_ERR_INVALID_ARGUMENT for bytes
 *         that it does not have, SRT_ERR_FORMAT, with file and tensor, if they are damaged,
 *         SRT_ERR_IO if they cannot be read.
 */
SRT_API srt_status_t srt_file_read(const srt_file_t *file, const char *name, size_t offset,
				   size_t nbytes, void *data);

/**
 * XXH3-128 of all tensors in the order of names: name, dtype, shape and bytes of each. It does not
 * depend on the order of tensors in the file, on metadata, or on how they are sharded. Local,
 * blocking.
 * @param[out] hash 16 bytes, big-endian; set on success only.
 * @return SRT_ERR_UNSUPPORTED in a library without libxxhash, SRT_ERR_IO if the file cannot be read
 *         or is written to meanwhile; of a sharded checkpoint as srt_file_read().
 */
SRT_API srt_status_t srt_file_hash(const srt_file_t *file, unsigned char hash[16]);

/**
 * The metadata entry of a file of which not all tensors are parameters: a letter for each tensor in
 * the order of names, p: the values of a parameter, b: a buffer of a unit, s: a state of the
 * optimizer. srt_engine_save() of an engine with buffers writes it. In a file without this entry
 * each tensor is a parameter.
 */
#define SRT_FILE_KINDS_KEY "shardrt.kinds"

/**
 * Hash of the values of all parameters, which srt_engine_hash() of the engine that saved them
 * returns: XXH3-128 over the values in the order of names; NaN counts as 7fc00000. Names, shapes,
 * buffers and optimizer states are not in it. Local, blocking; in pieces of 1 MiB.
 * @param[out] params 16 bytes, big-endian; set on success only.
 * @param[out] all 16 bytes: as srt_file_hash(), computed in the same pass over the file; NULL: it
 *         is not computed.
 * @return SRT_ERR_INVALID_ARGUMENT, before tensors are read, for a file that does not tell which
 *         tensors are parameters: its entry SRT_FILE_KINDS_KEY does not have a letter for each, or
 *         a parameter would have another dtype than f32, f16 and bf16; else as srt_file_hash().
 */
SRT_API srt_status_t srt_file_hash_params(const srt_file_t *file, unsigned char params[16],
					  unsigned char *all);

/* ---- writing -------------------------------------------------------------------------- */

/** A file, or a folder of files, that is being written. Opaque. Used by one thread at a time. */
typedef struct srt_file_writer srt_file_writer_t;

/** A tensor to be written; does not grow. The name is borrowed for the length of the call. */
typedef struct srt_file_entry {
	const char *name; /* UTF-8 */
	srt_dtype_t dtype;
	int ndim; /* at most SRT_MAX_DIMS */
	int64_t shape[SRT_MAX_DIMS];
} srt_file_entry_t;

/**
 * Creates a temporary file in the folder of `path`, which replaces `path` by
 * srt_file_writer_commit(). Local, blocking.
 * @param metadata nmetadata entries; NULL if nmetadata is 0.
 * @param[out] writer owned by the caller; set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for a name that occurs twice or is not UTF-8, a bad shape, or a
 *         `path` that is not a regular file; SRT_ERR_IO if it cannot be written.
 */
SRT_API srt_status_t srt_file_writer_create(const char *path, const srt_file_entry_t *entries,
					    size_t nentries, const srt_file_metadata_t *metadata,
					    size_t nmetadata, srt_file_writer_t **writer);

/**
 * Creates the files of a model in a folder as transformers reads it: model.safetensors, or
 * model-00001-of-0000N.safetensors and so on with model.safetensors.index.json if the tensors have
 * more than max_nbytes. Entries fill the files in their order. Each file has the metadata entry
 * "format" = "pt" too. They replace those of an earlier model by srt_file_writer_commit(), all of
 * which are written and synced before one is renamed; other files in the folder stay. If the commit
 * is interrupted, the folder has the earlier model, the new one, or files without an index, of
 * which srt_file_open() says that they are not complete. Local, blocking.
 * @param folder is made unless it is there; its parent exists.
 * @param metadata nmetadata entries for each file, without "format"; NULL if nmetadata is 0.
 * @param max_nbytes bytes of tensors in a file, which has more only if it has one tensor; 0: 5e9,
 *        as transformers.
 * @param[out] writer owned by the caller; set on success only.
 * @return as srt_file_writer_create(); SRT_ERR_INVALID_ARGUMENT too if `folder` is no folder or a
 *         sharded checkpoint.
 */
SRT_API srt_status_t srt_file_writer_create_folder(const char *folder,
						   const srt_file_entry_t *entries, size_t nentries,
						   const srt_file_metadata_t *metadata,
						   size_t nmetadata, size_t max_nbytes,
						   srt_file_writer_t **writer);

/**
 * As srt_file_writer_create(), for a file of another format, whose space is allocated at once. The
 * file is entry 0, whose pieces come in their order. Local, blocking.
 * @param nbytes of the file. @param[out] writer owned by the caller; set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for a `path` that is not a regular file; SRT_ERR_IO if it cannot
 *         be written or the file system has no space for it.
 */
SRT_API srt_status_t srt_file_writer_create_plain(const char *path, size_t nbytes,
						  srt_file_writer_t **writer);

/**
 * Writes bytes of entry i. Entries come in any order, the pieces of one in their order. Local,
 * blocking.
 * @return SRT_ERR_INVALID_ARGUMENT for bytes that it does not have, SRT_ERR_IO.
 */
SRT_API srt_status_t srt_file_writer_put(srt_file_writer_t *writer, size_t i, size_t offset,
					 const void *data, size_t nbytes);

/** Syncs the files and renames them to their paths. Local, blocking. @return SRT_ERR_STATE unless
 * each entry was written to its end, SRT_ERR_IO. */
SRT_API srt_status_t srt_file_writer_commit(srt_file_writer_t *writer);

/** Frees it; without a commit the temporary files are removed. NULL is allowed. */
SRT_API void srt_file_writer_destroy(srt_file_writer_t *writer);

/**
 * Copies a file of any kind, such as the tokenizer of a model; `to` is replaced as a whole.
 * Local, blocking.
 * @return SRT_ERR_NOT_FOUND without `from`; SRT_ERR_INVALID_ARGUMENT if `to` is not a regular file,
 *         SRT_ERR_IO if one of them cannot be read or written.
 */
SRT_API srt_status_t srt_file_copy(const char *from, const char *to);

#ifdef __cplusplus
}
#endif
#endif
