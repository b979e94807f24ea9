/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The frame: the only format of messages between the ranks of a job and its servers. A header, then
 * its payload. Within a node it is one message of a SOCK_SEQPACKET Unix socket, between nodes one
 * message of a link (link.h).
 *
 * A rank joins by the server of its node, which is shardrun or one of the node's ranks, at a Unix
 * socket in the abstract name space. Both ends belong to the same user (SO_PEERCRED). The servers
 * of several nodes join by rank 0.
 *
 *     rank -> server    HELLO
 *     server -> rank    PEER, one for each other rank of the node, with a connected socket
 *     server -> rank    NODES: the nodes of some ranks; none in a job of one node
 *     server -> rank    READY: all was sent; or FAIL: why the job cannot start
 *
 *     node -> rank 0    HELLO of the rank that carries the node's control messages; JOINED: a rank
 *                       of the node; FAIL
 *     rank 0 -> node    NODES, READY; or FAIL
 *
 * After READY the connection to shardrun stays open until the rank leaves the job. The other types
 * are those of the control channel (control_channel.h).
 *
 * Independent of the library.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_WIRE_H
#define SRT_COLLECTIVES_BOOTSTRAP_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/types.h>

#include <shardrt/status.h>

#define SRT_WIRE_MAGIC 0x53525442u
#define SRT_WIRE_VERSION 3u
/* Ranks of a node: a rank keeps one descriptor for each other one, and the usual limit is 1024. */
#define SRT_WIRE_MAX_LOCAL 512
/* Ranks of a job: the number of a node has 16 bits. */
#define SRT_WIRE_MAX_WORLD 65536
#define SRT_WIRE_ADDRESS_PREFIX "unix:@"
/* Longest name after the prefix, with its 0. */
#define SRT_WIRE_NAME 100
/* Longest name of what a frame is for, with its 0. Longer ones are cut. */
#define SRT_WIRE_WHAT 64
/* Longest text of a reason, with its 0. */
#define SRT_WIRE_TEXT 512
/* Ranks whose nodes one frame has. */
#define SRT_WIRE_NODES_NELEM 512u

typedef enum srt_frame_type {
	SRT_FRAME_HELLO = 1,
	SRT_FRAME_JOINED, /* `src` has joined its node */
	SRT_FRAME_PEER,   /* the socket to `src` is attached */
	SRT_FRAME_NODES,  /* payload: uint16_t, of the ranks from first_rank */
	SRT_FRAME_READY,  /* `src` carries the node's messages to other nodes */
	SRT_FRAME_FAIL,   /* payload: srt_frame_reason_t */
	/* The control channel has the types from here on: */
	SRT_FRAME_DATA,
	SRT_FRAME_GOODBYE,   /* payload: srt_frame_reason_t */
	SRT_FRAME_ABORT,     /* payload: srt_frame_reason_t; tag = communicator */
	SRT_FRAME_LOST,      /* of a rank of another node, tag; payload: srt_frame_reason_t */
	SRT_FRAME_HEARTBEAT, /* of a relay; no payload */
} srt_frame_type_t;

/* A destination: all ranks of the nodes other than the sender's. */
#define SRT_FRAME_ALL UINT32_MAX

typedef struct srt_frame {
	uint32_t magic;
	uint16_t version, type;
	uint32_t src, dst; /* ranks */
	union {
		uint64_t tag;
		uint64_t timeout_ms; /* HELLO: how long this rank waits for the others */
	};
	union {
		uint32_t seq;
		uint32_t world_size; /* HELLO */
		uint32_t pid;        /* PEER: the process of `src` */
		uint32_t first_rank; /* NODES */
		uint32_t local_size; /* READY: ranks of this node */
	};
	uint32_t nbytes; /* of the payload that follows */
	char what[SRT_WIRE_WHAT];
} srt_frame_t;

typedef struct srt_frame_reason {
	int32_t status;
	char text[SRT_WIRE_TEXT];
} srt_frame_reason_t;

/* A frame of joining, with its payload. */
typedef struct srt_join_frame {
	srt_frame_t head;
	union {
		srt_frame_reason_t reason;
		uint16_t node[SRT_WIRE_NODES_NELEM];
	};
} srt_join_frame_t;

_Static_assert(sizeof(srt_frame_t) == 96, "no padding on the wire");
_Static_assert(sizeof(srt_join_frame_t) == 96 + 2 * SRT_WIRE_NODES_NELEM, "no padding on the wire");

/* A header. The rest of it is 0. */
static inline srt_frame_t srt_frame_make(srt_frame_type_t type, int src, uint32_t dst,
					 size_t nbytes)
{
	return (srt_frame_t){
		.magic = SRT_WIRE_MAGIC,
		.version = SRT_WIRE_VERSION,
		.type = (uint16_t)type,
		.src = (uint32_t)src,
		.dst = dst,
		.nbytes = (uint32_t)nbytes,
	};
}

/* FAIL. A text that is too long is cut. */
srt_join_frame_t srt_frame_make_failure(srt_status_t status, const char *text);
/* NODES, of as many ranks from `first` as fit. node_of: [world_size] */
srt_join_frame_t srt_frame_make_nodes(const uint16_t *node_of, int world_size, int first);

/* Parses a message of nbytes bytes. False if it violates the protocol; else nbytes of the frame is
 * the size of the payload in the message, and its `what` ends with 0. */
bool srt_frame_parse(const void *message, size_t nbytes, srt_frame_t *frame);
/* Parses the payload of a goodbye, an abort or a loss. False if it violates the protocol; else the
 * text ends with 0. */
bool srt_frame_parse_reason(const srt_frame_t *frame, const void *payload,
			    srt_frame_reason_t *reason);
/* Parses a frame of joining. The status of a FAIL is then one with a name, and not SRT_OK. */
bool srt_frame_parse_joining(const void *message, size_t nbytes, srt_join_frame_t *frame);
/* Checks that a message of nbytes bytes is a hello of a job of world_size ranks. Returns the reason
 * if not, a constant or in `text`; else NULL. */
const char *srt_frame_parse_hello(const void *message, size_t nbytes, int world_size,
				  srt_frame_t *hello, char *text, size_t text_size);
/* Stores the nodes of a frame NODES in node_of: [world_size]. Returns how many they are, 0 if they
 * are not of ranks of the job. */
int srt_frame_store_nodes(const srt_join_frame_t *frame, int world_size, uint16_t *node_of);

struct sockaddr_un;
/* The Unix socket of "unix:@NAME", and its length; 0 if it is not of this form, or too long. */
unsigned srt_wire_parse_address(const char *address, struct sockaddr_un *where);

/* Sends a frame by one system call, which does not wait: a SEQPACKET socket sends all of it or
 * nothing. fd: the attached descriptor, -1 = none. */
ssize_t srt_frame_send(int to, const srt_frame_t *frame, const void *payload, int fd);

/* What a message came with. */
typedef struct srt_wire_attached {
	int fd; /* its descriptor, or -1; further ones have been closed */
	int nfds;
	int flags; /* MSG_TRUNC: the message is longer; MSG_CTRUNC: a descriptor is lost */
} srt_wire_attached_t;

/* Receives a message as recvmsg() does, without blocking. */
ssize_t srt_wire_receive(int from, void *message, size_t nbytes, srt_wire_attached_t *attached);

/* Writes random hex digits, two for each byte, and a 0. False if the system has none. */
bool srt_wire_random(char *digits, size_t nbytes);

#endif
