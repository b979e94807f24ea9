/* SPDX-License-Identifier: BSD-3-Clause */
/* See hash.h. */
#include "models/hash.h"

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix_bits(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint64_t srt_counter_hash(uint64_t a, uint64_t b, uint64_t c)
{
	return mix_bits(mix_bits(mix_bits(a) + b) + c);
}
