/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Text -> manifest (manifest.h). The keys of an object have the order in which manifest_write.c
 * writes them, and no others are there. So a value is stored when it is read, and a manifest takes
 * at most 6 times the memory of its text and time in proportion to it.
 */
#include "runtime/checkpoint/formats/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/base.h"
#include "base/hash128.h"
#include "base/json.h"
#include "runtime/checkpoint/formats/safetensors.h"

typedef struct reader {
	srt_json_t json;
	char *key; /* that was read and not found yet; NULL: none */
	srt_manifest_t *manifest;
	srt_manifest_tensor_t *tensor; /* whose boxes are read */
	srt_cover_t cover;             /* of the tensor by its boxes */
	uint64_t random;               /* for covers */
} reader_t;

/* ---- values ----------------------------------------------------------------------------- */

static srt_status_t fail_value(const char *key, const char *expected)
{
	return srt_fail(SRT_ERR_FORMAT, "'%s' is not %s", key, expected);
}

/* Whether the next key of an object is this one; it stays the next one. `before`: '{' for its first
 * key, ',' for others. */
static srt_status_t find_key(reader_t *r, char before, const char *key, bool *found)
{
	*found = false;
	if (r->key == NULL) {
		if (!srt_json_skip_char(&r->json, before))
			return srt_json_fail(&r->json, before == '{' ? "an object" : "','");
		SRT_TRY(srt_json_key(&r->json, &r->key));
	}
	*found = strcmp(r->key, key) == 0;
	return SRT_OK;
}

static srt_status_t read_key(reader_t *r, char before, const char *key)
{
	bool found;

	SRT_TRY(find_key(r, before, key, &found));
	if (!found)
		return srt_fail(
			SRT_ERR_FORMAT,
			"byte %zu of the manifest: expected the key '%s', not '%s': a newer "
			"version or another program has written it",
			(size_t)(r->json.at - r->json.text), key, srt_printable(r->key).text);
	r->key = NULL;
	return SRT_OK;
}

static srt_status_t read_end(reader_t *r)
{
	return srt_json_skip_char(&r->json, '}') ? SRT_OK : srt_json_fail(&r->json, "'}'");
}

static srt_status_t read_integer(reader_t *r, char before, const char *key, int64_t low,
				 int64_t high, int64_t *value)
{
	SRT_TRY(read_key(r, before, key));
	return srt_json_integer(&r->json, low, high, value);
}

/* A string that lives as long as the text of the manifest. */
static srt_status_t read_text(reader_t *r, char before, const char *key, char **text)
{
	SRT_TRY(read_key(r, before, key));
	return srt_json_string(&r->json, text);
}

