/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The launcher's side of the bootstrap, without ranks: this process sends the hellos. A second
 * process of a rank, a launcher that is stopped, one without descriptors.
 */
#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/bootstrap/bootstrap.h"
#include "collectives/bootstrap/rendezvous.h"
#include "collectives/bootstrap/wire.h"
#include "tests/collectives/launcher_socket.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

/* The reply to a raw rank, after a step of the launcher. */
static srt_join_frame_t read_reply(srt_rendezvous_t *rdv, int fd)
{
	step(rdv);
	return receive_reply(fd);
}

/*
 * A program that a rank starts claims its number: refused at once, also when the job runs. When the
 * rank has left, its number is free.
 *
 * Reliability: a program that a rank starts joins the job | waits for 600 s | refused at once
 */
static void test_started_by_rank(void)
{
	srt_rendezvous_t *rdv = srt_rendezvous_open(1);
	srt_join_frame_t reply;
	int first, second;

	CHECK_OR_DIE(rdv != NULL);
	first = say_hello(rdv, 0, 1);
	CHECK_INT(read_reply(rdv, first).head.type, SRT_FRAME_READY);
	second = say_hello(rdv, 0, 1);
	reply = read_reply(rdv, second);
	CHECK_INT(reply.head.type, SRT_FRAME_FAIL);
	CHECK_INT(reply.reason.status, SRT_ERR_INVALID_ARGUMENT);
	CHECK(strstr(reply.reason.text, "started by a rank") != NULL);
	close(second);
	close(first);
	second = say_hello(rdv, 0, 1);
	CHECK_INT(read_reply(rdv, second).head.type, SRT_FRAME_READY);
	close(second);
	srt_rendezvous_close(rdv);
}

/*
 * While the launcher is stopped, the time of the ranks does not run.
 *
 * Reliability: a start during which processes are stopped | the time counts, the job fails | the
 * time does not count
 */
static void test_stopped_launcher(void)
{
	srt_rendezvous_t *rdv = srt_rendezvous_open(2);
	char byte;
	int fd;

	CHECK_OR_DIE(rdv != NULL);
	fd = say_hello_for(rdv, 0, 2, 1000);
	usleep(1100000);
	step(rdv);
	step(rdv);
	CHECK(recv(fd, &byte, sizeof(byte), MSG_DONTWAIT) < 0 && errno == EAGAIN);
	close(fd);
	srt_rendezvous_close(rdv);
}

/*
 * The launcher has no descriptors for a third rank, or for the sockets of two.
 *
 * Reliability: no file descriptor in the launcher | tried again for ever, without a word | a
 * sentence on the ranks that wait
 */
static void test_no_descriptors(bool at_accept)
{
	srt_rendezvous_t *rdv = srt_rendezvous_open(at_accept ? 3 : 2);
	struct rlimit old, none;
	srt_join_frame_t reply;
	struct pollfd fds[32];
	int first, last = -1, timeout_ms = -1;

	CHECK_OR_DIE(rdv != NULL && getrlimit(RLIMIT_NOFILE, &old) == 0);
	first = say_hello(rdv, 0, at_accept ? 3 : 2);
	if (at_accept) {
		last = connect_raw(srt_rendezvous_address(rdv));
		none = (struct rlimit){ (rlim_t)last + 1, old.rlim_max };
		CHECK_OR_DIE(setrlimit(RLIMIT_NOFILE, &none) == 0);
	} else {
		last = connect_raw(srt_rendezvous_address(rdv));
		send_hello(last, 1, 2, 60000);
		none = (struct rlimit){ (rlim_t)last + 2, old.rlim_max };
		CHECK_OR_DIE(setrlimit(RLIMIT_NOFILE, &none) == 0);
	}
	reply = read_reply(rdv, first);
	CHECK_INT(reply.head.type, SRT_FRAME_FAIL);
	CHECK_INT(reply.reason.status, SRT_ERR_SYSTEM);
	CHECK(strstr(reply.reason.text, "ulimit -n") != NULL);
	/* It does not spin while it cannot accept. */
	if (at_accept) {
		CHECK_INT(srt_rendezvous_poll(rdv, fds, &timeout_ms), 0);
		CHECK(timeout_ms > 0);
	}
	CHECK_OR_DIE(setrlimit(RLIMIT_NOFILE, &old) == 0);
	close(last);
	close(first);
	srt_rendezvous_close(rdv);
}

