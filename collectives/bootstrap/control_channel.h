/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control channel: one connected SOCK_SEQPACKET socket to every other rank of the node. One
 * rank of each node also carries messages to ranks of other nodes (relay.h).
 *
 * It carries small messages, within a node with at most one descriptor attached. Its end detects
 * dead peers: a rank that leaves sends a goodbye first, so an end of file without a goodbye is a
 * death. One thread per process, the progress thread, sleeps until a socket is readable, queues the
 * messages and reports deaths. As it always reads, a send can only be delayed by a peer that is
 * stopped.
 *
 * Created by collectives/bootstrap/bootstrap.c, used by collectives/comm.c and oob.c.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_CONTROL_CHANNEL_H
#define SRT_COLLECTIVES_BOOTSTRAP_CONTROL_CHANNEL_H

#include <stdatomic.h>

#include "base/base.h"
#include "collectives/bootstrap/wire.h"

/* Longest payload of one message. */
#define SRT_CONTROL_MAX_PAYLOAD 32768u
/* Longest name of what a message is for, with its 0. Longer ones are cut. */
#define SRT_CONTROL_WHAT SRT_WIRE_WHAT
/* Longest text of a goodbye or an abort, with its 0. */
#define SRT_CONTROL_TEXT SRT_WIRE_TEXT

/* Tag of an abort of all communicators of a rank: this bit and the rank. Without a text the rank
 * has died. No communicator has such an id. */
#define SRT_CONTROL_TAG_RANK (UINT64_C(1) << 63)

typedef struct srt_control_channel srt_control_channel_t;

typedef enum srt_peer_state {
	SRT_PEER_ALIVE,
	SRT_PEER_LEFT, /* it has sent a goodbye */
	SRT_PEER_DEAD, /* its socket ended without a goodbye, or it broke the protocol */
} srt_peer_state_t;

/* An event of a peer, reported to the listener on the progress thread. */
typedef struct srt_control_notice {
	enum { SRT_CONTROL_NOTICE_DEAD, SRT_CONTROL_NOTICE_LEFT, SRT_CONTROL_NOTICE_ABORT } what;
	int rank;
	uint64_t tag;        /* ABORT: the communicator, or SRT_CONTROL_TAG_RANK */
	uint32_t seq;        /* ABORT: the first exchange that the sender takes no part in */
	srt_status_t status; /* LEFT: why, SRT_OK = orderly; ABORT: the poison */
	const char *text;    /* LEFT, ABORT: the reason; valid during the call */
} srt_control_notice_t;

typedef void srt_control_listener(void *arg, const srt_control_notice_t *notice);

/* Result of a send or a receive. The caller makes the error message from it. */
typedef enum srt_control_result {
	SRT_CONTROL_OK,
	SRT_CONTROL_GONE,    /* the peer is dead or has left */
	SRT_CONTROL_STOPPED, /* *stop became non-zero */
	SRT_CONTROL_TIMEOUT,
	SRT_CONTROL_MALFORMED, /* a message of another size or without its descriptor */
	SRT_CONTROL_OTHER,     /* a message of another operation */
	SRT_CONTROL_NO_MEMORY,
	SRT_CONTROL_NO_DESCRIPTOR, /* this process has no free descriptor for the one that came */
} srt_control_result_t;

/* A connection of this process to the rank that carries the messages of another node. */
typedef struct srt_control_link {
	struct srt_link *link; /* link.h */
	int carrier;
} srt_control_link_t;

/* How messages reach the ranks of other nodes. */
typedef struct srt_control_route {
	const uint16_t *node_of;   /* [world_size] must outlive the channel */
	int gateway;               /* the rank of this node that carries messages */
	srt_control_link_t *links; /* [nlinks], of that rank; NULL once the channel owns it */
	int nlinks;
	double heartbeat_s; /* a link that is silent for longer is lost */
	double serve_s;     /* longest service to others after this rank has left */
} srt_control_route_t;

/*
 * Starts the progress thread. fds[r] is the socket to rank r, -1 for this rank and for ranks of
 * other nodes. route: NULL = all ranks share a node. The channel owns the sockets on success.
 * `listener` may be called before this function returns.
 */
srt_status_t srt_control_start(int rank, int world_size, const int *fds,
			       const srt_control_route_t *route, srt_control_listener *listener,
			       void *listener_arg, srt_control_channel_t **channel);

/* Sends goodbyes (status and text: the reason; SRT_OK = in order), ends the thread and closes the
 * sockets. The peers' states stay readable. Waits for no peers, but a rank that carries messages
 * between others goes on with it until they have left: route.serve_s, or half a second if it leaves
 * because of a failure. NULL is allowed. */
void srt_control_stop(srt_control_channel_t *channel, srt_status_t status, const char *text);
/* In a child by fork(): closes its copies of the sockets, so that the peers see the parent end. */
void srt_control_close_copies(srt_control_channel_t *channel);
/* Frees a channel that was stopped. NULL is allowed. */
void srt_control_free(srt_control_channel_t *channel);

srt_peer_state_t srt_control_peer_state(const srt_control_channel_t *channel, int rank);

/*
 * Sends one message of at most SRT_CONTROL_MAX_PAYLOAD bytes. (tag, seq) identify it. fd -1 = none,
 * as for a rank of another node; the caller keeps the descriptor. If it cannot be sent at once,
 * gives up when *stop becomes non-zero, or at `deadline` by srt_awake_s(). `what` is the operation:
 * "hashing the parameters".
 */
srt_control_result_t srt_control_send(srt_control_channel_t *channel, int to, uint64_t tag,
				      uint32_t seq, const char *what, const void *data,
				      size_t nbytes, int fd, const atomic_int *stop,
				      double deadline);

/* Whether two names of operations have the same first word, or the same three if the second is
 * "the": the rest may name what differs between ranks. */
bool srt_control_is_same_operation(const char *a, const char *b);

/* Receives the message (tag, seq) of a peer, which must have exactly nbytes and be for the same
 * operation. fd NULL = there must be no descriptor; else the caller closes *fd, which is -1 if none
 * came. SRT_CONTROL_OTHER: `theirs` is the peer's operation. */
srt_control_result_t srt_control_recv(srt_control_channel_t *channel, int from, uint64_t tag,
				      uint32_t seq, const char *what, void *data, size_t nbytes,
				      int *fd, const atomic_int *stop, double deadline,
				      char theirs[SRT_CONTROL_WHAT]);

/* Whether the message (tag, seq) of a peer has come, or may still come. */
bool srt_control_may_come(srt_control_channel_t *channel, int from, uint64_t tag, uint32_t seq);

/* Reports to all other ranks that communicator `tag` is poisoned, and that the sender takes no part
 * in exchange `seq` and later ones; if another rank is the sender of this news, to the others of
 * this node, in case it ended while it sent. Best effort, waits for no peer. */
void srt_control_send_abort(srt_control_channel_t *channel, int sender, uint64_t tag, uint32_t seq,
			    srt_status_t status, const char *text);

/* Makes pending receives check their *stop. */
void srt_control_wake(srt_control_channel_t *channel);

#endif
