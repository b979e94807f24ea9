/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses of jobs of several nodes: see address.h. */
#include "collectives/bootstrap/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"

#define MAX_HOST 256
#define MAX_PORT 65535

/* "HOST:PORT" or "[HOST]:PORT" in parts. *port points into address. */
static srt_status_t split_address(const char *address, char host[MAX_HOST], const char **port)
{
	const char *colon = strrchr(address, ':');
	size_t n = colon != NULL ? (size_t)(colon - address) : 0;

	if (n == 0 || n >= MAX_HOST || colon[1] == '\0')
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "\"%s\" is not of the form HOST:PORT",
				address);
	if (address[0] == '[' && address[n - 1] == ']') {
		address++;
		n -= 2;
	}
	memcpy(host, address, n);
	host[n] = '\0';
	*port = colon + 1;
	/* getaddrinfo() takes larger numbers, modulo 65536. */
	n = strlen(*port);
	if (strspn(*port, "0123456789") != n || n > 5 || atoi(*port) > MAX_PORT)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the port \"%.100s\" of \"%s\" is not a number from 1 to %d", *port,
				host, MAX_PORT);
	return SRT_OK;
}

srt_status_t srt_address_check(const char *address)
{
	char host[MAX_HOST];
	const char *port;

	SRT_TRY(split_address(address, host, &port));
	if (atoi(port) == 0)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"the port of \"%s\" is 0: the other ranks need to know where rank 0 "
			"listens; give a number from 1 to %d",
			address, MAX_PORT);
	return SRT_OK;
}

srt_status_t srt_address_resolve(const char *address, struct sockaddr_storage *out,
				 socklen_t *length)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	char host[MAX_HOST];
	const char *port;
	int error;

	SRT_TRY(split_address(address, host, &port));
	error = getaddrinfo(host, port, &hints, &found);
	if (error != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "cannot resolve \"%s\": %s", host,
				gai_strerror(error));
	memcpy(out, found->ai_addr, found->ai_addrlen);
	*length = found->ai_addrlen;
	freeaddrinfo(found);
	return SRT_OK;
}

static bool is_loopback(const struct sockaddr_storage *where)
{
	if (where->ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)(const void *)where)->sin_addr.s_addr) >>
			       24 ==
		       127;
	return where->ss_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)where)->sin6_addr);
}

/* Names of no host: RFC 6761, and those of /etc/hosts in Debian and Red Hat. */
static bool is_loopback_name(const char *host)
{
	static const char *const names[] = { "localhost", "localhost.localdomain", "ip6-localhost",
					     "ip6-loopback", "localhost6" };
	static const char suffix[] = ".localhost";
	size_t n = strlen(host);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcasecmp(host, names[i]) == 0)
			return true;
	}
	return n >= sizeof(suffix) && strcasecmp(host + n - (sizeof(suffix) - 1), suffix) == 0;
}

/* Whether the host is written as an address or as localhost, and is not a name of a host. */
static bool is_fixed(const char *address)
{
	unsigned char bytes[sizeof(struct in6_addr)];
	char host[MAX_HOST];
	const char *port;

	return split_address(address, host, &port) == SRT_OK &&
	       (is_loopback_name(host) || inet_pton(AF_INET, host, bytes) == 1 ||
		inet_pton(AF_INET6, host, bytes) == 1);
}

bool srt_address_is_local(const char *address, const struct sockaddr_storage *where)
{
	return is_loopback(where) && is_fixed(address);
}

srt_status_t srt_address_resolve_own(const char *address, struct sockaddr_storage *out,
				     socklen_t *length)
{
	SRT_TRY(srt_address_resolve(address, out, length));
	if (!is_loopback(out) || is_fixed(address))
		return SRT_OK;
	if (out->ss_family == AF_INET)
		((struct sockaddr_in *)(void *)out)->sin_addr.s_addr = htonl(INADDR_ANY);
	else
		((struct sockaddr_in6 *)(void *)out)->sin6_addr = in6addr_any;
	return SRT_OK;
}

srt_status_t srt_address_find_own(char *address, size_t nbytes)
{
	const char *wanted = srt_config_string("SHARDRT_ADDRESS");
	struct ifaddrs *all = NULL;
	char host[INET6_ADDRSTRLEN] = "";

	if (wanted[0] != '\0') {
		snprintf(address, nbytes, "tcp:%s:0", wanted);
		return SRT_OK;
	}
	if (getifaddrs(&all) != 0)
		return srt_fail(SRT_ERR_SYSTEM, "cannot list the network interfaces: %s",
				strerror(errno));
	for (const struct ifaddrs *i = all; i != NULL && host[0] == '\0'; i = i->ifa_next) {
		if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET &&
		    (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0)
			inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr,
				  host, sizeof(host));
	}
	freeifaddrs(all);
	if (host[0] == '\0')
		return srt_fail(SRT_ERR_SYSTEM, "this host has no network address; set "
						"SHARDRT_ADDRESS to one that the others can reach");
	snprintf(address, nbytes, "tcp:%s:0", host);
	return SRT_OK;
}
