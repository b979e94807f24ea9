/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joining a job, with the launcher's side run by this process and the ranks as its children:
 * strangers on the launcher's socket, ranks that never come or die on the way, joining twice,
 * many ranks; and ranks against a launcher that answers nonsense.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "collectives/bootstrap/bootstrap.h"
#include "collectives/bootstrap/rendezvous.h"
#include "collectives/bootstrap/wire.h"
#include "tests/collectives/launcher_socket.h"
#include "tests/harness/check.h"
#include "tests/harness/options.h"

#define MAX_RANKS 64

static void set_place(int rank, int size)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", rank);
	setenv("SHARDRT_RANK", text, 1);
	setenv("SHARDRT_LOCAL_RANK", text, 1);
	snprintf(text, sizeof(text), "%d", size);
	setenv("SHARDRT_WORLD_SIZE", text, 1);
	setenv("SHARDRT_LOCAL_SIZE", text, 1);
}

/* What a rank of a test expects. */
typedef struct expect {
	srt_status_t status;
	const char *words; /* of the error */
	double timeout_s;
	int rounds; /* how often it joins and leaves */
} expect_t;

/* A rank's process; never returns. */
static void be_rank(int rank, int size, const char *address, const expect_t *e)
{
	set_place(rank, size);
	for (int i = 0; i < e->rounds; i++) {
		srt_bootstrap_t *b = NULL;
		double start = srt_now_s();

		CHECK_STATUS(srt_bootstrap_join(CONTEXT(.bootstrap = address,
							.timeout_s = e->timeout_s),
						&b),
			     e->status);
		CHECK_WITHIN(e->timeout_s + 4, start);
		CHECK((b != NULL) == (e->status == SRT_OK));
		if (b == NULL) {
			CHECK_ERROR_HAS(e->words);
			continue;
		}
		CHECK_INT(srt_bootstrap_rank(b), rank);
		CHECK_INT(srt_bootstrap_world_size(b), size);
		CHECK_INT(srt_bootstrap_local_rank(b), rank);
		CHECK_INT(srt_bootstrap_local_size(b), size);
		srt_bootstrap_leave(b);
	}
	_exit(check_done());
}

/* Runs the launcher's side until all children have ended; they must have passed. */
static void run_launcher(srt_rendezvous_t *rdv, const pid_t *pids, int n, bool tell)
{
	int left = 0;
	bool ended[MAX_RANKS] = { false };

	for (int r = 0; r < n; r++)
		left += pids[r] > 0;
	while (left > 0) {
		step(rdv);
		for (int r = 0; r < n; r++) {
			int status;
			if (pids[r] <= 0 || ended[r] || waitpid(pids[r], &status, WNOHANG) <= 0)
				continue;
			ended[r] = true;
			left--;
			CHECK_MSG(status == 0 || WIFSIGNALED(status), "rank %d: wait status %d", r,
				  status);
			if (tell)
				srt_rendezvous_rank_ended(rdv, r,
							  WIFSIGNALED(status) ?
								  "was killed by signal 9" :
								  "exited with status 0");
		}
	}
}

static pid_t start_rank(int rank, int size, const char *address, const expect_t *e)
{
	fflush(NULL);
	pid_t pid = fork();

	CHECK_OR_DIE(pid >= 0);
	if (pid == 0)
		be_rank(rank, size, address, e);
	return pid;
}

/* ---- the launcher's socket ------------------------------------------------------------ */

/* Messages that are not a hello. Returns the connections, which stay open. */
static int send_rubbish(const char *address, int size, int *fds)
{
	static const char big[65536];
	const srt_frame_t good = hello_frame(0, size, 60000);
	srt_frame_t h;
	int n = 0;

#define SEND(what, nbytes) CHECK(send(fds[n++] = connect_raw(address), what, nbytes, 0) > 0)
	SEND("x", 1);
	SEND(&good, sizeof(good) - 1);
	SEND(big, sizeof(big));
	h = good, h.magic++;
	SEND(&h, sizeof(h));
	h = good, h.version++;
	SEND(&h, sizeof(h));
	h = good, h.type = SRT_FRAME_READY;
	SEND(&h, sizeof(h));
	h = good, h.world_size++;
	SEND(&h, sizeof(h));
	h = good, h.src = (uint32_t)size;
	SEND(&h, sizeof(h));
	h = good, h.src = UINT32_MAX, h.world_size = UINT32_MAX;
	SEND(&h, sizeof(h));
#undef SEND
	fds[n++] = connect_raw(address); /* says nothing */
	close(connect_raw(address));
	return n;
}

