/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading and writing of safetensors files: an 8-byte little-endian length, a JSON header that
 * has every tensor's dtype, shape and offsets, then the raw little-endian data without gaps.
 *
 * Reader: nothing in the file is trusted before it is checked. The length of the header is compared
 * with the file's before anything is allocated; parsing takes at most 12 times its length. Every
 * sum and product is checked, tensors must cover the data exactly. It reads with pread(), so a file
 * that is truncated meanwhile is an error and not a signal.
 * Writer: writes only what the format's reference library writes, to a temporary file in the
 * target's folder, which replaces the target when it is complete and on disk.
 *
 * Used by runtime/checkpoint/, runtime/tensors/ and the tests. A handle belongs to one thread at a
 * time.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_FORMATS_SAFETENSORS_H
#define SRT_RUNTIME_CHECKPOINT_FORMATS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/checkpoint.h>
#include <shardrt/dtype.h>
#include <shardrt/status.h>

/* Values are written and read as they lie in memory, which is the format's order on these hosts. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "big-endian hosts need byte swapping");

/* Most dimensions whose sizes are stored; parameters have fewer. */
#define SRT_SAFETENSORS_MAX_DIMS 8
/* Longest header, in bytes, as in the format's reference implementation. */
#define SRT_SAFETENSORS_MAX_HEADER 100000000

/* ---- reading -------------------------------------------------------------------------- */

/* One tensor of a file. Strings live as long as the header's text. */
typedef struct srt_safetensors_tensor {
	const char *name;
	const char *dtype_name; /* as in the file: "F32", "I16", ... */
	srt_dtype_t dtype;      /* SRT_DTYPE_NONE where the library has no such dtype */
	int ndim;               /* may be more than are stored */
	int64_t shape[SRT_SAFETENSORS_MAX_DIMS];
	size_t nelem;
	size_t offset; /* bytes from the start of the data */
	size_t nbytes;
	size_t part; /* of joined files: the number of the one that has it */
} srt_safetensors_tensor_t;

/* How many dimensions of a tensor have their sizes in `shape`. */
static inline int srt_safetensors_nsizes(const srt_safetensors_tensor_t *t)
{
	return t->ndim < SRT_SAFETENSORS_MAX_DIMS ? t->ndim : SRT_SAFETENSORS_MAX_DIMS;
}

/* A parsed header; both tables in the order of names. */
typedef struct srt_safetensors_header {
	size_t ntensors, tensor_room;
	srt_safetensors_tensor_t *tensors;
	size_t nmetadata, metadata_room;
	srt_file_metadata_t *metadata;
} srt_safetensors_header_t;

/*
 * Parses and checks the header of a file with data_nbytes bytes of data. `text` has nbytes bytes
 * and a terminating zero; strings are decoded in it, and the header refers to it. `header` is all
 * zero at the call; the caller frees it in any case.
 * SRT_ERR_FORMAT: malformed, the message says what and where.
 */
srt_status_t srt_safetensors_parse(char *text, size_t nbytes, size_t data_nbytes,
				   srt_safetensors_header_t *header);
/* NULL if there is no tensor, or no metadata entry, of that name. */
const srt_safetensors_tensor_t *srt_safetensors_header_find(const srt_safetensors_header_t *header,
							    const char *name);
const char *srt_safetensors_header_metadata(const srt_safetensors_header_t *header,
					    const char *key);
/* Frees the tables. */
void srt_safetensors_header_free(srt_safetensors_header_t *header);

typedef struct srt_safetensors srt_safetensors_t;

/*
 * Opens a file and checks its header completely.
 * SRT_ERR_NOT_FOUND: no such file; SRT_ERR_IO: cannot be read; else as srt_safetensors_parse().
 */
srt_status_t srt_safetensors_open(const char *path, srt_safetensors_t **file);
/*
 * Files that are read as one: the tensors of all. Metadata is that of the first file that has the
 * key. On success the array and its files belong to `joined`. `path` is for messages.
 * SRT_ERR_FORMAT: a tensor is in two files.
 */
