/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recording a tape: tensors, nodes, and the first failure. Units and their casts are in
 * tape_units.c. The memory is planned in tape_plan.c, the passes are run in tape_run.c.
 */
#include "models/tape_impl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

srt_status_t srt_tape_fail(srt_tape_t *tape, srt_status_t status, const char *format, ...)
{
	va_list ap;

	if (tape->status != SRT_OK)
		return srt_tape_status(tape);
	tape->status = status;
	if (format == NULL) {
		snprintf(tape->error, sizeof(tape->error), "%s", srt_error_last());
		return status;
	}
	va_start(ap, format);
	vsnprintf(tape->error, sizeof(tape->error), format, ap);
	va_end(ap);
	return srt_tape_status(tape);
}

srt_status_t srt_tape_status(const srt_tape_t *tape)
{
	return tape->status == SRT_OK ? SRT_OK : srt_error_set(tape->status, tape->error);
}

srt_status_t srt_tape_create(srt_device_t *device, srt_tape_mode_t mode, srt_tape_t **tape)
{
	srt_tape_t *t;

	if (device == NULL || tape == NULL)
		return srt_error_set(SRT_ERR_INVALID_ARGUMENT,
				     "srt_tape_create: device or tape is NULL");
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return srt_error_set(SRT_ERR_OUT_OF_MEMORY, "no host memory for a tape");
	t->device = device;
	t->mode = mode;
	t->nranks = t->nparts = 1;
	*tape = t;
	return SRT_OK;
}

void srt_tape_destroy(srt_tape_t *tape)
{
	if (tape == NULL)
		return;
	srt_tape_destroy_sums(tape);
	srt_buffer_destroy(tape->own_arena);
	while (tape->tensors != NULL) {
		srt_tensor_t *next = tape->tensors->next;

		free(tape->tensors);
		tape->tensors = next;
	}
	free(tape->nodes);
	free(tape->blocks);
	free(tape->open);
	free(tape->casts);
	free(tape);
}

void srt_tape_set_values(srt_tape_t *tape, srt_find_value_t find, const void *arg)
{
	if (tape->mode != SRT_TAPE_FORWARD || tape->nnodes > 0)
		srt_tape_fail(
			tape, SRT_ERR_STATE,
			"srt_tape_set_values: needs a tape for the forward pass alone, before "
			"its first layer");
	tape->find_value = find;
	tape->find_arg = arg;
}

void srt_tape_set_scales(srt_tape_t *tape, srt_find_scales_t find, const void *arg)
{
	tape->find_scales = find;
	tape->scales_arg = arg;
}

void *srt_tape_grow(void *array, int n, int *room, size_t size)
{
	int more = *room ? *room * 2 : 64;
	void *p;

	if (n < *room)
		return array;
	p = realloc(array, (size_t)more * size);
	if (p != NULL)
		*room = more;
	return p;
}

static srt_node_t *add_node(srt_tape_t *tape)
{
	srt_node_t *nodes, *node;

	if (tape->finished) {
		srt_tape_fail(tape, SRT_ERR_STATE, "the tape is finished; nothing can be recorded");
		return NULL;
	}
	nodes = srt_tape_grow(tape->nodes, tape->nnodes, &tape->nodes_room, sizeof(*nodes));
	if (nodes == NULL) {
		srt_tape_fail(tape, SRT_ERR_OUT_OF_MEMORY, "no memory to record an operation");
		return NULL;
	}
	tape->nodes = nodes;
	node = &nodes[tape->nnodes++];
	memset(node, 0, sizeof(*node));
	node->section = tape->section;
	return node;
}

int srt_tape_block(srt_tape_t *tape, size_t nbytes, int time)
{
	srt_block_t *blocks;

	if (nbytes == 0)
		return SRT_NO_BLOCK;
	blocks = srt_tape_grow(tape->blocks, tape->nblocks, &tape->blocks_room, sizeof(*blocks));
	if (blocks == NULL) {
		srt_tape_fail(tape, SRT_ERR_OUT_OF_MEMORY, "no memory to plan the activations");
		return SRT_NO_BLOCK;
	}
	tape->blocks = blocks;
	blocks[tape->nblocks] = (srt_block_t){ .nbytes = nbytes, .first = time, .last = time };
	return tape->nblocks++;
}

