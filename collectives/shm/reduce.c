/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sum over ranks in the tree's order: neighbours 2i and 2i+1, left + right, an odd last one
 * passes up (docs/numerics.md).
 *
 * Up to 8 ranks: one pass of the kernel reduce_ranks, straight from the peers' memory. More: the
 * sum of an aligned block of 8 is a node of the same tree, so block sums go to scratch and are
 * summed by the same rule, level by level, in chunks that bound the scratch. The division and the
 * addition onto the destination belong to the last level alone. Bytes read: (ranks + ranks/8 ...)
 * x shard.
 */
#include "collectives/collective.h"

#define BLOCK ((size_t)SRT_K_MAX_RANKS)
#define CHUNK_NELEM ((size_t)32768)
/* Most ranks that share a node (SRT_WIRE_MAX_WORLD). */
#define MAX_RANKS 512

static size_t nslots(size_t nranks)
{
	size_t total = 0;

	while (nranks > BLOCK) {
		nranks = (nranks + BLOCK - 1) / BLOCK;
		total += nranks;
	}
	return total;
}

size_t srt_step_reduce_scratch(int nranks, size_t elem_nbytes)
{
	return nslots((size_t)nranks) * CHUNK_NELEM * elem_nbytes;
}

/* dst = tree(in[0..n-1]), n <= 8. */
static srt_status_t sum(const srt_coll_t *coll, const srt_view_t *dst, const srt_view_t *in,
			size_t n, size_t nelem, const srt_coll_epilogue_t *epilogue,
			srt_stream_t *stream)
{
	srt_view_t views[1 + SRT_K_MAX_RANKS] = { *dst };
	srt_k_reduce_ranks_t args = { .nelem = (int64_t)nelem, .nranks = (int32_t)n };

	for (size_t i = 0; i < n; i++)
		views[1 + i] = in[i];
	if (epilogue != NULL) {
		args.divisor = epilogue->divisor;
		args.accumulate = epilogue->accumulate != 0;
	}
	return srt_launch(stream, SRT_K_REDUCE_RANKS, coll->dtype,
			  srt_kernel_grid(SRT_K_REDUCE_RANKS, &args), &args, sizeof(args), views,
			  (int)SRT_ARRAY_LEN(views));
}

/* One chunk of more than 8 ranks; in[] is overwritten with the block sums of each level. */
static srt_status_t sum_levels(const srt_coll_t *coll, const srt_view_t *dst, srt_view_t *in,
			       size_t n, size_t nelem, const srt_coll_epilogue_t *epilogue,
			       srt_stream_t *stream)
{
	size_t slot = 0;

	while (n > BLOCK) {
		size_t nblocks = (n + BLOCK - 1) / BLOCK;

		for (size_t b = 0; b < nblocks; b++) {
			size_t count = n - b * BLOCK < BLOCK ? n - b * BLOCK : BLOCK;
			srt_view_t partial =
				srt_view(coll->scratch, slot * CHUNK_NELEM * coll->elem_nbytes,
					 coll->dtype);
			if (count == 1) { /* passes up as it is */
				in[b] = in[b * BLOCK];
				continue;
			}
			SRT_TRY(sum(coll, &partial, in + b * BLOCK, count, nelem, NULL, stream));
			in[b] = partial;
			slot++;
		}
		n = nblocks;
	}
	return sum(coll, dst, in, n, nelem, epilogue, stream);
}

/* in[r] = rank r's bytes of the piece. */
static void locate(const srt_coll_start_t *start, uint32_t round, const srt_piece_t *piece,
		   srt_view_t *in)
{
	const srt_coll_t *coll = start->coll;

	for (int r = 0; r < coll->comm->size; r++) {
		if (r == coll->comm->rank)
			in[r] = srt_view_at(&coll->full, piece->full_offset);
		else
			in[r] = coll->transport->locate(start, round, r, piece);
	}
}

static srt_status_t sum_piece(const srt_coll_t *coll, const srt_view_t *dst, const srt_view_t *in,
			      size_t nbytes, const srt_coll_epilogue_t *epilogue,
			      srt_stream_t *stream)
{
	size_t n = (size_t)coll->comm->size, nelem = nbytes / coll->elem_nbytes;
	size_t step = n > BLOCK ? CHUNK_NELEM : nelem;
	srt_view_t part[MAX_RANKS];

	for (size_t e = 0; e < nelem; e += step) {
		size_t count = nelem - e < step ? nelem - e : step;
		size_t skip = e * coll->elem_nbytes;
		srt_view_t out = srt_view_at(dst, skip);

		for (size_t r = 0; r < n; r++)
			part[r] = srt_view_at(&in[r], skip);
		SRT_TRY(sum_levels(coll, &out, part, n, count, epilogue, stream));
	}
	return SRT_OK;
}

srt_status_t srt_step_reduce(srt_coll_start_t *start, uint32_t round, const srt_view_t *dst,
			     const srt_coll_epilogue_t *epilogue, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_comm_t *comm = coll->comm;
	bool like_full = coll->kind == SRT_COLL_ALL_REDUCE;
	srt_piece_at_t at = { 0 };
	srt_piece_t piece;
	srt_view_t in[MAX_RANKS];

	if (srt_piece_nbytes(coll, round, comm->rank) == 0)
		return SRT_OK;
	for (int k = 1; k < comm->size; k++)
		SRT_TRY(coll->transport->acquire(start, round, (comm->rank + k) % comm->size,
						 stream));
	SRT_TRY(srt_point_put(start, stream));
	while (srt_piece_next(coll, round, comm->rank, &at, &piece)) {
		srt_view_t out =
			srt_view_at(dst, like_full ? piece.full_offset : piece.shard_offset);

		locate(start, round, &piece, in);
		SRT_TRY(sum_piece(coll, &out, in, piece.nbytes, epilogue, stream));
	}
	return SRT_OK;
}
