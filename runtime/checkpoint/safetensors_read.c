/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reader of safetensors files (safetensors.h): path -> a checked table of tensors, and their
 * bytes on demand. After srt_safetensors_open() every tensor's place lies inside the file and they
 * cover its data without gap or overlap. Called by checkpoint.c and the tests.
 */
#include "config.h"

#include "runtime/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#ifdef HAVE_JANSSON
#include <jansson.h>

/* Names of the format and their bits; the library's own dtypes come from its table. */
static const struct {
	const char *name;
	unsigned bits;
} st_dtypes[] = {
	{ "BOOL", 8 }, { "U8", 8 },   { "I8", 8 },   { "F8_E5M2", 8 }, { "F8_E4M3", 8 },
	{ "I16", 16 }, { "U16", 16 }, { "F16", 16 }, { "BF16", 16 },   { "I32", 32 },
	{ "U32", 32 }, { "F32", 32 }, { "F64", 64 }, { "I64", 64 },    { "U64", 64 },
};

static const char *const srt_dtype_st_names[SRT_DTYPE_COUNT] = {
#define ST_NAME(name, text, st, bits) [name] = st,
	SRT_DTYPE_TABLE(ST_NAME)
#undef ST_NAME
};

struct srt_safetensors {
	int fd;
	char *path;
	size_t data_start; /* of the file */
	size_t data_nbytes;
	json_t *header; /* owns the strings of the tensors and the metadata */
	size_t ntensors;
	srt_safetensors_tensor_t *tensors; /* by name */
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

static srt_status_t get_dtype(srt_safetensors_tensor_t *t, const json_t *value, unsigned *bits)
{
	const char *name = json_string_value(value);

	if (!name)
		return srt_fail(SRT_ERR_FORMAT, "dtype is not a string");
	for (size_t i = 0; i < SRT_ARRAY_LEN(st_dtypes); i++) {
		if (strcmp(name, st_dtypes[i].name))
			continue;
		t->dtype_name = st_dtypes[i].name;
		*bits = st_dtypes[i].bits;
		for (t->dtype = 0; t->dtype < SRT_DTYPE_COUNT; t->dtype++)
			if (!strcmp(name, srt_dtype_st_names[t->dtype]))
				break;
		return SRT_OK;
	}
	return srt_fail(SRT_ERR_FORMAT, "unknown dtype '%s'", srt_printable(name).text);
}

/* Sets the shape, the number of elements and of bytes. */
static srt_status_t get_shape(srt_safetensors_tensor_t *t, const json_t *value, unsigned bits)
{
	size_t ndim = json_array_size(value), nelem = 1;
	int empty = 0;

	if (!json_is_array(value))
		return srt_fail(SRT_ERR_FORMAT, "shape is not an array");
	if (ndim > SRT_SAFETENSORS_MAX_DIMS)
		return srt_fail(SRT_ERR_UNSUPPORTED, "%zu dimensions, at most %d are supported",
				ndim, SRT_SAFETENSORS_MAX_DIMS);
	for (size_t i = 0; i < ndim; i++) {
		const json_t *d = json_array_get(value, i);
		json_int_t n = json_integer_value(d);

		if (!json_is_integer(d) || n < 0)
			return srt_fail(SRT_ERR_FORMAT,
					"size %zu of the shape is not an integer "
					"of at least 0",
					i);
		t->shape[i] = n;
		empty |= n == 0;
		/* a size of 0 does not hide an overflow */
		if (n > 0 && !srt_mul_size(nelem, (size_t)n, &nelem))
			return srt_fail(SRT_ERR_FORMAT, "the shape's product overflows");
	}
	t->ndim = (int)ndim;
	t->nelem = empty ? 0 : nelem;
	if (!srt_mul_size(t->nelem, bits / 8, &t->nbytes))
		return srt_fail(SRT_ERR_FORMAT, "the size in bytes overflows");
	return SRT_OK;
}

static srt_status_t get_offsets(const srt_safetensors_t *file, srt_safetensors_tensor_t *t,
				const json_t *value)
{
	const json_t *first = json_array_get(value, 0), *last = json_array_get(value, 1);
	json_int_t begin = json_integer_value(first), end = json_integer_value(last);

	if (json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(last))
		return srt_fail(SRT_ERR_FORMAT, "data_offsets is not an array of two integers");
	if (begin < 0 || end < begin || (uint64_t)end > file->data_nbytes)
		return srt_fail(SRT_ERR_FORMAT,
				"data_offsets [%lld, %lld] are not within the file's %zu bytes of "
				"data",
				(long long)begin, (long long)end, file->data_nbytes);
	if ((size_t)(end - begin) != t->nbytes)
		return srt_fail(SRT_ERR_FORMAT,
				"data_offsets span %lld bytes, but dtype and shape need %zu",
				(long long)(end - begin), t->nbytes);
	t->offset = (size_t)begin;
	return SRT_OK;
}

static srt_status_t get_tensor(const srt_safetensors_t *file, srt_safetensors_tensor_t *t,
			       const json_t *value)
{
	const json_t *dtype = json_object_get(value, "dtype");
	const json_t *shape = json_object_get(value, "shape");
	const json_t *offsets = json_object_get(value, "data_offsets");
	unsigned bits = 0;

	if (!dtype || !shape || !offsets || json_object_size(value) != 3)
		return srt_fail(SRT_ERR_FORMAT,
				"a tensor has exactly dtype, shape and data_offsets");
	SRT_TRY(get_dtype(t, dtype, &bits));
	SRT_TRY(get_shape(t, shape, bits));
	return get_offsets(file, t, offsets);
}

static srt_status_t check_metadata(json_t *value)
{
	const char *key;
	json_t *text;

	if (!json_is_object(value))
		return srt_fail(SRT_ERR_FORMAT, "is not an object");
	json_object_foreach(value, key, text)
	{
		if (!json_is_string(text))
			return srt_fail(SRT_ERR_FORMAT, "entry '%s' is not a string",
					srt_printable(key).text);
	}
	return SRT_OK;
}

static int compare_offset(const void *a, const void *b)
{
	const srt_safetensors_tensor_t *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (x->nbytes > y->nbytes) - (x->nbytes < y->nbytes);
}

static int compare_name(const void *a, const void *b)
{
	const srt_safetensors_tensor_t *x = a, *y = b;

	return strcmp(x->name, y->name);
}

/* In order of offsets each tensor must begin where the one before it ends. */
static srt_status_t check_cover(srt_safetensors_t *file)
{
	size_t end = 0;

	if (file->ntensors > 0)
		qsort(file->tensors, file->ntensors, sizeof(*file->tensors), compare_offset);
	for (size_t i = 0; i < file->ntensors; i++) {
		const srt_safetensors_tensor_t *t = &file->tensors[i];

		if (t->offset != end)
			return srt_fail(SRT_ERR_FORMAT,
					"tensor '%s' begins at byte %zu of the "
					"data, but the one before it ends at %zu: %s",
					srt_printable(t->name).text, t->offset, end,
					t->offset < end ? "they overlap" : "there is a gap");
		end += t->nbytes; /* at most data_nbytes */
	}
	if (end != file->data_nbytes)
		return srt_fail(SRT_ERR_FORMAT,
				"the tensors take %zu bytes, but the file has %zu "
				"bytes of data",
				end, file->data_nbytes);
	return SRT_OK;
}

static srt_status_t parse_header(srt_safetensors_t *file, const char *text, size_t nbytes)
{
	size_t last = nbytes;
	json_error_t error;
	const char *key;
	json_t *value;

	while (last > 0 && text[last - 1] == ' ')
		last--;
	if (last < 2 || text[0] != '{' || text[last - 1] != '}')
		return srt_fail(SRT_ERR_FORMAT, "the header is not a JSON object padded with "
						"spaces");
	file->header = json_loadb(text, last, JSON_REJECT_DUPLICATES, &error);
	if (!file->header)
		return srt_fail(SRT_ERR_FORMAT, "the header is not JSON: %s (byte %d)",
				srt_printable(error.text).text, error.position);
	file->tensors = srt_calloc(json_object_size(file->header) + 1, sizeof(*file->tensors),
				   "the table of a safetensors file");
	if (!file->tensors)
		return SRT_ERR_OUT_OF_MEMORY;
	json_object_foreach(file->header, key, value)
	{
		srt_safetensors_tensor_t *t = &file->tensors[file->ntensors];
		srt_status_t status;

		if (!strcmp(key, "__metadata__")) {
			status = check_metadata(value);
		} else {
			t->name = key;
			status = get_tensor(file, t, value);
			file->ntensors++;
		}
		if (status != SRT_OK)
			return srt_fail_prefix(status, "'%s': ", srt_printable(key).text);
	}
	SRT_TRY(check_cover(file));
	if (file->ntensors > 0)
		qsort(file->tensors, file->ntensors, sizeof(*file->tensors), compare_name);
	return SRT_OK;
}

static srt_status_t read_header(srt_safetensors_t *file, uint64_t file_nbytes)
{
	unsigned char prefix[8];
	uint64_t nbytes = 0;
	char *text;
	srt_status_t status;

	if (file_nbytes < sizeof(prefix))
		return srt_fail(SRT_ERR_FORMAT, "it has %llu bytes, too few for a header",
				(unsigned long long)file_nbytes);
	SRT_TRY(read_at(file, 0, sizeof(prefix), prefix));
	for (int i = 7; i >= 0; i--)
		nbytes = nbytes << 8 | prefix[i];
	if (nbytes > SRT_SAFETENSORS_MAX_HEADER || nbytes > file_nbytes - sizeof(prefix))
		return srt_fail(SRT_ERR_FORMAT,
				"its header claims %llu bytes, the file has %llu "
				"and a header at most %d",
				(unsigned long long)nbytes, (unsigned long long)file_nbytes,
				SRT_SAFETENSORS_MAX_HEADER);
	file->data_start = sizeof(prefix) + (size_t)nbytes;
	file->data_nbytes = (size_t)(file_nbytes - file->data_start);
	text = srt_calloc((size_t)nbytes + 1, 1, "the header of a safetensors file");
	if (!text)
		return SRT_ERR_OUT_OF_MEMORY;
	status = read_at(file, sizeof(prefix), (size_t)nbytes, text);
	if (status == SRT_OK)
		status = parse_header(file, text, (size_t)nbytes);
	free(text);
	return status;
}

srt_status_t srt_safetensors_open(const char *path, srt_safetensors_t **out)
{
	srt_safetensors_t *file = srt_calloc(1, sizeof(*file), "a safetensors file");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	struct stat st;

	if (!file)
		return status;
	file->fd = -1;
	file->path = srt_strdup(path);
	if (!file->path)
		goto close;
	/* O_NONBLOCK: opening a FIFO must not block before fstat() */
	file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file->fd < 0 || fstat(file->fd, &st) != 0) {
		status = srt_fail(errno == ENOENT ? SRT_ERR_NOT_FOUND : SRT_ERR_IO,
				  "cannot open %s: %s", path, strerror(errno));
		goto close;
	}
	if (!S_ISREG(st.st_mode)) {
		status = srt_fail(SRT_ERR_IO, "cannot read %s: it is not a regular file", path);
		goto close;
	}
	status = read_header(file, (uint64_t)st.st_size);
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

void srt_safetensors_close(srt_safetensors_t *file)
{
	if (!file)
		return;
	free(file->tensors);
	json_decref(file->header);
	if (file->fd >= 0)
		close(file->fd);
	free(file->path);
	free(file);
}

size_t srt_safetensors_count(const srt_safetensors_t *file)
{
	return file->ntensors;
}

const srt_safetensors_tensor_t *srt_safetensors_tensor(const srt_safetensors_t *file, size_t i)
{
	return i < file->ntensors ? &file->tensors[i] : NULL;
}

const srt_safetensors_tensor_t *srt_safetensors_find(const srt_safetensors_t *file,
						     const char *name)
{
	srt_safetensors_tensor_t key = { .name = name };

	if (file->ntensors == 0)
		return NULL;
	return bsearch(&key, file->tensors, file->ntensors, sizeof(key), compare_name);
}

const char *srt_safetensors_metadata(const srt_safetensors_t *file, const char *key)
{
	return json_string_value(
		json_object_get(json_object_get(file->header, "__metadata__"), key));
}

srt_status_t srt_safetensors_read(const srt_safetensors_t *file, const srt_safetensors_tensor_t *t,
				  size_t offset, size_t nbytes, void *dst)
{
	if (offset > t->nbytes || nbytes > t->nbytes - offset)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: bytes %zu..%zu are not within tensor '%s' of %zu bytes",
				file->path, offset, offset + nbytes, srt_printable(t->name).text,
				t->nbytes);
	return read_at(file, file->data_start + t->offset + offset, nbytes, dst);
}

