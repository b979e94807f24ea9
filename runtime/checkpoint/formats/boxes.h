/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Boxes: the rectangular parts that tensors are saved in (sharded.h). A rank's shard is a range of
 * the elements of its cell; boxes.c cuts it into few boxes of the whole tensor.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_FORMATS_BOXES_H
#define SRT_RUNTIME_CHECKPOINT_FORMATS_BOXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shardrt/engine_options.h>
#include <shardrt/status.h>

/* Part of a tensor: size[i] indices from offset[i] on in dimension i. */
typedef struct srt_box {
	int64_t offset[SRT_MAX_DIMS], size[SRT_MAX_DIMS];
} srt_box_t;

/* A dimension of a cell that has `nblocks` blocks of `chunk` indices each; in the whole tensor,
 * block b begins at b * extent + offset. One block that is the whole dimension: not cut. */
typedef struct srt_box_cut {
	int dim, nblocks;
	int64_t chunk, extent, offset;
} srt_box_cut_t;

/* A box of the whole tensor, and where it begins in the rank's cell. */
typedef struct srt_cell_box {
	srt_box_t box;
	int64_t at[SRT_MAX_DIMS];
} srt_cell_box_t;

/* A range of the elements of a cell, as boxes. */
typedef struct srt_shard_boxes {
	int64_t cell[SRT_MAX_DIMS]; /* its shape */
	int64_t first, nelem;       /* elements of it that are in the range */
	srt_cell_box_t *boxes;
	size_t nboxes;
} srt_shard_boxes_t;

/* Elements of a box, or of a shape. */
int64_t srt_box_nelem(int ndim, const int64_t *size);
/* The elements that two boxes share; false: none. */
bool srt_box_intersect(int ndim, const srt_box_t *a, const srt_box_t *b, srt_box_t *both);
/*
 * Whether boxes within a tensor cover each of its elements exactly once, in time that is
 * proportional to their number and without a copy of them.
 *
 * Each index of each dimension has a weight, and an element the product of its indices' weights. A
 * box adds the sum of its elements' weights: the product over its dimensions of S(end) - S(begin),
 * where S is the running sum of the dimension's weights. The total is that of the tensor if each
 * element is covered once. If not, the difference is a polynomial of degree ndim in the values of S
 * which is not zero. These are random numbers modulo 2^61 - 1, so it is found with a probability of
 * more than 1 - 2^-58 (lemma of Schwartz and Zippel).
 */
typedef struct srt_cover {
	int ndim;
	uint64_t random, missing; /* sum of the weights of elements that are not covered yet */
	int64_t nelem, ncovered;
} srt_cover_t;

/* random: a number that the writer of the boxes cannot know. */
void srt_cover_begin(srt_cover_t *cover, int ndim, const int64_t *shape, uint64_t random);
void srt_cover_add(srt_cover_t *cover, const srt_box_t *box);
/* SRT_ERR_FORMAT: an element is in no box or in several. */
srt_status_t srt_cover_end(const srt_cover_t *cover);
/*
 * Cuts elements first .. first + nelem - 1 of a cell of this shape into boxes without empty ones.
 * Returns how many; list NULL: counts them.
 */
size_t srt_boxes_cut(int ndim, const int64_t *cell, const srt_box_cut_t *cut, int64_t first,
		     int64_t nelem, srt_cell_box_t *list);

/*
 * The elements of a box in two row-major arrays which contain it: runs of elements that follow each
 * other in both, in row-major order of the box.
 */
typedef struct srt_walk {
	int ndim; /* of what is left of the box: one element of it is a run */
	int64_t count[SRT_MAX_DIMS];
	int64_t stride[2][SRT_MAX_DIMS]; /* elements */
	int64_t begin[2];                /* first element of the first run */
	int64_t nruns, nelem;            /* nelem: of each run */
} srt_walk_t;

/* One of the two arrays: its shape, and where the box begins in it. */
typedef struct srt_walk_array {
	const int64_t *shape, *offset; /* offset NULL: at its begin */
} srt_walk_array_t;

void srt_walk_begin(srt_walk_t *walk, int ndim, const int64_t *size, srt_walk_array_t a,
		    srt_walk_array_t b);
/* The first elements of run i in both arrays. */
void srt_walk_run(const srt_walk_t *walk, int64_t i, int64_t *a, int64_t *b);

#endif
