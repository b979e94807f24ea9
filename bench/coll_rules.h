/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What bench_coll.c and peer_mpi.c have in common, so that their figures can be compared: how often
 * a collective is started, and what it is checked with. peer_collectives.py has the same rules.
 */
#ifndef SRT_BENCH_COLL_RULES_H
#define SRT_BENCH_COLL_RULES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define REPEATS 5

/* The number of starts of a repeat, whose result is their mean. */
static inline int starts_of(size_t nbytes)
{
	return nbytes >= 16000000 ? 3 : nbytes >= 100000 ? 50 : 2000;
}

static inline double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Element i of a rank: small integers, so that sums are exact in any order. */
static inline float value_of(int rank, size_t i)
{
	return (float)(((uint32_t)i + 40503u * (uint32_t)rank) * 2654435761u >> 20) - 2048.0f;
}

/* What a rank receives: elements [first, first + nelem) of the sum of all ranks, or of the ranks
 * that own them, `each` elements a rank. */
typedef struct result {
	const char *name;
	int is_sum, size;
	size_t each, first, nelem;
} result_t;

static inline float element_of(const result_t *r, size_t i)
{
	float sum = 0;

	if (!r->is_sum)
		return value_of((int)(i / r->each), i);
	for (int rank = 0; rank < r->size; rank++)
		sum += value_of(rank, i);
	return sum;
}

/* Says which element of which rank differs. */
static inline int is_result(const result_t *r, int rank, const float *data)
{
	for (size_t i = 0; i < r->nelem; i++) {
		const float expected = element_of(r, r->first + i);

		if (data[i] == expected)
			continue;
		fprintf(stderr, "%s: element %zu of rank %d is %g, not %g\n", r->name, i, rank,
			(double)data[i], (double)expected);
		return 0;
	}
	return 1;
}

#endif
