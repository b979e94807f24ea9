/* SPDX-License-Identifier: BSD-3-Clause */
/* Links between nodes: see link.h. */
#include "collectives/bootstrap/link.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/bootstrap/seal.h"

#define LENGTH_NBYTES sizeof(uint32_t)
#define MAX_SEALED (SRT_LINK_MAX + SRT_SEAL_OVERHEAD)

typedef enum step {
	WAIT_CONNECTED, /* client */
	SHAKING_HANDS,
	WAIT_MESSAGE,
	ENDED,
} step_t;

struct srt_link {
	int fd;
	step_t step;
	bool was_open; /* the handshake is complete */
	bool is_deaf;  /* the other end does not take any more */
	const char *why;
	srt_seal_t *seal;
	unsigned char *out; /* queued: out[out_begin .. out_end) */
	size_t out_begin, out_end, out_nbytes;
	size_t in_end, in_begin; /* received and not used: in[in_begin .. in_end) */
	unsigned char in[2 * (LENGTH_NBYTES + MAX_SEALED)];
	unsigned char message[SRT_LINK_MAX];
};

bool srt_link_is_supported(void)
{
	return srt_seal_is_supported();
}

static void end_link(srt_link_t *link, const char *why)
{
	if (link->step == ENDED)
		return;
	link->step = ENDED;
	link->why = why;
}

/* Appends bytes to the queue as they are. */
static bool append(srt_link_t *link, const void *data, size_t nbytes)
{
	if (link->out_begin == link->out_end)
		link->out_begin = link->out_end = 0;
	if (link->out_end + nbytes > link->out_nbytes && link->out_begin > 0) {
		memmove(link->out, link->out + link->out_begin, link->out_end - link->out_begin);
		link->out_end -= link->out_begin;
		link->out_begin = 0;
	}
	if (link->out_end + nbytes > link->out_nbytes) {
		size_t room = 2 * (link->out_end + nbytes);
		unsigned char *p = realloc(link->out, room);

		if (p == NULL)
			return false;
		link->out = p;
		link->out_nbytes = room;
	}
	memcpy(link->out + link->out_end, data, nbytes);
	link->out_end += nbytes;
	return true;
}

static srt_link_t *make_link(int fd, step_t step, srt_seal_role_t role, const char *token)
{
	srt_link_t *link = calloc(1, sizeof(*link));
	int one = 1;

	if (link != NULL)
		link->seal = srt_seal_create(role, token);
	if (link == NULL || link->seal == NULL) {
		free(link);
		close(fd);
		errno = ENOMEM;
		return NULL;
	}
	link->fd = fd;
	link->step = step;
	/* Control messages are small, and somebody waits for each. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return link;
}

srt_link_t *srt_link_accept(int fd, const char *token)
{
	return make_link(fd, SHAKING_HANDS, SRT_SEAL_SERVER, token);
}

srt_link_t *srt_link_connect(const struct sockaddr *address, socklen_t length, const char *token)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return NULL;
	if (connect(fd, address, length) != 0 && errno != EINPROGRESS) {
		int saved = errno;

		close(fd);
		errno = saved;
		return NULL;
	}
	return make_link(fd, WAIT_CONNECTED, SRT_SEAL_CLIENT, token);
}

void srt_link_close(srt_link_t *link)
{
	if (link == NULL)
		return;
	close(link->fd);
	srt_seal_destroy(link->seal);
	free(link->out);
	free(link);
}

int srt_link_fd(const srt_link_t *link)
{
	return link->fd;
}

short srt_link_events(const srt_link_t *link)
{
	const bool writes = link->step == WAIT_CONNECTED || link->out_begin < link->out_end;

	return (short)(POLLIN | POLLRDHUP | (writes ? POLLOUT : 0));
}

const char *srt_link_why(const srt_link_t *link)
{
	return link->why;
}

size_t srt_link_queued(const srt_link_t *link)
{
	return link->out_end - link->out_begin;
}

static void write_queue(srt_link_t *link)
{
	while (link->out_begin < link->out_end) {
		ssize_t n = send(link->fd, link->out + link->out_begin,
				 link->out_end - link->out_begin, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			link->out_begin += (size_t)n;
		else if (n < 0 && errno == EINTR)
			continue;
		else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS))
			return;
		else { /* what the other end has sent is still read, to the end */
			link->out_begin = link->out_end = 0;
			link->is_deaf = true;
		}
	}
}

