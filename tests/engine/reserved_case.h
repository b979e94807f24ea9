/* SPDX-License-Identifier: BSD-3-Clause */
/* Reserved fields of structs that the library takes: test_reserved.c, test_reserved_ops.c. */
#ifndef SRT_TESTS_RESERVED_CASE_H
#define SRT_TESTS_RESERVED_CASE_H

#include <shardrt/shardrt.h>

typedef struct reserved_case {
	const char *type;
	srt_status_t (*call)(int i, uint64_t value); /* with reserved[i] = value */
} reserved_case_t;

/* Zeros are accepted; other values refused, with the names of the struct and the field. */
void reserved_check(const reserved_case_t *cases, size_t ncases);

#endif