static srt_tensor_t *add_tensor(srt_tape_t *tape, srt_dtype_t dtype, int64_t rows, int64_t n)
{
	srt_tensor_t *tensor = calloc(1, sizeof(*tensor));

	if (tensor == NULL) {
		srt_tape_fail(tape, SRT_ERR_OUT_OF_MEMORY, "no memory to record a tensor");
		return NULL;
	}
	tensor->tape = tape;
	tensor->dtype = dtype;
	tensor->rows = rows;
	tensor->n = n;
	tensor->producer = -1;
	tensor->origin = -1;
	tensor->value = SRT_NO_BLOCK;
	tensor->again = SRT_NO_BLOCK;
	tensor->regather_at = -1;
	tensor->grad = SRT_NO_BLOCK;
	tensor->next = tape->tensors;
	tape->tensors = tensor;
	return tensor;
}

srt_tensor_t *srt_tape_input(srt_tape_t *tape, srt_dtype_t dtype, int64_t rows, int64_t n)
{
	if (tape->status != SRT_OK)
		return NULL;
	if (rows < 1 || n < 1 || (!srt_is_float(dtype) && dtype != SRT_I32 && dtype != SRT_U8)) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "input (%lld,%lld) %s: sizes must be positive, the dtype f32, f16, "
			      "bf16, i32 or u8",
			      (long long)rows, (long long)n, srt_dtype_name(dtype));
		return NULL;
	}
	if (!srt_tape_f32_nbytes(tape, rows, n) && tape->status != SRT_OK)
		return NULL;
	return add_tensor(tape, dtype, rows, n);
}

void srt_tensor_require_grad(srt_tensor_t *tensor)
{
	if (tensor == NULL)
		return;
	if (tensor->producer >= 0 || tensor->nuses > 0 || !srt_is_float(tensor->dtype)) {
		srt_tape_fail(
			tensor->tape, SRT_ERR_STATE,
			"only a float input can take a gradient, and only before its first use");
		return;
	}
	tensor->needs_grad = 1;
	tensor->keep = 1;
}

void srt_tape_keep(srt_tape_t *tape, srt_tensor_t *tensor)
{
	if (tensor != NULL && !tape->finished)
		tensor->keep = 1;
}

void srt_tape_boundary(srt_tape_t *tape, srt_unit_t *unit, int is_begin)
{
	srt_node_t *node = tape->status == SRT_OK ? add_node(tape) : NULL;

	if (node == NULL)
		return;
	node->unit = unit;
	node->is_begin = is_begin;
}

int srt_is_float(srt_dtype_t dtype)
{
	return dtype == SRT_F32 || dtype == SRT_F16 || dtype == SRT_BF16;
}

int srt_tape_usable(srt_tape_t *tape, const srt_tensor_t *x)
{
	if (tape->status != SRT_OK)
		return 0;
	if (x == NULL || x->tape != tape) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "the tensor of a layer is NULL or of another tape");
		return 0;
	}
	return 1;
}

int srt_tape_param_is(srt_tape_t *tape, const char *layer, const srt_param_t *param, int ndim,
		      int64_t d0, int64_t d1)
{
	int64_t shape[SRT_MAX_DIMS] = { 0 };

	if (param != NULL && srt_param_partition(param, shape) == ndim &&
	    (d0 < 0 || shape[0] == d0) && (ndim < 2 || d1 < 0 || shape[1] == d1))
		return 1;
	srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
		      "%s: parameter %s does not have the shape that the layer needs (%lld,%lld)",
		      layer, param != NULL ? srt_param_name(param) : "(none)", (long long)d0,
		      (long long)(ndim < 2 ? 1 : d1));
	return 0;
}

size_t srt_tape_f32_nbytes(srt_tape_t *tape, int64_t rows, int64_t n)
{
	int64_t nelem;
	size_t nbytes = 0;

	if (__builtin_mul_overflow(rows, n, &nelem) ||
	    srt_dtype_nbytes(SRT_F32, (size_t)nelem, &nbytes) != SRT_OK)
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "a tensor of (%lld,%lld) floats is too large to address",
			      (long long)rows, (long long)n);
	return nbytes;
}

size_t srt_tape_parts_nbytes(srt_tape_t *tape, int64_t rows, int64_t n)
{
	int64_t all = 0;

	if (__builtin_mul_overflow(rows, (int64_t)srt_tape_own_parts(tape), &all))
		all = INT64_MAX;
	return srt_tape_f32_nbytes(tape, all, n);
}

srt_dtype_t srt_node_dtype(const srt_node_t *node)
{
	const srt_tensor_t *x = node->in[0];

	return x != NULL && srt_is_float(x->dtype) ? x->dtype : node->out->dtype;
}

