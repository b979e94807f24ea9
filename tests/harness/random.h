/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random bits of the tests that compare arithmetic bit by bit: xorshift64, the same sequence in
 * every run; a test may set random_state to a seed of its own.
 */
#ifndef SRT_TESTS_RANDOM_H
#define SRT_TESTS_RANDOM_H

#include <stdint.h>

static uint64_t random_state = 88172645463325252u;

static inline uint32_t random32(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 32);
}

/* In [-1, 1), in steps of 2^-23. */
static inline float random_float(void)
{
	return (float)((int)(random32() >> 8) - (1 << 23)) * 0x1p-23f;
}

#endif
