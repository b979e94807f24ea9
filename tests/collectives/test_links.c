/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links between nodes, and rank 0's listener, against strangers: a process in the middle that
 * changes, drops, repeats or replays bytes; wrong tokens; connections that say nothing, or
 * nonsense, or come in crowds. None joins, stops or crashes the job, and no message is delivered
 * that was not sent.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/bootstrap/address.h"
#include "collectives/bootstrap/root.h"
#include "tests/harness/check.h"

#define CAPACITY ((size_t)1 << 20)

static int listen_loopback(struct sockaddr_in *where)
{
	socklen_t n = sizeof(*where);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*where = (struct sockaddr_in){ .sin_family = AF_INET,
				       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	CHECK_OR_DIE(fd >= 0 && bind(fd, (struct sockaddr *)where, n) == 0 && listen(fd, 8) == 0);
	CHECK_OR_DIE(getsockname(fd, (struct sockaddr *)where, &n) == 0);
	return fd;
}

/* What the process in the middle does with the bytes of a direction. */
typedef struct meddler {
	int from, to;
	size_t seen;      /* bytes so far */
	size_t flip;      /* changes a bit of this byte; SIZE_MAX = of none */
	size_t drop_from; /* drops bytes drop_from .. drop_to */
	size_t drop_to;
	unsigned char *record; /* [CAPACITY] all that was seen, or NULL */
} meddler_t;

typedef struct pair {
	srt_link_t *client, *server;
	meddler_t up, down; /* from the client, to the client */
} pair_t;

static void open_pair(pair_t *p, const char *client_token, const char *server_token)
{
	struct sockaddr_in where;
	int listener = listen_loopback(&where), sv[2], fd, one = 1;

	memset(p, 0, sizeof(*p));
	p->client = srt_link_connect((struct sockaddr *)&where, sizeof(where), client_token);
	CHECK_OR_DIE(p->client != NULL);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	CHECK_OR_DIE(fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
	CHECK_OR_DIE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv) == 0);
	p->server = srt_link_accept(sv[0], server_token);
	CHECK_OR_DIE(p->server != NULL);
	p->up = (meddler_t){ .from = fd, .to = sv[1], .flip = SIZE_MAX, .drop_from = SIZE_MAX };
	p->down = (meddler_t){ .from = sv[1], .to = fd, .flip = SIZE_MAX, .drop_from = SIZE_MAX };
	close(listener);
}

static void close_pair(pair_t *p)
{
	srt_link_close(p->client);
	srt_link_close(p->server);
	close(p->up.from);
	close(p->up.to);
}

