/* SPDX-License-Identifier: BSD-3-Clause */
/* Boxes of tensors (boxes.h). */
#include "runtime/checkpoint/formats/boxes.h"

#include <string.h>

#include "base/base.h"

int64_t srt_box_nelem(int ndim, const int64_t *size)
{
	int64_t n = 1;

	for (int i = 0; i < ndim; i++)
		n *= size[i];
	return n;
}

bool srt_box_intersect(int ndim, const srt_box_t *a, const srt_box_t *b, srt_box_t *both)
{
	for (int i = 0; i < ndim; i++) {
		const int64_t a_end = a->offset[i] + a->size[i], b_end = b->offset[i] + b->size[i];
		const int64_t begin = a->offset[i] > b->offset[i] ? a->offset[i] : b->offset[i];
		const int64_t end = a_end < b_end ? a_end : b_end;

		if (begin >= end)
			return false;
		both->offset[i] = begin;
		both->size[i] = end - begin;
	}
	return true;
}

/* ---- covers ----------------------------------------------------------------------------- */

#define PRIME ((UINT64_C(1) << 61) - 1)

__extension__ typedef unsigned __int128 product_t;

/* The sum of the weights of a dimension's indices before i. */
static uint64_t sum_before(const srt_cover_t *c, int dim, int64_t i)
{
	return srt_mix64(srt_mix64(c->random, (uint64_t)dim), (uint64_t)i) % PRIME;
}

/* The sum of the weights of a box's elements; offset NULL: it begins at index 0. */
static uint64_t sum_weights(const srt_cover_t *c, const int64_t *offset, const int64_t *size)
{
	uint64_t sum = 1;

	for (int d = 0; d < c->ndim; d++) {
		const int64_t begin = offset != NULL ? offset[d] : 0;
		const uint64_t weights =
			sum_before(c, d, begin + size[d]) + PRIME - sum_before(c, d, begin);

		sum = (uint64_t)((product_t)sum * weights % PRIME);
	}
	return sum;
}

void srt_cover_begin(srt_cover_t *c, int ndim, const int64_t *shape, uint64_t random)
{
	*c = (srt_cover_t){ .ndim = ndim, .random = random, .nelem = srt_box_nelem(ndim, shape) };
	c->missing = sum_weights(c, NULL, shape);
}

void srt_cover_add(srt_cover_t *c, const srt_box_t *box)
{
	const int64_t nelem = srt_box_nelem(c->ndim, box->size);

	c->missing = (c->missing + PRIME - sum_weights(c, box->offset, box->size)) % PRIME;
	c->ncovered = nelem > INT64_MAX - c->ncovered ? INT64_MAX : c->ncovered + nelem;
}

srt_status_t srt_cover_end(const srt_cover_t *c)
{
	if (c->ncovered > c->nelem || (c->ncovered == c->nelem && c->missing != 0))
		return srt_fail(SRT_ERR_FORMAT, "its boxes overlap");
	if (c->ncovered < c->nelem)
		return srt_fail(SRT_ERR_FORMAT, "its boxes have %lld of its %lld elements",
				(long long)c->ncovered, (long long)c->nelem);
	return SRT_OK;
}

/* ---- boxes of a range of elements ------------------------------------------------------- */

/* Where boxes go. */
typedef struct output {
	int ndim;
	const int64_t *cell;
	const srt_box_cut_t *cut;
	srt_cell_box_t *list; /* NULL: counted only */
	size_t n;
} output_t;

