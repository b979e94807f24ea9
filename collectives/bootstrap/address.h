/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP address at which the nodes of a job meet: "HOST:PORT" or "[HOST]:PORT". */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_ADDRESS_H
#define SRT_COLLECTIVES_BOOTSTRAP_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include <shardrt/status.h>

/* Fails with a message if it is no address at which ranks can meet: its form, a port of 0 or above
 * 65535. Resolves nothing. */
srt_status_t srt_address_check(const char *address);
/* Where to connect to. Fails with a message. */
srt_status_t srt_address_resolve(const char *address, struct sockaddr_storage *out,
				 socklen_t *length);
/* Where to listen. Debian's /etc/hosts leads a host's own name to 127.0.1.1, where no other host
 * can connect: a name of a host that leads to a loopback address means all addresses. */
srt_status_t srt_address_resolve_own(const char *address, struct sockaddr_storage *out,
				     socklen_t *length);
/* Whether it is a loopback address that is written as one, or as localhost or a name like it. */
bool srt_address_is_local(const char *address, const struct sockaddr_storage *where);
/* "tcp:ADDRESS:0" of this host that other hosts can reach: SHARDRT_ADDRESS, else that of the first
 * network interface that is up and is not the loopback. */
srt_status_t srt_address_find_own(char *address, size_t nbytes);

#endif
