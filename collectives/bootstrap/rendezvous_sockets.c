/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending replies, and a socket pair to each pair of ranks: see rendezvous_internal.h. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/bootstrap/rendezvous_internal.h"

bool srt_rendezvous_send(int to, const srt_frame_t *frame, const void *payload, int fd)
{
	ssize_t n;

	do {
		n = srt_frame_send(to, frame, payload, fd);
	} while (n < 0 && errno == EINTR);
	return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS &&
			  errno != ENOMEM && errno != ETOOMANYREFS);
}

/* Moves to the next pair of members. */
static void next_pair(srt_rendezvous_t *rdv)
{
	if (++rdv->right >= rdv->nmembers) {
		rdv->left++;
		rdv->right = rdv->left + 1;
	}
}

static srt_rendezvous_connection_t *connection_of(srt_rendezvous_t *rdv, int member)
{
	return &rdv->connections[rdv->of_rank[rdv->member[member]]];
}

/* Sends both ends of the current pair. False if it must be retried. */
static bool hand_pair(srt_rendezvous_t *rdv)
{
	const int member[2] = { rdv->left, rdv->right };

	if (rdv->pair[0] < 0 && rdv->pair[1] < 0 &&
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, rdv->pair) != 0) {
		srt_rendezvous_fail_descriptors(rdv, "make sockets for the ranks", errno);
		return false;
	}
	for (int k = 0; k < 2; k++) {
		if (rdv->pair[k] < 0)
			continue;
		srt_frame_t reply =
			srt_frame_make(SRT_FRAME_PEER, rdv->member[member[1 - k]], 0, 0);

		reply.pid = (uint32_t)connection_of(rdv, member[1 - k])->pid;
		if (!srt_rendezvous_send(connection_of(rdv, member[k])->fd, &reply, NULL,
					 rdv->pair[k]))
			return false;
		close(rdv->pair[k]);
		rdv->pair[k] = -1;
	}
	return true;
}

/* Sends a member the nodes of all ranks. False if it must be retried. */
static bool hand_nodes(srt_rendezvous_t *rdv, int fd)
{
	while (rdv->node_of != NULL && rdv->next_rank < rdv->world_size) {
		const srt_join_frame_t reply =
			srt_frame_make_nodes(rdv->node_of, rdv->world_size, rdv->next_rank);

		if (!srt_rendezvous_send(fd, &reply.head, reply.node, -1))
			return false;
		rdv->next_rank += (int)SRT_WIRE_NODES_NELEM;
	}
	return true;
}

void srt_rendezvous_hand_out(srt_rendezvous_t *rdv)
{
	srt_frame_t ready = srt_frame_make(SRT_FRAME_READY, rdv->gateway, 0, 0);

	ready.local_size = (uint32_t)rdv->nmembers;
	while (rdv->right < rdv->nmembers) {
		if (!hand_pair(rdv))
			return;
		next_pair(rdv);
	}
	/* Now `left` iterates over the members that receive READY. */
	for (; rdv->left < 2 * rdv->nmembers - 1; rdv->left++) {
		int member = rdv->left - (rdv->nmembers - 1);
		srt_rendezvous_connection_t *c = connection_of(rdv, member);

		if (!hand_nodes(rdv, c->fd) || !srt_rendezvous_send(c->fd, &ready, NULL, -1))
			return;
		rdv->next_rank = 0;
		c->complete = true;
		rdv->of_rank[rdv->member[member]] = -1;
		rdv->njoined--;
	}
	rdv->is_complete = true;
	rdv->state = COLLECTING;
}
