/* SPDX-License-Identifier: BSD-3-Clause */
/* See tokenizer_case.h. */
#include "tests/models/tokenizer_case.h"

#include <unistd.h>

char tokenizer_path[64];

void tokenizer_case_begin(void)
{
	snprintf(tokenizer_path, sizeof(tokenizer_path), "tests/models/tokenizer.%ld.tmp",
		 (long)getpid());
}

void tokenizer_case_end(void)
{
	unlink(tokenizer_path);
}

void write_tokenizer_text(const char *text)
{
	FILE *f = fopen(tokenizer_path, "wb");

	CHECK_OR_DIE(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

static const char *part(const char *text)
{
	return text != NULL ? text : "null";
}

void write_tokenizer(const parts_t *p)
{
	static char text[1 << 16];

	snprintf(text, sizeof(text),
		 "{\"version\": \"1.0\", \"added_tokens\": [%s], \"normalizer\": %s, "
		 "\"pre_tokenizer\": %s, \"post_processor\": %s, \"decoder\": %s, \"model\": "
		 "{\"type\": \"BPE\", %s \"vocab\": {%s}, \"merges\": [%s]}}",
		 p->added != NULL ? p->added : "", part(p->normalizer), part(p->pre), part(p->post),
		 part(p->decoder), p->model != NULL ? p->model : "",
		 p->vocab != NULL ? p->vocab : VOCAB, p->merges != NULL ? p->merges : MERGES);
	write_tokenizer_text(text);
}

srt_tokenizer_t *open_tokenizer(const parts_t *p)
{
	srt_tokenizer_t *t = NULL;

	write_tokenizer(p);
	CHECK_OK_OR_DIE(srt_tokenizer_open(tokenizer_path, &t));
	return t;
}

void check_tokenizer_refused(srt_status_t status, const char *why)
{
	srt_tokenizer_t *t = NULL;

	CHECK_STATUS(srt_tokenizer_open(tokenizer_path, &t), status);
	CHECK_ERROR_HAS(why);
	CHECK_ERROR_HAS(tokenizer_path);
	CHECK(t == NULL);
}
