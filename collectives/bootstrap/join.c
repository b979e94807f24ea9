/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joining, a rank's side: hello to the server of the node -> one socket to each other rank of the
 * node, and the nodes of all ranks. Every step has a deadline. The server reports the missing
 * ranks. This side gives up some seconds later, in case the server does not answer.
 */
#include "collectives/bootstrap/join.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "collectives/bootstrap/wire.h"

/* How much later than the server this side gives up. */
#define GRACE_S 3.0

/* Checks that the launcher belongs to the user of this process. */
static srt_status_t check_owner(int fd, int rank, int *pid)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) != 0)
		return srt_fail(
			SRT_ERR_SYSTEM,
			"rank %d: cannot read the owner of the socket of the node's server: %s",
			rank, strerror(errno));
	if (cred.uid != geteuid())
		return srt_fail(
			SRT_ERR_SYSTEM,
			"rank %d: the socket of the node's server belongs to user %ld, not to user %ld",
			rank, (long)cred.uid, (long)geteuid());
	*pid = (int)cred.pid;
	return SRT_OK;
}

static srt_status_t connect_server(srt_join_t *b, const char *address, double deadline, int *out)
{
	struct sockaddr_un sun;
	const socklen_t length = srt_wire_parse_address(address, &sun);
	srt_status_t status;
	int fd;

	if (length == 0)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"bootstrap address \"%s\" is not of the form " SRT_WIRE_ADDRESS_PREFIX
			"NAME; start the program with shardrun, or clear SHARDRT_BOOTSTRAP "
			"to run one rank alone",
			address);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return srt_fail(SRT_ERR_SYSTEM, "rank %d: cannot make a socket: %s", b->rank,
				strerror(errno));
	while (connect(fd, (struct sockaddr *)&sun, length) != 0) {
		/* EAGAIN: the backlog is full for the moment. Refused: the process that took the
		 * name does not listen yet, or has ended. */
		if ((errno == EAGAIN || errno == EINTR ||
		     (errno == ECONNREFUSED && b->is_patient)) &&
		    srt_awake_s() < deadline) {
			nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
			continue;
		}
		status = srt_fail(SRT_ERR_SYSTEM,
				  "rank %d: cannot reach the launcher at %s: %s; it has ended, or "
				  "SHARDRT_BOOTSTRAP is left from an earlier job",
				  b->rank, address, strerror(errno));
		goto close_fd;
	}
	status = check_owner(fd, b->rank, &b->server_pid);
	if (status != SRT_OK)
		goto close_fd;
	*out = fd;
	return SRT_OK;

close_fd:
	close(fd);
	return status;
}

static srt_status_t say_hello(const srt_join_t *b, int fd)
{
	double ms = b->timeout_s * 1000;
	srt_frame_t hello = srt_frame_make(SRT_FRAME_HELLO, b->rank, 0, 0);

	hello.world_size = (uint32_t)b->world_size;
	hello.timeout_ms = ms < 1 ? 1 : ms > 4e9 ? 4000000000u : (uint32_t)ms;
	if (srt_frame_send(fd, &hello, NULL, -1) < 0)
		return srt_fail(SRT_ERR_SYSTEM, "rank %d: cannot send to the launcher: %s", b->rank,
				strerror(errno));
	return SRT_OK;
}

/* Waits for one reply. *fd = the descriptor that came with it or -1. */
static srt_status_t read_reply(const srt_join_t *b, int launcher, double deadline,
			       srt_join_frame_t *reply, int *fd)
{
	unsigned char message[sizeof(*reply)];
	ssize_t n;

	for (;;) {
		srt_wire_attached_t attached;
		double left_s = deadline - srt_awake_s();
		n = srt_wire_receive(launcher, message, sizeof(message), &attached);
		if (n >= 0) {
			*fd = attached.fd;
			if (attached.flags & MSG_CTRUNC)
				return srt_fail(SRT_ERR_SYSTEM,
						"rank %d: cannot receive the sockets of %d ranks; "
						"raise the limit of open files (ulimit -n)",
						b->rank, b->world_size);
			break;
		}
		if (errno == EINTR || errno == ECONNRESET)
			continue;
		if (errno != EAGAIN && errno != EWOULDBLOCK)
			return srt_fail(SRT_ERR_SYSTEM,
					"rank %d: cannot read from the launcher: %s", b->rank,
					strerror(errno));
		if (left_s <= 0)
			return srt_fail(
				SRT_ERR_TIMEOUT,
				"rank %d: the launcher, or the server of its node, process %d, did not "
				"answer within %g s",
				b->rank, b->server_pid, b->timeout_s + GRACE_S);
		struct pollfd p = { .fd = launcher, .events = POLLIN };
		poll(&p, 1,
		     left_s * 1000 < SRT_AWAKE_SLICE_MS ? (int)(left_s * 1000) + 1 :
							  SRT_AWAKE_SLICE_MS);
	}
	if (n == 0)
		return srt_fail(
			SRT_ERR_SYSTEM,
			"rank %d: the launcher, or the server of its node, process %d, ended before all ranks had "
			"joined",
			b->rank, b->server_pid);
	if (!srt_frame_parse_joining(message, (size_t)n, reply))
		return srt_fail(
			SRT_ERR_SYSTEM,
			"rank %d: the launcher uses another version of the bootstrap protocol; "
			"use the shardrun of the same installation",
			b->rank);
	return SRT_OK;
}

