/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending replies, and a socket pair to each pair of ranks: see rendezvous_internal.h. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "collectives/bootstrap/rendezvous_internal.h"

bool srt_rendezvous_send(int to, const srt_wire_reply_t *reply, int fd)
{
	srt_wire_control_t control;
	struct iovec iov = { (void *)(uintptr_t)reply, sizeof(*reply) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (fd >= 0)
		srt_wire_attach(&msg, &control, fd);
	do {
		n = sendmsg(to, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS &&
			  errno != ENOMEM && errno != ETOOMANYREFS);
}

srt_wire_reply_t srt_rendezvous_reply(srt_wire_type_t type, int rank)
{
	return (srt_wire_reply_t){
		.magic = SRT_WIRE_MAGIC,
		.version = SRT_WIRE_VERSION,
		.type = (uint32_t)type,
		.rank = (uint32_t)rank,
	};
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
		srt_wire_reply_t reply =
			srt_rendezvous_reply(SRT_WIRE_PEER, rdv->member[member[1 - k]]);

		reply.pid = (uint32_t)connection_of(rdv, member[1 - k])->pid;
		if (!srt_rendezvous_send(connection_of(rdv, member[k])->fd, &reply, rdv->pair[k]))
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
		srt_wire_reply_t reply = srt_rendezvous_reply(SRT_WIRE_NODES, rdv->next_rank);
		int n = rdv->world_size - rdv->next_rank;

		if (n > (int)SRT_WIRE_NODES_NELEM)
			n = (int)SRT_WIRE_NODES_NELEM;
		memcpy(reply.node, rdv->node_of + rdv->next_rank,
		       (size_t)n * sizeof(reply.node[0]));
		if (!srt_rendezvous_send(fd, &reply, -1))
			return false;
		rdv->next_rank += n;
	}
	return true;
}

void srt_rendezvous_hand_out(srt_rendezvous_t *rdv)
{
	srt_wire_reply_t ready = srt_rendezvous_reply(SRT_WIRE_READY, rdv->gateway);

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

		if (!hand_nodes(rdv, c->fd) || !srt_rendezvous_send(c->fd, &ready, -1))
			return;
		rdv->next_rank = 0;
		c->complete = true;
		rdv->of_rank[rdv->member[member]] = -1;
		rdv->njoined--;
	}
	rdv->is_complete = true;
	rdv->state = COLLECTING;
}
