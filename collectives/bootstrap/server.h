/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of a server by which ranks join: the connections that it has accepted, strangers among
 * them, and the ranks that have joined. Shared by the server of a node, whose connections are Unix
 * sockets (rendezvous.h), and rank 0's, whose connections are links (root.h).
 *
 * A crowd of strangers does not keep others away: the oldest of them makes room. Uses POSIX,
 * base/clock.h and wire.h only.
 */
#ifndef SRT_COLLECTIVES_BOOTSTRAP_SERVER_H
#define SRT_COLLECTIVES_BOOTSTRAP_SERVER_H

#include "collectives/bootstrap/wire.h"

struct sockaddr;

typedef struct srt_client {
	int fd;          /* -1 = free */
	bool is_known;   /* it has shown who it is; before, it is a stranger */
	uint64_t order;  /* of the connections */
	int rank;        /* of its hello, -1 = none yet */
	double deadline; /* of its hello, then of the other ranks' hellos */
	/* A rank that shares the node. HANDED: it is of those that are handed out. COMPLETE: it has
	 * all sockets, and stays connected until it leaves the job. */
	enum { SRT_CLIENT_WAITING, SRT_CLIENT_HANDED, SRT_CLIENT_COMPLETE } state;
	double timeout_s;
	int32_t pid;
	/* The server of a node: */
	struct srt_link *link; /* owns fd */
	int node;              /* once all have joined */
	bool has_ended;
} srt_client_t;

typedef struct srt_server {
	int world_size;
	int listener;          /* -1 = closed */
	srt_client_t *clients; /* [nclients] */
	int nclients;
	int max_strangers; /* if there are as many, the oldest one makes room before its deadline */
	double hello_s;    /* how long a stranger is waited for */
	int *of_rank;      /* [world_size] the client of a rank that has joined, else -1 */
	int njoined;
	uint64_t naccepted;
	double accept_at;         /* no earlier, after a failure */
	srt_join_frame_t failure; /* magic 0 = none */
} srt_server_t;

/* hello_s and max_strangers (any number) are the caller's to set. False if there is no memory. */
bool srt_server_init(srt_server_t *server, int world_size, int nclients);
/* Closes the listener and the clients' descriptors that are there. */
void srt_server_destroy(srt_server_t *server);
/* Listens. False with errno. */
bool srt_server_listen(srt_server_t *server, int type, const struct sockaddr *where,
		       unsigned length);
/* Whether there is room for another client now. */
bool srt_server_can_accept(const srt_server_t *server);
/* Accepts a client. The stranger that made room for it, if any, is then the caller's: evicted->fd,
 * else -1. Returns NULL if there is none at present: *error = 0, or why not. */
srt_client_t *srt_server_accept(srt_server_t *server, srt_client_t *evicted, int *error);

/* "rank 2 did not join within 60 s", "ranks 1, 4 and 7 others did not ...". */
void srt_server_describe_missing(const srt_server_t *server, double timeout_s, char *text,
				 size_t text_size);

static inline bool srt_server_has_failed(const srt_server_t *server)
{
	return server->failure.head.magic != 0;
}

#endif
