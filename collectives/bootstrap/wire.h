/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank and the launcher say to each other: fixed-size messages over a SOCK_SEQPACKET Unix
 * socket in the abstract name space, both ends of the same user (SO_PEERCRED).
 *
 *     rank -> launcher    hello
 *     launcher -> rank    reply PEER, one for each other rank, with a connected socket attached
 *     launcher -> rank    reply READY: that was all; or
 *     launcher -> rank    reply FAIL: why the job cannot start, as a sentence
 *
 * Plain data, no library: included by collectives/bootstrap/bootstrap.c and by
 * collectives/bootstrap/rendezvous.c; by collectives/bootstrap/control_channel.c, whose messages
 * carry descriptors too.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_WIRE_H
#define SRT_COLLECTIVES_BOOTSTRAP_WIRE_H

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#define SRT_WIRE_MAGIC 0x53525442u
#define SRT_WIRE_VERSION 1u
/* A rank keeps one descriptor per peer: this stays below the usual limit of 1024. */
#define SRT_WIRE_MAX_WORLD 512
#define SRT_WIRE_ADDRESS_PREFIX "unix:@"

typedef enum srt_wire_type {
	SRT_WIRE_HELLO = 1,
	SRT_WIRE_PEER,
	SRT_WIRE_READY,
	SRT_WIRE_FAIL,
} srt_wire_type_t;

typedef struct srt_wire_hello {
	uint32_t magic, version, type;
	uint32_t rank, world_size;
	uint32_t local_rank, local_size;
	uint32_t timeout_ms; /* how long this rank is ready to wait for the others */
} srt_wire_hello_t;

typedef struct srt_wire_reply {
	uint32_t magic, version, type;
	uint32_t rank;   /* PEER: whose socket is attached */
	uint32_t status; /* FAIL: an srt_status_t */
	char text[236];  /* FAIL: the sentence, ends with 0 */
} srt_wire_reply_t;

_Static_assert(sizeof(srt_wire_hello_t) == 32, "no padding on the wire");
_Static_assert(sizeof(srt_wire_reply_t) == 256, "no padding on the wire");

typedef union srt_wire_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int))];
} srt_wire_control_t;

/* The descriptor goes with the message, by way of `control`. */
static inline void srt_wire_attach(struct msghdr *msg, srt_wire_control_t *control, int fd)
{
	struct cmsghdr *c;

	memset(control, 0, sizeof(*control));
	msg->msg_control = control->bytes;
	msg->msg_controllen = sizeof(control->bytes);
	c = CMSG_FIRSTHDR(msg);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
}

#endif
