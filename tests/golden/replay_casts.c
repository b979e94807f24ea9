/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays the table of casts (replay.h): all values of the 16-bit types and hard floats through
 * srt_op_cast() on the device, compared bit for bit with what was recorded, NaN as a class. Part of
 * replay_table().
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay.h"

/* The elements of a recorded array of bits, as bytes; NULL: the error is set. */
static void *read_bits(golden_t *g, const char *key, srt_dtype_t dtype, size_t *nelem)
{
	const srt_safetensors_tensor_t *t = srt_safetensors_find(g->expect, key);
	void *bits;

	/* I16 is no dtype of ours: two bytes an element in any case */
	if (t == NULL || t->nbytes != t->nelem * (srt_dtype_bits(dtype) / 8)) {
		srt_fail(SRT_ERR_FORMAT, "'%s' is not there as %s", key, srt_dtype_name(dtype));
		return NULL;
	}
	bits = srt_calloc(t->nbytes + 1, 1, key);
	if (bits != NULL && srt_safetensors_read(g->expect, t, 0, t->nbytes, bits) != SRT_OK) {
		free(bits);
		return NULL;
	}
	*nelem = t->nelem;
	return bits;
}

static bool is_nan_bits(srt_dtype_t dtype, uint32_t bits)
{
	static const uint32_t infinity[] = {
		[SRT_F32] = 0x7f800000u, [SRT_F16] = 0x7c00u, [SRT_BF16] = 0x7f80u
	};

	return (bits & (dtype == SRT_F32 ? 0x7fffffffu : 0x7fffu)) > infinity[dtype];
}

static uint32_t bits_at(const void *bits, srt_dtype_t dtype, size_t i)
{
	return dtype == SRT_F32 ? ((const uint32_t *)bits)[i] : ((const uint16_t *)bits)[i];
}

/* Casts n elements of `from`, given as bits, and compares with the recorded bits of `to`. */
static srt_status_t run_cast(srt_stream_t *stream, verdict_t *v, const char *key, srt_dtype_t from,
			     const void *bits, srt_dtype_t to, const void *want, size_t n)
{
	srt_device_t *device = srt_stream_device(stream);
	size_t from_nbytes = n * (srt_dtype_bits(from) / 8),
	       to_nbytes = n * (srt_dtype_bits(to) / 8);
	void *got = srt_calloc(to_nbytes, 1, key);
	srt_buffer_t *x = NULL, *y = NULL;
	srt_status_t status = got != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	if (status == SRT_OK)
		status = srt_buffer_create(device, SRT_MEM_DEVICE, from_nbytes, "cast from", &x);
	if (status == SRT_OK)
		status = srt_buffer_create(device, SRT_MEM_DEVICE, to_nbytes, "cast to", &y);
	if (status == SRT_OK)
		status = srt_buffer_copy_from_host(x, 0, bits, from_nbytes, stream);
	if (status == SRT_OK)
		status = srt_op_cast(srt_view(y, 0, to), srt_view(x, 0, from), (int64_t)n, stream);
	if (status == SRT_OK)
		status = srt_buffer_copy_to_host(got, y, 0, to_nbytes, stream);
	for (size_t i = 0; i < n && status == SRT_OK; i++) {
		uint32_t a = bits_at(got, to, i), b = bits_at(want, to, i);

		verdict_exact(v, a == b || (is_nan_bits(to, a) && is_nan_bits(to, b)),
			      "%s: %0*x becomes %0*x, not %0*x", key, from == SRT_F32 ? 8 : 4,
			      bits_at(bits, from, i), to == SRT_F32 ? 8 : 4, a,
			      to == SRT_F32 ? 8 : 4, b);
	}
	srt_buffer_destroy(x);
	srt_buffer_destroy(y);
	free(got);
	return status;
}

srt_status_t replay_casts(golden_t *g, srt_context_t *context, verdict_t *v)
{
	static const struct {
		const char *key;
		srt_dtype_t from, to;
	} arrays[] = {
		{ "f32_to_f16_bits", SRT_F32, SRT_F16 },
		{ "f32_to_bf16_bits", SRT_F32, SRT_BF16 },
		{ "f16_to_f32_bits", SRT_F16, SRT_F32 },
		{ "f16_to_bf16_bits", SRT_F16, SRT_BF16 },
		{ "bf16_to_f16_bits", SRT_BF16, SRT_F16 },
	};
	size_t nfloats, n, nexpected = SRT_ARRAY_LEN(arrays) + 1;
	void *floats = read_bits(g, "f32_bits", SRT_F32, &nfloats);
	uint16_t *all = srt_calloc(0x10000, sizeof(*all), "all 16-bit values");
	srt_stream_t *stream = NULL;
	srt_status_t status = floats != NULL && all != NULL ? SRT_OK : SRT_ERR_FORMAT;

	for (uint32_t i = 0; i < 0x10000 && all != NULL; i++)
		all[i] = (uint16_t)i;
	if (status == SRT_OK)
		status = srt_stream_create(srt_context_device(context), 0, "casts", &stream);
	for (size_t i = 0; i < SRT_ARRAY_LEN(arrays) && status == SRT_OK; i++) {
		bool wide = arrays[i].from == SRT_F32;
		void *want = read_bits(g, arrays[i].key, arrays[i].to, &n);

		if (want == NULL || n != (wide ? nfloats : 0x10000))
			status = srt_fail(SRT_ERR_FORMAT, "'%s' is not as it should be",
					  arrays[i].key);
		else
			status = run_cast(stream, v, arrays[i].key, arrays[i].from,
					  wide ? floats : all, arrays[i].to, want, n);
		free(want);
	}
	verdict_exact(v, srt_safetensors_count(g->expect) == nexpected,
		      "%zu arrays are recorded, not %zu", srt_safetensors_count(g->expect),
		      nexpected);
	srt_stream_destroy(stream);
	free(floats);
	free(all);
	return status;
}