/* Reads what is there and fits. */
static void read_socket(srt_link_t *link)
{
	ssize_t n;

	if (link->in_begin > 0) {
		memmove(link->in, link->in + link->in_begin, link->in_end - link->in_begin);
		link->in_end -= link->in_begin;
		link->in_begin = 0;
	}
	if (link->in_end == sizeof(link->in))
		return;
	do {
		n = recv(link->fd, link->in + link->in_end, sizeof(link->in) - link->in_end,
			 MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n > 0)
		link->in_end += (size_t)n;
	else if (n == 0)
		end_link(link, "the other end closed the connection");
	else if (errno != EAGAIN && errno != EWOULDBLOCK)
		end_link(link, "the connection was broken");
}

/* The next nbytes of what was received, or NULL if they are not there yet. */
static const unsigned char *take(srt_link_t *link, size_t nbytes)
{
	const unsigned char *p = link->in + link->in_begin;

	if (link->in_end - link->in_begin < nbytes)
		return NULL;
	link->in_begin += nbytes;
	return p;
}

/* ---- the handshake ------------------------------------------------------------------------ */

static void finish_connect(srt_link_t *link)
{
	int error = 0;
	socklen_t n = sizeof(error);
	struct sockaddr_storage peer;
	socklen_t peer_nbytes = sizeof(peer);

	if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 || error != 0)
		return end_link(link, error == ECONNREFUSED ? "the connection was refused" :
							      "there is no connection");
	if (getpeername(link->fd, (struct sockaddr *)&peer, &peer_nbytes) != 0)
		return; /* not yet */
	link->step = SHAKING_HANDS;
}

/* Takes the next part of the handshake, and answers. False if it is not there yet. */
static bool shake_hands(srt_link_t *link)
{
	unsigned char answer[SRT_SEAL_PART];
	const unsigned char *part;
	const char *why;
	size_t nbytes;

	if (link->step != SHAKING_HANDS)
		return false;
	part = take(link, srt_seal_expects(link->seal));
	if (part == NULL)
		return false;
	why = srt_seal_shake(link->seal, part, answer, &nbytes);
	if (why == NULL && !append(link, answer, nbytes))
		why = "there is no memory";
	if (why != NULL) {
		end_link(link, why);
	} else if (srt_seal_expects(link->seal) == SRT_SEAL_OPEN) {
		link->step = WAIT_MESSAGE;
		link->was_open = true;
	}
	return why == NULL;
}

srt_link_state_t srt_link_step(srt_link_t *link)
{
	if (link->step == WAIT_CONNECTED)
		finish_connect(link);
	if (link->step != ENDED && link->step != WAIT_CONNECTED)
		write_queue(link);
	if (link->step != ENDED && link->step != WAIT_CONNECTED)
		read_socket(link);
	while (shake_hands(link))
		write_queue(link);
	if (link->step == ENDED)
		return SRT_LINK_CLOSED;
	return link->step == WAIT_MESSAGE ? SRT_LINK_OPEN : SRT_LINK_HANDSHAKE;
}

/* ---- messages ------------------------------------------------------------------------------ */

bool srt_link_send(srt_link_t *link, const void *head, size_t head_nbytes, const void *data,
		   size_t nbytes)
{
	const size_t total = head_nbytes + nbytes;
	const uint32_t length = (uint32_t)(total + SRT_SEAL_OVERHEAD);
	unsigned char *plain;
	bool sent = false;

	if (total > SRT_LINK_MAX || link->step != WAIT_MESSAGE || link->is_deaf)
		return false;
	plain = malloc(total + LENGTH_NBYTES + length);
	if (plain != NULL) {
		unsigned char *sealed = plain + total;

		memcpy(plain, head, head_nbytes);
		if (nbytes > 0)
			memcpy(plain + head_nbytes, data, nbytes);
		memcpy(sealed, &length, sizeof(length));
		sent = srt_seal_message(link->seal, plain, total, sealed + LENGTH_NBYTES) &&
		       append(link, sealed, LENGTH_NBYTES + length);
		free(plain);
	}
	if (sent)
		write_queue(link);
	else
		end_link(link, "there is no memory"); /* the stream lacks this message */
	return sent;
}

const void *srt_link_receive(srt_link_t *link, size_t *nbytes)
{
	const unsigned char *p = link->in + link->in_begin;
	size_t have = link->in_end - link->in_begin;
	uint32_t length;

	if (have < LENGTH_NBYTES || !link->was_open)
		return NULL;
	memcpy(&length, p, sizeof(length));
	if (length < SRT_SEAL_OVERHEAD || length > MAX_SEALED) {
		end_link(link, "the other end broke the protocol");
		return NULL;
	}
	if (have < LENGTH_NBYTES + length)
		return NULL;
	link->in_begin += LENGTH_NBYTES + length;
	if (!srt_seal_open(link->seal, p + LENGTH_NBYTES, length, link->message)) {
		link->in_begin = link->in_end;
		end_link(link, "a message was changed on its way");
		return NULL;
	}
	*nbytes = length - SRT_SEAL_OVERHEAD;
	return link->message;
}
