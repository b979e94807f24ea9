/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes, sends, receives and parses frames (wire.h). */
#include "collectives/bootstrap/wire.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

srt_join_frame_t srt_frame_make_failure(srt_status_t status, const char *text)
{
	srt_join_frame_t frame = {
		.head = srt_frame_make(SRT_FRAME_FAIL, 0, 0, sizeof(frame.reason)),
		.reason = { .status = (int32_t)status },
	};

	snprintf(frame.reason.text, sizeof(frame.reason.text), "%s", text);
	return frame;
}

srt_join_frame_t srt_frame_make_nodes(const uint16_t *node_of, int world_size, int first)
{
	const size_t left = (size_t)(world_size - first);
	const size_t n = left < SRT_WIRE_NODES_NELEM ? left : SRT_WIRE_NODES_NELEM;
	srt_join_frame_t frame = { .head = srt_frame_make(SRT_FRAME_NODES, 0, 0,
							  n * sizeof(frame.node[0])) };

	frame.head.first_rank = (uint32_t)first;
	memcpy(frame.node, node_of + first, frame.head.nbytes);
	return frame;
}

bool srt_frame_parse(const void *message, size_t nbytes, srt_frame_t *frame)
{
	if (nbytes < sizeof(*frame))
		return false;
	memcpy(frame, message, sizeof(*frame));
	frame->what[sizeof(frame->what) - 1] = '\0';
	return frame->magic == SRT_WIRE_MAGIC && frame->version == SRT_WIRE_VERSION &&
	       frame->nbytes == nbytes - sizeof(*frame) && frame->type >= SRT_FRAME_HELLO &&
	       frame->type <= SRT_FRAME_HEARTBEAT;
}

bool srt_frame_parse_reason(const srt_frame_t *frame, const void *payload,
			    srt_frame_reason_t *reason)
{
	if (frame->nbytes != sizeof(*reason))
		return false;
	memcpy(reason, payload, sizeof(*reason));
	reason->text[sizeof(reason->text) - 1] = '\0';
	return reason->status >= 0 && reason->status < SRT_STATUS_COUNT;
}

bool srt_frame_parse_joining(const void *message, size_t nbytes, srt_join_frame_t *frame)
{
	const unsigned char *payload = (const unsigned char *)message + sizeof(frame->head);

	if (nbytes > sizeof(*frame) || !srt_frame_parse(message, nbytes, &frame->head))
		return false;
	switch (frame->head.type) {
	case SRT_FRAME_HELLO:
	case SRT_FRAME_JOINED:
	case SRT_FRAME_PEER:
	case SRT_FRAME_READY:
		return frame->head.nbytes == 0;
	case SRT_FRAME_NODES:
		memcpy(frame->node, payload, frame->head.nbytes);
		return frame->head.nbytes % sizeof(frame->node[0]) == 0;
	case SRT_FRAME_FAIL:
		if (!srt_frame_parse_reason(&frame->head, payload, &frame->reason) ||
		    frame->reason.status == SRT_OK)
			frame->reason.status = SRT_ERR_SYSTEM;
		return frame->head.nbytes == sizeof(frame->reason);
	default:
		return false;
	}
}

const char *srt_frame_parse_hello(const void *message, size_t nbytes, int world_size,
				  srt_frame_t *hello, char *text, size_t text_size)
{
	/* Other versions have the magic and the version at the same place. */
	const size_t first = offsetof(srt_frame_t, version) + sizeof(hello->version);

	memset(hello, 0, sizeof(*hello));
	memcpy(hello, message, nbytes < sizeof(*hello) ? nbytes : sizeof(*hello));
	if (nbytes >= first && hello->magic == SRT_WIRE_MAGIC && hello->version != SRT_WIRE_VERSION)
		snprintf(text, text_size,
			 "the program uses version %u of the bootstrap protocol, the server of "
			 "its node version %u; use one installation",
			 (unsigned)hello->version, SRT_WIRE_VERSION);
	else if (!srt_frame_parse(message, nbytes, hello) || hello->type != SRT_FRAME_HELLO ||
		 hello->nbytes > 0)
		return "the message is not a libshardrt hello";
	else if (hello->world_size != (uint32_t)world_size || hello->src >= hello->world_size)
		snprintf(text, text_size,
			 "rank %u of %u does not belong to this job of %d ranks; "
			 "SHARDRT_RANK or SHARDRT_WORLD_SIZE was changed",
			 (unsigned)hello->src, (unsigned)hello->world_size, world_size);
	else
		return NULL;
	return text;
}

int srt_frame_store_nodes(const srt_join_frame_t *frame, int world_size, uint16_t *node_of)
{
	const uint32_t n = frame->head.nbytes / sizeof(frame->node[0]);

	if (n > (uint32_t)world_size || frame->head.first_rank > (uint32_t)world_size - n)
		return 0;
	memcpy(node_of + frame->head.first_rank, frame->node, n * sizeof(frame->node[0]));
	return (int)n;
}

unsigned srt_wire_parse_address(const char *address, struct sockaddr_un *where)
{
	const size_t prefix = strlen(SRT_WIRE_ADDRESS_PREFIX), n = strlen(address);

	*where = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strncmp(address, SRT_WIRE_ADDRESS_PREFIX, prefix) != 0 || n == prefix ||
	    n - prefix > sizeof(where->sun_path) - 1)
		return 0;
	/* sun_path[0] = 0: the abstract name space, in which no file must be removed. */
	memcpy(where->sun_path + 1, address + prefix, n - prefix);
	return (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1 + n - prefix);
}

ssize_t srt_frame_send(int to, const srt_frame_t *frame, const void *payload, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec iov[2] = {
		{ (void *)(uintptr_t)frame, sizeof(*frame) },
		{ (void *)(uintptr_t)payload, frame->nbytes },
	};
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = frame->nbytes > 0 ? 2 : 1 };

	if (fd >= 0) {
		struct cmsghdr *c;

		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	return sendmsg(to, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Takes the descriptors of a message. */
static void extract_fds(struct msghdr *msg, srt_wire_attached_t *attached)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (attached->nfds++ == 0)
				attached->fd = fd;
			else
				close(fd);
		}
	}
}

ssize_t srt_wire_receive(int from, void *message, size_t nbytes, srt_wire_attached_t *attached)
{
	/* Room for more descriptors than peers send. */
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec iov = { message, nbytes };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	const ssize_t n = recvmsg(from, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	*attached = (srt_wire_attached_t){ .fd = -1 };
	if (n < 0)
		return n;
	attached->flags = msg.msg_flags;
	extract_fds(&msg, attached);
	return n;
}

bool srt_wire_random(char *digits, size_t nbytes)
{
	unsigned char random[32];

	if (nbytes > sizeof(random) || getrandom(random, nbytes, 0) != (ssize_t)nbytes)
		return false;
	for (size_t i = 0; i < nbytes; i++)
		snprintf(digits + 2 * i, 3, "%02x", random[i]);
	return true;
}
