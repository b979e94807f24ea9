/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bootstrap: how the ranks of a job find each other.
 *
 * The launcher (tools/shardrun) listens on an abstract Unix socket and sets SHARDRT_BOOTSTRAP,
 * SHARDRT_RANK, SHARDRT_WORLD_SIZE, SHARDRT_LOCAL_RANK and SHARDRT_LOCAL_SIZE. A rank connects,
 * sends a hello (collectives/bootstrap/wire.h) and receives one connected socket to every other
 * rank. After that the launcher is not needed: the sockets carry the control channel
 * (collectives/bootstrap/control_channel.h). The connection to it stays open until the rank leaves,
 * so that it refuses a second process of the same rank. Without a launcher the process is a job of
 * one rank.
 *
 * Called by runtime/context.c, which then creates the world communicator (collectives/comm.h).
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_BOOTSTRAP_H
#define SRT_COLLECTIVES_BOOTSTRAP_BOOTSTRAP_H

#include <shardrt/context.h>
#include <shardrt/status.h>

/* This process's place in a job. Opaque. */
typedef struct srt_bootstrap srt_bootstrap_t;

/*
 * Joins the job. Collective: returns once all ranks have joined or the deadline has passed.
 * options: bootstrap, timeout_s (the deadline of this and of every later wait on other ranks).
 * Errors: SRT_ERR_TIMEOUT (names the missing ranks), SRT_ERR_PEER_DEAD (a rank ended before it
 * joined), SRT_ERR_INVALID_ARGUMENT (malformed address or rank; a rank that has already joined;
 * SHARDRT_WORLD_SIZE above 1 without an address), SRT_ERR_SYSTEM.
 */
srt_status_t srt_bootstrap_join(const srt_context_options_t *options, srt_bootstrap_t **bootstrap);

/*
 * Sends a goodbye to the other ranks and gives up the caller's hold. Closes communicators that
 * still exist; they hold the object. Does not wait for other ranks for longer than a communicator
 * that is destroyed. NULL is allowed.
 */
void srt_bootstrap_leave(srt_bootstrap_t *bootstrap);

/* Whether ranks can be started by mpirun and srun: loads libpmix, connects to nothing. The last
 * error says why not. Thread-safe. Implemented in pmix.c. */
srt_status_t srt_bootstrap_probe_pmix(void);

int srt_bootstrap_rank(const srt_bootstrap_t *bootstrap);
int srt_bootstrap_world_size(const srt_bootstrap_t *bootstrap);
int srt_bootstrap_local_rank(const srt_bootstrap_t *bootstrap);
int srt_bootstrap_local_size(const srt_bootstrap_t *bootstrap);

/*
 * Creates the communicator of all ranks. Collective. Its collectives run on `device`, which must
 * outlive it. Destroy with srt_comm_destroy(). Implemented in collectives/comm.c.
 */
srt_status_t srt_comm_create_world(srt_bootstrap_t *bootstrap, srt_device_t *device,
				   srt_comm_t **comm);

/* This rank cannot go on with `what`, because of `message`: poisons its communicators on all ranks.
 * Returns the status, with the message that all get. Implemented in poison.c. */
srt_status_t srt_bootstrap_fail(srt_bootstrap_t *bootstrap, const char *what, srt_status_t status,
				const char *message);

#endif
