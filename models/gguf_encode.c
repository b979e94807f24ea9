/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of tensors of a GGUF file. Hosts are little-endian, as the file. */
#include "models/gguf.h"

#include <math.h>
#include <string.h>

#define SIGN 0x80000000u
#define INFINITE 0x7f800000u
/* The least magnitude that is rounded to infinity in F16: 65520. */
#define F16_OVERFLOW 0x477ff000u

static uint32_t bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static float float_of(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* ---- numbers ---------------------------------------------------------------------------- */

static float decode_f16(uint16_t h)
{
	const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;

	if (rest >= 31u << 23)
		return float_of(sign | rest | INFINITE);
	/* 2^112 moves the exponent, also of a number that is not normal */
	return float_of(sign | bits_of(float_of(rest) * 0x1p112f));
}

static uint16_t encode_f16(float x)
{
	const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000;
	uint32_t a = bits & ~SIGN;

	if (a > INFINITE)
		return (uint16_t)(sign | 0x7e00);
	if (a >= F16_OVERFLOW)
		return (uint16_t)(sign | 0x7c00);
	if (a < 0x38800000u) /* below 2^-14: a sum with 0.5 rounds to multiples of 2^-24 */
		return (uint16_t)(sign | (bits_of(float_of(a) + 0.5f) - bits_of(0.5f)));
	a += 0xfff + (a >> 13 & 1);
	return (uint16_t)(sign | ((a >> 13) - (112u << 10)));
}

static uint16_t encode_bf16(float x)
{
	const uint32_t bits = bits_of(x);

	if ((bits & ~SIGN) > INFINITE)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Whether a block was encoded: a scale, the largest magnitude / 127, and a byte for each value. */
static bool encode_q8_0(const float *x, unsigned char *out)
{
	float most = 0, scale, inverse;
	uint16_t half;

	for (int i = 0; i < SRT_GGUF_Q8_VALUES; i++) {
		if (!isfinite(x[i]))
			return false;
		most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
	}
	scale = most / 127.0f;
	if (bits_of(scale) >= F16_OVERFLOW)
		return false;
	inverse = scale > 0 ? 1.0f / scale : 0;
	inverse = isfinite(inverse) ? inverse : 0; /* the scale is 0 in F16 */
	half = encode_f16(scale);
	memcpy(out, &half, sizeof(half));
	for (int i = 0; i < SRT_GGUF_Q8_VALUES; i++)
		out[2 + i] = (unsigned char)(int8_t)roundf(x[i] * inverse);
	return true;
}

/* ---- tensors ---------------------------------------------------------------------------- */

size_t srt_gguf_nbytes(srt_gguf_type_t type, size_t n)
{
	size_t nbytes;

	if (type == SRT_GGUF_Q8_0)
		return __builtin_mul_overflow(n / SRT_GGUF_Q8_VALUES, SRT_GGUF_Q8_NBYTES, &nbytes) ?
			       0 :
			       nbytes;
	return __builtin_mul_overflow(n, type == SRT_GGUF_F32 ? 4u : 2u, &nbytes) ? 0 : nbytes;
}

void srt_gguf_decode(srt_dtype_t dtype, const void *bytes, size_t n, float *values)
{
	const unsigned char *from = bytes;

	if (dtype == SRT_F32) {
		memcpy(values, bytes, n * sizeof(*values));
		return;
	}
	for (size_t i = 0; i < n; i++) {
		uint16_t h;

		memcpy(&h, from + 2 * i, sizeof(h));
		values[i] = dtype == SRT_F16 ? decode_f16(h) : float_of((uint32_t)h << 16);
	}
}

size_t srt_gguf_encode(srt_gguf_type_t type, const float *values, size_t n, void *bytes)
{
	unsigned char *out = bytes;

	if (type == SRT_GGUF_F32)
		memcpy(bytes, values, n * sizeof(*values));
	for (size_t i = 0; type == SRT_GGUF_Q8_0 && i < n; i += SRT_GGUF_Q8_VALUES)
		if (!encode_q8_0(values + i, out + i / SRT_GGUF_Q8_VALUES * SRT_GGUF_Q8_NBYTES))
			return i;
	for (size_t i = 0; (type == SRT_GGUF_F16 || type == SRT_GGUF_BF16) && i < n; i++) {
		const uint16_t h =
			type == SRT_GGUF_F16 ? encode_f16(values[i]) : encode_bf16(values[i]);

		if (type == SRT_GGUF_F16 && isfinite(values[i]) &&
		    (bits_of(values[i]) & ~SIGN) >= F16_OVERFLOW)
			return i;
		memcpy(out + 2 * i, &h, sizeof(h));
	}
	return n;
}
