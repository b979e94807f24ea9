/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multi-head attention: q, k, v in three tensors or packed into one or two, of the same positions
 * or of others, with one head of k and v for each head of q or for several, -> (batch*queries,
 * width). Row maximum and row sum of the softmax (batch,heads,queries,2) are saved; backward reads
 * them, the inputs and the output.
 */
#include <shardrt/models/layers.h>
#include "models/attention_impl.h"
#include "models/over_sqrt.h"
#include "models/tape_impl.h"

enum { Q, K, V, LENGTHS, MASK, FIRST }; /* the node's inputs */

/* What comes after `heads` heads in a packed row; an absent view stays absent. */
static srt_view_t skip_heads(srt_view_t packed, const srt_attention_t *shape, int64_t heads)
{
	const size_t width = (size_t)(heads * shape->head_dim);

	if (packed.buffer != NULL)
		packed.offset += width * (srt_dtype_bits(packed.dtype) / 8);
	return packed;
}

/* q, k, v, or their gradients, from those of the inputs: k or v without a tensor is packed after
 * the one before it. */
static void unpack_views(const srt_node_t *node, srt_view_t *q, srt_view_t *k, srt_view_t *v)
{
	const srt_attention_t *shape = &node->args.attention;

	if (node->in[K] == NULL)
		*k = skip_heads(*q, shape, shape->heads);
	if (node->in[V] == NULL)
		*v = skip_heads(*k, shape, shape->kv_heads);
}

static srt_view_t get_value(const srt_run_t *run, const srt_node_t *node, int j)
{
	return node->in[j] != NULL ? srt_run_value(run, node->in[j]) :
				     srt_view(NULL, 0, srt_node_dtype(node));
}

static srt_attention_views_t get_views(const srt_run_t *run, const srt_node_t *node)
{
	srt_attention_views_t v = {
		.size = sizeof(srt_attention_views_t),
		.q = get_value(run, node, Q),
		.k = get_value(run, node, K),
		.v = get_value(run, node, V),
		.lengths = get_value(run, node, LENGTHS),
		.mask = get_value(run, node, MASK),
		.first = get_value(run, node, FIRST),
		.out = srt_run_value(run, node->out),
		.stats = srt_run_saved(run, node, 0),
	};

	unpack_views(node, &v.q, &v.k, &v.v);
	return v;
}

static srt_status_t forward_attention(const srt_run_t *run, const srt_node_t *node)
{
	const srt_attention_views_t v = get_views(run, node);

	return srt_op_attention(&node->args.attention, &v, run->stream);
}

static srt_status_t backward_attention(const srt_run_t *run, const srt_node_t *node)
{
	srt_attention_views_t v = get_views(run, node);
	int accumulate;

	v.dout = srt_run_grad_out(run, node);
	v.scratch = srt_run_block(run, node->scratch_backward, SRT_F32);
	srt_run_grad_in(run, node, Q, &v.dq, &accumulate);
	srt_run_grad_in(run, node, K, &v.dk, &accumulate);
	srt_run_grad_in(run, node, V, &v.dv, &accumulate);
	unpack_views(node, &v.dq, &v.dk, &v.dv);
	return srt_op_attention_backward(&node->args.attention, &v, run->stream);
}

static srt_status_t measure_attention(srt_tape_t *tape, const srt_node_t *node)
{
	const int masked =
		node->in[LENGTHS] != NULL || node->in[MASK] != NULL || node->in[FIRST] != NULL;

	for (int backward = 0; backward <= node->has_backward; backward++)
		SRT_TRY(srt_op_attention_memory(tape->device, &node->args.attention,
						node->out->dtype, backward, masked,
						&tape->scratch_nbytes));
	return SRT_OK;
}

static const srt_layer_t attention_layer = {
	.name = "attention",
	.keeps_in = 1u << Q | 1u << K | 1u << V | 1u << LENGTHS | 1u << MASK | 1u << FIRST,
	.keeps_out = 1,
	.forward = forward_attention,
	.backward = backward_attention,
	.measure = measure_attention,
};

