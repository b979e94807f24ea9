/* SPDX-License-Identifier: BSD-3-Clause */
/* The launcher's side, in a process that writes to its socket what ranks would. */
#ifndef SRT_TESTS_LAUNCHER_SOCKET_H
#define SRT_TESTS_LAUNCHER_SOCKET_H

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "collectives/bootstrap/rendezvous.h"
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

static inline void step(srt_rendezvous_t *rdv)
{
	struct pollfd fds[SRT_WIRE_MAX_LOCAL + 32];
	int timeout_ms = 20;
	size_t n;

	CHECK_OR_DIE(srt_rendezvous_max_pollfds(rdv) <= sizeof(fds) / sizeof(fds[0]));
	n = srt_rendezvous_poll(rdv, fds, &timeout_ms);
	poll(fds, (nfds_t)n, timeout_ms);
	srt_rendezvous_step(rdv);
}

static inline void send_hello(int fd, int rank, int size, uint32_t timeout_ms)
{
	const srt_frame_t h = hello_frame(rank, size, timeout_ms);

	CHECK(send(fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h));
}

/* A rank joins, and the launcher has read it. */
static inline int say_hello_for(srt_rendezvous_t *rdv, int rank, int size, uint32_t timeout_ms)
{
	int fd = connect_raw(srt_rendezvous_address(rdv));

	send_hello(fd, rank, size, timeout_ms);
	step(rdv);
	return fd;
}

/* Says hello with patience. */
static inline int say_hello(srt_rendezvous_t *rdv, int rank, int size)
{
	return say_hello_for(rdv, rank, size, 60000);
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
