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
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "collectives/bootstrap/rendezvous_internal.h"

#define HELLO_S 10.0 /* after this a connection without a hello may be dropped for another */
#define SPARE_CONNECTIONS 16
#define RETRY_MS 5 /* while a rank's socket is full */
#define ACCEPT_RETRY_S 0.5
#define PART_GRACE_S 1.5

static int open_listener(srt_rendezvous_t *rdv, const char *name)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	size_t length = strlen(name);

	if (length == 0 || length > sizeof(sun.sun_path) - 1 ||
	    snprintf(rdv->address, sizeof(rdv->address), SRT_WIRE_ADDRESS_PREFIX "%s", name) >=
		    (int)sizeof(rdv->address)) {
		errno = EINVAL;
		return -1;
	}
	/* sun_path[0] = 0: the abstract name space, in which no file must be removed. */
	memcpy(sun.sun_path + 1, name, length);
	rdv->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (rdv->listener < 0)
		return -1;
	if (bind(rdv->listener, (struct sockaddr *)&sun,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0)
		return -1;
	return listen(rdv->listener, (int)rdv->nconnections);
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
	srt_rendezvous_t *rdv;
	size_t n = (size_t)world_size;

	if (world_size < 1 || world_size > most) {
		errno = EINVAL;
		return NULL;
	}
	rdv = calloc(1, sizeof(*rdv));
	if (rdv == NULL)
		return NULL;
	rdv->world_size = world_size;
	rdv->is_part = is_part;
	rdv->listener = rdv->pair[0] = rdv->pair[1] = -1;
	rdv->nconnections = (n < SRT_WIRE_MAX_LOCAL ? n : SRT_WIRE_MAX_LOCAL) + SPARE_CONNECTIONS;
	rdv->connections = calloc(rdv->nconnections, sizeof(*rdv->connections));
	rdv->of_rank = calloc(n, sizeof(*rdv->of_rank));
	rdv->member = calloc(n, sizeof(*rdv->member));
	rdv->ended = calloc(n, sizeof(*rdv->ended));
	if (rdv->connections == NULL || rdv->of_rank == NULL || rdv->member == NULL ||
	    rdv->ended == NULL)
		goto fail;
	for (size_t i = 0; i < rdv->nconnections; i++)
		rdv->connections[i].fd = -1;
	for (size_t r = 0; r < n; r++)
		rdv->of_rank[r] = -1;
	if (open_listener(rdv, name) != 0)
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
	for (size_t i = 0; rdv->connections != NULL && i < rdv->nconnections; i++) {
		if (rdv->connections[i].fd >= 0)
			close(rdv->connections[i].fd);
	}
	for (int k = 0; k < 2; k++) {
		if (rdv->pair[k] >= 0)
			close(rdv->pair[k]);
	}
	if (rdv->listener >= 0)
		close(rdv->listener);
	free(rdv->ended);
	free(rdv->member);
	free(rdv->of_rank);
	free(rdv->connections);
	free(rdv);
}

const char *srt_rendezvous_address(const srt_rendezvous_t *rdv)
{
	return rdv->address;
}

size_t srt_rendezvous_max_pollfds(const srt_rendezvous_t *rdv)
{
	return rdv->nconnections + 1;
}

