/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reserved fields: every public struct that ends in them is refused with a sentence that names the
 * struct and the field if one is not zero, and accepted if all are zero. The library writes zeros
 * to those of the structs that it fills. test_reserved_ops.c has the structs of sharded
 * tensors.
 */
#include <string.h>

#include <shardrt/shardrt.h>

#include "tests/engine/reserved_case.h"
#include "tests/harness/check.h"

static srt_context_t *context;
static srt_stream_t *stream;

/* The functions call with reserved[i] = value. */

}

}

/* Each fills a struct whose bytes were not zero, and returns the reserved fields. */

}

static const struct {
	const char *type;
	const uint64_t *(*fill)(void *memory);
} results[] = {
};

/* Structs that the library fills can grow into their reserved fields, which are zero till then. */
static void check_results(void)
{
	static uint64_t memory[512];

	for (size_t s = 0; s < sizeof(results) / sizeof(results[0]); s++) {
		const uint64_t *reserved;

		memset(memory, 0xff, sizeof(memory));
		reserved = results[s].fill(memory);
		for (int i = 0; i < 4; i++)
			CHECK_MSG(reserved[i] == 0, "%s.reserved[%d]", results[s].type, i);
	}
}

static const reserved_case_t structs[] = {
};

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	reserved_check(structs, sizeof(structs) / sizeof(structs[0]));
	check_results();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
