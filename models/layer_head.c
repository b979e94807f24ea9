/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The output layer fused with its cross-entropy, by chunks of rows: of the logits, in the dtype of
 * x, one chunk exists at a time. Its gradient with respect to the objective is as that of the
 * losses in layer_loss.c. Rows of logits are a multiple of LOGITS_ALIGN elements apart: tensor
 * cores need rows that begin at multiples of 16 bytes, and GPT-2's vocabulary is odd.
 * Colwise: each tensor-parallel rank has the columns of its rows of the weight. For each chunk the
 * ranks gather the statistics of its rows (srt_op_cross_entropy_part()), never the logits. With
 * tensor parts each of them has statistics, and dx is made in parts (layer_parts.c).
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

#define LOGITS_ALIGN 64
#define MOST_LOGITS_NBYTES ((size_t)512 << 20) /* of the default chunk on a GPU */
#define SHARE_OF_MEMORY 128                    /* the same as a part of the GPU's memory */

/* One chunk of rows, for product, loss and gradients. */
typedef struct chunk {
	int64_t first, rows;
	srt_view_t x, logits, weight;
	int64_t n, vocab, ld; /* ld: from a row of logits to the next */
	int64_t sum_rows;     /* of one product of the gradient of the weight */
	srt_view_t dlogits;   /* logits, or absent */
	float grad_scale;
	srt_view_t scale;
} chunk_t;

static srt_view_t shift_view(srt_view_t view, int64_t nelem)
{
	view.offset += (size_t)nelem * (srt_dtype_bits(view.dtype) / 8);
	return view;
}

static int64_t pitch_of(int64_t vocab)
{
	return (vocab + LOGITS_ALIGN - 1) / LOGITS_ALIGN * LOGITS_ALIGN;
}

/* The shapes of the products of a chunk. Rows of the logits are c->ld apart. */
static srt_matmul_t make_logits_product(const chunk_t *c)
{
	srt_matmul_t mm = srt_dense_product(c->rows, c->vocab, c->n, 0, 1);

	mm.ldc = c->ld;
	return mm;
}

static srt_matmul_t make_x_product(const chunk_t *c)
{
	srt_matmul_t mm = srt_dense_product(c->rows, c->n, c->vocab, 0, 0);

	mm.lda = c->ld;
	return mm;
}

static srt_matmul_t make_weight_product(const chunk_t *c, int64_t rows)
{
	srt_matmul_t mm = srt_dense_product(c->vocab, c->n, rows, 1, 0);

	mm.lda = c->ld;
	return mm;
}

/* logits = x weight^T, then the loss by row and, in place, its gradient. */
static srt_status_t run_chunk_loss(const srt_run_t *run, const srt_node_t *node, const chunk_t *c)
{
	srt_matmul_t mm = make_logits_product(c);
	srt_loss_t loss = SRT_LOSS_INIT;

	loss.rows = c->rows;
	loss.n = c->vocab;
	loss.ld = c->ld;
	loss.grad_scale = c->grad_scale;
	loss.scale = c->scale;
	loss.x = c->logits;
	loss.target = shift_view(srt_run_value(run, node->in[1]), c->first);
	loss.loss = shift_view(srt_run_value(run, node->out), c->first);
	loss.dx = c->dlogits;
	mm.a = c->x;
	mm.b = c->weight;
	mm.c = c->logits;
	SRT_TRY(srt_op_matmul(&mm, run->stream));
	if (!node->layer->gathers)
		return srt_op_cross_entropy(&loss, run->stream);
	SRT_TRY(srt_run_vocab_stats(run, node, loss.x, loss.target, c->rows));
	srt_run_set_stats(run, node, &loss);
	return srt_op_cross_entropy_merge(&loss, run->stream);
}

/* dx = dlogits weight, row by row. */
static srt_status_t run_chunk_x_gradient(const srt_run_t *run, const srt_node_t *node,
					 const chunk_t *c, srt_view_t dx, int add)
{
	const srt_tensor_t *x = node->in[0];
	srt_matmul_t mm = make_x_product(c);

	mm.accumulate = add;
	mm.a = c->logits;
	mm.b = c->weight;
	mm.c = shift_view(dx, c->first * c->n);
	if (x->grad_parts)
		return srt_run_part_products(run, &mm, &node->args.parts, x->rows * x->n);
	return srt_op_matmul(&mm, run->stream);
}

/* dweight (+)= dlogits^T x, one block of the sum after the other, so that chunks do not change the
 * bits; in numerics mode fast on a GPU all at once, which rounds once. */
