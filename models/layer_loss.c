/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Losses by row: cross-entropy, squared error, sum. A loss starts the backward pass: its gradient
 * with respect to the objective is run->grad_scale for every row, times run->scale if there is one.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

/* ---- the gradient of the objective ------------------------------------------------------ */

/* Scratch to round it in: a float, and after it an element of the loss's dtype. */
#define ELEMENT_OFFSET SRT_BLOCK_ALIGN
#define SCALE_NBYTES (2 * ELEMENT_OFFSET)

/* A loss whose dtype was not set is of SRT_F32. */
static int rounds_loss(const srt_node_t *node)
{
	return node->args.loss_dtype == SRT_F16 || node->args.loss_dtype == SRT_BF16;
}

void srt_tape_loss_dtype(srt_tape_t *tape, srt_tensor_t *loss, srt_dtype_t dtype)
{
	srt_node_t *node;

	if (!srt_tape_usable(tape, loss))
		return;
	node = loss->producer >= 0 ? &tape->nodes[loss->producer] : NULL;
	if (node == NULL || !node->layer->is_loss || !srt_is_float(dtype) || tape->finished) {
		srt_tape_fail(
			tape, SRT_ERR_INVALID_ARGUMENT,
			"a loss of dtype %s: needs a float dtype, the tensor of a loss layer, "
			"and a tape that is not finished",
			srt_dtype_name(dtype));
		return;
	}
	if (dtype != SRT_F32 && !rounds_loss(node)) {
		node->args.scale_offset = srt_align_block(node->backward_scratch);
		node->backward_scratch = node->args.scale_offset + SCALE_NBYTES;
	}
	node->args.loss_dtype = dtype;
}

/* x = x rounded to the dtype of `element`. */
static srt_status_t round_scalar(const srt_run_t *run, srt_view_t x, srt_view_t element)
{
	SRT_TRY(srt_op_cast(element, x, 1, run->stream));
	return srt_op_cast(x, element, 1, run->stream);
}

srt_status_t srt_run_loss_scale(const srt_run_t *run, const srt_node_t *node, float *grad_scale,
				srt_view_t *scale)
{
	const srt_dtype_t dtype = node->args.loss_dtype;
	srt_view_t x, element;

	*grad_scale = run->grad_scale;
	*scale = run->scale;
	if (!rounds_loss(node))
		return SRT_OK;
	x = srt_run_block(run, node->scratch_backward, SRT_F32);
	x.offset += node->args.scale_offset;
	element = srt_view(x.buffer, x.offset + ELEMENT_OFFSET, dtype);
	if (run->scale.buffer != NULL)
		SRT_TRY(srt_op_scale(x, run->scale, 1.0f, 1, run->stream));
	else
		SRT_TRY(srt_op_fill(x, 1.0f, 1, run->stream));
	SRT_TRY(round_scalar(run, x, element));
	SRT_TRY(srt_op_scale(x, x, run->grad_scale, 1, run->stream));
	SRT_TRY(round_scalar(run, x, element));
	*grad_scale = 1.0f;
	*scale = x;
	return SRT_OK;
}

/* ---- what all losses do ----------------------------------------------------------------- */

/* One of the losses of <shardrt/ops_rows.h>; dx absent: the values only. */
typedef srt_status_t loss_fn(const srt_run_t *run, const srt_node_t *node, srt_view_t dx,
			     float grad_scale, srt_view_t scale);

typedef struct loss {
	srt_layer_t layer; /* first: a node's layer is its loss */
	loss_fn *compute;
} loss_t;

static srt_status_t forward_loss(const srt_run_t *run, const srt_node_t *node)
{
	const loss_t *loss = (const loss_t *)node->layer;

	return loss->compute(run, node, (srt_view_t){ 0 }, 0.0f, (srt_view_t){ 0 });
}

static srt_status_t backward_loss(const srt_run_t *run, const srt_node_t *node)
{
	const loss_t *loss = (const loss_t *)node->layer;
	srt_view_t dx, scale;
	float grad_scale;
	int accumulate;

	srt_run_grad_in(run, node, 0, &dx, &accumulate);
	SRT_TRY(srt_run_loss_scale(run, node, &grad_scale, &scale));
	return loss->compute(run, node, dx, grad_scale, scale);
}

#define LOSS(id)                                                                                   \
	static const loss_t id##_loss = {                                                          \
		.layer = { .name = #id,                                                            \
			   .keeps_in = 1u << 0 | 1u << 1,                                          \
			   .keeps_out = 1,                                                         \
			   .is_loss = 1,                                                           \
			   .forward = forward_loss,                                                \
			   .backward = backward_loss },                                            \
		.compute = compute_##id,                                                           \
	}

