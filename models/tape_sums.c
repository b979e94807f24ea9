/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives over the tensor-parallel ranks of a tape, in the arena, created when the tape is
 * bound; those of the ranks are compared before.
 *
 *     sums     of the output of a layer in the forward pass; in the backward pass of the gradient
 *              of its input, or of what it adds to that of a parameter: an all-reduce in place
 *     gathers  of statistics of rows, or of the columns of all ranks, by a layer: an all-gather
 *
 * With tensor parts (models/layer_parts.c) the sums are those of parts, SRT_F32, by a layer.
 */
#include "models/tape_impl.h"

#include <stdlib.h>
#include <string.h>

/* A collective as a line of text, to be compared. */
#define LINE_NBYTES 160

/* What a node's collectives sum: its output, its output when it runs again, its input's gradient,
 * its part of a parameter's gradient; or gather: statistics; its input, its input when it runs
 * again, its input in the backward pass, its output's gradient. */
enum use {
	FORWARD,
	AGAIN,
	GRADIENT,
	PARAM,
	STATS,
	INPUT,
	INPUT_AGAIN,
	INPUT_BACKWARD,
	GRAD_OUT,
	NUSES
};

static const char *const use_names[NUSES] = { "output",           "recomputed output",
					      "gradient",         "parameter's gradient",
					      "statistics",       "input",
					      "recomputed input", "input in the backward pass",
					      "output's gradient" };

typedef struct values {
	int64_t rows, n;
	srt_dtype_t dtype;
} values_t;

static int get_stats_block(const srt_node_t *node)
{
	if (node->saved_nbytes[0])
		return node->saved[0];
	return node->scratch_backward != SRT_NO_BLOCK ? node->scratch_backward :
							node->scratch_forward;
}

/* The output, or the scratch that it is made in. */
static int get_output_block(const srt_node_t *node, int again)
{
	switch (node->layer->sums) {
	case SRT_SUM_OUTPUT:
		return again ? node->out->again : node->out->value;
	case SRT_SUM_OUTPUT_PARTS:
	case SRT_SUM_OUTPUT_ROWS:
		return again ? node->scratch_again : node->scratch_forward;
	default:
		return SRT_NO_BLOCK;
	}
}

static int get_gradient_block(const srt_node_t *node)
{
	switch (node->layer->sums) {
	case SRT_SUM_GRADIENT:
		return node->to[0].how != SRT_TO_NONE ? node->to[0].block : SRT_NO_BLOCK;
	case SRT_SUM_GRADIENT_PARTS:
	case SRT_SUM_GRADIENT_ROWS:
		return node->grad_out;
	default:
		return SRT_NO_BLOCK;
	}
}

/* Where the input of all ranks is gathered: rows in the output, columns in scratch. */
static int get_input_block(const srt_node_t *node, int again)
{
	if (node->layer->gathers & SRT_GATHER_ROWS)
		return again ? node->out->again : node->out->value;
	if (node->layer->gathers & SRT_GATHER_COLUMNS)
		return again ? node->scratch_again : node->scratch_forward;
	return SRT_NO_BLOCK;
}

/* The block of a use, SRT_NO_BLOCK if the node has no such collective. */
static int get_block(const srt_node_t *node, enum use use)
{
	const int again = use == AGAIN || use == INPUT_AGAIN;
	const unsigned gathers = node->layer != NULL ? node->layer->gathers : 0;

	if (node->layer == NULL || (again && !node->recomputed) ||
	    ((use == GRADIENT || use == PARAM || use == GRAD_OUT) && !node->has_backward))
		return SRT_NO_BLOCK;
	switch (use) {
	case FORWARD:
	case AGAIN:
		return get_output_block(node, again);
	case GRADIENT:
		return get_gradient_block(node);
	case PARAM:
		return node->layer->sums == SRT_SUM_PARAM ? node->scratch_backward : SRT_NO_BLOCK;
	case STATS:
		return gathers & SRT_GATHER_STATS ? get_stats_block(node) : SRT_NO_BLOCK;
	case INPUT:
	case INPUT_AGAIN:
		return get_input_block(node, again);
	case INPUT_BACKWARD:
		if (gathers & SRT_GATHER_ROWS)
			return node->out->regathers ? node->out->again : SRT_NO_BLOCK;
		return gathers & SRT_GATHER_COLUMNS && node->has_backward ? node->scratch_backward :
									    SRT_NO_BLOCK;
	default:
		return gathers & SRT_GATHER_GRAD_OUT ? node->scratch_backward : SRT_NO_BLOCK;
	}
}

