/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Boxes of sharded checkpoints against a plain enumeration: every range of elements of small cells,
 * cut in blocks or not, is covered exactly once, with the right elements of the whole tensor, and
 * few boxes. Also the walk over the elements that two arrays share, and boxes that overlap.
 */
#include "base/base.h"
#include "runtime/checkpoint/boxes.h"
#include "tests/harness/check.h"
#include "tests/harness/random.h"

#define MOST 2048

/* Row-major. */
static int64_t index_of(int ndim, const int64_t *shape, const int64_t *at)
{
	int64_t index = 0;

	for (int i = 0; i < ndim; i++)
		index = index * shape[i] + at[i];
	return index;
}

static void coordinates_of(int ndim, const int64_t *shape, int64_t index, int64_t *at)
{
	for (int i = ndim - 1; i >= 0; i--) {
		at[i] = index % shape[i];
		index /= shape[i];
	}
}

/* The whole tensor's coordinates of an element of a cell, by the definition of a cut. */
static void whole_of(int ndim, const int64_t *cell, const srt_box_cut_t *cut, int64_t element,
		     int64_t *at)
{
	coordinates_of(ndim, cell, element, at);
	at[cut->dim] =
		at[cut->dim] / cut->chunk * cut->extent + cut->offset + at[cut->dim] % cut->chunk;
}

static void test_range(int ndim, const int64_t *cell, const srt_box_cut_t *cut, int64_t first,
		       int64_t nelem)
{
	static int seen[MOST];
	const size_t n = srt_boxes_cut(ndim, cell, cut, first, nelem, NULL);
	srt_cell_box_t boxes[64];

	CHECK_OR_DIE(n <= 64);
	CHECK_INT(srt_boxes_cut(ndim, cell, cut, first, nelem, boxes), n);
	CHECK_OR_DIE(n <= (size_t)(2 * ndim - 1) * (size_t)cut->nblocks);
	memset(seen, 0, sizeof(seen));
	for (size_t b = 0; b < n; b++) {
		const int64_t *size = boxes[b].box.size;
		srt_walk_t walk;
		int64_t count = 0;

		CHECK_OR_DIE(srt_box_nelem(ndim, size) > 0);
		srt_walk_begin(&walk, ndim, size, (srt_walk_array_t){ size, NULL },
			       (srt_walk_array_t){ cell, boxes[b].at });
		CHECK_INT(walk.nruns * walk.nelem, srt_box_nelem(ndim, size));
		for (int64_t run = 0; run < walk.nruns; run++) {
			int64_t in_box, in_cell;

			srt_walk_run(&walk, run, &in_box, &in_cell);
			for (int64_t i = 0; i < walk.nelem; i++, count++) {
				int64_t at[SRT_MAX_DIMS], want[SRT_MAX_DIMS];

				CHECK_OR_DIE(in_box + i == count); /* the order of the file */
				CHECK_OR_DIE(in_cell + i >= first && in_cell + i < first + nelem);
				seen[in_cell + i]++;
				coordinates_of(ndim, size, in_box + i, at);
				whole_of(ndim, cell, cut, in_cell + i, want);
				for (int d = 0; d < ndim; d++)
					CHECK_OR_DIE(at[d] + boxes[b].box.offset[d] == want[d]);
			}
		}
	}
	for (int64_t i = 0; i < srt_box_nelem(ndim, cell); i++)
		CHECK_OR_DIE(seen[i] == (i >= first && i < first + nelem));
}

static void test_cell(int ndim, const int64_t *cell, int dim, int nblocks)
{
	const int64_t total = srt_box_nelem(ndim, cell);
	const srt_box_cut_t cut = {
		.dim = dim,
		.nblocks = nblocks,
		.chunk = cell[dim] / nblocks,
		.extent = cell[dim] / nblocks * 3 + 1, /* of ranks 0 to 3, the last has 1 */
		.offset = cell[dim] / nblocks,
	};

	for (int64_t first = 0; first <= total; first++)
		for (int64_t n = 0; n <= total - first; n++)
			test_range(ndim, cell, &cut, first, n);
}

static int64_t below(uint32_t n)
{
	return (int64_t)(random32() % n);
}

