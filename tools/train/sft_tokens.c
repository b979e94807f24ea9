/* SPDX-License-Identifier: BSD-3-Clause */
/* The tokens that begin and end a text, in the files of a tokenizer; see data.h. */
#include "config.h"

#include "tools/train/data.h"

#include <sys/stat.h>

#include "tools/model_folder.h"

/* The largest tokenizer_config.json that is read: jansson takes up to 50 times as much. */
#define MOST_NBYTES (8 << 20)

#ifdef HAVE_JANSSON
#include <jansson.h>

/* A token's text, or an object that has it as its content: a token of the tokenizer, -1 if it is
 * neither. */
static int32_t find_text(const json_t *json, const srt_tokenizer_t *tokenizer)
{
	if (json_is_object(json))
		json = json_object_get(json, "content");
	return json_is_string(json) ? srt_tokenizer_find(tokenizer, json_string_value(json)) : -1;
}

/* An id, or the first one of a list; -1 if it is neither. */
static int32_t find_id(const json_t *json)
{
	if (json_is_array(json))
		json = json_array_get(json, 0);
	return json_is_integer(json) && json_integer_value(json) >= 0 &&
			       json_integer_value(json) <= INT32_MAX ?
		       (int32_t)json_integer_value(json) :
		       -1;
}

/* The object of a tokenizer_config.json. @return NULL with t->why. */
static json_t *read_config(trainer_t *t, const char *path)
{
	json_error_t error;
	json_t *json;
	struct stat st;

	if (stat(path, &st) == 0 && (!S_ISREG(st.st_mode) || st.st_size > MOST_NBYTES)) {
		tool_why_usage(&t->why, "--sft: %s is not a file of at most %d bytes", path,
			       MOST_NBYTES);
		return NULL;
	}
	/* model_max_length may be larger than any integer */
	json = json_load_file(path, JSON_DECODE_INT_AS_REAL, &error);
	if (json == NULL)
		tool_why_usage(&t->why, "--sft: %s, line %d: %s", path, error.line, error.text);
	return json;
}

int trainer_find_special(trainer_t *t, const srt_tokenizer_t *tokenizer, int32_t *bos, int32_t *eos)
{
	char path[TOOL_CONFIG_NBYTES];
	json_error_t error;
	json_t *json;

	*bos = *eos = -1;
	if (tool_model_find_file(&t->model, "tokenizer_config.json", path)) {
		json = read_config(t, path);
		if (json == NULL)
			return -1;
		*bos = find_text(json_object_get(json, "bos_token"), tokenizer);
		*eos = find_text(json_object_get(json, "eos_token"), tokenizer);
		json_decref(json);
	}
	json = t->model.config_text != NULL ? json_loads(t->model.config_text, 0, &error) : NULL;
	if (*bos < 0)
		*bos = find_id(json_object_get(json, "bos_token_id"));
	if (*eos < 0)
		*eos = find_id(json_object_get(json, "eos_token_id"));
	json_decref(json);
	return 0;
}
#else
int trainer_find_special(trainer_t *t, const srt_tokenizer_t *tokenizer, int32_t *bos, int32_t *eos)
{
	(void)t, (void)tokenizer;
	*bos = *eos = -1;
	return 0;
}
#endif