static void test_strangers(void)
{
	enum { SIZE = 3 };
	const expect_t ok = { SRT_OK, "", 120, 1 };
	srt_rendezvous_t *rdv = srt_rendezvous_open(SIZE);
	pid_t pids[SIZE];
	int fds[32], n;

	CHECK_OR_DIE(rdv != NULL);
	n = send_rubbish(srt_rendezvous_address(rdv), SIZE, fds);
	for (int r = 0; r < SIZE; r++)
		pids[r] = start_rank(r, SIZE, srt_rendezvous_address(rdv), &ok);
	run_launcher(rdv, pids, SIZE, false);
	/* The ranks that spoke were told why, in a whole reply. */
	for (int i = 0; i < n - 1; i++) {
		const srt_join_frame_t reply = receive_reply(fds[i]);

		CHECK_INT(reply.head.type, SRT_FRAME_FAIL);
		CHECK(reply.reason.text[0] != '\0');
	}
	for (int i = 0; i < n; i++)
		close(fds[i]);
	srt_rendezvous_close(rdv);
}

/* Somebody says to be rank 0 before rank 0 does: the second one is refused. */
static void test_twice_the_same(void)
{
	const expect_t refused = { SRT_ERR_INVALID_ARGUMENT, "rank 0 has already joined", 60, 1 };
	srt_rendezvous_t *rdv = srt_rendezvous_open(2);
	pid_t pid;
	int fd;

	CHECK_OR_DIE(rdv != NULL);
	fd = say_hello(rdv, 0, 2);
	pid = start_rank(0, 2, srt_rendezvous_address(rdv), &refused);
	run_launcher(rdv, &pid, 1, false);
	close(fd);
	srt_rendezvous_close(rdv);
}

/* Ranks r with (absent >> r & 1) never come; the others are told who. They are here, said by this
 * process, when rank 0 comes, whose patience is the short one. */
static void run_missing(int size, unsigned absent, const char *words)
{
	const expect_t late = { SRT_ERR_TIMEOUT, words, 0.4, 1 },
		       later = { SRT_ERR_TIMEOUT, "had failed before this rank came: rank", 60, 1 };
	srt_rendezvous_t *rdv = srt_rendezvous_open(size);
	pid_t pid;
	double start;
	int fds[MAX_RANKS];

	CHECK_OR_DIE(rdv != NULL);
	for (int r = 1; r < size; r++)
		fds[r] = absent >> r & 1 ? -1 : say_hello(rdv, r, size);
	start = srt_now_s();
	pid = start_rank(0, size, srt_rendezvous_address(rdv), &late);
	run_launcher(rdv, &pid, 1, false);
	CHECK(srt_now_s() - start >= late.timeout_s);
	CHECK_WITHIN(3, start);
	for (int r = 1; r < size; r++) {
		srt_join_frame_t reply;

		if (fds[r] < 0)
			continue;
		reply = receive_reply(fds[r]);
		CHECK_INT(reply.head.type, SRT_FRAME_FAIL);
		CHECK_INT(reply.reason.status, SRT_ERR_TIMEOUT);
		CHECK_STR(reply.reason.text, words);
		close(fds[r]);
	}
	/* Who comes later still gets the same answer, at once, as the reason of the others. */
	start = srt_now_s();
	pid = start_rank(0, size, srt_rendezvous_address(rdv), &later);
	run_launcher(rdv, &pid, 1, false);
	CHECK_WITHIN(3, start);
	srt_rendezvous_close(rdv);
}

