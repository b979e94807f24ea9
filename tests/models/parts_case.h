/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A case of tests/models/test_tape_parts.c: layers whose sums are in tensor parts, their values,
 * and the sums made plainly. All sums within a part are exact, those of parts are not: some are
 * large and cancel, some are small.
 */
#ifndef SRT_TESTS_PARTS_CASE_H
#define SRT_TESTS_PARTS_CASE_H

#include <stdint.h>

#include <shardrt/dtype.h>

enum {
	PARTS_ROWS = 6,
	PARTS_WIDTH = 5,
	PARTS_OUT = 7,
	PARTS_MOST = 16, /* elements that are cut */
	PARTS_BLOCKS = 3,
	PARTS_HEAD = 4, /* values of a head */
};

typedef enum parts_kind {
	PARTS_COLWISE,
	PARTS_SEVERAL, /* three projections of one input */
	PARTS_JOINT,   /* in one weight */
	PARTS_ROWWISE,
	PARTS_NORMS, /* of heads */
	PARTS_NKINDS
} parts_kind_t;

/* Which layers are recomputed. */
typedef enum parts_section {
	PARTS_KEPT,
	PARTS_RECOMPUTED,
	PARTS_AFTER_FIRST /* of three projections the last two */
} parts_section_t;

typedef struct parts_case {
	parts_kind_t kind;
	srt_dtype_t dtype;
	int nparts;
	int64_t n; /* elements that are cut: columns of a projection, or heads */
	parts_section_t section;
	int has_bias, no_grad; /* no_grad: the input takes no gradient */
} parts_case_t;

/* How parts are added; all but the tree are mistakes that the values can show. */
typedef enum parts_order {
	PARTS_TREE,
	PARTS_ONE_BY_ONE,
	PARTS_ROUNDED,
	PARTS_BLOCKS_TURNED,
	PARTS_NORDERS
} parts_order_t;

/* Elements of a part; the last one may have fewer. */
int64_t parts_chunk(const parts_case_t *c);
/* Blocks whose sums are added in each part, and values of an element. */
int parts_blocks(const parts_case_t *c);
int64_t parts_units(const parts_case_t *c);

/* What outputs are multiplied by, or an input that is cut: element h of a block. */
float parts_factor(const parts_case_t *c, int block, int64_t h, int64_t row);
/* Weights (n,PARTS_WIDTH) and (PARTS_OUT,n), `other` being what is not cut; of norms
 * (PARTS_HEAD). */
float parts_weight(const parts_case_t *c, int block, int64_t h, int64_t other);
/* An input that is not cut; that of norms, which are exact; a bias. */
float parts_x(int64_t row, int64_t column);
float parts_x_of_head(int64_t row, int64_t h, int64_t d);
float parts_bias(int64_t i);

/* The sums that are cut are (*rows, returned): the gradient of x, y of PARTS_ROWWISE, the gradient
 * of the weight of PARTS_NORMS. */
int64_t parts_count(const parts_case_t *c, int64_t *rows);
float parts_want(const parts_case_t *c, int64_t row, int64_t other, parts_order_t order);
/* Whether this mistake would have other bits. */
int parts_show(const parts_case_t *c, parts_order_t order);

#endif
