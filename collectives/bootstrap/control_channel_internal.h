/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by control_channel.c (the callers' side), progress.c (the progress thread) and frame.c
 * (the parser of messages). */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_CONTROL_CHANNEL_INTERNAL_H
#define SRT_COLLECTIVES_BOOTSTRAP_CONTROL_CHANNEL_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <sys/types.h>

#include "collectives/bootstrap/control_channel.h"

#define SRT_FRAME_MAGIC 0x53525446u

typedef enum srt_frame_type {
	SRT_FRAME_DATA = 1,
	SRT_FRAME_GOODBYE,   /* payload: srt_frame_reason_t */
	SRT_FRAME_ABORT,     /* payload: srt_frame_reason_t; tag = communicator */
	SRT_FRAME_LOST,      /* of a rank of another node, tag; payload: srt_frame_reason_t */
	SRT_FRAME_HEARTBEAT, /* of a relay; no payload */
} srt_frame_type_t;

/* A destination: all ranks of the nodes other than the sender's. */
#define SRT_FRAME_ALL UINT32_MAX

typedef struct srt_frame {
	uint32_t magic;
	uint32_t type;
	uint32_t src, dst; /* ranks */
	uint64_t tag;
	uint32_t seq;
	uint32_t nbytes; /* of the payload that follows */
	char what[SRT_CONTROL_WHAT];
} srt_frame_t;

typedef struct srt_frame_reason {
	int32_t status;
	char text[SRT_CONTROL_TEXT];
} srt_frame_reason_t;

/* Parses a message of nbytes bytes. False if it violates the protocol; else nbytes of the frame is
 * the size of the payload in the message, and its `what` ends with 0. */
bool srt_frame_parse(const void *message, size_t nbytes, srt_frame_t *frame);
/* Parses the payload of a goodbye or an abort. False if it violates the protocol; else the text
 * ends with 0. */
bool srt_frame_parse_reason(const srt_frame_t *frame, const void *payload,
			    srt_frame_reason_t *reason);
/* Why a rank of another node is lost with the rank that carried its messages. */
srt_frame_reason_t srt_frame_unreachable(int rank, int carrier);

/* A descriptor was sent, and lost: this process has no room for another one. */
#define SRT_FD_LOST (-2)

typedef struct srt_message {
	struct srt_message *next;
	uint64_t tag;
	uint32_t seq;
	int fd; /* -1 = none, SRT_FD_LOST */
	char what[SRT_CONTROL_WHAT];
	size_t nbytes;
	unsigned char data[];
} srt_message_t;

typedef struct srt_control_peer {
	int fd;
	atomic_int state;            /* srt_peer_state_t; written by the progress thread */
	srt_message_t *head, **tail; /* received, not fetched yet; protected by the mutex */
	size_t queued_nbytes;        /* protected by the mutex */
	pthread_cond_t arrived;      /* a message or a change of state; CLOCK_MONOTONIC */
	/* Used by the progress thread only: */
	bool ended, goodbye;
	bool announced;            /* its death, to the other ranks */
	bool draining;             /* drain_dead() */
	srt_frame_reason_t reason; /* of the goodbye */
} srt_control_peer_t;

typedef struct srt_relay srt_relay_t; /* relay.h */

struct srt_control_channel {
	int rank, world_size;
	const uint16_t *node_of; /* [world_size]; NULL: one node */
	int gateway;             /* the rank of this node that has the relay */
	srt_relay_t *relay;      /* of that rank; else NULL */
	int nlinks;
	srt_control_peer_t *peer; /* [world_size] */
	int wake_fd;              /* eventfd: stop, or a queue is no longer full */
	atomic_bool stopping;
	bool leaves_in_order; /* set before `stopping` */
	pthread_t thread;
	pthread_mutex_t mutex;
	srt_control_listener *listener;
	void *listener_arg;
	/* Used by the progress thread only: */
	struct pollfd *pollfds; /* [world_size + 1 + nlinks], after the ranks wake_fd */
	unsigned char *scratch; /* one message */
	srt_message_t *message; /* that the next data are received into; NULL: none */
};

/* A peer whose unfetched messages exceed this is not read until some are fetched. */
#define SRT_CONTROL_QUEUE_NBYTES ((size_t)16 << 20)

void *srt_control_progress(void *channel);
void srt_control_wake_thread(srt_control_channel_t *channel);
/* Sends one frame by one system call: a SEQPACKET socket sends all of it or nothing. */
ssize_t srt_frame_send(int to_fd, const srt_frame_t *frame, const void *data, int fd);

static inline bool srt_control_is_remote(const srt_control_channel_t *channel, int rank)
{
	return channel->node_of != NULL &&
	       channel->node_of[rank] != channel->node_of[channel->rank];
}

/* Tells a rank of this node that another one has died. Never blocks. */
void srt_control_tell_death(srt_control_channel_t *channel, int to, int rank);
/* The progress thread's: takes a frame for this rank; owns fd (-1 = none). False if it violates the
 * protocol. */
bool srt_control_deliver(srt_control_channel_t *channel, const srt_frame_t *frame,
			 const void *payload, int fd);

#endif