srt_status_t srt_safetensors_join(const char *path, srt_safetensors_t **parts, size_t nparts,
				  srt_safetensors_t **joined);
/* NULL is allowed. */
void srt_safetensors_close(srt_safetensors_t *file);

size_t srt_safetensors_count(const srt_safetensors_t *file);
/* The i-th tensor in the order of names; NULL past the end. */
const srt_safetensors_tensor_t *srt_safetensors_tensor(const srt_safetensors_t *file, size_t i);
/* NULL if the file has no tensor of that name. */
const srt_safetensors_tensor_t *srt_safetensors_find(const srt_safetensors_t *file,
						     const char *name);
/* The first characters of a text from a file, fit to be shown: control characters, which could
 * drive a terminal or look like lines of a log, and malformed UTF-8 are question marks. */
typedef struct srt_printable {
	char text[96];
} srt_printable_t;
srt_printable_t srt_printable(const char *text);
/* Value of a metadata entry; NULL if there is none. */
const char *srt_safetensors_metadata(const srt_safetensors_t *file, const char *key);

/* Which file is open: to compare it between ranks, and with the file later. Of joined files: sums,
 * the latest time, and a hash of the hashes. */
typedef struct srt_safetensors_identity {
	uint64_t device, inode, nbytes;
	int64_t mtime_s, mtime_ns; /* of the last write */
	uint64_t header_hash;
} srt_safetensors_identity_t;

const srt_safetensors_identity_t *srt_safetensors_identity(const srt_safetensors_t *file);
/* SRT_ERR_IO if the file was written to since it was opened. */
srt_status_t srt_safetensors_check_unchanged(const srt_safetensors_t *file);
/* Copies nbytes from byte `offset` of the tensor's data. SRT_ERR_IO if they are gone meanwhile. */
srt_status_t srt_safetensors_read(const srt_safetensors_t *file,
				  const srt_safetensors_tensor_t *tensor, size_t offset,
				  size_t nbytes, void *dst);

/* ---- writing -------------------------------------------------------------------------- */

typedef struct srt_safetensors_writer srt_safetensors_writer_t;

/* "F32"; of a dtype of the library. */
const char *srt_safetensors_dtype_name(srt_dtype_t dtype);

/* A tensor to be written; the name is borrowed for the length of the call. */
typedef struct srt_safetensors_entry {
	const char *name; /* UTF-8 */
	srt_dtype_t dtype;
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
} srt_safetensors_entry_t;

/*
 * Creates the temporary file in the folder of `path` and writes the header. Tensors are sorted by
 * element size (largest first), then by name; entries may come in any order.
 * SRT_ERR_INVALID_ARGUMENT: duplicate or reserved name, bad shape, `path` is not a regular file;
 * SRT_ERR_IO: cannot be written.
 */
srt_status_t srt_safetensors_writer_create(const char *path, const srt_safetensors_entry_t *entries,
					   size_t nentries, const srt_file_metadata_t *metadata,
					   size_t nmetadata, srt_safetensors_writer_t **writer);
/* Writes all data of entry i. */
srt_status_t srt_safetensors_writer_put(srt_safetensors_writer_t *writer, size_t i,
					const void *data);
/* Writes nbytes from byte `offset` of entry i; the pieces of an entry come in order. */
srt_status_t srt_safetensors_writer_put_at(srt_safetensors_writer_t *writer, size_t i,
					   size_t offset, const void *data, size_t nbytes);
/* Makes the temporary file durable. SRT_ERR_STATE unless each entry was written; SRT_ERR_IO. */
srt_status_t srt_safetensors_writer_sync(const srt_safetensors_writer_t *writer);
/* Syncs and renames; as srt_safetensors_writer_sync(). */
srt_status_t srt_safetensors_writer_commit(srt_safetensors_writer_t *writer);
/* Removes the temporary file if there was no commit. NULL is allowed. */
void srt_safetensors_writer_destroy(srt_safetensors_writer_t *writer);

#endif
