/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random bits: xorshift64, the same sequence in every run. A test may set random_state to another
 * seed.
 */
#ifndef SRT_TESTS_RANDOM_H
#define SRT_TESTS_RANDOM_H

#include <stdint.h>

extern uint64_t random_state;

uint32_t random32(void);

/* In [-1, 1), in steps of 2^-23. */
float random_float(void);

#endif
