/* SPDX-License-Identifier: BSD-3-Clause */
/* The tokens that end a text: eos_token_id, a number or a list; see generate.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_JANSSON
#include <jansson.h>
#endif

#include "tools/generate/generate.h"
#include "tools/model_folder.h"

#ifdef HAVE_JANSSON
/* Adds a token. @return whether it is one. */
static bool add_token(generate_run_t *run, const json_t *token)
{
	if (!json_is_integer(token) || json_integer_value(token) < 0 ||
	    json_integer_value(token) > INT32_MAX || run->neos == GENERATE_MOST_EOS)
		return false;
	run->eos[run->neos++] = (int32_t)json_integer_value(token);
	return true;
}

/* The tokens in the text of a file. @param path for messages. @return 1: it has some. */
static int parse_tokens(generate_run_t *run, const char *text, size_t nbytes, const char *path)
{
	json_error_t error = { .line = 0 };
	json_t *json = json_loadb(text, nbytes, 0, &error);
	const json_t *eos = json_object_get(json, "eos_token_id");
	bool good = json != NULL, has = eos != NULL && !json_is_null(eos);

	if (json_is_array(eos))
		for (size_t i = 0; i < json_array_size(eos); i++)
			good = add_token(run, json_array_get(eos, i)) && good;
	else if (has)
		good = add_token(run, eos);
	json_decref(json);
	if (good)
		return has;
	return tool_why_usage(&run->why,
			      "%s: eos_token_id must be a token, or a list of at most %d tokens",
			      path, GENERATE_MOST_EOS);
}
#else
static int parse_tokens(generate_run_t *run, const char *text, size_t nbytes, const char *path)
{
	(void)run, (void)text, (void)nbytes, (void)path;
	return 0;
}
#endif

/* The tokens in a file of the model's folder. @return 1: it has some; 0 also without the file. */
static int read_tokens(generate_run_t *run, const char *name)
{
	char path[TOOL_CONFIG_NBYTES], *text;
	size_t nbytes;
	int found;

	if (!tool_model_find_file(&run->model, name, path))
		return 0;
	if (srt_family_read_text(path, &text, &nbytes) != SRT_OK)
		return tool_why_usage(&run->why, "%s", srt_error_last());
	found = parse_tokens(run, text, nbytes, path);
	free(text);
	return found;
}

int generate_find_eos(generate_run_t *run)
{
	const char *config = run->model.config_text;
	int found;

	if (run->opt.ignore_eos)
		return 0;
	found = read_tokens(run, "generation_config.json");
	if (found == 0)
		found = config != NULL ? parse_tokens(run, config, strlen(config), "config.json") :
					 read_tokens(run, "config.json");
	return found < 0 ? -1 : 0;
}
