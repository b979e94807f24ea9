/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sharded checkpoints without an engine: what they have apart from the tensors, which
 * <shardrt/file.h> reads; verification; another number of ranks. Without jansson or libxxhash no
 * checkpoint can be opened: SRT_ERR_UNSUPPORTED.
 */
#ifndef SHARDRT_CHECKPOINT_FILE_H
#define SHARDRT_CHECKPOINT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/engine_options.h>
#include <shardrt/export.h>
#include <shardrt/file.h>
#include <shardrt/optimizer.h>
#include <shardrt/scaler.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A checkpoint, filled by srt_file_get_checkpoint(). Strings are the file's: they live until it is
 * closed. */
typedef struct srt_file_checkpoint {
	size_t size;           /* set by SRT_FILE_CHECKPOINT_INIT */
	const char *id;        /* 16 hexadecimal digits, different in each checkpoint */
	const char *optimizer; /* "none", "sgd", "adam", "adamw", "muon", also with groups of AdamW,
				* "adam8bit", "adamw8bit" */
	int world;             /* ranks that it was saved by */
	int numerics_version;  /* srt_numerics_version() of the library that saved it */
	int fast;              /* 1: saved in numerics mode fast, 0: exact, -1: unknown */
	int has_scaler;
	srt_scaler_state_t scaler; /* zero without one */
	size_t nfiles;             /* of ranks */
	size_t ngroups;            /* of parameters */
	size_t nentries;           /* of the program */
} srt_file_checkpoint_t;

/** Sets srt_file_checkpoint_t.size. */
#define SRT_FILE_CHECKPOINT_INIT                                                                   \
	{                                                                                          \
		.size = sizeof(srt_file_checkpoint_t)                                              \
	}

/**
 * What an open checkpoint has. Local.
 * @param[out] checkpoint its size is set; filled on success only.
 * @return SRT_ERR_NOT_FOUND for a file that is no checkpoint.
 */
SRT_API srt_status_t srt_file_get_checkpoint(const srt_file_t *file,
					     srt_file_checkpoint_t *checkpoint);

/**
 * Steps, learning rate and schedule of group i of parameters. Local.
 * @param[out] info its size is set by SRT_STEP_INFO_INIT; filled on success only.
 * @return SRT_ERR_NOT_FOUND for a file that is no checkpoint, or past the last group.
 */
SRT_API srt_status_t srt_file_get_group(const srt_file_t *file, size_t i, srt_step_info_t *info);

/**
 * Entry i of the program. Local.
 * @param[out] key its key, UTF-8; lives until the file is closed; set on success only.
 * @param[out] data its bytes, which live as long; NULL is allowed.
 * @param[out] nbytes their number; NULL is allowed.
 * @return SRT_ERR_NOT_FOUND for a file that is no checkpoint, or past the last entry.
 */
SRT_API srt_status_t srt_file_get_entry(const srt_file_t *file, size_t i, const char **key,
					const void **data, size_t *nbytes);

/** What a tensor of a checkpoint is. */
typedef enum srt_file_kind {
	SRT_FILE_PARAM,  /* the values of a parameter */
	SRT_FILE_BUFFER, /* a buffer of a unit */
	SRT_FILE_STATE,  /* a state of the optimizer */
} srt_file_kind_t;

/** A tensor of a checkpoint, filled by srt_file_get_saved(). The string is the file's. */
typedef struct srt_file_saved {
	size_t size; /* set by SRT_FILE_SAVED_INIT */
	srt_file_kind_t kind;
	int state;        /* number of an optimizer's state */
	const char *name; /* of the parameter or buffer */
	int32_t steps;    /* of a parameter: that the optimizer made; -1: it is not trained */
	size_t nboxes;    /* parts that it is saved in */
} srt_file_saved_t;

/** Sets srt_file_saved_t.size. */
#define SRT_FILE_SAVED_INIT                                                                        \
	{                                                                                          \
		.size = sizeof(srt_file_saved_t)                                                   \
	}

