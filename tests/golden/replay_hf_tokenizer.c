/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kind "tokenizer": the ids of strings without and with the tokens of the template, the text of
 * ids, and the text of random ids, which is full of bytes that are not UTF-8.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/models/tokenizer.h>

#include "base/base.h"
#include "tests/golden/replay_hf.h"

/* Rows of different lengths, joined: row i is offsets[i] .. offsets[i + 1]. */
typedef struct {
	char *values;
	int64_t *offsets;
	size_t nrows, nbytes; /* bytes of a value */
} rows_t;

static rows_t read_rows(const srt_file_t *f, const char *name, srt_dtype_t dtype)
{
	rows_t r = { .nbytes = srt_dtype_size(dtype) };
	char offsets[64];
	size_t nvalues, noffsets;

	snprintf(offsets, sizeof(offsets), "%s.offsets", name);
	r.values = hf_read(f, name, dtype, &nvalues);
	r.offsets = hf_read(f, offsets, SRT_I64, &noffsets);
	r.nrows = noffsets > 0 ? noffsets - 1 : 0;
	for (size_t i = 0; i < r.nrows; i++) {
		if (r.offsets[i] < 0 || r.offsets[i] > r.offsets[i + 1] ||
		    (size_t)r.offsets[i + 1] > nvalues) {
			printf("%s: not offsets of %s\n", offsets, name);
			exit(HF_FAIL);
		}
	}
	return r;
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

/* @return whether a row is not these n values; then it is printed. */
static int differs(const rows_t *r, size_t i, const char *what, const void *got, size_t n)
{
	size_t nwant;
	const void *want = row(r, i, &nwant);

	if (n == nwant && (n == 0 || memcmp(got, want, n * r->nbytes) == 0))
		return 0;
	printf("%s of string %zu: %zu values, %zu were recorded, or they differ\n", what, i, n,
	       nwant);
	return 1;
}

static int compare_ids(const hf_case_t *c, const srt_tokenizer_t *t, const rows_t *text,
		       unsigned flags, const rows_t *want, const char *what)
{
	int nfailed = 0;

	for (size_t i = 0; i < text->nrows; i++) {
		size_t nbytes, nids;
		const char *string = row(text, i, &nbytes);
		int32_t *ids;

		if (srt_tokenizer_encode(t, string, nbytes, flags, &ids, &nids) != SRT_OK)
			hf_die(c, what);
		nfailed += differs(want, i, what, ids, nids);
		free(ids);
	}
	return nfailed;
}

static int compare_text(const hf_case_t *c, const srt_tokenizer_t *t, const rows_t *ids, int skip,
			const rows_t *want, const char *what)
{
	int nfailed = 0;

	for (size_t i = 0; i < ids->nrows; i++) {
		size_t nids, nbytes;
		const int32_t *row_ids = row(ids, i, &nids);
		char *text;

		if (srt_tokenizer_decode(t, row_ids, nids, skip, &text, &nbytes) != SRT_OK)
			hf_die(c, what);
		nfailed += differs(want, i, what, text, nbytes);
		free(text);
	}
	return nfailed;
}

/* Added tokens have the ids of the case, and fit into the vocabulary. */
static int compare_added(const hf_case_t *c, const srt_tokenizer_t *t)
{
	const json_t *token;
	int nfailed = 0;
	size_t i;

	json_array_foreach(json_object_get(c->json, "added_tokens"), i, token)
	{
		const char *content = json_string_value(json_object_get(token, "content"));
		const json_int_t id = json_integer_value(json_object_get(token, "id"));

		if (content == NULL || srt_tokenizer_find(t, content) != id ||
		    id >= srt_tokenizer_vocab_size(t)) {
			printf("added token %zu has not the recorded id\n", i);
			nfailed++;
		}
	}
	return nfailed;
}

int hf_replay_tokenizer(const hf_case_t *c)
{
	enum { TEXT, IDS, IDS_SPECIAL, DECODED, DECODED_SKIP, WILD_IDS, WILD_DECODED, N };
	static const char *const names[N] = {
		"text",     "ids",         "ids_special", "decoded", "decoded_skip_special",
		"wild_ids", "wild_decoded"
	};
	static const srt_dtype_t dtypes[N] = { SRT_U8, SRT_I32, SRT_I32, SRT_U8,
					       SRT_U8, SRT_I32, SRT_U8 };
	srt_file_t *f = hf_open(c, "expect");
	char *path = hf_path(c, "tokenizer");
	srt_tokenizer_t *t;
	rows_t r[N];
	int nfailed;

	if (srt_tokenizer_open(path, &t) != SRT_OK)
		hf_die(c, "srt_tokenizer_open");
	for (int i = 0; i < N; i++) {
		r[i] = read_rows(f, names[i], dtypes[i]);
		if (r[i].nrows == 0 || r[i].nrows != r[i >= WILD_IDS ? WILD_IDS : TEXT].nrows)
			hf_die(c, names[i]);
	}
	nfailed = compare_ids(c, t, &r[TEXT], 0, &r[IDS], names[IDS]) +
		  compare_ids(c, t, &r[TEXT], SRT_TOKENIZER_ADD_SPECIAL, &r[IDS_SPECIAL],
			      names[IDS_SPECIAL]) +
		  compare_text(c, t, &r[IDS], 0, &r[DECODED], names[DECODED]) +
		  compare_text(c, t, &r[IDS_SPECIAL], 1, &r[DECODED_SKIP], names[DECODED_SKIP]) +
		  compare_text(c, t, &r[WILD_IDS], 0, &r[WILD_DECODED], names[WILD_DECODED]) +
		  compare_added(c, t);
	for (int i = 0; i < N; i++)
		free_rows(&r[i]);
	srt_tokenizer_close(t);
	srt_file_close(f);
	free(path);
	return nfailed == 0 ? HF_PASS : HF_FAIL;
}
