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

#define HANDSHAKE_S 5.0
/* Connections that have not shown the token. The oldest one makes room for a new one. */
#define MAX_STRANGERS 64
#define ACCEPTS_PER_STEP 16
#define ACCEPT_RETRY_US 10000
#define MAX_WARNINGS 10 /* of refused connections */

typedef struct connection {
	srt_link_t *link; /* NULL = free */
	uint64_t order;   /* of the connections */
	double deadline;  /* of the handshake */
	bool is_open;     /* it has shown the token */
	bool has_ended;
	int carrier; /* -1 = not told yet */
	int node;    /* once all have joined */
} connection_t;

struct srt_root {
	int world_size;
	char token[129];
	int listener; /* -1 = closed */
	int port;
	double timeout_s, deadline;
	uint64_t naccepted;
	int nwarnings;
	int *of_rank; /* [world_size] connection of the rank's node, -1 = has not joined */
	int njoined;
	connection_t *connections; /* [nconnections] */
	int nconnections;
	uint16_t *node_of; /* [world_size] */
	int nnodes;
	bool has_told;            /* GO or FAIL is in the queues of all links */
	srt_join_frame_t failure; /* magic 0: none */
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
	int one = 1;

	SRT_TRY(srt_address_resolve_own(address, &where, &length));
	root->listener = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (root->listener >= 0)
		setsockopt(root->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (root->listener < 0 || bind(root->listener, (struct sockaddr *)&where, length) != 0 ||
	    listen(root->listener, SOMAXCONN) != 0)
		return srt_fail(SRT_ERR_SYSTEM,
				"rank 0 cannot listen on %s: %s; the address must be one of this "
				"host, and the port free",
				address, strerror(errno));
	length = sizeof(where);
	if (getsockname(root->listener, (struct sockaddr *)&where, &length) == 0)
		root->port = ntohs(where.ss_family == AF_INET6 ?
					   ((struct sockaddr_in6 *)(void *)&where)->sin6_port :
					   ((struct sockaddr_in *)(void *)&where)->sin_port);
	return SRT_OK;
}

srt_status_t srt_root_open(const char *address, int world_size, const char *token, double timeout_s,
			   srt_root_t **out)
{
	const size_t n = (size_t)world_size;
	srt_root_t *root = srt_calloc(1, sizeof(*root), "the connections of nodes");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (root == NULL)
		return status;
	root->listener = -1;
	root->world_size = world_size;
	root->timeout_s = timeout_s;
	root->deadline = srt_awake_s() + timeout_s;
	snprintf(root->token, sizeof(root->token), "%s", token);
	root->nconnections = world_size + MAX_STRANGERS;
	root->of_rank = srt_calloc(n, sizeof(*root->of_rank), "the connections of nodes");
	root->node_of = srt_calloc(n, sizeof(*root->node_of), "the connections of nodes");
	root->connections = srt_calloc((size_t)root->nconnections, sizeof(*root->connections),
				       "the connections of nodes");
	if (root->of_rank == NULL || root->node_of == NULL || root->connections == NULL)
		goto close_root;
	for (size_t r = 0; r < n; r++)
		root->of_rank[r] = -1;
	status = open_listener(root, address);
	if (status != SRT_OK)
		goto close_root;
	*out = root;
	return SRT_OK;

close_root:
	srt_root_close(root);
	return status;
}

void srt_root_close(srt_root_t *root)
{
	if (root == NULL)
		return;
	for (int i = 0; root->connections != NULL && i < root->nconnections; i++)
		srt_link_close(root->connections[i].link);
	if (root->listener >= 0)
		close(root->listener);
	free(root->connections);
	free(root->node_of);
	free(root->of_rank);
	free(root);
}

int srt_root_port(const srt_root_t *root)
{
	return root->port;
}

size_t srt_root_max_pollfds(const srt_root_t *root)
{
	return (size_t)root->nconnections + 1;
}

size_t srt_root_poll(const srt_root_t *root, struct pollfd *fds)
{
	size_t n = 0;

	if (root->listener >= 0)
		fds[n++] = (struct pollfd){ .fd = root->listener, .events = POLLIN };
	for (int i = 0; i < root->nconnections; i++) {
		srt_link_t *link = root->connections[i].link;

		if (link != NULL)
			fds[n++] = (struct pollfd){ .fd = srt_link_fd(link),
						    .events = srt_link_events(link) };
	}
	return n;
}

static void drop(connection_t *c)
{
	srt_link_close(c->link);
	*c = (connection_t){ .carrier = -1 };
}

void srt_root_fail(srt_root_t *root, srt_status_t status, const char *text)
{
	if (root->has_told)
		return;
	root->has_told = true;
	root->failure = srt_frame_make_failure(status, text);
	for (int i = 0; i < root->nconnections; i++) {
		if (root->connections[i].is_open)
			srt_root_send(root->connections[i].link, &root->failure);
	}
}

/* A place for a new connection: a free one, or that of the oldest stranger if they are many. */
static connection_t *find_place(srt_root_t *root)
{
	connection_t *oldest = NULL, *free_one = NULL;
	int nstrangers = 0;

	for (int i = 0; i < root->nconnections; i++) {
		connection_t *c = &root->connections[i];

		if (c->link == NULL) {
			free_one = c;
		} else if (!c->is_open) {
			nstrangers++;
			if (oldest == NULL || c->order < oldest->order)
				oldest = c;
		}
	}
	if (nstrangers < MAX_STRANGERS || oldest == NULL)
		return free_one;
	drop(oldest);
	return oldest;
}

static void accept_some(srt_root_t *root)
{
	for (int k = 0; k < ACCEPTS_PER_STEP && root->listener >= 0; k++) {
		int fd = accept4(root->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		connection_t *c;

		if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
			usleep(ACCEPT_RETRY_US); /* no descriptor: the listener stays readable */
		if (fd < 0)
			return;
		c = find_place(root);
		if (c == NULL) {
			close(fd);
			continue;
		}
		*c = (connection_t){ .link = srt_link_accept(fd, root->token),
				     .order = root->naccepted++,
				     .deadline = srt_awake_s() + HANDSHAKE_S,
				     .carrier = -1 };
	}
}

/* A message of a node that has shown the token. False if it breaks the protocol. */
static bool handle_message(srt_root_t *root, connection_t *c, const srt_join_frame_t *message)
{
	const int index = (int)(c - root->connections);
	const srt_frame_t *head = &message->head;
	char text[200];

	if (head->type == SRT_FRAME_FAIL && message->reason.status == SRT_ERR_TIMEOUT) {
		/* A node does not know which ranks the others have. */
		srt_wire_describe_missing(root->of_rank, root->world_size, root->timeout_s, text,
					  sizeof(text));
		srt_root_fail(root, SRT_ERR_TIMEOUT, text);
		return true;
	}
	if (head->type == SRT_FRAME_FAIL) {
		srt_root_fail(root, (srt_status_t)message->reason.status, message->reason.text);
		return true;
	}
	if (head->type == SRT_FRAME_HELLO && head->world_size != (uint32_t)root->world_size) {
		snprintf(text, sizeof(text),
			 "rank %u was started as one of %u ranks, rank 0 as one of %d; give all "
			 "ranks the same number (SHARDRT_WORLD_SIZE, or that of their launcher)",
			 (unsigned)head->src, (unsigned)head->world_size, root->world_size);
		srt_root_fail(root, SRT_ERR_INVALID_ARGUMENT, text);
		return true;
	}
	if (head->src >= (uint32_t)root->world_size)
		return root->has_told;
	if (head->type == SRT_FRAME_HELLO && c->carrier < 0) {
		c->carrier = (int)head->src;
		return true;
	}
	if (head->type != SRT_FRAME_JOINED || c->carrier < 0 || root->has_told)
		return root->has_told;
	if (root->of_rank[head->src] >= 0) {
		snprintf(text, sizeof(text),
			 "two processes are rank %u; do the nodes' numbers of ranks overlap, or is "
			 "an earlier job still running?",
			 (unsigned)head->src);
		srt_root_fail(root, SRT_ERR_INVALID_ARGUMENT, text);
		return true;
	}
	root->of_rank[head->src] = index;
	root->njoined++;
	return true;
}

static void step_connection(srt_root_t *root, connection_t *c)
{
	srt_link_state_t state = srt_link_step(c->link);
	srt_join_frame_t message;
	bool broken = false;
	char text[200];

	/* What comes now is for the control channel. */
	if (root->has_told && root->failure.head.magic == 0) {
		c->has_ended = state == SRT_LINK_CLOSED;
		return;
	}
	if (state == SRT_LINK_OPEN && !c->is_open) {
		c->is_open = true;
		if (root->failure.head.magic != 0)
			srt_root_send(c->link, &root->failure);
	}
	while (c->is_open && !broken && srt_root_receive(c->link, &message, &broken))
		broken = !handle_message(root, c, &message);
	if (c->carrier < 0 &&
	    (state == SRT_LINK_CLOSED || (!c->is_open && srt_awake_s() > c->deadline))) {
		if (state == SRT_LINK_CLOSED && root->nwarnings++ < MAX_WARNINGS)
			srt_log(SRT_LOG_WARN, "rank 0 refused a connection: %s",
				srt_link_why(c->link));
		drop(c);
	} else if (broken || state == SRT_LINK_CLOSED) {
		if (!root->has_told && c->carrier >= 0) {
			snprintf(text, sizeof(text),
				 "rank %d, the first of its node, left before all had joined",
				 c->carrier);
			srt_root_fail(root, SRT_ERR_PEER_DEAD, text);
		}
		drop(c);
	}
}

/* Numbers the nodes and tells them. */
static void start_job(srt_root_t *root)
{
	root->nnodes = 0;
	for (int i = 0; i < root->nconnections; i++)
		root->connections[i].node = -1;
	for (int r = 0; r < root->world_size; r++) {
		connection_t *c = &root->connections[root->of_rank[r]];

		if (c->node < 0)
			c->node = root->nnodes++;
		root->node_of[r] = (uint16_t)c->node;
	}
	root->connections[root->of_rank[0]].carrier = 0;
	for (int i = 0; i < root->nconnections; i++) {
		connection_t *c = &root->connections[i];
		srt_join_frame_t message;

		if (c->link == NULL || c->node < 0)
			continue;
		for (int r = 0; r < root->world_size; r += SRT_WIRE_NODES_NELEM) {
			message = srt_frame_make_nodes(root->node_of, root->world_size, r);
			srt_root_send(c->link, &message);
		}
		message.head = srt_frame_make(SRT_FRAME_READY, c->carrier, 0, 0);
		srt_root_send(c->link, &message);
	}
	root->has_told = true;
	close(root->listener);
	root->listener = -1;
	for (int i = 0; i < root->nconnections; i++) {
		if (root->connections[i].link != NULL && root->connections[i].node < 0)
			drop(&root->connections[i]);
	}
}

void srt_root_step(srt_root_t *root)
{
	char text[200];

	accept_some(root);
	for (int i = 0; i < root->nconnections; i++) {
		if (root->connections[i].link != NULL)
			step_connection(root, &root->connections[i]);
	}
	if (root->has_told)
		return;
	if (root->njoined == root->world_size) {
		start_job(root);
	} else if (srt_awake_s() > root->deadline) {
		srt_wire_describe_missing(root->of_rank, root->world_size, root->timeout_s, text,
					  sizeof(text));
		srt_root_fail(root, SRT_ERR_TIMEOUT, text);
	}
}

bool srt_root_is_complete(const srt_root_t *root)
{
	/* The control channel finds a link that has ended. */
	for (int i = 0; root->has_told && i < root->nconnections; i++) {
		const connection_t *c = &root->connections[i];

		if (c->is_open && !c->has_ended && srt_link_queued(c->link) > 0)
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
	for (int i = 0; i < root->nconnections; i++) {
		connection_t *c = &root->connections[i];

		if (c->link != NULL && c->node == node) {
			srt_link_t *link = c->link;

			*carrier = c->carrier;
			c->link = NULL;
			return link;
		}
	}
	return NULL;
}
