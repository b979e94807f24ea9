/* SPDX-License-Identifier: BSD-3-Clause */
/* Which modules have adapters: PEFT's target_modules. */
#include <shardrt/models/lora.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/decoder_impl.h"
#include "models/string.h"
#include "models/tokenizer_pattern.h"
#include "models/try.h"

double srt_lora_scaling(const srt_lora_t *lora)
{
	return lora->alpha / (lora->rslora ? sqrt((double)lora->r) : (double)lora->r);
}

static srt_status_t check_sizes(const srt_lora_t *lora)
{
	if (lora->r < 1 || lora->r > SRT_LORA_MAX_R)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "lora: r must be from 1 to %d, not %lld", SRT_LORA_MAX_R,
				      (long long)lora->r);
	if (!(fabs(srt_lora_scaling(lora)) >= 0x1p-100) ||
	    !(fabs(srt_lora_scaling(lora)) <= 0x1p100))
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "lora: alpha is %g, so adapters with r %lld would be "
				      "multiplied by %g",
				      lora->alpha, (long long)lora->r, srt_lora_scaling(lora));
	return SRT_OK;
}

/* ---- names ------------------------------------------------------------------------------ */

/* A target, and an expression as one. */
typedef struct target {
	const char *text;
	srt_pattern_t *pattern; /* NULL: a name, or the end of one */
	srt_matcher_t *matcher;
} target_t;

static int ends_with(const char *name, const char *end)
{
	const size_t n = strlen(name), nend = strlen(end);

	return nend > 0 && n >= nend && strcmp(name + n - nend, end) == 0 &&
	       (n == nend || name[n - nend - 1] == '.');
}

static srt_status_t match_name(const target_t *t, const char *name, int *matches)
{
	srt_matches_t search;
	size_t start, stop;
	bool found;

	if (t->pattern == NULL) {
		*matches = ends_with(name, t->text);
		return SRT_OK;
	}
	search = srt_matches_begin(t->pattern, t->matcher, name, strlen(name));
	SRT_TRY(srt_matches_next(&search, &found, &start, &stop));
	*matches = found;
	return SRT_OK;
}

/* The modules of the root, which have no adapters. */
static srt_status_t check_root(const target_t *t, const srt_decoder_names_t *names)
{
	const char *const roots[] = { names->embedding, names->positions, names->norm,
				      names->head };
	int matches;

	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
		if (roots[i] == NULL)
			continue;
		SRT_TRY(match_name(t, roots[i], &matches));
		if (matches)
			return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
					      "lora: target '%s' matches %s, but only the "
					      "Linear layers of blocks have adapters",
					      srt_string_show(t->text).text, roots[i]);
	}
	return SRT_OK;
}

static srt_status_t match_part(const target_t *t, const srt_decoder_config_t *c, int64_t layer,
			       int part, int *matches)
{
	char name[192];

	*matches = 0;
	if (!srt_decoder_has_part(c, part))
		return SRT_OK;
	snprintf(name, sizeof(name), "%s.%lld.%s", c->names->blocks, (long long)layer,
		 c->names->part[part]);
	SRT_TRY(match_name(t, name, matches));
	if (!*matches || srt_decoder_is_linear(part))
		return SRT_OK;
	return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
			      "lora: target '%s' matches %s, which is a norm: only Linear "
			      "layers have adapters",
			      srt_string_show(t->text).text, name);
}

/* Sets the flags of what a target matches, which must be something. */
static srt_status_t match_target(const target_t *t, const srt_decoder_config_t *c,
				 unsigned char *flags)
{
	int any = 0, matches;

	SRT_TRY(check_root(t, c->names));
	for (int64_t i = 0; i < c->layers; i++) {
		for (int k = 0; k < SRT_DECODER_PARTS; k++) {
			SRT_TRY(match_part(t, c, i, k, &matches));
			flags[i * SRT_DECODER_PARTS + k] |= (unsigned char)matches;
			any |= matches;
		}
	}
	if (any)
		return SRT_OK;
	return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
			      "lora: target '%s' matches no module of %s, whose Linear layers are "
			      "%s.0.%s and so on",
			      srt_string_show(t->text).text, c->names->root, c->names->blocks,
			      c->names->part[SRT_DECODER_O]);
}

/* An expression matches whole names. */
static srt_status_t match_pattern(const char *expression, const srt_decoder_config_t *c,
				  unsigned char *flags)
{
	target_t t = { .text = expression };
	srt_string_t whole = { 0 };
	srt_status_t status;

	status = srt_string_append(&whole, "\\A(?:", 5);
	if (status == SRT_OK)
		status = srt_string_append(&whole, expression, strlen(expression));
	if (status == SRT_OK)
		status = srt_string_append(&whole, ")\\z", 4); /* and a zero */
	if (status == SRT_OK)
		status = srt_pattern_create(whole.data, &t.pattern);
	if (status == SRT_OK)
		status = srt_matcher_create(&t.matcher);
	if (status == SRT_OK)
		status = match_target(&t, c, flags);
	srt_matcher_destroy(t.matcher);
	srt_pattern_destroy(t.pattern);
	free(whole.data);
	return status;
}

static void match_all(const srt_decoder_config_t *c, unsigned char *flags)
{
	for (int64_t i = 0; i < c->layers; i++)
		for (int k = 0; k < SRT_DECODER_PARTS; k++)
			flags[i * SRT_DECODER_PARTS + k] =
				srt_decoder_is_linear(k) && srt_decoder_has_part(c, k);
}

srt_status_t srt_lora_match(const srt_lora_t *lora, const srt_decoder_config_t *config,
			    unsigned char *matches)
{
	SRT_TRY(check_sizes(lora));
	memset(matches, 0, (size_t)config->layers * SRT_DECODER_PARTS);
	if (lora->pattern != NULL)
		return match_pattern(lora->pattern, config, matches);
	if (lora->ntargets == 0)
		match_all(config, matches);
	for (size_t i = 0; i < lora->ntargets; i++)
		SRT_TRY(match_target(&(target_t){ .text = lora->targets[i] }, config, matches));
	return SRT_OK;
}
