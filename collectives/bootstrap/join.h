/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining through the server of the node, which is shardrun or a rank (wire.h). */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_JOIN_H
#define SRT_COLLECTIVES_BOOTSTRAP_JOIN_H

#include "base/base.h"

typedef struct srt_join {
	/* What the rank says: */
	int rank, world_size;
	double timeout_s;
	bool is_patient; /* a server that does not listen may do so soon */
	/* What it is told: */
	int server;        /* the connection */
	int server_pid;    /* its process */
	int *fds;          /* [world_size] sockets to the ranks of this node, else -1 */
	int32_t *pid_of;   /* [world_size] the processes of the ranks of this node; else 0 */
	int nlocal;        /* ranks of this node */
	uint16_t *node_of; /* [world_size]; NULL: one node */
	int nodes_until;   /* how many of them have come */
	int gateway;       /* the rank of this node that carries messages to others */
} srt_join_t;

/* Connects to "unix:@NAME" and blocks until all ranks have joined. On failure nothing is left. */
srt_status_t srt_join_node(srt_join_t *join, const char *address);
/* Closes and frees what it was told. */
void srt_join_undo(srt_join_t *join);

#endif
