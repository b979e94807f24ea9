/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checkpoints. One safetensors file of unsharded parameters and buffers, for other programs; and
 * folders of sharded ones, from which a run resumes. Calls on an engine follow its rules for
 * threads (<shardrt/engine.h>).
 */
#ifndef SHARDRT_CHECKPOINT_H
#define SHARDRT_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/device.h>
#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/scaler.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one file of unsharded tensors ------------------------------------------------------ */

/** A metadata entry of the file's header, both strings UTF-8. Borrowed for the call. A pair, which
 * does not grow. */
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
 * @param metadata nmetadata entries for the header; used on rank 0; NULL if nmetadata is 0. Of an
 *        engine with buffers the file also has the entry SRT_FILE_KINDS_KEY (<shardrt/file.h>).
 * @return on all ranks: SRT_ERR_IO if rank 0 cannot write (disk full, no permission); the old file
 *         is intact, unless the sentence states that the new one is in place but not synced;
 *         SRT_ERR_INVALID_ARGUMENT if `path` is not a regular file or a string is not UTF-8;
 *         SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_engine_save(srt_engine_t *engine, const char *path,
				     const srt_file_metadata_t *metadata, size_t nmetadata,
				     srt_stream_t *stream);

/**
 * Sets the parameters and buffers from a safetensors file of unsharded tensors, or from a folder of
 * several, as srt_file_open() reads it. Each rank reads its own rows, in pieces of at most 2^21
 * elements, for which it needs host memory. A tied parameter may have any of its names in the file.
 * Tensors that the engine does not have are logged. Collective, blocking.
 * @param path file or folder, the same on every rank (SHARDRT_LOAD_COPIES=yes: or copies).
 * @return on all ranks: SRT_ERR_FORMAT for a malformed file, SRT_ERR_INVALID_ARGUMENT for a missing
 *         tensor or another shape or dtype (the sentence has the name and both shapes),
 *         SRT_ERR_NOT_FOUND without a file, SRT_ERR_MISMATCH if the ranks have opened different
 *         files (the sentence has both paths), SRT_ERR_STATE before srt_engine_build(): no value
 *         has changed. SRT_ERR_IO if a later read fails or the file is written to meanwhile, or the
 *         failure of the stream: some values have changed.
 */
SRT_API srt_status_t srt_engine_load(srt_engine_t *engine, const char *path, srt_stream_t *stream);

/* ---- an engine from a file with other names --------------------------------------------- */

/** Where a parameter or buffer of an engine is in a file. The library makes it, and
 * srt_file_names_t.find sets its fields. */
typedef struct srt_file_source {
	size_t size; /* set by the library; a field beyond it is not to be written */
	/* Name of the tensor in the file. Borrowed: it stays until `find` is called again, or until
	 * srt_engine_load_named() returns. */
	const char *name;
	int transposed; /* 1: a matrix, whose two dimensions are in the other order in the file */
	/* Not 0: the number of heads of a projection to queries, keys and values, or of its bias,
	 * that has the rows of all queries, of all keys and of all values (3, heads, d), while the
	 * file has those of each head together (heads, 3, d), as GPT-NeoX. Not with transposed. */
	int64_t interleaved_heads;
} srt_file_source_t;

/** The names of a file. */
typedef struct srt_file_names {
	size_t size; /* set by SRT_FILE_NAMES_INIT */
	/* Sets *source, which is zero but for its size, for a name of the engine. @return 1, or 0
	 * if the file has nothing for this name. A tied parameter is asked for by all its names. */
	int (*find)(const char *name, srt_file_source_t *source, void *arg);
	/* Whether a tensor of the file is not needed: the others that the engine does not have are
	 * logged. NULL: none is known. */
	int (*ignores)(const char *file_name, void *arg);
	void *arg;
	/* 1: a load rounds parameters of another float dtype to the engine's, once. */
	int cast;
	/* Whether a parameter of the engine keeps its values in a load, which then looks for
	 * nothing: adapters, of a file of the base. NULL: none does. */
	int (*keeps)(const char *name, void *arg);
} srt_file_names_t;

/** Sets srt_file_names_t.size. */
#define SRT_FILE_NAMES_INIT                                                                        \
	{                                                                                          \
		.size = sizeof(srt_file_names_t)                                                   \
	}

