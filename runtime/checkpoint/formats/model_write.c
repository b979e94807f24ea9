/* SPDX-License-Identifier: BSD-3-Clause */
/* See model_write.h. */
#include "runtime/checkpoint/formats/model_write.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/json.h"
#include "base/replacement.h"
#include "runtime/checkpoint/formats/folder.h"
#include "runtime/checkpoint/formats/index.h"
#include "runtime/checkpoint/formats/model_file.h"

/* Bytes of tensors in a file, as transformers chooses. */
#define DEFAULT_NBYTES ((size_t)5000000000)
#define PART_FORMAT "model-%05zu-of-%05zu.safetensors"

/* Where an entry is. */
typedef struct place {
	size_t part, entry; /* its number in the file */
	size_t nbytes;
} place_t;

struct srt_model_writer {
	char *folder;
	size_t nentries, nparts;
	place_t *places;
	srt_safetensors_writer_t **parts;
	srt_json_text_t index; /* of several files */
};

/* ---- the files -------------------------------------------------------------------------- */

/* NAME in the folder, to be freed; NULL without memory. */
static char *path_of(const srt_model_writer_t *w, const char *name)
{
	return srt_asprintf("%s/%s", w->folder, name);
}

/* The name of file i of nparts. */
static void name_part(char name[64], size_t i, size_t nparts)
{
	if (nparts == 1)
		snprintf(name, 64, SRT_MODEL_NAME);
	else
		snprintf(name, 64, PART_FORMAT, i + 1, nparts);
}

/* Makes the folder unless it is there. */
static srt_status_t make_folder(const char *folder)
{
	struct stat st;

	if (mkdir(folder, 0777) == 0)
		return SRT_OK;
	if (errno != EEXIST)
		return srt_fail(SRT_ERR_IO, "cannot create the folder %s: %s", folder,
				strerror(errno));
	if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s exists and is not a folder: choose another name to save to",
				folder);
	if (srt_folder_is_checkpoint(folder))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s is a sharded checkpoint: choose another folder to save to",
				folder);
	return SRT_OK;
}

/* The bytes of an entry, whose shape the writer of its file checks. */
static srt_status_t measure(const srt_safetensors_entry_t *e, size_t *nbytes)
{
	size_t nelem = 1;

	for (int d = 0; d < e->ndim && d < SRT_MAX_DIMS; d++)
		if (e->shape[d] < 0 || !srt_mul_size(nelem, (size_t)e->shape[d], &nelem))
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"tensor '%s' has a negative or too large shape", e->name);
	return srt_dtype_nbytes(e->dtype, nelem, nbytes);
}

/* Gives each entry its file, in the order of the list: a file is full before an entry that would
 * make it larger than the limit, unless it has no other. */
static srt_status_t cut(srt_model_writer_t *w, const srt_safetensors_entry_t *entries,
			size_t max_nbytes)
{
	size_t filled = 0, entry = 0;

	w->nparts = 1;
	for (size_t i = 0; i < w->nentries; i++) {
		place_t *p = &w->places[i];

		SRT_TRY(measure(&entries[i], &p->nbytes));
		if (entry > 0 && (filled > max_nbytes || p->nbytes > max_nbytes - filled)) {
			w->nparts++;
			filled = entry = 0;
		}
		filled += p->nbytes;
		p->part = w->nparts - 1;
		p->entry = entry++;
	}
	if (w->nparts > SRT_INDEX_MAX_FILES)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"files of at most %zu bytes would be %zu, more than %d: make them "
				"larger",
				max_nbytes, w->nparts, SRT_INDEX_MAX_FILES);
	return SRT_OK;
}

