/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank 0's listener while a job of several nodes starts: see root.h. */
#include "collectives/bootstrap/root.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/bootstrap/address.h"
#include "collectives/bootstrap/server.h"

#define HANDSHAKE_S 5.0
/* Connections that have not shown the token. The oldest one makes room for a new one. */
#define MAX_STRANGERS 64
#define ACCEPTS_PER_STEP 16
#define MAX_WARNINGS 10 /* of refused connections */

/* A client's `rank` is the one that carries the node's messages. */
struct srt_root {
	srt_server_t server;
	char token[129];
	int port;
	double timeout_s, deadline;
	int nwarnings;
	uint16_t *node_of; /* [world_size] */
	int nnodes;
	bool has_told; /* READY or FAIL is in the queues of all links */
};

bool srt_root_send(srt_link_t *link, const srt_join_frame_t *message)
{
	return srt_link_send(link, &message->head, sizeof(message->head), message->node,
			     message->head.nbytes);
}

bool srt_root_receive(srt_link_t *link, srt_join_frame_t *message, bool *broken)
{
	size_t nbytes;
	const void *bytes = srt_link_receive(link, &nbytes);

	*broken = bytes != NULL && !srt_frame_parse_joining(bytes, nbytes, message);
	return bytes != NULL && !*broken;
}

static srt_status_t open_listener(srt_root_t *root, const char *address)
{
	struct sockaddr_storage where;
	socklen_t length;

	SRT_TRY(srt_address_resolve_own(address, &where, &length));
	if (!srt_server_listen(&root->server, SOCK_STREAM, (struct sockaddr *)&where, length))
		return srt_fail(SRT_ERR_SYSTEM,
				"rank 0 cannot listen on %s: %s; the address must be one of this "
				"host, and the port free",
				address, strerror(errno));
	length = sizeof(where);
	if (getsockname(root->server.listener, (struct sockaddr *)&where, &length) == 0)
		root->port = ntohs(where.ss_family == AF_INET6 ?
					   ((struct sockaddr_in6 *)(void *)&where)->sin6_port :
					   ((struct sockaddr_in *)(void *)&where)->sin_port);
	return SRT_OK;
}

srt_status_t srt_root_open(const char *address, int world_size, const char *token, double timeout_s,
			   srt_root_t **out)
{
	srt_root_t *root = srt_calloc(1, sizeof(*root), "the connections of nodes");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (root == NULL)
		return status;
	if (!srt_server_init(&root->server, world_size, world_size + MAX_STRANGERS))
		status = srt_fail(status, "out of memory: the connections of %d nodes", world_size);
	else
		root->node_of = srt_calloc((size_t)world_size, sizeof(*root->node_of),
					   "the connections of nodes");
	if (root->node_of == NULL)
		goto close_root;
	root->server.max_strangers = MAX_STRANGERS;
	root->server.hello_s = HANDSHAKE_S;
	root->timeout_s = timeout_s;
	root->deadline = srt_awake_s() + timeout_s;
	snprintf(root->token, sizeof(root->token), "%s", token);
	status = open_listener(root, address);
	if (status != SRT_OK)
		goto close_root;
	*out = root;
	return SRT_OK;

close_root:
	srt_root_close(root);
	return status;
}

static void drop(srt_client_t *c)
{
	srt_link_close(c->link);
	*c = (srt_client_t){ .fd = -1, .rank = -1 };
}

void srt_root_close(srt_root_t *root)
{
	if (root == NULL)
		return;
	for (int i = 0; root->server.clients != NULL && i < root->server.nclients; i++)
		drop(&root->server.clients[i]);
	srt_server_destroy(&root->server);
	free(root->node_of);
	free(root);
}

int srt_root_port(const srt_root_t *root)
{
	return root->port;
}

size_t srt_root_max_pollfds(const srt_root_t *root)
{
	return (size_t)root->server.nclients + 1;
}

