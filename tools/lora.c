/* SPDX-License-Identifier: BSD-3-Clause */
/* See lora.h. */
#include "tools/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of --lora that are not given; alpha is twice r. */
#define DEFAULT_R 16

static int parse_number(const char *value, double *number)
{
	char *end;

	*number = strtod(value, &end);
	return end != value && !*end && isfinite(*number) ? 0 : -1;
}

static int parse_size(srt_lora_t *g, const char *value, tool_why_t *why)
{
	double r;

	if (parse_number(value, &r) != 0 || r < 1 || r > SRT_LORA_MAX_R || r != floor(r))
		return tool_why_usage(why,
				      "--lora: r must be a whole number from 1 to %d, not '%s'",
				      SRT_LORA_MAX_R, value);
	g->r = (int64_t)r;
	return 0;
}

/* Names with a plus between them, or all-linear. */
static int parse_targets(tool_lora_t *l, char *value, tool_why_t *why)
{
	size_t n = 1;

	l->given.ntargets = 0;
	if (strcmp(value, "all-linear") == 0)
		return 0;
	for (const char *c = value; *c; c++)
		n += *c == '+';
	free(l->targets);
	l->targets = calloc(n, sizeof(*l->targets));
	if (l->targets == NULL)
		return tool_why_failure(why, "no memory for --lora");
	for (char *name = value, *next; name != NULL; name = next) {
		next = strchr(name, '+');
		if (next != NULL)
			*next++ = '\0';
		if (!*name)
			return tool_why_usage(why, "--lora: targets has an empty name");
		l->targets[l->given.ntargets++] = name;
	}
	l->given.targets = l->targets;
	return 0;
}

static int parse_word(tool_lora_t *l, char *word, tool_why_t *why)
{
	char *value = strchr(word, '=');

	if (value != NULL)
		*value++ = '\0';
	if (strcmp(word, "rslora") == 0 && value == NULL) {
		l->given.rslora = 1;
		return 0;
	}
	if (value != NULL && strcmp(word, "r") == 0)
		return parse_size(&l->given, value, why);
	if (value != NULL && strcmp(word, "targets") == 0)
		return parse_targets(l, value, why);
	if (value != NULL && strcmp(word, "alpha") == 0) {
		if (parse_number(value, &l->given.alpha) == 0 && l->given.alpha > 0)
			return 0;
		return tool_why_usage(why, "--lora: alpha must be a number above 0, not '%s'",
				      value);
	}
	return tool_why_usage(why,
			      "--lora takes r=N, alpha=X, targets=NAME+NAME or targets=all-linear, "
			      "rslora, and at the end match=EXPRESSION, not '%s'",
			      word);
}

static int parse(tool_lora_t *l, const char *spec, tool_why_t *why)
{
	l->text = strdup(spec);
	if (l->text == NULL)
		return tool_why_failure(why, "no memory for --lora");
	for (char *word = l->text, *next; word != NULL; word = next) {
		if (strncmp(word, "match=", 6) == 0) {
			l->given.pattern = word + 6;
			break;
		}
		next = strchr(word, ',');
		if (next != NULL)
			*next++ = '\0';
		if (*word && parse_word(l, word, why) != 0)
			return -1;
	}
	if (l->given.pattern != NULL && l->given.ntargets > 0)
		return tool_why_usage(why, "--lora: targets and match are both given");
	l->given.r = l->given.r ? l->given.r : DEFAULT_R;
	l->given.alpha = l->given.alpha > 0 ? l->given.alpha : 2 * (double)l->given.r;
	l->lora = &l->given;
	return 0;
}

int tool_lora_open(tool_lora_t *l, const char *spec, const char *folder, tool_why_t *why)
{
	if (spec != NULL)
		return parse(l, spec, why);
	if (folder == NULL)
		return 0;
	if (srt_lora_read(folder, &l->read) != SRT_OK)
		return tool_why_usage(why, "--adapter: %s", srt_error_last());
	l->lora = l->read;
	return 0;
}

int tool_lora_check(tool_lora_t *l, const srt_decoder_config_t *config, tool_why_t *why)
{
	unsigned char *matches;
	srt_status_t status;

	if (l->lora == NULL)
		return 0;
	matches = calloc((size_t)config->layers, SRT_DECODER_PARTS);
	if (matches == NULL)
		return tool_why_failure(why, "no memory for adapters");
	status = srt_lora_match(l->lora, config, matches);
	for (int64_t i = 0; status == SRT_OK && i < config->layers * SRT_DECODER_PARTS; i++)
		l->nmodules += matches[i];
	free(matches);
	return status == SRT_OK ? 0 : tool_why_usage(why, "%s", srt_error_last());
}

srt_status_t tool_lora_load(const char *folder, const srt_family_t *family, srt_decoder_t *decoder,
			    srt_stream_t *stream, tool_why_t *why)
{
	const srt_status_t status = srt_decoder_load_lora(decoder, family, folder, stream);

	if (status == SRT_ERR_FORMAT || status == SRT_ERR_INVALID_ARGUMENT ||
	    status == SRT_ERR_NOT_FOUND)
		tool_why_usage(why, "--adapter: %s", srt_error_last());
	return status;
}

void tool_lora_close(tool_lora_t *l)
{
	srt_lora_destroy(l->read);
	free(l->targets);
	free(l->text);
	*l = (tool_lora_t){ 0 };
}

void tool_lora_print(const tool_lora_t *l, char text[TOOL_LORA_NBYTES])
{
	text[0] = '\0';
	if (l->lora != NULL)
		snprintf(text, TOOL_LORA_NBYTES, "lora r=%lld alpha=%.9g%s modules=%lld",
			 (long long)l->lora->r, l->lora->alpha, l->lora->rslora ? " rslora" : "",
			 (long long)l->nmodules);
}
