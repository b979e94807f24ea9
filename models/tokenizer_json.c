/* SPDX-License-Identifier: BSD-3-Clause */
/* The steps of a tokenizer.json: each type is a row of a table, with its keys and a function. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#ifdef HAVE_JANSSON
#include "models/tokenizer_json.h"
#include "models/try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_UTF8PROC
#include <utf8proc.h>
#endif

/* The expression of the byte level, of GPT-2. */
#define BYTE_LEVEL                                                                                 \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define PUNCTUATION "[!-/:-@\\[-`{-~\\p{P}]"

/* The most ids that a template adds on one side of a text. */
#define TEMPLATE_IDS 256

/* ---- values ---------------------------------------------------------------------------------- */

const char *srt_json_text(const json_t *json)
{
	return json_is_string(json) ? json_string_value(json) : "";
}

srt_status_t srt_json_refuse(const char *where, const char *key, const json_t *value,
			     const char *possible)
{
	char shown[80];

	if (json_is_string(value))
		snprintf(shown, sizeof(shown), "\"%s\"",
			 srt_string_show(json_string_value(value)).text);
	else if (json_is_number(value))
		snprintf(shown, sizeof(shown), "%g", json_number_value(value));
	else
		snprintf(shown, sizeof(shown), "%s",
			 value == NULL          ? "missing" :
			 json_is_null(value)    ? "null" :
			 json_is_boolean(value) ? (json_is_true(value) ? "true" : "false") :
			 json_is_array(value)   ? "a list" :
						  "an object");
	return srt_model_fail(SRT_ERR_UNSUPPORTED, "%s.%s is %s; possible is %s", where, key, shown,
			      possible);
}

srt_status_t srt_json_check_keys(const char *where, const json_t *object, const char *keys)
{
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return srt_model_fail(SRT_ERR_FORMAT, "%s is missing, or not an object", where);
	json_object_foreach((json_t *)object, key, value)
	{
		const char *at = strstr(keys, key);
		const size_t n = strlen(key);

		while (at != NULL && n > 0 && (at == keys || at[-1] != ' ' || at[n] != ' '))
			at = strstr(at + 1, key);
		if (at == NULL || n == 0)
			return srt_model_fail(SRT_ERR_UNSUPPORTED,
					      "%s has the key \"%s\", which is not supported; "
					      "possible are%s",
					      where, srt_string_show(key).text, keys);
	}
	return SRT_OK;
}

srt_status_t srt_json_get_bool(const char *where, const json_t *object, const char *key,
			       bool absent, bool *value)
{
	const json_t *json = json_object_get(object, key);

	*value = json != NULL ? json_is_true(json) : absent;
	return json == NULL || json_is_boolean(json) ?
		       SRT_OK :
		       srt_json_refuse(where, key, json, "true or false");
}

/* A number of characters, small. */
static srt_status_t get_count(const char *where, const json_t *object, const char *key, size_t *n)
{
	const json_t *json = json_object_get(object, key);
	const json_int_t value = json_integer_value(json);

	if (!json_is_integer(json) || value < 0 || value > 1000)
		return srt_json_refuse(where, key, json, "a number from 0 to 1000");
	*n = (size_t)value;
	return SRT_OK;
}

/* A text of the step. */
static srt_status_t get_text(const char *where, const json_t *object, const char *key,
			     srt_tokenizer_step_t *step)
{
	const json_t *json = json_object_get(object, key);

	if (!json_is_string(json))
		return srt_json_refuse(where, key, json, "a string");
	return srt_string_append(&step->text, json_string_value(json), json_string_length(json));
}

/* A text of one character. */
static srt_status_t get_char(const char *where, const json_t *object, const char *key,
			     srt_tokenizer_step_t *step)
{
	uint32_t c;

	SRT_TRY(get_text(where, object, key, step));
	if (step->text.nbytes == 0 ||
	    srt_utf8_decode(step->text.data, step->text.nbytes, &c) != (int)step->text.nbytes)
		return srt_json_refuse(where, key, json_object_get(object, key), "one character");
	return SRT_OK;
}

