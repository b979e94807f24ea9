/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Running a tape: nodes in order, then in reverse; and the views of tensors and gradients.
 */
#include "models/tape_impl.h"

srt_status_t srt_tape_bind(srt_tape_t *tape, srt_buffer_t *arena)
{
	if (!tape->finished)
		return srt_tape_fail(tape, SRT_ERR_STATE,
				     "the tape is bound before it is finished");
	if (arena == NULL || srt_buffer_nbytes(arena) < tape->nbytes)
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "the tape needs an arena of %zu bytes, it got %zu", tape->nbytes,
			      arena != NULL ? srt_buffer_nbytes(arena) : 0);
	else
		tape->arena = arena;
	return srt_tape_create_sums(tape); /* also after a failure, which the other ranks hear of */
}

srt_status_t srt_tape_allocate(srt_tape_t *tape)
{
	srt_status_t status = SRT_OK;

	if (tape->finished && tape->own_arena == NULL)
		status = srt_buffer_create(tape->device, srt_tape_mem_kind(tape), tape->nbytes,
					   "activations", &tape->own_arena);
	if (status != SRT_OK)
		srt_tape_fail(tape, status, NULL);
	return srt_tape_bind(tape, tape->own_arena);
}

static srt_view_t get_view(const srt_tape_t *tape, int block, srt_dtype_t dtype)
{
	if (block == SRT_NO_BLOCK)
		return srt_view(NULL, 0, dtype);
	return srt_view(tape->arena, tape->blocks[block].offset, dtype);
}

srt_view_t srt_tensor_view(const srt_tensor_t *tensor)
{
	return get_view(tensor->tape, tensor->value, tensor->dtype);
}

static size_t count_nbytes(const srt_tensor_t *tensor)
{
	return (size_t)(srt_tensor_rows(tensor) * srt_tensor_cols(tensor)) *
	       (srt_dtype_bits(tensor->dtype) / 8);
}

srt_status_t srt_tensor_put(const srt_tensor_t *tensor, const void *values, srt_stream_t *stream)
{
	srt_view_t to;

	if (tensor == NULL)
		return srt_error_set(SRT_ERR_INVALID_ARGUMENT, "srt_tensor_put: tensor is NULL");
	to = srt_tensor_view(tensor);
	return srt_buffer_copy_from_host(to.buffer, to.offset, values, count_nbytes(tensor),
					 stream);
}

srt_status_t srt_tensor_get(const srt_tensor_t *tensor, void *values, srt_stream_t *stream)
{
	srt_view_t from;

	if (tensor == NULL)
		return srt_error_set(SRT_ERR_INVALID_ARGUMENT, "srt_tensor_get: tensor is NULL");
	from = srt_tensor_view(tensor);
	return srt_buffer_copy_to_host(values, from.buffer, from.offset, count_nbytes(tensor),
				       stream);
}

srt_view_t srt_tensor_grad(const srt_tensor_t *tensor)
{
	return get_view(tensor->tape, tensor->grad, tensor->dtype);
}

srt_view_t srt_run_block(const srt_run_t *run, int block, srt_dtype_t dtype)
{
	return get_view(run->tape, block, dtype);
}

/* A section's nodes read what the section made last: in the backward pass, what was recomputed.
 * Rows that are gathered again are read from there too. */
srt_view_t srt_run_value(const srt_run_t *run, const srt_tensor_t *tensor)
{
	const int again = (run->section && tensor->section == run->section) ||
			  (run->backward && tensor->regathers);

	return get_view(run->tape, again ? tensor->again : tensor->value, tensor->dtype);
}

srt_view_t srt_run_grad_out(const srt_run_t *run, const srt_node_t *node)
{
	return get_view(run->tape, node->grad_out,
			node->out->grad_parts ? SRT_F32 : node->out->dtype);
}

srt_view_t srt_run_saved(const srt_run_t *run, const srt_node_t *node, int k)
{
	return get_view(run->tape, run->section ? node->saved_again[k] : node->saved[k], SRT_F32);
}

srt_view_t srt_run_scratch(const srt_run_t *run, const srt_node_t *node, srt_dtype_t dtype)
{
	return get_view(run->tape, run->section ? node->scratch_again : node->scratch_forward,
			dtype);
}

/* The value of a parameter, of any dtype. */
static srt_status_t find_param(const srt_run_t *run, const srt_node_t *node,
			       const srt_param_t *param, srt_view_t *view)
{
	if (run->tape->find_value != NULL)
		*view = run->tape->find_value(param, run->tape->find_arg);
	else
		SRT_TRY(srt_param_data((srt_param_t *)(uintptr_t)param, view));
	if (view->buffer == NULL)
		return srt_tape_fail(run->tape, SRT_ERR_NOT_FOUND,
				     "%s: there is no value of parameter %s", node->layer->name,
				     srt_param_name(param));
	return SRT_OK;
}

