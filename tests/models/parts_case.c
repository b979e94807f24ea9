/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/models/parts_case.h"

#include "models/hash.h"
#include "tests/harness/half.h"

/* Most of <shardrt/models/tape.h>. */
enum { MOST_PARTS = 8 };

/* Large and small values: the sum of a large and a small one is rounded. */
#define LARGE 2.0f
#define SMALL (1.0f / 32768.0f)

/* ---- values ------------------------------------------------------------------------------ */

int64_t parts_chunk(const parts_case_t *c)
{
	return (c->n + c->nparts - 1) / c->nparts;
}

int64_t parts_units(const parts_case_t *c)
{
	return c->kind == PARTS_NORMS ? PARTS_HEAD : 1;
}

int parts_blocks(const parts_case_t *c)
{
	return c->kind == PARTS_SEVERAL || c->kind == PARTS_JOINT ? PARTS_BLOCKS : 1;
}

/* An integer up to `most`, not 0; the fourth of four parts has those of the first, the third block
 * those of the second. */
static float integer(const parts_case_t *c, int block, int64_t h, int64_t other, int most)
{
	const int64_t part = h / parts_chunk(c), off = h % parts_chunk(c);
	const uint64_t key = (uint64_t)(part % 4 % 3 * 64 + off * 2 + (block > 0));
	const int value =
		(int)(srt_counter_hash(5, key, (uint64_t)other) % (uint64_t)(2 * most)) - most;

	return (float)(value < 0 ? value : value + 1);
}

/* Parts cancel: large, small, small, -large; in the second one blocks do: small, large, -large. */
static float scale(const parts_case_t *c, int block, int64_t h)
{
	const int64_t part = h / parts_chunk(c) % 4;

	if (part == 1 && block > 0)
		return block == 1 ? LARGE : -LARGE;
	return part == 0 ? LARGE : part == 3 ? -LARGE : SMALL;
}

float parts_factor(const parts_case_t *c, int block, int64_t h, int64_t row)
{
	return scale(c, block, h) * integer(c, block, h, 100 + row, 127);
}

float parts_weight(const parts_case_t *c, int block, int64_t h, int64_t other)
{
	return c->kind == PARTS_NORMS ? (other % 3 ? 2.0f : -2.0f) :
					integer(c, block, h, other, 15);
}

float parts_x(int64_t row, int64_t column)
{
	return (float)((int64_t)(srt_counter_hash(6, (uint64_t)row, (uint64_t)column) % 7) - 3);
}

/* x of norms: 4 or -4, so that the norm is exact. */
float parts_x_of_head(int64_t row, int64_t h, int64_t d)
{
	return srt_counter_hash(7, (uint64_t)row, (uint64_t)(h * PARTS_HEAD + d)) % 2 ? 4.0f :
											-4.0f;
}

float parts_bias(int64_t i)
{
	return 0.125f * (float)(i % 5 - 2);
}

/* ---- plain sums ---------------------------------------------------------------------------- */

static float add_parts(const parts_case_t *c, const float *part, parts_order_t order)
{
	float sum[MOST_PARTS] = { 0 };

	for (int p = 0; p < c->nparts; p++)
		sum[p] = order == PARTS_ROUNDED ? half_round(c->dtype, part[p]) : part[p];
	if (order == PARTS_ONE_BY_ONE) {
		for (int p = 1; p < c->nparts; p++)
			sum[0] += sum[p];
		return sum[0];
	}
	for (int step = 1; step < c->nparts; step *= 2)
		for (int p = 0; p < c->nparts; p += 2 * step)
			sum[p] += sum[p + step];
	return sum[0];
}

/* Term (block, h) of the sum that makes element (row, other) of what is cut. */
static float get_term(const parts_case_t *c, int block, int64_t h, int64_t row, int64_t other)
{
	float sum = 0.0f;

	if (c->kind != PARTS_NORMS)
		return (c->kind == PARTS_ROWWISE ? 1.0f : 0.5f) * parts_factor(c, block, h, row) *
		       parts_weight(c, block, h, other);
	/* x / its size, which is 4, times the gradient, over the rows */
	for (int64_t r = 0; r < PARTS_ROWS; r++)
		sum += 0.5f * parts_factor(c, 0, h, r) * parts_x_of_head(r, h, other) / 4.0f;
	return sum;
}

/* The sum of these blocks. Those of one weight are added by the forward order, separate ones by
 * the backward order. */
static float sum_of(const parts_case_t *c, int64_t row, int64_t other, int first, int last,
		    parts_order_t order)
{
	const int turned = (c->kind == PARTS_SEVERAL) != (order == PARTS_BLOCKS_TURNED);
	float part[MOST_PARTS] = { 0 };

	for (int p = 0; p < c->nparts; p++)
		for (int i = first; i <= last; i++) {
			const int block = turned ? first + last - i : i;
			float sum = 0.0f;

			for (int64_t h = p * parts_chunk(c);
			     h < (p + 1) * parts_chunk(c) && h < c->n; h++)
				sum += get_term(c, block, h, row, other);
			part[p] = i == first ? sum : part[p] + sum;
		}
	return add_parts(c, part, order);
}

float parts_want(const parts_case_t *c, int64_t row, int64_t other, parts_order_t order)
{
	const int last = parts_blocks(c) - 1;
	float sum;

	if (c->kind != PARTS_SEVERAL || c->section != PARTS_AFTER_FIRST) {
		sum = sum_of(c, row, other, 0, last, order);
		return half_round(c->dtype, c->has_bias ? sum + parts_bias(other) : sum);
	}
	sum = half_round(c->dtype, sum_of(c, row, other, 1, last, order));
	return half_round(c->dtype, sum + half_round(c->dtype, sum_of(c, row, other, 0, 0, order)));
}

int64_t parts_count(const parts_case_t *c, int64_t *rows)
{
	*rows = c->kind == PARTS_NORMS ? 1 : PARTS_ROWS;
	return c->kind == PARTS_NORMS   ? PARTS_HEAD :
	       c->kind == PARTS_ROWWISE ? PARTS_OUT :
					  PARTS_WIDTH;
}

int parts_show(const parts_case_t *c, parts_order_t order)
{
	int64_t rows, n = parts_count(c, &rows);

	for (int64_t r = 0; r < rows; r++)
		for (int64_t i = 0; i < n; i++)
			if (parts_want(c, r, i, order) != parts_want(c, r, i, PARTS_TREE))
				return 1;
	return 0;
}
