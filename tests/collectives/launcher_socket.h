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

/* The socket's name at an address of SHARDRT_BOOTSTRAP. Returns its length. */
static inline socklen_t name_of(const char *address, struct sockaddr_un *sun)
{
	size_t n = strlen(address) - strlen(SRT_WIRE_ADDRESS_PREFIX);

	memset(sun, 0, sizeof(*sun));
	sun->sun_family = AF_UNIX;
	memcpy(sun->sun_path + 1, address + strlen(SRT_WIRE_ADDRESS_PREFIX), n);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

/* A connection to the launcher that says nothing yet. */
static inline int connect_raw(const char *address)
{
	struct sockaddr_un sun;
	socklen_t n = name_of(address, &sun);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	CHECK_OR_DIE(fd >= 0 && connect(fd, (struct sockaddr *)&sun, n) == 0);
	return fd;
}

#endif
