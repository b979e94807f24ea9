/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by rendezvous.c, which decides, and rendezvous_sockets.c, which sends. */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_RENDEZVOUS_INTERNAL_H
#define SRT_COLLECTIVES_BOOTSTRAP_RENDEZVOUS_INTERNAL_H

#include <stdbool.h>

#include <shardrt/status.h>

#include "collectives/bootstrap/rendezvous.h"
#include "collectives/bootstrap/wire.h"

typedef struct srt_rendezvous_connection {
	int fd;   /* -1 = free */
	int rank; /* -1 = no hello yet */
	int32_t pid;
	bool complete;   /* the rank has all sockets; it stays connected until it leaves the job */
	double deadline; /* of the hello, then of the other ranks' hellos */
	double timeout_s;
} srt_rendezvous_connection_t;

struct srt_rendezvous {
	int world_size;
	int listener;
	char address[64];
	srt_rendezvous_connection_t *connections;
	size_t nconnections;
	int *of_rank;      /* connection of a rank that waits in this round, else -1 */
	int *member;       /* HANDING: the ranks of this node, [njoined] */
	char (*ended)[64]; /* how a rank's process ended, "" = it has not ended */
	int njoined;
	double accept_at; /* no earlier, after a failure */
	enum { COLLECTING, HANDING, FAILED } state;
	bool is_part;            /* the job has other nodes */
	const uint16_t *node_of; /* of a part: the nodes of all ranks once they have joined */
	int gateway;
	bool is_complete;
	/* HANDING: the current pair, then the current rank */
	int nmembers;
	int left, right; /* indices of members */
	int next_rank;   /* the first one of the next message NODES */
	int pair[2];     /* -1 once sent */
	srt_join_frame_t failure;
};

/* Sends a frame, with a descriptor unless fd is -1. False if it must be retried. A rank that has
 * ended counts as served: its peers see the end of its sockets. */
bool srt_rendezvous_send(int to, const srt_frame_t *frame, const void *payload, int fd);
/* State HANDING: sends as much as the ranks' sockets take. */
void srt_rendezvous_hand_out(srt_rendezvous_t *rdv);
/* Without descriptors for all ranks the job cannot start: fails all ranks. */
void srt_rendezvous_fail_descriptors(srt_rendezvous_t *rdv, const char *action, int err);

#endif