/* Stores the nodes of some ranks. False if the message violates the protocol. */
static bool store_nodes(srt_join_t *b, const srt_join_frame_t *reply)
{
	int n;

	if (b->node_of == NULL)
		b->node_of = srt_calloc((size_t)b->world_size, sizeof(*b->node_of), "the nodes");
	if (b->node_of == NULL)
		return false;
	n = srt_frame_store_nodes(reply, b->world_size, b->node_of);
	b->nodes_until = (int)reply->head.first_rank + n;
	return n > 0;
}

/* Whether all that the server announces has come. */
static bool is_complete(const srt_join_t *b, const srt_frame_t *ready)
{
	if (ready->local_size != (uint32_t)b->nlocal || ready->src >= (uint32_t)b->world_size)
		return false;
	return b->node_of == NULL ? b->nlocal == b->world_size : b->nodes_until == b->world_size;
}

/* Receives the sockets to the peers and the nodes. */
static srt_status_t receive_all(srt_join_t *b, double deadline)
{
	for (;;) {
		srt_join_frame_t reply = { .head = { 0 } };
		const srt_frame_t *head = &reply.head;
		int fd = -1;
		bool good = false;
		srt_status_t status = read_reply(b, b->server, deadline, &reply, &fd);

		if (status == SRT_OK && head->type == SRT_FRAME_FAIL)
			status = srt_fail((srt_status_t)reply.reason.status,
					  "rank %d of %d cannot join: %s", b->rank, b->world_size,
					  reply.reason.text);
		if (status == SRT_OK && head->type == SRT_FRAME_READY && fd < 0 &&
		    is_complete(b, head)) {
			b->gateway = (int)head->src;
			return SRT_OK;
		}
		if (status == SRT_OK && head->type == SRT_FRAME_NODES && fd < 0)
			good = store_nodes(b, &reply);
		if (status == SRT_OK && head->type == SRT_FRAME_PEER && fd >= 0 &&
		    head->src < (uint32_t)b->world_size && head->src != (uint32_t)b->rank &&
		    b->fds[head->src] < 0) {
			b->fds[head->src] = fd;
			b->pid_of[head->src] = (int32_t)head->pid;
			b->nlocal++;
			good = true;
		}
		if (good)
			continue;
		if (fd >= 0)
			close(fd);
		if (status != SRT_OK)
			return status;
		return srt_fail(
			SRT_ERR_SYSTEM,
			"rank %d: the launcher, or the server of the node, sent an unexpected "
			"message "
			"(type %u, rank %u)",
			b->rank, (unsigned)head->type, (unsigned)head->src);
	}
}

srt_status_t srt_join_node(srt_join_t *b, const char *address)
{
	double deadline = srt_awake_s() + b->timeout_s + GRACE_S;
	srt_status_t status;

	b->nlocal = 1;
	b->server = -1;
	b->fds = srt_calloc((size_t)b->world_size, sizeof(*b->fds), "the sockets of the peers");
	b->pid_of = srt_calloc((size_t)b->world_size, sizeof(*b->pid_of), "the peers' processes");
	if (b->fds == NULL || b->pid_of == NULL) {
		free(b->fds);
		free(b->pid_of);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	for (int r = 0; r < b->world_size; r++)
		b->fds[r] = -1;
	status = connect_server(b, address, deadline, &b->server);
	if (status == SRT_OK)
		status = say_hello(b, b->server);
	if (status == SRT_OK)
		status = receive_all(b, deadline);
	if (status != SRT_OK)
		srt_join_undo(b);
	return status;
}

void srt_join_undo(srt_join_t *b)
{
	for (int r = 0; b->fds != NULL && r < b->world_size; r++) {
		if (b->fds[r] >= 0)
			close(b->fds[r]);
	}
	if (b->server >= 0)
		close(b->server);
	b->server = -1;
	free(b->node_of);
	free(b->pid_of);
	free(b->fds);
	b->node_of = NULL;
	b->pid_of = NULL;
	b->fds = NULL;
}
