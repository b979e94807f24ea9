/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kind "tokenizer": the ids of strings without and with the tokens of the template, the text of
 * ids, and the text of random ids, which is full of bytes that are not UTF-8.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <shardrt/models/tokenizer.h>

#include "tests/golden/replay_hf.h"

/* Rows of different lengths, joined: row i is offsets[i] .. offsets[i + 1]. */
typedef struct rows {
	char *values;
	int64_t *offsets;
	size_t nrows, nbytes; /* bytes of a value */
} rows_t;

/* All values of a tensor, and their number. */
static srt_status_t read_all(const golden_t *g, const char *name, srt_dtype_t dtype, void **values,
			     size_t *nelem)
{
	const srt_safetensors_tensor_t *t =
		g->expect != NULL ? srt_safetensors_find(g->expect, name) : NULL;

	if (t == NULL || t->dtype != dtype)
		return srt_fail(SRT_ERR_FORMAT, "'%s' is not there as %s", name,
				srt_dtype_name(dtype));
	*nelem = t->nelem;
	*values = srt_calloc(t->nbytes + 1, 1, name);
	return *values != NULL ? srt_safetensors_read(g->expect, t, 0, t->nbytes, *values) :
				 SRT_ERR_OUT_OF_MEMORY;
}

static srt_status_t read_rows(const golden_t *g, const char *name, srt_dtype_t dtype, rows_t *r)
{
	void *values = NULL, *offsets = NULL;
	size_t nvalues = 0, noffsets = 0;
	srt_status_t status;
	char text[64];

	snprintf(text, sizeof(text), "%s.offsets", name);
	status = read_all(g, name, dtype, &values, &nvalues);
	if (status == SRT_OK)
		status = read_all(g, text, SRT_I64, &offsets, &noffsets);
	*r = (rows_t){ .values = values,
		       .offsets = offsets,
		       .nrows = noffsets > 0 ? noffsets - 1 : 0,
		       .nbytes = srt_dtype_bits(dtype) / 8 };
	for (size_t i = 0; i < r->nrows && status == SRT_OK; i++)
		if (r->offsets[i] < 0 || r->offsets[i] > r->offsets[i + 1] ||
		    (size_t)r->offsets[i + 1] > nvalues)
			status = srt_fail(SRT_ERR_FORMAT, "%s are not offsets of %s", text, name);
	if (status == SRT_OK && r->nrows == 0)
		status = srt_fail(SRT_ERR_FORMAT, "%s has no rows", name);
	return status;
}

static void free_rows(rows_t *r)
{
	free(r->values);
	free(r->offsets);
}

static const void *row(const rows_t *r, size_t i, size_t *n)
{
	*n = (size_t)(r->offsets[i + 1] - r->offsets[i]);
	return r->values + (size_t)r->offsets[i] * r->nbytes;
}

static void compare(verdict_t *v, const rows_t *r, size_t i, const char *what, const void *got,
		    size_t n)
{
	size_t nwant;
	const void *want = row(r, i, &nwant);

	verdict_exact(v, n == nwant && (n == 0 || memcmp(got, want, n * r->nbytes) == 0),
		      "%s of string %zu: %zu values, %zu were recorded, or they differ", what, i, n,
		      nwant);
}

static srt_status_t compare_ids(verdict_t *v, const srt_tokenizer_t *t, const rows_t *text,
				unsigned flags, const rows_t *want, const char *what)
{
	for (size_t i = 0; i < text->nrows; i++) {
		size_t nbytes, nids;
		const char *string = row(text, i, &nbytes);
		int32_t *ids;

		SRT_TRY(srt_tokenizer_encode(t, string, nbytes, flags, &ids, &nids));
		compare(v, want, i, what, ids, nids);
		free(ids);
	}
	return SRT_OK;
}

static srt_status_t compare_text(verdict_t *v, const srt_tokenizer_t *t, const rows_t *ids,
				 int skip, const rows_t *want, const char *what)
{
	for (size_t i = 0; i < ids->nrows; i++) {
		size_t nids, nbytes;
		const int32_t *row_ids = row(ids, i, &nids);
		char *text;

		SRT_TRY(srt_tokenizer_decode(t, row_ids, nids, skip, &text, &nbytes));
		compare(v, want, i, what, text, nbytes);
		free(text);
	}
	return SRT_OK;
}

/* Added tokens have the ids of the case, and fit into the vocabulary. */
static void compare_added(const golden_t *g, verdict_t *v, const srt_tokenizer_t *t)
{
	const json_t *token;
	size_t i;

	json_array_foreach(json_object_get(g->json, "added_tokens"), i, token)
	{
		const char *content = golden_text(token, "content");
		const json_int_t id = json_integer_value(json_object_get(token, "id"));

		verdict_exact(v,
			      content != NULL && srt_tokenizer_find(t, content) == id &&
				      id < srt_tokenizer_vocab_size(t),
			      "added token %zu has not the recorded id", i);
	}
}

enum { TEXT, IDS, IDS_SPECIAL, DECODED, DECODED_SKIP, WILD_IDS, WILD_DECODED, N };

static const char *const names[N] = {
	"text", "ids", "ids_special", "decoded", "decoded_skip_special", "wild_ids", "wild_decoded"
};

static srt_status_t compare_all(const golden_t *g, verdict_t *v, const srt_tokenizer_t *t,
				const rows_t r[N])
{
	for (int i = 0; i < N; i++)
		if (r[i].nrows != r[i >= WILD_IDS ? WILD_IDS : TEXT].nrows)
			return srt_fail(SRT_ERR_FORMAT, "%s has another number of rows", names[i]);
	SRT_TRY(compare_ids(v, t, &r[TEXT], 0, &r[IDS], names[IDS]));
	SRT_TRY(compare_ids(v, t, &r[TEXT], SRT_TOKENIZER_ADD_SPECIAL, &r[IDS_SPECIAL],
			    names[IDS_SPECIAL]));
	SRT_TRY(compare_text(v, t, &r[IDS], 0, &r[DECODED], names[DECODED]));
	SRT_TRY(compare_text(v, t, &r[IDS_SPECIAL], 1, &r[DECODED_SKIP], names[DECODED_SKIP]));
	SRT_TRY(compare_text(v, t, &r[WILD_IDS], 0, &r[WILD_DECODED], names[WILD_DECODED]));
	compare_added(g, v, t);
	return SRT_OK;
}

srt_status_t replay_hf_tokenizer(golden_t *g, srt_context_t *context, const hf_options_t *options,
				 verdict_t *v)
{
	static const srt_dtype_t dtypes[N] = { SRT_U8, SRT_I32, SRT_I32, SRT_U8,
					       SRT_U8, SRT_I32, SRT_U8 };
	const char *file = golden_text(json_object_get(g->json, "files"), "tokenizer");
	char *path = srt_asprintf("%s/%s", g->dir, file != NULL ? file : "tokenizer.json");
	srt_tokenizer_t *t = NULL;
	rows_t r[N] = { { 0 } };
	srt_status_t status = path != NULL ? srt_tokenizer_open(path, &t) : SRT_ERR_OUT_OF_MEMORY;

	(void)context;
	(void)options;
	for (int i = 0; i < N && status == SRT_OK; i++)
		status = read_rows(g, names[i], dtypes[i], &r[i]);
	if (status == SRT_OK)
		status = compare_all(g, v, t, r);
	for (int i = 0; i < N; i++)
		free_rows(&r[i]);
	srt_tokenizer_close(t);
	free(path);
	return status;
}
