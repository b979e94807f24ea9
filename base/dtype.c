/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Properties of element types, all from SRT_DTYPE_TABLE. A dtype carries bits, not bytes, so that
 * types below one byte need no other interface.
 */
#include "base/base.h"

#include <shardrt/dtype.h>

unsigned srt_dtype_bits(srt_dtype_t dtype)
{
	static const unsigned char bits_of[SRT_DTYPE_COUNT] = {
#define SRT_DTYPE_BITS(name, text, st, bits) [name] = bits,
		SRT_DTYPE_TABLE(SRT_DTYPE_BITS)
#undef SRT_DTYPE_BITS
	};

	return (unsigned)dtype < SRT_DTYPE_COUNT ? bits_of[dtype] : 0;
}

const char *srt_dtype_name(srt_dtype_t dtype)
{
	static const char *const name_of[SRT_DTYPE_COUNT] = { [SRT_DTYPE_NONE] = "none",
#define SRT_DTYPE_NAME(name, text, st, bits) [name] = text,
							      SRT_DTYPE_TABLE(SRT_DTYPE_NAME)
#undef SRT_DTYPE_NAME
	};

	return (unsigned)dtype < SRT_DTYPE_COUNT ? name_of[dtype] : "?";
}

srt_status_t srt_dtype_nbytes(srt_dtype_t dtype, size_t nelem, size_t *nbytes)
{
	unsigned bits = srt_dtype_bits(dtype);
	size_t whole, rest;

	SRT_NOT_NULL(nbytes);
	if (!bits)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "elements of dtype %s (%d) have no size",
				srt_dtype_name(dtype), (int)dtype);
	/* 8 elements take `bits` bytes exactly; the last nelem % 8 are rounded up. */
	rest = (nelem % 8 * bits + 7) / 8;
	if (!srt_mul_size(nelem / 8, bits, &whole) || !srt_add_size(whole, rest, &whole))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%zu elements of %s are more bytes than a size can hold", nelem,
				srt_dtype_name(dtype));
	*nbytes = whole;
	return SRT_OK;
}
