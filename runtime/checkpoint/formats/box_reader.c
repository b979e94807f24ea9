/* SPDX-License-Identifier: BSD-3-Clause */
/* See box_reader.h. */
#include "runtime/checkpoint/formats/box_reader.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash128.h"

/* Files of other ranks that are open at a time. */
#define MAX_OPEN 128

/* The elements that a saved box and a box of the shard share, as far as they are not copied. */
typedef struct cursor {
	srt_walk_t walk; /* [0]: the saved box, [1]: the cell */
	int64_t run, done;
} cursor_t;

/* ---- files ------------------------------------------------------------------------------ */

srt_status_t srt_box_reader_open_file(srt_box_reader_t *r, size_t i)
{
	const srt_manifest_file_t *file = &r->manifest.files[i];
	const srt_safetensors_identity_t *found;
	srt_status_t status;
	char *path;

	if (r->open[i] != NULL)
		return SRT_OK;
	for (size_t k = 0; k < r->manifest.nfiles && r->nopen >= MAX_OPEN; k++) {
		r->nopen -= r->open[k] != NULL;
		srt_safetensors_close(r->open[k]);
		r->open[k] = NULL;
	}
	path = srt_asprintf("%s/%s", r->folder, file->name);
	if (path == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_safetensors_open(path, &r->open[i]);
	if (status == SRT_OK) {
		r->nopen++;
		found = srt_safetensors_identity(r->open[i]);
		if (found->nbytes != file->nbytes || found->header_hash != file->header_hash)
			status = srt_fail(SRT_ERR_FORMAT,
					  "%s is not the file that this checkpoint was saved with: "
					  "it has %llu bytes of %llu, or another header: it was "
					  "damaged, or is of another rank or checkpoint",
					  path, (unsigned long long)found->nbytes,
					  (unsigned long long)file->nbytes);
	}
	if (status != SRT_OK) {
		r->nopen -= r->open[i] != NULL;
		srt_safetensors_close(r->open[i]);
		r->open[i] = NULL;
	}
	free(path);
	return status;
}

srt_status_t srt_box_reader_find(srt_box_reader_t *r, const srt_manifest_tensor_t *t,
				 const srt_manifest_box_t *b,
				 const srt_safetensors_tensor_t **found)
{
	char *key = srt_manifest_key(t->kind, t->name);
	const srt_safetensors_tensor_t *s;
	srt_status_t status;

	if (key == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_box_reader_open_file(r, b->file);
	s = status == SRT_OK ? srt_safetensors_find(r->open[b->file], key) : NULL;
	if (status == SRT_OK &&
	    (s == NULL || s->dtype != t->dtype || s->nbytes != b->nbytes || s->ndim != t->ndim ||
	     memcmp(s->shape, b->box.size, (size_t)t->ndim * sizeof(*s->shape)) != 0))
		status = srt_fail(SRT_ERR_FORMAT,
				  "%s/%s does not have the box of '%s' that the manifest has",
				  r->folder, r->manifest.files[b->file].name,
				  srt_printable(key).text);
	free(key);
	*found = s;
	return status;
}

srt_status_t srt_box_reader_read_block(srt_box_reader_t *r, const srt_manifest_tensor_t *t,
				       const srt_manifest_box_t *b,
				       const srt_safetensors_tensor_t *source, size_t i,
				       size_t *nbytes)
{
	const size_t at = i * SRT_BLOCK_NBYTES;

	*nbytes = b->nbytes - at < SRT_BLOCK_NBYTES ? b->nbytes - at : SRT_BLOCK_NBYTES;
	if (r->has == b && r->has_block == i)
		return SRT_OK;
	r->has = NULL;
	SRT_TRY(srt_safetensors_read(r->open[b->file], source, at, *nbytes, r->block));
	if (srt_xxh3_64(r->block, *nbytes) == b->hashes[i]) {
		r->has = b;
		r->has_block = i;
		return SRT_OK;
	}
	return srt_fail(SRT_ERR_FORMAT,
			"%s/%s: %s is damaged: bytes %zu to %zu of its box do not have the hash of "
			"the manifest",
			r->folder, r->manifest.files[b->file].name,
			srt_manifest_describe(t->kind, t->name).text, at, at + *nbytes - 1);
}

/* ---- tensors ---------------------------------------------------------------------------- */

/* The next byte of the saved box that the cursor needs; SIZE_MAX: no more. */
static size_t next_byte(const cursor_t *c, size_t elem)
{
	int64_t in_box, in_cell;

	if (c->run == c->walk.nruns)
		return SIZE_MAX;
	srt_walk_run(&c->walk, c->run, &in_box, &in_cell);
	return (size_t)(in_box + c->done) * elem;
}

/* Copies what the cursor needs of bytes begin .. begin + nbytes - 1 of the saved box. */
static void copy_block(const srt_box_reader_t *r, cursor_t *c, size_t elem, size_t begin,
		       size_t nbytes, int64_t first, unsigned char *shard)
{
	for (size_t at; (at = next_byte(c, elem)) < begin + nbytes;) {
		const size_t left = (size_t)(c->walk.nelem - c->done) * elem;
		const size_t n = left < begin + nbytes - at ? left : begin + nbytes - at;
		int64_t in_box, in_cell;

		srt_walk_run(&c->walk, c->run, &in_box, &in_cell);
		memcpy(shard + (size_t)(in_cell - first + c->done) * elem, r->block + (at - begin),
		       n);
		c->done += (int64_t)(n / elem);
		if (c->done == c->walk.nelem) {
			c->done = 0;
			c->run++;
		}
	}
}

/* Cursors for the elements that a saved box shares with the shard. Returns how many. */
static size_t begin_cursors(const srt_manifest_tensor_t *t, const srt_manifest_box_t *b,
			    const srt_shard_boxes_t *shard, cursor_t *cursors)
{
	size_t n = 0;

	for (size_t i = 0; i < shard->nboxes; i++) {
		const srt_cell_box_t *mine = &shard->boxes[i];
		int64_t in_box[SRT_MAX_DIMS], in_cell[SRT_MAX_DIMS];
		srt_box_t both;

		if (!srt_box_intersect(t->ndim, &b->box, &mine->box, &both))
			continue;
		for (int d = 0; d < t->ndim; d++) {
			in_box[d] = both.offset[d] - b->box.offset[d];
			in_cell[d] = mine->at[d] + both.offset[d] - mine->box.offset[d];
		}
		cursors[n] = (cursor_t){ 0 };
		srt_walk_begin(&cursors[n].walk, t->ndim, both.size,
			       (srt_walk_array_t){ b->box.size, in_box },
			       (srt_walk_array_t){ shard->cell, in_cell });
		n++;
	}
	return n;
}

/* Reads from a saved box what the shard needs of it; shard NULL: finds it only. */
static srt_status_t read_box(srt_box_reader_t *r, const srt_manifest_tensor_t *t,
			     const srt_manifest_box_t *b, const srt_shard_boxes_t *boxes,
			     cursor_t *cursors, unsigned char *shard)
{
	const size_t n = begin_cursors(t, b, boxes, cursors), elem = srt_dtype_size(t->dtype);
	const srt_safetensors_tensor_t *source;
	srt_status_t status;

	if (n == 0)
		return SRT_OK;
	status = srt_box_reader_find(r, t, b, &source);
	if (status != SRT_OK)
		return srt_fail_prefix(status,
				       "%s: ", srt_manifest_describe(t->kind, t->name).text);
	while (shard != NULL) {
		size_t next = SIZE_MAX, nbytes, at;

		for (size_t i = 0; i < n; i++)
			next = next_byte(&cursors[i], elem) < next ? next_byte(&cursors[i], elem) :
								     next;
		if (next == SIZE_MAX)
			break;
		at = next / SRT_BLOCK_NBYTES * SRT_BLOCK_NBYTES;
		SRT_TRY(srt_box_reader_read_block(r, t, b, source, next / SRT_BLOCK_NBYTES,
						  &nbytes));
		for (size_t i = 0; i < n; i++)
			copy_block(r, &cursors[i], elem, at, nbytes, boxes->first, shard);
	}
	return SRT_OK;
}

srt_status_t srt_box_reader_read(srt_box_reader_t *r, const srt_manifest_tensor_t *t,
				 const srt_shard_boxes_t *part, void *elements)
{
	cursor_t *cursors = srt_calloc(part->nboxes + 1, sizeof(*cursors), "reading a checkpoint");
	srt_status_t status = cursors != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	for (size_t b = 0; b < t->nboxes && status == SRT_OK; b++)
		status = read_box(r, t, &t->boxes[b], part, cursors, elements);
	free(cursors);
	return status;
}

srt_status_t srt_box_reader_read_range(srt_box_reader_t *r, const srt_manifest_tensor_t *t,
				       int64_t first, int64_t nelem, void *elements)
{
	srt_cell_box_t boxes[2 * SRT_MAX_DIMS] = { 0 };
	srt_shard_boxes_t part = { .first = first, .nelem = nelem, .boxes = boxes, .nboxes = 1 };
	const srt_box_cut_t cut = { .nblocks = 1, .chunk = t->shape[0], .extent = t->shape[0] };

	if (nelem == 0)
		return SRT_OK;
	memcpy(part.cell, t->shape, sizeof(t->shape));
	if (t->ndim > 0) /* without dimensions one box has the one element */
		part.nboxes = srt_boxes_cut(t->ndim, t->shape, &cut, first, nelem, boxes);
	return srt_box_reader_read(r, t, &part, elements);
}

srt_status_t srt_box_reader_open(srt_box_reader_t *r, const char *folder)
{
	*r = (srt_box_reader_t){ .folder = folder };
	SRT_TRY(srt_manifest_read(folder, &r->manifest));
	r->open = srt_calloc(r->manifest.nfiles + 1, sizeof(*r->open), "files of a checkpoint");
	r->block = srt_calloc(SRT_BLOCK_NBYTES, 1, "a block of a checkpoint");
	return r->open != NULL && r->block != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

void srt_box_reader_close(srt_box_reader_t *r)
{
	for (size_t i = 0; r->open != NULL && i < r->manifest.nfiles; i++)
		srt_safetensors_close(r->open[i]);
	srt_manifest_clear(&r->manifest);
	free(r->open);
	free(r->block);
}
