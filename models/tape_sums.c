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

/* A sum as a line of text, to be compared. */
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
	COLUMNS,
	COLUMNS_AGAIN,
	COLUMNS_BACKWARD,
	COLUMNS_GRAD,
	NUSES
};

static const char *const use_names[NUSES] = { "output",
					      "recomputed output",
					      "gradient",
					      "parameter's gradient",
					      "statistics",
					      "columns",
					      "recomputed columns",
					      "columns in the backward pass",
					      "columns of the gradient" };

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

/* Where the columns of all ranks are gathered. */
static int get_columns_block(const srt_node_t *node, enum use use)
{
	if (use == COLUMNS)
		return node->scratch_forward;
	if (use == COLUMNS_AGAIN)
		return node->scratch_again;
	return node->has_backward ? node->scratch_backward : SRT_NO_BLOCK;
}

/* Where this rank's columns are: those of the input as srt_run_value() has it in this pass. */
static int get_own_block(const srt_node_t *node, enum use use)
{
	const srt_tensor_t *x = node->in[0];

	if (use == COLUMNS_GRAD)
		return node->grad_out;
	return use != COLUMNS && node->section && x->section == node->section ? x->again : x->value;
}

/* The block of a use, SRT_NO_BLOCK if the node has no such collective. */
static int get_block(const srt_node_t *node, enum use use)
{
	const srt_sum_t sums = node->layer != NULL ? node->layer->sums : SRT_SUM_NONE;

	if (use == FORWARD && sums == SRT_SUM_OUTPUT_PARTS)
		return node->scratch_forward;
	if (use == AGAIN && sums == SRT_SUM_OUTPUT_PARTS && node->recomputed)
		return node->scratch_again;
	if (use == GRADIENT && sums == SRT_SUM_GRADIENT_PARTS && node->has_backward)
		return node->grad_out;
	if (use == FORWARD && sums == SRT_SUM_OUTPUT)
		return node->out->value;
	if (use == AGAIN && sums == SRT_SUM_OUTPUT && node->recomputed)
		return node->out->again;
	if (use == GRADIENT && sums == SRT_SUM_GRADIENT && node->has_backward &&
	    node->to[0].how != SRT_TO_NONE)
		return node->to[0].block;
	if (use == PARAM && sums == SRT_SUM_PARAM && node->has_backward)
		return node->scratch_backward;
	if (use == STATS && node->layer != NULL && node->layer->gathers)
		return get_stats_block(node);
	if (use >= COLUMNS && node->layer != NULL && node->layer->gathers_columns)
		return get_columns_block(node, use);
	return SRT_NO_BLOCK;
}

/* The parameter's, or the layer's where it has none. */
static const char *get_name(const srt_node_t *node)
{
	return node->param[0] != NULL ? srt_param_name(node->param[0]) : node->layer->name;
}

/* What a rank has of a use. */
static values_t get_values(const srt_node_t *node, enum use use)
{
	const srt_tensor_t *x = use == GRADIENT ? node->in[0] : node->out;
	const int is_parts = node->layer->sums == SRT_SUM_OUTPUT_PARTS ||
			     node->layer->sums == SRT_SUM_GRADIENT_PARTS;

	if (use == STATS)
		return (values_t){ srt_tape_own_parts(x->tape) * node->args.stats_rows, 3,
				   SRT_F32 };
	if (use == PARAM)
		return (values_t){ 1, node->args.norm_n,
				   x->tape->nparts > 1 ? SRT_F32 : x->dtype };
	return (values_t){ x->rows, x->n, is_parts ? SRT_F32 : x->dtype };
}

static void write_line(const srt_node_t *node, enum use use, char *line)
{
	const values_t x = get_values(node, use);

	snprintf(line, LINE_NBYTES, "the %s (%lld,%lld) %s of %s %s", use_names[use],
		 (long long)x.rows, (long long)x.n, srt_dtype_name(x.dtype), node->layer->name,
		 get_name(node));
}

