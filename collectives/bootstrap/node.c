/* SPDX-License-Identifier: BSD-3-Clause */
/* The server of a node in one of its ranks: see node.h. */
#include "collectives/bootstrap/node.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "collectives/bootstrap/address.h"
#include "collectives/bootstrap/rendezvous.h"
#include "collectives/bootstrap/root.h"

#define SLICE_MS 20 /* between attempts to connect, and checks of deadlines */

struct srt_node {
	srt_node_desc_t desc;
	srt_rendezvous_t *rdv; /* NULL: another process has the name */
	srt_root_t *root;      /* NULL: not rank 0, or one node */
	pthread_t thread;
	bool has_thread;
	atomic_bool stops, has_joined; /* of this rank */
	/* Used by the thread only, until it has ended: */
	srt_link_t *up; /* to rank 0 */
	struct sockaddr_storage up_address;
	socklen_t up_length;
	double deadline;
	bool has_told_node, has_told_failure, has_go;
	bool *has_told; /* [world_size] JOINED was sent */
	uint16_t *node_of;
	struct pollfd *fds;
};

srt_status_t srt_node_create(const srt_node_desc_t *desc, srt_node_t **out, int *port)
{
	const size_t n = (size_t)desc->world_size;
	srt_node_t *node = srt_calloc(1, sizeof(*node), "the server of a node");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (node == NULL)
		return status;
	node->desc = *desc;
	node->deadline = srt_awake_s() + desc->timeout_s;
	node->has_told = srt_calloc(n, sizeof(*node->has_told), "the server of a node");
	node->node_of = srt_calloc(n, sizeof(*node->node_of), "the server of a node");
	if (node->has_told == NULL || node->node_of == NULL)
		goto destroy_node;
	status = SRT_OK;
	if (desc->address != NULL && desc->rank == 0) {
		status = srt_root_open(desc->address, desc->world_size, desc->token,
				       desc->timeout_s, &node->root);
		if (status == SRT_OK)
			*port = srt_root_port(node->root);
	}
	if (status != SRT_OK)
		goto destroy_node;
	*out = node;
	return SRT_OK;

destroy_node:
	srt_node_destroy(node);
	return status;
}

void srt_node_destroy(srt_node_t *node)
{
	if (node == NULL)
		return;
	srt_link_close(node->up);
	srt_root_close(node->root);
	srt_rendezvous_close(node->rdv);
	free(node->fds);
	free(node->node_of);
	free(node->has_told);
	free(node);
}

/* ---- the connection to rank 0 ------------------------------------------------------------- */

static void fail_node(srt_node_t *node, srt_status_t status, const char *text)
{
	if (srt_rendezvous_failure(node->rdv) == NULL)
		srt_rendezvous_fail(node->rdv, status, text);
	node->has_told_failure = true; /* it came from there, or there is no connection */
}

static void handle_message(srt_node_t *node, const srt_join_frame_t *message)
{
	switch (message->head.type) {
	case SRT_FRAME_FAIL:
		fail_node(node, (srt_status_t)message->reason.status, message->reason.text);
		return;
	case SRT_FRAME_NODES:
		(void)srt_frame_store_nodes(message, node->desc.world_size, node->node_of);
		return;
	case SRT_FRAME_READY:
		node->has_go = true;
		srt_rendezvous_admit(node->rdv, node->node_of, (int)message->head.src);
		return;
	default:
		fail_node(node, SRT_ERR_SYSTEM, "rank 0 broke the protocol of joining");
	}
}

/* Tells rank 0 about the ranks that have come, or why this node cannot start. */
static void report(srt_node_t *node)
{
	srt_join_frame_t message = { .head = srt_frame_make(SRT_FRAME_HELLO, node->desc.rank, 0,
							    0) };
	const srt_join_frame_t *failure = srt_rendezvous_failure(node->rdv);

	message.head.world_size = (uint32_t)node->desc.world_size;
	if (!node->has_told_node)
		node->has_told_node = srt_root_send(node->up, &message);
	for (int r = 0; node->has_told_node && r < node->desc.world_size; r++) {
		if (node->has_told[r] || !srt_rendezvous_has(node->rdv, r))
			continue;
		message.head = srt_frame_make(SRT_FRAME_JOINED, r, 0, 0);
		node->has_told[r] = srt_root_send(node->up, &message);
	}
	if (failure != NULL && !node->has_told_failure)
		node->has_told_failure = srt_root_send(node->up, failure);
}

/* The connection to rank 0 has ended, or there was none. */
static void lose_connection(srt_node_t *node)
{
	char text[256], why[96];

	snprintf(why, sizeof(why), "%s",
		 node->up != NULL ? srt_link_why(node->up) : strerror(errno));
	srt_link_close(node->up);
	node->up = NULL;
	/* Rank 0 may not listen yet. A wrong token does not get better. */
	if (!node->has_told_node && strstr(why, "token") == NULL &&
	    strstr(why, "version") == NULL && srt_awake_s() < node->deadline)
		return;
	snprintf(text, sizeof(text), "no connection to rank 0 at %s: %s", node->desc.address, why);
	fail_node(node, node->has_told_node ? SRT_ERR_PEER_DEAD : SRT_ERR_SYSTEM, text);
}

