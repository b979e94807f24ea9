/* SPDX-License-Identifier: BSD-3-Clause */
/* See pack.h. */
#include "models/data/pack.h"

#include <stdlib.h>

#include "models/try.h"

/* The rows are the leaves of a complete binary tree, whose nodes have the most room of the rows
 * below them: node 1 is the root, and 2 i and 2 i + 1 are below node i. */
srt_status_t srt_pack_first_fit(const int64_t *lengths, size_t n, int64_t capacity, size_t *row,
				size_t *nrows)
{
	size_t nleaves = 1;
	int64_t *room;

	while (nleaves < n)
		nleaves *= 2;
	room = malloc(2 * nleaves * sizeof(*room));
	if (room == NULL)
		return srt_model_fail(SRT_ERR_OUT_OF_MEMORY, "no host memory to place %zu examples",
				      n);
	for (size_t i = 0; i < 2 * nleaves; i++)
		room[i] = capacity;
	*nrows = 0;
	for (size_t i = 0; i < n; i++) {
		size_t node = 1;

		while (node < nleaves)
			node = room[2 * node] >= lengths[i] ? 2 * node : 2 * node + 1;
		room[node] -= lengths[i];
		row[i] = node - nleaves;
		*nrows = row[i] + 1 > *nrows ? row[i] + 1 : *nrows;
		for (node /= 2; node > 0; node /= 2) {
			const int64_t left = room[2 * node], right = room[2 * node + 1];

			room[node] = left > right ? left : right;
		}
	}
	free(room);
	return SRT_OK;
}
