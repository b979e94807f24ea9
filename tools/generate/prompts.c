/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the prompts: a text, the lines of a file, or those of JSON Lines; see generate.h. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#ifdef HAVE_JANSSON
#include <jansson.h>
#endif

#include "models/hash.h"
#include "tools/generate/generate.h"
#include "tools/prompt.h"

/* Adds a prompt. @param name for messages. */
static int add_prompt(generate_run_t *run, const char *name, const char *text, size_t nbytes)
{
	generate_prompt_t *grown, *p;

	if ((run->nprompts & (run->nprompts + 1)) == 0) { /* 0, 1, 3, 7, ... are full */
		grown = realloc(run->prompts, (2 * run->nprompts + 1) * sizeof(*grown));
		if (grown == NULL)
			return tool_why_failure(&run->why, "no memory for %s", name);
		run->prompts = grown;
	}
	p = &run->prompts[run->nprompts];
	if (tool_encode_prompt(run->tokenizer, name, text, nbytes, run->model.config.vocab, &p->ids,
			       &p->nids, &run->why) != 0)
		return -1;
	run->nprompts++;
	if ((int64_t)p->nids <= run->length)
		return 0;
	return tool_why_usage(&run->why, "%s has %zu tokens, but the context is %" PRId64, name,
			      p->nids, run->length);
}

#ifdef HAVE_JANSSON
/* A line of JSON Lines. */
static int add_json(generate_run_t *run, const char *name, const char *line, size_t nbytes)
{
	json_error_t error = { .line = 0 };
	json_t *json = json_loadb(line, nbytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
	const json_t *prompt = json_object_get(json, "prompt");
	int failed;

	if (json == NULL)
		failed = tool_why_usage(&run->why, "%s is not JSON: %.150s", name, error.text);
	else if (!json_is_string(prompt))
		failed = tool_why_usage(&run->why, "%s is not {\"prompt\": \"...\"}", name);
	else
		failed = add_prompt(run, name, json_string_value(prompt),
				    json_string_length(prompt));
	json_decref(json);
	return failed;
}
#else
static int add_json(generate_run_t *run, const char *name, const char *line, size_t nbytes)
{
	(void)line, (void)nbytes;
	return tool_why_usage(&run->why,
			      "%s: this build lacks jansson (configure --with-jansson), which "
			      "parses it",
			      name);
}
#endif

static int read_lines(generate_run_t *run, FILE *file, const char *path)
{
	const size_t npath = strlen(path);
	const bool is_json = npath >= 6 && strcmp(path + npath - 6, ".jsonl") == 0;
	char *line = NULL, name[256];
	size_t room = 0;
	ssize_t n;
	int failed = 0;

	for (int number = 1; !failed && (n = getline(&line, &room, file)) >= 0; number++) {
		if (n > 0 && line[n - 1] == '\n')
			line[--n] = '\0';
		snprintf(name, sizeof(name), "line %d of %.200s", number, path);
		if (is_json && strspn(line, " \t\r") == (size_t)n)
			continue;
		failed = is_json ? add_json(run, name, line, (size_t)n) :
				   add_prompt(run, name, line, (size_t)n);
	}
	if (!failed && !feof(file)) /* no memory for a line, too */
		failed = tool_why_system(&run->why, errno, "cannot read --prompts %s", path);
	free(line);
	return failed;
}

int generate_read_prompts(generate_run_t *run)
{
	const char *path = run->opt.prompts;
	const bool is_input = path != NULL && strcmp(path, "-") == 0;
	FILE *file;
	int failed;

	if (path == NULL)
		return add_prompt(run, "--prompt", run->opt.prompt, strlen(run->opt.prompt));
	if (is_input && run->ranks.world > 1)
		return tool_why_usage(&run->why,
				      "--prompts - is for one rank: the others of the %d have no "
				      "standard input",
				      run->ranks.world);
	file = is_input ? stdin : fopen(path, "r");
	if (file == NULL)
		return tool_why_system(&run->why, errno, "cannot read --prompts %s", path);
	failed = read_lines(run, file, is_input ? "the standard input" : path);
	if (!is_input)
		fclose(file);
	if (!failed && run->nprompts == 0)
		return tool_why_usage(&run->why, "--prompts %s has no prompt", path);
	return failed;
}

int generate_compare_prompts(generate_run_t *run)
{
	typedef struct prompts_id {
		uint64_t n, hash;
	} prompts_id_t;
	prompts_id_t mine = { .n = run->nprompts }, *all;
	int failed = 0;

	for (size_t i = 0; i < run->nprompts; i++)
		for (size_t t = 0; t < run->prompts[i].nids; t++)
			mine.hash =
				srt_counter_hash(mine.hash, i, (uint64_t)run->prompts[i].ids[t]);
	all = calloc((size_t)run->ranks.world, sizeof(*all));
	if (all == NULL)
		return tool_why_failure(&run->why, "no memory to compare the ranks' prompts");
	if (srt_comm_oob_allgather(run->ranks.comm, &mine, sizeof(mine), all) != SRT_OK)
		failed = tool_why_failure(&run->why, "%s", srt_error_last());
	for (int r = 1; r < run->ranks.world && !failed; r++)
		if (all[r].n != all[0].n || all[r].hash != all[0].hash)
			failed = tool_why_usage(
				&run->why,
				"--prompts %s is another file on rank %d, with %" PRIu64
				" prompts (hash %016" PRIx64 "), than on rank 0, with "
				"%" PRIu64 " (hash %016" PRIx64 ")",
				run->opt.prompts, r, all[r].n, all[r].hash, all[0].n, all[0].hash);
	free(all);
	return failed;
}