static srt_coll_kind_t get_kind(const srt_node_t *node, enum use use)
{
	const srt_sum_t sums = node->layer->sums;

	if (use >= STATS)
		return SRT_COLL_ALL_GATHER;
	if (use != PARAM && (sums == SRT_SUM_OUTPUT_ROWS || sums == SRT_SUM_GRADIENT_ROWS))
		return SRT_COLL_REDUCE_SCATTER;
	return SRT_COLL_ALL_REDUCE;
}

/* The parameter's, or the layer's where it has none. */
static const char *get_name(const srt_node_t *node)
{
	return node->param[0] != NULL ? srt_param_name(node->param[0]) : node->layer->name;
}

/* What a rank has of a use; of a sum of which it gets rows, these. */
static values_t get_values(const srt_node_t *node, enum use use)
{
	const srt_sum_t sums = node->layer->sums;
	const int of_input = use == GRADIENT || (use >= INPUT && use <= INPUT_BACKWARD);
	const srt_tensor_t *x = of_input ? node->in[0] : node->out;
	const int in_parts = node->args.parts.nparts > 0 || sums == SRT_SUM_GRADIENT_PARTS ||
			     sums == SRT_SUM_GRADIENT_ROWS;

	if (use == STATS)
		return (values_t){ srt_tape_own_parts(x->tape) * node->args.stats_rows, 3,
				   SRT_F32 };
	if (use == PARAM)
		return (values_t){ 1 + (node->param[1] != NULL), node->args.norm_n,
				   x->tape->nparts > 1 ? SRT_F32 : x->dtype };
	return (values_t){ x->rows, x->n, use < STATS && in_parts ? SRT_F32 : x->dtype };
}

static void write_line(const srt_node_t *node, enum use use, char *line)
{
	const values_t x = get_values(node, use);

	snprintf(line, LINE_NBYTES, "the %s (%lld,%lld) %s of %s %s", use_names[use],
		 (long long)x.rows, (long long)x.n, srt_dtype_name(x.dtype), node->layer->name,
		 get_name(node));
}

/* ---- comparing ---------------------------------------------------------------------------- */

static int count_sums(const srt_tape_t *tape)
{
	int n = 0;

	for (int i = 0; i < tape->nnodes; i++)
		for (enum use use = FORWARD; use < NUSES; use++)
			n += get_block(&tape->nodes[i], use) != SRT_NO_BLOCK;
	return n;
}

static void write_lines(const srt_tape_t *tape, char *lines)
{
	for (int i = 0; i < tape->nnodes; i++)
		for (enum use use = FORWARD; use < NUSES; use++)
			if (get_block(&tape->nodes[i], use) != SRT_NO_BLOCK) {
				write_line(&tape->nodes[i], use, lines);
				lines += LINE_NBYTES;
			}
}

/* `all` has `most` lines of each rank; those that a rank does not have are empty. */
static srt_status_t compare_lines(srt_tape_t *tape, const char *all, int most)
{
	for (int i = 0; i < most; i++) {
		const char *first = all + (size_t)i * LINE_NBYTES;

		for (int r = 1; r < tape->nranks; r++) {
			const char *other = first + (size_t)r * (size_t)most * LINE_NBYTES;

			if (strcmp(first, other) != 0)
				return srt_tape_fail(
					tape, SRT_ERR_MISMATCH,
					"the tensor-parallel ranks recorded different tapes: sum "
					"%d is %s on rank 0 and %s on rank %d",
					i, *first ? first : "missing", *other ? other : "missing",
					r);
		}
	}
	return SRT_OK;
}

/* The tape of a rank, for the other ranks. */
typedef struct peer {
	int32_t nsums, status;
	char error[sizeof(((srt_tape_t *)0)->error)];
} peer_t;

/* The failure of any rank is one of all. */
static srt_status_t share_status(srt_tape_t *tape, const peer_t *peers)
{
	for (int r = 0; r < tape->nranks; r++)
		if (peers[r].status != SRT_OK)
			srt_tape_fail(tape, (srt_status_t)peers[r].status,
				      "the tape of tensor-parallel rank %d cannot be bound: %s", r,
				      peers[r].error);
	return srt_tape_status(tape);
}

