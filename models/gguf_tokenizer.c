/* SPDX-License-Identifier: BSD-3-Clause */
/* The tokenizer of a model as keys of a GGUF file: tokens, merges or scores, special tokens. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "models/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/tokenizer_impl.h"
#include "models/try.h"

#ifdef HAVE_JANSSON
#include "models/gguf_pre.h"
#include "models/tokenizer_json.h"

/* Types of tokens, with the numbers of the format. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

/* Scores of tokens that no merge makes: llama.cpp's for added and for missing tokens. */
#define ADDED_SCORE (-1000.0f)
#define UNUSED_SCORE (-10000.0f)

typedef struct writer {
	srt_gguf_keys_t *keys;
	const char *folder;
	const srt_tokenizer_t *t;
	size_t vocab;
	srt_gguf_pre_t pre;
	const srt_added_t **added; /* (vocab) NULL: not an added token; owned */
	int32_t *types;            /* (vocab), owned */
	float *scores;             /* (vocab), owned */
	srt_bpe_merge_t *merges;   /* (nmerges) by rank, owned */
	size_t nmerges;
	json_t *settings, *config; /* tokenizer_config.json, config.json; NULL: none; owned */
} writer_t;

static srt_status_t no_memory(void)
{
	return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for the tokens of a file");
}

/* ---- tokens ----------------------------------------------------------------------------- */

static void mark_added(writer_t *w, const srt_added_set_t *set)
{
	for (size_t i = 0; i < set->n; i++)
		w->added[set->tokens[i].id] = &set->tokens[i];
}

static int32_t find_type(const writer_t *w, size_t id)
{
	const srt_tokenizer_t *t = w->t;

	if (t->bpe.byte_fallback && (int32_t)id == t->bpe.unk)
		return TOKEN_UNKNOWN;
	if (w->added[id] != NULL)
		return w->added[id]->special ? TOKEN_CONTROL : TOKEN_USER;
	if (id >= t->nids || t->bpe.tokens[id].nbytes == 0)
		return TOKEN_UNUSED;
	for (int i = 0; t->bpe.byte_fallback && i < 256; i++)
		if (t->bpe.byte_ids[i] == (int32_t)id)
			return TOKEN_BYTE;
	return TOKEN_NORMAL;
}

static srt_status_t put_tokens(const writer_t *w)
{
	const srt_bpe_t *bpe = &w->t->bpe;

	SRT_TRY(srt_gguf_begin_strings(w->keys, "tokenizer.ggml.tokens", w->vocab));
	for (size_t id = 0; id < w->vocab; id++) {
		char missing[32];

		if (w->added[id] != NULL) {
			SRT_TRY(srt_gguf_add_string(w->keys, w->added[id]->content.data,
						    w->added[id]->content.nbytes));
		} else if (w->types[id] != TOKEN_UNUSED) {
			SRT_TRY(srt_gguf_add_string(w->keys,
						    bpe->text.data + bpe->tokens[id].offset,
						    bpe->tokens[id].nbytes));
		} else {
			snprintf(missing, sizeof(missing), "[PAD%zu]", id);
			SRT_TRY(srt_gguf_add_string(w->keys, missing, strlen(missing)));
		}
	}
	return SRT_OK;
}

/* ---- merges ----------------------------------------------------------------------------- */

static int compare_rank(const void *a, const void *b)
{
	const srt_bpe_merge_t *x = a, *y = b;

	return (x->rank > y->rank) - (x->rank < y->rank);
}

static srt_status_t sort_merges(writer_t *w)
{
	const srt_bpe_t *bpe = &w->t->bpe;

	w->merges = malloc((bpe->nmerges + 1) * sizeof(*w->merges));
	if (w->merges == NULL)
		return no_memory();
	for (size_t i = 0; i < bpe->nmerges; i++)
		if (bpe->merges[i].pair != UINT64_MAX)
			w->merges[w->nmerges++] = bpe->merges[i];
	qsort(w->merges, w->nmerges, sizeof(*w->merges), compare_rank);
	return SRT_OK;
}

