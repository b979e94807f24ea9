/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tokenizer.json -> tokenizer.ggml.pre. llama.cpp's converter encodes a text and looks up a hash of
 * the ids, so it knows the tokenizers in its list. Here the expression that cuts a text decides,
 * which is what readers do differently for each name: a tokenizer with new tokens and a known
 * expression has a name. What readers leave out is normal form NFC: llama.cpp encodes a text as it
 * is.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifdef HAVE_JANSSON
#include "models/gguf_pre.h"

#include <stdlib.h>
#include <string.h>

#include "models/tokenizer_json.h"
#include "models/try.h"

/* Steps that are looked at; a file with more has none of the kinds. */
#define MOST 4

#define BLANK "\xe2\x96\x81" /* U+2581, for a blank */
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define FIRST "[^\\r\\n\\p{L}\\p{N}]?"

/* Splits before a byte level. Readers skip merges for a token of the vocabulary where the name says
 * so. */
static const struct {
	const char *expression;
	bool ignores_merges;
	const char *pre;
} splits[] = {
	{ SHORT "|" WORD "|\\p{N}{1,3}|" REST, true, "llama-bpe" },
	{ SHORT "|" WORD "|\\p{N}{1,3}|" REST, false, "dbrx" },
	{ SHORT "|" WORD "|\\p{N}|" REST, false, "qwen2" },
	{ FIRST UPPER "*" LOWER "+|" FIRST UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]"
		      "*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
	  true, "tekken" },
};

/* The steps of a normalizer or pre-tokenizer, out of their sequence. */
typedef struct steps {
	const json_t *step[MOST];
	size_t n; /* MOST + 1: more, or deeper */
} steps_t;

static const char *type_of(const json_t *step)
{
	return srt_json_text(json_object_get(step, "type"));
}

static bool is_type(const json_t *step, const char *type)
{
	return strcmp(type_of(step), type) == 0;
}

static steps_t list_steps(const json_t *json, const char *key)
{
	steps_t s = { .n = 0 };
	const json_t *list = json_object_get(json, key);
	json_t *step;
	size_t i;

	if (json == NULL || json_is_null(json))
		return s;
	if (!is_type(json, "Sequence")) {
		s.step[s.n++] = json;
		return s;
	}
	json_array_foreach(list, i, step)
	{
		if (s.n == MOST || is_type(step, "Sequence")) {
			s.n = MOST + 1;
			return s;
		}
		s.step[s.n++] = step;
	}
	return s;
}

static bool get_bool(const json_t *step, const char *key, bool absent)
{
	const json_t *value = json_object_get(step, key);

	return value != NULL ? json_is_true(value) : absent;
}

static bool has_text(const json_t *object, const char *key, const char *text)
{
	return strcmp(srt_json_text(json_object_get(object, key)), text) == 0;
}

/* A replacement of blanks, or a split at them. */
static bool is_of_blanks(const json_t *step, const char *type)
{
	return is_type(step, type) && has_text(json_object_get(step, "pattern"), "String", " ");
}

/* ---- byte-level BPE --------------------------------------------------------------------- */

