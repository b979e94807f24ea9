/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The launcher's side of the bootstrap: collects the hellos of all ranks, then gives every rank a
 * connected socket to every other one (collectives/bootstrap/wire.h).
 *
 * A state machine without threads or blocking calls, driven by the launcher's poll loop:
 * srt_rendezvous_poll() says what to wait for, srt_rendezvous_step() does what can be done. After a
 * round is complete the next may begin, so a program may join, leave and join again. Plain POSIX,
 * no libshardrt. Used by tools/shardrun/shardrun.c and tests/collectives/test_bootstrap.c.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_RENDEZVOUS_H
#define SRT_COLLECTIVES_BOOTSTRAP_RENDEZVOUS_H

#include <poll.h>
#include <stddef.h>

typedef struct srt_rendezvous srt_rendezvous_t;

/* Listens under a random abstract name. NULL: errno says why. */
srt_rendezvous_t *srt_rendezvous_open(int world_size);
void srt_rendezvous_close(srt_rendezvous_t *rdv);

/* For SHARDRT_BOOTSTRAP: "unix:@shardrt-<32 hex digits>". */
const char *srt_rendezvous_address(const srt_rendezvous_t *rdv);

/* Most entries that srt_rendezvous_poll() writes. */
size_t srt_rendezvous_max_pollfds(const srt_rendezvous_t *rdv);
/* Fills fds, returns how many; lowers *timeout_ms (-1 = none) to the next deadline. */
size_t srt_rendezvous_poll(const srt_rendezvous_t *rdv, struct pollfd *fds, int *timeout_ms);
/* To be called after every poll, with or without events. */
void srt_rendezvous_step(srt_rendezvous_t *rdv);

/* The process of a rank has ended; `how` as in "was killed by signal 9". Those that wait for it
 * fail at once. */
void srt_rendezvous_rank_ended(srt_rendezvous_t *rdv, int rank, const char *how);

#endif
