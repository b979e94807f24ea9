/* SPDX-License-Identifier: BSD-3-Clause */
/* See sharded_file.h; and what a checkpoint has apart from tensors
 * (<shardrt/checkpoint_file.h>). */
#include "runtime/checkpoint/formats/sharded_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <shardrt/checkpoint_file.h>

#include "base/base.h"
#include "kernels/step_info.h"
#include "runtime/checkpoint/formats/box_reader.h"
#include "runtime/checkpoint/formats/folder.h"
#include "runtime/checkpoint/formats/model_file.h"

/* A tensor under its name in files. */
typedef struct keyed {
	char *key;
	const srt_manifest_tensor_t *tensor;
} keyed_t;

struct srt_sharded_file {
	char *folder;
	srt_box_reader_t reader;
	keyed_t *tensors; /* in the order of keys */
	size_t ntensors;
};

static int compare_keys(const void *a, const void *b)
{
	return strcmp(((const keyed_t *)a)->key, ((const keyed_t *)b)->key);
}

static srt_status_t list_tensors(srt_sharded_file_t *f, bool all)
{
	const srt_manifest_t *m = &f->reader.manifest;

	f->tensors = srt_calloc(m->ntensors + 1, sizeof(*f->tensors), "the tensors of a folder");
	if (f->tensors == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < m->ntensors; i++) {
		const srt_manifest_tensor_t *t = &m->tensors[i];

		if (t->kind >= SRT_MANIFEST_STATE0 && !all)
			continue;
		f->tensors[f->ntensors] = (keyed_t){ srt_manifest_key(t->kind, t->name), t };
		if (f->tensors[f->ntensors++].key == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
	}
	if (f->ntensors > 0)
		qsort(f->tensors, f->ntensors, sizeof(*f->tensors), compare_keys);
	for (size_t i = 1; i < f->ntensors; i++)
		if (strcmp(f->tensors[i - 1].key, f->tensors[i].key) == 0)
			return srt_fail(SRT_ERR_FORMAT, "%s: two tensors are called '%s' in files",
					f->folder, srt_printable(f->tensors[i].key).text);
	return SRT_OK;
}

/* Whether a manifest is there, of a checkpoint unless a model is there too. */
static bool has_manifest(const char *folder)
{
	char *manifest = srt_asprintf("%s/%s", folder, SRT_MANIFEST_NAME);
	const bool has = manifest != NULL && access(manifest, F_OK) == 0;

	free(manifest);
	return has && (srt_folder_is_checkpoint(folder) || !srt_model_file_is_in(folder));
}

char *srt_sharded_file_folder(const char *path)
{
	char *found = srt_folder_find(path);
	struct stat st;

	if (found != NULL && stat(found, &st) == 0 && S_ISDIR(st.st_mode) && has_manifest(found))
		return found;
	free(found);
	return NULL;
}

srt_status_t srt_sharded_file_open(const char *folder, bool all, srt_sharded_file_t **file)
{
	srt_sharded_file_t *f = srt_calloc(1, sizeof(*f), "a checkpoint");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (f == NULL)
		return status;
	f->folder = srt_strdup(folder);
	if (f->folder != NULL)
		status = srt_box_reader_open(&f->reader, f->folder);
	if (status == SRT_OK)
		status = list_tensors(f, all);
	if (status == SRT_OK)
		*file = f;
	else
		srt_sharded_file_close(f);
	return status;
}

void srt_sharded_file_close(srt_sharded_file_t *f)
{
	if (f == NULL)
		return;
	for (size_t i = 0; i < f->ntensors; i++)
		free(f->tensors[i].key);
	free(f->tensors);
	srt_box_reader_close(&f->reader);
	free(f->folder);
	free(f);
}

size_t srt_sharded_file_count(const srt_sharded_file_t *f)
{
	return f->ntensors;
}

bool srt_sharded_file_get(const srt_sharded_file_t *f, size_t i, srt_file_tensor_t *tensor)
{
	const srt_manifest_tensor_t *t;

	if (i >= f->ntensors)
		return false;
	t = f->tensors[i].tensor;
	*tensor = (srt_file_tensor_t){ .size = sizeof(*tensor),
				       .name = f->tensors[i].key,
				       .dtype_name = srt_safetensors_dtype_name(t->dtype),
				       .dtype = t->dtype,
				       .ndim = t->ndim,
				       .nelem = (size_t)srt_box_nelem(t->ndim, t->shape) };
	tensor->nbytes = tensor->nelem * srt_dtype_size(t->dtype);
	memcpy(tensor->shape, t->shape, sizeof(t->shape));
	return true;
}

size_t srt_sharded_file_find(const srt_sharded_file_t *f, const char *name)
{
	const keyed_t key = { (char *)(uintptr_t)name, NULL };
	const keyed_t *found = f->ntensors == 0 ? NULL :
						  bsearch(&key, f->tensors, f->ntensors,
							  sizeof(*f->tensors), compare_keys);

	return found != NULL ? (size_t)(found - f->tensors) : SIZE_MAX;
}

const char *srt_sharded_file_text(const srt_sharded_file_t *f, const char *key)
{
	const srt_manifest_entry_t *e = srt_manifest_find_entry(&f->reader.manifest, key);
	const char *text = e != NULL ? (const char *)e->data : ""; /* a zero follows the bytes */
	size_t length;

	for (const char *at = text; *at != '\0'; at += length) {
		length = srt_utf8_length(at);
		if (length == 0)
			return NULL;
	}
	for (size_t i = strlen(text); e != NULL && i < e->nbytes; i++)
		if (text[i] != '\0')
			return NULL;
	return *text != '\0' ? text : NULL;
}

srt_status_t srt_sharded_file_read(srt_sharded_file_t *f, size_t i, size_t offset, size_t nbytes,
				   void *data)
{
	const srt_manifest_tensor_t *t = f->tensors[i].tensor;
	const size_t elem = srt_dtype_size(t->dtype);
	const size_t total = (size_t)srt_box_nelem(t->ndim, t->shape) * elem;

	if (offset > total || nbytes > total - offset || offset % elem != 0 || nbytes % elem != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: bytes %zu..%zu are not elements of %zu bytes within tensor "
				"'%s' of %zu bytes",
				f->folder, offset, offset + nbytes, elem,
				srt_printable(f->tensors[i].key).text, total);
	return srt_box_reader_read_range(&f->reader, t, (int64_t)(offset / elem),
					 (int64_t)(nbytes / elem), data);
}

/* ---- apart from tensors ----------------------------------------------------------------- */

/* NULL: it is no checkpoint. */
static const srt_manifest_t *manifest_of(const srt_file_t *file)
{
	return file->sharded != NULL ? &file->sharded->reader.manifest : NULL;
}

static srt_status_t fail_absent(const srt_file_t *file, const char *what, size_t i)
{
	return file->sharded == NULL ?
		       srt_fail(SRT_ERR_NOT_FOUND, "the file is no sharded checkpoint") :
		       srt_fail(SRT_ERR_NOT_FOUND, "the checkpoint has no %s number %zu", what, i);
}

srt_status_t srt_file_get_checkpoint(const srt_file_t *file, srt_file_checkpoint_t *checkpoint)
{
	srt_file_checkpoint_t full = SRT_FILE_CHECKPOINT_INIT;
	const srt_manifest_t *m;

	SRT_NOT_NULL(file);
	SRT_NOT_NULL(checkpoint);
	SRT_TRY(srt_struct_check(checkpoint, "srt_file_checkpoint_t"));
	m = manifest_of(file);
	if (m == NULL)
		return fail_absent(file, "", 0);
	full.id = m->id;
	full.optimizer = m->optimizer;
	full.world = m->world;
	full.numerics_version = m->numerics_version;
	full.fast = m->fast;
	full.has_scaler = m->has_scaler;
	full.scaler = m->scaler;
	full.nfiles = m->nfiles;
	full.ngroups = m->ngroups;
	full.nentries = m->nentries;
	return srt_struct_write(checkpoint, &full, sizeof(full), "srt_file_checkpoint_t");
}

srt_status_t srt_file_get_group(const srt_file_t *file, size_t i, srt_step_info_t *info)
{
	const srt_manifest_t *m;

	SRT_NOT_NULL(file);
	SRT_NOT_NULL(info);
	SRT_TRY(srt_struct_check(info, "srt_step_info_t"));
	m = manifest_of(file);
	if (m == NULL || i >= m->ngroups)
		return fail_absent(file, "group of parameters", i);
	return srt_step_info_write(info, &m->groups[i].state);
}

srt_status_t srt_file_get_entry(const srt_file_t *file, size_t i, const char **key,
				const void **data, size_t *nbytes)
{
	const srt_manifest_t *m;

	SRT_NOT_NULL(file);
	SRT_NOT_NULL(key);
	m = manifest_of(file);
	if (m == NULL || i >= m->nentries)
		return fail_absent(file, "entry", i);
	*key = m->entries[i].key;
	if (data != NULL)
		*data = m->entries[i].data;
	if (nbytes != NULL)
		*nbytes = m->entries[i].nbytes;
	return SRT_OK;
}

static srt_status_t find_tensor(const srt_file_t *file, const char *name,
				const srt_manifest_tensor_t **tensor)
{
	size_t i;

	if (file->sharded == NULL)
		return fail_absent(file, "", 0);
	i = srt_sharded_file_find(file->sharded, name);
	if (i == SIZE_MAX)
		return srt_fail(SRT_ERR_NOT_FOUND, "the checkpoint has no tensor '%s'",
				srt_printable(name).text);
	*tensor = file->sharded->tensors[i].tensor;
	return SRT_OK;
}

srt_status_t srt_file_get_saved(const srt_file_t *file, const char *name, srt_file_saved_t *saved)
{
	srt_file_saved_t full = SRT_FILE_SAVED_INIT;
	const srt_manifest_tensor_t *t;

	SRT_NOT_NULL(file);
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(saved);
	SRT_TRY(srt_struct_check(saved, "srt_file_saved_t"));
	SRT_TRY(find_tensor(file, name, &t));
	full.kind = t->kind == SRT_MANIFEST_VALUE  ? SRT_FILE_PARAM :
		    t->kind == SRT_MANIFEST_BUFFER ? SRT_FILE_BUFFER :
						     SRT_FILE_STATE;
	full.name = t->name;
	full.steps = t->steps;
	full.nboxes = t->nboxes;
	if (full.kind == SRT_FILE_STATE)
		full.state = (int)t->kind - (int)SRT_MANIFEST_STATE0;
	return srt_struct_write(saved, &full, sizeof(full), "srt_file_saved_t");
}

srt_status_t srt_file_get_box(const srt_file_t *file, const char *name, size_t i,
			      srt_file_box_t *box)
{
	const srt_manifest_tensor_t *t;
	const srt_manifest_box_t *b;

	SRT_NOT_NULL(file);
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(box);
	SRT_TRY(find_tensor(file, name, &t));
	if (i >= t->nboxes)
		return srt_fail(SRT_ERR_NOT_FOUND, "tensor '%s' has no box number %zu",
				srt_printable(name).text, i);
	b = &t->boxes[i];
	*box = (srt_file_box_t){ .file = file->sharded->reader.manifest.files[b->file].name,
				 .nbytes = b->nbytes };
	memcpy(box->offset, b->box.offset, sizeof(box->offset));
	memcpy(box->size, b->box.size, sizeof(box->size));
	return SRT_OK;
}