static srt_status_t refuse(const char *where, const json_t *json)
{
	char *text = json != NULL ? json_dumps(json, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
	const srt_status_t status =
		srt_model_fail(SRT_ERR_UNSUPPORTED,
			       "readers of GGUF know no tokenizer whose %s is %s%s; possible are "
			       "those of GPT-2, SmolLM, Llama 2 and 3, Qwen 2 and 3, OLMo 2, Gemma "
			       "and Mistral",
			       where, text != NULL ? srt_string_show(text).text : "missing",
			       text != NULL && strlen(text) > 60 ? "..." : "");

	free(text);
	return status;
}

static bool is_byte_level(const json_t *step, bool cuts)
{
	return is_type(step, "ByteLevel") && !get_bool(step, "add_prefix_space", true) &&
	       get_bool(step, "use_regex", true) == cuts;
}

/* Each match is a piece; what is between matches is nothing, as the expressions match all. */
static bool is_split(const json_t *step)
{
	return is_type(step, "Split") &&
	       ((has_text(step, "behavior", "Isolated") && !get_bool(step, "invert", false)) ||
		(has_text(step, "behavior", "Removed") && get_bool(step, "invert", false)));
}

static const char *find_split(const json_t *step, bool ignores_merges)
{
	const json_t *pattern = json_object_get(step, "pattern");

	for (size_t i = 0; is_split(step) && i < sizeof(splits) / sizeof(splits[0]); i++)
		if (has_text(pattern, "Regex", splits[i].expression) &&
		    splits[i].ignores_merges == ignores_merges)
			return splits[i].pre;
	return NULL;
}

static srt_status_t find_byte_level(const json_t *root, const srt_tokenizer_t *t,
				    srt_gguf_pre_t *pre)
{
	const json_t *normalizer = json_object_get(root, "normalizer");
	const json_t *json = json_object_get(root, "pre_tokenizer");
	const steps_t before = list_steps(normalizer, "normalizers");
	const steps_t s = list_steps(json, "pretokenizers");
	const bool ignores = t->bpe.ignore_merges;

	*pre = (srt_gguf_pre_t){ .model = "gpt2" };
	if (before.n > 1 || (before.n == 1 && !is_type(before.step[0], "NFC")))
		return refuse("normalizer", normalizer);
	if (s.n == 1 && is_byte_level(s.step[0], true) && !ignores)
		pre->pre = "gpt-2";
	else if (s.n == 2 && is_type(s.step[0], "Digits") &&
		 get_bool(s.step[0], "individual_digits", false) &&
		 is_byte_level(s.step[1], true) && !ignores)
		pre->pre = "smollm";
	else if (s.n == 2 && is_byte_level(s.step[1], false))
		pre->pre = find_split(s.step[0], ignores);
	if (pre->pre != NULL)
		return SRT_OK;
	return refuse(ignores ? "pre_tokenizer, with ignore_merges," : "pre_tokenizer", json);
}

/* ---- BPE with byte fallback ------------------------------------------------------------- */

/* Blanks become U+2581, one of which may be put before the text. */
static bool read_normalizer(const steps_t *s, bool *replaces, bool *add_space)
{
	for (size_t i = 0; i < s->n && i < MOST; i++) {
		if (is_of_blanks(s->step[i], "Replace") && has_text(s->step[i], "content", BLANK))
			*replaces = true;
		else if (is_type(s->step[i], "Prepend") && has_text(s->step[i], "prepend", BLANK))
			*add_space = true;
		else
			return false;
	}
	return s->n <= MOST;
}

static bool read_pre(const steps_t *s, bool *replaces, bool *add_space)
{
	for (size_t i = 0; i < s->n && i < MOST; i++) {
		const json_t *step = s->step[i];

		if (is_type(step, "Metaspace") && has_text(step, "replacement", BLANK) &&
		    !get_bool(step, "split", true)) {
			*replaces = true;
			*add_space |= !has_text(step, "prepend_scheme", "never") &&
				      get_bool(step, "add_prefix_space", true);
		} else if (!is_of_blanks(step, "Split") || !*replaces) {
			return false; /* a split at blanks that are gone does nothing */
		}
	}
	return s->n <= MOST;
}

static srt_status_t find_fallback(const json_t *root, const srt_tokenizer_t *t, srt_gguf_pre_t *pre)
{
	const json_t *normalizer = json_object_get(root, "normalizer");
	const json_t *json = json_object_get(root, "pre_tokenizer");
	const steps_t before = list_steps(normalizer, "normalizers");
	const steps_t s = list_steps(json, "pretokenizers");
	bool replaces = false;

	*pre = (srt_gguf_pre_t){ .model = "llama", .pre = "default" };
	if (!read_normalizer(&before, &replaces, &pre->add_space))
		return refuse("normalizer", normalizer);
	if (!read_pre(&s, &replaces, &pre->add_space) || !replaces)
		return refuse("pre_tokenizer", json);
	for (int i = 0; i < 256; i++)
		if (t->bpe.byte_ids[i] < 0)
			return srt_model_fail(SRT_ERR_UNSUPPORTED,
					      "readers of GGUF expect a token for each byte, but "
					      "there is no <0x%02X>",
					      (unsigned)i);
	return t->bpe.ignore_merges ? refuse("model.ignore_merges", json_true()) : SRT_OK;
}

srt_status_t srt_gguf_find_pre(const json_t *root, const srt_tokenizer_t *t, srt_gguf_pre_t *pre)
{
	return t->bpe.byte_fallback ? find_fallback(root, t, pre) : find_byte_level(root, t, pre);
}
#else
typedef int srt_gguf_pre_needs_jansson_t;
#endif