/* Casts parameter k to the dtype of the node. */
static srt_status_t cast_param(const srt_run_t *run, const srt_node_t *node, int k,
			       srt_view_t *view)
{
	const int when = run->recomputes ? SRT_CAST_AGAIN :
			 run->backward   ? SRT_CAST_BACKWARD :
					   SRT_CAST_FORWARD;
	const srt_dtype_t dtype = srt_node_dtype(node);
	const srt_view_t to = get_view(run->tape, node->cast[k][when], dtype);
	const int64_t nelem = (int64_t)(node->cast_nbytes[k] / (srt_dtype_bits(dtype) / 8));

	int64_t shape[SRT_MAX_DIMS];
	srt_view_t scales;

	if (view->dtype == SRT_U8) {
		srt_param_partition(node->param[k], shape);
		SRT_TRY(find_param(run, node, node->scales, &scales));
		scales.dtype = SRT_F32;
		SRT_TRY(srt_op_dequantize(to, *view, scales, shape[0], shape[1], run->stream));
	} else {
		SRT_TRY(srt_op_cast(to, *view, nelem, run->stream));
	}
	*view = to;
	return SRT_OK;
}

srt_status_t srt_run_param(const srt_run_t *run, const srt_node_t *node, int k, srt_view_t *view)
{
	*view = srt_view(NULL, 0, srt_node_dtype(node));
	if (node->param[k] == NULL)
		return SRT_OK;
	SRT_TRY(find_param(run, node, node->param[k], view));
	if (view->dtype == srt_node_dtype(node))
		return SRT_OK;
	if (node->cast_nbytes[k] > 0)
		return cast_param(run, node, k, view);
	return srt_tape_fail(run->tape, SRT_ERR_INVALID_ARGUMENT,
			     "%s: parameter %s is %s, but the layer computes in %s: its unit has "
			     "another compute dtype than its input",
			     node->layer->name, srt_param_name(node->param[k]),
			     srt_dtype_name(view->dtype), srt_dtype_name(srt_node_dtype(node)));
}

int srt_run_grad_in(const srt_run_t *run, const srt_node_t *node, int j, srt_view_t *view,
		    int *accumulate)
{
	const srt_grad_to_t *to = &node->to[j];

	*view = srt_view(NULL, 0, srt_node_dtype(node));
	*accumulate = to->how == SRT_TO_ADD;
	if (to->how == SRT_TO_NONE)
		return 0;
	*view = get_view(run->tape, to->block,
			 node->in[j]->grad_parts ? SRT_F32 : node->in[j]->dtype);
	return 1;
}

srt_status_t srt_run_param_grad(const srt_run_t *run, const srt_node_t *node, int k,
				srt_view_t *view, int *accumulate)
{
	(void)run;
	*view = srt_view(NULL, 0, srt_node_dtype(node));
	*accumulate = 0;
	if (node->param[k] == NULL || !srt_param_requires_grad(node->param[k]))
		return SRT_OK;
	SRT_TRY(srt_param_grad(node->param[k], view, accumulate));
	if (node->param_again[k])
		*accumulate = 1;
	return SRT_OK;
}

srt_status_t srt_run_param_ready(const srt_node_t *node, int k)
{
	if (node->param[k] == NULL || !srt_param_requires_grad(node->param[k]))
		return SRT_OK;
	return srt_param_grad_ready(node->param[k]);
}

static int is_runnable(srt_tape_t *tape)
{
	if (tape->status == SRT_OK && tape->arena == NULL)
		srt_tape_fail(tape, SRT_ERR_STATE, "the tape is run without an arena");
	return tape->status == SRT_OK;
}

static srt_status_t run_forward(const srt_run_t *run, const srt_node_t *node)
{
	if (node->layer != NULL) {
		SRT_TRY(node->layer->forward(run, node));
		return srt_run_sum_output(run, node);
	}
	if (run->tape->find_value != NULL)
		return SRT_OK;
	if (node->is_begin)
		return srt_unit_forward_begin(node->unit, run->stream);
	return srt_unit_forward_end(node->unit, run->stream);
}