/* Two boxes, each a whole array: the elements that they share, one by one. */
static void test_shared(void)
{
	for (int round = 0; round < 2000; round++) {
		const int ndim = (int)below(SRT_MAX_DIMS) + 1;
		int64_t a_at[SRT_MAX_DIMS], b_at[SRT_MAX_DIMS];
		srt_box_t a = { 0 }, b = { 0 }, both = { 0 };
		int64_t inside = 0, seen = 0, at[SRT_MAX_DIMS];
		srt_walk_t walk;

		for (int d = 0; d < ndim; d++) {
			a.offset[d] = below(3);
			b.offset[d] = below(3);
			a.size[d] = below(4) + 1;
			b.size[d] = below(4) + 1;
		}
		for (int64_t i = 0; i < srt_box_nelem(ndim, a.size); i++) {
			bool is_inside = true;

			coordinates_of(ndim, a.size, i, at);
			for (int d = 0; d < ndim; d++) {
				const int64_t in_b = at[d] + a.offset[d] - b.offset[d];

				is_inside = is_inside && in_b >= 0 && in_b < b.size[d];
			}
			inside += is_inside;
		}
		if (!srt_box_intersect(ndim, &a, &b, &both)) {
			CHECK_INT(inside, 0);
			continue;
		}
		CHECK_INT(srt_box_nelem(ndim, both.size), inside);
		for (int d = 0; d < ndim; d++) {
			a_at[d] = both.offset[d] - a.offset[d];
			b_at[d] = both.offset[d] - b.offset[d];
		}
		srt_walk_begin(&walk, ndim, both.size, (srt_walk_array_t){ a.size, a_at },
			       (srt_walk_array_t){ b.size, b_at });
		for (int64_t run = 0; run < walk.nruns; run++) {
			int64_t in_a, in_b;

			srt_walk_run(&walk, run, &in_a, &in_b);
			for (int64_t i = 0; i < walk.nelem; i++, seen++) {
				int64_t want_a[SRT_MAX_DIMS], want_b[SRT_MAX_DIMS];

				coordinates_of(ndim, both.size, seen, at);
				for (int d = 0; d < ndim; d++) {
					want_a[d] = at[d] + a_at[d];
					want_b[d] = at[d] + b_at[d];
				}
				CHECK_OR_DIE(in_a + i == index_of(ndim, a.size, want_a));
				CHECK_OR_DIE(in_b + i == index_of(ndim, b.size, want_b));
			}
		}
		CHECK_INT(seen, inside);
	}
}

/* Random lists, against all pairs; and a partition, which is sorted by its second dimension. */
static void test_overlap(void)
{
	enum { N = 12, COLUMNS = 512 };
	static srt_box_t box[COLUMNS];
	static srt_sorted_box_t list[COLUMNS];
	srt_box_t both;
	int noverlaps = 0;

	for (int turn = 0; turn < 2000; turn++) {
		const int ndim = 1 + (int)below(3);
		const size_t n = (size_t)below(N);
		bool want = false;

		for (size_t i = 0; i < n; i++) {
			for (int d = 0; d < ndim; d++) {
				box[i].offset[d] = below(9);
				box[i].size[d] = below(3) + 1;
			}
			list[i].box = &box[i];
			for (size_t k = 0; k < i; k++)
				want = want || srt_box_intersect(ndim, &box[i], &box[k], &both);
		}
		CHECK_INT(srt_boxes_overlap(ndim, list, n), want);
		noverlaps += want;
	}
	CHECK(noverlaps > 200 && noverlaps < 1800);
	for (int i = 0; i < COLUMNS; i++) {
		box[i] = (srt_box_t){ .offset = { i % 2, 3 * (i / 2) }, .size = { 1, 3 } };
		list[i].box = &box[COLUMNS - 1 - i];
	}
	CHECK(!srt_boxes_overlap(2, list, COLUMNS));
	box[77].size[1]++;
	CHECK(srt_boxes_overlap(2, list, COLUMNS));
	list[0].box = list[1].box = &box[0]; /* of no dimension: the same element */
	CHECK(srt_boxes_overlap(0, list, 2) && !srt_boxes_overlap(0, list, 1));
}

int main(void)
{
	test_cell(1, (const int64_t[]){ 6 }, 0, 1);
	test_cell(1, (const int64_t[]){ 6 }, 0, 3);
	test_cell(2, (const int64_t[]){ 4, 6 }, 0, 2);
	test_cell(2, (const int64_t[]){ 4, 6 }, 1, 3);
	test_cell(2, (const int64_t[]){ 5, 1 }, 1, 1);
	test_cell(2, (const int64_t[]){ 1, 7 }, 0, 1);
	test_cell(3, (const int64_t[]){ 3, 4, 3 }, 1, 2);
	test_cell(4, (const int64_t[]){ 2, 3, 2, 4 }, 3, 2);
	test_cell(5, (const int64_t[]){ 2, 2, 3, 2, 2 }, 0, 1);
	test_shared();
	test_overlap();
	return check_done();
}