/* The shape of the tensors; 0 if they do not match. */
static int make_shape(const srt_attention_in_t *in, srt_attention_t *shape)
{
	const srt_tensor_t *keys = in->k != NULL ? in->k : in->q;
	const int64_t kv_heads = in->kv_heads != 0 ? in->kv_heads : in->heads;
	const int64_t k_parts = in->v != NULL ? 1 : 2;
	int64_t q_heads, width;

	if (in->batch < 1 || in->heads < 1 || kv_heads < 1 || in->heads % kv_heads != 0 ||
	    in->offset < 0 || (in->v != NULL && in->k == NULL) || in->q->rows % in->batch != 0 ||
	    keys->rows % in->batch != 0)
		return 0;
	q_heads = in->k != NULL ? in->heads : in->heads + 2 * kv_heads;
	if (in->q->n % q_heads != 0)
		return 0;
	width = in->q->n / q_heads * kv_heads;
	*shape = (srt_attention_t){
		.size = sizeof(srt_attention_t),
		.batch = in->batch,
		.queries = in->q->rows / in->batch,
		.keys = keys->rows / in->batch,
		.heads = in->heads,
		.kv_heads = kv_heads,
		.head_dim = in->q->n / q_heads,
		.causal = in->causal,
		.offset = in->offset,
		.ldq = in->q->n,
		.ldk = keys->n,
		.ldv = in->v != NULL ? width : keys->n,
	};
	shape->lddq = shape->ldq;
	shape->lddk = shape->ldk;
	shape->lddv = shape->ldv;
	shape->scale = in->scale != 0.0f ? in->scale : srt_model_over_sqrt(1.0f, shape->head_dim);
	return srt_attention_has_shape(in->k, in->q->dtype, keys->rows, k_parts * width) &&
	       srt_attention_has_shape(in->v, in->q->dtype, keys->rows, width) &&
	       srt_attention_has_shape(in->lengths, SRT_I32, in->batch, 1) &&
	       srt_attention_has_shape(in->mask, SRT_U8, in->batch, shape->keys) &&
	       srt_attention_has_shape(in->first, SRT_I32, in->q->rows, 1);
}

static void refuse_shapes(srt_tape_t *tape, const srt_attention_in_t *in)
{
	const srt_tensor_t *of[] = { in->q, in->k, in->v, in->lengths, in->mask, in->first };
	long long sizes[2 * SRT_NODE_INPUTS];

	for (int j = 0; j < SRT_NODE_INPUTS; j++) {
		sizes[2 * j] = of[j] != NULL ? (long long)of[j]->rows : 0;
		sizes[2 * j + 1] = of[j] != NULL ? (long long)of[j]->n : 0;
	}
	srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
		      "attention: batch %lld, %lld heads, %lld of keys (0: as many), offset %lld; "
		      "q (%lld,%lld), k (%lld,%lld), v (%lld,%lld), lengths (%lld,%lld), mask "
		      "(%lld,%lld), first (%lld,%lld) do not match",
		      (long long)in->batch, (long long)in->heads, (long long)in->kv_heads,
		      (long long)in->offset, sizes[0], sizes[1], sizes[2], sizes[3], sizes[4],
		      sizes[5], sizes[6], sizes[7], sizes[8], sizes[9], sizes[10], sizes[11]);
}

srt_tensor_t *srt_layer_attention_of(srt_tape_t *tape, const srt_attention_in_t *inputs)
{
	srt_attention_in_t in = *inputs;
	srt_node_desc_t desc = { .layer = &attention_layer };
	srt_attention_t *shape = &desc.args.attention;

	if (!srt_attention_enter(tape, attention_layer.name, &in))
		return NULL;
	if (!make_shape(&in, shape)) {
		refuse_shapes(tape, &in);
		return NULL;
	}
	desc.in[Q] = in.q;
	desc.in[K] = in.k;
	desc.in[V] = in.v;
	desc.in[LENGTHS] = in.lengths;
	desc.in[MASK] = in.mask;
	desc.in[FIRST] = in.first;
	desc.dtype = in.q->dtype;
	desc.rows = in.q->rows;
	desc.n = shape->heads * shape->head_dim;
	desc.saved_nbytes[0] = srt_tape_f32_nbytes(tape, desc.rows, 2 * shape->heads);
	if (tape->mode == SRT_TAPE_TRAINING &&
	    srt_op_attention_scratch(tape->device, shape, &desc.backward_scratch) != SRT_OK) {
		srt_tape_fail(tape, SRT_ERR_UNSUPPORTED, NULL);
		return NULL;
	}
	return srt_tape_record(tape, &desc);
}

srt_tensor_t *srt_layer_attention(srt_tape_t *tape, srt_tensor_t *qkv, int64_t context,
				  int64_t heads, int causal)
{
	srt_attention_in_t in = { .q = qkv, .heads = heads, .causal = causal };

	if (!srt_tape_usable(tape, qkv))
		return NULL;
	if (context < 1 || heads < 1 || qkv->rows % context != 0 || qkv->n % (3 * heads) != 0) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "attention: (%lld,%lld) is not (batch*%lld, 3*%lld heads)",
			      (long long)qkv->rows, (long long)qkv->n, (long long)context,
			      (long long)heads);
		return NULL;
	}
	in.batch = qkv->rows / context;
	return srt_layer_attention_of(tape, &in);
}
