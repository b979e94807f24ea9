/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The UCX transport: messages between ranks by UCX's tag interface (UCP), for communicators whose
 * ranks are on several nodes. Its ranks share no memory: there are no flags.
 *
 * A process has one UCP worker for all its communicators (worker.c). A message's tag has the
 * communicator, the start, the sender and the collective, so messages of different starts are never
 * mixed up; messages of one start from one rank arrive in the order of its rounds (messages.c).
 *
 * A round of a start on a rank (rounds.c):
 *
 *     publish   this rank's part is complete: sends it to the ranks that read it. Waits for no
 *               rank, except for the sends of the round before the last one
 *     await     posts the receives of the round, and waits for them
 *     release   this rank has consumed the round's receive slot
 *     claim     waits for the earlier sends from the round's send slot
 *
 * Direct: the host can access the device's memory. Messages are sent from the source and received
 * in the destination. Only the parts of a sum are received in slots (slots.c), and summed from
 * there. Otherwise: slots in host memory for both, from and to which the device copies.
 *
 * Progress: a thread that waits drives the worker. If none waits while sends are pending, a thread
 * of the worker drives it (drive.c).
 */
#ifndef SRT_COLLECTIVES_TRANSPORTS_UCX_UCX_H
#define SRT_COLLECTIVES_TRANSPORTS_UCX_UCX_H

#include "collectives/comm_state.h"

/* ---- choose.c: slots of srt_transport_t, also in a library that is built without UCX -------- */

void srt_ucx_describe(const srt_comm_t *world, struct srt_capabilities *mine);
srt_status_t srt_ucx_choose(const srt_comm_t *comm, bool *is_chosen);

/* ---- worker.c ------------------------------------------------------------------------------ */

/* Frees the process's worker; called with the last holder of the bootstrap. NULL is allowed. */
void srt_ucx_worker_destroy(struct srt_ucx_worker *worker);

#endif
