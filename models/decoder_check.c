/* SPDX-License-Identifier: BSD-3-Clause */
/* The sizes of a decoder: defaults, ranges, and what tensor-parallel ranks can share. */
#include "models/decoder_impl.h"

#include "models/try.h"

srt_decoder_config_t srt_decoder_complete(const srt_decoder_config_t *config)
{
	srt_decoder_config_t c = *config;

	c.kv_heads = c.kv_heads ? c.kv_heads : c.heads;
	c.head_dim = c.head_dim || c.heads < 1 ? c.head_dim : c.width / c.heads;
	c.ffn_width = c.ffn_width ? c.ffn_width : 4 * c.width;
	c.tensor_parts = c.tensor_parts ? c.tensor_parts : 1;
	return c;
}

static srt_status_t check_range(const srt_decoder_config_t *c)
{
	const struct {
		const char *name;
		int64_t value;
	} sizes[] = { { "layers", c->layers },     { "heads", c->heads },
		      { "width", c->width },       { "context", c->context },
		      { "vocab", c->vocab },       { "kv_heads", c->kv_heads },
		      { "head_dim", c->head_dim }, { "ffn_width", c->ffn_width } };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (sizes[i].value >= 1 && sizes[i].value <= INT32_MAX)
			continue;
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: %s must be from 1 to %d, not %lld", sizes[i].name,
				      INT32_MAX, (long long)sizes[i].value);
	}
	if (c->window < 0 || c->window > INT32_MAX)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: a window has 0 (all) to %d tokens, not %lld",
				      INT32_MAX, (long long)c->window);
	/* 2^60 elements: products of the sizes do not overflow */
	if ((double)c->layers * (double)c->width *
			    (4.0 * (double)c->heads * (double)c->head_dim +
			     3.0 * (double)c->ffn_width) +
		    (double)c->width * (2.0 * (double)c->vocab + (double)c->context) >
	    0x1p60)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: a model of %lld layers that are %lld wide is too "
				      "large",
				      (long long)c->layers, (long long)c->width);
	return SRT_OK;
}

/* How `n` tensor-parallel ranks, or parts, share heads, columns and vocabulary. */
static srt_status_t check_shares(const srt_decoder_config_t *c, int n, const char *what)
{
	if (c->heads % n != 0 || c->kv_heads % n != 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: %lld heads of %s cannot be divided among %d %s",
				      (long long)(c->heads % n ? c->heads : c->kv_heads),
				      c->heads % n ? "queries" : "keys and values", n, what);
	if (c->ffn_width % n != 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: a feed-forward width of %lld cannot be divided "
				      "among %d %s",
				      (long long)c->ffn_width, n, what);
	/* in chunks of ceil(vocab / n) */
	if ((c->vocab + n - 1) / n * (n - 1) >= c->vocab)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: a vocabulary of %lld gives nothing to the last of "
				      "%d %s",
				      (long long)c->vocab, n, what);
	return SRT_OK;
}

static srt_status_t check_tensor_ranks(const srt_decoder_config_t *c, int tensor_ranks)
{
	const int parts = c->tensor_parts;

	if (parts < 1 || parts > SRT_TAPE_MOST_PARTS || (parts & (parts - 1)) != 0 ||
	    (parts > 1 && parts % tensor_ranks != 0))
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"decoder: %d tensor parts for %d tensor-parallel ranks: must "
			"be 1 (none), or a power of two up to %d that the ranks share "
			"equally",
			parts, tensor_ranks, SRT_TAPE_MOST_PARTS);
	SRT_TRY(check_shares(c, parts, "tensor parts"));
	SRT_TRY(check_shares(c, tensor_ranks, "tensor-parallel ranks"));
	return SRT_OK;
}

static srt_status_t check_heads(const srt_decoder_config_t *c, int64_t given_head_dim)
{
	if (given_head_dim == 0 && c->width % c->heads != 0)
		return srt_model_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"decoder: a width of %lld cannot be divided among %lld heads; it must be a "
			"multiple of heads",
			(long long)c->width, (long long)c->heads);
	if (c->heads % c->kv_heads != 0)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: %lld heads of queries cannot share %lld heads of "
				      "keys and values; their number must divide that of queries",
				      (long long)c->heads, (long long)c->kv_heads);
	if (c->names->part[SRT_DECODER_QKV] != NULL && c->heads != c->kv_heads)
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: a joint projection of queries, keys and values "
				      "(%s) has as many heads of each, not %lld and %lld",
				      c->names->part[SRT_DECODER_QKV], (long long)c->heads,
				      (long long)c->kv_heads);
	if (c->rotary && (c->rope.dim < 2 || c->rope.dim % 2 != 0 || c->rope.dim > c->head_dim))
		return srt_model_fail(SRT_ERR_INVALID_ARGUMENT,
				      "decoder: rotary positions turn %lld of %lld values of a "
				      "head; they must be even and at most these",
				      (long long)c->rope.dim, (long long)c->head_dim);
	return SRT_OK;
}

srt_status_t srt_decoder_check(const srt_decoder_config_t *config, int tensor_ranks)
{
	const srt_decoder_config_t c = srt_decoder_complete(config);

	SRT_TRY(check_range(&c));
	SRT_TRY(check_heads(&c, config->head_dim));
	return check_tensor_ranks(&c, tensor_ranks);
}
