/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/harness/half.h"

/* Stored bits of the significand, and the exponent of the smallest normal number. */
static int half_mantissa(srt_dtype_t dtype)
{
	return dtype == SRT_F16 ? 10 : 7;
}

static int half_lowest(srt_dtype_t dtype)
{
	return dtype == SRT_F16 ? -14 : -126;
}

/* 2^e, a normal number; ldexp() takes ten times as long. */
static double power_of_two(int e)
{
	const uint64_t bits = (uint64_t)(e + 1023) << 52;
	double v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

/* The exponent of a normal number above zero. */
static int exponent_of(double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return (int)(bits >> 52) - 1023;
}

float half_value(srt_dtype_t dtype, uint16_t bits)
{
	int mantissa = half_mantissa(dtype), all_ones = (0x7fff >> mantissa);
	int exponent = (bits & 0x7fff) >> mantissa, rest = bits & ((1 << mantissa) - 1);
	double v;

	if (exponent == all_ones)
		v = rest ? (double)NAN : (double)INFINITY;
	else if (exponent == 0)
		v = (double)rest * power_of_two(half_lowest(dtype) - mantissa);
	else
		v = (double)(rest + (1 << mantissa)) *
		    power_of_two(half_lowest(dtype) - mantissa + exponent - 1);
	return (float)(bits & 0x8000 ? -v : v);
}

uint16_t half_bits(srt_dtype_t dtype, float v)
{
	int mantissa = half_mantissa(dtype), lowest = half_lowest(dtype), e;
	uint32_t infinity = (0x7fffu >> mantissa) << mantissa, sign = signbit(v) ? 0x8000 : 0;
	double magnitude = fabs((double)v);
	int64_t bits;

	if (v != v)
		return (uint16_t)(infinity | 1u << (mantissa - 1));
	if (isinf(v))
		return (uint16_t)(sign | infinity);
	e = magnitude > 0.0 ? exponent_of(magnitude) : lowest;
	e = e > lowest ? e : lowest;
	/* In units of the last place there; with the exponent's place a carry comes out right. */
	bits = (int64_t)(magnitude * power_of_two(mantissa - e) + 0x1p52 - 0x1p52);
	bits += (int64_t)(e - lowest) << mantissa;
	return (uint16_t)(sign | (bits < (int64_t)infinity ? (uint32_t)bits : infinity));
}

float half_round(srt_dtype_t dtype, float v)
{
	return dtype == SRT_F32 ? v : half_value(dtype, half_bits(dtype, v));
}

void half_put(srt_dtype_t dtype, void *array, size_t i, float v)
{
	uint16_t bits;

	if (dtype == SRT_F32) {
		memcpy((char *)array + i * sizeof(v), &v, sizeof(v));
		return;
	}
	bits = half_bits(dtype, v);
	memcpy((char *)array + i * sizeof(bits), &bits, sizeof(bits));
}

float half_get(srt_dtype_t dtype, const void *array, size_t i)
{
	uint16_t bits;
	float v;

	if (dtype == SRT_F32) {
		memcpy(&v, (const char *)array + i * sizeof(v), sizeof(v));
		return v;
	}
	memcpy(&bits, (const char *)array + i * sizeof(bits), sizeof(bits));
	return half_value(dtype, bits);
}