size_t srt_rendezvous_poll(const srt_rendezvous_t *rdv, struct pollfd *fds, int *timeout_ms)
{
	size_t n = 0;
	bool room = false;
	double now = srt_awake_s(), wait_s = *timeout_ms < 0 ? 1e9 : *timeout_ms * 1e-3;
	double next_s = 1e9;

	for (size_t i = 0; i < rdv->nconnections; i++) {
		const srt_rendezvous_connection_t *c = &rdv->connections[i];
		if (c->fd < 0) {
			room = true;
			continue;
		}
		/* Ranks send nothing while sockets are handed out. */
		if (rdv->state != HANDING || c->rank < 0)
			fds[n++] = (struct pollfd){ .fd = c->fd, .events = POLLIN };
		if (!c->complete && c->deadline - now < next_s)
			next_s = c->deadline - now;
	}
	if (room && now >= rdv->accept_at)
		fds[n++] = (struct pollfd){ .fd = rdv->listener, .events = POLLIN };
	else if (room && rdv->accept_at - now < next_s)
		next_s = rdv->accept_at - now;
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

static void drop_connection(srt_rendezvous_t *rdv, srt_rendezvous_connection_t *c)
{
	if (c->rank >= 0 && !c->complete) {
		rdv->of_rank[c->rank] = -1;
		rdv->njoined--;
	}
	close(c->fd);
	c->fd = -1;
	c->rank = -1;
}

/* Sends a connection the reason why it cannot join, and closes it. */
static void refuse_connection(srt_rendezvous_t *rdv, srt_rendezvous_connection_t *c,
			      srt_status_t status, const char *text)
{
	const srt_join_frame_t reply = srt_frame_make_failure(status, text);

	srt_rendezvous_send(c->fd, &reply.head, &reply.reason, -1);
	drop_connection(rdv, c);
}

void srt_rendezvous_fail(srt_rendezvous_t *rdv, int status, const char *text)
{
	rdv->state = FAILED;
	rdv->failure = srt_frame_make_failure((srt_status_t)status, text);
	for (size_t i = 0; i < rdv->nconnections; i++) {
		srt_rendezvous_connection_t *c = &rdv->connections[i];
		if (c->fd >= 0 && c->rank >= 0 && !c->complete)
			refuse_connection(rdv, c, (srt_status_t)status, text);
	}
}

/* Fails if a rank waits for a rank that has ended. */
static void check_ended(srt_rendezvous_t *rdv)
{
	char text[200];

	if (rdv->state != COLLECTING || rdv->njoined == 0 || rdv->is_part)
		return;
	for (int r = 0; r < rdv->world_size; r++) {
		if (rdv->of_rank[r] >= 0 || rdv->ended[r][0] == '\0')
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
	if (rdv->state == COLLECTING && rdv->of_rank[rank] >= 0)
		drop_connection(rdv, &rdv->connections[rdv->of_rank[rank]]);
	check_ended(rdv);
}

static void fail_missing(srt_rendezvous_t *rdv, double timeout_s)
{
	char text[200];

	srt_wire_describe_missing(rdv->of_rank, rdv->world_size, timeout_s, text, sizeof(text));
	srt_rendezvous_fail(rdv, SRT_ERR_TIMEOUT, text);
}

/* A free connection, or one whose process has not sent its hello for too long; else NULL. */
static srt_rendezvous_connection_t *find_free(srt_rendezvous_t *rdv)
{
	srt_rendezvous_connection_t *silent = NULL;

	for (size_t i = 0; i < rdv->nconnections; i++) {
		srt_rendezvous_connection_t *c = &rdv->connections[i];
		if (c->fd < 0)
			return c;
		if (c->rank < 0 && srt_awake_s() > c->deadline)
			silent = c;
	}
	if (silent != NULL)
		refuse_connection(rdv, silent, SRT_ERR_TIMEOUT,
				  "no hello was received, and the connections are all in use");
	return silent;
}

void srt_rendezvous_fail_descriptors(srt_rendezvous_t *rdv, const char *action, int err)
{
	char text[200];

	snprintf(text, sizeof(text), "the server of the node cannot %s: %s%s", action,
		 strerror(err), err == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
	srt_rendezvous_fail(rdv, SRT_ERR_SYSTEM, text);
}

static void accept_all(srt_rendezvous_t *rdv)
{
	srt_rendezvous_connection_t *c;

	while (srt_awake_s() >= rdv->accept_at && (c = find_free(rdv)) != NULL) {
		struct ucred cred;
		socklen_t n = sizeof(cred);
		int fd = accept4(rdv->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (fd < 0) {
			/* The listener stays readable: poll() would not wait. */
			rdv->accept_at = srt_awake_s() + ACCEPT_RETRY_S;
			if (rdv->state != FAILED && rdv->njoined > 0)
				srt_rendezvous_fail_descriptors(rdv, "accept a rank", errno);
			return;
		}
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) != 0 ||
		    cred.uid != geteuid()) {
			close(fd);
			continue;
		}
		*c = (srt_rendezvous_connection_t){
			.fd = fd, .rank = -1, .pid = cred.pid, .deadline = srt_awake_s() + HELLO_S
		};
	}
}

/* Whether a process of that rank is connected. One that has left may not have been read yet. */
static bool is_taken(const srt_rendezvous_t *rdv, int rank)
{
	for (size_t i = 0; i < rdv->nconnections; i++) {
		const srt_rendezvous_connection_t *c = &rdv->connections[i];
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
	const char *wrong =
		srt_frame_parse_hello(message, nbytes, rdv->world_size, hello, text, text_size);

	if (wrong != NULL || !is_taken(rdv, (int)hello->src))
		return wrong;
	snprintf(text, text_size,
		 "rank %u has already joined; if this program was started by a rank, start "
		 "it with SHARDRT_BOOTSTRAP and SHARDRT_WORLD_SIZE cleared",
		 (unsigned)hello->src);
	return text;
}

static void read_connection(srt_rendezvous_t *rdv, srt_rendezvous_connection_t *c)
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
		bool waited = !c->complete;
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
			 rdv->failure.reason.text);
		refuse_connection(rdv, c, (srt_status_t)rdv->failure.reason.status, text);
		return;
	}
	if (rdv->state == COLLECTING && rdv->njoined == SRT_WIRE_MAX_LOCAL) {
		snprintf(
			text, sizeof(text),
			"more than %d ranks share a node; rank %u is one too many; start the job on more "
			"nodes",
			SRT_WIRE_MAX_LOCAL, (unsigned)hello.src);
		srt_rendezvous_fail(rdv, SRT_ERR_UNSUPPORTED, text);
		refuse_connection(rdv, c, SRT_ERR_UNSUPPORTED, text);
		return;
	}
	c->rank = (int)hello.src;
	c->timeout_s = (double)hello.timeout_ms * 1e-3;
	c->deadline = srt_awake_s() + c->timeout_s;
	rdv->of_rank[hello.src] = (int)(c - rdv->connections);
	rdv->ended[hello.src][0] = '\0'; /* a wrapper's child may run longer than the wrapper */
	rdv->njoined++;
}

