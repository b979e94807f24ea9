/* SPDX-License-Identifier: BSD-3-Clause */
/* The extents of a collective: how they are built, which ranks read them, and their chunks. */
#include "collectives/collective.h"

srt_extent_t *srt_extents_append(srt_extents_t *extents, srt_extent_t *last, srt_extent_t *free,
				 const srt_extent_t *next)
{
	size_t full_end = next->full_offset + next->nbytes;
	size_t shard_end = next->shard_offset + next->nbytes;
	bool first = extents->nextents == 0;

	if (first || next->full_offset < extents->full_begin)
		extents->full_begin = next->full_offset;
	if (first || next->shard_offset < extents->shard_begin)
		extents->shard_begin = next->shard_offset;
	if (full_end > extents->full_end)
		extents->full_end = full_end;
	if (shard_end > extents->shard_end)
		extents->shard_end = shard_end;
	extents->nbytes += next->nbytes;
	if (!first && last->full_offset + last->nbytes == next->full_offset &&
	    last->shard_offset + last->nbytes == next->shard_offset) {
		last->nbytes += next->nbytes;
		return last;
	}
	*free = *next;
	extents->nextents++;
	return free;
}

bool srt_extents_are_uniform(const srt_coll_t *coll, size_t i)
{
	const srt_extent_t *first = &coll->owner[0].extents[i];

	for (int r = 0; r < coll->comm->size; r++) {
		const srt_extents_t *extents = &coll->owner[r];

		if (i >= extents->nextents || extents->extents[i].nbytes != first->nbytes ||
		    extents->extents[i].full_offset !=
			    first->full_offset + (size_t)r * first->nbytes)
			return false;
	}
	return true;
}

bool srt_coll_reads(const srt_coll_t *coll, int reader, int owner)
{
	for (int f = 0; f < coll->algorithm->nphases; f++) {
		srt_phase_t phase = coll->algorithm->phases[f];

		if (phase != SRT_PHASE_SIGNAL && srt_phase_reads(coll, phase, reader, owner))
			return true;
	}
	return false;
}

/* ---- chunks --------------------------------------------------------------------------- */

/* The owner's bytes [*begin, *end) that the round moves, counted over its extents. */
static void round_range(const srt_coll_t *coll, uint32_t round, size_t *begin, size_t *end)
{
	int f = srt_coll_phase_index(coll, round);
	size_t each = coll->transport->round_nbytes(coll, coll->algorithm->phases[f]);

	/* A phase of one round has no limit. */
	*begin = round == coll->phase_begin[f] ? 0 : (round - coll->phase_begin[f]) * each;
	*end = SIZE_MAX - *begin < each ? SIZE_MAX : *begin + each;
}

bool srt_chunk_next(const srt_coll_t *coll, uint32_t round, const srt_extents_t *extents,
		    srt_chunk_iter_t *iter, srt_chunk_t *chunk)
{
	size_t begin, end;

	round_range(coll, round, &begin, &end);
	while (iter->extent < extents->nextents && iter->base < end) {
		const srt_extent_t *extent = &extents->extents[iter->extent++];
		size_t from = iter->base > begin ? iter->base : begin;
		size_t to = iter->base + extent->nbytes < end ? iter->base + extent->nbytes : end;
		size_t skip = from - iter->base;

		iter->base += extent->nbytes;
		if (from >= to)
			continue;
		*chunk = (srt_chunk_t){
			.full_offset = extent->full_offset + skip,
			.shard_offset = extent->shard_offset + skip,
			.at = from - begin,
			.nbytes = to - from,
		};
		return true;
	}
	return false;
}

size_t srt_chunk_nbytes(const srt_coll_t *coll, uint32_t round, const srt_extents_t *extents)
{
	size_t begin, end, nbytes = extents->nbytes;

	round_range(coll, round, &begin, &end);
	if (nbytes <= begin)
		return 0;
	return (nbytes < end ? nbytes : end) - begin;
}
