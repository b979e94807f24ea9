/* SPDX-License-Identifier: BSD-3-Clause */
/* A float's bits, and back. */
#ifndef SRT_TESTS_BITS_H
#define SRT_TESTS_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

static inline float float_of(uint32_t bits)
{
	float v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

#endif