static void begin_handing(srt_rendezvous_t *rdv)
{
	rdv->nmembers = 0;
	for (int r = 0; r < rdv->world_size; r++) {
		if (rdv->of_rank[r] >= 0)
			rdv->member[rdv->nmembers++] = r;
	}
	rdv->left = rdv->next_rank = 0;
	rdv->right = 1;
	rdv->state = HANDING;
}

bool srt_rendezvous_has(const srt_rendezvous_t *rdv, int rank, double *timeout_s)
{
	if (rdv->of_rank[rank] < 0)
		return false;
	*timeout_s = rdv->connections[rdv->of_rank[rank]].timeout_s;
	return true;
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

const char *srt_rendezvous_failure(const srt_rendezvous_t *rdv, int *status)
{
	if (rdv->state != FAILED)
		return NULL;
	*status = (int)rdv->failure.reason.status;
	return rdv->failure.reason.text;
}

void srt_rendezvous_step(srt_rendezvous_t *rdv)
{
	double now = srt_awake_s();

	accept_all(rdv);
	for (size_t i = 0; i < rdv->nconnections; i++) {
		srt_rendezvous_connection_t *c = &rdv->connections[i];
		if (c->fd >= 0 && (rdv->state != HANDING || c->rank < 0))
			read_connection(rdv, c);
		/* In a part of a job, rank 0 knows which ranks are missing. */
		if (c->fd >= 0 && rdv->state != HANDING && c->rank >= 0 && !c->complete &&
		    now > c->deadline + (rdv->is_part ? PART_GRACE_S : 0))
			fail_missing(rdv, c->timeout_s);
	}
	check_ended(rdv);
	if (rdv->state == COLLECTING && !rdv->is_part && rdv->njoined == rdv->world_size)
		begin_handing(rdv);
	if (rdv->state == HANDING)
		srt_rendezvous_hand_out(rdv);
}
