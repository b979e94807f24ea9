/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Boxes of sharded checkpoints against a plain enumeration: every range of elements of small cells,
 * cut in blocks or not, is covered exactly once, with the right elements of the whole tensor, and
 * few boxes. Also the walk over the elements that two arrays share, and boxes that cover a
 * tensor.
 */
#include "base/base.h"
#include "runtime/checkpoint/formats/boxes.h"
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

/* Cuts a box in two at random, again and again. Returns the number of parts. */
static size_t cut_randomly(int ndim, srt_box_t *box, size_t n, size_t most)
{
	for (int turn = 0; turn < 40 && n < most; turn++) {
		srt_box_t *old = &box[below((uint32_t)n)];
		const int d = (int)below((uint32_t)ndim);
		const int64_t first = 1 + below(6);

		if (first >= old->size[d])
			continue;
		box[n] = *old;
		box[n].offset[d] += first;
		box[n].size[d] -= first;
		old->size[d] = first;
		n++;
	}
	return n;
}

/* The answer by counting the boxes of each element. */
static bool covers(int ndim, const int64_t *shape, const srt_box_t *box, size_t n)
{
	for (int64_t i = 0; i < srt_box_nelem(ndim, shape); i++) {
		int64_t at[SRT_MAX_DIMS];
		size_t found = 0;

		coordinates_of(ndim, shape, i, at);
		for (size_t k = 0; k < n; k++) {
			bool inside = true;

			for (int d = 0; d < ndim; d++)
				inside = inside && at[d] >= box[k].offset[d] &&
					 at[d] < box[k].offset[d] + box[k].size[d];
			found += inside;
		}
		if (found != 1)
			return false;
	}
	return true;
}

static srt_status_t check_cover(int ndim, const int64_t *shape, const srt_box_t *box, size_t n)
{
	srt_cover_t cover;

	srt_cover_begin(&cover, ndim, shape, (uint64_t)random32() << 32 | random32());
	for (size_t i = 0; i < n; i++)
		srt_cover_add(&cover, &box[i]);
	return srt_cover_end(&cover);
}

/* Random partitions, and the same with a box that is moved, gone or there twice. */
static void test_cover(void)
{
	enum { MOST_BOXES = 16 };
	static const int64_t none[1], one[2] = { 1, 0 };
	int ncovers = 0;
	srt_cover_t cover;

	for (int turn = 0; turn < 3000; turn++) {
		const int ndim = 1 + (int)below(4);
		srt_box_t box[MOST_BOXES + 1] = { 0 };
		size_t n;
		bool want;

		for (int d = 0; d < ndim; d++)
			box[0].size[d] = 1 + below(7);
		const srt_box_t whole = box[0];

		n = cut_randomly(ndim, box, 1, MOST_BOXES);
		if (turn % 2 > 0) {
			srt_box_t *victim = &box[below((uint32_t)n)];
			const int d = (int)below((uint32_t)ndim);

			if (turn % 3 == 0)
				box[n++] = *victim;
			else if (turn % 3 == 1)
				*victim = box[below((uint32_t)n)];
			else
				victim->offset[d] =
					below((uint32_t)(whole.size[d] - victim->size[d] + 1));
		}
		want = covers(ndim, whole.size, box, n);
		ncovers += want;
		CHECK_INT(check_cover(ndim, whole.size, box, n) == SRT_OK, want);
	}
	CHECK(ncovers > 1500 && ncovers < 2500);
	CHECK_OK(check_cover(2, one, NULL, 0)); /* a tensor without elements */
	/* of no dimension: one element */
	CHECK_OK(check_cover(0, none, &(srt_box_t){ 0 }, 1));
	CHECK_STATUS(check_cover(0, none, NULL, 0), SRT_ERR_FORMAT);
	/* sums that overflow */
	srt_cover_begin(&cover, 1, (const int64_t[]){ INT64_MAX }, 7);
	for (int i = 0; i < 3; i++)
		srt_cover_add(&cover, &(srt_box_t){ .size = { INT64_MAX } });
	CHECK_STATUS(srt_cover_end(&cover), SRT_ERR_FORMAT);
	CHECK_ERROR_HAS("overlap");
}

/* Many boxes that all have indices in common, in both dimensions: half of them columns, below them
 * rows. */
static void test_many(void)
{
	enum { N = 200000 };
	const int64_t shape[2] = { 2 * N, N };
	srt_cover_t cover;

	srt_cover_begin(&cover, 2, shape, 11);
	for (int64_t i = 0; i < N; i++) {
		srt_cover_add(&cover, &(srt_box_t){ { 0, i }, { N, 1 } });
		srt_cover_add(&cover, &(srt_box_t){ { N + i, 0 }, { 1, N } });
	}
	CHECK_OK(srt_cover_end(&cover));
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
	test_cover();
	test_many();
	return check_done();
}