/* Rank 1 ends before it joins (kind 0), or says hello and ends (kind 1). */
static void run_death(int kind)
{
	const expect_t dead = { SRT_ERR_PEER_DEAD,
				kind == 0 ? "rank 1 was killed by signal 9 before it had joined" :
					    "rank 1 left before all had joined",
				120, 1 };
	srt_rendezvous_t *rdv = srt_rendezvous_open(3);
	pid_t pids[3] = { 0 };
	double start = srt_now_s();

	CHECK_OR_DIE(rdv != NULL);
	pids[0] = start_rank(0, 3, srt_rendezvous_address(rdv), &dead);
	for (int i = 0; i < 5; i++)
		step(rdv);
	if (kind == 0) {
		srt_rendezvous_rank_ended(rdv, 1, "was killed by signal 9");
	} else {
		close(say_hello(rdv, 1, 3));
	}
	run_launcher(rdv, pids, 3, false);
	/* The third comes after the fact. */
	pids[0] = start_rank(2, 3, srt_rendezvous_address(rdv), &dead);
	run_launcher(rdv, pids, 1, false);
	CHECK_WITHIN(5, start);
	srt_rendezvous_close(rdv);
}

static void run_ok(int size, int rounds)
{
	const expect_t ok = { SRT_OK, "", 120, rounds };
	srt_rendezvous_t *rdv = srt_rendezvous_open(size);
	pid_t pids[MAX_RANKS];

	CHECK_OR_DIE(rdv != NULL);
	for (int r = 0; r < size; r++)
		pids[r] = start_rank(r, size, srt_rendezvous_address(rdv), &ok);
	run_launcher(rdv, pids, size, true);
	srt_rendezvous_close(rdv);
}

/* ---- a launcher that is none ---------------------------------------------------------- */

typedef enum {
	LAUNCHER_CLOSES,
	LAUNCHER_SHORT,
	LAUNCHER_LONG,
	LAUNCHER_WRONG_MAGIC,
	LAUNCHER_READY_TOO_EARLY,
	LAUNCHER_NO_SOCKET,
	LAUNCHER_ITSELF, /* a socket for the rank itself */
	LAUNCHER_TWICE,
	LAUNCHER_NO_SUCH_RANK,
	LAUNCHER_ENDLESS_TEXT,
	LAUNCHER_SILENT,
	LAUNCHER_MODES
} launcher_mode_t;

static void run_false_launcher(launcher_mode_t mode)
{
	const expect_t bad = { SRT_ERR_SYSTEM, "launcher", 60, 1 };
	const expect_t text = { SRT_ERR_SYSTEM, "cannot join", 60, 1 };
	const expect_t silent = { SRT_ERR_TIMEOUT, "launcher", 0.1, 1 };
	const expect_t *e = mode == LAUNCHER_SILENT       ? &silent :
			    mode == LAUNCHER_ENDLESS_TEXT ? &text :
							    &bad;
	char address[64];
	struct sockaddr_un sun;
	srt_frame_t out = srt_frame_make(SRT_FRAME_PEER, 1, 0, 0);
	srt_join_frame_t fail = srt_frame_make_failure(SRT_OK, "");
	static const char more[100];
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd, status;
	srt_frame_t hello;
	pid_t pid;

	snprintf(address, sizeof(address), SRT_WIRE_ADDRESS_PREFIX "shardrt-test-%d-%d",
		 (int)getpid(), (int)mode);
	CHECK_OR_DIE(bind(listener, (struct sockaddr *)&sun,
			  srt_wire_parse_address(address, &sun)) == 0);
	CHECK_OR_DIE(listen(listener, 1) == 0);
	pid = start_rank(0, 3, address, e);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	CHECK_OR_DIE(fd >= 0 && recv(fd, &hello, sizeof(hello), 0) == (ssize_t)sizeof(hello));
	CHECK_INT(hello.src, 0);
	CHECK_INT(hello.timeout_ms, e->timeout_s * 1000);
	switch (mode) {
	case LAUNCHER_SHORT:
		CHECK(send(fd, &out, 20, MSG_NOSIGNAL) == 20);
		break;
	case LAUNCHER_LONG:
		out.nbytes = sizeof(more);
		srt_frame_send(fd, &out, more, -1);
		break;
	case LAUNCHER_WRONG_MAGIC:
		out.magic++;
		srt_frame_send(fd, &out, NULL, listener);
		break;
	case LAUNCHER_READY_TOO_EARLY:
		out.type = SRT_FRAME_READY;
		srt_frame_send(fd, &out, NULL, -1);
		break;
	case LAUNCHER_NO_SOCKET:
		srt_frame_send(fd, &out, NULL, -1);
		break;
	case LAUNCHER_ITSELF:
		out.src = 0;
		srt_frame_send(fd, &out, NULL, listener);
		break;
	case LAUNCHER_TWICE:
		srt_frame_send(fd, &out, NULL, listener);
		srt_frame_send(fd, &out, NULL, listener);
		break;
	case LAUNCHER_NO_SUCH_RANK:
		out.src = UINT32_MAX;
		srt_frame_send(fd, &out, NULL, listener);
		break;
	case LAUNCHER_ENDLESS_TEXT:
		fail.reason.status = -1;
		memset(fail.reason.text, 'x', sizeof(fail.reason.text));
		srt_frame_send(fd, &fail.head, &fail.reason, -1);
		break;
	default:
		break;
	}
	if (mode == LAUNCHER_CLOSES)
		close(fd);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	if (mode != LAUNCHER_CLOSES)
		close(fd);
	close(listener);
}