/* "LEFT RIGHT" of each, in their order. */
static srt_status_t put_merges(const writer_t *w)
{
	const srt_bpe_t *bpe = &w->t->bpe;
	srt_string_t text = { .nbytes = 0 };
	srt_status_t status = srt_gguf_begin_strings(w->keys, "tokenizer.ggml.merges", w->nmerges);

	for (size_t i = 0; i < w->nmerges && status == SRT_OK; i++) {
		const srt_bpe_token_t left = bpe->tokens[w->merges[i].pair >> 32];
		const srt_bpe_token_t right = bpe->tokens[(uint32_t)w->merges[i].pair];

		text.nbytes = 0;
		if (memchr(bpe->text.data + left.offset, ' ', left.nbytes) != NULL ||
		    memchr(bpe->text.data + right.offset, ' ', right.nbytes) != NULL)
			status = srt_model_fail(SRT_ERR_UNSUPPORTED,
						"model.merges: merge %zu has a blank, which GGUF "
						"has between the two tokens of a merge",
						i);
		if (status == SRT_OK)
			status =
				srt_string_append(&text, bpe->text.data + left.offset, left.nbytes);
		if (status == SRT_OK)
			status = srt_string_append(&text, " ", 1);
		if (status == SRT_OK)
			status = srt_string_append(&text, bpe->text.data + right.offset,
						   right.nbytes);
		if (status == SRT_OK)
			status = srt_gguf_add_string(w->keys, text.data, text.nbytes);
	}
	free(text.data);
	return status;
}

/* ---- scores ----------------------------------------------------------------------------- */

/*
 * Readers join the pair whose token has the largest score, as SentencePiece, whose models have 0,
 * -1, -2 ... in the order of merges, then the characters. All merges that make a token follow each
 * other in a tokenizer.json that was made from such a model; only added tokens may have equal
 * scores there.
 */
static srt_status_t score_merges(writer_t *w, size_t *n)
{
	int32_t last = -1;

	for (size_t i = 0; i < w->nmerges; i++) {
		const int32_t id = w->merges[i].id;

		if (id == last)
			continue;
		if (w->scores[id] <= 0 && w->added[id] == NULL)
			return srt_model_fail(SRT_ERR_UNSUPPORTED,
					      "model.merges: merges that make token %d are not "
					      "together, so readers of GGUF, which have one score "
					      "of it, would join other pairs",
					      id);
		if (w->scores[id] > 0)
			w->scores[id] = -(float)(*n)++;
		last = id;
	}
	return SRT_OK;
}

static srt_status_t put_scores(writer_t *w)
{
	size_t n = 0;

	for (size_t id = 0; id < w->vocab; id++)
		w->scores[id] = 1; /* none yet */
	SRT_TRY(score_merges(w, &n));
	for (size_t id = 0; id < w->vocab; id++) {
		if (w->types[id] == TOKEN_UNUSED)
			w->scores[id] = UNUSED_SCORE;
		else if (w->types[id] == TOKEN_NORMAL && w->scores[id] > 0)
			w->scores[id] = -(float)n++;
		else if (w->types[id] == TOKEN_USER && w->scores[id] > 0)
			w->scores[id] = ADDED_SCORE;
		else if (w->types[id] != TOKEN_NORMAL && w->types[id] != TOKEN_USER)
			w->scores[id] = 0;
	}
	SRT_TRY(srt_gguf_put_f32s(w->keys, "tokenizer.ggml.scores", w->scores, w->vocab));
	return srt_gguf_put_bool(w->keys, "tokenizer.ggml.add_space_prefix", w->pre.add_space);
}

/* ---- special tokens --------------------------------------------------------------------- */

/* The id of a special token that tokenizer_config.json names; -1 for none. */
static int32_t find_named(const writer_t *w, const char *kind)
{
	const json_t *entry;
	char key[32];

	snprintf(key, sizeof(key), "%s_token", kind);
	entry = json_object_get(w->settings, key);
	if (json_is_object(entry))
		entry = json_object_get(entry, "content");
	return json_is_string(entry) ? srt_tokenizer_find(w->t, json_string_value(entry)) : -1;
}

