/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * srt_checkpoint_reshard(): a sharded checkpoint -> one of other ranks, each with a row chunk of
 * each tensor. The new manifest is the old one with other boxes and files, whose bytes are read
 * and written in blocks, one file after the other.
 */
#include <stdlib.h>
#include <string.h>

#include <shardrt/checkpoint_file.h>

#include "base/base.h"
#include "base/hash128.h"
#include "runtime/checkpoint/formats/box_reader.h"
#include "runtime/checkpoint/formats/folder.h"
#include "runtime/checkpoint/formats/rank_file.h"

typedef struct resharding {
	srt_box_reader_t reader;
	srt_manifest_t
		manifest; /* has only files, and boxes of tensors; the rest is the reader's */
	srt_folder_t folder;
	unsigned char *block;
	int nranks;
} resharding_t;

/* The rows that a rank has of a tensor; buffers are on rank 0. False: none. */
static bool rank_box(const srt_manifest_tensor_t *t, int nranks, int rank, srt_box_t *box)
{
	*box = (srt_box_t){ .offset = { 0 } };
	memcpy(box->size, t->shape, sizeof(box->size));
	if (t->kind == SRT_MANIFEST_BUFFER || t->ndim == 0) {
		if (rank > 0)
			return false;
	} else {
		srt_shard_rows(t->shape[0], nranks, rank, &box->offset[0], &box->size[0]);
	}
	return srt_box_nelem(t->ndim, box->size) > 0;
}

/* A file for the rank, if it has a box. */
static srt_status_t add_rank(resharding_t *s, int rank)
{
	srt_manifest_t *m = &s->manifest;
	const size_t file = m->nfiles;
	srt_box_t box;

	for (size_t i = 0; i < m->ntensors; i++) {
		if (!rank_box(&m->tensors[i], s->nranks, rank, &box))
			continue;
		SRT_TRY(srt_manifest_add_box(&m->tensors[i], &box, file));
		m->nfiles = file + 1;
	}
	if (m->nfiles == file)
		return SRT_OK;
	m->files[file].name = srt_rank_file_name(rank, s->nranks, 0);
	return m->files[file].name != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

/* All but the hashes. */
static srt_status_t make_manifest(resharding_t *s)
{
	const srt_manifest_t *from = &s->reader.manifest;
	srt_manifest_t *m = &s->manifest;

	*m = *from;
	m->world = s->nranks;
	m->ntensors = m->nfiles = 0;
	m->files = srt_calloc((size_t)s->nranks, sizeof(*m->files), "files");
	m->tensors = srt_calloc(from->ntensors + 1, sizeof(*m->tensors), "tensors");
	if (m->files == NULL || m->tensors == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (; m->ntensors < from->ntensors; m->ntensors++) {
		srt_manifest_tensor_t *t = &m->tensors[m->ntensors];

		*t = from->tensors[m->ntensors];
		t->boxes = NULL;
		t->nboxes = 0;
	}
	for (int r = 0; r < s->nranks; r++)
		SRT_TRY(add_rank(s, r));
	return SRT_OK;
}

/* A box is a run of elements: rows, or all. */
static srt_status_t copy_box(resharding_t *s, const srt_manifest_tensor_t *t, srt_manifest_box_t *b,
			     srt_safetensors_writer_t *writer, size_t entry)
{
	const srt_manifest_tensor_t *from = &s->reader.manifest.tensors[t - s->manifest.tensors];
	const size_t elem = srt_dtype_size(t->dtype);
	const int64_t row = t->ndim > 0 ? srt_box_nelem(t->ndim - 1, t->shape + 1) : 1;

	for (size_t i = 0, n; i < b->nblocks; i++) {
		const size_t at = i * SRT_BLOCK_NBYTES;

		n = b->nbytes - at < SRT_BLOCK_NBYTES ? b->nbytes - at : SRT_BLOCK_NBYTES;
		SRT_TRY(srt_box_reader_read_range(&s->reader, from,
						  b->box.offset[0] * row + (int64_t)(at / elem),
						  (int64_t)(n / elem), s->block));
		b->hashes[i] = srt_xxh3_64(s->block, n);
		SRT_TRY(srt_safetensors_writer_put_at(writer, entry, at, s->block, n));
	}
	return SRT_OK;
}

static srt_status_t write_file(resharding_t *s, size_t file)
{
	srt_manifest_t *m = &s->manifest;
	srt_safetensors_writer_t *writer;
	srt_status_t status = SRT_OK;
	size_t entry = 0;

	SRT_TRY(srt_rank_file_create(m, file, s->folder.temporary, &writer));
	for (size_t i = 0; i < m->ntensors; i++) {
		for (size_t b = 0; b < m->tensors[i].nboxes && status == SRT_OK; b++)
			if (m->tensors[i].boxes[b].file == file)
				status = copy_box(s, &m->tensors[i], &m->tensors[i].boxes[b],
						  writer, entry++);
	}
	if (status == SRT_OK)
		status = srt_rank_file_commit(m, file, s->folder.temporary, writer);
	srt_safetensors_writer_destroy(writer);
	return status;
}

static srt_status_t reshard(resharding_t *s, const char *from, const char *to)
{
	SRT_TRY(srt_box_reader_open(&s->reader, from));
	s->block = srt_calloc(SRT_BLOCK_NBYTES, 1, "a block of a checkpoint");
	if (s->block == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	SRT_TRY(make_manifest(s));
	SRT_TRY(srt_folder_create(&s->folder, to));
	memcpy(s->manifest.id, s->folder.id, sizeof(s->manifest.id));
	for (size_t i = 0; i < s->manifest.nfiles; i++)
		SRT_TRY(write_file(s, i));
	SRT_TRY(srt_manifest_save(&s->manifest, s->folder.temporary));
	return srt_folder_commit(&s->folder, false);
}

static void clear(resharding_t *s)
{
	srt_manifest_t *m = &s->manifest;

	for (size_t i = 0; i < m->ntensors; i++) {
		for (size_t b = 0; b < m->tensors[i].nboxes; b++)
			free(m->tensors[i].boxes[b].hashes);
		free(m->tensors[i].boxes);
	}
	for (size_t i = 0; i < m->nfiles; i++)
		free(m->files[i].name);
	free(m->tensors);
	free(m->files);
	free(s->block);
	srt_folder_close(&s->folder);
	srt_box_reader_close(&s->reader);
}

srt_status_t srt_checkpoint_reshard(const char *from, int nranks, const char *to)
{
	resharding_t s = { .nranks = nranks, .folder.fd = -1 };
	srt_status_t status;
	char *found;

	SRT_NOT_NULL(from);
	SRT_NOT_NULL(to);
	if (nranks < 1 || nranks > 99999)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_checkpoint_reshard: nranks is %d, not from 1 to 99999",
				nranks);
	SRT_TRY(srt_manifest_require("srt_checkpoint_reshard"));
	found = srt_folder_find(from);
	status = found != NULL ? reshard(&s, found, to) : SRT_ERR_OUT_OF_MEMORY;
	clear(&s);
	free(found);
	return status;
}