srt_status_t srt_tape_forward(srt_tape_t *tape, srt_stream_t *stream)
{
	srt_run_t run = { .tape = tape, .stream = stream };

	if (!is_runnable(tape))
		return srt_tape_status(tape);
	/* Before the pass: an allocation waits for the stream. */
	SRT_TRY(srt_stream_reserve(stream, tape->scratch_nbytes));
	run.training = tape->mode == SRT_TAPE_TRAINING;
	for (int i = 0; i < tape->nnodes; i++)
		SRT_TRY(run_forward(&run, &tape->nodes[i]));
	return SRT_OK;
}

/* Adds the former value of the input's gradient to this contribution. */
static srt_status_t merge_gradients(const srt_run_t *run, const srt_node_t *node)
{
	for (int j = 0; j < SRT_NODE_INPUTS; j++) {
		const srt_grad_to_t *to = &node->to[j];
		const srt_tensor_t *x = node->in[j];
		srt_view_t sum;

		if (to->how != SRT_TO_MERGE)
			continue;
		sum = srt_run_block(run, to->block, x->dtype);
		SRT_TRY(srt_op_add(sum, srt_run_block(run, to->before, x->dtype), sum,
				   x->rows * x->n, run->stream));
	}
	return SRT_OK;
}

/* Gathers again the rows that this node is the first to read in the backward pass. */
static srt_status_t regather_inputs(const srt_run_t *run, const srt_node_t *node)
{
	const srt_tape_t *tape = run->tape;

	for (int j = 0; j < SRT_NODE_INPUTS; j++) {
		const srt_tensor_t *x = node->in[j];

		if (x != NULL && x->regather_at >= 0 && &tape->nodes[x->regather_at] == node)
			SRT_TRY(srt_run_gather_input(run, &tape->nodes[x->producer]));
	}
	return SRT_OK;
}

static srt_status_t run_backward(const srt_run_t *run, const srt_node_t *node)
{
	if (node->layer == NULL && node->is_begin)
		return srt_unit_backward_end(node->unit, run->stream);
	if (node->layer == NULL)
		return srt_unit_backward_begin(node->unit, run->stream);
	SRT_TRY(regather_inputs(run, node)); /* also of a node that the losses do not reach */
	if (!node->has_backward)
		return SRT_OK;
	SRT_TRY(node->layer->backward(run, node));
	SRT_TRY(srt_run_sum_gradient(run, node));
	return merge_gradients(run, node);
}

/* Runs forward again what the backward pass needs of a section, whose last node is `last`. */
static srt_status_t recompute_section(srt_run_t *run, int last)
{
	const srt_node_t *nodes = run->tape->nodes;
	int first = last;

	while (first > 0 && nodes[first - 1].section == nodes[last].section)
		first--;
	run->recomputes = 1;
	for (int i = first; i <= last; i++)
		if (nodes[i].recomputed)
			SRT_TRY(run_forward(run, &nodes[i]));
	run->recomputes = 0;
	return SRT_OK;
}

srt_status_t srt_tape_backward(srt_tape_t *tape, float grad_scale, srt_view_t scale,
			       srt_stream_t *stream)
{
	srt_run_t run = { .tape = tape,
			  .stream = stream,
			  .grad_scale = grad_scale,
			  .scale = scale,
			  .training = 1,
			  .backward = 1 };

	if (!is_runnable(tape))
		return srt_tape_status(tape);
	if (tape->mode != SRT_TAPE_TRAINING)
		return srt_tape_fail(tape, SRT_ERR_STATE,
				     "the tape was recorded for the forward pass only");
	SRT_TRY(srt_stream_reserve(stream, tape->scratch_nbytes));
	for (int i = tape->nnodes - 1; i >= 0; i--) {
		const int section = tape->nodes[i].section;

		if (section != run.section) {
			run.section = section;
			if (section)
				SRT_TRY(recompute_section(&run, i));
		}
		SRT_TRY(run_backward(&run, &tape->nodes[i]));
	}
	return SRT_OK;
}

void srt_tape_print(const srt_tape_t *tape, FILE *out)
{
	fprintf(out, "tape: %d operations, %d blocks, arena of %zu bytes\n", tape->nnodes,
		tape->nblocks, tape->nbytes);
	for (int i = 0; i < tape->nnodes; i++) {
		const srt_node_t *node = &tape->nodes[i];

		if (node->layer == NULL) {
			fprintf(out, "%5d  unit %s\n", i, node->is_begin ? "begin" : "end");
			continue;
		}
		fprintf(out, "%5d  %-14s (%lld,%lld) %s%s%s%s\n", i, node->layer->name,
			(long long)node->out->rows, (long long)node->out->n,
			srt_dtype_name(node->out->dtype), node->param[0] != NULL ? " " : "",
			node->param[0] != NULL ? srt_param_name(node->param[0]) : "",
			node->recomputed ? ", recomputed" : "");
	}
}
