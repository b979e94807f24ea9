/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parts of tensors of a sharded checkpoint, read from the files that its manifest names: only the
 * blocks that have elements of the part, each of them once for each saved box, and each compared
 * with its hash. Uses neither an engine nor a device. A reader belongs to one thread at a time.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_FORMATS_BOX_READER_H
#define SRT_RUNTIME_CHECKPOINT_FORMATS_BOX_READER_H

#include "runtime/checkpoint/formats/manifest.h"
#include "runtime/checkpoint/formats/safetensors.h"

typedef struct srt_box_reader {
	const char *folder; /* the caller's */
	srt_manifest_t manifest;
	srt_safetensors_t **open; /* by file; NULL: closed */
	size_t nopen;
	unsigned char *block;          /* the one that was read last */
	const srt_manifest_box_t *has; /* its box; NULL: none, or it is damaged */
	size_t has_block;
} srt_box_reader_t;

/* Reads the manifest. To be closed also after a failure. As srt_manifest_read(). */
srt_status_t srt_box_reader_open(srt_box_reader_t *reader, const char *folder);
void srt_box_reader_close(srt_box_reader_t *reader);
/*
 * Reads a part of a tensor, in the saved dtype, to `elements`: those of the part's range, in the
 * order of the cell. NULL: compares the files that it needs with the manifest, without reading
 * tensors. SRT_ERR_NOT_FOUND: no such file; SRT_ERR_FORMAT, with file and tensor: it is damaged, or
 * not the one that was saved; SRT_ERR_IO.
 */
srt_status_t srt_box_reader_read(srt_box_reader_t *reader, const srt_manifest_tensor_t *tensor,
				 const srt_shard_boxes_t *part, void *elements);
/* Reads elements first .. first + nelem - 1 of the tensor, in row-major order. */
srt_status_t srt_box_reader_read_range(srt_box_reader_t *reader,
				       const srt_manifest_tensor_t *tensor, int64_t first,
				       int64_t nelem, void *elements);

/* The steps of these: */
/* Opens file i of the manifest unless it is open, and compares it with the manifest. */
srt_status_t srt_box_reader_open_file(srt_box_reader_t *reader, size_t i);
/* Opens the file of a box; the tensor of it that has the bytes of the box. */
srt_status_t srt_box_reader_find(srt_box_reader_t *reader, const srt_manifest_tensor_t *tensor,
				 const srt_manifest_box_t *box,
				 const srt_safetensors_tensor_t **found);
/* Reads block i of a box that was found, to reader->block, and compares its hash. */
srt_status_t srt_box_reader_read_block(srt_box_reader_t *reader,
				       const srt_manifest_tensor_t *tensor,
				       const srt_manifest_box_t *box,
				       const srt_safetensors_tensor_t *found, size_t i,
				       size_t *nbytes);

#endif
