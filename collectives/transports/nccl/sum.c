/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scratch of sums, and NCCL's own sums.
 *
 * NCCL's own sums are used in numerics mode fast. Their order is NCCL's: it may differ from the
 * tree of docs/numerics.md, and with the number of ranks and the version of NCCL. Only fp32 is
 * summed by NCCL, as it would round 16-bit elements at each addition (docs/numerics.md).
 *
 *     reduce-scatter   to the scratch, and from there through the epilogue to the shard
 *     all-reduce       in place, then the epilogue over all elements
 *
 * The choice depends only on what all ranks know, never on the epilogue of a start: all ranks must
 * make the same NCCL calls.
 */
#include <stdio.h>

#include "collectives/transports/nccl/nccl.h"
#include "collectives/transports/staged/bounce.h"

/* Size of the scratch in slots of bounce buffers. An NCCL launch costs more than a copy through
 * host memory, so it moves more bytes. */
#define SCRATCH_SLOTS 8u

size_t srt_nccl_scratch_nbytes(int nranks)
{
	return SCRATCH_SLOTS * srt_staging_slot_nbytes(nranks);
}

size_t srt_nccl_part_nbytes(int nranks)
{
	return srt_staging_part_nbytes(srt_nccl_scratch_nbytes(nranks), nranks);
}

srt_view_t srt_nccl_part(const srt_coll_t *coll, int peer)
{
	size_t index = srt_staging_part(peer, coll->comm->rank);

	return srt_view(srt_nccl_of(coll)->scratch, index * srt_nccl_part_nbytes(coll->comm->size),
			coll->dtype);
}

bool srt_nccl_may_sum(const srt_coll_t *coll)
{
	const srt_backend_comm_ops_t *ops = srt_nccl_of(coll)->ops;
	const srt_extents_t *first = &coll->owner[0];
	bool all = coll->kind == SRT_COLL_ALL_REDUCE;

	if (!srt_nccl_of(coll)->fast || !coll->algorithm->reduces || coll->dtype != SRT_F32)
		return false;
	if ((all ? ops->all_reduce == NULL : ops->reduce_scatter == NULL) ||
	    (!all && first->nbytes > srt_nccl_scratch_nbytes(coll->comm->size)))
		return false;
	for (int r = 0; r < coll->comm->size; r++) {
		if (coll->owner[r].nextents != first->nextents)
			return false;
	}
	for (size_t i = 0; i < first->nextents; i++) {
		if (!srt_extents_are_uniform(coll, i))
			return false;
	}
	return true;
}

/* The sum of the i-th extents of all owners. */
static srt_status_t append_sum(const srt_coll_t *coll, size_t i, size_t scratch_offset)
{
	const srt_nccl_t *v = srt_nccl_of(coll);
	const srt_extent_t *extent = &coll->owner[0].extents[i];
	size_t offset = coll->full.offset + extent->full_offset;
	size_t nelem = extent->nbytes / coll->elem_nbytes;
	void *full = coll->full.buffer->impl;

	if (coll->kind == SRT_COLL_ALL_REDUCE)
		return v->ops->all_reduce(v->impl, full, offset, nelem * (size_t)coll->comm->size,
					  coll->dtype);
	return v->ops->reduce_scatter(v->impl, v->scratch->impl, scratch_offset, full, offset,
				      nelem, coll->dtype);
}

srt_status_t srt_nccl_append_sums(const srt_coll_t *coll)
{
	const srt_extents_t *mine = &coll->owner[coll->comm->rank];
	size_t at = 0;

	for (size_t i = 0; i < mine->nextents; at += mine->extents[i++].nbytes)
		SRT_TRY(append_sum(coll, i, at));
	return SRT_OK;
}

static bool changes_values(const srt_coll_epilogue_t *e)
{
	return e != NULL && (e->divisor != 1.0f || e->predivisor != 1.0f);
}

srt_status_t srt_nccl_finish_sums(const srt_coll_t *coll, const srt_coll_epilogue_t *epilogue,
				  srt_stream_t *stream)
{
	const srt_extents_t *mine = &coll->owner[coll->comm->rank];
	bool all = coll->kind == SRT_COLL_ALL_REDUCE;
	size_t at = 0;

	for (size_t i = 0; i < mine->nextents; at += mine->extents[i++].nbytes) {
		const srt_extent_t *extent = all ? &coll->owner[0].extents[i] : &mine->extents[i];
		size_t nelem = extent->nbytes / coll->elem_nbytes;
		srt_view_t full = srt_view_at(&coll->full, extent->full_offset);
		srt_view_t shard = srt_view_at(&coll->shard, extent->shard_offset);
		srt_view_t sum = srt_view(srt_nccl_of(coll)->scratch, at, coll->dtype);

		if (!all)
			SRT_TRY(srt_step_epilogue(SRT_F32, &shard, &sum, nelem, epilogue, stream));
		else if (changes_values(epilogue))
			SRT_TRY(srt_step_epilogue(SRT_F32, &full, &full,
						  nelem * (size_t)coll->comm->size, epilogue,
						  stream));
	}
	return SRT_OK;
}