/**
 * The tensor of this name in an open checkpoint. Local.
 * @param name as srt_file_tensor_t.name.
 * @param[out] saved its size is set; filled on success only.
 * @return SRT_ERR_NOT_FOUND for a file that is no checkpoint, or without this tensor.
 */
SRT_API srt_status_t srt_file_get_saved(const srt_file_t *file, const char *name,
					srt_file_saved_t *saved);

/** A part of a tensor that is in one file: size[d] indices from offset[d] on in dimension d. Does
 * not grow. */
typedef struct srt_file_box {
	const char *file; /* its name in the folder; lives until the checkpoint is closed */
	int64_t offset[SRT_MAX_DIMS], size[SRT_MAX_DIMS];
	size_t nbytes;
} srt_file_box_t;

/**
 * Box i of a tensor of an open checkpoint. Local.
 * @param name as srt_file_tensor_t.name.
 * @param[out] box set on success only.
 * @return SRT_ERR_NOT_FOUND for a file that is no checkpoint, without this tensor or past its last
 *         box.
 */
SRT_API srt_status_t srt_file_get_box(const srt_file_t *file, const char *name, size_t i,
				      srt_file_box_t *box);

/** What srt_checkpoint_verify() has compared, filled by it. */
typedef struct srt_checkpoint_verified {
	size_t size;                     /* set by SRT_CHECKPOINT_VERIFIED_INIT */
	size_t nfiles, ntensors, nboxes; /* that the manifest has */
	uint64_t nbytes;                 /* of tensors that were read */
	size_t ndefects;
} srt_checkpoint_verified_t;

/** Sets srt_checkpoint_verified_t.size. */
#define SRT_CHECKPOINT_VERIFIED_INIT                                                               \
	{                                                                                          \
		.size = sizeof(srt_checkpoint_verified_t)                                          \
	}

/**
 * Reads all of a checkpoint: the checksum of the manifest; that the boxes of each tensor cover it
 * exactly once; size and header of each file, and the boxes in it; the hash of each block of 1 MiB;
 * and that no other safetensors file is in the folder, which other programs would read. A defect
 * does not end it, but one of the manifest does, and of a file with another size or header no
 * block is read. Local, blocking.
 * @param report called for each defect with a sentence, which names file and tensor, and arg; the
 *        sentence is borrowed for the call. NULL is allowed.
 * @param[out] verified its size is set; filled also if there are defects; NULL is allowed.
 * @return SRT_ERR_FORMAT if there are defects; SRT_ERR_NOT_FOUND without the folder or its
 *         manifest, SRT_ERR_UNSUPPORTED for a manifest of a newer version, SRT_ERR_IO for one that
 *         cannot be read, SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_checkpoint_verify(const char *folder,
					   void (*report)(const char *sentence, void *arg),
					   void *arg, srt_checkpoint_verified_t *verified);

/**
 * Writes a checkpoint again, for another number of ranks: with files and rows of each tensor as
 * srt_checkpoint_save() of nranks ranks with SRT_STRATEGY_ZERO3 writes them. All that it has stays
 * the same. What is read is compared with its hashes. Not needed to load it: any number of ranks
 * loads any checkpoint. Local, blocking; in pieces of 1 MiB.
 * @param nranks from 1 to 99999.
 * @param to as the folder of srt_checkpoint_save(), and replaced in the same way; may be `from`.
 *        The file `latest` stays as it is.
 * @return as srt_file_read() for what is read; SRT_ERR_INVALID_ARGUMENT for nranks, or if `to` is
 *         there and is no checkpoint; SRT_ERR_IO if it cannot be written: then `to` is as it was,
 *         unless the sentence states that the new one is in place.
 */
SRT_API srt_status_t srt_checkpoint_reshard(const char *from, int nranks, const char *to);

#ifdef __cplusplus
}
#endif
#endif