/* Collective. */
static srt_status_t verify_sums(srt_tape_t *tape)
{
	peer_t *peers = calloc((size_t)tape->nranks, sizeof(*peers));
	peer_t mine = { .nsums = count_sums(tape), .status = (int32_t)tape->status };
	char *lines = NULL, *all = NULL;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	int most = 1;

	if (peers == NULL)
		goto done;
	memcpy(mine.error, tape->error, sizeof(mine.error));
	status = srt_comm_oob_allgather(tape->comm, &mine, sizeof(mine), peers);
	if (status == SRT_OK)
		status = share_status(tape, peers);
	if (status != SRT_OK)
		goto done;
	for (int r = 0; r < tape->nranks; r++)
		most = peers[r].nsums > most ? peers[r].nsums : most;
	status = SRT_ERR_OUT_OF_MEMORY;
	lines = calloc((size_t)most, LINE_NBYTES);
	all = calloc((size_t)tape->nranks * (size_t)most, LINE_NBYTES);
	if (lines == NULL || all == NULL)
		goto done;
	write_lines(tape, lines);
	status = srt_comm_oob_allgather(tape->comm, lines, (size_t)most * LINE_NBYTES, all);
	if (status == SRT_OK)
		compare_lines(tape, all, most);
done:
	if (status == SRT_ERR_OUT_OF_MEMORY && tape->status == SRT_OK) {
		srt_tape_fail(tape, status, "no memory to compare the tapes of the ranks");
		srt_comm_abort(tape->comm, tape->error);
	}
	if (status != SRT_OK)
		srt_tape_fail(tape, status, NULL); /* keeps the first sentence */
	free(peers);
	free(lines);
	free(all);
	return srt_tape_status(tape);
}

/* ---- statistics --------------------------------------------------------------------------- */

static size_t get_own_nbytes(const srt_tape_t *tape, int64_t rows)
{
	return (size_t)rows * 3 * sizeof(float) * (size_t)srt_tape_own_parts(tape);
}

size_t srt_tape_stats_nbytes(srt_tape_t *tape, int64_t rows)
{
	/* ranks and parts are few: an overflow is that of the rows */
	srt_tape_f32_nbytes(tape, rows, 3);
	if (tape->nranks == 1)
		return get_own_nbytes(tape, rows);
	return srt_align_block(get_own_nbytes(tape, rows)) +
	       get_own_nbytes(tape, rows) * (size_t)tape->nranks;
}

static size_t get_stats_offset(const srt_tape_t *tape, const srt_node_t *node)
{
	return tape->blocks[get_stats_block(node)].offset + node->args.stats_offset;
}

/* One rank's own are those of all. */
static size_t get_all_stats_offset(const srt_tape_t *tape, const srt_node_t *node)
{
	return get_stats_offset(tape, node) +
	       (tape->nranks > 1 ? srt_align_block(get_own_nbytes(tape, node->args.stats_rows)) :
				   0);
}

srt_view_t srt_run_stats(const srt_run_t *run, const srt_node_t *node)
{
	return srt_view(run->tape->arena, get_stats_offset(run->tape, node), SRT_F32);
}

srt_view_t srt_run_all_stats(const srt_run_t *run, const srt_node_t *node)
{
	return srt_view(run->tape->arena, get_all_stats_offset(run->tape, node), SRT_F32);
}

/* ---- the collectives ---------------------------------------------------------------------- */

/* Where this rank's own values are, if they are not a part of those of all: in a gather what it
 * gives, in a reduce-scatter what it gets. */
static size_t get_own_offset(const srt_tape_t *tape, const srt_node_t *node, enum use use)
{
	const srt_tensor_t *x = node->in[0];

	switch (use) {
	case STATS:
		return get_stats_offset(tape, node);
	case FORWARD:
	case AGAIN:
		return tape->blocks[get_block(node, use)].offset + node->args.own_offset;
	case GRADIENT:
		return tape->blocks[node->scratch_backward].offset;
	case GRAD_OUT:
		return tape->blocks[node->grad_out].offset;
	default: /* as srt_run_value() has the input in this pass */
		return tape
			->blocks[use != INPUT && node->section && x->section == node->section ?
					 x->again :
					 x->value]
			.offset;
	}
}

/* An all-reduce: each rank sums an equal part. The others: each has its values in the order of the
 * ranks. */
static srt_status_t create_coll(srt_tape_t *tape, srt_node_t *node, enum use use,
				srt_coll_owner_t *owners, srt_coll_segment_t *parts)
{
	const values_t x = get_values(node, use);
	const size_t nelem = (size_t)(x.rows * x.n), nranks = (size_t)tape->nranks;
	const size_t full = use == STATS ? get_all_stats_offset(tape, node) :
					   tape->blocks[get_block(node, use)].offset;
	srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				 .kind = get_kind(node, use),
				 .name = get_name(node),
				 .dtype = x.dtype,
				 .full = srt_view(tape->arena, full, x.dtype),
				 .owners = owners };
	const int is_sum = desc.kind == SRT_COLL_ALL_REDUCE;
	const size_t part = is_sum ? (nelem + nranks - 1) / nranks : nelem;
	const size_t end = is_sum ? nelem : nelem * nranks;
	srt_status_t status;

	if (!is_sum)
		desc.shard = srt_view(tape->arena, get_own_offset(tape, node, use), x.dtype);
	for (size_t r = 0; r < nranks; r++) {
		const size_t first = r * part < end ? r * part : end;

		parts[r] = (srt_coll_segment_t){
			.full_offset = first,
			.nelem = part < end - first ? part : end - first,
		};
		owners[r] = (srt_coll_owner_t){ &parts[r], parts[r].nelem > 0 };
	}
	status = srt_coll_create(tape->comm, &desc, &node->sum[use]);
	return status == SRT_OK ? SRT_OK : srt_tape_fail(tape, status, NULL);
}

