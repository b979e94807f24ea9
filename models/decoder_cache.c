/* SPDX-License-Identifier: BSD-3-Clause */
/* The cache of keys and values of a decoder. */
#include "models/decoder_impl.h"

#include <stdlib.h>

#include "models/try.h"

/* Bytes of the keys, or values, of a token in a layer. */
static size_t row_nbytes(const srt_decoder_t *d, srt_dtype_t dtype)
{
	const int64_t width = d->config.kv_heads / d->tensor_ranks * d->config.head_dim;

	return (size_t)width * (srt_dtype_bits(dtype) / 8);
}

static srt_status_t check_sizes(const srt_decoder_config_t *c, int64_t sequences, int64_t length)
{
	if (sequences >= 1 && length >= 1 && length <= c->context &&
	    sequences <= INT32_MAX / length)
		return SRT_OK;
	return srt_model_fail(
		SRT_ERR_INVALID_ARGUMENT,
		"decoder: a cache of %lld sequences of %lld tokens, but a sequence has "
		"1 to %lld tokens, and all have at most %d",
		(long long)sequences, (long long)length, (long long)c->context, INT32_MAX);
}

srt_status_t srt_decoder_cache_create(srt_decoder_t *d, srt_device_t *device, int64_t sequences,
				      int64_t length, srt_decoder_cache_t **created)
{
	srt_unit_types_t types = { .size = sizeof(types) }, root = types;
	srt_decoder_cache_t *cache;
	srt_status_t status;
	size_t nbytes;

	SRT_TRY(check_sizes(&d->config, sequences, length));
	SRT_TRY(srt_unit_types(d->root, &root));
	SRT_TRY(srt_unit_types(d->blocks[0].unit, &types));
	/* A frozen base of another dtype is widened to that of what comes from the root. */
	if (!types.casts_inputs)
		types.compute = root.compute;
	cache = calloc(1, sizeof(*cache));
	if (cache == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory for a cache");
	cache->sequences = sequences;
	cache->length = length;
	cache->dtype = types.compute;
	cache->row_nbytes = row_nbytes(d, types.compute);
	cache->nparts = 2 * d->config.layers;
	status = __builtin_mul_overflow(cache->nparts * (sequences * length), cache->row_nbytes,
					&nbytes) ?
			 srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "decoder: the cache is too large") :
			 srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, "keys and values",
					   &cache->buffer);
	if (status != SRT_OK) {
		free(cache);
		return status;
	}
	*created = cache;
	return SRT_OK;
}

void srt_decoder_cache_destroy(srt_decoder_cache_t *cache)
{
	if (cache == NULL)
		return;
	srt_buffer_destroy(cache->buffer);
	free(cache);
}

size_t srt_decoder_cache_nbytes(const srt_decoder_cache_t *cache)
{
	return srt_buffer_nbytes(cache->buffer);
}

/* Where part i begins: a layer's keys are followed by its values, layer after layer. */
static size_t part_offset(const srt_decoder_cache_t *cache, int64_t i)
{
	return (size_t)(i * cache->sequences * cache->length) * cache->row_nbytes;
}

srt_attention_cache_t srt_decoder_cache_of(const srt_decoder_cache_t *cache, int64_t layer)
{
	return (srt_attention_cache_t){
		.k = srt_view(cache->buffer, part_offset(cache, 2 * layer), cache->dtype),
		.v = srt_view(cache->buffer, part_offset(cache, 2 * layer + 1), cache->dtype),
		.sequences = cache->sequences,
		.length = cache->length,
	};
}

srt_status_t srt_decoder_cache_move(srt_decoder_cache_t *cache, int64_t from, int64_t to,
				    int64_t ntokens, srt_stream_t *stream)
{
	const size_t sequence = (size_t)cache->length * cache->row_nbytes;

	if (from < 0 || to < 0 || from >= cache->sequences || to >= cache->sequences ||
	    from == to || ntokens < 0 || ntokens > cache->length)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: %lld tokens of sequence %lld cannot be copied to "
				      "sequence %lld: a cache has %lld sequences of %lld tokens",
				      (long long)ntokens, (long long)from, (long long)to,
				      (long long)cache->sequences, (long long)cache->length);
	for (int64_t i = 0; i < cache->nparts; i++) {
		const size_t part = part_offset(cache, i);

		SRT_TRY(srt_buffer_copy(cache->buffer, part + (size_t)to * sequence, cache->buffer,
					part + (size_t)from * sequence,
					(size_t)ntokens * cache->row_nbytes, stream));
	}
	return SRT_OK;
}
