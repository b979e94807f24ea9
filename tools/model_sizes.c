/* SPDX-License-Identifier: BSD-3-Clause */
/* See model_sizes.h. */
#include "models/presets.h"
#include "tools/model_sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <shardrt/models/families.h>

#define SIZES                                                                                      \
	"layers=%" PRId64 " heads=%" PRId64 " width=%" PRId64 " context=%" PRId64                  \
	" vocab=%" PRId64 " mult=%" PRId64 " tied=%d attn_bias=%d"

/* mult: the width of the feed-forward layer in widths. */
static void print_sizes(const srt_decoder_config_t *c, int64_t mult, char *text, size_t text_nbytes)
{
	snprintf(text, text_nbytes, SIZES, c->layers, c->heads, c->width, c->context, c->vocab,
		 mult, c->tied, c->qkv_bias);
}

void tool_print_sizes(const srt_decoder_config_t *c, char *text, size_t text_nbytes)
{
	if (c->names != &srt_decoder_preset_names) { /* to compare with, not to parse */
		snprintf(text, text_nbytes,
			 "%s layers=%" PRId64 " heads=%" PRId64 " kv_heads=%" PRId64
			 " width=%" PRId64 " ffn_width=%" PRId64 " context=%" PRId64
			 " vocab=%" PRId64,
			 c->names->root, c->layers, c->heads, c->kv_heads, c->width, c->ffn_width,
			 c->context, c->vocab);
		return;
	}
	print_sizes(c, c->ffn_width != 0 && c->width != 0 ? c->ffn_width / c->width : 4, text,
		    text_nbytes);
}

int tool_parse_sizes(const char *text, srt_decoder_config_t *config)
{
	srt_decoder_config_t c = { SRT_DECODER_GPT };
	char again[TOOL_SIZES_NBYTES];
	int64_t mult;

	/* 18 digits fit in 64 bits. */
	if (sscanf(text,
		   "layers=%18" SCNd64 " heads=%18" SCNd64 " width=%18" SCNd64 " context=%18" SCNd64
		   " vocab=%18" SCNd64 " mult=%18" SCNd64 " tied=%1d attn_bias=%1d",
		   &c.layers, &c.heads, &c.width, &c.context, &c.vocab, &mult, &c.tied,
		   &c.qkv_bias) != 8 ||
	    c.tied > 1 || c.qkv_bias > 1)
		return -1;
	/* Signs, leading zeros, other blanks, text after the last number: not ours. */
	print_sizes(&c, mult, again, sizeof(again));
	if (strcmp(text, again) != 0)
		return -1;
	/* A product that is too large is refused by srt_decoder_check(), as 0 is. */
	if (mult < 1 || __builtin_mul_overflow(mult, c.width, &c.ffn_width) || c.ffn_width == 0)
		c.ffn_width = -1;
	*config = c;
	return 0;
}
