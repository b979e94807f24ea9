/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of tensors of a GGUF file. Hosts are little-endian, as the file. */
#include "models/gguf.h"

#include <math.h>
#include <string.h>

#include "models/floats.h"

/* The least magnitude that is rounded to infinity in F16. */
#define F16_OVERFLOW 65520.0f

/* Whether a block was encoded: a scale, the largest magnitude / 127, and a byte for each value. */
static bool encode_q8_0(const float *x, unsigned char *out)
{
	float most = 0, scale, inverse;

	for (int i = 0; i < SRT_GGUF_Q8_VALUES; i++) {
		if (!isfinite(x[i]))
			return false;
		most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
	}
	scale = most / 127.0f;
	if (scale >= F16_OVERFLOW)
		return false;
	inverse = scale > 0 ? 1.0f / scale : 0;
	inverse = isfinite(inverse) ? inverse : 0; /* the scale is 0 in F16 */
	srt_floats_put((char *)out, SRT_F16, 0, scale);
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
	if (dtype == SRT_F32)
		memcpy(values, bytes, n * sizeof(*values));
	else
		for (size_t i = 0; i < n; i++)
			values[i] = srt_floats_get(bytes, dtype, i);
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
		if (type == SRT_GGUF_F16 && isfinite(values[i]) && fabsf(values[i]) >= F16_OVERFLOW)
			return i;
		srt_floats_put(bytes, type == SRT_GGUF_F16 ? SRT_F16 : SRT_BF16, i, values[i]);
	}
	return n;
}
