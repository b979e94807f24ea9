/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parser of safetensors headers (safetensors.h): text -> tensors and metadata.
 *
 * It accepts the one form of JSON that a header has and stops at the first other byte (json.h), so
 * memory is in proportion to tensors and metadata entries that are complete. Strings are decoded in
 * place. It accepts what the format's reference reader accepts, apart from names that occur twice
 * and names with zero bytes.
 * Called by safetensors_read.c and the tests.
 */
#include "runtime/checkpoint/formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"

/* Names of the format and their bits; the library's own dtypes come from its table. */
static const struct {
	const char *name;
	unsigned bits;
} st_dtypes[] = {
	{ "BOOL", 8 },    { "U8", 8 },          { "I8", 8 },          { "F4", 4 },
	{ "F6_E2M3", 6 }, { "F6_E3M2", 6 },     { "F8_E5M2", 8 },     { "F8_E4M3", 8 },
	{ "F8_E8M0", 8 }, { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 }, { "I16", 16 },
	{ "U16", 16 },    { "F16", 16 },        { "BF16", 16 },       { "I32", 32 },
	{ "U32", 32 },    { "F32", 32 },        { "F64", 64 },        { "I64", 64 },
	{ "U64", 64 },    { "C64", 64 },
};

static const char *const srt_dtype_st_names[SRT_DTYPE_COUNT] = {
#define ST_NAME(name, text, st, bits) [name] = st,
	SRT_DTYPE_TABLE(ST_NAME)
#undef ST_NAME
};

typedef struct parser {
	srt_json_t json;
	size_t data_nbytes;
	srt_safetensors_header_t *header;
} parser_t;

/* ---- tensors ------------------------------------------------------------------------------ */

/* The two integers of data_offsets. */
static srt_status_t parse_offsets(parser_t *p, int64_t offsets[2])
{
	bool more;
	int n;

	SRT_TRY(srt_json_begin(&p->json, '[', ']', &more));
	for (n = 0; more && n < 2; n++) {
		SRT_TRY(srt_json_integer(&p->json, 0, INT64_MAX, &offsets[n]));
		SRT_TRY(srt_json_separator(&p->json, ']', &more));
	}
	if (more || n != 2)
		return srt_fail(SRT_ERR_FORMAT, "data_offsets is not an array of two integers");
	return SRT_OK;
}

/* The sizes of the dimensions, of which the first are stored, and the number of elements. */
static srt_status_t parse_shape(parser_t *p, srt_safetensors_tensor_t *t)
{
	bool more, empty = false;

	t->nelem = 1;
	SRT_TRY(srt_json_begin(&p->json, '[', ']', &more));
	for (; more; t->ndim++) {
		int64_t size;

		SRT_TRY(srt_json_integer(&p->json, 0, INT64_MAX, &size));
		SRT_TRY(srt_json_separator(&p->json, ']', &more));
		if (t->ndim < SRT_SAFETENSORS_MAX_DIMS)
			t->shape[t->ndim] = size;
		empty |= size == 0;
		/* a size of 0 does not hide an overflow */
		if (size > 0 && !srt_mul_size(t->nelem, (size_t)size, &t->nelem))
			return srt_fail(SRT_ERR_FORMAT, "the shape's product overflows");
	}
	if (empty)
		t->nelem = 0;
	return SRT_OK;
}

static srt_status_t set_dtype(srt_safetensors_tensor_t *t, const char *name, unsigned *bits)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(st_dtypes); i++) {
		if (strcmp(name, st_dtypes[i].name))
			continue;
		t->dtype_name = st_dtypes[i].name;
		*bits = st_dtypes[i].bits;
		for (int d = SRT_DTYPE_NONE + 1; d < SRT_DTYPE_COUNT; d++)
			if (!strcmp(name, srt_dtype_st_names[d]))
				t->dtype = (srt_dtype_t)d;
		return SRT_OK;
	}
	return srt_fail(SRT_ERR_FORMAT, "unknown dtype '%s'", srt_printable(name).text);
}

