/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives and parses messages of the bootstrap (wire.h). */
#include "collectives/bootstrap/wire.h"

#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

const char *srt_wire_parse_hello(const void *message, size_t nbytes, int world_size,
				 srt_wire_hello_t *hello, char *text, size_t text_size)
{
	if (nbytes == sizeof(*hello))
		memcpy(hello, message, nbytes);
	if (nbytes != sizeof(*hello) || hello->magic != SRT_WIRE_MAGIC ||
	    hello->type != SRT_WIRE_HELLO)
		return "the message is not a libshardrt hello";
	if (hello->version != SRT_WIRE_VERSION)
		snprintf(text, text_size,
			 "the program uses version %u of the bootstrap protocol, the server of "
			 "its node version %u; use one installation",
			 (unsigned)hello->version, SRT_WIRE_VERSION);
	else if (hello->world_size != (uint32_t)world_size || hello->rank >= hello->world_size)
		snprintf(text, text_size,
			 "rank %u of %u does not belong to this job of %d ranks; "
			 "SHARDRT_RANK or SHARDRT_WORLD_SIZE was changed",
			 (unsigned)hello->rank, (unsigned)hello->world_size, world_size);
	else
		return NULL;
	return text;
}

bool srt_wire_parse_reply(const void *message, size_t nbytes, srt_wire_reply_t *reply)
{
	if (nbytes != sizeof(*reply))
		return false;
	memcpy(reply, message, nbytes);
	if (reply->type == SRT_WIRE_FAIL) /* the text and the nodes are in one place */
		reply->text[sizeof(reply->text) - 1] = '\0';
	return reply->magic == SRT_WIRE_MAGIC && reply->version == SRT_WIRE_VERSION;
}

bool srt_wire_is_peer(const srt_wire_reply_t *reply, int rank, int world_size)
{
	return reply->type == SRT_WIRE_PEER && reply->rank != (uint32_t)rank &&
	       reply->rank < (uint32_t)world_size;
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

void srt_wire_describe_missing(const int *of_rank, int world_size, double timeout_s, char *text,
			       size_t text_size)
{
	char list[120] = "";
	int missing = 0, listed = 0;
	size_t n = 0;

	for (int r = 0; r < world_size; r++) {
		if (of_rank[r] >= 0)
			continue;
		missing++;
		if (n + 16 > sizeof(list) - 1)
			continue;
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%d", listed ? ", " : "", r);
		listed++;
	}
	if (missing > listed)
		snprintf(text, text_size, "ranks %s and %d others did not join within %g s", list,
			 missing - listed, timeout_s);
	else
		snprintf(text, text_size, "rank%s %s did not join within %g s",
			 missing > 1 ? "s" : "", list, timeout_s);
}
