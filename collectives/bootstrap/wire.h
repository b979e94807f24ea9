/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The protocol of a rank and the server of its node, which is shardrun or one of the node's ranks:
 * messages of fixed size over a SOCK_SEQPACKET Unix socket in the abstract name space. Both ends
 * belong to the same user (SO_PEERCRED).
 *
 *     rank -> server    hello
 *     server -> rank    reply PEER, one for each other rank of the node, with a connected socket
 *     server -> rank    reply NODES: the nodes of some ranks; none in a job of one node
 *     server -> rank    reply READY: all was sent; or
 *     server -> rank    reply FAIL: why the job cannot start
 *
 * After READY the connection to shardrun stays open until the rank leaves the job.
 *
 * Independent of the library. Included by bootstrap.c, rendezvous.c and control_channel.c, whose
 * messages also carry descriptors.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_WIRE_H
#define SRT_COLLECTIVES_BOOTSTRAP_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#define SRT_WIRE_MAGIC 0x53525442u
#define SRT_WIRE_VERSION 2u
/* Ranks of a node: a rank keeps one descriptor for each other one, and the usual limit is 1024. */
#define SRT_WIRE_MAX_LOCAL 512
/* Ranks of a job: the number of a node has 16 bits. */
#define SRT_WIRE_MAX_WORLD 65536
#define SRT_WIRE_ADDRESS_PREFIX "unix:@"
/* Longest name after the prefix, with its 0. */
#define SRT_WIRE_NAME 100

typedef enum srt_wire_type {
	SRT_WIRE_HELLO = 1,
	SRT_WIRE_PEER,
	SRT_WIRE_NODES,
	SRT_WIRE_READY,
	SRT_WIRE_FAIL,
} srt_wire_type_t;

/* Ranks whose nodes one message has. */
#define SRT_WIRE_NODES_NELEM 118u

typedef struct srt_wire_hello {
	uint32_t magic, version, type;
	uint32_t rank, world_size;
	uint32_t local_rank, local_size;
	uint32_t timeout_ms; /* how long this rank waits for the others */
} srt_wire_hello_t;

typedef struct srt_wire_reply {
	uint32_t magic, version, type;
	uint32_t rank; /* PEER: the rank whose socket is attached; NODES: the first rank; READY: the
			* rank that carries messages to other nodes */
	union {
		uint32_t status;     /* FAIL: an srt_status_t */
		uint32_t local_size; /* READY: ranks of this node */
		uint32_t pid;        /* PEER: the process of `rank` */
	};
	union {
		char text[236];                      /* FAIL: the message, ends with 0 */
		uint16_t node[SRT_WIRE_NODES_NELEM]; /* NODES: of the ranks from `rank` */
	};
} srt_wire_reply_t;

_Static_assert(sizeof(srt_wire_hello_t) == 32, "no padding on the wire");
_Static_assert(sizeof(srt_wire_reply_t) == 256, "no padding on the wire");

/* Checks that a message of nbytes bytes is a hello of a job of world_size ranks. Returns the reason
 * if not, a constant or in `text`; else NULL. */
const char *srt_wire_parse_hello(const void *message, size_t nbytes, int world_size,
				 srt_wire_hello_t *hello, char *text, size_t text_size);
/* False if a message of nbytes bytes is not a reply of this version. The text of a FAIL ends with
 * 0. */
bool srt_wire_parse_reply(const void *message, size_t nbytes, srt_wire_reply_t *reply);
/* Writes random hex digits, two for each byte, and a 0. False if the system has none. */
bool srt_wire_random(char *digits, size_t nbytes);
/* "rank 2 did not join within 60 s", "ranks 1, 4 and 7 others did not ..."; those with of_rank < 0.
 */
void srt_wire_describe_missing(const int *of_rank, int world_size, double timeout_s, char *text,
			       size_t n);
/* Whether a reply to `rank` is PEER, with another rank of the job. */
bool srt_wire_is_peer(const srt_wire_reply_t *reply, int rank, int world_size);

typedef union srt_wire_control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int))];
} srt_wire_control_t;

/* Attaches a descriptor to the message; `control` is its buffer. */
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

/* What a message came with. */
typedef struct srt_wire_attached {
	int fd; /* its descriptor, or -1; further ones have been closed */
	int nfds;
	int flags; /* MSG_TRUNC: the message is longer; MSG_CTRUNC: a descriptor is lost */
} srt_wire_attached_t;

/* Receives a message as recvmsg() does, without blocking. */
ssize_t srt_wire_receive(int from, void *message, size_t nbytes, srt_wire_attached_t *attached);

#endif
