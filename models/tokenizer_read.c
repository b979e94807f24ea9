/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tokenizer.json -> tokenizer. The file is hostile: sizes, ids, depth and what its parts promise to
 * each other are checked. A key that is not known, and a value that is not supported, are refused
 * with its name, since each of them changes ids.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdlib.h>
#include <string.h>

#include "models/tokenizer_impl.h"

#ifdef HAVE_JANSSON
#include <jansson.h>

#include "models/tokenizer_json.h"
#include "models/try.h"

/* Whether arrays and objects have at least 8 bytes on average, as those of a merge have: jansson
 * takes 50 times the length of an empty one. */
static bool has_content(const char *text, size_t nbytes)
{
	size_t n = 0;

	for (size_t i = 0; i < nbytes; i++)
		n += text[i] == '{' || text[i] == '[';
	return n <= 1024 + nbytes / 8;
}

/* ---- model ----------------------------------------------------------------------------------- */

/* Reads an id of `where`. */
static srt_status_t read_id(const char *where, const json_t *json, int32_t *id)
{
	const json_int_t value = json_integer_value(json);

	if (!json_is_integer(json) || value < 0 || value >= SRT_BPE_IDS)
		return srt_model_fail(SRT_ERR_FORMAT,
				      "%s: an id is not a whole number from 0 to %d", where,
				      SRT_BPE_IDS - 1);
	*id = (int32_t)value;
	return SRT_OK;
}

/* One more than the largest id of vocabulary and added tokens. */
static srt_status_t count_ids(json_t *vocab, const json_t *added, size_t *nids)
{
	const char *key;
	json_t *value;
	size_t i;
	int32_t id = 0;

	*nids = 0;
	json_object_foreach(vocab, key, value)
	{
		SRT_TRY(read_id("model.vocab", value, &id));
		*nids = (size_t)id >= *nids ? (size_t)id + 1 : *nids;
	}
	json_array_foreach(added, i, value)
	{
		SRT_TRY(read_id("added_tokens", json_object_get(value, "id"), &id));
		*nids = (size_t)id >= *nids ? (size_t)id + 1 : *nids;
	}
	return SRT_OK;
}

/* The parts of a merge: ["a", "b"], or "a b". */
static srt_status_t read_merge(const json_t *merge, uint32_t rank, srt_bpe_t *bpe)
{
	const char *text = json_string_value(merge), *blank;

	if (json_is_array(merge) && json_array_size(merge) == 2 &&
	    json_is_string(json_array_get(merge, 0)) && json_is_string(json_array_get(merge, 1)))
		return srt_bpe_add_merge(bpe, json_string_value(json_array_get(merge, 0)),
					 json_string_length(json_array_get(merge, 0)),
					 json_string_value(json_array_get(merge, 1)),
					 json_string_length(json_array_get(merge, 1)), rank);
	blank = text != NULL ? strchr(text, ' ') : NULL;
	if (blank == NULL || strchr(blank + 1, ' ') != NULL)
		return srt_model_fail(SRT_ERR_FORMAT,
				      "model.merges: merge %u is not a pair of tokens", rank);
	return srt_bpe_add_merge(bpe, text, (size_t)(blank - text), blank + 1, strlen(blank + 1),
				 rank);
}

static srt_status_t read_merges(const json_t *merges, srt_bpe_t *bpe)
{
	uint32_t rank = 0;
	json_t *merge;
	size_t i;

	json_array_foreach(merges, i, merge)
	{
		const char *text = json_string_value(merge);

		if (text != NULL && strncmp(text, "#version", 8) == 0)
			continue;
		SRT_TRY(read_merge(merge, rank++, bpe));
	}
	return SRT_OK;
}

static srt_status_t read_vocab(json_t *vocab, srt_bpe_t *bpe)
{
	const char *key;
	json_t *value;

	json_object_foreach(vocab, key, value)
	{
		const srt_status_t status = srt_bpe_add_token(bpe, key, strlen(key),
							      (int32_t)json_integer_value(value));

		if (status == SRT_ERR_FORMAT)
			return srt_model_fail(status,
					      "model.vocab: the id of %s belongs to another token",
					      srt_string_show(key).text);
		SRT_TRY(status);
	}
	return SRT_OK;
}

/* What BPE of the Python package can do and is not supported here. */
static srt_status_t check_model(const json_t *model)
{
	static const char *const absent[] = { "continuing_subword_prefix", "end_of_word_suffix" };
	const json_t *type = json_object_get(model, "type");
	const json_t *dropout = json_object_get(model, "dropout");

	SRT_TRY(srt_json_check_keys("model", model,
				    " type dropout unk_token continuing_subword_prefix "
				    "end_of_word_suffix fuse_unk byte_fallback ignore_merges "
				    "vocab merges "));
	/* files of early versions have no type */
	if (type != NULL && strcmp(srt_json_text(type), "BPE") != 0)
		return srt_json_refuse("model", "type", type, "BPE");
	if (dropout != NULL && !json_is_null(dropout) && json_number_value(dropout) != 0)
		return srt_json_refuse("model", "dropout", dropout, "null");
	for (size_t i = 0; i < 2; i++) {
		const json_t *text = json_object_get(model, absent[i]);

		if (text != NULL && !json_is_null(text) && srt_json_text(text)[0] != '\0')
			return srt_json_refuse("model", absent[i], text, "null");
	}
	if (!json_is_object(json_object_get(model, "vocab")) ||
	    !json_is_array(json_object_get(model, "merges")))
		return srt_model_fail(SRT_ERR_FORMAT,
				      "model.vocab is not an object, or model.merges not a list");
	return SRT_OK;
}

