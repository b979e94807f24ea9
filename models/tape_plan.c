/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan of a tape: from the recorded nodes to offsets in one arena.
 *
 *     1. lifetimes of values, of what layers save, and of scratch
 *     2. the backward pass, simulated: the memory of each contribution to a gradient
 *     3. offsets: larger blocks first, each at the lowest offset that is free for its lifetime
 *     4. the scratch that the stream keeps for the layers' products
 *
 * Everything here happens once, before the first step.
 */
#include "models/tape_impl.h"

#include <stdlib.h>

/* Blocks start at multiples of this, for vector loads and for sub-buffers of GPUs. */
#define BLOCK_ALIGN ((size_t)256)

static void extend_block(srt_tape_t *tape, int block, int time)
{
	if (block == SRT_NO_BLOCK)
		return;
	if (tape->blocks[block].last < time)
		tape->blocks[block].last = time;
	if (tape->blocks[block].first > time)
		tape->blocks[block].first = time;
}

static int get_backward_time(const srt_tape_t *tape, int node)
{
	return 2 * tape->nnodes - 1 - node;
}

static size_t get_nbytes(srt_tape_t *tape, const srt_tensor_t *tensor)
{
	/* No type is wider than a float, so this fits if the floats do. */
	return srt_tape_f32_nbytes(tape, tensor->rows, tensor->n) / sizeof(float) *
	       (srt_dtype_bits(tensor->dtype) / 8);
}

static int has_backward_pass(const srt_tape_t *tape, const srt_node_t *node)
{
	return tape->mode == SRT_TAPE_TRAINING && node->layer && node->layer->backward &&
	       node->out->needs_grad;
}

/* 1. Values, saved values and scratch. Inputs live throughout. */
static void plan_values(srt_tape_t *tape)
{
	int end = 2 * tape->nnodes;

	for (srt_tensor_t *t = tape->tensors; t; t = t->next) {
		if (t->producer >= 0)
			continue;
		t->value = srt_tape_block(tape, get_nbytes(tape, t), 0);
		extend_block(tape, t->value, end);
	}
	for (int i = 0; i < tape->nnodes; i++) {
		srt_node_t *node = &tape->nodes[i];
		int back = has_backward_pass(tape, node), when = get_backward_time(tape, i);

		if (!node->layer)
			continue;
		node->out->value = srt_tape_block(tape, get_nbytes(tape, node->out), i);
		if (node->out->keep)
			extend_block(tape, node->out->value, end);
		if (back && node->layer->keeps_out)
			extend_block(tape, node->out->value, when);
		for (int j = 0; j < SRT_NODE_INPUTS; j++) {
			if (!node->in[j])
				continue;
			extend_block(tape, node->in[j]->value, i);
			if (back && (node->layer->keeps_in >> j & 1))
				extend_block(tape, node->in[j]->value, when);
		}
		for (int k = 0; k < SRT_NODE_SAVED; k++) {
			node->saved[k] = srt_tape_block(tape, node->saved_nbytes[k], i);
			if (back)
				extend_block(tape, node->saved[k], when);
		}
		node->scratch_forward = srt_tape_block(tape, node->forward_scratch, i);
		node->scratch_backward =
			srt_tape_block(tape, back ? node->backward_scratch : 0, when);
	}
}

/*
 * Whether no other tensor needs what `block` holds when the backward pass is at `node`: a tensor's
 * gradient is not needed after its producer has run backward. The gradient of the output of this
 * node is not needed if the layer can work in place.
 */
static int is_exclusive(const srt_tape_t *tape, int block, const srt_tensor_t *owner, int node,
			int in_place)
{
	for (const srt_tensor_t *t = tape->tensors; t; t = t->next) {
		if (t == owner || t->grad != block)
			continue;
		if (t->producer < node || (t->producer == node && !in_place) || t->keep)
			return 0;
	}
	return 1;
}

/* The memory of node i's contribution to the gradient of its input j. */
static void plan_grad_in(srt_tape_t *tape, int i, int j)
{
	srt_node_t *node = &tape->nodes[i];
	srt_tensor_t *x = node->in[j];
	srt_grad_to_t *to = &node->to[j];
	int when = get_backward_time(tape, i);

	if (!x || !x->needs_grad)
		return;
	to->before = x->grad;
	if (x->grad == SRT_NO_BLOCK) {
		/* An addition passes the gradient on unread; the others write in place. */
		int in_place = node->layer->passes_on == 1u;

		if ((node->layer->passes_on >> j & 1) &&
		    (!in_place || is_exclusive(tape, node->grad_out, x, i, 1))) {
			to->how = SRT_TO_SHARE;
			to->block = node->grad_out;
		} else {
			to->how = SRT_TO_STORE;
			to->block = srt_tape_block(tape, get_nbytes(tape, x), when);
		}
	} else if (j == 0 && node->layer->adds && is_exclusive(tape, x->grad, x, i, 0)) {
		to->how = SRT_TO_ADD;
		to->block = x->grad;
	} else {
		to->how = SRT_TO_MERGE;
		to->block = srt_tape_block(tape, get_nbytes(tape, x), when);
		extend_block(tape, to->before, when);
	}
	x->grad = to->block;
	extend_block(tape, to->block, when);
	if (x->keep)
		extend_block(tape, to->block, 2 * tape->nnodes);
}

