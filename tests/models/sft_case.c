/* SPDX-License-Identifier: BSD-3-Clause */
/* See sft_case.h. */
#include "config.h"

#include "tests/models/sft_case.h"

#include <unistd.h>

char sft_path[64];
sft_reported_t sft_reported;

void sft_case_begin(void)
{
#ifndef HAVE_JANSSON
	CHECK_SKIP("needs jansson");
#endif
	snprintf(sft_path, sizeof(sft_path), "tests/models/sft.%ld.tmp", (long)getpid());
}

void sft_case_end(void)
{
	unlink(sft_path);
}

static void report(void *arg, int64_t line, const char *why)
{
	CHECK(arg == &sft_reported);
	if (sft_reported.n < sizeof(sft_reported.lines) / sizeof(sft_reported.lines[0]))
		sft_reported.lines[sft_reported.n++] = line;
	snprintf(sft_reported.why, sizeof(sft_reported.why), "%s", why);
}

void write_sft(const char *text, size_t nbytes)
{
	FILE *f = fopen(sft_path, "wb");

	CHECK_OR_DIE(f != NULL && fwrite(text, 1, nbytes, f) == nbytes && fclose(f) == 0);
}

srt_sft_source_t sft_of_bytes(int64_t context)
{
	sft_reported.n = 0;
	sft_reported.why[0] = '\0';
	return (srt_sft_source_t){ .path = sft_path,
				   .bos = -1,
				   .eos = -1,
				   .context = context,
				   .vocab = 256,
				   .seed = 7,
				   .batch = 4,
				   .report = report,
				   .arg = &sft_reported };
}
