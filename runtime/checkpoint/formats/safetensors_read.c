/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reader of safetensors files (safetensors.h): path -> a checked table of tensors, and their
 * bytes on demand. After srt_safetensors_open() every tensor's place lies inside the file and they
 * cover its data without gap or overlap. Called by model_file.c and others, and by the tests.
 */
#include "runtime/checkpoint/formats/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

struct srt_safetensors {
	int fd;
	char *path;
	size_t data_start; /* of the file */
	char *text;        /* of the header, which refers to it */
	srt_safetensors_header_t header;
	srt_safetensors_identity_t identity;
	size_t nparts; /* files that are joined; 0: it is one file */
	srt_safetensors_t **parts;
};

static srt_status_t read_at(const srt_safetensors_t *file, size_t offset, size_t nbytes, void *dst)
{
	char *to = dst;

	while (nbytes > 0) {
		ssize_t got = pread(file->fd, to, nbytes, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return srt_fail(SRT_ERR_IO, "cannot read %s: %s", file->path,
					strerror(errno));
		if (got == 0)
			return srt_fail(SRT_ERR_IO, "%s became shorter while it was read",
					file->path);
		to += got;
		offset += (size_t)got;
		nbytes -= (size_t)got;
	}
	return SRT_OK;
}

/* ---- what other files are --------------------------------------------------------------- */

#define SAVE "load it in Python, and write its tensors with safetensors.torch.save_file()"
#define DOWNLOAD "was downloaded instead of a file of parameters: download that"
#define UNPACK "unpack it first"

/* What files of other programs begin with. */
static const struct {
	const char *bytes;
	size_t nbytes, at;
	const char *what; /* it is, and what to do */
} others[] = {
#define BEGINS(bytes, what)                                                                        \
	{                                                                                          \
		bytes, sizeof(bytes) - 1, 0, what                                                  \
	}
	BEGINS("version https://git-lfs",
	       "a pointer of Git LFS, not the file: git lfs pull fetches it"),
	BEGINS("PK\3\4", "a zip archive, as torch.save() writes it: " SAVE),
	BEGINS("\x80\2", "a pickle of Python, as torch.save() wrote it: " SAVE),
	BEGINS("\x80\3", "a pickle of Python: " SAVE),
	BEGINS("\x80\4", "a pickle of Python: " SAVE),
	BEGINS("\x80\5", "a pickle of Python: " SAVE),
	BEGINS("GGUF", "a GGUF file of llama.cpp: take the model's safetensors file instead"),
	BEGINS("\x89HDF\r\n", "an HDF5 file: " SAVE),
	BEGINS("\x93NUMPY", "a NumPy array: " SAVE),
	BEGINS("\x1f\x8b", "compressed by gzip: " UNPACK),
	BEGINS("\x28\xb5\x2f\xfd", "compressed by zstd: " UNPACK),
	BEGINS("\xfd"
	       "7zXZ",
	       "compressed by xz: " UNPACK),
	BEGINS("BZh", "compressed by bzip2: " UNPACK),
	{ "ustar", 5, 257, "a tar archive: " UNPACK },
	BEGINS("\xc6\xd7\x34\x01",
	       "a checkpoint of llm.c: take the model's safetensors file instead"),
	BEGINS("\x88\xd8\x34\x01", "a file of tokens of llm.c: it is for shardrt-train --tokens"),
	BEGINS("<!DOCTYPE", "a page of HTML, which " DOWNLOAD),
	BEGINS("<!doctype", "a page of HTML, which " DOWNLOAD),
	BEGINS("<html", "a page of HTML, which " DOWNLOAD),
	BEGINS("<?xml", "XML, which " DOWNLOAD),
	BEGINS("{\"shardrt_checkpoint\":", "the manifest of a checkpoint: name its folder instead"),
#undef BEGINS
};

/* Sets the sentence for a file of another program, if its first bytes, which a zero ends, tell
 * which. */
static bool recognise(const char *first, size_t nbytes)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(others); i++) {
		if (nbytes < others[i].at + others[i].nbytes ||
		    memcmp(first + others[i].at, others[i].bytes, others[i].nbytes) != 0)
			continue;
		srt_fail(SRT_ERR_FORMAT, "it is no safetensors file, but %s", others[i].what);
		return true;
	}
	if (first[strspn(first, " \t\r\n")] != '{')
		return false;
	if (strstr(first, "\"weight_map\"") != NULL || strstr(first, "\"total_size\"") != NULL)
		srt_fail(SRT_ERR_FORMAT,
			 "it is the index of a model of several files: call it "
			 "model.safetensors.index.json, in the folder of these files, and name "
			 "the folder");
	else
		srt_fail(SRT_ERR_FORMAT, "it is no safetensors file, but JSON text: name the file "
					 "with the tensors instead");
	return true;
}

