/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention of new tokens against the keys and values of earlier ones: those of the new tokens are
 * stored in a cache of the caller, then the queries read the cache. For forward passes.
 */
#include <shardrt/models/layers.h>
#include "models/attention_impl.h"
#include "models/over_sqrt.h"
#include "models/tape_impl.h"

enum { Q, K, V, ROWS, LENGTHS, FIRST }; /* the node's inputs */

/* Stores rows of keys or values in the cache. */
static srt_status_t store_rows(const srt_run_t *run, const srt_node_t *node, srt_view_t x,
			       int64_t ldx, srt_view_t cache)
{
	const srt_attention_t *shape = &node->args.attention;
	srt_index_copy_t args = SRT_INDEX_COPY_INIT;

	args.rows = shape->batch * shape->queries;
	args.n = shape->ldk;
	args.yrows = node->args.cache.sequences * node->args.cache.length;
	args.ldx = ldx;
	args.x = x;
	args.index = srt_run_value(run, node->in[ROWS]);
	args.y = cache;
	return srt_op_index_copy(&args, run->stream);
}

/* The view without its first n elements. */
static srt_view_t skip_elements(srt_view_t view, int64_t n)
{
	view.offset += (size_t)n * (srt_dtype_bits(view.dtype) / 8);
	return view;
}

static srt_status_t store_new(const srt_run_t *run, const srt_node_t *node)
{
	const srt_attention_t *shape = &node->args.attention;
	srt_view_t k, v;

	if (node->in[K] != NULL) {
		k = srt_run_value(run, node->in[K]);
		v = srt_run_value(run, node->in[V]);
	} else {
		k = skip_elements(srt_run_value(run, node->in[Q]), shape->heads * shape->head_dim);
		v = skip_elements(k, shape->ldk);
	}
	SRT_TRY(store_rows(run, node, k, node->in[K] != NULL ? shape->ldk : shape->ldq,
			   node->args.cache.k));
	return store_rows(run, node, v, node->in[V] != NULL ? shape->ldv : shape->ldq,
			  node->args.cache.v);
}

static srt_view_t get_optional(const srt_run_t *run, const srt_node_t *node, int j)
{
	return node->in[j] != NULL ? srt_run_value(run, node->in[j]) : srt_view(NULL, 0, SRT_I32);
}

static srt_status_t forward_cached(const srt_run_t *run, const srt_node_t *node)
{
	const srt_attention_cache_t *cache = &node->args.cache;
	srt_attention_t shape = node->args.attention;
	srt_attention_views_t v = SRT_ATTENTION_VIEWS_INIT;
	int64_t before = 0;

	SRT_TRY(store_new(run, node));
	if (cache->at != NULL) {
		before = cache->at->sequence * cache->length;
		shape.offset = cache->at->offset;
		shape.keys = shape.offset + shape.queries;
	}
	if (shape.keys > cache->length)
		shape.keys = cache->length;
	v.q = srt_run_value(run, node->in[Q]);
	v.k = skip_elements(cache->k, before * shape.ldk);
	v.v = skip_elements(cache->v, before * shape.ldv);
	v.lengths = get_optional(run, node, LENGTHS);
	v.first = get_optional(run, node, FIRST);
	v.out = srt_run_value(run, node->out);
	v.stats = srt_run_scratch(run, node, SRT_F32);
	return srt_op_attention(&shape, &v, run->stream);
}

static srt_status_t measure_cached(srt_tape_t *tape, const srt_node_t *node)
{
	const int masked = node->in[LENGTHS] != NULL || node->in[FIRST] != NULL;

	return srt_op_attention_memory(tape->device, &node->args.attention, node->out->dtype, 0,
				       masked, &tape->scratch_nbytes);
}

static const srt_layer_t cached_layer = {
	.name = "attention_cached",
	.forward = forward_cached,
	.measure = measure_cached,
};

/* The shape of the tensors, keys of the longest pass; 0 if they do not match. */
static int make_shape(const srt_attention_in_t *in, const srt_attention_cache_t *cache,
		      srt_attention_t *shape)
{
	const int64_t kv_heads = in->kv_heads != 0 ? in->kv_heads : in->heads;
	const int64_t heads = in->k != NULL ? in->heads : in->heads + 2 * kv_heads;
	int64_t head_dim, width;

	if (in->batch < 1 || in->heads < 1 || kv_heads < 1 || in->heads % kv_heads != 0 ||
	    in->q->rows % in->batch != 0 || in->q->n % heads != 0 ||
	    (in->k == NULL) != (in->v == NULL))
		return 0;
	head_dim = in->q->n / heads;
	width = head_dim * kv_heads;
	*shape = (srt_attention_t){
		.size = sizeof(srt_attention_t),
		.batch = in->batch,
		.queries = in->q->rows / in->batch,
		.keys = cache->length,
		.heads = in->heads,
		.kv_heads = kv_heads,
		.head_dim = head_dim,
		.causal = cache->at != NULL,
		.scale = in->scale != 0.0f ? in->scale : srt_model_over_sqrt(1.0f, head_dim),
		.ldq = in->q->n,
		.ldk = width,
		.ldv = width,
	};
	return srt_attention_has_shape(in->k, in->q->dtype, in->q->rows, width) &&
	       srt_attention_has_shape(in->v, in->q->dtype, in->q->rows, width) &&
	       srt_attention_has_shape(cache->rows, SRT_I32, in->q->rows, 1) &&
	       srt_attention_has_shape(in->lengths, SRT_I32, in->batch, 1) &&
	       srt_attention_has_shape(in->first, SRT_I32, in->q->rows, 1) &&
	       in->batch <= cache->sequences && cache->k.dtype == in->q->dtype &&
	       cache->v.dtype == in->q->dtype &&
	       (cache->at != NULL ? in->batch == 1 && in->lengths == NULL :
				    shape->queries == 1 && in->lengths != NULL);
}

srt_tensor_t *srt_layer_attention_cached(srt_tape_t *tape, const srt_attention_in_t *inputs,
					 const srt_attention_cache_t *cache)
{
	srt_attention_in_t in = *inputs;
	srt_node_desc_t desc = { .layer = &cached_layer };

	if (!srt_tape_usable(tape, cache->rows) ||
	    !srt_attention_enter(tape, cached_layer.name, &in))
		return NULL;
	if (tape->mode != SRT_TAPE_FORWARD || in.mask != NULL ||
	    !make_shape(&in, cache, &desc.args.attention)) {
		srt_tape_fail(
			tape, SRT_ERR_INVALID_ARGUMENT,
			"attention_cached: batch %lld, %lld heads, %lld of keys (0: as many), "
			"q (%lld,%lld) and a cache of %lld sequences of %lld tokens in %s do "
			"not match, or the tape is not for the forward pass alone",
			(long long)in.batch, (long long)in.heads, (long long)in.kv_heads,
			(long long)in.q->rows, (long long)in.q->n, (long long)cache->sequences,
			(long long)cache->length, srt_dtype_name(cache->k.dtype));
		return NULL;
	}
	desc.in[Q] = in.q;
	desc.in[K] = in.k;
	desc.in[V] = in.v;
	desc.in[ROWS] = cache->rows;
	desc.in[LENGTHS] = in.lengths;
	desc.in[FIRST] = in.first;
	desc.dtype = in.q->dtype;
	desc.rows = in.q->rows;
	desc.n = desc.args.attention.heads * desc.args.attention.head_dim;
	desc.args.cache = *cache;
	desc.forward_scratch = srt_tape_f32_nbytes(tape, desc.rows, 2 * in.heads);
	return srt_tape_record(tape, &desc);
}
