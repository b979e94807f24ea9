/* SPDX-License-Identifier: BSD-3-Clause */
/* The nodes of a model that have no ranks: they join rank 0 over links, as collectives/bootstrap/
 * node.c does, and end when the ranks of the first node have left: rank 0 waits for them. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/scale.h"
#include "collectives/bootstrap/control_channel_internal.h"
#include "collectives/bootstrap/root.h"

#define SLICE_MS 20

typedef struct far_node {
	srt_link_t *link;
	int ntold; /* of its ranks; 0: nothing was sent */
	int nleft; /* ranks of the first node that have said goodbye */
	bool has_go, has_ended;
} far_node_t;

/* Tells rank 0 of the node and its ranks. */
static void report(far_node_t *node, int world, int first, int nranks)
{
	srt_join_frame_t message = { .head = srt_frame_make(SRT_FRAME_HELLO, first, 0, 0) };

	message.head.world_size = (uint32_t)world;
	if (node->ntold == 0 && !srt_root_send(node->link, &message))
		return;
	for (; node->ntold < nranks; node->ntold++) {
		message.head = srt_frame_make(SRT_FRAME_JOINED, first + node->ntold, 0, 0);
		if (!srt_root_send(node->link, &message))
			return;
	}
}

static void read_messages(far_node_t *node)
{
	srt_join_frame_t message;
	const void *bytes;
	srt_frame_t frame;
	bool broken = false;
	size_t nbytes;

	while (!node->has_go && srt_root_receive(node->link, &message, &broken)) {
		node->has_go = message.head.type == SRT_FRAME_READY;
		if (message.head.type == SRT_FRAME_FAIL) {
			fprintf(stderr, "scale: rank 0 says: %s\n", message.reason.text);
			exit(1);
		}
	}
	while (node->has_go && (bytes = srt_link_receive(node->link, &nbytes)) != NULL)
		node->nleft +=
			srt_frame_parse(bytes, nbytes, &frame) && frame.type == SRT_FRAME_GOODBYE;
}

/* nnear: ranks of the first node. */
static void step(far_node_t *node, const struct sockaddr_in *address, int world, int nnear,
		 int first, int nranks)
{
	srt_link_state_t state;

	if (node->link == NULL)
		node->link =
			srt_link_connect((const struct sockaddr *)address, sizeof(*address), "");
	if (node->link == NULL)
		return;
	state = srt_link_step(node->link);
	if (state == SRT_LINK_OPEN && node->ntold < nranks)
		report(node, world, first, nranks);
	read_messages(node);
	if (state != SRT_LINK_CLOSED && node->nleft < nnear)
		return;
	/* Or rank 0 does not listen yet, or had too many connections at once. */
	srt_link_close(node->link);
	node->link = NULL;
	node->has_ended = node->has_go;
	node->ntold = 0;
}

void scale_nodes_run(int world, int node, int port)
{
	const struct sockaddr_in address = { .sin_family = AF_INET,
					     .sin_port = htons((uint16_t)port),
					     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const int n = (world + node - 1) / node - 1;
	far_node_t *nodes = calloc((size_t)n, sizeof(*nodes));
	struct pollfd *fds = calloc((size_t)n, sizeof(*fds));

	if (nodes == NULL || fds == NULL)
		exit(1);
	for (int nopen = n; nopen > 0;) {
		nfds_t nfds = 0;

		nopen = 0;
		for (int i = 0; i < n; i++) {
			const int first = (i + 1) * node;

			if (nodes[i].has_ended)
				continue;
			nopen++;
			step(&nodes[i], &address, world, node, first,
			     world - first < node ? world - first : node);
			if (nodes[i].link != NULL)
				fds[nfds++] =
					(struct pollfd){ .fd = srt_link_fd(nodes[i].link),
							 .events = srt_link_events(nodes[i].link) };
		}
		poll(fds, nfds, SLICE_MS);
	}
	free(fds);
	free(nodes);
}