/* {"String": text} or {"Regex": expression}. */
static srt_status_t get_pattern(const char *where, const json_t *object, srt_tokenizer_step_t *step)
{
	const json_t *json = json_object_get(object, "pattern");
	const json_t *text = json_object_get(json, "String");
	const json_t *regex = json_object_get(json, "Regex");

	if (json_object_size(json) == 1 && json_is_string(text) && json_string_length(text) > 0)
		return srt_pattern_create_literal(json_string_value(text), json_string_length(text),
						  &step->pattern);
	if (json_object_size(json) == 1 && json_is_string(regex))
		return srt_pattern_create(json_string_value(regex), &step->pattern);
	return srt_json_refuse(where, "pattern", json,
			       "{\"String\": TEXT} or {\"Regex\": EXPRESSION}");
}

static srt_status_t get_behavior(const char *where, const json_t *object,
				 srt_tokenizer_step_t *step)
{
	static const char *const names[] = {
		[SRT_SPLIT_ISOLATED] = "Isolated",     [SRT_SPLIT_REMOVED] = "Removed",
		[SRT_SPLIT_CONTIGUOUS] = "Contiguous", [SRT_SPLIT_PREVIOUS] = "MergedWithPrevious",
		[SRT_SPLIT_NEXT] = "MergedWithNext",
	};
	const json_t *json = json_object_get(object, "behavior");

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(srt_json_text(json), names[i]) == 0) {
			step->behavior = (srt_tokenizer_behavior_t)i;
			return SRT_OK;
		}
	}
	return srt_json_refuse(where, "behavior", json,
			       "Isolated, Removed, Contiguous, MergedWithPrevious or "
			       "MergedWithNext");
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* A type of step: fills a step, whose kind is set. */
typedef struct {
	const char *type, *keys;
	srt_tokenizer_kind_t kind;
	srt_status_t (*read)(const char *where, const json_t *json, srt_tokenizer_step_t *step);
} type_t;

