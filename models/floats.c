/* SPDX-License-Identifier: BSD-3-Clause */
/* See floats.h. */
#include "models/floats.h"

#include <stdint.h>
#include <string.h>

static float float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static float widen_f16(uint16_t h)
{
	const uint32_t sign = (uint32_t)(h & 0x8000) << 16, low = h & 0x7fff;

	if (low >= 0x7c00)
		return float_of(sign | 0x7f800000 | (low & 0x3ff) << 13);
	return float_of(bits_of(float_of(low << 13) * 0x1p112f) | sign);
}

/* To nearest even; numbers below 2^-14 by an addition that leaves their bits. */
static uint16_t round_f16(float value)
{
	const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, low = bits & 0x7fffffff;
	const uint32_t up = low + 0xfff + (low >> 13 & 1);

	if (low > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (low < 0x38800000)
		return (uint16_t)(sign | (bits_of(float_of(low) + 0.5f) - 0x3f000000));
	return (uint16_t)(sign | (up >= 0x47800000 ? 0x7c00 : (up - 0x38000000) >> 13));
}

static uint16_t round_bf16(float value)
{
	const uint32_t bits = bits_of(value);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float srt_floats_get(const char *data, srt_dtype_t dtype, size_t i)
{
	uint16_t half;
	float value;

	if (dtype == SRT_F32) {
		memcpy(&value, data + i * sizeof(value), sizeof(value));
		return value;
	}
	memcpy(&half, data + i * sizeof(half), sizeof(half));
	return dtype == SRT_F16 ? widen_f16(half) : float_of((uint32_t)half << 16);
}

void srt_floats_put(char *data, srt_dtype_t dtype, size_t i, float value)
{
	uint16_t half;

	if (dtype == SRT_F32) {
		memcpy(data + i * sizeof(value), &value, sizeof(value));
		return;
	}
	half = dtype == SRT_F16 ? round_f16(value) : round_bf16(value);
	memcpy(data + i * sizeof(half), &half, sizeof(half));
}