size_t srt_root_poll(const srt_root_t *root, struct pollfd *fds)
{
	size_t n = 0;

	if (srt_server_can_accept(&root->server))
		fds[n++] = (struct pollfd){ .fd = root->server.listener, .events = POLLIN };
	for (int i = 0; i < root->server.nclients; i++) {
		srt_link_t *link = root->server.clients[i].link;

		if (link != NULL)
			fds[n++] = (struct pollfd){ .fd = srt_link_fd(link),
						    .events = srt_link_events(link) };
	}
	return n;
}

void srt_root_fail(srt_root_t *root, srt_status_t status, const char *text)
{
	if (root->has_told)
		return;
	root->has_told = true;
	root->server.failure = srt_frame_make_failure(status, text);
	for (int i = 0; i < root->server.nclients; i++) {
		if (root->server.clients[i].is_known)
			srt_root_send(root->server.clients[i].link, &root->server.failure);
	}
}

static void accept_some(srt_root_t *root)
{
	srt_client_t *c, stranger;
	int error;

	for (int k = 0; k < ACCEPTS_PER_STEP &&
			(c = srt_server_accept(&root->server, &stranger, &error)) != NULL;
	     k++) {
		drop(&stranger);
		c->link = srt_link_accept(c->fd, root->token);
		if (c->link == NULL)
			drop(c);
	}
}

/* A message of a node that has shown the token. False if it breaks the protocol. */
static bool handle_message(srt_root_t *root, srt_client_t *c, const srt_join_frame_t *message)
{
	const int index = (int)(c - root->server.clients);
	const srt_frame_t *head = &message->head;
	char text[200];

	if (head->type == SRT_FRAME_FAIL && message->reason.status == SRT_ERR_TIMEOUT) {
		/* A node does not know which ranks the others have. */
		srt_server_describe_missing(&root->server, root->timeout_s, text, sizeof(text));
		srt_root_fail(root, SRT_ERR_TIMEOUT, text);
		return true;
	}
	if (head->type == SRT_FRAME_FAIL) {
		srt_root_fail(root, (srt_status_t)message->reason.status, message->reason.text);
		return true;
	}
	if (head->type == SRT_FRAME_HELLO &&
	    head->world_size != (uint32_t)root->server.world_size) {
		snprintf(text, sizeof(text),
			 "rank %u was started as one of %u ranks, rank 0 as one of %d; give all "
			 "ranks the same number (SHARDRT_WORLD_SIZE, or that of their launcher)",
			 (unsigned)head->src, (unsigned)head->world_size, root->server.world_size);
		srt_root_fail(root, SRT_ERR_INVALID_ARGUMENT, text);
		return true;
	}
	if (head->src >= (uint32_t)root->server.world_size)
		return root->has_told;
	if (head->type == SRT_FRAME_HELLO && c->rank < 0) {
		c->rank = (int)head->src;
		return true;
	}
	if (head->type != SRT_FRAME_JOINED || c->rank < 0 || root->has_told)
		return root->has_told;
	if (root->server.of_rank[head->src] >= 0) {
		snprintf(text, sizeof(text),
			 "two processes are rank %u; do the nodes' numbers of ranks overlap, or is "
			 "an earlier job still running?",
			 (unsigned)head->src);
		srt_root_fail(root, SRT_ERR_INVALID_ARGUMENT, text);
		return true;
	}
	root->server.of_rank[head->src] = index;
	root->server.njoined++;
	return true;
}

