/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums over rows: the pairwise tree over blocks of rows, built while the blocks come. A stack of
 * complete subtrees of 1, 2, 4, ... blocks: block number b closes as many levels as b has trailing
 * ones, and what is left at the end is added from the smallest up. The same tree as level by level.
 *
 *   COLUMNS_FIRST                the group's first column
 *   FOR_BLOCKS(k, nblocks)       { ... } the blocks, in rising order
 *   FOR_ROWS(r, k, rows)         the rows of block k
 *   FOR_COLUMNS(l, j, column, end), FOR_COLUMNS_IN(..., W)
 *                                FOR_SPAN and FOR_SPAN_IN within it
 *   BLOCK_PUSH(tree, v, k)       adds the sum v of block k
 *   BLOCK_TOTAL(tree, v, nblocks) v = the whole; +0 of no block
 *   FOR_TOTALS(l, j, column, end) FOR_SPAN for what is done once, with the totals
 * tree is a PRIVATE_N of K_LEVELS, v a PRIVATE; the kernel is a KERNEL_COLUMNS with SHARED_TOTALS
 * at its top.
 *
 * On CUDA a group is SRT_K_COLUMN_PARTS blocks of threads (blockIdx.y), each of K_PART_COLUMNS
 * columns, so that a matrix of few columns has blocks for all multiprocessors. A block is several
 * workers of K_PART_COLUMNS threads. A worker takes a run of blocks of rows, aligned to its length,
 * a power of two, and so a subtree; the upper levels are of the workers' sums. A thread beyond the
 * last column reads that one again, and its sum is not stored.
 */
#ifndef SRT_KERNELS_DIALECT_COLUMNS_H
#define SRT_KERNELS_DIALECT_COLUMNS_H

#include "kernels/dialect/dialect.h" /* K_WORKERS */

#define K_LEVELS 40    /* 2^40 blocks */
#define K_ROWS_AHEAD 8 /* PREFETCH */

#ifdef K_WORKERS
#define K_PART_COLUMNS (LANES / SRT_K_COLUMN_PARTS)
#define COLUMNS_FIRST (GROUP * LANES + (int64_t)blockIdx.y * K_PART_COLUMNS)
#define K_WORKER ((int)threadIdx.x / K_PART_COLUMNS)
FN int64_t k_worker_run(int64_t nblocks)
{
	int64_t run = 1;

	while (run * K_WORKERS < nblocks)
		run *= 2;
	return run;
}
#define SHARED_TOTALS SHARED(float, k_totals, COLUMNS_WIDTH)
#define FOR_BLOCKS(k, nblocks)                                                                     \
	for (int64_t k_run_ = k_worker_run(nblocks), k = K_WORKER * k_run_,                        \
		     k##_end = MIN_OF(k + k_run_, nblocks);                                        \
	     k < k##_end; k++)
#define FOR_ROWS(r, k, rows)                                                                       \
	_Pragma("unroll 8") for (int64_t r = (k)*SRT_K_ROW_BLOCK,                                  \
				 r##_end = MIN_OF(r + SRT_K_ROW_BLOCK, rows);                      \
				 r < r##_end; r++)
#define FOR_COLUMNS_IN(l, j, column, end, windows) FOR_COLUMNS(l, j, column, end)
#define FOR_COLUMNS(l, j, column, end)                                                             \
	for (int64_t l = LANE % K_PART_COLUMNS, j = MIN_OF((column) + l, (end)-1), l##_once = 1;   \
	     l##_once; l##_once = 0)
#define FOR_TOTALS(l, j, column, end) FOR_SPAN(l, j, column, MIN_OF((column) + K_PART_COLUMNS, end))
#define BLOCK_PUSH(tree, v, k) K_BLOCK_PUSH(tree, v, (k) & (k_run_ - 1))
#define BLOCK_TOTAL(tree, v, nblocks)                                                              \
	do {                                                                                       \
		int64_t run_ = k_worker_run(nblocks), first_ = K_WORKER * run_;                    \
		int64_t own_ = MAX_OF(MIN_OF(run_, (nblocks)-first_), 0);                          \
                                                                                                   \
		K_BLOCK_TOTAL(tree, v, own_);                                                      \
		SYNC;                                                                              \
		k_totals[LANE] = AT(v);                                                            \
		for (int width_ = 1; width_ < K_WORKERS; width_ *= 2) {                            \
			SYNC;                                                                      \
			if (K_WORKER % (2 * width_) == 0 && first_ + width_ * run_ < (nblocks) &&  \
			    K_WORKER + width_ < K_WORKERS)                                         \
				k_totals[LANE] =                                                   \
					k_totals[LANE] + k_totals[LANE + width_ * K_PART_COLUMNS]; \
		}                                                                                  \
		SYNC;                                                                              \
		AT(v) = k_totals[LANE % K_PART_COLUMNS];                                           \
	} while (0)
#else
#define COLUMNS_FIRST (GROUP * LANES)
#define SHARED_TOTALS
#define FOR_BLOCKS(k, nblocks) for (int64_t k = 0; k < (nblocks); k++)
#define FOR_ROWS(r, k, rows)                                                                       \
	for (int64_t r = (k)*SRT_K_ROW_BLOCK, r##_end = MIN_OF(r + SRT_K_ROW_BLOCK, rows);         \
	     r < r##_end; r++)
#define FOR_COLUMNS_IN(l, j, column, end, windows) FOR_SPAN_IN(l, j, column, end, windows)
#define FOR_COLUMNS(l, j, column, end) FOR_SPAN(l, j, column, end)
#define FOR_TOTALS(l, j, column, end) FOR_SPAN(l, j, column, end)
#define BLOCK_PUSH(tree, v, k) K_BLOCK_PUSH(tree, v, k)
#define BLOCK_TOTAL(tree, v, nblocks) K_BLOCK_TOTAL(tree, v, nblocks)
#endif

#define K_BLOCK_PUSH(tree, v, b)                                                                   \
	do {                                                                                       \
		int level_ = 0;                                                                    \
		for (; ((b) >> level_) & 1; level_++)                                              \
			FOR_LANES(l)                                                               \
				AT(v) = AT_N(tree, level_) + AT(v);                                \
		FOR_LANES(l)                                                                       \
			AT_N(tree, level_) = AT(v);                                                \
	} while (0)

#define K_BLOCK_TOTAL(tree, v, nblocks)                                                            \
	do {                                                                                       \
		int seen_ = 0;                                                                     \
		FOR_LANES(l)                                                                       \
			AT(v) = 0.0f;                                                              \
		for (int level_ = 0; ((nblocks) >> level_) != 0; level_++) {                       \
			if (!(((nblocks) >> level_) & 1))                                          \
				continue;                                                          \
			FOR_LANES(l)                                                               \
				AT(v) = seen_ ? AT_N(tree, level_) + AT(v) : AT_N(tree, level_);   \
			seen_ = 1;                                                                 \
		}                                                                                  \
	} while (0)

#endif
