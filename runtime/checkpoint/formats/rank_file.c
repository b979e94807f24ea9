/* SPDX-License-Identifier: BSD-3-Clause */
/* See rank_file.h. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "runtime/checkpoint/formats/rank_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_JANSSON
#include <jansson.h>
#endif

#include "base/base.h"

char *srt_rank_file_name(int rank, int world, size_t part)
{
	char text[32] = "";

	if (part > 0)
		snprintf(text, sizeof(text), "-part%zu", part + 1);
	return srt_asprintf("rank-%05d-of-%05d%s.safetensors", rank, world, text);
}

/* A box of the file. */
typedef struct part {
	const srt_manifest_tensor_t *tensor;
	const srt_manifest_box_t *box;
} part_t;

/* Lists the boxes of file i. list NULL: counts them. */
static size_t list_parts(const srt_manifest_t *m, size_t i, part_t *list)
{
	size_t n = 0;

	for (size_t t = 0; t < m->ntensors; t++)
		for (size_t b = 0; b < m->tensors[t].nboxes; b++) {
			if (m->tensors[t].boxes[b].file != i)
				continue;
			if (list != NULL)
				list[n] = (part_t){ &m->tensors[t], &m->tensors[t].boxes[b] };
			n++;
		}
	return n;
}

/* Where PyTorch's readers find the boxes of a file: DCP_SHARDING_INFO. To be freed. */
#ifdef HAVE_JANSSON
static char *write_offsets(const part_t *parts, const srt_safetensors_entry_t *entries, size_t n)
{
	json_t *root = json_object();
	char *text;

	for (size_t i = 0; i < n; i++) {
		json_t *offsets = json_array();

		for (int d = 0; d < entries[i].ndim; d++)
			json_array_append_new(offsets, json_integer(parts[i].box->box.offset[d]));
		json_object_set_new(root, entries[i].name,
				    json_pack("{s:o}", "saved_offsets", offsets));
	}
	text = json_dumps(root, JSON_COMPACT);
	json_decref(root);
	if (text == NULL)
		srt_fail(SRT_ERR_OUT_OF_MEMORY,
			 "no memory for the offsets of a checkpoint's boxes");
	return text;
}
#else
static char *write_offsets(const part_t *parts, const srt_safetensors_entry_t *entries, size_t n)
{
	(void)parts;
	(void)entries;
	(void)n;
	return NULL; /* not reached: srt_manifest_require() */
}
#endif

static srt_status_t create(const srt_manifest_t *m, const char *path,
			   const srt_safetensors_entry_t *entries, size_t n, const char *offsets,
			   srt_safetensors_writer_t **writer)
{
	const srt_file_metadata_t metadata[] = { { "format", "pt" },
						 { "DCP_VERSION", "1.0" },
						 { "DCP_SHARDING_INFO", offsets },
						 { SRT_CHECKPOINT_ID_KEY, m->id } };

	return srt_safetensors_writer_create(path, entries, n, metadata, 4, writer);
}

srt_status_t srt_rank_file_create(const srt_manifest_t *m, size_t i, const char *folder,
				  srt_safetensors_writer_t **writer)
{
	const size_t n = list_parts(m, i, NULL);
	char *path = srt_asprintf("%s/%s", folder, m->files[i].name), *offsets = NULL;
	part_t *parts = srt_calloc(n + 1, sizeof(*parts), "the tensors of a file");
	srt_safetensors_entry_t *entries =
		srt_calloc(n + 1, sizeof(*entries), "the tensors of a file");
	srt_status_t status =
		path != NULL && parts != NULL && entries != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	if (status == SRT_OK)
		list_parts(m, i, parts);
	for (size_t k = 0; k < n && status == SRT_OK; k++) {
		const srt_manifest_tensor_t *t = parts[k].tensor;

		entries[k] = (srt_safetensors_entry_t){ .name = srt_manifest_key(t->kind, t->name),
							.dtype = t->dtype,
							.ndim = t->ndim };
		memcpy(entries[k].shape, parts[k].box->box.size, sizeof(entries[k].shape));
		status = entries[k].name != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	}
	if (status == SRT_OK) {
		offsets = write_offsets(parts, entries, n);
		status = offsets != NULL ? create(m, path, entries, n, offsets, writer) :
					   SRT_ERR_OUT_OF_MEMORY;
	}
	for (size_t k = 0; k < n && entries != NULL; k++)
		free((void *)(uintptr_t)entries[k].name);
	free(offsets);
	free(entries);
	free(parts);
	free(path);
	return status;
}

srt_status_t srt_rank_file_commit(srt_manifest_t *m, size_t i, const char *folder,
				  srt_safetensors_writer_t *writer)
{
	srt_safetensors_t *opened;
	srt_status_t status;
	char *path;

	SRT_TRY(srt_safetensors_writer_commit(writer));
	path = srt_asprintf("%s/%s", folder, m->files[i].name);
	if (path == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_safetensors_open(path, &opened);
	free(path);
	SRT_TRY(status);
	m->files[i].nbytes = srt_safetensors_identity(opened)->nbytes;
	m->files[i].header_hash = srt_safetensors_identity(opened)->header_hash;
	srt_safetensors_close(opened);
	return SRT_OK;
}
