/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sum over ranks in the tree's order: neighbours 2i and 2i+1, left + right; the last one of an
 * odd number moves up unchanged (docs/numerics.md).
 *
 * Up to 8 ranks: one pass of the kernel reduce_ranks, from the peers' memory. More ranks: the sum
 * of an aligned block of 8 is a node of the same tree, so block sums are stored in scratch and
 * summed by the same rule, in tiles that limit the scratch. A block of 8 sums is summed as soon as
 * they are there, so the scratch has 8 sums of each level, not all of them. The first level
 * predivides. The last level divides and adds to the destination. A float destination of 16-bit
 * elements has the sum before it is rounded. Block sums are floats, also of 16-bit elements, for
 * which the last sum takes one more pass. Bytes read: (ranks + ranks/8 ...) x shard.
 */
#include "collectives/collective.h"

#define BLOCK ((size_t)SRT_K_MAX_RANKS)
#define TILE_NELEM ((size_t)32768)
#define PUSHED_NELEM ((size_t)16384) /* a tile that is pushed stays in the caches */

/* Levels of block sums: SRT_SUM_MAX_RANKS is BLOCK to the power of MAX_LEVELS + 1. */
#define MAX_LEVELS 3

static size_t count_blocks(size_t n)
{
	return (n + BLOCK - 1) / BLOCK;
}

static size_t count_slots(size_t nranks)
{
	size_t total = nranks > BLOCK; /* for the final sum of 16-bit elements */

	while (nranks > BLOCK) {
		nranks = count_blocks(nranks);
		total += nranks < BLOCK ? nranks : BLOCK;
	}
	return total;
}

size_t srt_step_reduce_scratch(int nranks)
{
	return count_slots((size_t)nranks) * TILE_NELEM * sizeof(float);
}

/* Where the ranks' bytes of a tile of a chunk are. */
typedef struct inputs {
	const srt_coll_start_t *start;
	uint32_t round;
	const srt_chunk_t *chunk;
	size_t skip; /* bytes of the chunk before the tile */
} inputs_t;

/* The bytes of a rank. */
static srt_view_t locate_rank(const inputs_t *inputs, int rank)
{
	const srt_coll_t *coll = inputs->start->coll;
	srt_view_t all;

	if (rank == coll->comm->rank)
		all = srt_view_at(&coll->full, inputs->chunk->full_offset);
	else
		all = coll->transport->locate(inputs->start, inputs->round, rank, inputs->chunk);
	return srt_view_at(&all, inputs->skip);
}

/* in[i] = the bytes of rank first + i, for a block of ranks. */
static void locate_block(const inputs_t *inputs, size_t first, size_t n, srt_view_t in[BLOCK])
{
	for (size_t i = 0; i < n; i++)
		in[i] = locate_rank(inputs, (int)(first + i));
}

/* One launch on a destination and up to 8 inputs. */
static srt_status_t launch_sum(srt_kernel_id_t kernel, srt_dtype_t dtype,
			       const srt_k_reduce_ranks_t *args, const srt_view_t *dst,
			       const srt_view_t *in, srt_stream_t *stream)
{
	srt_view_t views[1 + SRT_K_MAX_RANKS] = { *dst };

	for (int32_t i = 0; i < args->nranks; i++)
		views[1 + i] = in[i];
	return srt_launch(stream, kernel, dtype, srt_kernel_grid(kernel, args), args, sizeof(*args),
			  views, srt_kernel_info(kernel)->nplaces);
}

/* A kernel divides by nothing if its divisor is 0. */
static float kernel_divisor(float divisor)
{
	return divisor == 1.0f ? 0.0f : divisor;
}

static srt_k_reduce_ranks_t args_of(size_t n, size_t nelem, const srt_coll_epilogue_t *epilogue)
{
	srt_k_reduce_ranks_t args = { .nelem = (int64_t)nelem, .nranks = (int32_t)n };

	if (epilogue != NULL) {
		args.divisor = kernel_divisor(epilogue->divisor);
		args.accumulate = epilogue->accumulate != 0;
		args.predivisor = kernel_divisor(epilogue->predivisor);
	}
	return args;
}

