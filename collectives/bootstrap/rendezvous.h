/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The launcher's side of the bootstrap: receives the hellos of all ranks, then sends every rank a
 * connected socket to every other rank (collectives/bootstrap/wire.h).
 *
 * A state machine without threads or blocking calls, driven by the launcher's poll loop:
 * srt_rendezvous_poll() returns the descriptors to wait for, and srt_rendezvous_step() makes
 * progress. After a round is complete another may begin, so a program may join, leave and join
 * again. Uses POSIX and base/clock.h only, not libshardrt. Used by tools/shardrun/shardrun.c and
 * tests/collectives/test_bootstrap.c.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_RENDEZVOUS_H
#define SRT_COLLECTIVES_BOOTSTRAP_RENDEZVOUS_H

#include <poll.h>
#include <stddef.h>

typedef struct srt_rendezvous srt_rendezvous_t;

/* Listens under a random abstract name. NULL on failure, with errno set. */
srt_rendezvous_t *srt_rendezvous_open(int world_size);
void srt_rendezvous_close(srt_rendezvous_t *rdv);

/* For SHARDRT_BOOTSTRAP: "unix:@shardrt-<32 hex digits>". */
const char *srt_rendezvous_address(const srt_rendezvous_t *rdv);

/* Most entries that srt_rendezvous_poll() writes. */
size_t srt_rendezvous_max_pollfds(const srt_rendezvous_t *rdv);
/* Fills fds, returns how many; lowers *timeout_ms (-1 = none) to the next deadline. */
size_t srt_rendezvous_poll(const srt_rendezvous_t *rdv, struct pollfd *fds, int *timeout_ms);
/* Called after every poll, with or without events. */
void srt_rendezvous_step(srt_rendezvous_t *rdv);

/* The process of a rank has ended; `how` is e.g. "was killed by signal 9". Ranks that wait for it
 * fail at once. */
void srt_rendezvous_rank_ended(srt_rendezvous_t *rdv, int rank, const char *how);

#endif