static void step_connection(srt_root_t *root, srt_client_t *c)
{
	srt_link_state_t state = srt_link_step(c->link);
	srt_join_frame_t message;
	bool broken = false;
	char text[200];

	/* What comes now is for the control channel. */
	if (root->has_told && !srt_server_has_failed(&root->server)) {
		c->has_ended = state == SRT_LINK_CLOSED;
		return;
	}
	if (state == SRT_LINK_OPEN && !c->is_known) {
		c->is_known = true;
		if (srt_server_has_failed(&root->server))
			srt_root_send(c->link, &root->server.failure);
	}
	while (c->is_known && !broken && srt_root_receive(c->link, &message, &broken))
		broken = !handle_message(root, c, &message);
	if (c->rank < 0 &&
	    (state == SRT_LINK_CLOSED || (!c->is_known && srt_awake_s() > c->deadline))) {
		if (state == SRT_LINK_CLOSED && root->nwarnings++ < MAX_WARNINGS)
			srt_log(SRT_LOG_WARN, "rank 0 refused a connection: %s",
				srt_link_why(c->link));
		drop(c);
	} else if (broken || state == SRT_LINK_CLOSED) {
		if (!root->has_told && c->rank >= 0) {
			snprintf(text, sizeof(text),
				 "rank %d, the first of its node, left before all had joined",
				 c->rank);
			srt_root_fail(root, SRT_ERR_PEER_DEAD, text);
		}
		drop(c);
	}
}

/* Numbers the nodes and tells them. */
static void start_job(srt_root_t *root)
{
	root->nnodes = 0;
	for (int i = 0; i < root->server.nclients; i++)
		root->server.clients[i].node = -1;
	for (int r = 0; r < root->server.world_size; r++) {
		srt_client_t *c = &root->server.clients[root->server.of_rank[r]];

		if (c->node < 0)
			c->node = root->nnodes++;
		root->node_of[r] = (uint16_t)c->node;
	}
	root->server.clients[root->server.of_rank[0]].rank = 0;
	for (int i = 0; i < root->server.nclients; i++) {
		srt_client_t *c = &root->server.clients[i];
		srt_join_frame_t message;

		if (c->link == NULL || c->node < 0)
			continue;
		for (int r = 0; r < root->server.world_size; r += SRT_WIRE_NODES_NELEM) {
			message = srt_frame_make_nodes(root->node_of, root->server.world_size, r);
			srt_root_send(c->link, &message);
		}
		message.head = srt_frame_make(SRT_FRAME_READY, c->rank, 0, 0);
		srt_root_send(c->link, &message);
	}
	root->has_told = true;
	close(root->server.listener);
	root->server.listener = -1;
	for (int i = 0; i < root->server.nclients; i++) {
		if (root->server.clients[i].link != NULL && root->server.clients[i].node < 0)
			drop(&root->server.clients[i]);
	}
}

void srt_root_step(srt_root_t *root)
{
	char text[200];

	accept_some(root);
	for (int i = 0; i < root->server.nclients; i++) {
		if (root->server.clients[i].link != NULL)
			step_connection(root, &root->server.clients[i]);
	}
	if (root->has_told)
		return;
	if (root->server.njoined == root->server.world_size) {
		start_job(root);
	} else if (srt_awake_s() > root->deadline) {
		srt_server_describe_missing(&root->server, root->timeout_s, text, sizeof(text));
		srt_root_fail(root, SRT_ERR_TIMEOUT, text);
	}
}

bool srt_root_is_complete(const srt_root_t *root)
{
	/* The control channel finds a link that has ended. */
	for (int i = 0; root->has_told && i < root->server.nclients; i++) {
		const srt_client_t *c = &root->server.clients[i];

		if (c->is_known && !c->has_ended && srt_link_queued(c->link) > 0)
			return false;
	}
	return root->has_told;
}

int srt_root_nnodes(const srt_root_t *root)
{
	return root->nnodes;
}

srt_link_t *srt_root_take(srt_root_t *root, int node, int *carrier)
{
	for (int i = 0; i < root->server.nclients; i++) {
		srt_client_t *c = &root->server.clients[i];

		if (c->link != NULL && c->node == node) {
			srt_link_t *link = c->link;

			*carrier = c->rank;
			*c = (srt_client_t){ .fd = -1, .rank = -1 };
			return link;
		}
	}
	return NULL;
}