/* dst = the sum of n <= 8 block sums, in its dtype. */
static srt_status_t sum_last_level(const srt_coll_t *coll, const srt_view_t *dst,
				   const srt_view_t *in, const srt_view_t *slot, size_t n,
				   size_t nelem, const srt_coll_epilogue_t *epilogue,
				   srt_stream_t *stream)
{
	srt_k_reduce_ranks_t plain = args_of(n, nelem, NULL), last = args_of(1, nelem, epilogue);

	last.predivisor = 0.0f; /* the first level has done it */
	if (dst->dtype == SRT_F32) {
		last.nranks = (int32_t)n;
		return launch_sum(SRT_K_REDUCE_RANKS, SRT_F32, &last, dst, in, stream);
	}
	SRT_TRY(launch_sum(SRT_K_REDUCE_RANKS, SRT_F32, &plain, slot, in, stream));
	return launch_sum(SRT_K_REDUCE_FINISH, coll->dtype, &last, dst, slot, stream);
}

static srt_view_t slot_at(const srt_coll_t *coll, size_t index)
{
	return srt_view(coll->scratch, index * TILE_NELEM * sizeof(float), SRT_F32);
}

/* *sum = the sum of a block of `count` inputs, in the slot unless a single float moves up
 * unchanged. */
static srt_status_t sum_block(srt_kernel_id_t kernel, srt_dtype_t dtype, srt_k_reduce_ranks_t args,
			      const srt_view_t *in, size_t count, srt_view_t slot, srt_view_t *sum,
			      srt_stream_t *stream)
{
	*sum = slot;
	if (count == 1 && dtype == SRT_F32 && args.predivisor == 0.0f) {
		*sum = in[0];
		return SRT_OK;
	}
	args.nranks = (int32_t)count;
	return launch_sum(kernel, dtype, &args, &slot, in, stream);
}

/* One tile of more than 8 ranks. */
static srt_status_t sum_levels(const srt_coll_t *coll, const srt_view_t *dst,
			       const inputs_t *inputs, size_t n, size_t nelem,
			       const srt_coll_epilogue_t *epilogue, srt_stream_t *stream)
{
	const srt_k_reduce_ranks_t plain = args_of(0, nelem, NULL);
	const srt_kernel_id_t first =
		coll->dtype == SRT_F32 ? SRT_K_REDUCE_RANKS : SRT_K_REDUCE_PARTIAL;
	srt_k_reduce_ranks_t predivide = plain;
	srt_view_t sums[MAX_LEVELS][BLOCK], slot; /* of each level, the last ones */
	srt_view_t in[BLOCK];
	size_t level = 0, nsums = count_blocks(n);

	if (epilogue != NULL)
		predivide.predivisor = kernel_divisor(epilogue->predivisor);
	for (size_t b = 0; b < count_blocks(n); b++) {
		const size_t left = n - b * BLOCK, count = left < BLOCK ? left : BLOCK;
		size_t at = b;

		level = 0;
		nsums = count_blocks(n);
		locate_block(inputs, b * BLOCK, count, in);
		SRT_TRY(sum_block(first, coll->dtype, predivide, in, count,
				  slot_at(coll, at % BLOCK), &sums[0][at % BLOCK], stream));
		/* The last sum of a block of a level: the block's sum is one of the next level. */
		for (; nsums > BLOCK; level++, at /= BLOCK, nsums = count_blocks(nsums)) {
			const size_t up = at / BLOCK % BLOCK;

			if (at % BLOCK < BLOCK - 1 && at < nsums - 1)
				break;
			SRT_TRY(sum_block(SRT_K_REDUCE_RANKS, SRT_F32, plain, sums[level],
					  at % BLOCK + 1, slot_at(coll, (level + 1) * BLOCK + up),
					  &sums[level + 1][up], stream));
		}
	}
	slot = slot_at(coll, level * BLOCK + nsums);
	return sum_last_level(coll, dst, sums[level], &slot, nsums, nelem, epilogue, stream);
}