/* Creates the files, whose entries follow each other in the list. */
static srt_status_t create_parts(srt_model_writer_t *w, const srt_safetensors_entry_t *entries,
				 const srt_file_metadata_t *metadata, size_t nmetadata)
{
	size_t first = 0;

	for (size_t i = 0; i < w->nparts; i++) {
		char name[64], *path;
		size_t n = 0;
		srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

		while (first + n < w->nentries && w->places[first + n].part == i)
			n++;
		name_part(name, i, w->nparts);
		path = path_of(w, name);
		if (path != NULL)
			status = srt_safetensors_writer_create(path, entries + first, n, metadata,
							       nmetadata, &w->parts[i]);
		free(path);
		SRT_TRY(status);
		first += n;
	}
	return SRT_OK;
}

/* ---- the index -------------------------------------------------------------------------- */

/* An entry and its number. */
typedef struct named {
	const char *name;
	size_t i;
} named_t;

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const named_t *)a)->name, ((const named_t *)b)->name);
}

/* The entries in the order of names, to be freed. Names differ, in all files together. */
static srt_status_t sort_entries(const srt_safetensors_entry_t *entries, size_t n, named_t **sorted)
{
	named_t *list = srt_calloc(n + 1, sizeof(*list), "names of an index");

	if (list == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++)
		list[i] = (named_t){ entries[i].name, i };
	if (n > 0)
		qsort(list, n, sizeof(*list), compare_names);
	for (size_t i = 1; i < n; i++)
		if (compare_names(&list[i - 1], &list[i]) == 0) {
			srt_fail(SRT_ERR_INVALID_ARGUMENT,
				 "'%s' occurs twice among the names to be saved", list[i].name);
			free(list);
			return SRT_ERR_INVALID_ARGUMENT;
		}
	*sorted = list;
	return SRT_OK;
}

/* The text of the index, as transformers writes it but without the number of parameters. */
static srt_status_t make_index(srt_model_writer_t *w, const srt_safetensors_entry_t *entries)
{
	srt_json_text_t *t = &w->index;
	size_t total = 0;
	named_t *sorted;

	SRT_TRY(sort_entries(entries, w->nentries, &sorted));
	for (size_t i = 0; i < w->nentries; i++)
		total += w->places[i].nbytes;
	srt_json_append_format(t, "{\n  \"metadata\": {\n");
	srt_json_append_format(t, "    \"total_size\": %zu\n  },\n", total);
	srt_json_append_format(t, "  \"weight_map\": {");
	for (size_t i = 0; i < w->nentries; i++) {
		srt_json_append_format(t, "%s\n    ", i > 0 ? "," : "");
		srt_json_append_string(t, sorted[i].name);
		srt_json_append_format(t, ": \"" PART_FORMAT "\"", w->places[sorted[i].i].part + 1,
				       w->nparts);
	}
	srt_json_append_format(t, "\n  }\n}\n");
	free(sorted);
	return t->failed ? SRT_ERR_OUT_OF_MEMORY : SRT_OK;
}

static srt_status_t write_index(const srt_model_writer_t *w)
{
	char *path = path_of(w, SRT_MODEL_INDEX_NAME);
	srt_replacement_t r = { .fd = -1 };
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (path != NULL)
		status = srt_replacement_open(&r, path, false);
	if (status == SRT_OK)
		status = srt_replacement_write(&r, w->index.bytes, w->index.nbytes);
	if (status == SRT_OK)
		status = srt_replacement_commit(&r);
	srt_replacement_close(&r);
	free(path);
	return status;
}

/* ---- the calls -------------------------------------------------------------------------- */

srt_status_t srt_model_writer_create(const char *folder, const srt_safetensors_entry_t *entries,
				     size_t n, const srt_file_metadata_t *metadata,
				     size_t nmetadata, size_t max_nbytes,
				     srt_model_writer_t **writer)
{
	srt_model_writer_t *w = srt_calloc(1, sizeof(*w), "a model to be saved");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (w == NULL)
		return status;
	w->nentries = n;
	w->folder = srt_strdup(folder);
	w->places = srt_calloc(n + 1, sizeof(*w->places), "tensors to be saved");
	if (w->folder != NULL && w->places != NULL)
		status = cut(w, entries, max_nbytes > 0 ? max_nbytes : DEFAULT_NBYTES);
	if (status == SRT_OK && w->nparts > 1)
		status = make_index(w, entries);
	if (status == SRT_OK) {
		w->parts = srt_calloc(w->nparts, sizeof(srt_safetensors_writer_t *),
				      "files to be saved");
		status = w->parts != NULL ? make_folder(folder) : SRT_ERR_OUT_OF_MEMORY;
	}
	if (status == SRT_OK)
		status = create_parts(w, entries, metadata, nmetadata);
	if (status == SRT_OK)
		*writer = w;
	else
		srt_model_writer_destroy(w);
	return status;
}

