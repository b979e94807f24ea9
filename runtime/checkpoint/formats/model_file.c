/* SPDX-License-Identifier: BSD-3-Clause */
/* See model_file.h. */
#include "runtime/checkpoint/formats/model_file.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file_calls.h"
#include "runtime/checkpoint/formats/index.h"
#include "runtime/checkpoint/formats/manifest.h"

#define INDEX_END ".index.json"
#define PICKLE_NAME "pytorch_model.bin"

static bool ends_with(const char *text, const char *end)
{
	const size_t n = strlen(text), nend = strlen(end);

	return n >= nend && strcmp(text + n - nend, end) == 0;
}

/* ---- several files ---------------------------------------------------------------------- */

/* Each tensor of the index is in the file that it names. */
static srt_status_t check_tensors(const srt_index_t *index, srt_safetensors_t *const *parts)
{
	for (size_t i = 0; i < index->ntensors; i++) {
		const srt_index_tensor_t *t = &index->tensors[i];

		if (srt_safetensors_find(parts[srt_index_file(index, t->file)], t->name) == NULL)
			return srt_fail(SRT_ERR_FORMAT,
					"it has tensor '%s' in %s, but that file has no such "
					"tensor: the files are not of one model, download all of "
					"them again",
					srt_printable(t->name).text, srt_printable(t->file).text);
	}
	return SRT_OK;
}

static srt_status_t open_parts(const char *folder, const srt_index_t *index,
			       srt_safetensors_t **parts)
{
	for (size_t i = 0; i < index->nfiles; i++) {
		char *path = srt_asprintf("%s/%s", folder, index->files[i]);
		srt_status_t status = path != NULL ? srt_safetensors_open(path, &parts[i]) :
						     SRT_ERR_OUT_OF_MEMORY;

		free(path);
		if (status == SRT_ERR_NOT_FOUND)
			srt_fail(status,
				 "it has tensors in %s, which is not in its folder: download all "
				 "%zu files",
				 srt_printable(index->files[i]).text, index->nfiles);
		SRT_TRY(status);
	}
	return SRT_OK;
}

/* Opens the files of an index and joins them. */
static srt_status_t open_index_files(const char *path, const srt_index_t *index,
				     srt_safetensors_t **file)
{
	srt_safetensors_t **parts =
		srt_calloc(index->nfiles, sizeof(srt_safetensors_t *), "the files of a model");
	char *folder = srt_parent_of(path);
	srt_status_t status = parts != NULL && folder != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	if (status == SRT_OK)
		status = open_parts(folder, index, parts);
	if (status == SRT_OK)
		status = check_tensors(index, parts);
	if (status == SRT_OK)
		status = srt_safetensors_join(path, parts, index->nfiles, file);
	for (size_t i = 0; status != SRT_OK && parts != NULL && i < index->nfiles; i++)
		srt_safetensors_close(parts[i]);
	free(folder);
	if (status != SRT_OK)
		free(parts);
	return status;
}

static srt_status_t open_index(const char *path, srt_safetensors_t **file)
{
	srt_index_t index = { 0 };
	char *text = NULL;
	size_t nbytes;
	srt_status_t status = srt_read_text(path, SRT_INDEX_MAX_NBYTES, &text, &nbytes);

	if (status == SRT_OK) {
		status = srt_index_parse(text, nbytes, &index);
		if (status == SRT_OK)
			status = open_index_files(path, &index, file);
		if (status != SRT_OK)
			srt_fail_prefix(status, "the index %s: ", path);
	}
	srt_index_free(&index);
	free(text);
	return status;
}

/* ---- folders ---------------------------------------------------------------------------- */

/* The path of a name in a folder, to be freed, if it is there. */
static char *find_in(const char *folder, const char *name)
{
	char *path = srt_asprintf("%s/%s", folder, name);

	if (path != NULL && access(path, F_OK) == 0)
		return path;
	free(path);
	return NULL;
}

static bool has(const char *folder, const char *name)
{
	char *found = find_in(folder, name);

	free(found);
	return found != NULL;
}

bool srt_model_file_is_in(const char *folder)
{
	return has(folder, SRT_MODEL_NAME) || has(folder, SRT_MODEL_INDEX_NAME);
}

/* Whether a folder has files of a model of several, which has no index. */
static bool has_parts(const char *folder)
{
	DIR *dir = opendir(folder);
	const struct dirent *entry;
	bool found = false;

	while (dir != NULL && !found && (entry = readdir(dir)) != NULL)
		found = strstr(entry->d_name, "-of-") != NULL &&
			ends_with(entry->d_name, ".safetensors");
	if (dir != NULL)
		closedir(dir);
	return found;
}

static srt_status_t fail_folder(const char *folder)
{
	if (has(folder, SRT_MANIFEST_NAME))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s is a sharded checkpoint, not a model: srt_checkpoint_load() "
				"reads it",
				folder);
	if (has(folder, PICKLE_NAME) || has(folder, PICKLE_NAME INDEX_END))
		return srt_fail(SRT_ERR_NOT_FOUND,
				"%s has no " SRT_MODEL_NAME ", but " PICKLE_NAME
				", a pickle of Python: load it in Python, and save it with "
				"save_pretrained()",
				folder);
	if (has_parts(folder))
		return srt_fail(SRT_ERR_NOT_FOUND,
				"%s has files of a model, but no " SRT_MODEL_INDEX_NAME
				": the download is not complete, or a save was interrupted: save "
				"or download it again",
				folder);
	return srt_fail(SRT_ERR_NOT_FOUND,
			"%s has no " SRT_MODEL_NAME ", no " SRT_MODEL_INDEX_NAME
			" and no " SRT_MANIFEST_NAME " of a checkpoint: name another folder, or "
			"the file with the tensors",
			folder);
}

static srt_status_t open_folder(const char *folder, srt_safetensors_t **file)
{
	char *path = find_in(folder, SRT_MODEL_NAME);
	srt_status_t status;

	if (path != NULL) {
		status = srt_safetensors_open(path, file);
	} else {
		path = find_in(folder, SRT_MODEL_INDEX_NAME);
		status = path != NULL ? open_index(path, file) : fail_folder(folder);
	}
	free(path);
	return status;
}

srt_status_t srt_model_file_open(const char *path, srt_safetensors_t **file)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return open_folder(path, file);
	return ends_with(path, INDEX_END) ? open_index(path, file) :
					    srt_safetensors_open(path, file);
}