/* Bytes of parameter k in the dtype of the node, if it is frozen and computed with in another. */
static size_t find_cast_nbytes(srt_tape_t *tape, const srt_node_t *node, int k)
{
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;
	int64_t shape[SRT_MAX_DIMS], nelem = 1;
	const srt_param_t *param = node->param[k];
	const int ndim = param != NULL ? srt_param_partition(param, shape) : 0;

	if (param == NULL || srt_param_requires_grad(param))
		return 0;
	if (srt_unit_types(srt_param_unit(param), &types) != SRT_OK) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT, NULL);
		return 0;
	}
	if (types.compute == SRT_U8 && (k != 0 || node->scales == NULL)) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT, "%s: parameter %s has no scales",
			      node->layer->name, srt_param_name(param));
		return 0;
	}
	for (int d = 0; d < ndim; d++)
		nelem *= shape[d];
	return types.compute != srt_node_dtype(node) ?
		       (size_t)nelem * (srt_dtype_bits(srt_node_dtype(node)) / 8) :
		       0;
}

srt_tensor_t *srt_tape_record(srt_tape_t *tape, const srt_node_desc_t *desc)
{
	srt_node_t *node;
	srt_tensor_t *out;

	srt_tape_f32_nbytes(tape, desc->rows, desc->n);
	if (tape->status != SRT_OK)
		return NULL;
	if (tape->section && desc->layer->is_loss) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "%s: a loss cannot be in a section that is recomputed",
			      desc->layer->name);
		return NULL;
	}
	for (int j = 0; j < SRT_NODE_INPUTS; j++)
		if (desc->in[j] != NULL && desc->in[j]->has_own_rows && !desc->layer->by_row) {
			srt_tape_fail(tape, SRT_ERR_UNSUPPORTED,
				      "%s: needs all rows of its input, of which each tensor-"
				      "parallel rank has some (sequence parallelism)",
				      desc->layer->name);
			return NULL;
		}
	out = add_tensor(tape, desc->dtype, desc->rows, desc->n);
	node = out != NULL ? add_node(tape) : NULL;
	if (node == NULL)
		return NULL;
	node->layer = desc->layer;
	node->out = out;
	out->producer = out->origin = tape->nnodes - 1;
	out->section = tape->section;
	for (int j = 0; j < SRT_NODE_INPUTS; j++) {
		node->in[j] = desc->in[j];
		if (desc->in[j] == NULL)
			continue;
		desc->in[j]->nuses++;
		out->needs_grad |= desc->in[j]->needs_grad;
		out->has_own_rows |= desc->in[j]->has_own_rows;
	}
	if (desc->layer->sums == SRT_SUM_OUTPUT_ROWS || desc->layer->sums == SRT_SUM_GRADIENT_ROWS)
		out->has_own_rows = desc->layer->sums == SRT_SUM_OUTPUT_ROWS;
	for (int k = 0; k < SRT_NODE_PARAMS; k++) {
		node->param[k] = desc->param[k];
		out->needs_grad |=
			desc->param[k] != NULL && srt_param_requires_grad(desc->param[k]);
		if (k == 0 && desc->param[k] != NULL && tape->find_scales != NULL)
			node->scales = tape->find_scales(desc->param[k], tape->scales_arg);
		node->cast_nbytes[k] = find_cast_nbytes(tape, node, k);
	}
	out->regathers = (desc->layer->gathers & SRT_GATHER_ROWS) && !tape->section;
	memcpy(node->saved_nbytes, desc->saved_nbytes, sizeof(node->saved_nbytes));
	node->forward_scratch = desc->forward_scratch;
	node->backward_scratch = desc->backward_scratch;
	node->args = desc->args;
	return out;
}

srt_status_t srt_tape_finish(srt_tape_t *tape)
{
	if (tape->status == SRT_OK && tape->nopen != 0)
		srt_tape_fail(tape, SRT_ERR_STATE, "%d units are still open", tape->nopen);
	if (tape->status == SRT_OK && tape->section)
		srt_tape_fail(tape, SRT_ERR_STATE, "a section that is recomputed is still open");
	if (tape->status == SRT_OK && !tape->finished) {
		srt_tape_plan(tape);
		tape->finished = 1;
	}
	return srt_tape_status(tape);
}

size_t srt_tape_nbytes(const srt_tape_t *tape)
{
	return tape->nbytes;
}

size_t srt_tape_scratch_nbytes(const srt_tape_t *tape)
{
	return tape->scratch_nbytes;
}

int64_t srt_tensor_rows(const srt_tensor_t *tensor)
{
	return tensor->rows;
}

int64_t srt_tensor_cols(const srt_tensor_t *tensor)
{
	return tensor->n;
}

srt_dtype_t srt_tensor_dtype(const srt_tensor_t *tensor)
{
	return tensor->dtype;
}
