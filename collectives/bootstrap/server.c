/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of a server's connections: see server.h. */
#include "collectives/bootstrap/server.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define ACCEPT_RETRY_S 0.5

bool srt_server_init(srt_server_t *server, int world_size, int nclients)
{
	*server = (srt_server_t){
		.world_size = world_size,
		.listener = -1,
		.clients = calloc((size_t)nclients, sizeof(*server->clients)),
		.nclients = nclients,
		.max_strangers = INT_MAX,
		.of_rank = calloc((size_t)world_size, sizeof(*server->of_rank)),
	};
	for (int i = 0; server->clients != NULL && i < nclients; i++)
		server->clients[i].fd = -1;
	for (int r = 0; server->of_rank != NULL && r < world_size; r++)
		server->of_rank[r] = -1;
	return server->clients != NULL && server->of_rank != NULL;
}

void srt_server_destroy(srt_server_t *server)
{
	for (int i = 0; server->clients != NULL && i < server->nclients; i++) {
		if (server->clients[i].fd >= 0)
			close(server->clients[i].fd);
	}
	if (server->listener >= 0)
		close(server->listener);
	free(server->clients);
	free(server->of_rank);
}

bool srt_server_listen(srt_server_t *server, int type, const struct sockaddr *where,
		       unsigned length)
{
	const int one = 1;
	const int fd = socket(where->sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	server->listener = fd;
	/* Without effect on a Unix socket. */
	return fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
	       bind(fd, where, length) == 0 && listen(fd, SOMAXCONN) == 0;
}

/* A place for a new client: a free one, or that of the oldest stranger, if they are many or it has
 * been silent for too long. */
static srt_client_t *find_place(const srt_server_t *server)
{
	srt_client_t *oldest = NULL, *free_one = NULL;
	int nstrangers = 0;

	for (int i = 0; i < server->nclients; i++) {
		srt_client_t *c = &server->clients[i];

		if (c->fd < 0) {
			free_one = c;
		} else if (!c->is_known) {
			nstrangers++;
			if (oldest == NULL || c->order < oldest->order)
				oldest = c;
		}
	}
	if (oldest != NULL && nstrangers >= server->max_strangers)
		return oldest;
	if (free_one == NULL && oldest != NULL && srt_awake_s() > oldest->deadline)
		return oldest;
	return free_one;
}

bool srt_server_can_accept(const srt_server_t *server)
{
	return server->listener >= 0 && srt_awake_s() >= server->accept_at &&
	       find_place(server) != NULL;
}

srt_client_t *srt_server_accept(srt_server_t *server, srt_client_t *evicted, int *error)
{
	srt_client_t *place = find_place(server);
	int fd;

	*error = 0;
	if (server->listener < 0 || place == NULL || srt_awake_s() < server->accept_at)
		return NULL;
	do {
		fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	} while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
		/* The listener stays readable: poll() would not wait. */
		*error = errno;
		server->accept_at = srt_awake_s() + ACCEPT_RETRY_S;
	}
	if (fd < 0)
		return NULL;
	*evicted = *place;
	*place = (srt_client_t){ .fd = fd,
				 .order = server->naccepted++,
				 .rank = -1,
				 .node = -1,
				 .deadline = srt_awake_s() + server->hello_s };
	return place;
}

void srt_server_describe_missing(const srt_server_t *server, double timeout_s, char *text,
				 size_t text_size)
{
	char list[120] = "";
	int missing = 0, listed = 0;
	size_t n = 0;

	for (int r = 0; r < server->world_size; r++) {
		if (server->of_rank[r] >= 0)
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
