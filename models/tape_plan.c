/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan of a tape: from the recorded nodes to offsets in one arena.
 *
 *     0. the order of the backward pass, and which nodes of recomputed sections run again in it
 *     1. lifetimes of values, of what layers save, and of scratch
 *     2. the backward pass, simulated: the memory of each contribution to a gradient
 *     3. offsets: larger blocks first, each at the lowest offset that is free for its lifetime
 *     4. the scratch that the stream keeps for the layers' products
 *
 * Everything here happens once, before the first step.
 */
#include "models/tape_impl.h"

#include <stdlib.h>

static void extend_block(srt_tape_t *tape, int block, int time)
{
	if (block == SRT_NO_BLOCK)
		return;
	if (tape->blocks[block].last < time)
		tape->blocks[block].last = time;
	if (tape->blocks[block].first > time)
		tape->blocks[block].first = time;
}

static size_t get_nbytes(srt_tape_t *tape, const srt_tensor_t *tensor)
{
	/* No type is wider than a float, so this fits if the floats do. */
	return srt_tape_f32_nbytes(tape, tensor->rows, tensor->n) / sizeof(float) *
	       (srt_dtype_bits(tensor->dtype) / 8);
}

/* Bytes of the gradient. */
static size_t get_grad_nbytes(srt_tape_t *tape, const srt_tensor_t *tensor)
{
	return tensor->grad_parts ? srt_tape_parts_nbytes(tape, tensor->rows, tensor->n) :
				    get_nbytes(tape, tensor);
}

static int has_backward_pass(const srt_tape_t *tape, const srt_node_t *node)
{
	return tape->mode == SRT_TAPE_TRAINING && node->layer != NULL &&
	       node->layer->backward != NULL && node->out->needs_grad;
}

/* The node of the section that makes x, NULL for a tensor from elsewhere. */
static srt_node_t *get_producer(srt_tape_t *tape, const srt_tensor_t *x, int section)
{
	return section && x != NULL && x->section == section ? &tape->nodes[x->producer] : NULL;
}

/* Whether the backward pass of a node reads the value of its input j. */
static int reads_input(const srt_node_t *node, int j)
{
	if (j == 0 && node->layer->in_for_param && !srt_param_requires_grad(node->param[0]))
		return 0;
	return node->layer->keeps_in >> j & 1;
}

/*
 * Marks what the backward pass of a section's node needs again: its output or what it saved, and
 * the inputs it reads, if they are made in the section. Inputs of what runs again are needed too:
 * they come before it, so going through the nodes in reverse finds all of them.
 */
static void mark_recomputed(srt_tape_t *tape, int i)
{
	srt_node_t *node = &tape->nodes[i];
	const int back = has_backward_pass(tape, node);

	if (node->layer == NULL || !node->section)
		return;
	if (back && (node->layer->keeps_out || node->saved_nbytes[0] || node->saved_nbytes[1]))
		node->recomputed = 1;
	for (int j = 0; j < SRT_NODE_INPUTS; j++) {
		srt_node_t *producer = get_producer(tape, node->in[j], node->section);

		if (producer != NULL && (node->recomputed || (back && reads_input(node, j))))
			producer->recomputed = 1;
	}
}

/* A unit inside of a section is gathered again if one of its layers runs again. */
static void mark_boundaries(srt_tape_t *tape, int begin)
{
	int depth = 1, end = begin, used = 0;

	while (depth > 0) {
		const srt_node_t *node = &tape->nodes[++end];

		used |= node->layer != NULL && node->recomputed;
		if (node->layer == NULL)
			depth += node->is_begin ? 1 : -1;
	}
	tape->nodes[begin].recomputed = tape->nodes[end].recomputed = used;
}

