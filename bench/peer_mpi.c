/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What bench_coll.c does, by MPI: compiled with mpicc and run with mpirun by peer_collectives.py.
 *
 *     mpirun -n 2 peer_mpi BYTES ...
 *
 * Prints a line for each collective and size: name, bytes, microseconds, "ok".
 */
#include <mpi.h>
#include <stdlib.h>

#include "bench/coll_rules.h"

typedef struct bench {
	int rank, size, each; /* elements of a shard */
	float *full, *shard;
} bench_t;

static void all_gather(const bench_t *b)
{
	MPI_Allgather(b->shard, b->each, MPI_FLOAT, b->full, b->each, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(const bench_t *b)
{
	MPI_Reduce_scatter_block(b->full, b->shard, b->each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_reduce(const bench_t *b)
{
	MPI_Allreduce(MPI_IN_PLACE, b->full, b->size * b->each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* Every rank's values from `first` on, or zeros. */
static void fill(float *data, size_t nelem, size_t first, int rank)
{
	for (size_t i = 0; i < nelem; i++)
		data[i] = rank < 0 ? 0.0f : value_of(rank, first + i);
}

static double time_coll(const bench_t *b, void (*coll)(const bench_t *), int starts)
{
	double best = 1e9;

	for (int k = 0; k < REPEATS; k++) {
		double start, mine, slowest;

		MPI_Barrier(MPI_COMM_WORLD);
		start = now_s();
		for (int i = 0; i < starts; i++)
			coll(b);
		mine = (now_s() - start) / starts;
		MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
		best = slowest < best ? slowest : best;
	}
	return best;
}

static void bench_coll(const bench_t *b, void (*coll)(const bench_t *), const result_t *expected)
{
	const size_t nelem = (size_t)b->size * expected->each,
		     first = (size_t)b->rank * expected->each;
	const size_t nbytes = nelem * sizeof(float);
	double t;

	fill(b->full, nelem, 0, -1);
	fill(b->shard, expected->each, 0, -1);
	t = time_coll(b, coll, starts_of(nbytes));
	/* The shard is the source of the all-gather, and `full` that of the others. */
	fill(b->full, nelem, 0, expected->is_sum ? b->rank : -1);
	fill(b->shard, expected->each, first, expected->is_sum ? -1 : b->rank);
	coll(b);
	if (!is_result(expected, b->rank, expected->nelem == nelem ? b->full : b->shard))
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Barrier(MPI_COMM_WORLD);
	if (b->rank == 0)
		printf("%s %zu %.2f ok\n", expected->name, nbytes, t * 1e6);
}

static void bench_size(bench_t *b, size_t nbytes)
{
	const size_t n = (size_t)b->size, each = nbytes / sizeof(float) / n;

	b->each = (int)each;
	b->full = malloc(n * each * sizeof(float));
	b->shard = malloc(each * sizeof(float));
	if (b->full == NULL || b->shard == NULL)
		MPI_Abort(MPI_COMM_WORLD, 1);
	bench_coll(b, all_gather, &(result_t){ "all-gather", 0, b->size, each, 0, n * each });
	bench_coll(b, reduce_scatter,
		   &(result_t){ "reduce-scatter", 1, b->size, each, (size_t)b->rank * each, each });
	bench_coll(b, all_reduce, &(result_t){ "all-reduce", 1, b->size, each, 0, n * each });
	free(b->shard);
	free(b->full);
}

int main(int argc, char **argv)
{
	bench_t b;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &b.size);
	for (int i = 1; i < argc; i++)
		bench_size(&b, strtoull(argv[i], NULL, 10));
	MPI_Finalize();
	return 0;
}