/**
 * As srt_engine_load(), from a file with other names. Each rank reads the rows that it owns; of a
 * transposed matrix it reads these rows' part of each row of the file, in blocks of 4 MiB, and
 * needs host memory for its shard of the matrix and a block. Collective, blocking.
 * @param names borrowed for the call; its functions are called on all ranks and must agree there.
 * @return as srt_engine_load(); SRT_ERR_INVALID_ARGUMENT too for a transposed tensor that is not a
 *         matrix, or interleaved heads that the rows are not a multiple of.
 */
SRT_API srt_status_t srt_engine_load_named(srt_engine_t *engine, const char *path,
					   const srt_file_names_t *names, srt_stream_t *stream);

/** Options of srt_engine_save_folder(), used on rank 0 and borrowed for the call. */
typedef struct srt_folder_options {
	size_t size; /* set by SRT_FOLDER_OPTIONS_INIT */
	/* Names and layouts in the files; NULL: the engine's. A tied parameter is asked for by its
	 * declared name. The other fields are not used. */
	const srt_file_names_t *names;
	/* SRT_F32, SRT_F16 or SRT_BF16: tensors of another of these dtypes are rounded to it, once;
	 * SRT_DTYPE_NONE: each has the engine's. */
	srt_dtype_t dtype;
	size_t max_nbytes;                   /* of tensors in a file; 0: 5e9, as transformers */
	const srt_file_metadata_t *metadata; /* of each file; "format" = "pt" is there without it */
	size_t nmetadata;
} srt_folder_options_t;

/** Sets srt_folder_options_t.size; the other defaults are zero. */
#define SRT_FOLDER_OPTIONS_INIT                                                                    \
	{                                                                                          \
		.size = sizeof(srt_folder_options_t)                                               \
	}

/**
 * As srt_engine_save(), to a folder that transformers reads and srt_engine_load_named() too:
 * model.safetensors, or several files with model.safetensors.index.json, with other names, layouts
 * and dtypes (srt_file_writer_create_folder()). Other files in the folder stay; srt_file_copy()
 * brings those of a tokenizer. Collective, blocking; rank 0 takes a few MiB of host memory, or as
 * much as the longest row of a transposed matrix.
 * @param folder is made unless it is there; used on rank 0, NULL is allowed on the others.
 * @param options NULL for the defaults.
 * @return as srt_engine_save(); SRT_ERR_INVALID_ARGUMENT too if `folder` is no folder or a sharded
 *         checkpoint, for a tensor that the names do not have, and for a layout that it cannot
 *         have.
 */
SRT_API srt_status_t srt_engine_save_folder(srt_engine_t *engine, const char *folder,
					    const srt_folder_options_t *options,
					    srt_stream_t *stream);

/* ---- a folder of sharded tensors -------------------------------------------------------- */

/*
 * A folder has the files of the ranks, rank-R-of-N.safetensors, and manifest.json. A rank's file
 * has the boxes that it owns of each tensor; ranges of elements of flat units and blocks of cut
 * parameters are several boxes, which are in as many files (-partK). The manifest has a checksum,
 * and a hash (XXH3-64) of each MiB of each box, which is compared whenever the MiB is read.
 *
 * Saved are the values of parameters in their stored dtype, optimizer states, step counts, learning
 * rates and schedules of groups, buffers with the values of rank 0, a scaler, and entries of the
 * program: seeds, counters, the position in its data. A run that is loaded with the same number of
 * ranks goes on with the bits of one that never stopped. With other ranks, strategies, meshes or
 * flat units the loaded tensors are the same, and later steps depend on the order of sums over
 * ranks (docs/numerics.md).
 *
 * These calls need libxxhash, and those that save need jansson too. Without it they return
 * SRT_ERR_UNSUPPORTED.
 */

/** An entry of the program. */
typedef struct srt_checkpoint_entry {
	size_t size;     /* set by SRT_CHECKPOINT_ENTRY_INIT */
	const char *key; /* UTF-8, not empty; unique; in `entries` it does not begin with "rank-" */
	void *data;      /* nbytes: read by a save, written by a load */
	size_t nbytes;   /* a load needs an entry of exactly this size */
} srt_checkpoint_entry_t;