/* ---- what is wrong before anything is sent -------------------------------------------- */

static void test_addresses(void)
{
	static const char *const bad[] = {
		"udp:host:1", "unix:", "unix:@", "unix:/tmp/x", "@x", " "
	};
	char longer[300];
	srt_bootstrap_t *b = NULL;

	set_place(0, 2);
	for (size_t i = 0; i < SRT_ARRAY_LEN(bad); i++) {
		CHECK_STATUS(srt_bootstrap_join(CONTEXT(.bootstrap = bad[i], .timeout_s = 1), &b),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS(bad[i]);
	}
	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	memcpy(longer, "unix:@", 6);
	CHECK_STATUS(srt_bootstrap_join(CONTEXT(.bootstrap = longer, .timeout_s = 1), &b),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_bootstrap_join(CONTEXT(.bootstrap = "unix:@shardrt-nobody-listens",
						.timeout_s = 1),
					&b),
		     SRT_ERR_SYSTEM);
	CHECK_ERROR_HAS("cannot reach the launcher");
	set_place(2, 2);
	CHECK_STATUS(srt_bootstrap_join(CONTEXT(.bootstrap = "unix:@x", .timeout_s = 1), &b),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("SHARDRT_RANK=2");
	set_place(0, 2);
	setenv("SHARDRT_LOCAL_SIZE", "3", 1);
	CHECK_STATUS(srt_bootstrap_join(CONTEXT(.bootstrap = "unix:@x", .timeout_s = 1), &b),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("SHARDRT_LOCAL_SIZE=3");
	set_place(0, 100000);
	CHECK_STATUS(srt_bootstrap_join(CONTEXT(.bootstrap = "unix:@x", .timeout_s = 1), &b),
		     SRT_ERR_UNSUPPORTED);
	CHECK(b == NULL);

	/* Alone by intention: what the environment says of ranks does not matter. */
	CHECK_OK_OR_DIE(srt_bootstrap_join(CONTEXT(.bootstrap = "", .timeout_s = 0), &b));
	CHECK_INT(srt_bootstrap_rank(b), 0);
	CHECK_INT(srt_bootstrap_world_size(b), 1);
	srt_bootstrap_leave(b);
	srt_bootstrap_leave(NULL);
	CHECK(srt_rendezvous_open(0) == NULL && errno == EINVAL);
	CHECK(srt_rendezvous_open(SRT_WIRE_MAX_LOCAL + 1) == NULL);
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

int main(void)
{
	int before = count_fds();

	signal(SIGPIPE, SIG_IGN);
	test_addresses();
	run_ok(1, 2);
	run_ok(2, 3);
	run_ok(5, 2);
	run_ok(MAX_RANKS, 1);
	test_strangers();
	test_twice_the_same();
	run_missing(3, 1u << 2, "rank 2 did not join within 0.4 s");
	run_missing(5, 1u << 1 | 1u << 3, "ranks 1, 3 did not join within 0.4 s");
	run_death(0);
	run_death(1);
	for (int mode = 0; mode < LAUNCHER_MODES; mode++)
		run_false_launcher((launcher_mode_t)mode);
	CHECK_INT(count_fds(), before);
	return check_done();
}
