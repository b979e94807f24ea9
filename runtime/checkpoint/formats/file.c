/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading of files without an engine (<shardrt/file.h>): the readers of model_file.h and of sharded
 * checkpoints (sharded_file.h) in the form of the public interface. Hashes: file_hash.c; writing:
 * file_write.c. */
#include <shardrt/file.h>

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "runtime/checkpoint/formats/model_file.h"
#include "runtime/checkpoint/formats/sharded_file.h"

_Static_assert(SRT_FILE_MAX_DIMS == SRT_SAFETENSORS_MAX_DIMS, "one number of dimensions");

/* The public description of a tensor has all its sizes. */
static srt_status_t check_dims(const char *path, const srt_safetensors_t *file)
{
	const srt_safetensors_tensor_t *t;

	for (size_t i = 0; (t = srt_safetensors_tensor(file, i)) != NULL; i++)
		if (t->ndim > SRT_FILE_MAX_DIMS)
			return srt_fail(SRT_ERR_UNSUPPORTED,
					"safetensors file %s: '%s' has %d dimensions, more than "
					"%d",
					path, srt_printable(t->name).text, t->ndim,
					SRT_FILE_MAX_DIMS);
	return SRT_OK;
}

static srt_status_t open_path(const char *path, bool all, srt_file_t **file)
{
	srt_file_t *f = srt_calloc(1, sizeof(*f), "a file");
	char *folder;
	srt_status_t status;

	if (f == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	folder = srt_sharded_file_folder(path);
	status = folder != NULL ? srt_sharded_file_open(folder, all, &f->sharded) :
				  srt_model_file_open(path, &f->plain);
	free(folder);
	if (status == SRT_OK && f->plain != NULL)
		status = check_dims(path, f->plain);
	if (status == SRT_OK)
		*file = f;
	else
		srt_file_close(f);
	return status;
}

srt_status_t srt_file_open(const char *path, srt_file_t **file)
{
	SRT_NOT_NULL(path);
	SRT_NOT_NULL(file);
	return open_path(path, false, file);
}

srt_status_t srt_file_open_all(const char *path, srt_file_t **file)
{
	SRT_NOT_NULL(path);
	SRT_NOT_NULL(file);
	return open_path(path, true, file);
}

void srt_file_close(srt_file_t *file)
{
	if (file == NULL)
		return;
	srt_safetensors_close(file->plain);
	srt_sharded_file_close(file->sharded);
	free(file);
}

size_t srt_file_count(const srt_file_t *file)
{
	return file == NULL          ? 0 :
	       file->sharded != NULL ? srt_sharded_file_count(file->sharded) :
				       srt_safetensors_count(file->plain);
}

/* False past the end. */
static bool get_tensor(const srt_file_t *file, size_t i, srt_file_tensor_t *tensor)
{
	const srt_safetensors_tensor_t *t;

	if (file->sharded != NULL)
		return srt_sharded_file_get(file->sharded, i, tensor);
	t = srt_safetensors_tensor(file->plain, i);
	if (t == NULL)
		return false;
	*tensor = (srt_file_tensor_t){ .size = sizeof(*tensor),
				       .name = t->name,
				       .dtype_name = t->dtype_name,
				       .dtype = t->dtype,
				       .ndim = t->ndim,
				       .nelem = t->nelem,
				       .nbytes = t->nbytes };
	memcpy(tensor->shape, t->shape, sizeof(t->shape));
	return true;
}

srt_status_t srt_file_at(const srt_file_t *file, size_t i, srt_file_tensor_t *tensor)
{
	srt_file_tensor_t full;

	SRT_NOT_NULL(file);
	SRT_NOT_NULL(tensor);
	SRT_TRY(srt_struct_check(tensor, "srt_file_tensor_t"));
	if (!get_tensor(file, i, &full))
		return srt_fail(SRT_ERR_NOT_FOUND, "the file has no tensor number %zu", i);
	return srt_struct_write(tensor, &full, sizeof(full), "srt_file_tensor_t");
}

static srt_status_t find_tensor(const srt_file_t *file, const char *name, size_t *i)
{
	const srt_safetensors_tensor_t *t;

	if (file->sharded != NULL) {
		*i = srt_sharded_file_find(file->sharded, name);
	} else {
		t = srt_safetensors_find(file->plain, name);
		*i = t != NULL ? (size_t)(t - srt_safetensors_tensor(file->plain, 0)) : SIZE_MAX;
	}
	return *i != SIZE_MAX ? SRT_OK :
				srt_fail(SRT_ERR_NOT_FOUND, "the file has no tensor '%s'",
					 srt_printable(name).text);
}

srt_status_t srt_file_find(const srt_file_t *file, const char *name, srt_file_tensor_t *tensor)
{
	size_t i;

	SRT_NOT_NULL(file);
	SRT_NOT_NULL(name);
	SRT_TRY(srt_struct_check(tensor, "srt_file_tensor_t"));
	SRT_TRY(find_tensor(file, name, &i));
	return tensor != NULL ? srt_file_at(file, i, tensor) : SRT_OK;
}

srt_status_t srt_file_find_metadata(const srt_file_t *file, const char *key, const char **value)
{
	const char *found;

	SRT_NOT_NULL(file);
	SRT_NOT_NULL(key);
	SRT_NOT_NULL(value);
	found = file->sharded != NULL ? srt_sharded_file_text(file->sharded, key) :
					srt_safetensors_metadata(file->plain, key);
	if (found == NULL)
		return srt_fail(SRT_ERR_NOT_FOUND, "the file has no metadata entry '%s'",
				srt_printable(key).text);
	*value = found;
	return SRT_OK;
}

static srt_status_t read_bytes(const srt_file_t *file, size_t i, size_t offset, size_t nbytes,
			       void *data)
{
	return file->sharded != NULL ?
		       srt_sharded_file_read(file->sharded, i, offset, nbytes, data) :
		       srt_safetensors_read(file->plain, srt_safetensors_tensor(file->plain, i),
					    offset, nbytes, data);
}

srt_status_t srt_file_read(const srt_file_t *file, const char *name, size_t offset, size_t nbytes,
			   void *data)
{
	size_t i;

	SRT_NOT_NULL(file);
	SRT_NOT_NULL(name);
	if (nbytes > 0)
		SRT_NOT_NULL(data);
	SRT_TRY(find_tensor(file, name, &i));
	return read_bytes(file, i, offset, nbytes, data);
}