static srt_status_t run_chunk_weight_gradient(const srt_run_t *run, const chunk_t *c,
					      srt_view_t dweight, int add)
{
	for (int64_t first = 0; first < c->rows; first += c->sum_rows) {
		const int64_t left = c->rows - first;
		srt_matmul_t mm = make_weight_product(c, left < c->sum_rows ? left : c->sum_rows);

		mm.a = shift_view(c->logits, first * c->ld);
		mm.b = shift_view(c->x, first * c->n);
		mm.c = dweight;
		mm.accumulate = add || first > 0;
		SRT_TRY(srt_op_matmul(&mm, run->stream));
	}
	return SRT_OK;
}

static void describe_head(const srt_node_t *node, chunk_t *c)
{
	int64_t shape[SRT_MAX_DIMS];

	srt_param_partition(node->param[0], shape);
	c->n = node->in[0]->n;
	c->vocab = shape[0];
	c->ld = pitch_of(c->vocab);
	c->sum_rows = node->args.sum_rows;
}

static srt_status_t run_chunks(const srt_run_t *run, const srt_node_t *node, int scratch,
			       int with_gradient)
{
	const srt_tensor_t *x = node->in[0];
	srt_view_t dx = { 0 }, dweight = { 0 };
	int add_x = 0, add_weight = 0;
	const int64_t most = node->args.chunk_rows;
	chunk_t c = { .logits = srt_run_block(run, scratch, x->dtype) };

	describe_head(node, &c);
	SRT_TRY(srt_run_param(run, node, 0, &c.weight));
	if (with_gradient) {
		c.dlogits = c.logits;
		SRT_TRY(srt_run_loss_scale(run, node, &c.grad_scale, &c.scale));
		srt_run_grad_in(run, node, 0, &dx, &add_x);
		SRT_TRY(srt_run_param_grad(run, node, 0, &dweight, &add_weight));
	}
	for (c.first = 0; c.first < x->rows; c.first += most) {
		c.rows = x->rows - c.first < most ? x->rows - c.first : most;
		c.x = shift_view(srt_run_value(run, x), c.first * x->n);
		SRT_TRY(run_chunk_loss(run, node, &c));
		if (dx.buffer != NULL)
			SRT_TRY(run_chunk_x_gradient(run, node, &c, dx, add_x));
		if (dweight.buffer != NULL)
			SRT_TRY(run_chunk_weight_gradient(run, &c, dweight,
							  add_weight || c.first > 0));
	}
	return dweight.buffer != NULL ? srt_run_param_ready(node, 0) : SRT_OK;
}

static srt_status_t forward_head(const srt_run_t *run, const srt_node_t *node)
{
	if (run->training && node->out->needs_grad)
		return SRT_OK; /* computed in the backward pass */
	return run_chunks(run, node, node->scratch_forward, 0);
}

static srt_status_t backward_head(const srt_run_t *run, const srt_node_t *node)
{
	return run_chunks(run, node, node->scratch_backward, 1);
}

/* Gradients are stored, or added to a former value. */
static srt_status_t measure_both(srt_tape_t *tape, srt_matmul_t mm, srt_dtype_t dtype)
{
	for (mm.accumulate = 0; mm.accumulate <= 1; mm.accumulate++)
		SRT_TRY(srt_op_matmul_memory(tape->device, &mm, dtype, &tape->scratch_nbytes));
	return SRT_OK;
}

static srt_status_t measure_chunk(srt_tape_t *tape, const srt_node_t *node, const chunk_t *c)
{
	const srt_matmul_t logits = make_logits_product(c);
	const srt_matmul_t dx = make_x_product(c);
	const srt_dtype_t dtype = c->x.dtype;
	int64_t left;

	SRT_TRY(srt_op_matmul_memory(tape->device, &logits, dtype, &tape->scratch_nbytes));
	if (!node->has_backward)
		return SRT_OK;
	SRT_TRY(node->in[0]->grad_parts ?
			srt_tape_measure_parts(tape, &dx, &node->args.parts, dtype) :
			measure_both(tape, dx, dtype));
	if (c->rows >= c->sum_rows)
		SRT_TRY(measure_both(tape, make_weight_product(c, c->sum_rows), dtype));
	left = c->rows % c->sum_rows;
	return left ? measure_both(tape, make_weight_product(c, left), dtype) : SRT_OK;
}

/* The chunks are of one size, but for the last. */
static srt_status_t measure_head(srt_tape_t *tape, const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0];
	const int64_t most = node->args.chunk_rows, last = x->rows % most;
	chunk_t c = { .rows = x->rows < most ? x->rows : most, .x = srt_view(NULL, 0, x->dtype) };

	describe_head(node, &c);
	SRT_TRY(measure_chunk(tape, node, &c));
	c.rows = last;
	return last > 0 ? measure_chunk(tape, node, &c) : SRT_OK;
}

#define HEAD(id, label, ...)                                                                       \
	static const srt_layer_t id##_layer = { .name = label,                                     \
						.keeps_in = 1u << 0 | 1u << 1,                     \
						.keeps_out = 1,                                    \
						.is_loss = 1,                                      \
						.forward = forward_head,                           \
						.backward = backward_head,                         \
						.measure = measure_head,                           \
						__VA_ARGS__ }

