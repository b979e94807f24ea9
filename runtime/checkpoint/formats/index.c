/* SPDX-License-Identifier: BSD-3-Clause */
/* See index.h. */
#include "runtime/checkpoint/formats/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "runtime/checkpoint/formats/safetensors.h"

/* A file is in the folder of the index, whatever the name is. */
static srt_status_t check_file_name(const srt_index_tensor_t *t)
{
	if (*t->file != '\0' && strchr(t->file, '/') == NULL && strcmp(t->file, ".") != 0 &&
	    strcmp(t->file, "..") != 0)
		return SRT_OK;
	return srt_fail(SRT_ERR_FORMAT,
			"it has tensor '%s' in '%s', which is not the name of a file in its folder",
			srt_printable(t->name).text, srt_printable(t->file).text);
}

static srt_status_t add_tensor(srt_json_t *json, srt_index_t *index)
{
	srt_index_tensor_t *grown = srt_grow(index->tensors, index->ntensors + 1,
					     &index->tensor_room, sizeof(*grown), "an index");
	char *name, *file;

	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	index->tensors = grown;
	SRT_TRY(srt_json_key(json, &name));
	SRT_TRY(srt_json_string(json, &file));
	grown[index->ntensors] = (srt_index_tensor_t){ name, file };
	return check_file_name(&grown[index->ntensors++]);
}

static srt_status_t parse_weight_map(srt_json_t *json, srt_index_t *index)
{
	bool more;

	SRT_TRY(srt_json_begin(json, '{', '}', &more));
	while (more) {
		SRT_TRY(add_tensor(json, index));
		SRT_TRY(srt_json_separator(json, '}', &more));
	}
	return SRT_OK;
}

/* Both tables begin with a name. */
static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static srt_status_t sort_tensors(srt_index_t *index)
{
	if (index->ntensors > 0)
		qsort(index->tensors, index->ntensors, sizeof(*index->tensors), compare_names);
	for (size_t i = 1; i < index->ntensors; i++)
		if (compare_names(&index->tensors[i - 1], &index->tensors[i]) == 0)
			return srt_fail(SRT_ERR_FORMAT, "it has tensor '%s' twice",
					srt_printable(index->tensors[i].name).text);
	return SRT_OK;
}

/* Sets index->files. */
static srt_status_t list_files(srt_index_t *index)
{
	size_t n = 0;

	index->files = srt_calloc(index->ntensors + 1, sizeof(*index->files), "files of an index");
	if (index->files == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < index->ntensors; i++)
		index->files[i] = index->tensors[i].file;
	if (index->ntensors > 0)
		qsort(index->files, index->ntensors, sizeof(*index->files), compare_names);
	for (size_t i = 0; i < index->ntensors; i++)
		if (n == 0 || strcmp(index->files[n - 1], index->files[i]) != 0)
			index->files[n++] = index->files[i];
	index->nfiles = n;
	if (n == 0)
		return srt_fail(SRT_ERR_FORMAT, "its weight_map has no tensor");
	if (n > SRT_INDEX_MAX_FILES)
		return srt_fail(SRT_ERR_FORMAT, "it names %zu files, at most %d are possible", n,
				SRT_INDEX_MAX_FILES);
	return SRT_OK;
}

srt_status_t srt_index_parse(char *text, size_t nbytes, srt_index_t *index)
{
	srt_json_t json = { text, text, "the index" };
	bool more, has_map = false;
	char *key;

	SRT_TRY(srt_json_begin(&json, '{', '}', &more));
	while (more) {
		SRT_TRY(srt_json_key(&json, &key));
		if (strcmp(key, "weight_map") != 0) {
			SRT_TRY(srt_json_skip(&json));
		} else if (has_map) {
			return srt_fail(SRT_ERR_FORMAT, "it has 'weight_map' twice");
		} else {
			has_map = true;
			SRT_TRY(parse_weight_map(&json, index));
		}
		SRT_TRY(srt_json_separator(&json, '}', &more));
	}
	if (json.at != text + nbytes)
		return srt_json_fail(&json, "the end of the index");
	if (!has_map)
		return srt_fail(SRT_ERR_FORMAT,
				"it has no 'weight_map', the list of tensors and files");
	SRT_TRY(sort_tensors(index));
	return list_files(index);
}

size_t srt_index_file(const srt_index_t *index, const char *name)
{
	const char **found =
		bsearch(&name, index->files, index->nfiles, sizeof(*index->files), compare_names);

	return (size_t)(found - index->files);
}

void srt_index_free(srt_index_t *index)
{
	free(index->tensors);
	free(index->files);
}