/* For a file that cannot have a header. */
static srt_status_t fail_header(const srt_safetensors_t *file, uint64_t file_nbytes,
				uint64_t header_nbytes)
{
	char first[1024];
	const size_t n = file_nbytes < sizeof(first) - 1 ? (size_t)file_nbytes : sizeof(first) - 1;

	SRT_TRY(read_at(file, 0, n, first));
	first[n] = '\0';
	if (recognise(first, n))
		return SRT_ERR_FORMAT;
	if (file_nbytes < 8)
		return srt_fail(SRT_ERR_FORMAT, "it has %llu bytes, too few for a header",
				(unsigned long long)file_nbytes);
	return srt_fail(SRT_ERR_FORMAT,
			"its header claims %llu bytes, the file has %llu and a header at most %d: "
			"it is no safetensors file, or was cut",
			(unsigned long long)header_nbytes, (unsigned long long)file_nbytes,
			SRT_SAFETENSORS_MAX_HEADER);
}

static srt_status_t read_header(srt_safetensors_t *file, uint64_t file_nbytes)
{
	unsigned char prefix[8];
	uint64_t nbytes = 0;

	if (file_nbytes < sizeof(prefix))
		return fail_header(file, file_nbytes, 0);
	SRT_TRY(read_at(file, 0, sizeof(prefix), prefix));
	for (int i = 7; i >= 0; i--)
		nbytes = nbytes << 8 | prefix[i];
	if (nbytes > SRT_SAFETENSORS_MAX_HEADER || nbytes > file_nbytes - sizeof(prefix))
		return fail_header(file, file_nbytes, nbytes);
	file->data_start = sizeof(prefix) + (size_t)nbytes;
	file->text = srt_calloc((size_t)nbytes + 1, 1, "the header of a safetensors file");
	if (file->text == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	SRT_TRY(read_at(file, sizeof(prefix), (size_t)nbytes, file->text));
	file->identity.header_hash = srt_hash64(0, file->text, (size_t)nbytes);
	return srt_safetensors_parse(file->text, (size_t)nbytes,
				     (size_t)(file_nbytes - file->data_start), &file->header);
}

/* What the system reports of the open file, without the header. False with errno. */
static bool get_identity(int fd, srt_safetensors_identity_t *identity, mode_t *mode)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return false;
	*mode = st.st_mode;
	identity->device = st.st_dev;
	identity->inode = st.st_ino;
	identity->nbytes = (uint64_t)st.st_size;
	identity->mtime_s = st.st_mtim.tv_sec;
	identity->mtime_ns = st.st_mtim.tv_nsec;
	return true;
}

srt_status_t srt_safetensors_open(const char *path, srt_safetensors_t **out)
{
	srt_safetensors_t *file = srt_calloc(1, sizeof(*file), "a safetensors file");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	mode_t mode;

	if (file == NULL)
		return status;
	file->fd = -1;
	file->path = srt_strdup(path);
	if (file->path == NULL)
		goto close;
	/* O_NONBLOCK: opening a FIFO must not block before fstat() */
	file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file->fd < 0 || !get_identity(file->fd, &file->identity, &mode)) {
		status = srt_fail(errno == ENOENT ? SRT_ERR_NOT_FOUND : SRT_ERR_IO,
				  "cannot open %s: %s", path, strerror(errno));
		goto close;
	}
	if (!S_ISREG(mode)) {
		status = srt_fail(SRT_ERR_IO, "cannot read %s: it is not a regular file", path);
		goto close;
	}
	status = read_header(file, file->identity.nbytes);
	if (status != SRT_OK) {
		srt_fail_prefix(status, "safetensors file %s: ", path);
		goto close;
	}
	*out = file;
	return SRT_OK;
close:
	srt_safetensors_close(file);
	return status;
}

/* ---- joined files ------------------------------------------------------------------------ */

static int compare_name(const void *a, const void *b)
{
	return strcmp(((const srt_safetensors_tensor_t *)a)->name,
		      ((const srt_safetensors_tensor_t *)b)->name);
}

/* Sets the table of tensors, which refers to the texts of the parts. */
static srt_status_t join_tensors(srt_safetensors_t *file)
{
	srt_safetensors_header_t *h = &file->header;
	size_t n = 0;

	for (size_t i = 0; i < file->nparts; i++)
		n += file->parts[i]->header.ntensors;
	h->tensors = srt_calloc(n + 1, sizeof(*h->tensors), "the tensors of several files");
	if (h->tensors == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < file->nparts; i++)
		for (size_t k = 0; k < file->parts[i]->header.ntensors; k++) {
			h->tensors[h->ntensors] = file->parts[i]->header.tensors[k];
			h->tensors[h->ntensors++].part = i;
		}
	if (n > 0)
		qsort(h->tensors, n, sizeof(*h->tensors), compare_name);
	for (size_t i = 1; i < n; i++)
		if (compare_name(&h->tensors[i - 1], &h->tensors[i]) == 0)
			return srt_fail(SRT_ERR_FORMAT,
					"tensor '%s' is in %s and in %s: remove the file that is "
					"not of this model",
					srt_printable(h->tensors[i].name).text,
					file->parts[h->tensors[i - 1].part]->path,
					file->parts[h->tensors[i].part]->path);
	return SRT_OK;
}