void srt_tape_set_mesh(srt_tape_t *tape, const srt_mesh_t *mesh, const char *dim)
{
	const int nranks = mesh != NULL ? srt_mesh_size(mesh, dim) : 0;

	if (tape->nnodes > 0) {
		srt_tape_fail(tape, SRT_ERR_STATE,
			      "the mesh of a tape is set before its first layer");
		return;
	}
	tape->nranks = nranks > 1 ? nranks : 1;
	tape->rank = nranks > 1 ? srt_mesh_coordinate(mesh, dim) : 0;
	tape->comm = nranks > 1 ? srt_mesh_comm(mesh, dim) : NULL;
}

void srt_tape_set_tensor_parts(srt_tape_t *tape, int nparts)
{
	if (tape->nnodes > 0) {
		srt_tape_fail(tape, SRT_ERR_STATE,
			      "the tensor parts of a tape are set before its first layer");
		return;
	}
	if (nparts < 1 || nparts > SRT_TAPE_MOST_PARTS || (nparts & (nparts - 1)) != 0 ||
	    (nparts > 1 && nparts % tape->nranks != 0)) {
		srt_tape_fail(tape, SRT_ERR_INVALID_ARGUMENT,
			      "%d tensor parts for %d tensor-parallel ranks: must be 1 (none), or a "
			      "power of two up to %d that the ranks share equally",
			      nparts, tape->nranks, SRT_TAPE_MOST_PARTS);
		return;
	}
	tape->nparts = nparts;
}

srt_mem_kind_t srt_tape_mem_kind(const srt_tape_t *tape)
{
	return tape->comm != NULL ? srt_comm_mem_kind(tape->comm) : SRT_MEM_DEVICE;
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

/* Collective. */
static srt_status_t verify_sums(srt_tape_t *tape)
{
	int *counts = calloc((size_t)tape->nranks, sizeof(*counts));
	const int mine = count_sums(tape);
	char *lines = NULL, *all = NULL;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	int most = 1;

	if (counts == NULL)
		goto done;
	status = srt_comm_oob_allgather(tape->comm, &mine, sizeof(mine), counts);
	if (status != SRT_OK)
		goto done;
	for (int r = 0; r < tape->nranks; r++)
		most = counts[r] > most ? counts[r] : most;
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
	if (status == SRT_ERR_OUT_OF_MEMORY) {
		srt_tape_fail(tape, status, "no memory to compare the tapes of the ranks");
		srt_comm_abort(tape->comm, tape->error);
	}
	if (status != SRT_OK)
		srt_tape_fail(tape, status, NULL); /* keeps the first sentence */
	free(counts);
	free(lines);
	free(all);
	return srt_tape_status(tape);
}

/* ---- statistics --------------------------------------------------------------------------- */

static size_t align_stats(size_t nbytes)
{
	return (nbytes + SRT_STATS_ALIGN - 1) / SRT_STATS_ALIGN * SRT_STATS_ALIGN;
}

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
	return align_stats(get_own_nbytes(tape, rows)) +
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
	       (tape->nranks > 1 ? align_stats(get_own_nbytes(tape, node->args.stats_rows)) : 0);
}

srt_view_t srt_run_stats(const srt_run_t *run, const srt_node_t *node, int part)
{
	const size_t nbytes = (size_t)node->args.stats_rows * 3 * sizeof(float);

	return srt_view(run->tape->arena,
			get_stats_offset(run->tape, node) + (size_t)part * nbytes, SRT_F32);
}

srt_view_t srt_run_all_stats(const srt_run_t *run, const srt_node_t *node)
{
	return srt_view(run->tape->arena, get_all_stats_offset(run->tape, node), SRT_F32);
}

/* ---- the collectives ---------------------------------------------------------------------- */