/* 0. The order of the backward pass. */
static void plan_times(srt_tape_t *tape)
{
	int time = tape->nnodes;

	for (int i = tape->nnodes - 1; i >= 0; i--)
		mark_recomputed(tape, i);
	for (int i = 0; i < tape->nnodes; i++)
		if (tape->nodes[i].section && tape->nodes[i].layer == NULL &&
		    tape->nodes[i].is_begin)
			mark_boundaries(tape, i);
	for (int i = tape->nnodes - 1; i >= 0; i--) {
		const int section = tape->nodes[i].section;
		int first = i;

		if (section && (i == tape->nnodes - 1 || tape->nodes[i + 1].section != section)) {
			while (first > 0 && tape->nodes[first - 1].section == section)
				first--;
			for (int again = first; again <= i; again++)
				tape->nodes[again].when_again = time++;
		}
		tape->nodes[i].when_backward = time++;
	}
	tape->end = time;
}

/* Node i reads x in the backward pass, where the nodes after it come first. Until then the rows are
 * kept that it is gathered from. */
static void plan_regather(srt_tape_t *tape, int i, srt_tensor_t *x)
{
	const int when = tape->nodes[i].when_backward;

	if (x->again == SRT_NO_BLOCK)
		x->again = srt_tape_block(tape, get_nbytes(tape, x), when);
	extend_block(tape, x->again, when);
	x->regather_at = i;
}

/* An input of a node lives until the node has read it in each pass: within a section the
 * backward pass reads the recomputed value. */
static void plan_input(srt_tape_t *tape, int i, int j)
{
	const srt_node_t *node = &tape->nodes[i];
	const srt_tensor_t *x = node->in[j];
	const int again = get_producer(tape, x, node->section) != NULL;

	extend_block(tape, x->value, i);
	if (x->regathers) {
		if (has_backward_pass(tape, node) && reads_input(node, j))
			plan_regather(tape, i, node->in[j]);
		return;
	}
	if (node->recomputed)
		extend_block(tape, again ? x->again : x->value, node->when_again);
	if (has_backward_pass(tape, node) && reads_input(node, j))
		extend_block(tape, again ? x->again : x->value, node->when_backward);
}

/* What a node makes when it runs forward again, for the backward pass. */
static void plan_again(srt_tape_t *tape, srt_node_t *node)
{
	const int when = node->when_again, back = has_backward_pass(tape, node);

	if (!node->layer->is_view)
		node->out->again = srt_tape_block(tape, get_nbytes(tape, node->out), when);
	else if (get_producer(tape, node->in[0], node->section) != NULL)
		node->out->again = node->in[0]->again;
	else
		node->out->again = node->in[0]->value;
	if (back && node->layer->keeps_out)
		extend_block(tape, node->out->again, node->when_backward);
	for (int k = 0; k < SRT_NODE_SAVED; k++) {
		node->saved_again[k] = srt_tape_block(tape, node->saved_nbytes[k], when);
		if (back)
			extend_block(tape, node->saved_again[k], node->when_backward);
	}
	node->scratch_again = srt_tape_block(tape, node->forward_scratch, when);
}

/* Where the parameters of a node are cast. */
static void plan_casts(srt_tape_t *tape, int i)
{
	srt_node_t *node = &tape->nodes[i];
	const int back = has_backward_pass(tape, node);

	for (int k = 0; k < SRT_NODE_PARAMS; k++) {
		const size_t nbytes = node->cast_nbytes[k];

		node->cast[k][SRT_CAST_FORWARD] = srt_tape_block(tape, nbytes, i);
		node->cast[k][SRT_CAST_AGAIN] =
			srt_tape_block(tape, node->recomputed ? nbytes : 0, node->when_again);
		node->cast[k][SRT_CAST_BACKWARD] =
			srt_tape_block(tape, back ? nbytes : 0, node->when_backward);
	}
}