HEAD(head, "head_loss", .adds = 1);
/* The gradient of x is summed over the ranks before it is added to another one. */
HEAD(colwise, "head_loss_colwise", .sums = SRT_SUM_GRADIENT, .gathers = SRT_GATHER_STATS);
/* The input has a gradient in parts. */
HEAD(parts, "head_loss_colwise", .adds = 1, .gathers = SRT_GATHER_STATS);

/* The default chunk. On a GPU its products fill all multiprocessors. The ranks that gather
 * statistics of chunks need the same chunks whatever their devices are. */
static int64_t default_rows(const srt_device_info_t *info, int gathers, size_t row_nbytes)
{
	const size_t part = info->mem_nbytes / SHARE_OF_MEMORY;
	const size_t most = part && part < MOST_LOGITS_NBYTES ? part : MOST_LOGITS_NBYTES;
	const size_t blocks = row_nbytes ? most / (row_nbytes * SRT_HEAD_ROWS) : 1;

	return info->host_memory || gathers || blocks < 1 ? SRT_HEAD_ROWS :
							    (int64_t)blocks * SRT_HEAD_ROWS;
}

static srt_tensor_t *record_head(srt_tape_t *tape, const srt_layer_t *layer, srt_tensor_t *x,
				 srt_param_t *weight, srt_tensor_t *targets, int64_t chunk_rows)
{
	srt_node_desc_t desc = { .layer = layer, .param = { weight }, .dtype = SRT_F32, .n = 1 };
	int64_t shape[SRT_MAX_DIMS], rows, ld;
	size_t nbytes, row_nbytes;
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;
	srt_status_t status;

	desc.in[0] = x = srt_tape_enter(tape, layer->name, x);
	desc.in[1] = targets;
	if (layer == &parts_layer && x != NULL &&
	    srt_tape_param_is(tape, layer->name, weight, 2, -1, x->n) &&
	    srt_tape_parts_of(tape, layer->name, weight, 0, 1, &desc.args.parts))
		desc.in[0] = x = srt_tape_to_parts(tape, x);
	if (tape->status != SRT_OK || x == NULL || !srt_tape_targets_are(tape, x, targets) ||
	    !srt_tape_param_is(tape, layer->name, weight, 2, -1, x->n) ||
	    (layer->gathers &&
	     !srt_tape_param_part(tape, layer->name, weight, x->n, &desc.args.part)))
		return NULL;
	srt_param_partition(weight, shape);
	ld = pitch_of(shape[0]);
	row_nbytes = (size_t)ld * (srt_dtype_bits(x->dtype) / 8);
	status = srt_device_get_info(tape->device, &info);
	if (status != SRT_OK) {
		srt_tape_fail(tape, status, NULL);
		return NULL;
	}
	if (!chunk_rows)
		chunk_rows = default_rows(&info, layer->gathers, row_nbytes);
	if (chunk_rows < 0 || chunk_rows % SRT_HEAD_ROWS != 0) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "%s: chunks of %lld rows, must be a multiple of %d", layer->name,
			      (long long)chunk_rows, SRT_HEAD_ROWS);
		return NULL;
	}
	desc.args.chunk_rows = chunk_rows;
	desc.args.sum_rows = info.fast && !info.host_memory ? chunk_rows : SRT_HEAD_ROWS;
	rows = x->rows < chunk_rows ? x->rows : chunk_rows;
	nbytes = srt_tape_f32_nbytes(tape, rows, ld) / sizeof(float) *
		 (srt_dtype_bits(x->dtype) / 8);
	if (layer->gathers) {
		desc.args.part.ld = ld;
		desc.args.stats_rows = rows;
		desc.args.stats_offset = srt_align_block(nbytes);
		nbytes = desc.args.stats_offset + srt_tape_stats_nbytes(tape, rows);
	}
	desc.rows = x->rows;
	if (tape->mode == SRT_TAPE_TRAINING && (x->needs_grad || srt_param_requires_grad(weight)))
		desc.backward_scratch = nbytes;
	else
		desc.forward_scratch = nbytes;
	return srt_tape_record(tape, &desc);
}

srt_tensor_t *srt_layer_head_loss(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
				  srt_tensor_t *targets, int64_t chunk_rows)
{
	return record_head(tape, &head_layer, x, weight, targets, chunk_rows);
}

srt_tensor_t *srt_layer_head_loss_colwise(srt_tape_t *tape, srt_tensor_t *x, srt_param_t *weight,
					  srt_tensor_t *targets, int64_t chunk_rows)
{
	const srt_layer_t *layer = tape->nparts > 1 ? &parts_layer :
				   tape->nranks > 1 ? &colwise_layer :
						      &head_layer;

	return record_head(tape, layer, x, weight, targets, chunk_rows);
}