/* Each rank sums an equal part. */
static srt_status_t create_sum(srt_tape_t *tape, srt_node_t *node, enum use use,
			       srt_coll_owner_t *owners, srt_coll_segment_t *parts)
{
	const values_t x = get_values(node, use);
	const size_t offset = tape->blocks[get_block(node, use)].offset;
	const size_t nelem = (size_t)(x.rows * x.n), nranks = (size_t)tape->nranks;
	const size_t part = (nelem + nranks - 1) / nranks;
	const srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				       .kind = SRT_COLL_ALL_REDUCE,
				       .name = get_name(node),
				       .dtype = x.dtype,
				       .full = srt_view(tape->arena, offset, x.dtype),
				       .owners = owners };
	srt_status_t status;

	for (size_t r = 0; r < nranks; r++) {
		const size_t first = r * part < nelem ? r * part : nelem;

		parts[r] = (srt_coll_segment_t){
			.full_offset = first,
			.nelem = part < nelem - first ? part : nelem - first,
		};
		owners[r] = (srt_coll_owner_t){ &parts[r], parts[r].nelem > 0 };
	}
	status = srt_coll_create(tape->comm, &desc, &node->sum[use]);
	return status == SRT_OK ? SRT_OK : srt_tape_fail(tape, status, NULL);
}

static srt_status_t create_gather(srt_tape_t *tape, srt_node_t *node, enum use use,
				  srt_coll_owner_t *owners, srt_coll_segment_t *parts)
{
	const values_t x = get_values(node, use);
	const size_t nelem = (size_t)(x.rows * x.n);
	const size_t full = use == STATS ? get_all_stats_offset(tape, node) :
					   tape->blocks[get_block(node, use)].offset;
	const size_t own = use == STATS ? get_stats_offset(tape, node) :
					  tape->blocks[get_own_block(node, use)].offset;
	const srt_coll_desc_t desc = { .size = sizeof(srt_coll_desc_t),
				       .kind = SRT_COLL_ALL_GATHER,
				       .name = get_name(node),
				       .dtype = x.dtype,
				       .full = srt_view(tape->arena, full, x.dtype),
				       .shard = srt_view(tape->arena, own, x.dtype),
				       .owners = owners };
	srt_status_t status;

	for (int r = 0; r < tape->nranks; r++) {
		parts[r] = (srt_coll_segment_t){ .full_offset = (size_t)r * nelem, .nelem = nelem };
		owners[r] = (srt_coll_owner_t){ &parts[r], 1 };
	}
	status = srt_coll_create(tape->comm, &desc, &node->sum[use]);
	return status == SRT_OK ? SRT_OK : srt_tape_fail(tape, status, NULL);
}

static srt_status_t create_coll(srt_tape_t *tape, srt_node_t *node, enum use use,
				srt_coll_owner_t *owners, srt_coll_segment_t *parts)
{
	return use >= STATS ? create_gather(tape, node, use, owners, parts) :
			      create_sum(tape, node, use, owners, parts);
}

srt_status_t srt_tape_create_sums(srt_tape_t *tape)
{
	srt_coll_segment_t *parts;
	srt_coll_owner_t *owners;

	srt_tape_destroy_sums(tape);
	if (tape->nranks == 1)
		return SRT_OK;
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
	if (node->layer->sums == SRT_SUM_GRADIENT_PARTS)
		return run_coll(run, node->sum[GRADIENT]);
	if (node->layer->sums == SRT_SUM_PARAM)
		return run_coll(run, node->sum[PARAM]);
	return run_coll(run, node->sum[run->recomputes ? AGAIN : FORWARD]);
}

srt_status_t srt_run_sum_param(const srt_run_t *run, const srt_node_t *node)
{
	return run_coll(run, node->sum[PARAM]);
}

srt_status_t srt_run_gather_stats(const srt_run_t *run, const srt_node_t *node)
{
	return run_coll(run, node->sum[STATS]);
}

srt_status_t srt_run_gather_columns(const srt_run_t *run, const srt_node_t *node)
{
	const enum use use = run->recomputes ? COLUMNS_AGAIN :
			     run->backward   ? COLUMNS_BACKWARD :
					       COLUMNS;

	return run_coll(run, node->sum[use]);
}

srt_status_t srt_run_gather_grad_out(const srt_run_t *run, const srt_node_t *node)
{
	return run_coll(run, node->sum[COLUMNS_GRAD]);
}
