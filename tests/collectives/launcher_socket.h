/* SPDX-License-Identifier: BSD-3-Clause */
/* The launcher's socket, for tests that write to it what a rank would. */
#ifndef SRT_TESTS_LAUNCHER_SOCKET_H
#define SRT_TESTS_LAUNCHER_SOCKET_H

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "collectives/bootstrap/wire.h"
#include "tests/harness/check.h"

/* A connection to the launcher that says nothing yet. */
static inline int connect_raw(const char *address)
{
	struct sockaddr_un sun;
	socklen_t n = srt_wire_parse_address(address, &sun);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK_OR_DIE(fd >= 0 && connect(fd, (struct sockaddr *)&sun, n) == 0);
	return fd;
}

/* What a rank says when it joins. */
static inline srt_frame_t hello_frame(int rank, int size, uint32_t timeout_ms)
{
	srt_frame_t hello = srt_frame_make(SRT_FRAME_HELLO, rank, 0, 0);

	hello.world_size = (uint32_t)size;
	hello.timeout_ms = timeout_ms;
	return hello;
}

/* Receives a whole reply that has come; the head of one with a descriptor. */
static inline srt_join_frame_t receive_reply(int fd)
{
	srt_join_frame_t reply = { .head = { 0 } };
	unsigned char bytes[sizeof(reply)];
	ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	CHECK(n > 0 && srt_frame_parse_joining(bytes, (size_t)n, &reply));
	return reply;
}

#endif
