/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server of a node: receives the hellos of the node's ranks, then sends every rank a connected
 * socket to every other one (collectives/bootstrap/wire.h).
 *
 * A state machine without threads or blocking calls, driven by a poll loop: srt_rendezvous_poll()
 * returns the descriptors to wait for, and srt_rendezvous_step() makes progress. After a round is
 * complete another may begin, so a program may join, leave and join again. Uses POSIX and
 * base/clock.h only, not libshardrt. Driven by tools/shardrun/shardrun.c for a job of one node, or
 * by a thread of one of the ranks (collectives/bootstrap/node.c).
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_RENDEZVOUS_H
#define SRT_COLLECTIVES_BOOTSTRAP_RENDEZVOUS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/bootstrap/wire.h"

typedef struct srt_rendezvous srt_rendezvous_t;

/* Listens under a random abstract name. The node has all ranks of the job, at most
 * SRT_WIRE_MAX_LOCAL. NULL on failure, with errno set. */
srt_rendezvous_t *srt_rendezvous_open(int world_size);
/* Listens under this name. is_part: the node has some of the ranks, and nothing is handed out
 * before srt_rendezvous_admit(). NULL on failure, with errno set: EADDRINUSE if a process has the
 * name. */
srt_rendezvous_t *srt_rendezvous_open_name(const char *name, int world_size, bool is_part);
void srt_rendezvous_close(srt_rendezvous_t *rdv);

/* For SHARDRT_BOOTSTRAP: "unix:@shardrt-<32 hex digits>". */
const char *srt_rendezvous_address(const srt_rendezvous_t *rdv);

/* Most entries that srt_rendezvous_poll() writes. */
size_t srt_rendezvous_max_pollfds(const srt_rendezvous_t *rdv);
/* Fills fds, returns how many; lowers *timeout_ms (-1 = none) to the next deadline. */
size_t srt_rendezvous_poll(const srt_rendezvous_t *rdv, struct pollfd *fds, int *timeout_ms);
/* Called after every poll, with or without events. */
void srt_rendezvous_step(srt_rendezvous_t *rdv);

/* Whether the rank waits here for the others. */
bool srt_rendezvous_has(const srt_rendezvous_t *rdv, int rank);
/* For a part of a job: all ranks of the job have joined. node_of: [world_size], borrowed until the
 * rendezvous is closed. `gateway` is the rank that carries messages to other nodes. */
void srt_rendezvous_admit(srt_rendezvous_t *rdv, const uint16_t *node_of, int gateway);
/* All ranks have what they need, and nothing is left to do. */
bool srt_rendezvous_is_complete(const srt_rendezvous_t *rdv);
/* The job cannot start: all ranks receive the message, now or when they connect. */
void srt_rendezvous_fail(srt_rendezvous_t *rdv, srt_status_t status, const char *text);
/* The frame that says why the job cannot start, or NULL. */
const srt_join_frame_t *srt_rendezvous_failure(const srt_rendezvous_t *rdv);

/* The process of a rank has ended; `how` is e.g. "was killed by signal 9". Ranks that wait for it
 * fail at once. */
void srt_rendezvous_rank_ended(srt_rendezvous_t *rdv, int rank, const char *how);

#endif