static srt_status_t read_unicode(const char *where, const json_t *json, srt_tokenizer_step_t *step)
{
#ifdef HAVE_UTF8PROC
	const char *type = srt_json_text(json_object_get(json, "type"));
	const unsigned compatible = type[2] == 'K' ? UTF8PROC_COMPAT : 0;

	(void)where;
	step->flags = UTF8PROC_STABLE | compatible |
		      (type[strlen(type) - 1] == 'C' ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
	return SRT_OK;
#else
	(void)json, (void)step;
	return srt_model_fail(SRT_ERR_UNSUPPORTED,
			      "%s needs utf8proc, but the library was built without it: install "
			      "it (Debian: libutf8proc-dev) and configure again",
			      where);
#endif
}

static srt_status_t read_prepend(const char *where, const json_t *json, srt_tokenizer_step_t *step)
{
	return get_text(where, json, "prepend", step);
}

static srt_status_t read_replace(const char *where, const json_t *json, srt_tokenizer_step_t *step)
{
	SRT_TRY(get_pattern(where, json, step));
	return get_text(where, json, "content", step);
}

static srt_status_t read_split(const char *where, const json_t *json, srt_tokenizer_step_t *step)
{
	SRT_TRY(get_pattern(where, json, step));
	SRT_TRY(get_behavior(where, json, step));
	return srt_json_get_bool(where, json, "invert", false, &step->invert);
}

static srt_status_t read_digits(const char *where, const json_t *json, srt_tokenizer_step_t *step)
{
	bool individual;

	SRT_TRY(srt_json_get_bool(where, json, "individual_digits", false, &individual));
	step->behavior = individual ? SRT_SPLIT_ISOLATED : SRT_SPLIT_CONTIGUOUS;
	return srt_pattern_create("\\p{N}", &step->pattern);
}

static srt_status_t read_punctuation(const char *where, const json_t *json,
				     srt_tokenizer_step_t *step)
{
	if (json_object_get(json, "behavior") != NULL)
		SRT_TRY(get_behavior(where, json, step));
	return srt_pattern_create(PUNCTUATION, &step->pattern);
}

static srt_status_t read_byte_level(const char *where, const json_t *json,
				    srt_tokenizer_step_t *step)
{
	bool use_regex;

	SRT_TRY(srt_json_get_bool(where, json, "add_prefix_space", true, &step->add_blank));
	SRT_TRY(srt_json_get_bool(where, json, "use_regex", true, &use_regex));
	return use_regex ? srt_pattern_create(BYTE_LEVEL, &step->pattern) : SRT_OK;
}

static srt_status_t read_metaspace(const char *where, const json_t *json,
				   srt_tokenizer_step_t *step)
{
	static const char *const schemes[] = {
		[SRT_PREPEND_ALWAYS] = "always",
		[SRT_PREPEND_FIRST] = "first",
		[SRT_PREPEND_NEVER] = "never",
	};
	const json_t *scheme = json_object_get(json, "prepend_scheme");
	bool add_blank;
	size_t i = 0;

	SRT_TRY(get_char(where, json, "replacement", step));
	SRT_TRY(srt_json_get_bool(where, json, "split", true, &step->split));
	SRT_TRY(srt_json_get_bool(where, json, "add_prefix_space", true, &add_blank));
	while (scheme != NULL && i < 3 && strcmp(srt_json_text(scheme), schemes[i]) != 0)
		i++;
	if (i == 3 || (scheme != NULL && !add_blank && i != SRT_PREPEND_NEVER))
		return srt_json_refuse(where, "prepend_scheme", scheme,
				       "always, first or never, as add_prefix_space says");
	step->prepend = add_blank ? (srt_tokenizer_prepend_t)i : SRT_PREPEND_NEVER;
	step->behavior = SRT_SPLIT_NEXT;
	return srt_pattern_create_literal(step->text.data, step->text.nbytes, &step->pattern);
}

static srt_status_t read_plain(const char *where, const json_t *json, srt_tokenizer_step_t *step)
{
	(void)where, (void)json, (void)step;
	return SRT_OK;
}

static srt_status_t read_strip(const char *where, const json_t *json, srt_tokenizer_step_t *step)
{
	SRT_TRY(get_char(where, json, "content", step));
	SRT_TRY(get_count(where, json, "start", &step->start));
	return get_count(where, json, "stop", &step->stop);
}

#define METASPACE_KEYS " type replacement add_prefix_space prepend_scheme split str_rep "
#define BYTE_LEVEL_KEYS " type add_prefix_space trim_offsets use_regex "

/* The rows end with one of type NULL. */
static const type_t normalizers[] = {
	{ "NFC", " type ", SRT_STEP_UNICODE, read_unicode },
	{ "NFD", " type ", SRT_STEP_UNICODE, read_unicode },
	{ "NFKC", " type ", SRT_STEP_UNICODE, read_unicode },
	{ "NFKD", " type ", SRT_STEP_UNICODE, read_unicode },
	{ "Prepend", " type prepend ", SRT_STEP_PREPEND, read_prepend },
	{ "Replace", " type pattern content ", SRT_STEP_REPLACE, read_replace },
	{ .type = NULL },
}, pre_tokenizers[] = {
	{ "ByteLevel", BYTE_LEVEL_KEYS, SRT_STEP_BYTE_LEVEL, read_byte_level },
	{ "Digits", " type individual_digits ", SRT_STEP_SPLIT, read_digits },
	{ "Metaspace", METASPACE_KEYS, SRT_STEP_METASPACE, read_metaspace },
	{ "Punctuation", " type behavior ", SRT_STEP_SPLIT, read_punctuation },
	{ "Split", " type pattern behavior invert ", SRT_STEP_SPLIT, read_split },
	{ .type = NULL },
}, decoders[] = {
	{ "ByteLevel", BYTE_LEVEL_KEYS, SRT_STEP_BYTE_LEVEL, read_plain },
	{ "ByteFallback", " type ", SRT_STEP_BYTE_FALLBACK, read_plain },
	{ "Fuse", " type ", SRT_STEP_FUSE, read_plain },
	{ "Metaspace", METASPACE_KEYS, SRT_STEP_METASPACE, read_metaspace },
	{ "Replace", " type pattern content ", SRT_STEP_REPLACE, read_replace },
	{ "Strip", " type content start stop ", SRT_STEP_STRIP, read_strip },
	{ .type = NULL },
};

static srt_status_t refuse_type(const char *where, const type_t *types, const json_t *json)
{
	char possible[128] = "";

	for (const type_t *t = types; t->type != NULL; t++)
		snprintf(possible + strlen(possible), sizeof(possible) - strlen(possible), "%s, ",
			 t->type);
	snprintf(possible + strlen(possible), sizeof(possible) - strlen(possible), "Sequence");
	return srt_json_refuse(where, "type", json_object_get(json, "type"), possible);
}

static srt_status_t read_step(const char *where, const type_t *types, const json_t *json,
			      srt_tokenizer_steps_t *steps)
{
	const char *type = srt_json_text(json_object_get(json, "type"));

	while (types->type != NULL && strcmp(types->type, type) != 0)
		types++;
	SRT_TRY(srt_json_check_keys(where, json, types->keys));
	if (steps->n == SRT_TOKENIZER_STEPS)
		return srt_model_fail(SRT_ERR_UNSUPPORTED, "%s has more than %d steps", where,
				      SRT_TOKENIZER_STEPS);
	steps->step[steps->n].kind = types->kind;
	return types->read(where, json, &steps->step[steps->n++]);
}

static bool has_type(const type_t *types, const json_t *json)
{
	const char *type = srt_json_text(json_object_get(json, "type"));

	while (types->type != NULL && strcmp(types->type, type) != 0)
		types++;
	return types->type != NULL;
}

/* The list of a Sequence; NULL if json is not one. @return SRT_ERR_FORMAT if it is malformed. */
static srt_status_t get_sequence(const char *where, const json_t *json, const char *key, int depth,
				 const json_t **list)
{
	*list = NULL;
	if (strcmp(srt_json_text(json_object_get(json, "type")), "Sequence") != 0)
		return SRT_OK;
	*list = json_object_get(json, key);
	if (!json_is_array(*list) || json_object_size(json) != 2 || depth == SRT_TOKENIZER_DEPTH)
		return srt_model_fail(SRT_ERR_FORMAT,
				      "%s: a Sequence has no list of %s, or is deeper than %d "
				      "levels",
				      where, key, SRT_TOKENIZER_DEPTH);
	return SRT_OK;
}

static srt_status_t read_steps(const char *where, const type_t *types, const char *list_key,
			       const json_t *json, int depth, srt_tokenizer_steps_t *steps)
{
	const json_t *list;
	json_t *part;
	size_t i;

	if (json == NULL || json_is_null(json))
		return SRT_OK;
	SRT_TRY(get_sequence(where, json, list_key, depth, &list));
	if (list == NULL)
		return has_type(types, json) ? read_step(where, types, json, steps) :
					       refuse_type(where, types, json);
	json_array_foreach(list, i, part)
		SRT_TRY(read_steps(where, types, list_key, part, depth + 1, steps));
	return SRT_OK;
}

srt_status_t srt_json_read_normalizer(const json_t *json, srt_tokenizer_steps_t *steps)
{
	return read_steps("normalizer", normalizers, "normalizers", json, 0, steps);
}

srt_status_t srt_json_read_pre(const json_t *json, srt_tokenizer_steps_t *steps)
{
	return read_steps("pre_tokenizer", pre_tokenizers, "pretokenizers", json, 0, steps);
}

srt_status_t srt_json_read_decoder(const json_t *json, srt_tokenizer_steps_t *steps)
{
	return read_steps("decoder", decoders, "decoders", json, 0, steps);
}

/* ---- templates ------------------------------------------------------------------------------- */

/* Appends the ids of a special token of a template. */
static srt_status_t append_special(const srt_tokenizer_t *t, const json_t *specials,
				   const json_t *piece, int32_t *ids, size_t *n)
{
	const json_t *name = json_object_get(json_object_get(piece, "SpecialToken"), "id");
	const json_t *list = json_object_get(json_object_get(specials, srt_json_text(name)), "ids");
	json_t *value;
	size_t i;

	if (!json_is_array(list))
		return srt_model_fail(SRT_ERR_FORMAT,
				      "post_processor.special_tokens has no ids of \"%s\"",
				      srt_string_show(srt_json_text(name)).text);
	json_array_foreach(list, i, value)
	{
		const json_int_t id = json_integer_value(value);

		if (!json_is_integer(value) || id < 0 || (size_t)id >= t->nids)
			return srt_model_fail(SRT_ERR_FORMAT,
					      "post_processor.special_tokens has an id that is "
					      "not one of a token");
		if (*n == TEMPLATE_IDS)
			return srt_model_fail(SRT_ERR_UNSUPPORTED,
					      "post_processor adds more than %d tokens",
					      TEMPLATE_IDS);
		ids[(*n)++] = (int32_t)id;
	}
	return SRT_OK;
}

/* Puts ids before *ids (which moves) or after them. */
static srt_status_t join_ids(int32_t **ids, size_t *nids, const int32_t *added, size_t n,
			     bool before)
{
	int32_t *joined = malloc((*nids + n + 1) * sizeof(*joined));

	if (joined == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for a template");
	if (*nids > 0)
		memcpy(joined + (before ? n : 0), *ids, *nids * sizeof(*joined));
	memcpy(joined + (before ? 0 : *nids), added, n * sizeof(*joined));
	free(*ids);
	*ids = joined;
	*nids += n;
	return SRT_OK;
}

/* TemplateProcessing of one text: special tokens, the text once, special tokens. */
static srt_status_t read_template(const json_t *json, srt_tokenizer_t *t)
{
	const json_t *single = json_object_get(json, "single");
	const json_t *specials = json_object_get(json, "special_tokens");
	int32_t ids[2][TEMPLATE_IDS];
	size_t n[2] = { 0, 0 }, i;
	int side = 0; /* 1: after the text */
	json_t *piece;

	SRT_TRY(srt_json_check_keys("post_processor", json, " type single pair special_tokens "));
	json_array_foreach(single, i, piece)
	{
		const json_t *text = json_object_get(piece, "Sequence");

		if (json_object_get(piece, "SpecialToken") != NULL) {
			SRT_TRY(append_special(t, specials, piece, ids[side], &n[side]));
			continue;
		}
		side += strcmp(srt_json_text(json_object_get(text, "id")), "A") == 0 ? 1 : 2;
		if (side > 1)
			break;
	}
	if (side != 1)
		return srt_json_refuse("post_processor", "single", single,
				       "a list of SpecialToken and one Sequence \"A\"");
	SRT_TRY(join_ids(&t->prefix, &t->nprefix, ids[0], n[0], true));
	return join_ids(&t->suffix, &t->nsuffix, ids[1], n[1], false);
}

static srt_status_t read_processor(const json_t *json, int depth, size_t *n, srt_tokenizer_t *t)
{
	const json_t *type = json_object_get(json, "type"), *list;
	json_t *part;
	size_t i;

	if (json == NULL || json_is_null(json) || strcmp(srt_json_text(type), "ByteLevel") == 0)
		return SRT_OK; /* a byte level changes offsets alone */
	SRT_TRY(get_sequence("post_processor", json, "processors", depth, &list));
	if (list == NULL && strcmp(srt_json_text(type), "TemplateProcessing") != 0)
		return srt_json_refuse("post_processor", "type", type,
				       "ByteLevel, TemplateProcessing, Sequence");
	if (list == NULL && ++*n > SRT_TOKENIZER_STEPS)
		return srt_model_fail(SRT_ERR_UNSUPPORTED, "post_processor has more than %d steps",
				      SRT_TOKENIZER_STEPS);
	if (list == NULL)
		return read_template(json, t);
	json_array_foreach(list, i, part) SRT_TRY(read_processor(part, depth + 1, n, t));
	return SRT_OK;
}

srt_status_t srt_json_read_template(const json_t *json, srt_tokenizer_t *t)
{
	size_t n = 0;

	return read_processor(json, 0, &n, t);
}
#endif
