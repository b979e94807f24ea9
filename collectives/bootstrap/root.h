/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rank 0's side of joining a job of several nodes: listens on one TCP address, to which the server
 * of each node connects (collectives/bootstrap/link.h), and learns which ranks each node has. When
 * it knows all ranks it numbers the nodes, by their lowest ranks, and tells every node (wire.h).
 *
 * Like the rendezvous, it has no thread and blocks nowhere. Anybody can connect: a connection that
 * does not show the job's token in time, or too many of them, are closed. After READY the listener
 * is closed, and the links become the control channel's.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_ROOT_H
#define SRT_COLLECTIVES_BOOTSTRAP_ROOT_H

#include <poll.h>
#include <stdint.h>

#include <shardrt/status.h>

#include "collectives/bootstrap/link.h"
#include "collectives/bootstrap/wire.h"

typedef struct srt_root srt_root_t;

/* Sends a message over an open link. */
bool srt_root_send(srt_link_t *link, const srt_join_frame_t *message);
/* The next message of a link. False if there is none; a message that is not one sets *broken. */
bool srt_root_receive(srt_link_t *link, srt_join_frame_t *message, bool *broken);

/* Listens on "HOST:PORT"; port 0 = any. On all addresses if HOST is a name of this host that leads
 * to a loopback address. */
srt_status_t srt_root_open(const char *address, int world_size, const char *token, double timeout_s,
			   srt_root_t **root);
/* Closes the links that were not taken. NULL is allowed. */
void srt_root_close(srt_root_t *root);
/* The port that it listens on. */
int srt_root_port(const srt_root_t *root);

/* Tells all nodes why the job cannot start, unless they were told something. */
void srt_root_fail(srt_root_t *root, srt_status_t status, const char *text);

size_t srt_root_max_pollfds(const srt_root_t *root);
size_t srt_root_poll(const srt_root_t *root, struct pollfd *fds);
void srt_root_step(srt_root_t *root);
/* All nodes were told, that the job starts or why it cannot. */
bool srt_root_is_complete(const srt_root_t *root);

int srt_root_nnodes(const srt_root_t *root);
/* The link to a node, which the caller then owns; and the rank that carries its messages. */
srt_link_t *srt_root_take(srt_root_t *root, int node, int *carrier);

#endif