srt_status_t srt_model_writer_put_at(srt_model_writer_t *w, size_t i, size_t offset,
				     const void *data, size_t nbytes)
{
	if (i >= w->nentries)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s has no tensor number %zu", w->folder,
				i);
	return srt_safetensors_writer_put_at(w->parts[w->places[i].part], w->places[i].entry,
					     offset, data, nbytes);
}

/* Removes a file that is no longer part of the model. False with errno. */
static bool remove_name(const srt_model_writer_t *w, const char *name)
{
	char *path = path_of(w, name);
	bool done;
	int error;

	if (path == NULL) {
		errno = ENOMEM;
		return false;
	}
	done = unlink(path) == 0 || errno == ENOENT;
	error = errno;
	free(path);
	errno = error;
	return done;
}

static bool exists(const srt_model_writer_t *w, const char *name)
{
	char *path = path_of(w, name);
	const bool found = path != NULL && access(path, F_OK) == 0;

	free(path);
	return found;
}

/* Removes the files of earlier models, which have other numbers of files. A failure leaves them
 * there, where no index names them. */
static void remove_others(const srt_model_writer_t *w)
{
	DIR *dir = opendir(w->folder);
	const struct dirent *entry;
	size_t i, n;
	char name[64];

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (sscanf(entry->d_name, "model-%5zu-of-%5zu", &i, &n) != 2 || i == 0 ||
		    n == w->nparts)
			continue;
		snprintf(name, sizeof(name), PART_FORMAT, i, n);
		if (strcmp(entry->d_name, name) == 0)
			remove_name(w, name);
	}
	if (dir != NULL)
		closedir(dir);
}

/* Renames the files. Those of an old index with the same names are replaced only when that index is
 * gone; else the old model stays complete until the new index, or the one file, is in place. */
static srt_status_t rename_files(srt_model_writer_t *w)
{
	const char *obsolete = w->nparts > 1 ? SRT_MODEL_NAME : SRT_MODEL_INDEX_NAME;
	char name[64];

	name_part(name, 0, w->nparts);
	if (w->nparts > 1 && exists(w, name) && !remove_name(w, SRT_MODEL_INDEX_NAME))
		return srt_fail(SRT_ERR_IO, "cannot remove the old index: %s", strerror(errno));
	for (size_t i = 0; i < w->nparts; i++)
		SRT_TRY(srt_safetensors_writer_commit(w->parts[i]));
	if (w->nparts > 1)
		SRT_TRY(write_index(w));
	if (!remove_name(w, obsolete))
		return srt_fail(SRT_ERR_IO, "cannot remove the old %s: %s", obsolete,
				strerror(errno));
	return SRT_OK;
}

srt_status_t srt_model_writer_commit(srt_model_writer_t *w)
{
	srt_status_t status;

	for (size_t i = 0; i < w->nparts; i++)
		SRT_TRY(srt_safetensors_writer_sync(w->parts[i]));
	status = rename_files(w);
	if (status != SRT_OK)
		return srt_fail_prefix(
			status,
			"%s may have a part of the new model only, so save it again: ", w->folder);
	remove_others(w);
	return SRT_OK;
}

void srt_model_writer_destroy(srt_model_writer_t *w)
{
	if (w == NULL)
		return;
	for (size_t i = 0; w->parts != NULL && i < w->nparts; i++)
		srt_safetensors_writer_destroy(w->parts[i]);
	free(w->parts);
	free(w->places);
	free(w->index.bytes);
	free(w->folder);
	free(w);
}
