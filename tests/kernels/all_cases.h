/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every case of kernels/cases/cases.def in every dtype, and the operations that have tuned
 * versions, one after the other on one stream without a wait, each on its own places in one buffer
 * whose bytes are the result. For tests of things that must not change it: threads, kinds of
 * streams, instruction sets, the floating-point environment, a backend that fails.
 */
#ifndef SRT_TESTS_ALL_CASES_H
#define SRT_TESTS_ALL_CASES_H

#include "tests/harness/check.h"
#include "tests/kernels/kernel_operations.h"

/* One launch. */
typedef struct all_cases_entry {
	srt_kernel_run_t run;
	size_t base; /* of its memory in the buffer */
	bool operation;
} all_cases_entry_t;

/* All of them, and what the buffer holds before. */
typedef struct all_cases {
	all_cases_entry_t *entries;
	size_t nentries, nbytes;
	unsigned char *image;
} all_cases_t;

/* At the first of the long sizes, or small: at a few elements; in all dtypes, or in float alone.
 * A failure ends the program. */
all_cases_t all_cases_make(bool small, bool float_only);
void all_cases_free(all_cases_t *all);

/* Runs everything on one new stream; *bytes (all->nbytes) is the caller's to free, NULL on
 * failure. */
srt_status_t all_cases_run(const all_cases_t *all, srt_device_t *device, unsigned char **bytes);

/* Which launch wrote the first byte that differs; NULL: none does. */
const char *all_cases_differ(const all_cases_t *all, const unsigned char *a,
			     const unsigned char *b);

#endif
