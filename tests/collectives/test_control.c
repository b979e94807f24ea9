/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a job whose ranks may be on several nodes; started by test_control.sh. It uses the
 * control channel only.
 *
 *     exchange        every rank sends small and large messages to every other one; all join twice
 *     end RANK HOW    that rank ends (kill, exit, leave) or stops (stop); the others wait for it,
 *                     and print which reason they were told; cut: the script cuts the network, and
 *                     each rank waits for a rank of the other node
 *     outlive A B     the ranks A and B leave in order; then the others exchange messages
 *     abandon NODE    the rank that carries the node's messages leaves in order, and is killed from
 *                     outside while it still does; the others print the reason for which they lose
 *                     a rank of another node
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/bootstrap/control_channel_internal.h"
#include "collectives/bootstrap/internal.h"
#include "tests/harness/check.h"

#define TAG UINT64_C(77)

static const atomic_int go_on;

static size_t nbytes_of(uint32_t seq)
{
	return seq % 3 == 0 ? 0 : seq % 3 == 1 ? 100 : SRT_CONTROL_MAX_PAYLOAD;
}

static unsigned char byte_of(int from, int to, uint32_t seq, size_t i)
{
	return (unsigned char)((size_t)from * 31 + (size_t)to * 7 + seq * 3 + i);
}

static bool is_alive(const srt_bootstrap_t *b, int rank)
{
	return srt_control_peer_state(b->control, rank) == SRT_PEER_ALIVE;
}

/* Between all ranks but two; -1: none. */
static void exchange_without(srt_bootstrap_t *b, int first, int second, uint64_t tag)
{
	static unsigned char data[SRT_CONTROL_MAX_PAYLOAD];
	char theirs[SRT_CONTROL_WHAT];
	int nwrong = 0;

	for (uint32_t seq = 0; seq < 30; seq++) {
		const size_t n = nbytes_of(seq);

		for (int r = 0; r < b->world_size; r++) {
			for (size_t i = 0; i < n; i++)
				data[i] = byte_of(b->rank, r, seq, i);
			if (r != b->rank && r != first && r != second)
				CHECK_INT(srt_control_send(b->control, r, tag, seq, "exchanging",
							   data, n, -1, &go_on, srt_awake_s() + 60),
					  SRT_CONTROL_OK);
		}
		for (int r = 0; r < b->world_size; r++) {
			if (r == b->rank || r == first || r == second)
				continue;
			CHECK_INT(srt_control_recv(b->control, r, tag, seq, "exchanging", data, n,
						   NULL, &go_on, srt_awake_s() + 60, theirs),
				  SRT_CONTROL_OK);
			for (size_t i = 0; i < n; i++)
				nwrong += data[i] != byte_of(r, b->rank, seq, i);
		}
	}
	CHECK_INT(nwrong, 0);
}

static void exchange(srt_bootstrap_t *b)
{
	exchange_without(b, -1, -1, TAG);
}

/* A rank of another node, not `other`. */
static int far_rank(const srt_bootstrap_t *b, int other)
{
	int r = 0;

	while (r == other || b->node_of[r] == b->node_of[b->rank])
		r++;
	return r;
}

/* Prints the reason for which the victim is lost. */
static void await_end(srt_bootstrap_t *b, int victim)
{
	char text[SRT_CONTROL_TEXT], theirs[SRT_CONTROL_WHAT], byte;
	const double since = srt_now_s();

	printf("rank %d of %d: waits\n", b->rank, b->world_size);
	fflush(stdout);
	CHECK_INT(srt_control_recv(b->control, victim, TAG, 1000, "waiting", &byte, 1, NULL, &go_on,
				   srt_awake_s() + 60, theirs),
		  SRT_CONTROL_GONE);
	pthread_mutex_lock(&b->mutex);
	memcpy(text, b->failure_text, sizeof(text));
	pthread_mutex_unlock(&b->mutex);
	printf("rank %d of %d: after %.3f s: %s\n", b->rank, b->world_size, srt_now_s() - since,
	       text[0] != '\0' ? text : "left in order");
	fflush(stdout);
}

static void end(srt_bootstrap_t *b, int victim, const char *how)
{
	exchange(b); /* all have joined, and the network works */
	if (b->rank == victim && strcmp(how, "kill") == 0)
		raise(SIGKILL);
	if (b->rank == victim && strcmp(how, "exit") == 0)
		_exit(0);
	if (b->rank == victim && strcmp(how, "leave") == 0)
		return;
	if (b->rank == victim && strcmp(how, "stop") == 0)
		raise(SIGSTOP); /* the others have given it up when it goes on */
	await_end(b, b->rank == victim || strcmp(how, "cut") == 0 ? far_rank(b, -1) : victim);
}

/* A rank that has left, or -1. */
static int find_left(const srt_bootstrap_t *b)
{
	for (int r = 0; r < b->world_size; r++) {
		if (!is_alive(b, r))
			return r;
	}
	return -1;
}

static void abandon(srt_bootstrap_t *b, int node)
{
	const double end = srt_awake_s() + 60;
	int carrier = -1;

	exchange(b);
	if (b->node_of[b->rank] == node && b->control->relay != NULL) {
		printf("rank %d of %d: leaves\n", b->rank, b->world_size);
		fflush(stdout);
		return;
	}
	while ((carrier = find_left(b)) < 0 && srt_awake_s() < end)
		usleep(1000);
	CHECK_OR_DIE(carrier >= 0);
	exchange_without(b, carrier, -1, TAG + 1);
	await_end(b, far_rank(b, carrier));
}

static void outlive(srt_bootstrap_t *b, int first, int second)
{
	const double end = srt_awake_s() + 60;

	exchange(b);
	if (b->rank == first || b->rank == second)
		return;
	while ((is_alive(b, first) || is_alive(b, second)) && srt_awake_s() < end)
		usleep(1000);
	CHECK(!is_alive(b, first) && !is_alive(b, second));
	sleep(1); /* longer than a rank that has left needs to end */
	exchange_without(b, first, second, TAG + 1);
}

int main(int argc, char **argv)
{
	const bool ends = argc == 4 && strcmp(argv[1], "end") == 0;
	const bool outlives = argc == 4 && strcmp(argv[1], "outlive") == 0;
	const bool abandons = argc == 3 && strcmp(argv[1], "abandon") == 0;
	srt_bootstrap_t *b = NULL;

	CHECK_OR_DIE(ends || outlives || abandons ||
		     (argc == 2 && strcmp(argv[1], "exchange") == 0));
	for (int i = 0; i < (argc > 2 ? 1 : 2); i++) {
		srt_status_t status = srt_bootstrap_join(
			&(srt_context_options_t){ .size = sizeof(srt_context_options_t) }, &b);

		if (status != SRT_OK) {
			printf("%s\n", srt_error_last());
			return 3;
		}
		printf("rank %d of %d: local rank %d of %d\n", b->rank, b->world_size,
		       b->local_rank, b->local_size);
		if (ends)
			end(b, atoi(argv[2]), argv[3]);
		else if (outlives)
			outlive(b, atoi(argv[2]), atoi(argv[3]));
		else if (abandons)
			abandon(b, atoi(argv[2]));
		else
			exchange(b);
		srt_bootstrap_leave(b);
	}
	return check_done();
}
