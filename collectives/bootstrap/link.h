/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A link: a TCP connection between the processes that carry the control messages of two nodes.
 *
 * Both ends know the job's token. Each proves it by an HMAC of the other's random challenge before
 * anything else is read, so a recorded handshake is of no use. Afterwards each message is encrypted
 * and authenticated, with keys of this connection (libsodium's secretstream): it cannot be read,
 * changed, repeated or left out. Messages have at most SRT_LINK_MAX bytes. Whatever violates this
 * ends the link.
 *
 *     client -> server    magic, version, challenge
 *     server -> client    challenge, HMAC over both
 *     client -> server    HMAC over both
 *     both                header of the stream, then messages: length (not encrypted), ciphertext
 *
 * Nothing blocks. A link is used by one thread at a time.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_LINK_H
#define SRT_COLLECTIVES_BOOTSTRAP_LINK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define SRT_LINK_MAX ((size_t)40960)

typedef struct srt_link srt_link_t;

typedef enum srt_link_state {
	SRT_LINK_HANDSHAKE,
	SRT_LINK_OPEN,
	SRT_LINK_CLOSED, /* srt_link_why() */
} srt_link_state_t;

/* Whether this library was built with libsodium, which links need. */
bool srt_link_is_supported(void);

/* Takes a connected socket. NULL if there is no memory; the socket is then closed. `token` is
 * copied. */
srt_link_t *srt_link_accept(int fd, const char *token);
/* Connects. NULL on failure, with errno set. */
srt_link_t *srt_link_connect(const struct sockaddr *address, socklen_t length, const char *token);
/* Closes the connection at once. NULL is allowed. */
void srt_link_close(srt_link_t *link);

int srt_link_fd(const srt_link_t *link);
/* The events to wait for, besides the end of the connection. */
short srt_link_events(const srt_link_t *link);
/* Moves bytes both ways, as far as it goes without waiting. */
srt_link_state_t srt_link_step(srt_link_t *link);
/* Why the link is closed: "the other end does not know the job's token". */
const char *srt_link_why(const srt_link_t *link);

/* Appends a message of two parts to the queue, of an open link. False if there is no memory, or it
 * is too long. */
bool srt_link_send(srt_link_t *link, const void *head, size_t head_nbytes, const void *data,
		   size_t nbytes);
/* Bytes in the queue. */
size_t srt_link_queued(const srt_link_t *link);
/* The next message that has come, or NULL. Valid until the next call with the link. */
const void *srt_link_receive(srt_link_t *link, size_t *nbytes);

#endif