static void plan_node(srt_tape_t *tape, int i)
{
	srt_node_t *node = &tape->nodes[i];
	const int back = has_backward_pass(tape, node), keeps = back && !node->section;

	node->saved_again[0] = node->saved_again[1] = node->scratch_again = SRT_NO_BLOCK;
	node->out->value = node->layer->is_view ?
				   node->in[0]->value :
				   srt_tape_block(tape, get_nbytes(tape, node->out), i);
	if (node->out->keep)
		extend_block(tape, node->out->value, tape->end);
	if (keeps && node->layer->keeps_out)
		extend_block(tape, node->out->value, node->when_backward);
	for (int k = 0; k < SRT_NODE_SAVED; k++) {
		node->saved[k] = srt_tape_block(tape, node->saved_nbytes[k], i);
		if (keeps)
			extend_block(tape, node->saved[k], node->when_backward);
	}
	node->scratch_forward = srt_tape_block(tape, node->forward_scratch, i);
	if (node->recomputed)
		plan_again(tape, node);
	for (int j = 0; j < SRT_NODE_INPUTS; j++)
		if (node->in[j] != NULL)
			plan_input(tape, i, j);
	node->scratch_backward =
		srt_tape_block(tape, back ? node->backward_scratch : 0, node->when_backward);
	plan_casts(tape, i);
}

/* 1. Values, saved values and scratch. Inputs live throughout. */
static void plan_values(srt_tape_t *tape)
{
	for (srt_tensor_t *t = tape->tensors; t != NULL; t = t->next) {
		if (t->producer >= 0)
			continue;
		t->value = srt_tape_block(tape, get_nbytes(tape, t), 0);
		extend_block(tape, t->value, tape->end);
	}
	for (int i = 0; i < tape->nnodes; i++)
		if (tape->nodes[i].layer != NULL)
			plan_node(tape, i);
	for (const srt_tensor_t *t = tape->tensors; t != NULL; t = t->next)
		if (t->regather_at >= 0)
			extend_block(tape, tape->nodes[t->producer].in[0]->value,
				     tape->nodes[t->regather_at].when_backward);
}

/*
 * Whether no other tensor needs what `block` holds when the backward pass is at `node`: a tensor's
 * gradient is not needed after its producer has run backward. The gradient of the output of this
 * node is not needed if the layer can work in place.
 */
static int is_exclusive(const srt_tape_t *tape, int block, const srt_tensor_t *owner, int node,
			int in_place)
{
	for (const srt_tensor_t *t = tape->tensors; t != NULL; t = t->next) {
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
	int when = node->when_backward;

	if (x == NULL || !x->needs_grad)
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
			to->block = srt_tape_block(tape, get_grad_nbytes(tape, x), when);
		}
	} else if (j == 0 && node->layer->adds && (x->dtype == SRT_F32 || x->grad_parts) &&
		   is_exclusive(tape, x->grad, x, i, 0)) {
		to->how = SRT_TO_ADD;
		to->block = x->grad;
	} else {
		to->how = SRT_TO_MERGE;
		to->block = srt_tape_block(tape, get_grad_nbytes(tape, x), when);
		extend_block(tape, to->before, when);
	}
	x->grad = to->block;
	extend_block(tape, to->block, when);
	if (x->keep)
		extend_block(tape, to->block, tape->end);
}

/* Marks which writes of a parameter's gradient come after another one in the backward pass. */
static void plan_param_uses(srt_tape_t *tape, int i)
{
	srt_node_t *node = &tape->nodes[i];

	for (int k = 0; k < SRT_NODE_PARAMS; k++) {
		for (int later = i + 1; node->param[k] != NULL && later < tape->nnodes; later++) {
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
		extend_block(tape, node->grad_out, node->when_backward);
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

		block->offset = c < 0 ? 0 : placed[c]->offset + srt_align_block(placed[c]->nbytes);
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

	if (order == NULL)
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

		if (node->layer != NULL && node->layer->measure != NULL &&
		    node->layer->measure(tape, node) != SRT_OK)
			srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT, NULL);
	}
}

srt_status_t srt_tape_plan(srt_tape_t *tape)
{
	plan_times(tape);
	plan_values(tape);
	if (tape->mode == SRT_TAPE_TRAINING)
		plan_grads(tape);
	if (tape->status != SRT_OK)
		return tape->status;
	measure_scratch(tape);
	return plan_offsets(tape);
}
