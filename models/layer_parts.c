/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tensor parts: sums that the tensor-parallel ranks cut, in as many parts whatever their number is.
 * A layer makes each of its parts in fp32; the tree over a rank's own ones is a node of that over
 * all of them, and an all-reduce over the ranks goes on with it. Bias, addition and rounding come
 * after the tree.
 * The gradient of an input of colwise layers is kept in parts, which all of them add to, until the
 * backward pass reaches the node before them (to_parts); Megatron-LM's f.
 */
#include <shardrt/models/layers.h>
#include "models/tape_impl.h"

/* ---- parts of a parameter --------------------------------------------------------------- */

int srt_tape_parts_of(srt_tape_t *tape, const char *layer, const srt_param_t *param, int dim,
		      int nblocks, srt_parts_t *parts)
{
	int64_t shape[SRT_MAX_DIMS], cell[SRT_MAX_DIMS], whole, first, left;
	const int own = srt_tape_own_parts(tape);

	srt_param_shape(param, shape);
	srt_param_partition(param, cell);
	whole = shape[dim] / nblocks;
	*parts = (srt_parts_t){ .nparts = own, .nblocks = nblocks, .block = cell[dim] / nblocks };
	parts->chunk = whole / tape->nparts + (whole % tape->nparts != 0);
	first = parts->chunk * own * tape->rank;
	left = first < whole ? whole - first : 0;
	if (parts->block == (left < parts->chunk * own ? left : parts->chunk * own) &&
	    parts->block > 0)
		return 1;
	srt_tape_fail(
		tape, SRT_ERR_INVALID_ARGUMENT,
		"%s: tensor-parallel rank %d of %d has %lld of the %lld elements of dimension "
		"%d of parameter %s, which are not its %d of %d tensor parts: cut the "
		"dimension in parts of this number (srt_placement_t)",
		layer, tape->rank, tape->nranks, (long long)cell[dim], (long long)shape[dim], dim,
		srt_param_name(param), own, tape->nparts);
	return 0;
}

/* ---- products --------------------------------------------------------------------------- */

/* The piece of a part in block b; 0 terms if the part has none there. */
static srt_matmul_t make_piece(const srt_matmul_t *mm, const srt_parts_t *parts, int part, int b)
{
	const int64_t begin = part * parts->chunk, left = parts->block - begin;
	const int64_t first = b * parts->block + (left > 0 ? begin : 0);
	srt_matmul_t piece = *mm;

	piece.k = left < parts->chunk ? (left > 0 ? left : 0) : parts->chunk;
	piece.lda = mm->lda ? mm->lda : mm->trans_a ? mm->m : mm->k;
	piece.ldb = mm->ldb ? mm->ldb : mm->trans_b ? mm->k : mm->n;
	piece.a.offset +=
		(size_t)(first * (mm->trans_a ? piece.lda : 1)) * (srt_dtype_bits(mm->a.dtype) / 8);
	piece.b.offset +=
		(size_t)(first * (mm->trans_b ? 1 : piece.ldb)) * (srt_dtype_bits(mm->b.dtype) / 8);
	piece.accumulate = mm->accumulate || b > 0;
	return piece;
}

srt_status_t srt_tape_measure_parts(srt_tape_t *tape, const srt_matmul_t *mm,
				    const srt_parts_t *parts, srt_dtype_t dtype)
{
	for (int part = 0; part < parts->nparts; part++) {
		srt_matmul_t piece = make_piece(mm, parts, part, 0);

		piece.c = srt_view(NULL, 0, SRT_F32);
		for (piece.accumulate = 0; piece.accumulate <= 1; piece.accumulate++)
			SRT_TRY(srt_op_matmul_memory(tape->device, &piece, dtype,
						     &tape->scratch_nbytes));
	}
	return SRT_OK;
}

srt_status_t srt_run_part_products(const srt_run_t *run, const srt_matmul_t *mm,
				   const srt_parts_t *parts, int64_t stride)
{
	for (int part = 0; part < parts->nparts; part++)
		for (int b = 0; b < parts->nblocks; b++) {
			srt_matmul_t piece = make_piece(mm, parts, part, b);

			piece.c.offset += (size_t)(part * stride) * sizeof(float);
			SRT_TRY(srt_op_matmul(&piece, run->stream));
		}
	return SRT_OK;
}

srt_status_t srt_run_add_parts(const srt_run_t *run, const srt_node_t *node,
			       const srt_sum_parts_t *sum)
{
	srt_sum_parts_t own = SRT_SUM_PARTS_INIT, all = *sum;
	const int cuts_rows = node->layer->sums == SRT_SUM_OUTPUT_ROWS ||
			      node->layer->sums == SRT_SUM_GRADIENT_ROWS;

	all.nparts = srt_tape_own_parts(run->tape);
	if (run->tape->nranks > 1) {
		own.rows = sum->rows;
		own.n = sum->n;
		own.nparts = all.nparts;
		own.parts = own.out = sum->parts;
		if (own.nparts > 1)
			SRT_TRY(srt_op_sum_parts(&own, run->stream));
		SRT_TRY(srt_run_sum_parts(run, node));
		all.nparts = 1;
		if (cuts_rows) {
			all.rows = sum->rows / run->tape->nranks;
			all.parts = srt_run_own_sum(run, node, SRT_F32);
		}
	}
	return srt_op_sum_parts(&all, run->stream);
}

/* ---- an input in parts ------------------------------------------------------------------ */

static srt_status_t forward_to_parts(const srt_run_t *run, const srt_node_t *node)
{
	(void)run;
	(void)node;
	return SRT_OK;
}

srt_status_t srt_run_backward_parts(const srt_run_t *run, const srt_node_t *node)
{
	srt_sum_parts_t sum = SRT_SUM_PARTS_INIT;

	if (!srt_run_grad_in(run, node, 0, &sum.out, &sum.accumulate))
		return SRT_OK;
	sum.rows = node->out->rows;
	sum.n = node->out->n;
	sum.parts = srt_run_grad_out(run, node);
	return srt_run_add_parts(run, node, &sum);
}

static const srt_layer_t to_parts_layer = {
	.name = "to_parts",
	.adds = 1,
	.is_view = 1,
	.sums = SRT_SUM_GRADIENT_PARTS,
	.forward = forward_to_parts,
	.backward = srt_run_backward_parts,
};

/* What an earlier use of x in the open section has made. */
static srt_tensor_t *find_in_parts(const srt_tape_t *tape, const srt_tensor_t *x)
{
	for (srt_tensor_t *t = tape->tensors; t != NULL; t = t->next)
		if (t->grad_parts && tape->nodes[t->producer].in[0] == x &&
		    t->section == tape->section)
			return t;
	return NULL;
}

srt_tensor_t *srt_tape_to_parts(srt_tape_t *tape, srt_tensor_t *x)
{
	const srt_node_desc_t desc = {
		.layer = &to_parts_layer, .in = { x }, .dtype = x->dtype, .rows = x->rows, .n = x->n
	};
	srt_tensor_t *found = find_in_parts(tape, x);

	if (found != NULL)
		return found;
	srt_tape_parts_nbytes(tape, x->rows, x->n);
	x = x->has_own_rows ? srt_tape_gather_rows(tape, x) : srt_tape_record(tape, &desc);
	if (x != NULL)
		x->grad_parts = srt_tape_own_parts(tape);
	return x;
}
