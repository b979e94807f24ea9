/* SPDX-License-Identifier: BSD-3-Clause */
/* 64-bit hashes of small tables. Not cryptographic. */
#include "base/base.h"

uint64_t srt_mix64(uint64_t a, uint64_t b)
{
	uint64_t z = a + UINT64_C(0x9e3779b97f4a7c15) * (b + 1);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint64_t srt_hash64(uint64_t h, const void *data, size_t nbytes)
{
	const unsigned char *p = data;

	/* FNV-1a: these are small tables, compared once. */
	for (size_t i = 0; i < nbytes; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return srt_mix64(h, nbytes);
}
