/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * adapter_config.json of PEFT, read. A key is used, has no influence on results, or must have the
 * value that changes nothing: so keys of later versions are refused unless they do nothing.
 */
#include "config.h"

#include <shardrt/models/lora.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/string.h"
#include "models/try.h"

srt_status_t srt_lora_read(const char *folder, srt_lora_t **lora)
{
	char path[4096], *text;
	srt_status_t status;
	size_t n;

	snprintf(path, sizeof(path), "%s/adapter_config.json", folder);
	SRT_TRY(srt_family_read_text(path, &text, &n));
	status = srt_lora_parse(text, n, path, lora);
	free(text);
	return status;
}

#ifndef HAVE_JANSSON

srt_status_t srt_lora_parse(const char *text, size_t nbytes, const char *path, srt_lora_t **lora)
{
	(void)text;
	(void)nbytes;
	(void)lora;
	return srt_model_fail(SRT_ERR_UNSUPPORTED,
			      "cannot read %s: the library was built without jansson", path);
}

void srt_lora_destroy(srt_lora_t *lora)
{
	(void)lora; /* there is none */
}

#else
#include <jansson.h>

/* The most targets: names of all Linear layers of a large decoder are fewer. */
#define MAX_TARGETS 16384

/* What srt_lora_parse() makes; strings are those of `json`. */
typedef struct parsed {
	srt_lora_t lora; /* first */
	json_t *json;
	const char **targets;
} parsed_t;

void srt_lora_destroy(srt_lora_t *lora)
{
	parsed_t *p = (parsed_t *)lora;

	if (p == NULL)
		return;
	json_decref(p->json);
	free(p->targets);
	free(p);
}

/* ---- keys ------------------------------------------------------------------------------- */

/* Keys that are used, or that change nothing of what an adapter computes: where it is from, how it
 * was trained, and how it began. */
static const char *const accepted[] = { "peft_type",
					"r",
					"lora_alpha",
					"use_rslora",
					"target_modules",
					"bias",
					"init_lora_weights",
					"fan_in_fan_out",
					"lora_dropout",
					"inference_mode",
					"base_model_name_or_path",
					"revision",
					"task_type",
					"peft_version",
					"auto_mapping",
					"megatron_core",
					"qalora_group_size",
					"runtime_config" };

static int is_accepted(const char *key)
{
	for (size_t i = 0; i < sizeof(accepted) / sizeof(accepted[0]); i++)
		if (strcmp(key, accepted[i]) == 0)
			return 1;
	return 0;
}

/* Whether a value switches nothing on. */
static int is_off(const json_t *value)
{
	return json_is_null(value) || json_is_false(value) ||
	       (json_is_object(value) && json_object_size(value) == 0) ||
	       (json_is_array(value) && json_array_size(value) == 0);
}

static srt_status_t refuse(const char *path, const char *key, const json_t *value,
			   const char *possible)
{
	char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
	srt_status_t status;

	for (char *c = text; c != NULL && *c; c++)
		*c = (char)(*c == 0x7f ? '?' : *c); /* the control byte that is not escaped */
	status = srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: '%s' is %.60s, which the library does not have: it can be %s",
				path, srt_string_show(key).text, text != NULL ? text : "?",
				possible);
	free(text);
	return status;
}

static srt_status_t check_keys(const json_t *json, const char *path)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)json, key, value)
	{
		if (!is_accepted(key) && !is_off(value))
			return refuse(path, key, value, "missing, null, false or empty");
	}
	return SRT_OK;
}

/* A key with a word that must be this one; missing: it is. */
static srt_status_t check_word(const json_t *json, const char *path, const char *key,
			       const char *word)
{
	const json_t *value = json_object_get(json, key);
	char possible[32];

	if (value == NULL || (json_is_string(value) && !strcmp(json_string_value(value), word)))
		return SRT_OK;
	snprintf(possible, sizeof(possible), "\"%s\"", word);
	return refuse(path, key, value, possible);
}