/* The id of a special token in config.json; -1 for none. */
static int32_t find_numbered(const writer_t *w, const char *kind)
{
	const json_t *entry;
	char key[32];

	snprintf(key, sizeof(key), "%s_token_id", kind);
	entry = json_object_get(w->config, key);
	return json_is_integer(entry) && json_integer_value(entry) >= 0 &&
			       json_integer_value(entry) < (json_int_t)w->vocab ?
		       (int32_t)json_integer_value(entry) :
		       -1;
}

/* What is put before or after a text: nothing, or the token of the beginning or the end. */
static srt_status_t put_added(const writer_t *w, const char *kind, const int32_t *ids, size_t n,
			      int32_t *special)
{
	const json_t *setting;
	char key[48];
	bool adds = n == 1;

	if (n == 1 && *special < 0)
		*special = ids[0];
	if (n > 1 || (n == 1 && ids[0] != *special))
		return srt_model_fail(SRT_ERR_UNSUPPORTED,
				      "post_processor adds tokens that are not the %s_token of "
				      "tokenizer_config.json, which GGUF cannot have",
				      kind);
	snprintf(key, sizeof(key), "add_%s_token", kind);
	setting = json_object_get(w->settings, key);
	if (json_is_boolean(setting))
		adds = json_is_true(setting);
	snprintf(key, sizeof(key), "tokenizer.ggml.add_%s_token", kind);
	return srt_gguf_put_bool(w->keys, key, adds);
}

static srt_status_t put_specials(const writer_t *w)
{
	static const struct {
		const char *kind, *key;
	} specials[] = { { "bos", "tokenizer.ggml.bos_token_id" },
			 { "eos", "tokenizer.ggml.eos_token_id" },
			 { "unk", "tokenizer.ggml.unknown_token_id" },
			 { "pad", "tokenizer.ggml.padding_token_id" } };
	int32_t ids[4];

	for (int i = 0; i < 4; i++)
		ids[i] = find_named(w, specials[i].kind);
	SRT_TRY(put_added(w, "bos", w->t->prefix, w->t->nprefix, &ids[0]));
	SRT_TRY(put_added(w, "eos", w->t->suffix, w->t->nsuffix, &ids[1]));
	if (ids[2] < 0)
		ids[2] = w->t->bpe.unk;
	for (int i = 0; i < 4; i++) {
		if (ids[i] < 0)
			ids[i] = find_numbered(w, specials[i].kind);
		if (ids[i] >= 0)
			SRT_TRY(srt_gguf_put_u32(w->keys, specials[i].key, (uint32_t)ids[i]));
	}
	return SRT_OK;
}

/* ---- other files of the folder ---------------------------------------------------------- */

/* A text of a file, NULL if it is not there; freed by the caller. */
static srt_status_t read_text(const char *folder, const char *name, char **text, size_t *nbytes)
{
	char path[4096];
	srt_status_t status;

	*text = NULL;
	*nbytes = 0;
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	status = srt_family_read_text(path, text, nbytes);
	return status == SRT_ERR_NOT_FOUND ? SRT_OK : status;
}

static srt_status_t read_object(const char *folder, const char *name, size_t flags, json_t **object)
{
	json_error_t error;
	size_t nbytes;
	char *text;

	*object = NULL;
	SRT_TRY(read_text(folder, name, &text, &nbytes));
	if (text == NULL)
		return SRT_OK;
	*object = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES | flags, &error);
	free(text);
	if (json_is_object(*object))
		return SRT_OK;
	return srt_model_fail(SRT_ERR_FORMAT, "%s/%s: line %d: it is not a JSON object", folder,
			      name, *object == NULL ? error.line : 1);
}

/* The chat template; of several the one that is called default. */
static const json_t *find_template(const json_t *settings)
{
	const json_t *value = json_object_get(settings, "chat_template");
	json_t *entry;
	size_t i;

	json_array_foreach(value, i,
			   entry) if (strcmp(srt_json_text(json_object_get(entry, "name")),
					     "default") == 0) return json_object_get(entry,
										     "template");
	return value;
}