/* The loss of x against a target or NULL. */
static srt_tensor_t *record_loss(srt_tape_t *tape, const loss_t *loss, srt_tensor_t *x,
				 srt_tensor_t *target)
{
	srt_node_desc_t desc = { .layer = &loss->layer,
				 .in = { x, target },
				 .dtype = SRT_F32,
				 .rows = x->rows,
				 .n = 1 };

	return srt_tape_record(tape, &desc);
}

static int is_usable_float(srt_tape_t *tape, const char *name, const srt_tensor_t *x)
{
	if (!srt_tape_usable(tape, x))
		return 0;
	if (srt_is_float(x->dtype))
		return 1;
	srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
		      "%s: an input is %s, must be f32, f16 or bf16", name,
		      srt_dtype_name(x->dtype));
	return 0;
}

static srt_loss_t get_args(const srt_run_t *run, const srt_node_t *node, srt_view_t dx,
			   float grad_scale, srt_view_t scale)
{
	const srt_tensor_t *x = node->in[0];
	srt_loss_t args = SRT_LOSS_INIT;

	args.rows = x->rows;
	args.n = x->n;
	args.grad_scale = grad_scale;
	args.scale = scale;
	args.x = srt_run_value(run, x);
	if (node->in[1] != NULL)
		args.target = srt_run_value(run, node->in[1]);
	args.loss = srt_run_value(run, node->out);
	args.dx = dx;
	return args;
}

/* ---- cross-entropy ---------------------------------------------------------------------- */

static srt_status_t compute_cross_entropy(const srt_run_t *run, const srt_node_t *node,
					  srt_view_t dx, float grad_scale, srt_view_t scale)
{
	const srt_loss_t args = get_args(run, node, dx, grad_scale, scale);

	return srt_op_cross_entropy(&args, run->stream);
}

LOSS(cross_entropy);

int srt_tape_targets_are(srt_tape_t *tape, const srt_tensor_t *x, const srt_tensor_t *targets)
{
	if (!is_usable_float(tape, "cross-entropy", x) || !srt_tape_usable(tape, targets))
		return 0;
	if (targets->dtype == SRT_I32 && targets->n == 1 && targets->rows == x->rows)
		return 1;
	srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
		      "cross-entropy: targets must be i32 of shape (%lld,1)", (long long)x->rows);
	return 0;
}

srt_tensor_t *srt_layer_cross_entropy(srt_tape_t *tape, srt_tensor_t *x, srt_tensor_t *targets)
{
	return srt_tape_targets_are(tape, x, targets) ?
		       record_loss(tape, &cross_entropy_loss, x, targets) :
		       NULL;
}

/* ---- cross-entropy over columns of the ranks ---------------------------------------------- */

srt_status_t srt_loss_make_stats(const srt_loss_t *own, int64_t chunk, srt_stream_t *stream)
{
	const srt_vocab_part_t *all = own->part;

	for (int p = 0; p < own->nparts; p++) {
		const int64_t first = p * chunk < all->n ? p * chunk : all->n;
		const int64_t left = all->n - first;
		const srt_vocab_part_t part = { .vocab = all->vocab,
						.first = all->first + first,
						.n = chunk < left ? chunk : left,
						.ld = all->ld ? all->ld : all->n };
		srt_view_t columns = own->x, stats = own->stats;

		columns.offset += (size_t)first * (srt_dtype_bits(columns.dtype) / 8);
		stats.offset += (size_t)(p * own->stride) * sizeof(float);
		SRT_TRY(srt_op_cross_entropy_part(stats, columns, own->target, own->rows, &part,
						  stream));
	}
	return SRT_OK;
}

srt_status_t srt_run_vocab_stats(const srt_run_t *run, const srt_node_t *node, srt_view_t x,
				 srt_view_t targets, int64_t rows)
{
	srt_loss_t own = SRT_LOSS_INIT;

	own.rows = rows;
	own.x = x;
	own.target = targets;
	own.part = &node->args.part;
	own.nparts = srt_tape_own_parts(run->tape);
	own.stride = 3 * node->args.stats_rows;
	own.stats = srt_run_stats(run, node);
	SRT_TRY(srt_loss_make_stats(&own, own.nparts > 1 ? node->args.parts.chunk : own.part->n,
				    run->stream));
	return srt_run_gather_stats(run, node);
}

void srt_run_set_stats(const srt_run_t *run, const srt_node_t *node, srt_loss_t *loss)
{
	loss->part = &node->args.part;
	loss->nparts = run->tape->nranks * srt_tape_own_parts(run->tape);
	loss->stride = 3 * node->args.stats_rows;
	loss->stats = srt_run_all_stats(run, node);
}

