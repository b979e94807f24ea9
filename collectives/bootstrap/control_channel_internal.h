/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by control_channel.c (the callers' side) and progress.c (the progress thread). */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_CONTROL_CHANNEL_INTERNAL_H
#define SRT_COLLECTIVES_BOOTSTRAP_CONTROL_CHANNEL_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <sys/types.h>

#include "collectives/bootstrap/control_channel.h"

/* Why a rank of another node is lost with the rank that carried its messages. */
srt_frame_reason_t srt_control_unreachable(int rank, int carrier);

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