#else /* without jansson */

srt_status_t srt_safetensors_open(const char *path, srt_safetensors_t **out)
{
	(void)out;
	return srt_fail(SRT_ERR_UNSUPPORTED,
			"cannot read %s: this libshardrt was built without jansson; install its "
			"development package and configure again",
			path);
}

void srt_safetensors_close(srt_safetensors_t *file)
{
	(void)file; /* always NULL */
}

size_t srt_safetensors_count(const srt_safetensors_t *file)
{
	(void)file;
	return 0;
}

const srt_safetensors_tensor_t *srt_safetensors_tensor(const srt_safetensors_t *file, size_t i)
{
	(void)file;
	(void)i;
	return NULL;
}

const srt_safetensors_tensor_t *srt_safetensors_find(const srt_safetensors_t *file,
						     const char *name)
{
	(void)file;
	(void)name;
	return NULL;
}

const char *srt_safetensors_metadata(const srt_safetensors_t *file, const char *key)
{
	(void)file;
	(void)key;
	return NULL;
}

srt_status_t srt_safetensors_read(const srt_safetensors_t *file, const srt_safetensors_tensor_t *t,
				  size_t offset, size_t nbytes, void *dst)
{
	(void)file;
	(void)t;
	(void)offset;
	(void)nbytes;
	(void)dst;
	return srt_fail(SRT_ERR_UNSUPPORTED, "this libshardrt was built without jansson");
}

#endif

srt_printable_t srt_printable(const char *text)
{
	srt_printable_t p;
	size_t n = 0;

	for (; text[n] && n < sizeof(p.text) - 1; n++)
		p.text[n] = (unsigned char)text[n] < 0x20 || text[n] == 0x7f ? '?' : text[n];
	p.text[n] = '\0';
	return p;
}
