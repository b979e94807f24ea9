/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server of a node: see collectives/bootstrap/rendezvous.h.
 *
 * States: collecting hellos; handing out sockets, one pair at a time, so that the server never
 * holds more than two of them; failed, which is final: late ranks receive the same message. A rank
 * stays connected until it leaves the job, so that a second process which claims its number is
 * refused at once. A process that connects belongs to the same user (SO_PEERCRED) but is not
 * trusted: sizes are fixed, and the number of connections is limited. If none is free, one without
 * a hello makes room.
 */
#include "collectives/bootstrap/rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "collectives/bootstrap/server.h"

#define HELLO_S 10.0 /* after this a connection without a hello may be dropped for another */
#define SPARE_CONNECTIONS 16
#define RETRY_MS 5 /* while a rank's socket is full */
#define PART_GRACE_S 1.5

struct srt_rendezvous {
	srt_server_t server; /* of_rank: ranks that wait in this round */
	char address[64];
	char (*ended)[64]; /* how a rank's process ended, "" = it has not ended */
	enum { COLLECTING, HANDING, FAILED } state;
	bool is_part;            /* the job has other nodes */
	const uint16_t *node_of; /* of a part: the nodes of all ranks once they have joined */
	int gateway;
	bool is_complete;
	/* HANDING: the current pair, then the current rank */
	int nmembers;
	srt_client_t *left, *right;
	int next_rank; /* the first one of the next message NODES */
	int pair[2];   /* -1 once sent */
};

static bool open_listener(srt_rendezvous_t *rdv, const char *name)
{
	const size_t size = sizeof(rdv->address);
	struct sockaddr_un where;
	socklen_t length = 0;

	if (snprintf(rdv->address, size, SRT_WIRE_ADDRESS_PREFIX "%s", name) < (int)size)
		length = srt_wire_parse_address(rdv->address, &where);
	if (length == 0) {
		errno = EINVAL;
		return false;
	}
	return srt_server_listen(&rdv->server, SOCK_SEQPACKET, (struct sockaddr *)&where, length);
}

srt_rendezvous_t *srt_rendezvous_open(int world_size)
{
	char name[64] = "shardrt-";

	if (!srt_wire_random(name + strlen(name), 16))
		return NULL;
	return srt_rendezvous_open_name(name, world_size, false);
}

srt_rendezvous_t *srt_rendezvous_open_name(const char *name, int world_size, bool is_part)
{
	const int most = is_part ? SRT_WIRE_MAX_WORLD : SRT_WIRE_MAX_LOCAL;
	const int nclients = (world_size < SRT_WIRE_MAX_LOCAL ? world_size : SRT_WIRE_MAX_LOCAL) +
			     SPARE_CONNECTIONS;
	srt_rendezvous_t *rdv;

	if (world_size < 1 || world_size > most) {
		errno = EINVAL;
		return NULL;
	}
	rdv = calloc(1, sizeof(*rdv));
	if (rdv == NULL)
		return NULL;
	rdv->is_part = is_part;
	rdv->pair[0] = rdv->pair[1] = -1;
	rdv->ended = calloc((size_t)world_size, sizeof(*rdv->ended));
	if (!srt_server_init(&rdv->server, world_size, nclients) || rdv->ended == NULL)
		goto fail;
	rdv->server.hello_s = HELLO_S;
	if (!open_listener(rdv, name))
		goto fail;
	return rdv;

fail:;
	int saved = errno;
	srt_rendezvous_close(rdv);
	errno = saved;
	return NULL;
}

void srt_rendezvous_close(srt_rendezvous_t *rdv)
{
	if (rdv == NULL)
		return;
	for (int k = 0; k < 2; k++) {
		if (rdv->pair[k] >= 0)
			close(rdv->pair[k]);
	}
	srt_server_destroy(&rdv->server);
	free(rdv->ended);
	free(rdv);
}

const char *srt_rendezvous_address(const srt_rendezvous_t *rdv)
{
	return rdv->address;
}

size_t srt_rendezvous_max_pollfds(const srt_rendezvous_t *rdv)
{
	return (size_t)rdv->server.nclients + 1;
}

