/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The writer of safetensors files (safetensors.h): a list of tensors, then their bytes in any order
 * -> a complete file, which replaces the target at the commit.
 * Called by file_write.c and others, and by the tests. Needs no JSON library: the header has one
 * fixed form.
 */
#include "runtime/checkpoint/formats/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/json.h"
#include "base/replacement.h"

typedef struct place {
	size_t entry; /* index of the caller's */
	const char *name;
	const char *dtype_name;
	size_t item_nbytes;
	size_t offset, nbytes;
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
	bool written; /* the last byte; pieces come in order */
} place_t;

struct srt_safetensors_writer {
	srt_replacement_t file;
	size_t data_start;
	size_t nplaces;
	place_t *places; /* in the caller's order once the header is made; names are gone then */
};

static srt_status_t check_string(const char *s, const char *what)
{
	const char *at = s;

	while (*at) {
		size_t n = srt_utf8_length(at);

		if (n == 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"%s '%.64s' is not UTF-8 and cannot be saved", what, s);
		at += n;
	}
	return SRT_OK;
}

const char *srt_safetensors_dtype_name(srt_dtype_t dtype)
{
	static const char *const names[SRT_DTYPE_COUNT] = {
#define ST_NAME(name, text, st, bits) [name] = st,
		SRT_DTYPE_TABLE(ST_NAME)
#undef ST_NAME
	};

	return names[dtype];
}

static srt_status_t set_place(place_t *p, size_t i, const srt_safetensors_entry_t *e)
{
	size_t nelem = 1;

	SRT_TRY(check_string(e->name, "tensor name"));
	if (!strcmp(e->name, "__metadata__"))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"a tensor cannot be called __metadata__ in a safetensors file");
	if (e->ndim < 0 || e->ndim > SRT_MAX_DIMS || srt_dtype_bits(e->dtype) == 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"tensor '%s' has dtype %s (%d) and %d dimensions", e->name,
				srt_dtype_name(e->dtype), (int)e->dtype, e->ndim);
	*p = (place_t){ .entry = i, .name = e->name, .ndim = e->ndim };
	p->dtype_name = srt_safetensors_dtype_name(e->dtype);
	p->item_nbytes = srt_dtype_bits(e->dtype) / 8;
	for (int d = 0; d < e->ndim; d++) {
		if (e->shape[d] < 0 || !srt_mul_size(nelem, (size_t)e->shape[d], &nelem))
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"tensor '%s' has a negative or too large shape", e->name);
		p->shape[d] = e->shape[d];
	}
	return srt_dtype_nbytes(e->dtype, nelem, &p->nbytes);
}

static int compare_size_and_name(const void *a, const void *b)
{
	const place_t *x = a, *y = b;

	if (x->item_nbytes != y->item_nbytes)
		return x->item_nbytes > y->item_nbytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int compare_entry(const void *a, const void *b)
{
	const place_t *x = a, *y = b;

	return (x->entry > y->entry) - (x->entry < y->entry);
}

/* Sorts, gives each tensor its place; total = bytes of data. */
static srt_status_t layout_tensors(place_t *places, size_t n, size_t *total)
{
	*total = 0;
	if (n > 0)
		qsort(places, n, sizeof(*places), compare_size_and_name);
	for (size_t i = 0; i < n; i++) {
		places[i].offset = *total;
		if (!srt_add_size(*total, places[i].nbytes, total) || *total > INT64_MAX)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"the tensors are too large for one file");
	}
	return SRT_OK;
}

static int compare_name_pointers(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names (of tensors or metadata) must differ. */
static srt_status_t check_distinct(const char **names, size_t n)
{
	if (n > 0)
		qsort(names, n, sizeof(*names), compare_name_pointers);
	for (size_t i = 1; i < n; i++)
		if (!strcmp(names[i - 1], names[i]))
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"'%s' occurs twice among the names to be saved", names[i]);
	return SRT_OK;
}

static srt_status_t check_names(const place_t *places, size_t n,
				const srt_file_metadata_t *metadata, size_t nmetadata)
{
	const char **names = srt_calloc(n + nmetadata + 1, sizeof(*names), "names to be saved");
	srt_status_t status = SRT_OK;

	if (names == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++)
		names[i] = places[i].name;
	for (size_t i = 0; i < nmetadata && status == SRT_OK; i++) {
		names[n + i] = metadata[i].key;
		status = check_string(metadata[i].key, "metadata key");
		if (status == SRT_OK)
			status = check_string(metadata[i].value, "metadata value");
	}
	if (status == SRT_OK)
		status = check_distinct(names, n);
	if (status == SRT_OK)
		status = check_distinct(names + n, nmetadata);
	free(names);
	return status;
}