srt_status_t srt_tape_create_sums(srt_tape_t *tape)
{
	srt_coll_segment_t *parts;
	srt_coll_owner_t *owners;

	srt_tape_destroy_sums(tape);
	if (tape->nranks == 1)
		return srt_tape_status(tape);
	if (tape->comm == NULL)
		return srt_tape_fail(tape, SRT_ERR_STATE,
				     "a tape of a mesh to plan with cannot be bound");
	if (verify_sums(tape) != SRT_OK)
		return srt_tape_status(tape);
	owners = calloc((size_t)tape->nranks, sizeof(*owners));
	parts = calloc((size_t)tape->nranks, sizeof(*parts));
	if (owners == NULL || parts == NULL) {
		srt_tape_fail(tape, SRT_ERR_OUT_OF_MEMORY,
			      "no memory for the sums over the tensor-parallel ranks");
		srt_comm_abort(tape->comm, tape->error);
	}
	for (int i = 0; i < tape->nnodes; i++)
		for (enum use use = FORWARD; use < NUSES && tape->status == SRT_OK; use++)
			if (get_block(&tape->nodes[i], use) != SRT_NO_BLOCK)
				create_coll(tape, &tape->nodes[i], use, owners, parts);
	free(owners);
	free(parts);
	return srt_tape_status(tape);
}

void srt_tape_destroy_sums(srt_tape_t *tape)
{
	for (int i = 0; i < tape->nnodes; i++)
		for (enum use use = FORWARD; use < NUSES; use++) {
			srt_coll_destroy(tape->nodes[i].sum[use]);
			tape->nodes[i].sum[use] = NULL;
		}
}

/* Other tensors and other tapes use the memory next, so peers must have read it. */
static srt_status_t run_coll(const srt_run_t *run, srt_coll_t *coll)
{
	if (coll == NULL)
		return SRT_OK;
	SRT_TRY(srt_coll_start(coll, NULL, run->stream));
	return srt_coll_wait_readers(coll, run->stream);
}

srt_status_t srt_run_sum_output(const srt_run_t *run, const srt_node_t *node)
{
	if (node->layer->sums != SRT_SUM_OUTPUT)
		return SRT_OK;
	return run_coll(run, node->sum[run->recomputes ? AGAIN : FORWARD]);
}

srt_status_t srt_run_sum_gradient(const srt_run_t *run, const srt_node_t *node)
{
	return node->layer->sums == SRT_SUM_GRADIENT ? run_coll(run, node->sum[GRADIENT]) : SRT_OK;
}

srt_status_t srt_run_sum_parts(const srt_run_t *run, const srt_node_t *node)
{
	switch (node->layer->sums) {
	case SRT_SUM_GRADIENT_PARTS:
	case SRT_SUM_GRADIENT_ROWS:
		return run_coll(run, node->sum[GRADIENT]);
	case SRT_SUM_PARAM:
		return run_coll(run, node->sum[PARAM]);
	default:
		return run_coll(run, node->sum[run->recomputes ? AGAIN : FORWARD]);
	}
}

srt_view_t srt_run_own_sum(const srt_run_t *run, const srt_node_t *node, srt_dtype_t dtype)
{
	const enum use use = node->layer->sums == SRT_SUM_GRADIENT_ROWS ? GRADIENT :
			     run->recomputes                            ? AGAIN :
									  FORWARD;

	return srt_view(run->tape->arena, get_own_offset(run->tape, node, use), dtype);
}

srt_status_t srt_run_sum_param(const srt_run_t *run, const srt_node_t *node)
{
	return run_coll(run, node->sum[PARAM]);
}

srt_status_t srt_run_gather_stats(const srt_run_t *run, const srt_node_t *node)
{
	return run_coll(run, node->sum[STATS]);
}

srt_status_t srt_run_gather_input(const srt_run_t *run, const srt_node_t *node)
{
	const enum use use = run->recomputes ? INPUT_AGAIN : run->backward ? INPUT_BACKWARD : INPUT;

	return run_coll(run, node->sum[use]);
}

srt_status_t srt_run_gather_grad_out(const srt_run_t *run, const srt_node_t *node)
{
	return run_coll(run, node->sum[GRAD_OUT]);
}
