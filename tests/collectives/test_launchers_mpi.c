/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compiled by mpicc and run by mpirun, by test_launchers.sh: a program of MPI that uses libshardrt.
 * Argument: what is first, "mpi" (MPI_Init(), and a context found by PMIx), "shardrt", or
 * "broadcast" (MPI_Init(), and a context whose ranks are those of a communicator of MPI).
 */
#include <mpi.h>
#include <string.h>

#include "tests/collectives/launched.h"

static int broadcast(void *arg, void *data, size_t nbytes)
{
	return MPI_Bcast(data, (int)nbytes, MPI_BYTE, 0, *(MPI_Comm *)arg);
}

/* The ranks in the reverse order, so not those that PMIx numbers. */
static void broadcast_by_mpi(void)
{
	int mpi_rank, rank, size;
	MPI_Comm comm;

	MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
	MPI_Comm_split(MPI_COMM_WORLD, 0, -mpi_rank, &comm);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	MUST_BE(mpi_rank == size - 1 - rank);

	const srt_context_options_t options = { .size = sizeof(options),
						.rank = rank,
						.world_size = size,
						.broadcast = broadcast,
						.broadcast_arg = &comm };

	check_job(&options, rank, size);
	MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
	int rank = -1, size = argc == 3 ? atoi(argv[2]) : 0, mpi_rank, sum = 0;

	MUST_BE(size > 0);
	if (strcmp(argv[1], "shardrt") == 0)
		rank = check_job(NULL, -1, size);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
	MUST_BE(rank < 0 || rank == mpi_rank);
	if (strcmp(argv[1], "broadcast") == 0)
		broadcast_by_mpi();
	else
		check_job(NULL, mpi_rank, size);
	MPI_Allreduce(&mpi_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MUST_BE(sum == size * (size - 1) / 2);
	MPI_Finalize();
	if (mpi_rank == 0)
		printf("passed\n");
	return 0;
}
