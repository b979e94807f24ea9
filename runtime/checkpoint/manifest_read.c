/* SPDX-License-Identifier: BSD-3-Clause */
/* Text -> manifest (manifest.h). */
#include "runtime/checkpoint/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/base.h"
#include "runtime/checkpoint/safetensors.h"

/* ---- values ----------------------------------------------------------------------------- */

static srt_status_t fail_value(const char *key, const char *expected)
{
	return srt_fail(SRT_ERR_FORMAT, "'%s' is not %s", key, expected);
}

static srt_status_t read_integer(const json_t *object, const char *key, int64_t low, int64_t high,
				 int64_t *value)
{
	const json_t *json = json_object_get(object, key);

	if (!json_is_integer(json) || json_integer_value(json) < low ||
	    json_integer_value(json) > high)
		return fail_value(key, "an integer within its range");
	*value = json_integer_value(json);
	return SRT_OK;
}

/* A copy of a string that is not empty. */
static srt_status_t read_string(const json_t *object, const char *key, char **value)
{
	const char *text = json_string_value(json_object_get(object, key));

	if (text == NULL || *text == '\0')
		return fail_value(key, "a text");
	*value = srt_strdup(text);
	return *value != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

static bool parse_digits(const char *text, size_t n, uint64_t *value)
{
	*value = 0;
	for (size_t i = 0; i < n; i++) {
		const char c = text[i];
		const int digit = c >= '0' && c <= '9' ? c - '0' :
				  c >= 'a' && c <= 'f' ? c - 'a' + 10 :
							 -1;

		if (digit < 0)
			return false;
		*value = *value << 4 | (uint64_t)digit;
	}
	return true;
}

/* n values of 16 hexadecimal digits. */
static srt_status_t read_u64s(const json_t *object, const char *key, size_t n, uint64_t *values)
{
	const json_t *json = json_object_get(object, key);
	const char *text = json_string_value(json);

	if (text == NULL || n > SIZE_MAX / 16 || json_string_length(json) != 16 * n)
		return fail_value(key, "a text of 16 hexadecimal digits for each value");
	for (size_t i = 0; i < n; i++)
		if (!parse_digits(text + 16 * i, 16, &values[i]))
			return fail_value(key, "a text of hexadecimal digits");
	return SRT_OK;
}

static srt_status_t read_double(const json_t *object, const char *key, double *value)
{
	uint64_t bits;

	SRT_TRY(read_u64s(object, key, 1, &bits));
	memcpy(value, &bits, sizeof(*value));
	return SRT_OK;
}

/* A field of 4 bytes: an integer, or the bits of a float. */
static srt_status_t read_word(const json_t *object, const char *key, bool is_float, void *value)
{
	int64_t integer;
	int32_t word;
	uint32_t bits;

	SRT_TRY(read_integer(object, key, is_float ? 0 : INT32_MIN,
			     is_float ? UINT32_MAX : INT32_MAX, &integer));
	word = (int32_t)integer;
	bits = (uint32_t)integer;
	memcpy(value, is_float ? (const void *)&bits : (const void *)&word, sizeof(bits));
	return SRT_OK;
}

/* An array; *items has memory for its elements, and *n is their number. */
static srt_status_t read_array(const json_t *object, const char *key, size_t item_nbytes,
			       json_t **array, void *items, size_t *n)
{
	void *memory;

	*array = json_object_get(object, key);
	if (!json_is_array(*array))
		return fail_value(key, "an array");
	memory = srt_calloc(json_array_size(*array) + 1, item_nbytes, "a table of a manifest");
	if (memory == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	memcpy(items, &memory, sizeof(memory));
	*n = json_array_size(*array);
	return SRT_OK;
}

static srt_status_t read_integers(const json_t *object, const char *key, int n, int64_t *values)
{
	const json_t *array = json_object_get(object, key);

	if (!json_is_array(array) || json_array_size(array) != (size_t)n)
		return fail_value(key, "an array with an integer for each dimension");
	for (int i = 0; i < n; i++) {
		const json_t *value = json_array_get(array, (size_t)i);

		if (!json_is_integer(value) || json_integer_value(value) < 0)
			return fail_value(key, "an array of integers of at least 0");
		values[i] = json_integer_value(value);
	}
	return SRT_OK;
}

/* ---- tensors ---------------------------------------------------------------------------- */

/* Bytes of a box or tensor of this size; false: too many. */
static bool count_nbytes(srt_dtype_t dtype, int ndim, const int64_t *size, size_t *nbytes)
{
	size_t n = srt_dtype_size(dtype);

	for (int i = 0; i < ndim; i++)
		if (!srt_mul_size(n, (size_t)size[i], &n) || n > INT64_MAX)
			return false;
	*nbytes = n;
	return true;
}

static srt_status_t read_box(const json_t *json, const srt_manifest_t *m, srt_manifest_tensor_t *t,
			     srt_manifest_box_t *b)
{
	int64_t file;

	SRT_TRY(read_integer(json, "file", 0, (int64_t)m->nfiles - 1, &file));
	SRT_TRY(read_integers(json, "offset", t->ndim, b->box.offset));
	SRT_TRY(read_integers(json, "size", t->ndim, b->box.size));
	b->file = (size_t)file;
	for (int i = 0; i < t->ndim; i++)
		if (b->box.offset[i] > t->shape[i] || b->box.size[i] == 0 ||
		    b->box.size[i] > t->shape[i] - b->box.offset[i])
			return fail_value("size", "that of a box within its tensor");
	/* at most those of the tensor */
	count_nbytes(t->dtype, t->ndim, b->box.size, &b->nbytes);
	b->nblocks = srt_count_blocks(b->nbytes);
	if (json_string_length(json_object_get(json, "xxh3")) / 16 != b->nblocks)
		return fail_value("xxh3", "a hash for each block of the box");
	b->hashes = srt_calloc(b->nblocks + 1, sizeof(*b->hashes), "hashes of a manifest");
	if (b->hashes == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	return read_u64s(json, "xxh3", b->nblocks, b->hashes);
}

/* The boxes do not overlap and have as many elements as the tensor, so they cover it. */
static srt_status_t check_cover(const srt_manifest_tensor_t *t)
{
	const int64_t nelem = srt_box_nelem(t->ndim, t->shape);
	srt_sorted_box_t *list = srt_calloc(t->nboxes + 1, sizeof(*list), "boxes of a manifest");
	int64_t covered = 0;
	bool overlap = false;

	if (list == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < t->nboxes && !overlap; i++) {
		const int64_t n = srt_box_nelem(t->ndim, t->boxes[i].box.size);

		list[i].box = &t->boxes[i].box;
		overlap = n > nelem - covered;
		covered += n;
	}
	overlap = overlap || srt_boxes_overlap(t->ndim, list, t->nboxes);
	free(list);
	if (overlap)
		return srt_fail(SRT_ERR_FORMAT, "its boxes overlap");
	if (covered != nelem)
		return srt_fail(SRT_ERR_FORMAT, "its boxes have %lld of its %lld elements",
				(long long)covered, (long long)nelem);
	return SRT_OK;
}

static srt_status_t read_types(const json_t *json, srt_manifest_tensor_t *t)
{
	const char *kind = json_string_value(json_object_get(json, "kind"));
	const char *dtype = json_string_value(json_object_get(json, "dtype"));
	const json_t *shape = json_object_get(json, "shape");
	size_t nbytes;

	for (t->kind = 0; t->kind < SRT_MANIFEST_NKINDS; t->kind++)
		if (kind != NULL && strcmp(kind, srt_manifest_kinds[t->kind]) == 0)
			break;
	for (t->dtype = 0; t->dtype < SRT_DTYPE_COUNT; t->dtype++)
		if (dtype != NULL && strcmp(dtype, srt_dtype_name(t->dtype)) == 0)
			break;
	if (t->kind == SRT_MANIFEST_NKINDS)
		return fail_value("kind", "one of a tensor");
	if (t->dtype == SRT_DTYPE_COUNT)
		return fail_value("dtype", "a dtype");
	if (!json_is_array(shape) || json_array_size(shape) > SRT_MAX_DIMS)
		return fail_value("shape", "an array with the sizes of at most 5 dimensions");
	t->ndim = (int)json_array_size(shape);
	SRT_TRY(read_integers(json, "shape", t->ndim, t->shape));
	for (int i = 0; i < t->ndim; i++) { /* a size of 0 does not hide an overflow */
		if (!count_nbytes(t->dtype, 1, &t->shape[i], &nbytes))
			return fail_value("shape", "that of a tensor which fits the address space");
	}
	return count_nbytes(t->dtype, t->ndim, t->shape, &nbytes) ?
		       SRT_OK :
		       fail_value("shape", "that of a tensor which fits the address space");
}

static srt_status_t read_tensor(const json_t *json, const srt_manifest_t *m,
				srt_manifest_tensor_t *t)
{
	json_t *array;
	int64_t steps;

	SRT_TRY(read_types(json, t));
	SRT_TRY(read_integer(json, "steps", -1, INT32_MAX, &steps));
	t->steps = (int32_t)steps;
	SRT_TRY(read_array(json, "boxes", sizeof(*t->boxes), &array, &t->boxes, &t->nboxes));
	for (size_t i = 0; i < t->nboxes; i++)
		SRT_TRY(read_box(json_array_get(array, i), m, t, &t->boxes[i]));
	return check_cover(t);
}

static int compare_tensors(const void *a, const void *b)
{
	const srt_manifest_tensor_t *x = a, *y = b;

	return x->kind != y->kind ? (int)x->kind - (int)y->kind : strcmp(x->name, y->name);
}

static srt_status_t read_tensors(const json_t *root, srt_manifest_t *m)
{
	json_t *array;
	size_t n;

	SRT_TRY(read_array(root, "tensors", sizeof(*m->tensors), &array, &m->tensors, &n));
	for (m->ntensors = 0; m->ntensors < n; m->ntensors++) {
		srt_manifest_tensor_t *t = &m->tensors[m->ntensors];
		const json_t *json = json_array_get(array, m->ntensors);
		srt_status_t status;

		SRT_TRY(read_string(json, "name", &t->name));
		status = read_tensor(json, m, t);
		if (status != SRT_OK) {
			m->ntensors++; /* what it has is freed */
			return srt_fail_prefix(status,
					       "tensor '%s': ", srt_printable(t->name).text);
		}
	}
	qsort(m->tensors, n, sizeof(*m->tensors), compare_tensors);
	for (size_t i = 1; i < n; i++)
		if (compare_tensors(&m->tensors[i - 1], &m->tensors[i]) == 0)
			return srt_fail(SRT_ERR_FORMAT, "%s occurs twice",
					srt_manifest_describe(m->tensors[i].kind,
							      m->tensors[i].name)
						.text);
	return SRT_OK;
}

/* ---- the rest --------------------------------------------------------------------------- */

static srt_status_t read_files(const json_t *root, srt_manifest_t *m)
{
	json_t *array;
	size_t n;

	SRT_TRY(read_array(root, "files", sizeof(*m->files), &array, &m->files, &n));
	for (m->nfiles = 0; m->nfiles < n;) {
		srt_manifest_file_t *f = &m->files[m->nfiles];
		const json_t *json = json_array_get(array, m->nfiles);
		int64_t nbytes;

		SRT_TRY(read_string(json, "name", &f->name));
		m->nfiles++;
		if (strchr(f->name, '/') != NULL || f->name[0] == '.')
			return fail_value("name", "that of a file in the folder");
		SRT_TRY(read_integer(json, "nbytes", 0, INT64_MAX, &nbytes));
		f->nbytes = (uint64_t)nbytes;
		SRT_TRY(read_u64s(json, "header", 1, &f->header_hash));
	}
	return SRT_OK;
}

static srt_status_t read_groups(const json_t *root, srt_manifest_t *m)
{
	json_t *array;

	SRT_TRY(read_array(root, "groups", sizeof(*m->groups), &array, &m->groups, &m->ngroups));
	for (size_t i = 0; i < m->ngroups; i++) {
		srt_manifest_group_t *g = &m->groups[i];
		const json_t *json = json_array_get(array, i);

		if (!json_is_boolean(json_object_get(json, "has_lr")))
			return fail_value("has_lr", "true or false");
		g->has_lr = json_is_true(json_object_get(json, "has_lr"));
		for (size_t f = 0; f < srt_manifest_nfields; f++)
			SRT_TRY(read_word(json, srt_manifest_fields[f].name,
					  srt_manifest_fields[f].is_float,
					  (char *)&g->state + srt_manifest_fields[f].offset));
	}
	return SRT_OK;
}

static srt_status_t read_scaler(const json_t *root, srt_manifest_t *m)
{
	const json_t *json = json_object_get(root, "scaler");
	srt_scaler_state_t *s = &m->scaler;

	m->has_scaler = json != NULL;
	if (!m->has_scaler)
		return SRT_OK;
	SRT_TRY(read_word(json, "scale", true, &s->scale));
	SRT_TRY(read_word(json, "growth_tracker", false, &s->growth_tracker));
	SRT_TRY(read_word(json, "growth_interval", false, &s->growth_interval));
	SRT_TRY(read_double(json, "growth_factor", &s->growth_factor));
	return read_double(json, "backoff_factor", &s->backoff_factor);
}

static srt_status_t read_entries(const json_t *root, srt_manifest_t *m)
{
	json_t *array;
	size_t n;

	SRT_TRY(read_array(root, "entries", sizeof(*m->entries), &array, &m->entries, &n));
	for (m->nentries = 0; m->nentries < n;) {
		srt_manifest_entry_t *e = &m->entries[m->nentries];
		const json_t *json = json_array_get(array, m->nentries);
		const json_t *bytes = json_object_get(json, "bytes");
		uint64_t byte;

		SRT_TRY(read_string(json, "key", &e->key));
		m->nentries++;
		if (!json_is_string(bytes) || json_string_length(bytes) % 2 != 0)
			return fail_value("bytes", "a text of two hexadecimal digits for each");
		e->nbytes = json_string_length(bytes) / 2;
		e->data = srt_calloc(e->nbytes + 1, 1, "an entry of a manifest");
		if (e->data == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		for (size_t i = 0; i < e->nbytes; i++) {
			if (!parse_digits(json_string_value(bytes) + 2 * i, 2, &byte))
				return fail_value("bytes", "a text of hexadecimal digits");
			e->data[i] = (unsigned char)byte;
		}
	}
	return SRT_OK;
}

/* -1: a manifest of before it was written. */
static srt_status_t read_mode(const json_t *mode, int *fast)
{
	const char *text = json_string_value(mode);

	*fast = mode == NULL ? -1 : text != NULL && strcmp(text, "fast") == 0;
	if (*fast || (text != NULL && strcmp(text, "exact") == 0))
		return SRT_OK;
	return fail_value("numerics", "\"exact\" or \"fast\"");
}

static srt_status_t read_root(const json_t *root, srt_manifest_t *m)
{
	const char *id = json_string_value(json_object_get(root, "id"));
	const json_t *mode = json_object_get(root, "numerics");
	int64_t value;
	uint64_t unused;

	SRT_TRY(read_integer(root, "shardrt_checkpoint", 1, INT32_MAX, &value));
	if (value != SRT_MANIFEST_VERSION)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"the format has version %lld, this library reads version %d",
				(long long)value, SRT_MANIFEST_VERSION);
	if (id == NULL || strlen(id) != SRT_CHECKPOINT_ID_LENGTH ||
	    !parse_digits(id, SRT_CHECKPOINT_ID_LENGTH, &unused))
		return fail_value("id", "a text of 16 hexadecimal digits");
	memcpy(m->id, id, sizeof(m->id));
	SRT_TRY(read_integer(root, "world", 1, INT32_MAX, &value));
	m->world = (int)value;
	SRT_TRY(read_integer(root, "numerics_version", 0, INT32_MAX, &value));
	m->numerics_version = (int)value;
	SRT_TRY(read_mode(mode, &m->fast));
	SRT_TRY(read_string(root, "optimizer", &m->optimizer));
	SRT_TRY(read_scaler(root, m));
	SRT_TRY(read_groups(root, m));
	SRT_TRY(read_entries(root, m));
	SRT_TRY(read_files(root, m));
	return read_tensors(root, m);
}

srt_status_t srt_manifest_parse(const char *text, size_t nbytes, srt_manifest_t *m)
{
	const size_t before = sizeof(SRT_MANIFEST_CHECKSUM) - 1;
	const size_t after = sizeof(SRT_MANIFEST_TAIL) - 1, tail = before + 16 + after;
	const char *at = text + nbytes - tail;
	json_error_t error;
	srt_status_t status;
	json_t *root;

	if (nbytes < tail || memcmp(at, SRT_MANIFEST_CHECKSUM, before) != 0 ||
	    memcmp(text + nbytes - after, SRT_MANIFEST_TAIL, after) != 0 ||
	    !parse_digits(at + before, 16, &m->checksum) ||
	    srt_block_hash(text, nbytes - tail) != m->checksum)
		return srt_fail(SRT_ERR_FORMAT, "its checksum is wrong: it was cut or changed");
	root = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &error);
	if (root == NULL)
		return srt_fail(SRT_ERR_FORMAT, "byte %d: %s", error.position,
				srt_printable(error.text).text);
	status = read_root(root, m);
	json_decref(root);
	return status;
}

/* The whole file; to be freed. */
static srt_status_t read_file(const char *path, char **text, size_t *nbytes)
{
	/* O_NONBLOCK: opening a FIFO must not block before fstat() */
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	srt_status_t status = SRT_OK;
	struct stat st;

	if (fd < 0)
		return srt_fail(errno == ENOENT || errno == ENOTDIR ? SRT_ERR_NOT_FOUND :
								      SRT_ERR_IO,
				"cannot open %s: %s", path, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size > SRT_MANIFEST_MAX_NBYTES)
		status = srt_fail(SRT_ERR_IO,
				  "cannot read %s: it is not a regular file of at most %zu bytes",
				  path, SRT_MANIFEST_MAX_NBYTES);
	else if ((*text = srt_calloc((size_t)st.st_size + 1, 1, "a manifest")) == NULL)
		status = SRT_ERR_OUT_OF_MEMORY;
	for (*nbytes = 0; status == SRT_OK && *nbytes < (size_t)st.st_size;) {
		const ssize_t n = read(fd, *text + *nbytes, (size_t)st.st_size - *nbytes);

		if (n > 0)
			*nbytes += (size_t)n;
		else if (n == 0 || errno != EINTR)
			status = srt_fail(SRT_ERR_IO, "cannot read %s: %s", path,
					  n == 0 ? "it became shorter" : strerror(errno));
	}
	close(fd);
	return status;
}

srt_status_t srt_manifest_read(const char *folder, srt_manifest_t *m)
{
	char *path = srt_asprintf("%s/%s", folder, SRT_MANIFEST_NAME), *text = NULL;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	size_t nbytes = 0;

	if (path != NULL)
		status = read_file(path, &text, &nbytes);
	if (status == SRT_OK) {
		status = srt_manifest_parse(text, nbytes, m);
		if (status != SRT_OK)
			srt_fail_prefix(status, "%s: ", path);
	}
	free(text);
	free(path);
	return status;
}
