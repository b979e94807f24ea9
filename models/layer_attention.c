/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multi-head attention: q, k, v in three tensors or packed into one or two, of the same positions
 * or of others, -> (batch*queries, width). Row maximum and row sum of the softmax
 * (batch,heads,queries,2) are saved; backward reads them, the inputs and the output.
 */
#include <shardrt/models/layers.h>
#include "models/over_sqrt.h"
#include "models/tape_impl.h"

enum { Q, K, V, LENGTHS, MASK }; /* the node's inputs */

/* The part `which` of a packed row; an absent view stays absent. */
static srt_view_t get_part(srt_view_t packed, const srt_attention_t *shape, size_t which)
{
	const size_t width = (size_t)(shape->heads * shape->head_dim);

	if (packed.buffer != NULL)
		packed.offset += which * width * (srt_dtype_bits(packed.dtype) / 8);
	return packed;
}

/* q, k, v, or their gradients, from those of the inputs: k or v without a tensor is packed after
 * the one before it. */
static void unpack_views(const srt_node_t *node, srt_view_t *q, srt_view_t *k, srt_view_t *v)
{
	const srt_attention_t *shape = &node->args.attention;

	if (node->in[K] == NULL)
		*k = get_part(*q, shape, 1);
	if (node->in[V] == NULL)
		*v = get_part(*k, shape, 1);
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
	const int masked = node->in[LENGTHS] != NULL || node->in[MASK] != NULL;

	for (int backward = 0; backward <= node->has_backward; backward++)
		SRT_TRY(srt_op_attention_memory(tape->device, &node->args.attention,
						node->out->dtype, backward, masked,
						&tape->scratch_nbytes));
	return SRT_OK;
}

static const srt_layer_t attention_layer = {
	.name = "attention",
	.keeps_in = 1u << Q | 1u << K | 1u << V | 1u << LENGTHS | 1u << MASK,
	.keeps_out = 1,
	.forward = forward_attention,
	.backward = backward_attention,
	.measure = measure_attention,
};

/* Whether a tensor is NULL (left out), or (rows,n) of this type. */
static int has_shape(const srt_tensor_t *x, srt_dtype_t dtype, int64_t rows, int64_t n)
{
	return x == NULL || (x->dtype == dtype && x->rows == rows && x->n == n);
}

/* The shape of the tensors; 0 if they do not match. */
static int make_shape(const srt_attention_in_t *in, srt_attention_t *shape)
{
	const srt_tensor_t *keys = in->k != NULL ? in->k : in->q;
	const int64_t q_parts = in->k != NULL ? 1 : 3, k_parts = in->v != NULL ? 1 : 2;
	int64_t width;

	if (in->batch < 1 || in->heads < 1 || (in->v != NULL && in->k == NULL) ||
	    in->q->rows % in->batch != 0 || in->q->n % (q_parts * in->heads) != 0 ||
	    keys->rows % in->batch != 0)
		return 0;
	width = in->q->n / q_parts;
	*shape = (srt_attention_t){
		.size = sizeof(srt_attention_t),
		.batch = in->batch,
		.queries = in->q->rows / in->batch,
		.keys = keys->rows / in->batch,
		.heads = in->heads,
		.head_dim = width / in->heads,
		.causal = in->causal,
		.ldq = in->q->n,
		.ldk = keys->n,
		.ldv = in->v != NULL ? width : keys->n,
	};
	shape->lddq = shape->ldq;
	shape->lddk = shape->ldk;
	shape->lddv = shape->ldv;
	shape->scale = srt_model_over_sqrt(1.0f, shape->head_dim);
	return has_shape(in->k, in->q->dtype, keys->rows, k_parts * width) &&
	       has_shape(in->v, in->q->dtype, keys->rows, width) &&
	       has_shape(in->lengths, SRT_I32, in->batch, 1) &&
	       has_shape(in->mask, SRT_U8, in->batch, shape->keys);
}

static void refuse_shapes(srt_tape_t *tape, const srt_attention_in_t *in)
{
	const srt_tensor_t *of[] = { in->q, in->k, in->v, in->lengths, in->mask };
	long long sizes[2 * SRT_NODE_INPUTS];

	for (int j = 0; j < SRT_NODE_INPUTS; j++) {
		sizes[2 * j] = of[j] != NULL ? (long long)of[j]->rows : 0;
		sizes[2 * j + 1] = of[j] != NULL ? (long long)of[j]->n : 0;
	}
	srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
		      "attention: batch %lld, %lld heads; q (%lld,%lld), k (%lld,%lld), v "
		      "(%lld,%lld), lengths (%lld,%lld), mask (%lld,%lld) do not match",
		      (long long)in->batch, (long long)in->heads, sizes[0], sizes[1], sizes[2],
		      sizes[3], sizes[4], sizes[5], sizes[6], sizes[7], sizes[8], sizes[9]);
}

/* The inputs as the open units have them. */
static int enter_inputs(srt_tape_t *tape, srt_attention_in_t *in)
{
	srt_tensor_t **const floats[] = { &in->q, &in->k, &in->v };

	for (int j = 0; j < 3; j++) {
		if (j != Q && *floats[j] == NULL)
			continue;
		*floats[j] = srt_tape_enter(tape, "attention", *floats[j]);
		if (*floats[j] == NULL ||
		    !srt_tape_same_dtype(tape, "attention", in->q, *floats[j]))
			return 0;
	}
	return (in->lengths == NULL || srt_tape_usable(tape, in->lengths)) &&
	       (in->mask == NULL || srt_tape_usable(tape, in->mask));
}

srt_tensor_t *srt_layer_attention_of(srt_tape_t *tape, const srt_attention_in_t *inputs)
{
	srt_attention_in_t in = *inputs;
	srt_node_desc_t desc = { .layer = &attention_layer };
	srt_attention_t *shape = &desc.args.attention;

	if (!enter_inputs(tape, &in))
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