static void step_up(srt_node_t *node)
{
	srt_join_frame_t message;
	bool broken = false;
	srt_link_state_t state;

	if (node->has_go || (node->up == NULL && node->has_told_failure))
		return;
	if (node->up == NULL) {
		node->up = srt_link_connect((struct sockaddr *)&node->up_address, node->up_length,
					    node->desc.token);
		if (node->up == NULL)
			return lose_connection(node);
	}
	state = srt_link_step(node->up);
	if (state == SRT_LINK_OPEN)
		report(node);
	while (!node->has_go && !broken && srt_root_receive(node->up, &message, &broken))
		handle_message(node, &message);
	if (!node->has_go && state == SRT_LINK_CLOSED && srt_rendezvous_failure(node->rdv) == NULL)
		lose_connection(node);
}

/* ---- the thread --------------------------------------------------------------------------- */

static bool has_done_all(const srt_node_t *node)
{
	/* After a failure a rank that comes late is told the reason, until this rank gives up. */
	if (atomic_load(&node->has_joined) &&
	    (srt_awake_s() > node->deadline ||
	     (node->rdv != NULL && srt_rendezvous_failure(node->rdv) != NULL)))
		return true;
	return (node->root == NULL || srt_root_is_complete(node->root)) &&
	       (node->rdv == NULL || srt_rendezvous_is_complete(node->rdv));
}

static void *run(void *arg)
{
	srt_node_t *node = arg;

	while (!atomic_load(&node->stops) && !has_done_all(node)) {
		int timeout_ms = SLICE_MS;
		size_t n = 0;

		if (node->rdv != NULL)
			n += srt_rendezvous_poll(node->rdv, node->fds, &timeout_ms);
		if (node->root != NULL)
			n += srt_root_poll(node->root, node->fds + n);
		if (node->up != NULL && !node->has_go)
			node->fds[n++] = (struct pollfd){ .fd = srt_link_fd(node->up),
							  .events = srt_link_events(node->up) };
		poll(node->fds, (nfds_t)n, timeout_ms < SLICE_MS ? timeout_ms : SLICE_MS);
		if (node->rdv != NULL)
			srt_rendezvous_step(node->rdv);
		if (node->root != NULL)
			srt_root_step(node->root);
		if (node->rdv != NULL && node->desc.address != NULL)
			step_up(node);
	}
	return NULL;
}

static srt_status_t start_thread(srt_node_t *node)
{
	size_t n = 1 + (node->rdv != NULL ? srt_rendezvous_max_pollfds(node->rdv) : 0) +
		   (node->root != NULL ? srt_root_max_pollfds(node->root) : 0);
	int err;

	node->fds = srt_calloc(n, sizeof(*node->fds), "the server of a node");
	if (node->fds == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	err = srt_thread_create(&node->thread, run, node);
	if (err != 0)
		return srt_fail(SRT_ERR_SYSTEM, "rank %d: cannot start the thread of its node: %s",
				node->desc.rank, strerror(err));
	node->has_thread = true;
	return SRT_OK;
}

srt_status_t srt_node_serve(srt_node_t *node)
{
	if (node->desc.address != NULL)
		SRT_TRY(srt_address_resolve(node->desc.address, &node->up_address,
					    &node->up_length));
	node->rdv = srt_rendezvous_open_name(node->desc.name, node->desc.world_size,
					     node->desc.address != NULL);
	if (node->rdv == NULL && errno != EADDRINUSE)
		return srt_fail(SRT_ERR_SYSTEM, "rank %d cannot listen on the Unix socket @%s: %s",
				node->desc.rank, node->desc.name, strerror(errno));
	if (node->rdv == NULL && node->root == NULL)
		return SRT_OK;
	return start_thread(node);
}

/* Tells the other nodes, some of whose ranks may have joined: with the reason of a goodbye. */
static void leave(srt_node_t *node, srt_status_t status, const char *text)
{
	srt_frame_reason_t reason = { .status = (int32_t)status };
	const srt_frame_t frame =
		srt_frame_make(SRT_FRAME_GOODBYE, node->desc.rank, SRT_FRAME_ALL, sizeof(reason));

	snprintf(reason.text, sizeof(reason.text), "%s", text);
	for (int i = 0; i < srt_node_nlinks(node); i++) {
		int carrier;
		srt_link_t *link = srt_node_take_link(node, i, &carrier);

		if (link != NULL)
			srt_link_send(link, &frame, sizeof(frame), &reason, sizeof(reason));
		srt_link_close(link);
	}
}

void srt_node_finish(srt_node_t *node, srt_status_t status)
{
	atomic_store(status != SRT_OK ? &node->stops : &node->has_joined, true);
	if (node->has_thread)
		pthread_join(node->thread, NULL);
	node->has_thread = false;
	if (status == SRT_OK)
		return;
	if (node->root != NULL)
		srt_root_fail(node->root, status, srt_error_last());
	leave(node, status, srt_error_last());
}

int srt_node_nlinks(const srt_node_t *node)
{
	if (node->root != NULL)
		return srt_root_nnodes(node->root) - 1;
	return node->up != NULL && node->node_of[0] != node->node_of[node->desc.rank];
}

srt_link_t *srt_node_take_link(srt_node_t *node, int i, int *carrier)
{
	srt_link_t *up = node->up;

	if (node->root != NULL)
		return srt_root_take(node->root, i + 1, carrier);
	node->up = NULL;
	*carrier = 0;
	return up;
}
