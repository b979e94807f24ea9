/* SPDX-License-Identifier: BSD-3-Clause */
/* Reserved fields of the structs of sharded tensors; see test_reserved.c. */
#include <shardrt/shardrt.h>

#include "tests/engine/reserved_case.h"
#include "tests/harness/check.h"

static srt_context_t *context;
static srt_stream_t *stream;

};

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	reserved_check(structs, sizeof(structs) / sizeof(structs[0]));
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