static void join_identities(srt_safetensors_t *file)
{
	srt_safetensors_identity_t *all = &file->identity;

	for (size_t i = 0; i < file->nparts; i++) {
		const srt_safetensors_identity_t *one = &file->parts[i]->identity;

		all->device += one->device;
		all->inode += one->inode;
		all->nbytes += one->nbytes;
		all->header_hash = srt_mix64(all->header_hash, one->header_hash);
		if (one->mtime_s > all->mtime_s ||
		    (one->mtime_s == all->mtime_s && one->mtime_ns > all->mtime_ns)) {
			all->mtime_s = one->mtime_s;
			all->mtime_ns = one->mtime_ns;
		}
	}
}

srt_status_t srt_safetensors_join(const char *path, srt_safetensors_t **parts, size_t nparts,
				  srt_safetensors_t **joined)
{
	srt_safetensors_t *file = srt_calloc(1, sizeof(*file), "a model of several files");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (file == NULL)
		return status;
	file->fd = -1;
	file->path = srt_strdup(path);
	file->parts = parts;
	file->nparts = nparts;
	if (file->path != NULL)
		status = join_tensors(file);
	if (status != SRT_OK) {
		file->parts = NULL; /* the caller's */
		file->nparts = 0;
		srt_safetensors_close(file);
		return status;
	}
	join_identities(file);
	*joined = file;
	return SRT_OK;
}

void srt_safetensors_close(srt_safetensors_t *file)
{
	if (file == NULL)
		return;
	for (size_t i = 0; i < file->nparts; i++)
		srt_safetensors_close(file->parts[i]);
	free(file->parts);
	srt_safetensors_header_free(&file->header);
	free(file->text);
	if (file->fd >= 0)
		close(file->fd);
	free(file->path);
	free(file);
}

size_t srt_safetensors_count(const srt_safetensors_t *file)
{
	return file->header.ntensors;
}

const srt_safetensors_tensor_t *srt_safetensors_tensor(const srt_safetensors_t *file, size_t i)
{
	return i < file->header.ntensors ? &file->header.tensors[i] : NULL;
}

const srt_safetensors_tensor_t *srt_safetensors_find(const srt_safetensors_t *file,
						     const char *name)
{
	return srt_safetensors_header_find(&file->header, name);
}

const char *srt_safetensors_metadata(const srt_safetensors_t *file, const char *key)
{
	const char *value = srt_safetensors_header_metadata(&file->header, key);

	for (size_t i = 0; i < file->nparts && value == NULL; i++)
		value = srt_safetensors_header_metadata(&file->parts[i]->header, key);
	return value;
}

const srt_safetensors_identity_t *srt_safetensors_identity(const srt_safetensors_t *file)
{
	return &file->identity;
}

srt_status_t srt_safetensors_check_unchanged(const srt_safetensors_t *file)
{
	srt_safetensors_identity_t now;
	mode_t mode;

	for (size_t i = 0; i < file->nparts; i++)
		SRT_TRY(srt_safetensors_check_unchanged(file->parts[i]));
	if (file->nparts > 0)
		return SRT_OK;
	if (!get_identity(file->fd, &now, &mode))
		return srt_fail(SRT_ERR_IO, "cannot read %s: %s", file->path, strerror(errno));
	/* Not the time of the inode's change, which a rename over the open file sets. */
	if (now.nbytes != file->identity.nbytes || now.mtime_s != file->identity.mtime_s ||
	    now.mtime_ns != file->identity.mtime_ns)
		return srt_fail(SRT_ERR_IO,
				"%s was written to while it was read: replace a file by renaming "
				"another one over it, and load again",
				file->path);
	return SRT_OK;
}

srt_status_t srt_safetensors_read(const srt_safetensors_t *file, const srt_safetensors_tensor_t *t,
				  size_t offset, size_t nbytes, void *dst)
{
	if (file->nparts > 0)
		file = file->parts[t->part];
	if (offset > t->nbytes || nbytes > t->nbytes - offset)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: bytes %zu..%zu are not within tensor '%s' of %zu bytes",
				file->path, offset, offset + nbytes, srt_printable(t->name).text,
				t->nbytes);
	return read_at(file, file->data_start + t->offset + offset, nbytes, dst);
}

/* A control character of ASCII, or one of U+0080 .. U+009F. */
static bool is_control(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	return s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && s[1] < 0xa0);
}

srt_printable_t srt_printable(const char *text)
{
	srt_printable_t p;
	size_t n = 0, length;

	for (; *text && n < sizeof(p.text) - 1; text += length) {
		length = srt_utf8_length(text);
		if (length == 0 || is_control(text)) {
			p.text[n++] = '?';
			length += length == 0;
		} else if (length < sizeof(p.text) - n) {
			memcpy(p.text + n, text, length);
			n += length;
		} else {
			break;
		}
	}
	p.text[n] = '\0';
	return p;
}
