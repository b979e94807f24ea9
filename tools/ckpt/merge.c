/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shardrt-ckpt merge and reshard; see ckpt.h. Tensors are copied in pieces: memory does not depend
 * on their sizes.
 */
#include "tools/ckpt/ckpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <stdbool.h>
#include <string.h>

#include "tools/common.h"
#include "tools/model_sizes.h"

/* @return 0, or CKPT_TROUBLE after the error was printed. */
static int list_entries(const srt_file_t *file, const char *path, srt_file_entry_t *entries)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;

	for (size_t i = 0; srt_file_at(file, i, &t) == SRT_OK; i++) {
		if (t.dtype == SRT_DTYPE_NONE || t.ndim > SRT_MAX_DIMS) {
			tool_error("tensor '%s' of %s has dtype %s and %d dimensions, which this "
				   "program cannot write",
				   ckpt_name(t.name).text, path, t.dtype_name, t.ndim);
			return CKPT_TROUBLE;
		}
		entries[i] = (srt_file_entry_t){ .name = t.name, .dtype = t.dtype, .ndim = t.ndim };
		memcpy(entries[i].shape, t.shape, sizeof(entries[i].shape));
	}
	return 0;
}

static srt_status_t copy_tensors(const srt_file_t *file, srt_file_writer_t *writer, char *piece)
{
	srt_status_t status = SRT_OK;
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;

	for (size_t i = 0; status == SRT_OK && srt_file_at(file, i, &t) == SRT_OK; i++) {
		for (size_t at = 0, n; at < t.nbytes && status == SRT_OK; at += n) {
			n = t.nbytes - at < CKPT_PIECE_NBYTES ? t.nbytes - at : CKPT_PIECE_NBYTES;
			status = srt_file_read(file, t.name, at, n, piece);
			if (status == SRT_OK)
				status = srt_file_writer_put(writer, i, at, piece, n);
		}
	}
	return status;
}

/* The letters of SRT_FILE_KINDS_KEY for the tensors of a checkpoint. */
static void list_kinds(const srt_file_t *file, char *kinds)
{
	static const char letters[] = {
		[SRT_FILE_PARAM] = 'p', [SRT_FILE_BUFFER] = 'b', [SRT_FILE_STATE] = 's'
	};
	srt_file_saved_t saved = SRT_FILE_SAVED_INIT;
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;

	for (size_t i = 0; srt_file_at(file, i, &t) == SRT_OK; i++)
		if (srt_file_get_saved(file, t.name, &saved) == SRT_OK)
			kinds[i] = letters[saved.kind];
}

/* Whether a tensor is of bytes, which no reader takes for a parameter by itself. */
static bool has_bytes(const srt_file_t *file)
{
	srt_file_tensor_t t = SRT_FILE_TENSOR_INIT;
	bool found = false;

	for (size_t i = 0; srt_file_at(file, i, &t) == SRT_OK; i++)
		found = found || t.dtype == SRT_U8;
	return found;
}

/* Metadata of the new file; `kinds` has an empty text with memory for a letter for each tensor.
 * @return the number of entries, of which there may be 3. */
static size_t list_metadata(const srt_file_t *file, char *kinds, srt_file_metadata_t *metadata)
{
	const char *value;
	size_t n = 0;

	metadata[n++] = (srt_file_metadata_t){ "format", "pt" };
	/* with the sizes of the model, shardrt-train --init reads the file */
	if (srt_file_find_metadata(file, TOOL_SIZES_KEY, &value) == SRT_OK)
		metadata[n++] = (srt_file_metadata_t){ TOOL_SIZES_KEY, value };
	list_kinds(file, kinds);
	if (strspn(kinds, "p") < strlen(kinds) || (*kinds && has_bytes(file)))
		metadata[n++] = (srt_file_metadata_t){ SRT_FILE_KINDS_KEY, kinds };
	else if (!*kinds && srt_file_find_metadata(file, SRT_FILE_KINDS_KEY, &value) == SRT_OK)
		metadata[n++] = (srt_file_metadata_t){ SRT_FILE_KINDS_KEY, value };
	return n;
}

static int write_merged(const ckpt_request_t *r, const srt_file_t *file,
			const srt_file_entry_t *entries, char *piece, char *kinds)
{
	srt_file_metadata_t metadata[3];
	srt_file_writer_t *writer = NULL;
	srt_status_t status;
	const size_t n = list_metadata(file, kinds, metadata);

	status = srt_file_writer_create(r->path[1], entries, srt_file_count(file), metadata, n,
					&writer);
	if (status == SRT_OK)
		status = copy_tensors(file, writer, piece);
	if (status == SRT_OK)
		status = srt_file_writer_commit(writer);
	srt_file_writer_destroy(writer);
	if (status != SRT_OK)
		return ckpt_fail();
	printf("wrote %s: %zu tensors\n", r->path[1], srt_file_count(file));
	return 0;
}

int ckpt_merge(const ckpt_request_t *r)
{
	char *piece = malloc(CKPT_PIECE_NBYTES), *kinds = NULL;
	srt_file_entry_t *entries = NULL;
	srt_file_t *file = NULL;
	int code = CKPT_TROUBLE;

	if (ckpt_open(r->path[0], r->all, &file) == 0) {
		entries = calloc(srt_file_count(file) + 1, sizeof(*entries));
		kinds = calloc(srt_file_count(file) + 1, 1);
		if (piece == NULL || entries == NULL || kinds == NULL)
			tool_error("no memory to merge a checkpoint");
		else if (list_entries(file, r->path[0], entries) == 0)
			code = write_merged(r, file, entries, piece, kinds);
	}
	srt_file_close(file);
	free(kinds);
	free(entries);
	free(piece);
	return code;
}

int ckpt_reshard(const ckpt_request_t *r)
{
	if (srt_checkpoint_reshard(r->path[0], (int)r->ranks, r->path[1]) != SRT_OK)
		return ckpt_fail();
	printf("wrote %s for %d ranks\n", r->path[1], (int)r->ranks);
	return 0;
}
