/* SPDX-License-Identifier: BSD-3-Clause */
/* The process's place by PMIx, the interface of mpirun (Open MPI) and srun --mpi=pmix. */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_PMIX_H
#define SRT_COLLECTIVES_BOOTSTRAP_PMIX_H

#include "collectives/bootstrap/launcher.h"

/*
 * Loads libpmix, connects to the launcher's server, and fills in `place`. The connection is kept
 * until the process exits: servers take a process that has left, and joins again, for a failure.
 * A program that uses PMIx itself, or through MPI_Init(), shares it: PMIx counts its users.
 * Errors: SRT_ERR_UNSUPPORTED (no libpmix, or not in this build), SRT_ERR_SYSTEM (the server).
 */
srt_status_t srt_pmix_find(srt_place_t *place);

#endif