size_t srt_rendezvous_poll(const srt_rendezvous_t *rdv, struct pollfd *fds, int *timeout_ms)
{
	size_t n = 0;
	double now = srt_awake_s(), wait_s = *timeout_ms < 0 ? 1e9 : *timeout_ms * 1e-3;
	double next_s = 1e9;

	for (int i = 0; i < rdv->server.nclients; i++) {
		const srt_client_t *c = &rdv->server.clients[i];
		if (c->fd < 0)
			continue;
		/* Ranks send nothing while sockets are handed out. */
		if (rdv->state != HANDING || c->rank < 0)
			fds[n++] = (struct pollfd){ .fd = c->fd, .events = POLLIN };
		if (c->state != SRT_CLIENT_COMPLETE && (c->is_known || c->deadline > now) &&
		    c->deadline - now < next_s)
			next_s = c->deadline - now;
	}
	if (srt_server_can_accept(&rdv->server))
		fds[n++] = (struct pollfd){ .fd = rdv->server.listener, .events = POLLIN };
	else if (now < rdv->server.accept_at && rdv->server.accept_at - now < next_s)
		next_s = rdv->server.accept_at - now;
	/* The clock must be read often while a deadline is ahead. */
	if (next_s < 1e6 && next_s > SRT_AWAKE_SLICE_MS * 1e-3)
		next_s = SRT_AWAKE_SLICE_MS * 1e-3;
	if (rdv->state == HANDING)
		next_s = RETRY_MS * 1e-3;
	if (next_s < wait_s)
		wait_s = next_s;
	if (wait_s < 1e6)
		*timeout_ms = wait_s <= 0 ? 0 : (int)(wait_s * 1000) + 1;
	return n;
}

/* Sends a frame, with a descriptor unless fd is -1. False if it must be retried. A rank that has
 * ended counts as served: its peers see the end of its sockets. */
static bool send_frame(const srt_client_t *c, const srt_frame_t *frame, const void *payload, int fd)
{
	ssize_t n;

	do {
		n = srt_frame_send(c->fd, frame, payload, fd);
	} while (n < 0 && errno == EINTR);
	return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS &&
			  errno != ENOMEM && errno != ETOOMANYREFS);
}

static void drop_connection(srt_rendezvous_t *rdv, srt_client_t *c)
{
	if (c->rank >= 0 && c->state != SRT_CLIENT_COMPLETE) {
		rdv->server.of_rank[c->rank] = -1;
		rdv->server.njoined--;
	}
	close(c->fd);
	*c = (srt_client_t){ .fd = -1, .rank = -1 };
}

/* Sends a connection the reason why it cannot join, and closes it. */
static void refuse_connection(srt_rendezvous_t *rdv, srt_client_t *c, srt_status_t status,
			      const char *text)
{
	const srt_join_frame_t reply = srt_frame_make_failure(status, text);

	send_frame(c, &reply.head, &reply.reason, -1);
	drop_connection(rdv, c);
}

void srt_rendezvous_fail(srt_rendezvous_t *rdv, srt_status_t status, const char *text)
{
	rdv->state = FAILED;
	rdv->server.failure = srt_frame_make_failure(status, text);
	for (int i = 0; i < rdv->server.nclients; i++) {
		srt_client_t *c = &rdv->server.clients[i];
		if (c->fd >= 0 && c->rank >= 0 && c->state != SRT_CLIENT_COMPLETE)
			refuse_connection(rdv, c, status, text);
	}
}

/* Fails if a rank waits for a rank that has ended. */
static void check_ended(srt_rendezvous_t *rdv)
{
	char text[200];

	if (rdv->state != COLLECTING || rdv->server.njoined == 0 || rdv->is_part)
		return;
	for (int r = 0; r < rdv->server.world_size; r++) {
		if (rdv->server.of_rank[r] >= 0 || rdv->ended[r][0] == '\0')
			continue;
		snprintf(text, sizeof(text), "rank %d %s before it had joined", r, rdv->ended[r]);
		srt_rendezvous_fail(rdv, SRT_ERR_PEER_DEAD, text);
		return;
	}
}

void srt_rendezvous_rank_ended(srt_rendezvous_t *rdv, int rank, const char *how)
{
	snprintf(rdv->ended[rank], sizeof(rdv->ended[rank]), "%s", how);
	/* The rank's hello is no longer valid. */
	if (rdv->state == COLLECTING && rdv->server.of_rank[rank] >= 0)
		drop_connection(rdv, &rdv->server.clients[rdv->server.of_rank[rank]]);
	check_ended(rdv);
}

static void fail_missing(srt_rendezvous_t *rdv, double timeout_s)
{
	char text[200];

	srt_server_describe_missing(&rdv->server, timeout_s, text, sizeof(text));
	srt_rendezvous_fail(rdv, SRT_ERR_TIMEOUT, text);
}

static void fail_descriptors(srt_rendezvous_t *rdv, const char *action, int err)
{
	char text[200];

	snprintf(text, sizeof(text), "the server of the node cannot %s: %s%s", action,
		 strerror(err), err == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
	srt_rendezvous_fail(rdv, SRT_ERR_SYSTEM, text);
}

static void accept_all(srt_rendezvous_t *rdv)
{
	srt_client_t *c, silent;
	int error;

	while ((c = srt_server_accept(&rdv->server, &silent, &error)) != NULL) {
		struct ucred cred;
		socklen_t n = sizeof(cred);

		if (silent.fd >= 0)
			refuse_connection(rdv, &silent, SRT_ERR_TIMEOUT,
					  "no hello was received, and the connections are all in "
					  "use");
		if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) != 0 ||
		    cred.uid != geteuid())
			drop_connection(rdv, c);
		else
			c->pid = cred.pid;
	}
	if (error != 0 && rdv->state != FAILED && rdv->server.njoined > 0)
		fail_descriptors(rdv, "accept a rank", error);
}

