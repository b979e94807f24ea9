/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server of a node when no launcher is one: a thread of the process that was the first to take
 * the node's name in the abstract name space of Unix sockets. So a node is where processes can pass
 * each other memory, whatever its host is called. The thread runs the node's rendezvous, and tells
 * rank 0 which ranks the node has; in rank 0's process it also runs the root. It ends when all
 * ranks have what they need.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_NODE_H
#define SRT_COLLECTIVES_BOOTSTRAP_NODE_H

#include <shardrt/status.h>

#include "collectives/bootstrap/link.h"

typedef struct srt_node srt_node_t;

typedef struct srt_node_desc {
	int rank, world_size;
	const char *name;    /* of the abstract socket */
	const char *address; /* "HOST:PORT" of rank 0; NULL = the job has one node */
	const char *token;
	double timeout_s;
} srt_node_desc_t;

/* Rank 0 of a job of several nodes: opens the root. Else does nothing. *port = where it listens. */
srt_status_t srt_node_create(const srt_node_desc_t *desc, srt_node_t **node, int *port);
/* Tries to take the name. The thread runs if this process has it, or is rank 0 of several
 * nodes. */
srt_status_t srt_node_serve(srt_node_t *node);
/* Waits until the thread has done its work. If this rank has failed to join, ends it, and tells
 * the other nodes the last error as the reason. */
void srt_node_finish(srt_node_t *node, srt_status_t status);
/* After srt_node_finish(): the links that this process carries, and the ranks at their other ends.
 * Of rank 0, one to each other node, [srt_node_nlinks()], in the order of nodes; of the carrier of
 * another node, one to rank 0. */
int srt_node_nlinks(const srt_node_t *node);
srt_link_t *srt_node_take_link(srt_node_t *node, int i, int *carrier);
/* Closes what was not taken. NULL is allowed. */
void srt_node_destroy(srt_node_t *node);

#endif