/* Marks which writes of a parameter's gradient come after another one in the backward pass. */
static void plan_param_uses(srt_tape_t *tape, int i)
{
	srt_node_t *node = &tape->nodes[i];

	for (int k = 0; k < SRT_NODE_PARAMS; k++) {
		for (int later = i + 1; node->param[k] && later < tape->nnodes; later++) {
			const srt_node_t *o = &tape->nodes[later];

			for (int l = 0; l < SRT_NODE_PARAMS; l++)
				if (o->has_backward && o->param[l] == node->param[k])
					node->param_again[k] = 1;
		}
	}
}

/* 2. The backward pass, simulated. */
static void plan_grads(srt_tape_t *tape)
{
	for (int i = tape->nnodes - 1; i >= 0; i--) {
		srt_node_t *node = &tape->nodes[i];

		node->grad_out = SRT_NO_BLOCK;
		if (!has_backward_pass(tape, node))
			continue;
		node->grad_out = node->out->grad;
		node->has_backward = node->layer->is_loss || node->grad_out != SRT_NO_BLOCK;
		if (!node->has_backward)
			continue;
		extend_block(tape, node->grad_out, get_backward_time(tape, i));
		for (int j = 0; j < SRT_NODE_INPUTS; j++)
			plan_grad_in(tape, i, j);
	}
	for (int i = 0; i < tape->nnodes; i++)
		if (tape->nodes[i].has_backward)
			plan_param_uses(tape, i);
}

static int compare_sizes(const void *a, const void *b)
{
	const srt_block_t *x = *(srt_block_t *const *)a, *y = *(srt_block_t *const *)b;

	if (x->nbytes != y->nbytes)
		return x->nbytes < y->nbytes ? 1 : -1;
	return x < y ? -1 : 1;
}

static size_t align_offset(size_t nbytes)
{
	return (nbytes + BLOCK_ALIGN - 1) & ~(BLOCK_ALIGN - 1);
}

static int blocks_overlap(const srt_block_t *a, const srt_block_t *b)
{
	return a->first <= b->last && b->first <= a->last && a->offset < b->offset + b->nbytes &&
	       b->offset < a->offset + a->nbytes;
}

/* The lowest offset of `block` that overlaps no placed block: after one of them, or 0. */
static void place_block(srt_block_t *block, srt_block_t *const *placed, int nplaced)
{
	size_t best = SIZE_MAX;

	for (int c = -1; c < nplaced; c++) {
		int free_here = 1;

		block->offset = c < 0 ? 0 : placed[c]->offset + align_offset(placed[c]->nbytes);
		if (block->offset >= best)
			continue;
		for (int p = 0; p < nplaced && free_here; p++)
			free_here = !blocks_overlap(block, placed[p]);
		if (free_here)
			best = block->offset;
	}
	block->offset = best;
}

/* 3. Offsets. */
static srt_status_t plan_offsets(srt_tape_t *tape)
{
	srt_block_t **order = calloc((size_t)tape->nblocks + 1, sizeof(srt_block_t *));

	if (!order)
		return srt_tape_fail(tape, SRT_ERR_OUT_OF_MEMORY,
				     "no memory to plan the activations");
	for (int b = 0; b < tape->nblocks; b++)
		order[b] = &tape->blocks[b];
	qsort(order, (size_t)tape->nblocks, sizeof(srt_block_t *), compare_sizes);
	for (int b = 0; b < tape->nblocks; b++) {
		size_t end;

		place_block(order[b], order, b);
		end = order[b]->offset + order[b]->nbytes;
		if (end > tape->nbytes)
			tape->nbytes = end;
	}
	free(order);
	return SRT_OK;
}

/* 4. Scratch of the stream. */
static void measure_scratch(srt_tape_t *tape)
{
	for (int i = 0; i < tape->nnodes && tape->status == SRT_OK; i++) {
		const srt_node_t *node = &tape->nodes[i];

		if (node->layer && node->layer->measure &&
		    node->layer->measure(tape, node) != SRT_OK)
			srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT, NULL);
	}
}

srt_status_t srt_tape_plan(srt_tape_t *tape)
{
	plan_values(tape);
	if (tape->mode == SRT_TAPE_TRAINING)
		plan_grads(tape);
	if (tape->status != SRT_OK)
		return tape->status;
	measure_scratch(tape);
	return plan_offsets(tape);
}
