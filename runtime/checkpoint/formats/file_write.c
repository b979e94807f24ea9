/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing of files and folders without an engine (<shardrt/file.h>): the writers of safetensors.h
 * and model_write.h in the form of the public interface; other files, written and copied. */
#include <shardrt/file.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/replacement.h"
#include "runtime/checkpoint/formats/model_write.h"
#include "runtime/checkpoint/formats/safetensors.h"

/* A file of another format. */
typedef struct plain_writer {
	srt_replacement_t file;
	size_t nbytes, written;
} plain_writer_t;

/* One of the three. */
struct srt_file_writer {
	srt_safetensors_writer_t *tensors;
	srt_model_writer_t *folder;
	plain_writer_t *plain;
};

/* The pointers of the arguments. */
static srt_status_t check_arguments(const char *call, const srt_file_entry_t *entries,
				    size_t nentries, const srt_file_metadata_t *metadata,
				    size_t nmetadata)
{
	if (nentries > 0)
		SRT_TRY(srt_check_not_null(entries, call, "entries"));
	if (nmetadata > 0)
		SRT_TRY(srt_check_not_null(metadata, call, "metadata"));
	for (size_t i = 0; i < nentries; i++)
		SRT_TRY(srt_check_not_null(entries[i].name, call, "the name of an entry"));
	for (size_t i = 0; i < nmetadata; i++) {
		SRT_TRY(srt_check_not_null(metadata[i].key, call, "a metadata key"));
		SRT_TRY(srt_check_not_null(metadata[i].value, call, "a metadata value"));
	}
	return SRT_OK;
}

/* To be freed; NULL without memory. */
static srt_safetensors_entry_t *copy_entries(const srt_file_entry_t *entries, size_t n)
{
	srt_safetensors_entry_t *list = srt_calloc(n + 1, sizeof(*list), "the tensors of a file");

	for (size_t i = 0; i < n && list != NULL; i++) {
		list[i] = (srt_safetensors_entry_t){ .name = entries[i].name,
						     .dtype = entries[i].dtype,
						     .ndim = entries[i].ndim };
		memcpy(list[i].shape, entries[i].shape, sizeof(list[i].shape));
	}
	return list;
}

srt_status_t srt_file_writer_create(const char *path, const srt_file_entry_t *entries,
				    size_t nentries, const srt_file_metadata_t *metadata,
				    size_t nmetadata, srt_file_writer_t **writer)
{
	srt_safetensors_entry_t *list;
	srt_file_writer_t *w;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	SRT_NOT_NULL(path);
	SRT_NOT_NULL(writer);
	SRT_TRY(check_arguments(__func__, entries, nentries, metadata, nmetadata));
	w = srt_calloc(1, sizeof(*w), "a file to be written");
	list = copy_entries(entries, nentries);
	if (w != NULL && list != NULL)
		status = srt_safetensors_writer_create(path, list, nentries, metadata, nmetadata,
						       &w->tensors);
	free(list);
	if (status == SRT_OK)
		*writer = w;
	else
		free(w);
	return status;
}

/* The metadata of each file of a folder; to be freed. NULL without memory. */
static srt_file_metadata_t *add_format(const srt_file_metadata_t *metadata, size_t n)
{
	srt_file_metadata_t *list = srt_calloc(n + 1, sizeof(*list), "metadata to be saved");

	if (list != NULL) {
		list[0] = (srt_file_metadata_t){ "format", "pt" };
		if (n > 0)
			memcpy(list + 1, metadata, n * sizeof(*list));
	}
	return list;
}

srt_status_t srt_file_writer_create_folder(const char *folder, const srt_file_entry_t *entries,
					   size_t nentries, const srt_file_metadata_t *metadata,
					   size_t nmetadata, size_t max_nbytes,
					   srt_file_writer_t **writer)
{
	srt_safetensors_entry_t *list;
	srt_file_metadata_t *all;
	srt_file_writer_t *w;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	SRT_NOT_NULL(folder);
	SRT_NOT_NULL(writer);
	SRT_TRY(check_arguments(__func__, entries, nentries, metadata, nmetadata));
	w = srt_calloc(1, sizeof(*w), "a folder to be written");
	list = copy_entries(entries, nentries);
	all = add_format(metadata, nmetadata);
	if (w != NULL && list != NULL && all != NULL)
		status = srt_model_writer_create(folder, list, nentries, all, nmetadata + 1,
						 max_nbytes, &w->folder);
	free(list);
	free(all);
	if (status == SRT_OK)
		*writer = w;
	else
		free(w);
	return status;
}