/* The header, padded so that the data begins at a multiple of 8. Places are in file order. */
static srt_status_t make_header(srt_json_text_t *t, const place_t *places, size_t n,
				const srt_file_metadata_t *metadata, size_t nmetadata)
{
	srt_json_append(t, "{", 1);
	if (nmetadata > 0) {
		srt_json_append_format(t, "\"__metadata__\":{");
		for (size_t i = 0; i < nmetadata; i++) {
			srt_json_append(t, ",", i > 0);
			srt_json_append_string(t, metadata[i].key);
			srt_json_append(t, ":", 1);
			srt_json_append_string(t, metadata[i].value);
		}
		srt_json_append(t, "}", 1);
	}
	for (size_t i = 0; i < n; i++) {
		srt_json_append(t, ",", i > 0 || nmetadata > 0);
		srt_json_append_string(t, places[i].name);
		srt_json_append_format(t, ":{\"dtype\":\"%s\",\"shape\":[", places[i].dtype_name);
		for (int d = 0; d < places[i].ndim; d++)
			srt_json_append_format(t, "%s%" PRId64, d > 0 ? "," : "",
					       places[i].shape[d]);
		srt_json_append_format(t, "],\"data_offsets\":[%zu,", places[i].offset);
		srt_json_append_format(t, "%zu]}", places[i].offset + places[i].nbytes);
	}
	srt_json_append(t, "}", 1);
	while (t->nbytes % 8 && !t->failed)
		srt_json_append(t, " ", 1);
	if (t->failed)
		return SRT_ERR_OUT_OF_MEMORY;
	if (t->nbytes > SRT_SAFETENSORS_MAX_HEADER)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the header would take %zu bytes, the format allows %d", t->nbytes,
				SRT_SAFETENSORS_MAX_HEADER);
	return SRT_OK;
}

static srt_status_t write_at(const srt_safetensors_writer_t *w, size_t offset, const void *data,
			     size_t nbytes)
{
	const char *from = data;

	while (nbytes > 0) {
		ssize_t n = pwrite(w->file.fd, from, nbytes, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return srt_fail(SRT_ERR_IO, "cannot write %s: %s", w->file.temporary,
					n < 0 ? strerror(errno) : "0 bytes were written");
		from += n;
		offset += (size_t)n;
		nbytes -= (size_t)n;
	}
	return SRT_OK;
}

srt_status_t srt_safetensors_writer_create(const char *path, const srt_safetensors_entry_t *entries,
					   size_t n, const srt_file_metadata_t *metadata,
					   size_t nmetadata, srt_safetensors_writer_t **writer)
{
	srt_safetensors_writer_t *w = srt_calloc(1, sizeof(*w), "a safetensors file");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	unsigned char prefix[8];
	srt_json_text_t header = { 0 };
	size_t total = 0;

	if (w == NULL)
		return status;
	w->file.fd = -1;
	w->places = srt_calloc(n + 1, sizeof(*w->places), "the table of a safetensors file");
	if (w->places == NULL)
		goto out;
	for (; w->nplaces < n; w->nplaces++) {
		status = set_place(&w->places[w->nplaces], w->nplaces, &entries[w->nplaces]);
		if (status != SRT_OK)
			goto out;
	}
	if ((status = check_names(w->places, n, metadata, nmetadata)) != SRT_OK ||
	    (status = layout_tensors(w->places, n, &total)) != SRT_OK ||
	    (status = make_header(&header, w->places, n, metadata, nmetadata)) != SRT_OK ||
	    (status = srt_replacement_open(&w->file, path, true)) != SRT_OK)
		goto out;
	for (int i = 0; i < 8; i++)
		prefix[i] = (unsigned char)((uint64_t)header.nbytes >> 8 * i);
	w->data_start = sizeof(prefix) + header.nbytes;
	if ((status = srt_replacement_allocate(&w->file, w->data_start + total)) != SRT_OK ||
	    (status = write_at(w, 0, prefix, sizeof(prefix))) != SRT_OK ||
	    (status = write_at(w, sizeof(prefix), header.bytes, header.nbytes)) != SRT_OK)
		goto out;
	if (n > 0)
		qsort(w->places, n, sizeof(*w->places), compare_entry);
	for (size_t i = 0; i < n; i++)
		w->places[i].name = NULL; /* the caller's again */
out:
	free(header.bytes);
	if (status != SRT_OK)
		srt_safetensors_writer_destroy(w);
	else
		*writer = w;
	return status;
}

srt_status_t srt_safetensors_writer_put_at(srt_safetensors_writer_t *w, size_t i, size_t offset,
					   const void *data, size_t nbytes)
{
	if (i >= w->nplaces)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s has no tensor number %zu",
				w->file.path, i);
	if (offset > w->places[i].nbytes || nbytes > w->places[i].nbytes - offset)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: bytes %zu..%zu are not within tensor number %zu", w->file.path,
				offset, offset + nbytes, i);
	SRT_TRY(write_at(w, w->data_start + w->places[i].offset + offset, data, nbytes));
	w->places[i].written = offset + nbytes == w->places[i].nbytes;
	return SRT_OK;
}

srt_status_t srt_safetensors_writer_put(srt_safetensors_writer_t *w, size_t i, const void *data)
{
	return srt_safetensors_writer_put_at(w, i, 0, data,
					     i < w->nplaces ? w->places[i].nbytes : 0);
}

srt_status_t srt_safetensors_writer_sync(const srt_safetensors_writer_t *w)
{
	for (size_t i = 0; i < w->nplaces; i++)
		if (!w->places[i].written && w->places[i].nbytes > 0)
			return srt_fail(SRT_ERR_STATE, "tensor number %zu of %s was never written",
					i, w->file.path);
	return srt_replacement_sync(&w->file);
}

srt_status_t srt_safetensors_writer_commit(srt_safetensors_writer_t *w)
{
	SRT_TRY(srt_safetensors_writer_sync(w));
	return srt_replacement_commit(&w->file);
}

void srt_safetensors_writer_destroy(srt_safetensors_writer_t *w)
{
	if (w == NULL)
		return;
	srt_replacement_close(&w->file);
	free(w->places);
	free(w);
}