/* Whether a process of that rank is connected. One that has left may not have been read yet. */
static bool is_taken(const srt_rendezvous_t *rdv, int rank)
{
	for (int i = 0; i < rdv->server.nclients; i++) {
		const srt_client_t *c = &rdv->server.clients[i];
		char byte;

		if (c->fd >= 0 && c->rank == rank &&
		    recv(c->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) != 0)
			return true;
	}
	return false;
}

/* Checks that a message is a hello of a missing rank. Returns the reason if not, else NULL. */
static const char *check_hello(const srt_rendezvous_t *rdv, const void *message, size_t nbytes,
			       srt_frame_t *hello, char *text, size_t text_size)
{
	const char *wrong = srt_frame_parse_hello(message, nbytes, rdv->server.world_size, hello,
						  text, text_size);

	if (wrong != NULL || !is_taken(rdv, (int)hello->src))
		return wrong;
	snprintf(text, text_size,
		 "rank %u has already joined; if this program was started by a rank, start "
		 "it with SHARDRT_BOOTSTRAP and SHARDRT_WORLD_SIZE cleared",
		 (unsigned)hello->src);
	return text;
}

static void read_connection(srt_rendezvous_t *rdv, srt_client_t *c)
{
	unsigned char message[sizeof(srt_frame_t)];
	srt_frame_t hello;
	char text[SRT_WIRE_TEXT + 64];
	struct iovec iov = { message, sizeof(message) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	/* Without a control buffer the kernel drops attached descriptors. */
	ssize_t n = recvmsg(c->fd, &msg, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (c->rank >= 0) { /* it sends nothing after its hello: it has ended, or violates the
	 * protocol */
		int rank = c->rank;
		bool waited = c->state != SRT_CLIENT_COMPLETE;
		drop_connection(rdv, c);
		if (waited && rdv->state == COLLECTING) {
			snprintf(text, sizeof(text), "rank %d left before all had joined", rank);
			srt_rendezvous_fail(rdv, SRT_ERR_PEER_DEAD, text);
		}
		return;
	}
	if (n <= 0) {
		drop_connection(rdv, c);
		return;
	}
	size_t nbytes = (msg.msg_flags & MSG_TRUNC) ? sizeof(message) + 1 : (size_t)n;
	const char *wrong = check_hello(rdv, message, nbytes, &hello, text, sizeof(text));
	if (wrong != NULL) {
		refuse_connection(rdv, c, SRT_ERR_INVALID_ARGUMENT, wrong);
		return;
	}
	if (rdv->state == FAILED) {
		snprintf(text, sizeof(text), "the job had failed before this rank came: %s",
			 rdv->server.failure.reason.text);
		refuse_connection(rdv, c, (srt_status_t)rdv->server.failure.reason.status, text);
		return;
	}
	if (rdv->state == COLLECTING && rdv->server.njoined == SRT_WIRE_MAX_LOCAL) {
		snprintf(
			text, sizeof(text),
			"more than %d ranks share a node; rank %u is one too many; start the job on more "
			"nodes",
			SRT_WIRE_MAX_LOCAL, (unsigned)hello.src);
		srt_rendezvous_fail(rdv, SRT_ERR_UNSUPPORTED, text);
		refuse_connection(rdv, c, SRT_ERR_UNSUPPORTED, text);
		return;
	}
	c->is_known = true;
	c->rank = (int)hello.src;
	c->timeout_s = (double)hello.timeout_ms * 1e-3;
	c->deadline = srt_awake_s() + c->timeout_s;
	rdv->server.of_rank[hello.src] = (int)(c - rdv->server.clients);
	rdv->ended[hello.src][0] = '\0'; /* a wrapper's child may run longer than the wrapper */
	rdv->server.njoined++;
}

/* ---- handing out --------------------------------------------------------------------------- */

/* The next connection that is handed out, after `c`; NULL = the first one. */
static srt_client_t *next_handed(srt_rendezvous_t *rdv, srt_client_t *c)
{
	c = c == NULL ? rdv->server.clients : c + 1;
	for (; c < rdv->server.clients + rdv->server.nclients; c++) {
		if (c->fd >= 0 && c->state == SRT_CLIENT_HANDED)
			return c;
	}
	return NULL;
}

static void begin_handing(srt_rendezvous_t *rdv)
{
	for (int r = 0; r < rdv->server.world_size; r++) {
		if (rdv->server.of_rank[r] >= 0)
			rdv->server.clients[rdv->server.of_rank[r]].state = SRT_CLIENT_HANDED;
	}
	rdv->nmembers = rdv->server.njoined;
	rdv->left = next_handed(rdv, NULL);
	rdv->right = rdv->left != NULL ? next_handed(rdv, rdv->left) : NULL;
	rdv->next_rank = 0;
	rdv->state = HANDING;
}

/* Sends both ends of the current pair. False if it must be retried. */
static bool hand_pair(srt_rendezvous_t *rdv)
{
	const srt_client_t *ends[2] = { rdv->left, rdv->right };

	if (rdv->pair[0] < 0 && rdv->pair[1] < 0 &&
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, rdv->pair) != 0) {
		fail_descriptors(rdv, "make sockets for the ranks", errno);
		return false;
	}
	for (int k = 0; k < 2; k++) {
		srt_frame_t reply = srt_frame_make(SRT_FRAME_PEER, ends[1 - k]->rank, 0, 0);

		reply.pid = (uint32_t)ends[1 - k]->pid;
		if (rdv->pair[k] >= 0) {
			if (!send_frame(ends[k], &reply, NULL, rdv->pair[k]))
				return false;
			close(rdv->pair[k]);
			rdv->pair[k] = -1;
		}
	}
	return true;
}

/* Sends a rank the nodes of all ranks. False if it must be retried. */
static bool hand_nodes(srt_rendezvous_t *rdv, const srt_client_t *c)
{
	while (rdv->node_of != NULL && rdv->next_rank < rdv->server.world_size) {
		const srt_join_frame_t reply =
			srt_frame_make_nodes(rdv->node_of, rdv->server.world_size, rdv->next_rank);

		if (!send_frame(c, &reply.head, reply.node, -1))
			return false;
		rdv->next_rank += (int)SRT_WIRE_NODES_NELEM;
	}
	return true;
}

/* Sends as much as the ranks' sockets take. */
static void hand_out(srt_rendezvous_t *rdv)
{
	srt_frame_t ready = srt_frame_make(SRT_FRAME_READY, rdv->gateway, 0, 0);
	srt_client_t *c;

	ready.local_size = (uint32_t)rdv->nmembers;
	while (rdv->right != NULL) {
		if (!hand_pair(rdv))
			return;
		rdv->right = next_handed(rdv, rdv->right);
		if (rdv->right == NULL) {
			rdv->left = next_handed(rdv, rdv->left);
			rdv->right = next_handed(rdv, rdv->left);
		}
	}
	while ((c = next_handed(rdv, NULL)) != NULL) {
		if (!hand_nodes(rdv, c) || !send_frame(c, &ready, NULL, -1))
			return;
		rdv->next_rank = 0;
		c->state = SRT_CLIENT_COMPLETE;
		rdv->server.of_rank[c->rank] = -1;
		rdv->server.njoined--;
	}
	rdv->is_complete = true;
	rdv->state = COLLECTING;
}

bool srt_rendezvous_has(const srt_rendezvous_t *rdv, int rank)
{
	return rdv->server.of_rank[rank] >= 0;
}

void srt_rendezvous_admit(srt_rendezvous_t *rdv, const uint16_t *node_of, int gateway)
{
	if (rdv->state != COLLECTING)
		return;
	rdv->node_of = node_of;
	rdv->gateway = gateway;
	begin_handing(rdv);
}

bool srt_rendezvous_is_complete(const srt_rendezvous_t *rdv)
{
	return rdv->is_complete;
}

const srt_join_frame_t *srt_rendezvous_failure(const srt_rendezvous_t *rdv)
{
	return rdv->state == FAILED ? &rdv->server.failure : NULL;
}

void srt_rendezvous_step(srt_rendezvous_t *rdv)
{
	double now = srt_awake_s();

	accept_all(rdv);
	for (int i = 0; i < rdv->server.nclients; i++) {
		srt_client_t *c = &rdv->server.clients[i];
		if (c->fd >= 0 && (rdv->state != HANDING || c->rank < 0))
			read_connection(rdv, c);
		/* In a part of a job, rank 0 knows which ranks are missing. */
		if (c->fd >= 0 && rdv->state != HANDING && c->rank >= 0 &&
		    c->state != SRT_CLIENT_COMPLETE &&
		    now > c->deadline + (rdv->is_part ? PART_GRACE_S : 0))
			fail_missing(rdv, c->timeout_s);
	}
	check_ended(rdv);
	if (rdv->state == COLLECTING && !rdv->is_part &&
	    rdv->server.njoined == rdv->server.world_size)
		begin_handing(rdv);
	if (rdv->state == HANDING)
		hand_out(rdv);
}