static srt_status_t sum_ranks(const srt_coll_t *coll, const srt_view_t *dst, const inputs_t *inputs,
			      size_t n, size_t nelem, const srt_coll_epilogue_t *epilogue,
			      srt_stream_t *stream)
{
	srt_k_reduce_ranks_t args = args_of(n, nelem, epilogue);
	srt_view_t in[BLOCK];

	if (n > BLOCK)
		return sum_levels(coll, dst, inputs, n, nelem, epilogue, stream);
	locate_block(inputs, 0, n, in);
	return launch_sum(dst->dtype == coll->dtype ? SRT_K_REDUCE_RANKS : SRT_K_REDUCE_PARTIAL,
			  coll->dtype, &args, dst, in, stream);
}

/* Writes a tile of the sum to all peers. */
static srt_status_t push_sum(const inputs_t *inputs, const srt_view_t *sum, size_t nbytes,
			     srt_stream_t *stream)
{
	const srt_comm_t *comm = inputs->start->coll->comm;

	for (int k = 1; k < comm->size; k++) {
		const srt_view_t to = locate_rank(inputs, (comm->rank + k) % comm->size);

		SRT_TRY(srt_buffer_copy(to.buffer, to.offset, sum->buffer, sum->offset, nbytes,
					stream));
	}
	return SRT_OK;
}

/* Elements that are summed at a time. */
static size_t tile_nelem(const srt_coll_t *coll, size_t nelem)
{
	if ((size_t)coll->comm->size > BLOCK)
		return TILE_NELEM;
	return coll->pushes_sums ? PUSHED_NELEM : nelem;
}

static srt_status_t sum_chunk(const srt_coll_start_t *start, uint32_t round,
			      const srt_chunk_t *chunk, const srt_view_t *dst,
			      const srt_coll_epilogue_t *epilogue, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const size_t n = (size_t)coll->comm->size, nelem = chunk->nbytes / coll->elem_nbytes;
	const size_t step = tile_nelem(coll, nelem);
	inputs_t inputs = { .start = start, .round = round, .chunk = chunk };

	for (size_t e = 0; e < nelem; e += step) {
		size_t count = nelem - e < step ? nelem - e : step;
		srt_view_t out = srt_view_at(dst, e * srt_dtype_size(dst->dtype));

		inputs.skip = e * coll->elem_nbytes;
		SRT_TRY(sum_ranks(coll, &out, &inputs, n, count, epilogue, stream));
		if (coll->pushes_sums)
			SRT_TRY(push_sum(&inputs, &out, count * coll->elem_nbytes, stream));
	}
	return SRT_OK;
}

srt_status_t srt_step_epilogue(srt_dtype_t dtype, const srt_view_t *dst, const srt_view_t *in,
			       size_t nelem, const srt_coll_epilogue_t *epilogue,
			       srt_stream_t *stream)
{
	srt_k_reduce_ranks_t args = args_of(1, nelem, epilogue);

	return launch_sum(dtype == SRT_F32 ? SRT_K_REDUCE_RANKS : SRT_K_REDUCE_FINISH, dtype, &args,
			  dst, in, stream);
}

/* Bytes, in the shard's dtype; extents have the wire's. */
static size_t shard_offset(const srt_coll_t *coll, const srt_chunk_t *chunk)
{
	return chunk->shard_offset / coll->elem_nbytes * srt_dtype_size(coll->shard.dtype);
}

srt_status_t srt_step_reduce_round(srt_coll_start_t *start, uint32_t round,
				   const srt_coll_epilogue_t *epilogue, srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_comm_t *comm = coll->comm;
	bool in_place = coll->kind == SRT_COLL_ALL_REDUCE;
	srt_chunk_iter_t at = { 0 };
	srt_chunk_t chunk;

	if (srt_chunk_nbytes(coll, round, &coll->owner[comm->rank]) == 0)
		return SRT_OK;
	for (int k = 1; k < comm->size; k++)
		SRT_TRY(coll->transport->acquire(start, round, (comm->rank + k) % comm->size,
						 stream));
	SRT_TRY(srt_host_step_submit(start, stream));
	while (srt_chunk_next(coll, round, &coll->owner[comm->rank], &at, &chunk)) {
		srt_view_t out = in_place ? srt_view_at(&coll->full, chunk.full_offset) :
					    srt_view_at(&coll->shard, shard_offset(coll, &chunk));

		SRT_TRY(sum_chunk(start, round, &chunk, &out, epilogue, stream));
	}
	return SRT_OK;
}