/* The number of bytes of a tensor with dtype and shape. */
static srt_status_t set_size(srt_safetensors_tensor_t *t, unsigned bits)
{
	if (!srt_mul_size(t->nelem, bits, &t->nbytes))
		return srt_fail(SRT_ERR_FORMAT, "the size in bits overflows");
	if (t->nbytes % 8 != 0)
		return srt_fail(SRT_ERR_FORMAT, "its %zu elements of %u bits are not whole bytes",
				t->nelem, bits);
	t->nbytes /= 8;
	return SRT_OK;
}

static srt_status_t set_offset(const parser_t *p, srt_safetensors_tensor_t *t, int64_t begin,
			       int64_t end)
{
	if (end < begin || (uint64_t)end > p->data_nbytes)
		return srt_fail(SRT_ERR_FORMAT,
				"data_offsets [%lld, %lld] are not within the file's %zu bytes of "
				"data",
				(long long)begin, (long long)end, p->data_nbytes);
	if ((size_t)(end - begin) != t->nbytes)
		return srt_fail(SRT_ERR_FORMAT,
				"data_offsets span %lld bytes, but dtype and shape need %zu",
				(long long)(end - begin), t->nbytes);
	t->offset = (size_t)begin;
	return SRT_OK;
}

/* The keys of a tensor, as bits. */
enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

/* Keys that the format does not know are skipped. */
static srt_status_t parse_tensor(parser_t *p, srt_safetensors_tensor_t *t)
{
	unsigned bits = 0, has = 0, key_bit;
	int64_t offsets[2] = { 0 };
	bool more;
	char *text;

	SRT_TRY(srt_json_begin(&p->json, '{', '}', &more));
	for (; more; has |= key_bit) {
		SRT_TRY(srt_json_key(&p->json, &text));
		key_bit = !strcmp(text, "dtype")        ? HAS_DTYPE :
			  !strcmp(text, "shape")        ? HAS_SHAPE :
			  !strcmp(text, "data_offsets") ? HAS_OFFSETS :
							  0;
		if (has & key_bit)
			return srt_fail(SRT_ERR_FORMAT, "%s occurs twice", text);
		if (key_bit == HAS_DTYPE) {
			SRT_TRY(srt_json_string(&p->json, &text));
			SRT_TRY(set_dtype(t, text, &bits));
		} else if (key_bit == HAS_SHAPE) {
			SRT_TRY(parse_shape(p, t));
		} else if (key_bit == HAS_OFFSETS) {
			SRT_TRY(parse_offsets(p, offsets));
		} else {
			SRT_TRY(srt_json_skip(&p->json));
		}
		SRT_TRY(srt_json_separator(&p->json, '}', &more));
	}
	if (has != HAS_ALL)
		return srt_fail(SRT_ERR_FORMAT, "a tensor has dtype, shape and data_offsets");
	SRT_TRY(set_size(t, bits));
	return set_offset(p, t, offsets[0], offsets[1]);
}

static srt_status_t add_tensor(parser_t *p, const char *name)
{
	srt_safetensors_header_t *h = p->header;
	srt_safetensors_tensor_t *grown =
		srt_grow(h->tensors, h->ntensors + 1, &h->tensor_room, sizeof(*grown),
			 "the table of a safetensors file");

	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	h->tensors = grown;
	grown[h->ntensors] = (srt_safetensors_tensor_t){ .name = name };
	return parse_tensor(p, &grown[h->ntensors++]);
}