/* Some ways to begin change the weights of the base. */
static srt_status_t check_beginning(const json_t *json, const char *path)
{
	const json_t *value = json_object_get(json, "init_lora_weights");

	if (value == NULL || json_is_boolean(value) ||
	    (json_is_string(value) && !strcmp(json_string_value(value), "gaussian")))
		return SRT_OK;
	return refuse(path, "init_lora_weights", value, "true, false or \"gaussian\"");
}

/* ---- values ----------------------------------------------------------------------------- */

static srt_status_t fail_type(const char *path, const char *key, const char *wanted)
{
	return srt_model_fail(SRT_ERR_FORMAT, "%s: '%s' must be %s", path, key, wanted);
}

static srt_status_t read_sizes(parsed_t *p, const char *path)
{
	const json_t *r = json_object_get(p->json, "r");
	const json_t *alpha = json_object_get(p->json, "lora_alpha");
	const json_t *rslora = json_object_get(p->json, "use_rslora");

	/* the defaults of PEFT */
	p->lora.r = r != NULL ? json_integer_value(r) : 8;
	p->lora.alpha = alpha != NULL ? json_number_value(alpha) : 8;
	p->lora.rslora = json_is_true(rslora);
	if (r != NULL && !json_is_integer(r))
		return fail_type(path, "r", "a whole number");
	if (alpha != NULL && !json_is_number(alpha))
		return fail_type(path, "lora_alpha", "a number");
	if (rslora != NULL && !json_is_boolean(rslora))
		return fail_type(path, "use_rslora", "true or false");
	if (p->lora.r < 1 || p->lora.r > SRT_LORA_MAX_R)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "%s: 'r' is %lld, must be from 1 to %d", path,
				      (long long)p->lora.r, SRT_LORA_MAX_R);
	return SRT_OK;
}

static srt_status_t read_list(parsed_t *p, const json_t *list, const char *path)
{
	const size_t n = json_array_size(list);

	if (n < 1 || n > MAX_TARGETS)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "%s: 'target_modules' has %zu names, must have 1 to %d", path,
				      n, MAX_TARGETS);
	p->targets = calloc(n, sizeof(*p->targets));
	if (p->targets == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for %s", path);
	for (size_t i = 0; i < n; i++) {
		p->targets[i] = json_string_value(json_array_get(list, i));
		if (p->targets[i] == NULL)
			return fail_type(path, "target_modules", "a list of names, or a text");
	}
	p->lora.targets = p->targets;
	p->lora.ntargets = n;
	return SRT_OK;
}

static srt_status_t read_targets(parsed_t *p, const char *path)
{
	const json_t *value = json_object_get(p->json, "target_modules");

	if (json_is_array(value))
		return read_list(p, value, path);
	if (!json_is_string(value))
		return fail_type(path, "target_modules", "a list of names, or a text");
	if (strcmp(json_string_value(value), "all-linear") != 0)
		p->lora.pattern = json_string_value(value);
	return SRT_OK;
}

static srt_status_t parse(parsed_t *p, const char *path)
{
	if (!json_is_object(p->json))
		return srt_model_fail(SRT_ERR_FORMAT, "%s is not an object of JSON", path);
	SRT_TRY(check_word(p->json, path, "peft_type", "LORA"));
	SRT_TRY(check_word(p->json, path, "bias", "none"));
	SRT_TRY(check_beginning(p->json, path));
	SRT_TRY(check_keys(p->json, path));
	SRT_TRY(read_sizes(p, path));
	return read_targets(p, path);
}

srt_status_t srt_lora_parse(const char *text, size_t nbytes, const char *path, srt_lora_t **lora)
{
	parsed_t *p = calloc(1, sizeof(*p));
	json_error_t error;
	srt_status_t status;

	if (p == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for %s", path);
	p->json = json_loadb(text, nbytes, JSON_REJECT_DUPLICATES, &error);
	status = p->json == NULL ? srt_model_fail(SRT_ERR_FORMAT, "%s: line %d: %s", path,
						  error.line, srt_string_show(error.text).text) :
				   parse(p, path);
	if (status != SRT_OK) {
		srt_lora_destroy(&p->lora);
		return status;
	}
	*lora = &p->lora;
	return SRT_OK;
}

#endif