/* Passes on what is there. */
static void meddle(meddler_t *m)
{
	unsigned char bytes[4096], kept[sizeof(bytes)];
	ssize_t n;

	while ((n = recv(m->from, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
		size_t nkept = 0;

		for (ssize_t k = 0; k < n; k++) {
			const size_t i = m->seen++;

			if (m->record != NULL && i < CAPACITY)
				m->record[i] = bytes[k];
			if (i == m->flip)
				bytes[k] ^= 0x10;
			if (i < m->drop_from || i >= m->drop_to)
				kept[nkept++] = bytes[k];
		}
		if (nkept > 0)
			CHECK(send(m->to, kept, nkept, MSG_NOSIGNAL) == (ssize_t)nkept ||
			      errno == EPIPE || errno == ECONNRESET);
	}
}

/* Moves everything until nothing moves any more. */
static void settle(pair_t *p)
{
	for (int quiet = 0; quiet < 3;) {
		const size_t before = p->up.seen + p->down.seen;

		srt_link_step(p->client);
		srt_link_step(p->server);
		meddle(&p->up);
		meddle(&p->down);
		quiet = p->up.seen + p->down.seen == before ? quiet + 1 : 0;
		if (quiet > 0)
			usleep(200); /* loopback delivers at once, but in another context */
	}
}

static bool is_open(pair_t *p)
{
	return srt_link_step(p->client) == SRT_LINK_OPEN &&
	       srt_link_step(p->server) == SRT_LINK_OPEN;
}

/* Until both ends are in this state, however busy the machine is. */
static void await_state(pair_t *p, srt_link_state_t client, srt_link_state_t server)
{
	const double since = srt_now_s();

	do {
		settle(p);
	} while ((srt_link_step(p->client) != client || srt_link_step(p->server) != server) &&
		 srt_now_s() - since < 60);
	CHECK_INT(srt_link_step(p->client), client);
	CHECK_INT(srt_link_step(p->server), server);
}

/* The next message. */
static const void *await_message(pair_t *p, srt_link_t *to, size_t *n)
{
	const double since = srt_now_s();
	const void *got;

	while ((got = srt_link_receive(to, n)) == NULL && srt_now_s() - since < 60)
		settle(p);
	return got;
}

static void test_messages(void)
{
	static const size_t sizes[] = { 0, 1, 17, 4096, SRT_LINK_MAX };
	static unsigned char data[SRT_LINK_MAX + 1];
	pair_t p;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 7);
	open_pair(&p, "secret", "secret");
	await_state(&p, SRT_LINK_OPEN, SRT_LINK_OPEN);
	for (int way = 0; way < 2; way++) {
		srt_link_t *from = way ? p.server : p.client, *to = way ? p.client : p.server;

		CHECK(!srt_link_send(from, data, 1, data, SRT_LINK_MAX));
		for (size_t i = 0; i < SRT_ARRAY_LEN(sizes); i++)
			CHECK(srt_link_send(from, data, sizes[i] / 2, data + sizes[i] / 2,
					    sizes[i] - sizes[i] / 2));
		for (size_t i = 0; i < SRT_ARRAY_LEN(sizes); i++) {
			size_t n = 0;
			const void *got = await_message(&p, to, &n);

			CHECK(got != NULL && n == sizes[i] && memcmp(got, data, n) == 0);
		}
	}
	close_pair(&p);
}

static void test_tokens(void)
{
	static const char *const tokens[][2] = {
		{ "secret", "Secret" }, { "", "secret" }, { "secret", "" }, { "secret", "secret " }
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(tokens); i++) {
		pair_t p;

		open_pair(&p, tokens[i][0], tokens[i][1]);
		await_state(&p, SRT_LINK_CLOSED, SRT_LINK_HANDSHAKE);
		CHECK(strstr(srt_link_why(p.client), "token") != NULL);
		close_pair(&p);
	}
}

/* A handshake and a message, one bit of which is changed in one direction: way 0 from the client, 1
 * from the server; at SIZE_MAX: none is. Returns whether the message arrives. */
static bool passes(int way, size_t at, size_t *total)
{
	const char sent[] = "a message of some length";
	const void *got = NULL;
	size_t n = 0;
	pair_t p;

	open_pair(&p, "secret", "secret");
	*(way ? &p.down.flip : &p.up.flip) = at;
	if (at == SIZE_MAX)
		await_state(&p, SRT_LINK_OPEN, SRT_LINK_OPEN);
	settle(&p);
	if (is_open(&p)) {
		CHECK(srt_link_send(way ? p.server : p.client, sent, sizeof(sent), NULL, 0));
		settle(&p);
		if (at == SIZE_MAX)
			got = await_message(&p, way ? p.client : p.server, &n);
		else
			got = srt_link_receive(way ? p.client : p.server, &n);
		CHECK(got == NULL || (n == sizeof(sent) && memcmp(got, sent, n) == 0));
	}
	*total = way ? p.down.seen : p.up.seen;
	close_pair(&p);
	return got != NULL;
}

/* A changed bit of any byte: the message does not arrive. */
static void test_changed_bits(void)
{
	for (int way = 0; way < 2; way++) {
		size_t total, ignored;

		CHECK(passes(way, SIZE_MAX, &total));
		CHECK(total > 100);
		for (size_t at = 0; at < total; at += 5)
			CHECK(!passes(way, at, &ignored));
	}
}

/* The server ends the link, and delivers nothing. */
static void await_refusal(pair_t *p)
{
	const double since = srt_now_s();
	size_t n;

	while (srt_link_step(p->server) != SRT_LINK_CLOSED && srt_now_s() - since < 60) {
		meddle(&p->up);
		CHECK(srt_link_receive(p->server, &n) == NULL);
		usleep(200);
	}
	CHECK_INT(srt_link_step(p->server), SRT_LINK_CLOSED);
}

static void test_dropped_and_repeated(void)
{
	unsigned char *record = calloc(1, CAPACITY);
	size_t before, n = 0;
	pair_t p;

	CHECK_OR_DIE(record != NULL);
	/* A message is left out: the next one is refused. */
	open_pair(&p, "secret", "secret");
	await_state(&p, SRT_LINK_OPEN, SRT_LINK_OPEN);
	CHECK(srt_link_send(p.client, "one", 3, NULL, 0));
	before = p.up.drop_from = p.up.seen;
	p.up.drop_to = SIZE_MAX;
	for (double since = srt_now_s(); p.up.seen == before && srt_now_s() - since < 60;)
		settle(&p);
	p.up.drop_to = p.up.seen;
	CHECK(srt_link_send(p.client, "two", 3, NULL, 0));
	await_refusal(&p);
	CHECK(strstr(srt_link_why(p.server), "changed") != NULL);
	close_pair(&p);

	/* A message is repeated. */
	open_pair(&p, "secret", "secret");
	p.up.record = record;
	settle(&p);
	before = p.up.seen;
	CHECK(srt_link_send(p.client, "one", 3, NULL, 0));
	CHECK(await_message(&p, p.server, &n) != NULL && n == 3);
	CHECK(send(p.up.to, record + before, p.up.seen - before, MSG_NOSIGNAL) > 0);
	await_refusal(&p);
	close_pair(&p);

	/* All that a client sent is replayed to a new server. */
	before = p.up.seen;
	open_pair(&p, "secret", "secret");
	CHECK(send(p.up.to, record, before, MSG_NOSIGNAL) == (ssize_t)before);
	await_refusal(&p);
	CHECK(strstr(srt_link_why(p.server), "token") != NULL);
	close_pair(&p);
	free(record);
}

/* ---- the listener --------------------------------------------------------------------------- */

static int connect_to(int port)
{
	struct sockaddr_in where = { .sin_family = AF_INET,
				     .sin_port = htons((uint16_t)port),
				     .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK_OR_DIE(fd >= 0 && connect(fd, (struct sockaddr *)&where, sizeof(where)) == 0);
	return fd;
}

/* A node of one rank. */
static bool join(srt_link_t *link, int rank, int world_size, bool *told, bool *failed)
{
	srt_join_frame_t m;
	bool broken = false;

	if (srt_link_step(link) == SRT_LINK_OPEN && !*told) {
		m.head = srt_frame_make(SRT_FRAME_HELLO, rank, 0, 0);
		m.head.world_size = (uint32_t)world_size;
		*told = srt_root_send(link, &m);
		m.head = srt_frame_make(SRT_FRAME_JOINED, rank, 0, 0);
		CHECK(srt_root_send(link, &m));
	}
	while (srt_root_receive(link, &m, &broken)) {
		*failed = *failed || m.head.type == SRT_FRAME_FAIL;
		if (m.head.type == SRT_FRAME_READY || m.head.type == SRT_FRAME_FAIL)
			return true;
	}
	return false;
}

/* A crowd of strangers, before and while two nodes join. */
static void test_crowd(void)
{
	enum { CROWD = 300 };
	static const char nonsense[] =
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n0123456789012345678901";
	int fds[CROWD];
	srt_root_t *root = NULL;
	struct sockaddr_in where = { .sin_family = AF_INET,
				     .sin_addr = { htonl(INADDR_LOOPBACK) } };
	srt_link_t *links[2];
	bool told[2] = { false, false }, done[2] = { false, false }, failed = false;

	CHECK_OK_OR_DIE(srt_root_open("127.0.0.1:0", 2, "secret", 60, &root));
	where.sin_port = htons((uint16_t)srt_root_port(root));
	for (int i = 0; i < CROWD; i++) {
		fds[i] = connect_to(srt_root_port(root));
		if (i % 3 == 0)
			CHECK(send(fds[i], nonsense, sizeof(nonsense), MSG_NOSIGNAL) > 0 || true);
		if (i % 16 == 15)
			srt_root_step(root);
	}
	for (int r = 0; r < 2; r++)
		links[r] = srt_link_connect((struct sockaddr *)&where, sizeof(where), "secret");
	for (double since = srt_now_s(); !(done[0] && done[1]) && srt_now_s() - since < 60;) {
		for (int r = 0; r < 2; r++)
			done[r] = done[r] || join(links[r], r, 2, &told[r], &failed);
		srt_root_step(root);
		usleep(500);
	}
	CHECK(done[0] && done[1] && !failed);
	CHECK(srt_root_is_complete(root));
	CHECK_INT(srt_root_nnodes(root), 2);
	for (int i = 0; i < CROWD; i++)
		close(fds[i]);
	for (int r = 0; r < 2; r++)
		srt_link_close(links[r]);
	srt_root_close(root);
}

/* Reliability: more than 64 nodes that join at once | a node was cut off in joining, and the job
 * failed | all join: only a connection that has not shown the token makes room */
static void test_many_nodes(void)
{
	enum { NNODES = 100 };
	struct sockaddr_in where = { .sin_family = AF_INET,
				     .sin_addr = { htonl(INADDR_LOOPBACK) } };
	bool told[NNODES] = { false }, done[NNODES] = { false }, failed = false;
	srt_link_t *links[NNODES];
	srt_root_t *root = NULL;
	int ndone = 0;

	CHECK_OK_OR_DIE(srt_root_open("127.0.0.1:0", NNODES, "secret", 600, &root));
	where.sin_port = htons((uint16_t)srt_root_port(root));
	/* All show the token before the first one says what it is. */
	for (int r = 0; r < NNODES; r++) {
		links[r] = srt_link_connect((struct sockaddr *)&where, sizeof(where), "secret");
		CHECK_OR_DIE(links[r] != NULL);
		while (srt_link_step(links[r]) == SRT_LINK_HANDSHAKE)
			srt_root_step(root);
		srt_root_step(root);
	}
	for (double since = srt_now_s(); ndone < NNODES && srt_now_s() - since < 60;) {
		for (int r = 0; r < NNODES; r++) {
			if (!done[r] && join(links[r], r, NNODES, &told[r], &failed))
				ndone += done[r] = true;
		}
		srt_root_step(root);
	}
	CHECK(ndone == NNODES && !failed);
	CHECK_INT(srt_root_nnodes(root), NNODES);
	for (int r = 0; r < NNODES; r++)
		srt_link_close(links[r]);
	srt_root_close(root);
}

/*
 * Rank 1 of 3, and a process with the token that claims to be `rank` of `size`: both are told.
 *
 * Reliability: ranks of several hosts that were started for jobs of different sizes | told after
 * SHARDRT_TIMEOUT that a rank has not joined | told both numbers at once
 */
static void test_refused(int rank, int size)
{
	struct sockaddr_in where = { .sin_family = AF_INET,
				     .sin_addr = { htonl(INADDR_LOOPBACK) } };
	bool told[2] = { false, false }, done[2] = { false, false }, failed = false;
	srt_link_t *links[2];
	srt_root_t *root = NULL;

	CHECK_OK_OR_DIE(srt_root_open("127.0.0.1:0", 3, "secret", 60, &root));
	where.sin_port = htons((uint16_t)srt_root_port(root));
	for (int r = 0; r < 2; r++)
		links[r] = srt_link_connect((struct sockaddr *)&where, sizeof(where), "secret");
	for (double since = srt_now_s(); !(done[0] && done[1]) && srt_now_s() - since < 60;) {
		for (int r = 0; r < 2; r++)
			done[r] = done[r] || join(links[r], r == 0 ? 1 : rank, r == 0 ? 3 : size,
						  &told[r], &failed);
		srt_root_step(root);
		usleep(500);
	}
	CHECK(done[0] && done[1] && failed);
	for (int r = 0; r < 2; r++)
		srt_link_close(links[r]);
	srt_root_close(root);
}

/* Only names that mean loopback on every host, with its addresses, need no token. */
static void test_local_names(void)
{
	static const char *const local[] = { "localhost:1",     "localhost.localdomain:1",
					     "a.localhost:1",   "LocalHost:1",
					     "ip6-localhost:1", "127.0.0.1:1" };
	static const char *const other[] = { "node1:1", ".localhost:1", "xlocalhost:1",
					     "localhost.example.com:1" };
	struct sockaddr_storage loopback, network;
	socklen_t n;

	CHECK_OK_OR_DIE(srt_address_resolve("127.0.1.1:1", &loopback, &n));
	CHECK_OK_OR_DIE(srt_address_resolve("192.0.2.1:1", &network, &n));
	for (size_t i = 0; i < SRT_ARRAY_LEN(local); i++) {
		CHECK(srt_address_is_local(local[i], &loopback));
		CHECK(!srt_address_is_local(local[i], &network));
	}
	for (size_t i = 0; i < SRT_ARRAY_LEN(other); i++)
		CHECK(!srt_address_is_local(other[i], &loopback));
}

int main(void)
{
	test_local_names();
	if (!srt_link_is_supported()) {
		printf("SKIP: built without libsodium\n");
		return 77;
	}
	test_messages();
	test_tokens();
	test_changed_bits();
	test_dropped_and_repeated();
	test_crowd();
	test_many_nodes();
	test_refused(1, 3); /* which is there */
	test_refused(1, 2);
	test_refused(3, 4);
	return check_done();
}