static srt_status_t merge_cross_entropy(const srt_run_t *run, const srt_node_t *node, srt_view_t dx,
					float grad_scale, srt_view_t scale)
{
	srt_loss_t args = get_args(run, node, dx, grad_scale, scale);

	srt_run_set_stats(run, node, &args);
	return srt_op_cross_entropy_merge(&args, run->stream);
}

/* The backward pass uses the statistics of the forward pass again. */
static srt_status_t forward_colwise(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0];

	SRT_TRY(srt_run_vocab_stats(run, node, srt_run_value(run, x),
				    srt_run_value(run, node->in[1]), x->rows));
	return merge_cross_entropy(run, node, (srt_view_t){ 0 }, 0.0f, (srt_view_t){ 0 });
}

static const loss_t cross_entropy_colwise_loss = {
	.layer = { .name = "cross_entropy_colwise",
		   .keeps_in = 1u << 0 | 1u << 1,
		   .keeps_out = 1,
		   .is_loss = 1,
		   .gathers = SRT_GATHER_STATS,
		   .forward = forward_colwise,
		   .backward = backward_loss },
	.compute = merge_cross_entropy,
};

srt_tensor_t *srt_layer_cross_entropy_colwise(srt_tape_t *tape, srt_tensor_t *x,
					      srt_tensor_t *targets, int64_t vocab)
{
	srt_node_desc_t desc = { .layer = &cross_entropy_colwise_loss.layer,
				 .dtype = SRT_F32,
				 .in = { x, targets },
				 .n = 1,
				 .args.part = srt_tape_vocab_part(tape, vocab) };

	if (!srt_tape_targets_are(tape, x, targets))
		return NULL;
	if (x->n != desc.args.part.n) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "cross-entropy: logits of %lld columns, but tensor-parallel rank %d "
			      "of %d has %lld of a vocabulary of %lld",
			      (long long)x->n, tape->rank, tape->nranks,
			      (long long)desc.args.part.n, (long long)vocab);
		return NULL;
	}
	if (!srt_tape_is_cut(tape))
		return record_loss(tape, &cross_entropy_loss, x, targets);
	desc.args.parts.chunk = vocab / tape->nparts + (vocab % tape->nparts != 0);
	desc.rows = desc.args.stats_rows = x->rows;
	desc.saved_nbytes[0] = srt_tape_stats_nbytes(tape, x->rows);
	return srt_tape_record(tape, &desc);
}

/* ---- squared error ---------------------------------------------------------------------- */

static srt_status_t compute_mse(const srt_run_t *run, const srt_node_t *node, srt_view_t dx,
				float grad_scale, srt_view_t scale)
{
	const srt_loss_t args = get_args(run, node, dx, grad_scale, scale);

	return srt_op_mse(&args, run->stream);
}

LOSS(mse);

static int check_target(srt_tape_t *tape, const srt_tensor_t *x, const srt_tensor_t *target)
{
	if (!is_usable_float(tape, "mse", x) || !is_usable_float(tape, "mse", target))
		return 0;
	if (target->rows == x->rows && target->n == x->n && !target->needs_grad)
		return 1;
	srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
		      "mse: the target must be a constant of shape (%lld,%lld)", (long long)x->rows,
		      (long long)x->n);
	return 0;
}

srt_tensor_t *srt_layer_mse(srt_tape_t *tape, srt_tensor_t *x, srt_tensor_t *target)
{
	if (!check_target(tape, x, target))
		return NULL;
	/* x comes to the dtype of the target; its gradient is rounded once on the way back. */
	x = srt_layer_cast(tape, x, target->dtype);
	return x != NULL ? record_loss(tape, &mse_loss, x, target) : NULL;
}

/* ---- sum -------------------------------------------------------------------------------- */

static srt_status_t compute_sum(const srt_run_t *run, const srt_node_t *node, srt_view_t dx,
				float grad_scale, srt_view_t scale)
{
	const srt_loss_t args = get_args(run, node, dx, grad_scale, scale);

	return srt_op_sum_loss(&args, run->stream);
}

LOSS(sum);

srt_tensor_t *srt_layer_sum(srt_tape_t *tape, srt_tensor_t *x)
{
	srt_tensor_t *loss;

	if (!is_usable_float(tape, "sum", x))
		return NULL;
	loss = record_loss(tape, &sum_loss, x, NULL);
	if (loss != NULL)
		srt_tape_loss_dtype(tape, loss, x->dtype);
	return loss;
}