/* A copy of a string that is not empty. */
static srt_status_t read_string(reader_t *r, char before, const char *key, char **value)
{
	char *text;

	SRT_TRY(read_text(r, before, key, &text));
	if (*text == '\0')
		return fail_value(key, "a text of one character or more");
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

/* A value of 16 hexadecimal digits. */
static srt_status_t read_u64(reader_t *r, char before, const char *key, uint64_t *value)
{
	char *text;

	SRT_TRY(read_text(r, before, key, &text));
	if (strlen(text) != 16 || !parse_digits(text, 16, value))
		return fail_value(key, "a text of 16 hexadecimal digits");
	return SRT_OK;
}

static srt_status_t read_double(reader_t *r, const char *key, double *value)
{
	uint64_t bits;

	SRT_TRY(read_u64(r, ',', key, &bits));
	memcpy(value, &bits, sizeof(*value));
	return SRT_OK;
}

/* A field of 4 bytes: an integer, or the bits of a float. */
static srt_status_t read_word(reader_t *r, char before, const char *key, bool is_float, void *value)
{
	int64_t integer;
	uint32_t bits;

	SRT_TRY(read_integer(r, before, key, is_float ? 0 : INT32_MIN,
			     is_float ? UINT32_MAX : INT32_MAX, &integer));
	bits = (uint32_t)integer; /* of a negative integer, too */
	memcpy(value, &bits, sizeof(bits));
	return SRT_OK;
}

/* At most SRT_MAX_DIMS integers of at least 0. */
static srt_status_t read_integers(reader_t *r, const char *key, int64_t *values, int *n)
{
	bool more;

	SRT_TRY(read_key(r, ',', key));
	SRT_TRY(srt_json_begin(&r->json, '[', ']', &more));
	for (*n = 0; more; ++*n) {
		if (*n == SRT_MAX_DIMS)
			return fail_value(key, "an array for at most 5 dimensions");
		SRT_TRY(srt_json_integer(&r->json, 0, INT64_MAX, &values[*n]));
		SRT_TRY(srt_json_separator(&r->json, ']', &more));
	}
	return SRT_OK;
}

/* An array of objects. *items (a pointer to objects of this size, which begin as zeros) and *n grow
 * with each; the last one may be incomplete after a failure. */
static srt_status_t read_array(reader_t *r, char before, const char *key, void *items, size_t *n,
			       size_t item_nbytes, srt_status_t (*read)(reader_t *r, void *item))
{
	char *array = NULL;
	size_t room = 0;
	bool more;

	SRT_TRY(read_key(r, before, key));
	SRT_TRY(srt_json_begin(&r->json, '[', ']', &more));
	while (more) {
		char *grown = srt_grow(array, *n + 1, &room, item_nbytes, "a table of a manifest");

		if (grown == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		array = grown;
		memcpy(items, &array, sizeof(array));
		memset(array + *n * item_nbytes, 0, item_nbytes);
		SRT_TRY(read(r, array + (*n)++ * item_nbytes));
		SRT_TRY(srt_json_separator(&r->json, ']', &more));
	}
	if (*n == 0)
		return SRT_OK;
	array = srt_realloc(array, *n, item_nbytes, "a table of a manifest"); /* becomes smaller */
	if (array != NULL)
		memcpy(items, &array, sizeof(array));
	return array != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
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

/* A hash for each block of the box. */
static srt_status_t read_hashes(reader_t *r, srt_manifest_box_t *b)
{
	char *text;

	SRT_TRY(read_text(r, ',', "xxh3", &text));
	b->nblocks = srt_count_blocks(b->nbytes);
	if (strlen(text) / 16 != b->nblocks || strlen(text) % 16 != 0)
		return fail_value("xxh3", "16 hexadecimal digits for each block of the box");
	b->hashes = srt_calloc(b->nblocks, sizeof(*b->hashes), "hashes of a manifest");
	if (b->hashes == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < b->nblocks; i++)
		if (!parse_digits(text + 16 * i, 16, &b->hashes[i]))
			return fail_value("xxh3",
					  "16 hexadecimal digits for each block of the box");
	return SRT_OK;
}

static srt_status_t read_box(reader_t *r, void *item)
{
	const srt_manifest_tensor_t *t = r->tensor;
	srt_manifest_box_t *b = item;
	int noffsets, nsizes;
	int64_t file;

	if (t->nboxes > r->manifest->nfiles) /* this one is counted */
		return srt_fail(SRT_ERR_FORMAT, "it has more than one box in a file");
	SRT_TRY(read_integer(r, '{', "file", 0, (int64_t)r->manifest->nfiles - 1, &file));
	b->file = (size_t)file;
	SRT_TRY(read_integers(r, "offset", b->box.offset, &noffsets));
	SRT_TRY(read_integers(r, "size", b->box.size, &nsizes));
	if (noffsets != t->ndim || nsizes != t->ndim)
		return fail_value("size", "that of a box of its tensor's dimensions");
	for (int i = 0; i < t->ndim; i++)
		if (b->box.offset[i] > t->shape[i] || b->box.size[i] == 0 ||
		    b->box.size[i] > t->shape[i] - b->box.offset[i])
			return fail_value("size", "that of a box within its tensor");
	/* at most those of the tensor */
	count_nbytes(t->dtype, t->ndim, b->box.size, &b->nbytes);
	SRT_TRY(read_hashes(r, b));
	srt_cover_add(&r->cover, &b->box);
	return read_end(r);
}

static srt_status_t read_types(reader_t *r, srt_manifest_tensor_t *t)
{
	char *kind, *dtype;
	size_t nbytes;
	bool fits;

	SRT_TRY(read_text(r, ',', "kind", &kind));
	SRT_TRY(read_text(r, ',', "dtype", &dtype));
	for (t->kind = 0; t->kind < SRT_MANIFEST_NKINDS; t->kind++)
		if (strcmp(kind, srt_manifest_kinds[t->kind]) == 0)
			break;
	for (t->dtype = SRT_DTYPE_NONE + 1; t->dtype < SRT_DTYPE_COUNT; t->dtype++)
		if (strcmp(dtype, srt_dtype_name(t->dtype)) == 0)
			break;
	if (t->kind == SRT_MANIFEST_NKINDS)
		return fail_value("kind", "one of a tensor");
	if (t->dtype == SRT_DTYPE_COUNT)
		return fail_value("dtype", "a dtype");
	SRT_TRY(read_integers(r, "shape", t->shape, &t->ndim));
	fits = count_nbytes(t->dtype, t->ndim, t->shape, &nbytes);
	for (int i = 0; i < t->ndim; i++) /* a size of 0 does not hide an overflow */
		fits = fits && count_nbytes(t->dtype, 1, &t->shape[i], &nbytes);
	return fits ? SRT_OK : fail_value("shape", "that of a tensor which fits the address space");
}

static srt_status_t read_rest(reader_t *r, srt_manifest_tensor_t *t)
{
	int64_t steps, group = -1;
	bool found;

	SRT_TRY(read_types(r, t));
	SRT_TRY(read_integer(r, ',', "steps", -1, INT32_MAX, &steps));
	t->steps = (int32_t)steps;
	SRT_TRY(find_key(r, ',', "group", &found));
	if (found)
		SRT_TRY(read_integer(r, ',', "group", 0, (int64_t)r->manifest->ngroups - 1,
				     &group));
	t->group = (int32_t)group;
	r->tensor = t;
	srt_cover_begin(&r->cover, t->ndim, t->shape, r->random);
	SRT_TRY(read_array(r, ',', "boxes", &t->boxes, &t->nboxes, sizeof(*t->boxes), read_box));
	SRT_TRY(srt_cover_end(&r->cover));
	return read_end(r);
}

static srt_status_t read_tensor(reader_t *r, void *item)
{
	srt_manifest_tensor_t *t = item;
	srt_status_t status;

	SRT_TRY(read_string(r, '{', "name", &t->name));
	status = read_rest(r, t);
	return status == SRT_OK ?
		       SRT_OK :
		       srt_fail_prefix(status, "tensor '%s': ", srt_printable(t->name).text);
}

static int compare_tensors(const void *a, const void *b)
{
	const srt_manifest_tensor_t *x = a, *y = b;

	return x->kind != y->kind ? (int)x->kind - (int)y->kind : strcmp(x->name, y->name);
}

/* Sorts the tensors; they must differ. */
static srt_status_t sort_tensors(srt_manifest_t *m)
{
	if (m->ntensors > 0)
		qsort(m->tensors, m->ntensors, sizeof(*m->tensors), compare_tensors);
	for (size_t i = 1; i < m->ntensors; i++)
		if (compare_tensors(&m->tensors[i - 1], &m->tensors[i]) == 0)
			return srt_fail(SRT_ERR_FORMAT, "%s occurs twice",
					srt_manifest_describe(m->tensors[i].kind,
							      m->tensors[i].name)
						.text);
	return SRT_OK;
}

/* ---- the rest --------------------------------------------------------------------------- */

static srt_status_t read_file_item(reader_t *r, void *item)
{
	srt_manifest_file_t *f = item;
	int64_t nbytes;

	SRT_TRY(read_string(r, '{', "name", &f->name));
	/* short, and fit to be shown in messages */
	if (strchr(f->name, '/') != NULL || f->name[0] == '.' ||
	    strcmp(f->name, srt_printable(f->name).text) != 0)
		return fail_value("name", "that of a file in the folder");
	SRT_TRY(read_integer(r, ',', "nbytes", 0, INT64_MAX, &nbytes));
	f->nbytes = (uint64_t)nbytes;
	SRT_TRY(read_u64(r, ',', "header", &f->header_hash));
	return read_end(r);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Files have different names. */
static srt_status_t check_files(const srt_manifest_t *m)
{
	const char **names = srt_calloc(m->nfiles + 1, sizeof(*names), "files of a manifest");
	srt_status_t status = SRT_OK;

	if (names == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < m->nfiles; i++)
		names[i] = m->files[i].name;
	qsort(names, m->nfiles, sizeof(*names), compare_names);
	for (size_t i = 1; i < m->nfiles && status == SRT_OK; i++)
		if (strcmp(names[i - 1], names[i]) == 0)
			status = srt_fail(SRT_ERR_FORMAT, "the file '%s' occurs twice",
					  srt_printable(names[i]).text);
	free(names);
	return status;
}

static srt_status_t read_group(reader_t *r, void *item)
{
	srt_manifest_group_t *g = item;
	bool found;

	SRT_TRY(find_key(r, '{', "optimizer", &found));
	if (found)
		SRT_TRY(read_string(r, '{', "optimizer", &g->optimizer));
	SRT_TRY(read_key(r, ',', "has_lr"));
	g->has_lr = srt_json_word(&r->json, "true");
	if (!g->has_lr && !srt_json_word(&r->json, "false"))
		return fail_value("has_lr", "true or false");
	for (size_t f = 0; f < srt_manifest_nfields; f++)
		SRT_TRY(read_word(r, ',', srt_manifest_fields[f].name,
				  srt_manifest_fields[f].is_float,
				  (char *)&g->state + srt_manifest_fields[f].offset));
	return read_end(r);
}

static srt_status_t read_scaler(reader_t *r)
{
	srt_scaler_state_t *s = &r->manifest->scaler;

	SRT_TRY(find_key(r, ',', "scaler", &r->manifest->has_scaler));
	if (!r->manifest->has_scaler)
		return SRT_OK;
	SRT_TRY(read_key(r, ',', "scaler"));
	SRT_TRY(read_word(r, '{', "scale", true, &s->scale));
	SRT_TRY(read_word(r, ',', "growth_tracker", false, &s->growth_tracker));
	SRT_TRY(read_word(r, ',', "growth_interval", false, &s->growth_interval));
	SRT_TRY(read_double(r, "growth_factor", &s->growth_factor));
	SRT_TRY(read_double(r, "backoff_factor", &s->backoff_factor));
	return read_end(r);
}

static srt_status_t read_entry(reader_t *r, void *item)
{
	srt_manifest_entry_t *e = item;
	uint64_t byte;
	char *text;

	SRT_TRY(read_string(r, '{', "key", &e->key));
	SRT_TRY(read_text(r, ',', "bytes", &text));
	e->nbytes = strlen(text) / 2;
	if (strlen(text) % 2 != 0)
		return fail_value("bytes", "a text of two hexadecimal digits for each");
	e->data = srt_calloc(e->nbytes + 1, 1, "an entry of a manifest");
	if (e->data == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < e->nbytes; i++) {
		if (!parse_digits(text + 2 * i, 2, &byte))
			return fail_value("bytes", "a text of hexadecimal digits");
		e->data[i] = (unsigned char)byte;
	}
	return read_end(r);
}

/* Manifests that older versions wrote have no mode. */
static srt_status_t read_mode(reader_t *r, int *fast)
{
	bool found;
	char *text;

	*fast = -1;
	SRT_TRY(find_key(r, ',', "numerics", &found));
	if (!found)
		return SRT_OK;
	SRT_TRY(read_text(r, ',', "numerics", &text));
	*fast = strcmp(text, "fast") == 0;
	return *fast || strcmp(text, "exact") == 0 ?
		       SRT_OK :
		       fail_value("numerics", "\"exact\" or \"fast\"");
}

static srt_status_t read_root(reader_t *r, const char *end)
{
	srt_manifest_t *m = r->manifest;
	int64_t value;
	uint64_t id;

	SRT_TRY(read_integer(r, '{', "shardrt_checkpoint", 1, INT32_MAX, &value));
	if (value != SRT_MANIFEST_VERSION)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"the format has version %lld, this library reads version %d",
				(long long)value, SRT_MANIFEST_VERSION);
	SRT_TRY(read_u64(r, ',', "id", &id));
	snprintf(m->id, sizeof(m->id), "%0*" PRIx64, SRT_CHECKPOINT_ID_LENGTH, id);
	SRT_TRY(read_integer(r, ',', "world", 1, INT32_MAX, &value));
	m->world = (int)value;
	SRT_TRY(read_integer(r, ',', "numerics_version", 0, INT32_MAX, &value));
	m->numerics_version = (int)value;
	SRT_TRY(read_mode(r, &m->fast));
	SRT_TRY(read_string(r, ',', "optimizer", &m->optimizer));
	SRT_TRY(read_scaler(r));
	SRT_TRY(read_array(r, ',', "groups", &m->groups, &m->ngroups, sizeof(*m->groups),
			   read_group));
	SRT_TRY(read_array(r, ',', "entries", &m->entries, &m->nentries, sizeof(*m->entries),
			   read_entry));
	SRT_TRY(read_array(r, ',', "files", &m->files, &m->nfiles, sizeof(*m->files),
			   read_file_item));
	SRT_TRY(check_files(m));
	SRT_TRY(read_array(r, ',', "tensors", &m->tensors, &m->ntensors, sizeof(*m->tensors),
			   read_tensor));
	SRT_TRY(read_u64(r, ',', "checksum", &m->checksum));
	SRT_TRY(read_end(r));
	if (r->json.at != end)
		return srt_json_fail(&r->json, "the end of the manifest");
	return sort_tensors(m);
}

srt_status_t srt_manifest_parse(char *text, size_t nbytes, srt_manifest_t *m)
{
	const size_t before = sizeof(SRT_MANIFEST_CHECKSUM) - 1;
	const size_t after = sizeof(SRT_MANIFEST_TAIL) - 1, tail = before + 16 + after;
	const char *at = text + (nbytes < tail ? 0 : nbytes - tail);
	reader_t r = { .json = { text, text, "the manifest" }, .manifest = m };

	if (nbytes < tail || memcmp(at, SRT_MANIFEST_CHECKSUM, before) != 0 ||
	    memcmp(text + nbytes - after, SRT_MANIFEST_TAIL, after) != 0 ||
	    !parse_digits(at + before, 16, &m->checksum) ||
	    srt_xxh3_64(text, nbytes - tail) != m->checksum)
		return srt_fail(SRT_ERR_FORMAT, "its checksum is wrong: it was cut or changed%s",
				strncmp(text, SRT_MANIFEST_HEAD, sizeof(SRT_MANIFEST_HEAD) - 1) ?
					", or it is a file of another program" :
					"");
	if (getrandom(&r.random, sizeof(r.random), 0) != (ssize_t)sizeof(r.random))
		return srt_fail(SRT_ERR_SYSTEM, "no random number to check boxes with: %s",
				strerror(errno));
	return read_root(&r, text + nbytes);
}