/* Adds a box of the cell, cut at the borders of blocks. */
static void add_box(output_t *out, const int64_t *at, const int64_t *size)
{
	const srt_box_cut_t *cut = out->cut;
	const int64_t begin = at[cut->dim], end = begin + size[cut->dim];

	for (int64_t i = begin, n; i < end; i += n) {
		const int64_t block = i / cut->chunk, in_block = i % cut->chunk;

		n = cut->chunk - in_block < end - i ? cut->chunk - in_block : end - i;
		if (out->list != NULL) {
			srt_cell_box_t *b = &out->list[out->n];

			memset(b, 0, sizeof(*b));
			memcpy(b->at, at, (size_t)out->ndim * sizeof(*at));
			memcpy(b->box.offset, at, (size_t)out->ndim * sizeof(*at));
			memcpy(b->box.size, size, (size_t)out->ndim * sizeof(*size));
			b->at[cut->dim] = i;
			b->box.offset[cut->dim] = block * cut->extent + cut->offset + in_block;
			b->box.size[cut->dim] = n;
		}
		out->n++;
	}
}

/* Adds the boxes of elements first .. end - 1 of the cell at `at` in dimensions before `dim`. */
static void add_range(output_t *out, int dim, const int64_t *at, int64_t first, int64_t end)
{
	const int64_t row = srt_box_nelem(out->ndim - dim - 1, out->cell + dim + 1);
	int64_t here[SRT_MAX_DIMS] = { 0 }, size[SRT_MAX_DIMS];
	int64_t full_begin = (first + row - 1) / row;
	const int64_t full_end = end / row;

	for (int i = 0; i < out->ndim; i++)
		size[i] = i < dim ? 1 : out->cell[i];
	memcpy(here, at, (size_t)dim * sizeof(*at));
	if (full_begin > full_end) { /* within one row */
		here[dim] = first / row;
		add_range(out, dim + 1, here, first % row, first % row + (end - first));
		return;
	}
	if (first % row > 0) {
		here[dim] = first / row;
		add_range(out, dim + 1, here, first % row, row);
	}
	if (full_begin < full_end) {
		here[dim] = full_begin;
		size[dim] = full_end - full_begin;
		add_box(out, here, size);
	}
	if (end % row > 0) {
		here[dim] = full_end;
		add_range(out, dim + 1, here, 0, end % row);
	}
}

size_t srt_boxes_cut(int ndim, const int64_t *cell, const srt_box_cut_t *cut, int64_t first,
		     int64_t nelem, srt_cell_box_t *list)
{
	const int64_t none[SRT_MAX_DIMS] = { 0 };
	output_t out = { .ndim = ndim, .cell = cell, .cut = cut, .list = list };

	if (nelem > 0)
		add_range(&out, 0, none, first, first + nelem);
	return out.n;
}

void srt_walk_begin(srt_walk_t *walk, int ndim, const int64_t *size, srt_walk_array_t a,
		    srt_walk_array_t b)
{
	const srt_walk_array_t array[2] = { a, b };
	int d = ndim - 1;

	*walk = (srt_walk_t){ .nruns = 1, .nelem = ndim > 0 ? size[d] : 1 };
	/* Rows that are complete in both arrays follow each other. */
	for (; d > 0 && size[d] == a.shape[d] && size[d] == b.shape[d]; d--)
		walk->nelem *= size[d - 1];
	walk->ndim = d > 0 ? d : 0;
	for (int i = 0; i < walk->ndim; i++) {
		walk->count[i] = size[i];
		walk->nruns *= size[i];
	}
	for (int k = 0; k < 2; k++) {
		int64_t stride = 1;

		for (int i = ndim - 1; i >= 0; i--) {
			if (i < walk->ndim)
				walk->stride[k][i] = stride;
			if (array[k].offset != NULL)
				walk->begin[k] += array[k].offset[i] * stride;
			stride *= array[k].shape[i];
		}
	}
}

void srt_walk_run(const srt_walk_t *walk, int64_t i, int64_t *a, int64_t *b)
{
	*a = walk->begin[0];
	*b = walk->begin[1];
	for (int d = walk->ndim - 1; d >= 0; d--) {
		*a += i % walk->count[d] * walk->stride[0][d];
		*b += i % walk->count[d] * walk->stride[1][d];
		i /= walk->count[d];
	}
}