/** Sets srt_checkpoint_entry_t.size. */
#define SRT_CHECKPOINT_ENTRY_INIT                                                                  \
	{                                                                                          \
		.size = sizeof(srt_checkpoint_entry_t)                                             \
	}

/** Options of srt_checkpoint_save() and srt_checkpoint_load(). */
typedef struct srt_checkpoint_options {
	size_t size;                           /* set by SRT_CHECKPOINT_OPTIONS_INIT */
	srt_scaler_t *scaler;                  /* saved and restored too; NULL: none */
	const srt_checkpoint_entry_t *entries; /* saved with the values of rank 0 */
	size_t nentries;
	int cast; /* load: 1: tensors of another float dtype are rounded to the engine's */
	/* load: 1: parameters and buffers only: the optimizer's states, step counts, learning rates
	 * and schedules stay, and the optimizer may be another one */
	int values_only;
	/* Each rank's own, e.g. the state of its data loader or generator; sizes may differ. They
	 * are restored on as many ranks as saved them; else a load with them fails. Rank R of N has
	 * its entry under the key "rank-R-of-N/KEY", by which srt_checkpoint_get_entry() reads it
	 * on any number of ranks. */
	const srt_checkpoint_entry_t *rank_entries;
	size_t nrank_entries;
} srt_checkpoint_options_t;

/** Sets srt_checkpoint_options_t.size; the other defaults are zero. */
#define SRT_CHECKPOINT_OPTIONS_INIT                                                                \
	{                                                                                          \
		.size = sizeof(srt_checkpoint_options_t)                                           \
	}

/**
 * Saves a checkpoint. Collective, blocking; between steps. Each rank writes what it owns, of
 * replicas the first, in pieces of 1 MiB. A folder FOLDER.tmp-ID is written, synced and renamed,
 * then the file `latest` in the parent folder gets the name: at any time FOLDER is absent, the
 * complete old checkpoint or the complete new one. Where a file system cannot exchange two folders
 * (NFS), the old one is FOLDER.replaced for a moment. If the save is killed then, loads of FOLDER
 * read that one. The new folder has the mode of an old one. Temporary folders of processes that
 * were killed are removed by the next save on the same machine. Of an old checkpoint only the files
 * that a save writes are removed; others stay in FOLDER.tmp-ID or FOLDER.replaced.
 * A rank may write, or read at a load, for longer than SHARDRT_TIMEOUT: the others wait, as long as
 * it is alive and not stopped.
 * @param folder the same on all ranks, in a file system that all see; its parent exists. Its name
 *        is not `latest`, does not begin with '.' nor end in .replaced or in .tmp- and 16
 *        hexadecimal digits.
 * @param options NULL for the defaults; borrowed for the call.
 * @return on all ranks, with the rank that failed: SRT_ERR_IO if a file cannot be written; the old
 *         checkpoint is intact, unless the sentence states that the new one is in place;
 *         SRT_ERR_INVALID_ARGUMENT if `folder` is there and is no checkpoint, or for a name that is
 *         not UTF-8; SRT_ERR_UNSUPPORTED if the manifest would have more than 1 GiB; SRT_ERR_STATE
 *         before srt_engine_build(), within a step or before srt_engine_write_end(); the failure of
 *         the stream.
 */
SRT_API srt_status_t srt_checkpoint_save(srt_engine_t *engine, const char *folder,
					 const srt_checkpoint_options_t *options,
					 srt_stream_t *stream);

/** A save whose files are being written. Opaque. */
typedef struct srt_checkpoint_write srt_checkpoint_write_t;

/**
 * Begins to save a checkpoint of the state at this call, which a thread of the library writes while
 * training goes on. Collective, blocking: copies what this rank saves to host memory, as much as
 * its files have. If a rank has no memory for its copy, it logs a warning, and all ranks write
 * their files within this call. Nothing is in place before srt_checkpoint_save_end(). Several saves
 * of an engine may be written at a time, to different folders.
 * @param options as srt_checkpoint_save(), NULL too; borrowed for the call.
 * @param[out] write to be ended, before the engine is destroyed; set on success only.
 * @return as srt_checkpoint_save().
 */