static srt_status_t put_template(const writer_t *w)
{
	const json_t *json = find_template(w->settings);
	srt_status_t status = SRT_OK;
	size_t nbytes;
	char *text;

	if (json_is_string(json))
		return srt_gguf_put_string(w->keys, "tokenizer.chat_template",
					   json_string_value(json), json_string_length(json));
	SRT_TRY(read_text(w->folder, "chat_template.jinja", &text, &nbytes));
	if (text != NULL && srt_utf8_find_invalid(text, nbytes) < nbytes)
		status = srt_model_fail(SRT_ERR_FORMAT, "%s/chat_template.jinja is not UTF-8",
					w->folder);
	else if (text != NULL)
		status = srt_gguf_put_string(w->keys, "tokenizer.chat_template", text, nbytes);
	free(text);
	return status;
}

/* ---- the tokenizer ---------------------------------------------------------------------- */

static srt_status_t put_all(writer_t *w)
{
	SRT_TRY(srt_gguf_put_string(w->keys, "tokenizer.ggml.model", w->pre.model,
				    strlen(w->pre.model)));
	SRT_TRY(srt_gguf_put_string(w->keys, "tokenizer.ggml.pre", w->pre.pre, strlen(w->pre.pre)));
	w->added = calloc(w->vocab + 1, sizeof(*w->added));
	w->types = calloc(w->vocab + 1, sizeof(*w->types));
	w->scores = calloc(w->vocab + 1, sizeof(*w->scores));
	if (w->added == NULL || w->types == NULL || w->scores == NULL)
		return no_memory();
	mark_added(w, &w->t->raw);
	mark_added(w, &w->t->normalized);
	for (size_t id = 0; id < w->vocab; id++)
		w->types[id] = find_type(w, id);
	SRT_TRY(put_tokens(w));
	SRT_TRY(srt_gguf_put_i32s(w->keys, "tokenizer.ggml.token_type", w->types, w->vocab));
	SRT_TRY(sort_merges(w));
	SRT_TRY(w->t->bpe.byte_fallback ? put_scores(w) : put_merges(w));
	return put_specials(w);
}

static srt_status_t put_file(writer_t *w)
{
	char path[4096];
	json_t *root;
	srt_status_t status;

	if (w->t->nids > w->vocab)
		return srt_model_fail(SRT_ERR_UNSUPPORTED,
				      "the tokenizer has ids up to %zu, but the model has a "
				      "vocabulary of %zu",
				      w->t->nids - 1, w->vocab);
	if (w->vocab > SRT_BPE_IDS)
		return srt_model_fail(SRT_ERR_UNSUPPORTED,
				      "the model has a vocabulary of %zu, a tokenizer at most %d",
				      w->vocab, SRT_BPE_IDS);
	snprintf(path, sizeof(path), "%s/tokenizer.json", w->folder);
	root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
	if (root == NULL)
		return srt_model_fail(SRT_ERR_IO, "it cannot be read again");
	status = srt_gguf_find_pre(root, w->t, &w->pre);
	json_decref(root);
	return status == SRT_OK ? put_all(w) : status;
}

srt_status_t srt_gguf_put_tokenizer(srt_gguf_keys_t *keys, const char *folder, int64_t vocab)
{
	writer_t w = { .keys = keys, .folder = folder, .vocab = (size_t)vocab };
	srt_tokenizer_t *t;
	srt_status_t status;

	SRT_TRY(srt_tokenizer_open(folder, &t));
	w.t = t;
	/* model_max_length of many folders is 10^30 */
	status = read_object(folder, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL, &w.settings);
	if (status == SRT_OK)
		status = read_object(folder, "config.json", 0, &w.config);
	if (status == SRT_OK) {
		status = put_file(&w);
		if (status != SRT_OK) {
			char why[512];

			snprintf(why, sizeof(why), "%s", srt_error_last());
			status = srt_model_fail(status, "%s/tokenizer.json: %s", folder, why);
		}
	}
	if (status == SRT_OK)
		status = put_template(&w);
	json_decref(w.settings);
	json_decref(w.config);
	free((void *)w.added);
	free(w.types);
	free(w.scores);
	free(w.merges);
	srt_tokenizer_close(t);
	return status;
}

#else

srt_status_t srt_gguf_put_tokenizer(srt_gguf_keys_t *keys, const char *folder, int64_t vocab)
{
	(void)keys;
	(void)vocab;
	return srt_model_fail(SRT_ERR_UNSUPPORTED,
			      "cannot read the tokenizer of %s: the library was built without "
			      "jansson",
			      folder);
}
#endif
