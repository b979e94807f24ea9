/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fuzz target: a function that parses an input, and ends the process if a result is wrong. With
 * configure --enable-fuzz libFuzzer calls it with inputs that it makes from the corpus. Without,
 * the main program of run_corpus.c calls it with the corpus.
 */
#ifndef SRT_TESTS_FUZZ_H
#define SRT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The target. The name is libFuzzer's. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *input, size_t nbytes);

#define FUZZ_CHECK(cond)                                                                           \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond);         \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* A copy of the input with a terminating zero. The caller frees it. */
static inline char *fuzz_text(const uint8_t *input, size_t nbytes)
{
	char *text = malloc(nbytes + 1);

	FUZZ_CHECK(text != NULL);
	if (nbytes > 0)
		memcpy(text, input, nbytes);
	text[nbytes] = '\0';
	return text;
}

#endif
