/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums by NCCL, in numerics mode fast: in its own order, which may differ from the
 * tree of docs/numerics.md and from one number of ranks, or version of the library, to the next.
 * Only of floats: 16-bit elements would be rounded at each addition (docs/numerics.md).
 *
 *     reduce-scatter   to scratch, and from there through the epilogue to the shard
 *     all-reduce       in place, then the epilogue over all of it
 *
 * Whether it is taken depends on what all ranks know alike, never on a start's epilogue: a rank
 * that called NCCL's sum beside one that sends would hang.
 */
#include <stdio.h>

#include "collectives/collective.h"

bool srt_nccl_may_sum(const srt_coll_t *coll)
{
	const srt_backend_comm_ops_t *ops = coll->nccl->ops;
	const srt_runs_t *first = &coll->owner[0];
	bool all = coll->kind == SRT_COLL_ALL_REDUCE;

	if (!coll->comm->fast || !coll->algorithm->reduces || coll->dtype != SRT_F32)
		return false;
	if ((all ? ops->all_reduce == NULL : ops->reduce_scatter == NULL) ||
	    (!all && first->nbytes > srt_nccl_scratch_nbytes(coll->comm->size)))
		return false;
	for (int r = 0; r < coll->comm->size; r++) {
		if (coll->owner[r].nruns != first->nruns)
			return false;
	}
	for (size_t i = 0; i < first->nruns; i++) {
		if (!srt_nccl_alike(coll, i))
			return false;
	}
	return true;
}

/* The i-th runs of all owners. */
static srt_status_t put_sum(const srt_coll_t *coll, size_t i, size_t scratch_offset)
{
	const srt_nccl_t *v = coll->nccl;
	const srt_run_t *run = &coll->owner[0].runs[i];
	size_t offset = coll->full.offset + run->full_offset;
	size_t nelem = run->nbytes / coll->elem_nbytes;
	void *full = coll->full.buffer->impl;

	if (coll->kind == SRT_COLL_ALL_REDUCE)
		return v->ops->all_reduce(v->impl, full, offset, nelem * (size_t)coll->comm->size,
					  coll->dtype);
	return v->ops->reduce_scatter(v->impl, v->scratch->impl, scratch_offset, full, offset,
				      nelem, coll->dtype);
}

srt_status_t srt_nccl_put_sums(const srt_coll_t *coll)
{
	const srt_runs_t *mine = &coll->owner[coll->comm->rank];
	size_t at = 0;

	for (size_t i = 0; i < mine->nruns; at += mine->runs[i++].nbytes)
		SRT_TRY(put_sum(coll, i, at));
	return SRT_OK;
}

static bool changes(const srt_coll_epilogue_t *e)
{
	return e != NULL && ((e->divisor != 0.0f && e->divisor != 1.0f) ||
			     (e->predivisor != 0.0f && e->predivisor != 1.0f));
}

srt_status_t srt_nccl_finish_sums(const srt_coll_t *coll, const srt_coll_epilogue_t *epilogue,
				  srt_stream_t *stream)
{
	const srt_runs_t *mine = &coll->owner[coll->comm->rank];
	bool all = coll->kind == SRT_COLL_ALL_REDUCE;
	size_t at = 0;

	for (size_t i = 0; i < mine->nruns; at += mine->runs[i++].nbytes) {
		const srt_run_t *run = all ? &coll->owner[0].runs[i] : &mine->runs[i];
		size_t nelem = run->nbytes / coll->elem_nbytes;
		srt_view_t whole = srt_view_at(&coll->full, run->full_offset);
		srt_view_t shard = srt_view_at(&coll->shard, run->shard_offset);
		srt_view_t sum = srt_view(coll->nccl->scratch, at, coll->dtype);

		if (!all)
			SRT_TRY(srt_step_epilogue(&shard, &sum, nelem, epilogue, stream));
		else if (changes(epilogue))
			SRT_TRY(srt_step_epilogue(&whole, &whole, nelem * (size_t)coll->comm->size,
						  epilogue, stream));
	}
	return SRT_OK;
}
