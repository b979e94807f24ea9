/* SPDX-License-Identifier: BSD-3-Clause */
/* The metadata entry of a saved file that holds the model's sizes, as text. */
#include <inttypes.h>
#include <string.h>

#include "tools/train/train.h"

void train_print_sizes(const srt_gpt_config_t *c, char *text, size_t text_nbytes)
{
	snprintf(text, text_nbytes,
		 "layers=%" PRId64 " heads=%" PRId64 " width=%" PRId64 " context=%" PRId64
		 " vocab=%" PRId64 " mult=%" PRId64 " tied=%d attn_bias=%d",
		 c->layers, c->heads, c->width, c->context, c->vocab, c->mult, c->tied,
		 c->attn_bias);
}

int train_parse_sizes(const char *text, srt_gpt_config_t *config)
{
	char again[TRAIN_SIZES_NBYTES];
	srt_gpt_config_t c;

	/* 18 digits fit in 64 bits. */
	if (sscanf(text,
		   "layers=%18" SCNd64 " heads=%18" SCNd64 " width=%18" SCNd64 " context=%18" SCNd64
		   " vocab=%18" SCNd64 " mult=%18" SCNd64 " tied=%1d attn_bias=%1d",
		   &c.layers, &c.heads, &c.width, &c.context, &c.vocab, &c.mult, &c.tied,
		   &c.attn_bias) != 8 ||
	    c.tied > 1 || c.attn_bias > 1)
		return -1;
	/* Signs, leading zeros, other blanks, text after the last number: not ours. */
	train_print_sizes(&c, again, sizeof(again));
	if (strcmp(text, again) != 0)
		return -1;
	*config = c;
	return 0;
}
