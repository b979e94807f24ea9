/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What started this process, and its place in the job: the program's own options,
 * SHARDRT_BOOTSTRAP, PMIx (mpirun, srun --mpi=pmix), torchrun's variables, or nothing, in this
 * order. docs/launchers.md describes it for users.
 *
 * A launcher tells a rank its number and the number of ranks. How the ranks meet is the work of
 * bootstrap.c: on one node by a Unix socket, between nodes by TCP to rank 0. What the ranks need
 * for that (an address, a name, a secret) is rank 0's to choose, and is shared by the launcher if
 * it can exchange data (PMIx, the program's function). Else it is in the environment.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_LAUNCHER_H
#define SRT_COLLECTIVES_BOOTSTRAP_LAUNCHER_H

#include <stddef.h>

#include <shardrt/context.h>

/* Longest token, with its 0. */
#define SRT_TOKEN_NBYTES 129

typedef struct srt_place srt_place_t;

struct srt_place {
	/* "shardrun", "SHARDRT_BOOTSTRAP", "PMIx", "torchrun", "the program", "" = none */
	const char *launcher;
	int rank, world_size;
	int local_rank, local_size; /* as the launcher counts; local_size 0 = it does not say */
	/* "unix:@NAME": shardrun listens there and hands out the sockets. "tcp:HOST:PORT": rank 0
	 * listens there; "" = rank 0 chooses, or all ranks share a node. */
	char address[280];
	/* Public, equal on all ranks of the job and of no other job or restart; "" = rank 0 makes
	 * one, and `share` tells it to the others. */
	char job[64];
	char token[SRT_TOKEN_NBYTES]; /* secret that all ranks know, "" = none */
	/* Collective: rank 0's `nbytes` (at most 1024) of `data` to all ranks; NULL = the launcher
	 * cannot. `generation` counts the calls. */
	srt_status_t (*share)(const srt_place_t *place, uint32_t generation, void *data,
			      size_t nbytes, double timeout_s);
	const void *arg; /* of share */
};

/*
 * Finds the place of this process. `options` may name it, and must then be valid as long as `share`
 * is called. Rank, size and the local ones fit each other. Errors: SRT_ERR_INVALID_ARGUMENT for
 * options or variables that are malformed or contradict each other, those of srt_pmix_find().
 */
srt_status_t srt_launcher_find(const srt_context_options_t *options, srt_place_t *place);

#endif
