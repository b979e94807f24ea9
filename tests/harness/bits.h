/* SPDX-License-Identifier: BSD-3-Clause */
/* A float's bits, and back; a digest of floats. */
#ifndef SRT_TESTS_BITS_H
#define SRT_TESTS_BITS_H

#include <stddef.h>
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

/* FNV-1a over the floats' bits, on from a digest. */
#define DIGEST_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t digest_floats(uint64_t digest, const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		digest = (digest ^ bits_of(x[i])) * UINT64_C(0x100000001b3);
	return digest;
}

#endif