SRT_API srt_status_t srt_checkpoint_save_begin(srt_engine_t *engine, const char *folder,
					       const srt_checkpoint_options_t *options,
					       srt_checkpoint_write_t **write,
					       srt_stream_t *stream);

/** Whether this rank's files are written or have failed, so that srt_checkpoint_save_end() does not
 * wait for them. Local, does not wait. @return 1 also for NULL. */
SRT_API int srt_checkpoint_save_done(const srt_checkpoint_write_t *write);

/**
 * Completes a save: waits for the files of all ranks, then writes the manifest and renames the
 * folder. Collective, blocking; on all ranks between the same calls of the engine, and of the same
 * save: of several, ranks agree on which one is ended, because srt_checkpoint_save_done() is local.
 * Frees `write`, also if it fails.
 * @return as srt_checkpoint_save(); SRT_ERR_MISMATCH if ranks end different saves (the sentence has
 *         both folders; neither is completed); SRT_ERR_STATE if the engine was destroyed before,
 *         and in a child by fork(), where it frees nothing.
 */
SRT_API srt_status_t srt_checkpoint_save_end(srt_checkpoint_write_t *write);

/**
 * Sets all that srt_checkpoint_save() saved. Collective, blocking; between steps. Each rank reads
 * the blocks that it needs, with any number of ranks, strategy, mesh and flat units. What the
 * engine does not have is not read. An engine without an optimizer (SRT_OPTIM_NONE) needs no
 * optimizer states, and with values_only no engine does.
 * @param options NULL for the defaults; borrowed for the call.
 * @return on all ranks, with the rank that failed: SRT_ERR_NOT_FOUND without the folder or one of
 *         its files; SRT_ERR_FORMAT, with file and tensor, if something in it is damaged or of
 *         another checkpoint; SRT_ERR_INVALID_ARGUMENT for a missing tensor or entry, another
 *         shape, dtype, optimizer or number of groups, or a parameter in a group of another
 *         optimizer; SRT_ERR_MISMATCH if the ranks have opened
 *         different checkpoints; SRT_ERR_STATE before srt_engine_build(), within a step or before
 *         srt_engine_write_end(). If the failure was found while tensors were read, the sentence
 *         states that some values have changed.
 */
SRT_API srt_status_t srt_checkpoint_load(srt_engine_t *engine, const char *folder,
					 const srt_checkpoint_options_t *options,
					 srt_stream_t *stream);

/**
 * Reads an entry of the program from a checkpoint. Local. Thread-safe.
 * @param[out] data room for ndata bytes; set on success only.
 * @param[out] nbytes how many the entry has; may be NULL.
 * @return SRT_ERR_NOT_FOUND without the checkpoint or the entry, SRT_ERR_INVALID_ARGUMENT if it
 *         does not fit, SRT_ERR_FORMAT for a damaged manifest, SRT_ERR_IO if it cannot be read.
 */
SRT_API srt_status_t srt_checkpoint_get_entry(const char *folder, const char *key, void *data,
					      size_t ndata, size_t *nbytes);

/**
 * The checkpoint that was saved last in a folder. Local. Thread-safe.
 * @param parent the folder that has checkpoints and the file `latest`.
 * @param[out] folder nfolder bytes for PARENT/NAME and its terminating zero; set on success only.
 * @return SRT_ERR_NOT_FOUND if there is no checkpoint; SRT_ERR_FORMAT if `latest` is damaged, names
 *         a checkpoint that is gone, or is lost while there are checkpoints (the sentence has the
 *         last one by name); SRT_ERR_INVALID_ARGUMENT if the path does not fit.
 */
SRT_API srt_status_t srt_checkpoint_latest(const char *parent, char *folder, size_t nfolder);

/**
 * Removes a checkpoint: the files that a save writes. Local. From the start of the call on there is
 * none of this name; other files in its folder stay, and the folder with them, with a warning. Of a
 * symbolic link the link is removed, and what it names stays.
 * @return SRT_ERR_NOT_FOUND if `folder` is no checkpoint, SRT_ERR_INVALID_ARGUMENT for a name that
 *         srt_checkpoint_save() refuses; SRT_ERR_IO.
 */
SRT_API srt_status_t srt_checkpoint_remove(const char *folder);

#ifdef __cplusplus
}
#endif
#endif
