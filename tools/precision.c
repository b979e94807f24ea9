/* SPDX-License-Identifier: BSD-3-Clause */
/* See precision.h. */
#include "tools/precision.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t tool_find_word(const char *words, const char *value)
{
	size_t n = strlen(value);

	for (int64_t i = 0; words != NULL; i++) {
		const char *end = strchr(words, '|');
		size_t nword = end != NULL ? (size_t)(end - words) : strlen(words);

		if (nword == n && strncmp(words, value, n) == 0)
			return i;
		words = end != NULL ? end + 1 : NULL;
	}
	return -1;
}

const char *tool_word(const char *words, int64_t i, char text[16])
{
	while (i-- > 0)
		words = strchr(words, '|') + 1;
	snprintf(text, 16, "%.*s", (int)strcspn(words, "|"), words);
	return text;
}

int tool_precision(tool_dtype_t dtype, int pure, tool_reduce_t reduce, tool_precision_t *p,
		   char *why, size_t nwhy)
{
	static const struct {
		srt_dtype_t dtype;
		srt_dtype_t cast;
	} types[] = { [TOOL_FP32] = { SRT_F32, SRT_DTYPE_NONE },
		      [TOOL_BF16] = { SRT_BF16, SRT_BF16 },
		      [TOOL_FP16] = { SRT_F16, SRT_F16 } };

	if (pure && dtype == TOOL_FP32) {
		snprintf(why, nwhy, "--pure needs --dtype bf16 or fp16");
		return -1;
	}
	if (reduce == TOOL_REDUCE_DEFAULT)
		reduce = pure ? TOOL_REDUCE_COMPUTE : TOOL_REDUCE_FP32;
	*p = (tool_precision_t){ .policy = SRT_PRECISION_INIT,
				 .stored = pure ? types[dtype].dtype : SRT_F32 };
	p->policy.param = types[dtype].cast;
	p->policy.reduce = reduce == TOOL_REDUCE_FP32 ? SRT_F32 : SRT_DTYPE_NONE;
	return 0;
}

int tool_offload(const char *text, srt_offload_t *offload, char *why, size_t nwhy)
{
	*offload = (srt_offload_t){ 0 };
	if (text == NULL || strcmp(text, "none") == 0)
		return 0;
	if (strcmp(text, "all") == 0) {
		offload->params = offload->grads = offload->state = 1;
		return 0;
	}
	for (const char *word = text; word != NULL;
	     word = strchr(word, ',') != NULL ? strchr(word, ',') + 1 : NULL) {
		char one[16] = "";

		snprintf(one, sizeof(one), "%.*s", (int)strcspn(word, ","), word);
		switch (tool_find_word("params|grads|state", one)) {
		case 0:
			offload->params = 1;
			break;
		case 1:
			offload->grads = 1;
			break;
		case 2:
			offload->state = 1;
			break;
		default:
			snprintf(why, nwhy,
				 "--offload %s: must be none, all, or a list of params, grads, "
				 "state",
				 text);
			return -1;
		}
	}
	if (offload->state)
		return 0;
	snprintf(why, nwhy,
		 "--offload %s: the optimizer steps where its state is; add state, or use all",
		 text);
	return -1;
}

int tool_reshard(const char *text, int *reshard, char *why, size_t nwhy)
{
	static const int values[] = { 0, SRT_RESHARD_ALWAYS, SRT_RESHARD_NEVER };
	const int64_t word = tool_find_word("auto|always|never", text);
	char *end;
	long n;

	if (word >= 0) {
		*reshard = values[word];
		return 0;
	}
	n = strtol(text, &end, 10);
	if (text[0] >= '1' && text[0] <= '9' && *end == '\0' && n <= INT_MAX) {
		*reshard = (int)n;
		return 0;
	}
	snprintf(why, nwhy,
		 "--reshard %s: must be one of auto, always, never, or a number of ranks", text);
	return -1;
}
