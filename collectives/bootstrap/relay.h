/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The relay: carries control messages between nodes, in one rank of each node. Rank 0's has a link
 * to that of every other node; the others have one link, to rank 0's. So a message passes at most
 * two links, and a rank that is no relay has connections only to the ranks of its node.
 *
 * A relay sends a heartbeat over a link on which it sends nothing else. A link that is silent for
 * SHARDRT_HEARTBEAT seconds, or ends, makes all ranks on its other side unreachable: every rank is
 * told which and why. UCX finds neither a host that is down nor a cut network.
 *
 * Part of the control channel (control_channel_internal.h). Frames are those of the Unix sockets.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_RELAY_H
#define SRT_COLLECTIVES_BOOTSTRAP_RELAY_H

#include <poll.h>

#include "collectives/bootstrap/control_channel_internal.h"

/* Takes the links: they are NULL in the route then. NULL if there is no memory. */
srt_relay_t *srt_relay_create(const srt_control_channel_t *channel,
			      const srt_control_route_t *route);
/* Closes the links. NULL is allowed. */
void srt_relay_destroy(srt_relay_t *relay);
/* In a child by fork(). */
void srt_relay_close_copies(srt_relay_t *relay);

/* Sends a frame of this rank to a rank of another node, or to all of them (SRT_FRAME_ALL). 0, or
 * -1 with errno: EAGAIN, the queue is full; EPIPE, the rank cannot be reached. Thread-safe. */
int srt_relay_send(srt_control_channel_t *channel, const srt_frame_t *frame, const void *data);

/* ---- the progress thread's: */

/* Forwards a frame that came from a rank of this node. */
void srt_relay_forward(srt_control_channel_t *channel, const srt_frame_t *frame,
		       const void *payload);
/* Tells the other nodes that a rank of this one has left or died. */
void srt_relay_tell_end(srt_control_channel_t *channel, int rank, bool has_died,
			const srt_frame_reason_t *reason);
/* Adds the links to fds, returns how many. Sets POLLOUT for ranks of this node that have messages
 * waiting. */
size_t srt_relay_poll(srt_control_channel_t *channel, struct pollfd *fds);
/* Reads the links, sends what waits, heartbeats, deadlines. */
void srt_relay_step(srt_control_channel_t *channel);
/* This rank has left: whether the others still need it. */
bool srt_relay_is_needed(srt_control_channel_t *channel);

#endif