srt_status_t srt_file_writer_create_plain(const char *path, size_t nbytes,
					  srt_file_writer_t **writer)
{
	srt_file_writer_t *w;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	SRT_NOT_NULL(path);
	SRT_NOT_NULL(writer);
	w = srt_calloc(1, sizeof(*w), "a file to be written");
	if (w != NULL)
		w->plain = srt_calloc(1, sizeof(*w->plain), "a file to be written");
	if (w != NULL && w->plain != NULL) {
		w->plain->file.fd = -1;
		w->plain->nbytes = nbytes;
		status = srt_replacement_open(&w->plain->file, path, true);
		if (status == SRT_OK)
			status = srt_replacement_allocate(&w->plain->file, nbytes);
	}
	if (status == SRT_OK)
		*writer = w;
	else
		srt_file_writer_destroy(w);
	return status;
}

static srt_status_t put_plain(plain_writer_t *w, size_t i, size_t offset, const void *data,
			      size_t nbytes)
{
	if (i != 0 || offset != w->written || nbytes > w->nbytes - offset)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: bytes %zu..%zu of entry %zu are not the next ones of the file",
				w->file.path, offset, offset + nbytes, i);
	SRT_TRY(srt_replacement_write(&w->file, data, nbytes));
	w->written += nbytes;
	return SRT_OK;
}

static srt_status_t commit_plain(plain_writer_t *w)
{
	if (w->written != w->nbytes)
		return srt_fail(SRT_ERR_STATE, "only %zu of the %zu bytes of %s were written",
				w->written, w->nbytes, w->file.path);
	return srt_replacement_commit(&w->file);
}

srt_status_t srt_file_writer_put(srt_file_writer_t *writer, size_t i, size_t offset,
				 const void *data, size_t nbytes)
{
	SRT_NOT_NULL(writer);
	if (nbytes > 0)
		SRT_NOT_NULL(data);
	if (writer->plain != NULL)
		return put_plain(writer->plain, i, offset, data, nbytes);
	return writer->folder != NULL ?
		       srt_model_writer_put_at(writer->folder, i, offset, data, nbytes) :
		       srt_safetensors_writer_put_at(writer->tensors, i, offset, data, nbytes);
}

srt_status_t srt_file_writer_commit(srt_file_writer_t *writer)
{
	SRT_NOT_NULL(writer);
	if (writer->plain != NULL)
		return commit_plain(writer->plain);
	return writer->folder != NULL ? srt_model_writer_commit(writer->folder) :
					srt_safetensors_writer_commit(writer->tensors);
}

void srt_file_writer_destroy(srt_file_writer_t *writer)
{
	if (writer == NULL)
		return;
	if (writer->plain != NULL)
		srt_replacement_close(&writer->plain->file);
	free(writer->plain);
	srt_model_writer_destroy(writer->folder);
	srt_safetensors_writer_destroy(writer->tensors);
	free(writer);
}

/* ---- other files ------------------------------------------------------------------------ */

/* Copies what is left of an open file. */
static srt_status_t copy_bytes(int fd, const char *from, const srt_replacement_t *to)
{
	char bytes[4096];
	ssize_t n;

	while ((n = read(fd, bytes, sizeof(bytes))) != 0) {
		if (n < 0 && errno != EINTR)
			return srt_fail(SRT_ERR_IO, "cannot read %s: %s", from, strerror(errno));
		if (n > 0)
			SRT_TRY(srt_replacement_write(to, bytes, (size_t)n));
	}
	return SRT_OK;
}

srt_status_t srt_file_copy(const char *from, const char *to)
{
	srt_replacement_t r = { .fd = -1 };
	srt_status_t status;
	struct stat st;
	int fd;

	SRT_NOT_NULL(from);
	SRT_NOT_NULL(to);
	/* O_NONBLOCK: opening a FIFO must not block before fstat() */
	fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return srt_fail(errno == ENOENT ? SRT_ERR_NOT_FOUND : SRT_ERR_IO,
				"cannot open %s: %s", from, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		status = srt_fail(SRT_ERR_IO, "cannot copy %s: it is not a regular file", from);
	else
		status = srt_replacement_open(&r, to, true);
	if (status == SRT_OK)
		status = copy_bytes(fd, from, &r);
	if (status == SRT_OK)
		status = srt_replacement_commit(&r);
	srt_replacement_close(&r);
	close(fd);
	return status;
}