static srt_status_t read_model(const json_t *root, srt_tokenizer_t *t)
{
	const json_t *model = json_object_get(root, "model"), *unk, *merges;
	srt_bpe_t *bpe = &t->bpe;
	json_t *vocab;

	SRT_TRY(check_model(model));
	vocab = json_object_get(model, "vocab");
	merges = json_object_get(model, "merges");
	SRT_TRY(count_ids(vocab, json_object_get(root, "added_tokens"), &t->nids));
	SRT_TRY(srt_json_get_bool("model", model, "fuse_unk", false, &bpe->fuse_unk));
	SRT_TRY(srt_json_get_bool("model", model, "byte_fallback", false, &bpe->byte_fallback));
	SRT_TRY(srt_json_get_bool("model", model, "ignore_merges", false, &bpe->ignore_merges));
	SRT_TRY(srt_bpe_create(bpe, t->nids, json_array_size(merges)));
	SRT_TRY(read_vocab(vocab, bpe));
	unk = json_object_get(model, "unk_token");
	if (unk != NULL && !json_is_null(unk)) {
		bpe->unk = srt_bpe_find(bpe, srt_json_text(unk), strlen(srt_json_text(unk)));
		if (bpe->unk < 0)
			return srt_json_refuse("model", "unk_token", unk,
					       "a token of the vocabulary");
	}
	srt_bpe_finish(bpe);
	return read_merges(merges, bpe);
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* Checks text and id of an added token: it may be one of the vocabulary, too. */
static srt_status_t check_added(const srt_tokenizer_t *t, const char *text, int32_t id)
{
	const size_t nbytes = strlen(text);
	const int32_t known = srt_bpe_find(&t->bpe, text, nbytes);

	if (nbytes == 0 || nbytes > SRT_TOKENIZER_ADDED_NBYTES)
		return srt_model_fail(SRT_ERR_UNSUPPORTED,
				      "added_tokens: token %d has %zu bytes, not 1 to %d", id,
				      nbytes, SRT_TOKENIZER_ADDED_NBYTES);
	if (t->added[id].data != NULL || (known >= 0 && known != id) ||
	    (known < 0 && t->bpe.tokens[id].nbytes > 0))
		return srt_model_fail(SRT_ERR_FORMAT,
				      "added_tokens: %s and another token have the same id %d, or "
				      "the same text",
				      srt_string_show(text).text, id);
	return SRT_OK;
}

/* Makes a token's texts. It is decoded to its normal form, and one whose normal form is another
 * text is not skipped as a special token: both as the Python package does. */
static srt_status_t add_texts(srt_tokenizer_t *t, srt_added_t *token, const char *content,
			      srt_matcher_t *matcher)
{
	const size_t nbytes = strlen(content);
	srt_string_t *text = &token->text;

	SRT_TRY(srt_string_append(&token->content, content, nbytes));
	SRT_TRY(srt_string_append(text, content, nbytes));
	if (token->normalized)
		SRT_TRY(srt_tokenizer_normalize(&t->normalizer, matcher, false, text));
	if (text->nbytes == 0)
		return srt_model_fail(SRT_ERR_UNSUPPORTED,
				      "added_tokens: token %d has no normal form", token->id);
	t->special[token->id] = token->special && text->nbytes == nbytes &&
				memcmp(text->data, content, nbytes) == 0;
	return srt_string_append(&t->added[token->id], text->data, text->nbytes);
}

static srt_status_t read_added(const json_t *json, size_t order, srt_matcher_t *matcher,
			       srt_tokenizer_t *t)
{
	const json_t *content = json_object_get(json, "content");
	srt_added_t token = { .order = order };
	srt_added_set_t *set;

	if (!json_is_string(content))
		return srt_model_fail(SRT_ERR_FORMAT, "added_tokens: a token has no content");
	SRT_TRY(srt_json_check_keys("added_tokens", json,
				    " id content single_word lstrip rstrip normalized special "));
	SRT_TRY(read_id("added_tokens", json_object_get(json, "id"), &token.id));
	SRT_TRY(srt_json_get_bool("added_tokens", json, "single_word", false, &token.single_word));
	SRT_TRY(srt_json_get_bool("added_tokens", json, "lstrip", false, &token.lstrip));
	SRT_TRY(srt_json_get_bool("added_tokens", json, "rstrip", false, &token.rstrip));
	SRT_TRY(srt_json_get_bool("added_tokens", json, "normalized", false, &token.normalized));
	SRT_TRY(srt_json_get_bool("added_tokens", json, "special", false, &token.special));
	SRT_TRY(check_added(t, json_string_value(content), token.id));
	if (token.single_word && t->word == NULL)
		SRT_TRY(srt_pattern_create("[\\w\\x{200c}\\x{200d}]", &t->word));
	if (token.special)
		token.order = 0; /* special tokens are searched for first */
	set = token.normalized ? &t->normalized : &t->raw;
	set->tokens[set->n] = token;
	return add_texts(t, &set->tokens[set->n++], json_string_value(content), matcher);
}

/* No two added tokens have the same text. */
static srt_status_t check_texts(const json_t *list)
{
	json_t *seen = json_object(), *token;
	srt_status_t status = SRT_OK;
	size_t i;

	json_array_foreach(list, i, token)
	{
		const char *text = srt_json_text(json_object_get(token, "content"));

		if (json_object_get(seen, text) != NULL)
			status = srt_model_fail(SRT_ERR_FORMAT,
						"added_tokens: two tokens have the text %s",
						srt_string_show(text).text);
		else if (json_object_set_new(seen, text, json_null()) != 0)
			status = srt_model_fail(SRT_ERR_OUT_OF_MEMORY,
						"no host memory for the added tokens");
		if (status != SRT_OK)
			break;
	}
	json_decref(seen);
	return status;
}

static srt_status_t read_all_added(const json_t *root, srt_tokenizer_t *t)
{
	const json_t *list = json_object_get(root, "added_tokens");
	const size_t n = json_array_size(list);
	srt_matcher_t *matcher;
	srt_status_t status = SRT_OK;

	if (list != NULL && !json_is_array(list))
		return srt_model_fail(SRT_ERR_FORMAT, "added_tokens is not a list");
	SRT_TRY(check_texts(list));
	t->added = calloc(t->nids + 1, sizeof(*t->added));
	t->special = calloc(t->nids + 1, sizeof(*t->special));
	t->raw.tokens = calloc(n + 1, sizeof(*t->raw.tokens));
	t->normalized.tokens = calloc(n + 1, sizeof(*t->normalized.tokens));
	if (t->added == NULL || t->special == NULL || t->raw.tokens == NULL ||
	    t->normalized.tokens == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for %zu added tokens",
				      n);
	SRT_TRY(srt_matcher_create(&matcher));
	for (size_t i = 0; i < n && status == SRT_OK; i++)
		status = read_added(json_array_get(list, i), i + 1, matcher, t);
	srt_matcher_destroy(matcher);
	SRT_TRY(status);
	srt_added_sort(&t->raw);
	srt_added_sort(&t->normalized);
	return SRT_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

static srt_status_t read_root(const json_t *root, srt_tokenizer_t *t)
{
	static const char *const absent[] = { "truncation", "padding" };

	if (!json_is_object(root))
		return srt_model_fail(SRT_ERR_FORMAT, "it is not a JSON object");
	SRT_TRY(srt_json_check_keys("tokenizer.json", root,
				    " version truncation padding added_tokens normalizer "
				    "pre_tokenizer post_processor decoder model "));
	for (size_t i = 0; i < 2; i++) {
		const json_t *value = json_object_get(root, absent[i]);

		if (value != NULL && !json_is_null(value))
			return srt_json_refuse("tokenizer.json", absent[i], value, "null");
	}
	SRT_TRY(read_model(root, t));
	SRT_TRY(srt_json_read_normalizer(json_object_get(root, "normalizer"), &t->normalizer));
	SRT_TRY(srt_json_read_pre(json_object_get(root, "pre_tokenizer"), &t->pre));
	SRT_TRY(srt_json_read_decoder(json_object_get(root, "decoder"), &t->decoder));
	t->has_decoder = t->decoder.n > 0;
	SRT_TRY(read_all_added(root, t));
	return srt_json_read_template(json_object_get(root, "post_processor"), t);
}

srt_status_t srt_tokenizer_read(const char *text, size_t nbytes, srt_tokenizer_t *t)
{
	json_error_t error = { .line = 0 };
	srt_status_t status;
	json_t *root;

	if (!has_content(text, nbytes))
		return srt_model_fail(SRT_ERR_FORMAT, "it has too many lists and objects");
	root = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &error);
	if (root == NULL)
		return srt_model_fail(SRT_ERR_FORMAT, "line %d: not JSON, or cut: %s", error.line,
				      srt_string_show(error.text).text);
	status = read_root(root, t);
	json_decref(root);
	return status;
}
#else
srt_status_t srt_tokenizer_read(const char *text, size_t nbytes, srt_tokenizer_t *t)
{
	(void)text, (void)nbytes, (void)t;
	return srt_model_fail(SRT_ERR_UNSUPPORTED,
			      "it needs jansson, but the library was built without it: install it "
			      "(Debian: libjansson-dev) and configure again");
}
#endif
