/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manifest of a sharded checkpoint: manifest.json, which says of each tensor in which boxes of
 * which files it is, and has the hashes of their bytes; and all that is not a tensor.
 *
 *     manifest.c         memory of a manifest, its hashes
 *     manifest_write.c   manifest -> text
 *     manifest_read.c    text -> manifest, checked
 *     manifest_file.c    the file: reads and writes the text
 *
 * Nothing in a file is trusted before it is checked: memory and time are in proportion to the
 * file's own length, boxes lie within their tensors and cover them exactly once, a tensor has at
 * most one box in each file, file names have no folder. The order of keys is part of the format. A
 * new key needs a new version, unless a manifest without it has a meaning: "numerics", "optimizer"
 * of a group and "group" of a tensor are not in older manifests.
 * These files use neither an engine nor a device. Without libxxhash no manifest is read or written,
 * without jansson none is written.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_FORMATS_MANIFEST_H
#define SRT_RUNTIME_CHECKPOINT_FORMATS_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shardrt/dtype.h>
#include <shardrt/scaler.h>
#include <shardrt/status.h>

#include "kernels/args.h"
#include "runtime/checkpoint/formats/boxes.h"

#define SRT_MANIFEST_NAME "manifest.json"
#define SRT_MANIFEST_VERSION 1
/* What a manifest of any version begins with. */
#define SRT_MANIFEST_HEAD "{\"shardrt_checkpoint\":"
/* The bytes of a box are hashed in blocks of this size; the last block may be shorter. */
#define SRT_BLOCK_NBYTES ((size_t)1 << 20)
/* Most bytes of a manifest: that of a model of some 50 TB. */
#define SRT_MANIFEST_MAX_NBYTES ((size_t)1 << 30)
/* The metadata entry of a rank's file that has the identifier of its checkpoint. */
#define SRT_CHECKPOINT_ID_KEY "shardrt.checkpoint"
/* Length of the identifier. */
#define SRT_CHECKPOINT_ID_LENGTH 16

/* What a tensor is of. The states of the optimizer follow. */
typedef enum srt_manifest_kind {
	SRT_MANIFEST_VALUE,
	SRT_MANIFEST_BUFFER,
	SRT_MANIFEST_STATE0,
	SRT_MANIFEST_NKINDS = SRT_MANIFEST_STATE0 + 3
} srt_manifest_kind_t;

typedef struct srt_manifest_file {
	char *name;
	uint64_t nbytes;
	uint64_t header_hash; /* srt_safetensors_identity_t.header_hash */
} srt_manifest_file_t;

typedef struct srt_manifest_box {
	srt_box_t box;
	size_t file; /* index */
	size_t nbytes, nblocks;
	uint64_t *hashes; /* [nblocks] */
} srt_manifest_box_t;

typedef struct srt_manifest_tensor {
	char *name; /* of the parameter or buffer */
	srt_manifest_kind_t kind;
	srt_dtype_t dtype;
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
	int32_t steps; /* that the optimizer made of it; -1: it is not trainable, or no value */
	int32_t group; /* that its optimizer has it in; -1: as above, or not known */
	srt_manifest_box_t *boxes;
	size_t nboxes;
} srt_manifest_tensor_t;

typedef struct srt_manifest_group {
	char *optimizer; /* srt_group_optimizer_name(); NULL: not known */
	srt_k_step_state_t state;
	bool has_lr;
} srt_manifest_group_t;

typedef struct srt_manifest_entry {
	char *key;
	unsigned char *data;
	size_t nbytes;
} srt_manifest_entry_t;

typedef struct srt_manifest {
	char id[SRT_CHECKPOINT_ID_LENGTH + 1]; /* different in each checkpoint */
	int world, numerics_version;
	int fast;        /* 1: saved in numerics mode fast, 0: in exact; -1: not known */
	char *optimizer; /* srt_optimizer_name() */
	uint64_t checksum;
	size_t nfiles, ntensors, ngroups, nentries;
	srt_manifest_file_t *files;
	srt_manifest_tensor_t *tensors; /* read: sorted by kind, then by name */
	srt_manifest_group_t *groups;
	srt_manifest_entry_t *entries;
	bool has_scaler;
	srt_scaler_state_t scaler;
} srt_manifest_t;

/* Adds a box, in the file of this index, to a tensor, with memory for its hashes. */
srt_status_t srt_manifest_add_box(srt_manifest_tensor_t *t, const srt_box_t *box, size_t file);
/* Frees what it has; not the manifest itself. */
void srt_manifest_clear(srt_manifest_t *manifest);
/* NULL: there is none. Of a manifest that was read. */
const srt_manifest_tensor_t *srt_manifest_find(const srt_manifest_t *manifest,
					       srt_manifest_kind_t kind, const char *name);
const srt_manifest_entry_t *srt_manifest_find_entry(const srt_manifest_t *manifest,
						    const char *key);
/* The name of a tensor in the files: that of the parameter or buffer; "optimizer.state0.NAME". To
 * be freed. NULL without memory. */
char *srt_manifest_key(srt_manifest_kind_t kind, const char *name);
/* "tensor 'NAME'", "optimizer state 0 of 'NAME'", for messages. */
typedef struct srt_manifest_words {
	char text[160];
} srt_manifest_words_t;
srt_manifest_words_t srt_manifest_describe(srt_manifest_kind_t kind, const char *name);
size_t srt_count_blocks(size_t nbytes);

/* SRT_ERR_UNSUPPORTED in a build that cannot write manifests. call: what would write one, for the
 * message. */
srt_status_t srt_manifest_require(const char *call);
/* The complete text; to be freed. SRT_ERR_INVALID_ARGUMENT: a name or key that is not UTF-8;
 * SRT_ERR_UNSUPPORTED: more than SRT_MANIFEST_MAX_NBYTES. */
srt_status_t srt_manifest_write(const srt_manifest_t *manifest, char **text, size_t *nbytes);
/* Writes and syncs the manifest of a folder. SRT_ERR_IO. */
srt_status_t srt_manifest_save(const srt_manifest_t *manifest, const char *folder);
/* `text` has nbytes bytes and a terminating zero; strings are decoded in it. The manifest is all
 * zero at the call; the caller clears it in any case. SRT_ERR_FORMAT: damaged or malformed. */
srt_status_t srt_manifest_parse(char *text, size_t nbytes, srt_manifest_t *manifest);
/* Reads the manifest of a folder. SRT_ERR_NOT_FOUND, SRT_ERR_IO, SRT_ERR_FORMAT with the path. */
srt_status_t srt_manifest_read(const char *folder, srt_manifest_t *manifest);

/* ---- for manifest_*.c ------------------------------------------------------------------- */

/* A field of srt_k_step_state_t; all have 4 bytes. Those of floats are written as their bits. */
typedef struct srt_manifest_field {
	const char *name;
	size_t offset;
	bool is_float;
} srt_manifest_field_t;
extern const srt_manifest_field_t srt_manifest_fields[];
extern const size_t srt_manifest_nfields;
extern const char *const srt_manifest_kinds[SRT_MANIFEST_NKINDS];
/* What a manifest ends with: CHECKSUM, 16 digits, TAIL. */
#define SRT_MANIFEST_CHECKSUM ",\"checksum\":\""
#define SRT_MANIFEST_TAIL "\"}\n"

#endif