/* null is a metadata without entries. */
static srt_status_t parse_metadata(parser_t *p)
{
	srt_safetensors_header_t *h = p->header;
	srt_file_metadata_t *grown;
	char *key, *value;
	bool more;

	if (srt_json_word(&p->json, "null"))
		return SRT_OK;
	SRT_TRY(srt_json_begin(&p->json, '{', '}', &more));
	while (more) {
		SRT_TRY(srt_json_key(&p->json, &key));
		SRT_TRY(srt_json_string(&p->json, &value));
		SRT_TRY(srt_json_separator(&p->json, '}', &more));
		grown = srt_grow(h->metadata, h->nmetadata + 1, &h->metadata_room, sizeof(*grown),
				 "the metadata of a safetensors file");
		if (grown == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		h->metadata = grown;
		grown[h->nmetadata++] = (srt_file_metadata_t){ key, value };
	}
	return SRT_OK;
}

/* ---- the header --------------------------------------------------------------------------- */

static int compare_offset(const void *a, const void *b)
{
	const srt_safetensors_tensor_t *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (x->nbytes > y->nbytes) - (x->nbytes < y->nbytes);
}

/* In order of offsets each tensor must begin where the one before it ends. */
static srt_status_t check_cover(const parser_t *p)
{
	const srt_safetensors_header_t *h = p->header;
	size_t end = 0;

	if (h->ntensors > 0)
		qsort(h->tensors, h->ntensors, sizeof(*h->tensors), compare_offset);
	for (size_t i = 0; i < h->ntensors; i++) {
		const srt_safetensors_tensor_t *t = &h->tensors[i];

		if (t->offset != end)
			return srt_fail(SRT_ERR_FORMAT,
					"tensor '%s' begins at byte %zu of the "
					"data, but the one before it ends at %zu: %s",
					srt_printable(t->name).text, t->offset, end,
					t->offset < end ? "they overlap" : "there is a gap");
		end += t->nbytes; /* at most data_nbytes */
	}
	if (end != p->data_nbytes)
		return srt_fail(SRT_ERR_FORMAT,
				"the tensors take %zu bytes, but the file has %zu "
				"bytes of data",
				end, p->data_nbytes);
	return SRT_OK;
}

/* Both tables begin with the name. */
static int compare_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts a table by name; names must differ. */
static srt_status_t sort_names(void *table, size_t n, size_t item_nbytes)
{
	const char *items = table;

	if (n > 0)
		qsort(table, n, item_nbytes, compare_name);
	for (size_t i = 1; i < n; i++)
		if (!compare_name(items + (i - 1) * item_nbytes, items + i * item_nbytes))
			return srt_fail(SRT_ERR_FORMAT, "'%s' occurs twice in the header",
					srt_printable(
						*(const char *const
							  *)(const void *)(items + i * item_nbytes))
						.text);
	return SRT_OK;
}

srt_status_t srt_safetensors_parse(char *text, size_t nbytes, size_t data_nbytes,
				   srt_safetensors_header_t *header)
{
	parser_t p = { .json = { text, text, "the header" },
		       .data_nbytes = data_nbytes,
		       .header = header };
	bool more, has_metadata = false;

	if (*text != '{')
		return srt_json_fail(&p.json, "'{'");
	SRT_TRY(srt_json_begin(&p.json, '{', '}', &more));
	while (more) {
		srt_status_t status;
		char *name;

		SRT_TRY(srt_json_key(&p.json, &name));
		if (strcmp(name, "__metadata__") != 0) {
			status = add_tensor(&p, name);
		} else if (!has_metadata) {
			has_metadata = true;
			status = parse_metadata(&p);
		} else {
			status = srt_fail(SRT_ERR_FORMAT, "occurs twice in the header");
		}
		if (status != SRT_OK)
			return srt_fail_prefix(status, "'%s': ", srt_printable(name).text);
		SRT_TRY(srt_json_separator(&p.json, '}', &more));
	}
	if (p.json.at != text + nbytes)
		return srt_json_fail(&p.json, "the end of the header");
	SRT_TRY(sort_names(header->metadata, header->nmetadata, sizeof(*header->metadata)));
	SRT_TRY(sort_names(header->tensors, header->ntensors, sizeof(*header->tensors)));
	SRT_TRY(check_cover(&p)); /* in the order of offsets */
	return sort_names(header->tensors, header->ntensors, sizeof(*header->tensors));
}

/* The entry of this name in a table that sort_names() has sorted; NULL if there is none. */
static const void *find_name(const void *table, size_t n, size_t item_nbytes, const char *name)
{
	return n > 0 ? bsearch(&name, table, n, item_nbytes, compare_name) : NULL;
}

const srt_safetensors_tensor_t *srt_safetensors_header_find(const srt_safetensors_header_t *header,
							    const char *name)
{
	return find_name(header->tensors, header->ntensors, sizeof(*header->tensors), name);
}

const char *srt_safetensors_header_metadata(const srt_safetensors_header_t *header, const char *key)
{
	const srt_file_metadata_t *entry =
		find_name(header->metadata, header->nmetadata, sizeof(*header->metadata), key);

	return entry != NULL ? entry->value : NULL;
}

void srt_safetensors_header_free(srt_safetensors_header_t *header)
{
	free(header->tensors);
	free(header->metadata);
}
