/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multi-head attention over packed projections: qkv (batch*context, 3*width) -> (batch*context,
 * width). Row maximum and row sum of the softmax (batch,heads,context,2) are saved; backward reads
 * them, the input and the output.
 */
#include "models/layers.h"
#include "models/tape_impl.h"

#include <math.h>

static srt_status_t attention_forward(const srt_run_t *run, const srt_node_t *node)
{
	return srt_op_attention(run->stream, &node->args.attention, srt_run_value(run, node->out),
				srt_run_saved(run, node, 0), srt_run_value(run, node->in[0]));
}

static srt_status_t attention_backward(const srt_run_t *run, const srt_node_t *node)
{
	srt_view_t dqkv;
	int accumulate;

	srt_run_grad_in(run, node, 0, &dqkv, &accumulate);
	return srt_op_attention_backward(run->stream, &node->args.attention, dqkv,
					 srt_run_grad_out(run, node), srt_run_value(run, node->out),
					 srt_run_value(run, node->in[0]),
					 srt_run_saved(run, node, 0),
					 srt_run_block(run, node->scratch_backward, SRT_F32));
}

static const srt_layer_t attention_layer = {
	.name = "attention",
	.keeps_in = 1u << 0,
	.keeps_out = 1,
	.forward = attention_forward,
	.backward = attention_backward,
};

srt_tensor_t *srt_layer_attention(srt_tape_t *tape, srt_tensor_t *qkv, int64_t context,
				  int64_t heads, int causal)
{
	srt_node_desc_t desc = { .layer = &attention_layer, .in = { qkv } };
	srt_attention_t *shape = &desc.args.attention;

	if (!srt_tape_usable(tape, qkv))
		return NULL;
	if (context < 1 || heads < 1 || qkv->rows % context != 0 || qkv->n % (3 * heads) != 0) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "attention: (%lld,%lld) is not (batch*%lld, 3*%lld heads)",
			      (long long)qkv->rows, (long long)qkv->n, (long long)context,
			      (long long)heads);
		return NULL;
	}
	shape->batch = qkv->rows / context;
	shape->context = context;
	shape->heads = heads;
	shape->head_dim = qkv->n / (3 * heads);
	/* correctly rounded on every machine: one square root, one division */
	shape->scale = 1.0f / sqrtf((float)shape->head_dim);
	shape->causal = causal;
	desc.rows = qkv->rows;
	desc.n = qkv->n / 3;
	desc.saved_nbytes[0] = srt_tape_f32_nbytes(tape, qkv->rows, 2 * heads);
	if (tape->mode == SRT_TAPE_TRAINING &&
	    srt_op_attention_scratch(tape->device, shape, &desc.backward_scratch) != SRT_OK) {
		srt_tape_fail(tape, SRT_ERR_UNSUPPORTED, NULL);
		return NULL;
	}
	return srt_tape_record(tape, &desc);
}
