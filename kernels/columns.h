/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums over rows: the pairwise tree over blocks of rows, built while the blocks come. A stack of
 * complete subtrees of 1, 2, 4, ... blocks: block number b closes as many levels as b has trailing
 * ones, and what is left at the end is added from the smallest up. The same tree as level by level.
 *
 *   BLOCK_PUSH(tree, v, b)       adds the sum v of block b
 *   BLOCK_TOTAL(tree, v, nblocks) v = the whole; +0 of no block
 * Both stand in code of lanes; tree is a PRIVATE_N of K_LEVELS, v a PRIVATE.
 */
#ifndef SRT_KERNELS_COLUMNS_H
#define SRT_KERNELS_COLUMNS_H

#define K_LEVELS 40    /* 2^40 blocks */
#define K_ROWS_AHEAD 8 /* FETCH */

#define BLOCK_PUSH(tree, v, b)                                                                     \
	do {                                                                                       \
		int level_ = 0;                                                                    \
		for (; ((b) >> level_) & 1; level_++)                                              \
			FOR_LANES(l)                                                               \
				AT(v) = AT_N(tree, level_) + AT(v);                                \
		FOR_LANES(l)                                                                       \
			AT_N(tree, level_) = AT(v);                                                \
	} while (0)

#define BLOCK_TOTAL(tree, v, nblocks)                                                              \
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