/*
 * Without an address, several ranks are an error.
 *
 * Reliability: `SHARDRT_WORLD_SIZE` without a launcher | jobs of one rank, without a word |
 * refused
 */
static void test_no_address(void)
{
	srt_bootstrap_t *b = NULL;

	unsetenv("SHARDRT_BOOTSTRAP");
	setenv("SHARDRT_WORLD_SIZE", "2", 1);
	CHECK_STATUS(srt_bootstrap_join(CONTEXT(.bootstrap = NULL, .timeout_s = 1), &b),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("SHARDRT_WORLD_SIZE=2, but SHARDRT_BOOTSTRAP is not set");
	unsetenv("SHARDRT_WORLD_SIZE");
}

/* Reliability: more than 256 nodes | every 118th rank was taken for one of another node | the nodes
 * arrive whole */
static void test_node_numbers(void)
{
	enum { N = 2 * SRT_WIRE_NODES_NELEM - 7 };
	static uint16_t sent[N], got[N];

	for (uint16_t i = 0; i < N; i++)
		sent[i] = (uint16_t)(65535 - i);
	for (int first = 0; first < N; first += SRT_WIRE_NODES_NELEM) {
		const srt_join_frame_t made = srt_frame_make_nodes(sent, N, first);
		srt_join_frame_t f;

		CHECK(srt_frame_parse_joining(&made, sizeof(made.head) + made.head.nbytes, &f));
		CHECK(srt_frame_store_nodes(&f, N - (first > 0), got) == 0 || first == 0);
		CHECK(srt_frame_store_nodes(&f, N, got) > 0);
	}
	CHECK(memcmp(got, sent, sizeof(sent)) == 0);
}

/* A node with more ranks than can share one: all are told at once, the first of them too. */
static void test_too_many_ranks(void)
{
	static int fds[SRT_WIRE_MAX_LOCAL + 1];
	struct rlimit limit;
	srt_rendezvous_t *rdv;
	srt_join_frame_t reply;
	char name[64];

	CHECK_OR_DIE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	if (limit.rlim_max < 3 * SRT_WIRE_MAX_LOCAL || setrlimit(RLIMIT_NOFILE, &limit) != 0) {
		printf("the limit of open files is too low for %d ranks\n", SRT_WIRE_MAX_LOCAL);
		return;
	}
	snprintf(name, sizeof(name), "shardrt-test-%d", (int)getpid());
	rdv = srt_rendezvous_open_name(name, 2 * SRT_WIRE_MAX_LOCAL, true);
	CHECK_OR_DIE(rdv != NULL);
	for (int r = 0; r <= SRT_WIRE_MAX_LOCAL; r++)
		fds[r] = say_hello(rdv, r, 2 * SRT_WIRE_MAX_LOCAL);
	for (int r = 0; r <= SRT_WIRE_MAX_LOCAL; r += SRT_WIRE_MAX_LOCAL) {
		reply = read_reply(rdv, fds[r]);
		CHECK_INT(reply.head.type, SRT_FRAME_FAIL);
		CHECK_INT(reply.reason.status, SRT_ERR_UNSUPPORTED);
		CHECK(strstr(reply.reason.text,
			     "more than 512 ranks share a node; rank 512 is one") != NULL);
	}
	for (int r = 0; r <= SRT_WIRE_MAX_LOCAL; r++)
		close(fds[r]);
	srt_rendezvous_close(rdv);
}

int main(void)
{
	test_node_numbers();
	test_no_address();
	test_started_by_rank();
	test_stopped_launcher();
	test_no_descriptors(true);
	test_no_descriptors(false);
	test_too_many_ranks();
	return check_done();
}
