/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control channel against a hostile or dying other end: this test holds the raw socket. An
 * invalid frame is a death, never a crash or a read past the end; messages wait in order of
 * (tag, sequence); a flood is held back; deaths are named before goodbyes.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/bootstrap/control_channel_internal.h"
#include "tests/harness/check.h"

#define SIZE 4

/* What the listener heard, in order. */
typedef struct heard {
	pthread_mutex_t mutex;
	atomic_int ncalls; /* begun */
	int count;
	int what[8], rank[8];
	srt_status_t status[8];
	char text[8][64];
} heard_t;

static void listener(void *arg, const srt_control_notice_t *notice)
{
	heard_t *h = arg;

	atomic_fetch_add(&h->ncalls, 1);
	pthread_mutex_lock(&h->mutex);
	if (h->count < 8) {
		h->what[h->count] = (int)notice->what;
		h->rank[h->count] = notice->rank;
		h->status[h->count] = notice->status;
		snprintf(h->text[h->count], sizeof(h->text[0]), "%s", notice->text);
		h->count++;
	}
	pthread_mutex_unlock(&h->mutex);
}

typedef struct pair {
	srt_control_channel_t *channel; /* rank 0 of SIZE */
	bool is_stopped;
	int raw[SIZE]; /* the other ends of the other ranks */
	heard_t heard;
} pair_t;

static const atomic_int go_on;

static void open_pair(pair_t *p)
{
	int fds[SIZE] = { -1, -1, -1, -1 };

	memset(p, 0, sizeof(*p));
	pthread_mutex_init(&p->heard.mutex, NULL);
	for (int r = 1; r < SIZE; r++) {
		int sv[2];
		CHECK_OR_DIE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
					sv) == 0);
		fds[r] = sv[0];
		p->raw[r] = sv[1];
	}
	CHECK_OK_OR_DIE(srt_control_start(0, SIZE, fds, NULL, listener, &p->heard, &p->channel));
}

static void close_pair(pair_t *p)
{
	if (!p->is_stopped)
		srt_control_stop(p->channel, SRT_OK, "");
	srt_control_free(p->channel);
	for (int r = 1; r < SIZE; r++) {
		if (p->raw[r] >= 0)
			close(p->raw[r]);
	}
	pthread_mutex_destroy(&p->heard.mutex);
}

static void send_raw(const pair_t *p, int from, const srt_frame_t *frame, const void *data,
		     size_t nbytes, int nfds)
{
	srt_frame_t sent = *frame;
	int fds[4] = { STDERR_FILENO, STDERR_FILENO, STDERR_FILENO, STDERR_FILENO };
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(fds))];
	} control;
	struct iovec iov[2] = { { &sent, sizeof(sent) }, { (void *)(uintptr_t)data, nbytes } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

	sent.src = (uint32_t)from;
	if (nfds > 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		*c = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		c->cmsg_len = CMSG_LEN((size_t)nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
	}
	CHECK(sendmsg(p->raw[from], &msg, MSG_NOSIGNAL) >= 0);
}

static srt_frame_t data_frame(uint64_t tag, uint32_t seq, size_t nbytes)
{
	srt_frame_t f = srt_frame_make(SRT_FRAME_DATA, 0, 0, nbytes);

	f.tag = tag;
	f.seq = seq;
	memcpy(f.what, "testing it", sizeof("testing it"));
	return f;
}

static srt_control_result_t receive(pair_t *p, int from, uint64_t tag, uint32_t seq, void *data,
				    size_t nbytes, int *fd)
{
	char theirs[SRT_CONTROL_WHAT];

	return srt_control_recv(p->channel, from, tag, seq, "testing", data, nbytes, fd, &go_on,
				srt_awake_s() + 60, theirs);
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* One bad message of each kind: the peer counts as dead, the other one does not. */
static void test_hostile(void)
{
	static const char big[60000];
	char none[8];
	int before = count_fds();

	for (int kind = 0; kind < 8; kind++) {
		pair_t p;
		srt_frame_t f = data_frame(1, 0, 8);
		size_t nbytes = 8;
		int nfds = 0;

		open_pair(&p);
		switch (kind) {
		case 0:
			f.magic++;
			break;
		case 1:
			f.nbytes = 9; /* more than came */
			break;
		case 2:
			f.nbytes = UINT32_MAX;
			break;
		case 3:
			f.type = 99;
			break;
		case 4:
			f.nbytes = nbytes =
				sizeof(big); /* longer than allowed: cut by the kernel */
			break;
		case 5:
			nfds = 3;
			break;
		case 6:
			f.type = SRT_FRAME_GOODBYE; /* of the wrong size */
			break;
		case 7:
			f.type = SRT_FRAME_ABORT;
			break;
		}
		send_raw(&p, 1, &f, big, nbytes, nfds);
		CHECK_INT(receive(&p, 1, 1, 0, none, 8, NULL), SRT_CONTROL_GONE);
		CHECK_INT(srt_control_peer_state(p.channel, 1), SRT_PEER_DEAD);
		CHECK_INT(srt_control_peer_state(p.channel, 2), SRT_PEER_ALIVE);
		CHECK_INT(p.heard.what[0], SRT_CONTROL_NOTICE_DEAD);
		CHECK_INT(p.heard.rank[0], 1);
		/* Less than a header. */
		CHECK(send(p.raw[2], "x", 1, MSG_NOSIGNAL) == 1);
		CHECK_INT(receive(&p, 2, 1, 0, none, 8, NULL), SRT_CONTROL_GONE);
		close_pair(&p);
	}
	CHECK_INT(count_fds(), before);
}

static void test_messages(void)
{
	pair_t p;
	char got[8], theirs[SRT_CONTROL_WHAT];
	int fd = -1, before;
	srt_frame_t f;

	open_pair(&p);
	before = count_fds();
	/* Fetched by name, whatever came first. */
	for (uint32_t seq = 0; seq < 3; seq++) {
		f = data_frame(7, seq, 8);
		send_raw(&p, 1, &f,
			 seq == 0 ? "message0" :
			 seq == 1 ? "message1" :
				    "message2",
			 8, seq == 2);
	}
	CHECK_INT(receive(&p, 1, 7, 1, got, 8, NULL), SRT_CONTROL_OK);
	CHECK(memcmp(got, "message1", 8) == 0);
	CHECK_INT(receive(&p, 1, 7, 2, got, 8, &fd), SRT_CONTROL_OK);
	CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
	close(fd);
	CHECK_INT(receive(&p, 1, 7, 0, got, 8, &fd), SRT_CONTROL_OK);
	CHECK_INT(fd, -1);
	/* Another size, or an unexpected descriptor. */
	f = data_frame(8, 0, 4);
	send_raw(&p, 1, &f, "four", 4, 0);
	CHECK_INT(receive(&p, 1, 8, 0, got, 8, NULL), SRT_CONTROL_MALFORMED);
	f = data_frame(8, 1, 4);
	send_raw(&p, 1, &f, "four", 4, 1);
	CHECK_INT(receive(&p, 1, 8, 1, got, 4, NULL), SRT_CONTROL_MALFORMED);
	CHECK_INT(count_fds(), before);
	/* Another operation. */
	f = data_frame(8, 2, 4);
	send_raw(&p, 1, &f, "four", 4, 0);
	CHECK_INT(srt_control_recv(p.channel, 1, 8, 2, "saving x", got, 4, NULL, &go_on,
				   srt_awake_s() + 60, theirs),
		  SRT_CONTROL_OTHER);
	CHECK_STR(theirs, "testing it");
	/* The word after "the" is part of the operation, the rest is not. */
	for (uint32_t other = 0; other < 2; other++) {
		f = data_frame(8, 3 + other, 4);
		strcpy(f.what, other ? "comparing the hashes" : "comparing the hashes of a");
		send_raw(&p, 1, &f, "four", 4, 0);
		CHECK_INT(srt_control_recv(p.channel, 1, 8, 3 + other,
					   other ? "comparing the plans" : "comparing the hashes",
					   got, 4, NULL, &go_on, srt_awake_s() + 60, theirs),
			  other ? SRT_CONTROL_OTHER : SRT_CONTROL_OK);
	}
	CHECK_STR(theirs, "comparing the hashes");
	/* Nothing comes: the deadline; then *stop. */
	CHECK_INT(srt_control_recv(p.channel, 1, 9, 0, "testing", got, 8, NULL, &go_on,
				   srt_awake_s() + 0.1, theirs),
		  SRT_CONTROL_TIMEOUT);
	atomic_int stop = 1;
	CHECK_INT(srt_control_recv(p.channel, 1, 9, 0, "testing", got, 8, NULL, &stop,
				   srt_awake_s() + 5, theirs),
		  SRT_CONTROL_STOPPED);
	/* A message that came before the death is still delivered. */
	f = data_frame(9, 0, 8);
	send_raw(&p, 1, &f, "lastword", 8, 0);
	close(p.raw[1]);
	p.raw[1] = -1;
	CHECK_INT(receive(&p, 1, 9, 0, got, 8, NULL), SRT_CONTROL_OK);
	CHECK_INT(receive(&p, 1, 9, 1, got, 8, NULL), SRT_CONTROL_GONE);
	CHECK_INT(srt_control_send(p.channel, 1, 9, 0, "testing", got, 8, -1, &go_on,
				   srt_awake_s() + 5),
		  SRT_CONTROL_GONE);
	close_pair(&p);
}

/* A goodbye, its reason, and that a death of the same moment is told first. */
static void test_goodbye(void)
{
	pair_t p;
	char got[8];
	srt_frame_reason_t reason = { .status = SRT_ERR_PEER_DEAD, .text = "rank 2 is gone" };
	srt_frame_t f = srt_frame_make(SRT_FRAME_GOODBYE, 0, 0, sizeof(reason));

	open_pair(&p);
	/* An abort from rank 3 holds the thread up in its notice; meanwhile both happen. */
	pthread_mutex_lock(&p.heard.mutex);
	f.type = SRT_FRAME_ABORT;
	send_raw(&p, 3, &f, &reason, sizeof(reason), 0);
	while (atomic_load(&p.heard.ncalls) == 0)
		usleep(1000);
	f.type = SRT_FRAME_GOODBYE;
	send_raw(&p, 1, &f, &reason, sizeof(reason), 0);
	close(p.raw[2]);
	p.raw[2] = -1;
	pthread_mutex_unlock(&p.heard.mutex);
	CHECK_INT(receive(&p, 1, 1, 0, got, 8, NULL), SRT_CONTROL_GONE);
	CHECK_INT(receive(&p, 2, 1, 0, got, 8, NULL), SRT_CONTROL_GONE);
	CHECK_INT(srt_control_peer_state(p.channel, 1), SRT_PEER_LEFT);
	CHECK_INT(srt_control_peer_state(p.channel, 2), SRT_PEER_DEAD);
	CHECK_INT(srt_control_peer_state(p.channel, 3), SRT_PEER_ALIVE);
	pthread_mutex_lock(&p.heard.mutex);
	CHECK_INT(p.heard.count, 3);
	CHECK_INT(p.heard.what[0], SRT_CONTROL_NOTICE_ABORT);
	CHECK_INT(p.heard.what[1], SRT_CONTROL_NOTICE_DEAD);
	CHECK_INT(p.heard.rank[1], 2);
	CHECK_INT(p.heard.what[2], SRT_CONTROL_NOTICE_LEFT);
	CHECK_INT(p.heard.rank[2], 1);
	CHECK_INT(p.heard.status[2], SRT_ERR_PEER_DEAD);
	CHECK_STR(p.heard.text[2], "rank 2 is gone");
	pthread_mutex_unlock(&p.heard.mutex);
	close_pair(&p);
}

/*
 * Rank 2 aborts and dies, and rank 1 reports the death: the abort is heard first, although rank 1
 * is read first.
 *
 * Reliability: a rank that aborts and ends | others may call it crashed | they report the abort
 */
static void test_abort_and_death(void)
{
	pair_t p;
	char got[8];
	srt_frame_reason_t reason = { .status = SRT_ERR_ABORTED, .text = "why" };
	srt_frame_t f = srt_frame_make(SRT_FRAME_ABORT, 0, 0, sizeof(reason));

	f.tag = 5;
	open_pair(&p);
	pthread_mutex_lock(&p.heard.mutex);
	send_raw(&p, 3, &f, &reason, sizeof(reason), 0);
	while (atomic_load(&p.heard.ncalls) == 0)
		usleep(1000);
	send_raw(&p, 2, &f, &reason, sizeof(reason), 0);
	close(p.raw[2]);
	p.raw[2] = -1;
	f.tag = SRT_CONTROL_TAG_RANK | 2;
	reason = (srt_frame_reason_t){ .status = SRT_ERR_PEER_DEAD };
	send_raw(&p, 1, &f, &reason, sizeof(reason), 0);
	pthread_mutex_unlock(&p.heard.mutex);
	CHECK_INT(receive(&p, 2, 1, 0, got, 8, NULL), SRT_CONTROL_GONE);
	pthread_mutex_lock(&p.heard.mutex);
	CHECK_INT(p.heard.count, 4);
	CHECK_INT(p.heard.rank[1], 2);
	CHECK_STR(p.heard.text[1], "why");
	CHECK_INT(p.heard.rank[2], 1); /* its report */
	CHECK_INT(p.heard.what[3], SRT_CONTROL_NOTICE_DEAD);
	CHECK_INT(p.heard.rank[3], 2);
	pthread_mutex_unlock(&p.heard.mutex);
	/* One that only rank 1 has seen; then one of no rank: rank 1 counts as dead. */
	for (uint64_t r = 3; r <= SIZE; r++) {
		f.tag = SRT_CONTROL_TAG_RANK | r;
		send_raw(&p, 1, &f, &reason, sizeof(reason), 0);
	}
	while (atomic_load(&p.heard.ncalls) < 6)
		usleep(1000);
	close_pair(&p);
}

/*
 * This process has no free descriptor for the one that comes: the sender is alive.
 *
 * Reliability: no file descriptor left | healthy ranks were called dead | names the rank and
 * `ulimit -n`
 */
static void test_no_descriptors(void)
{
	struct rlimit limit, none;
	unsigned char got[8];
	srt_frame_t f = data_frame(7, 0, 8);
	pair_t p;
	int fd;

	open_pair(&p);
	CHECK_OR_DIE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	fd = dup(STDERR_FILENO); /* the lowest free number */
	CHECK_OR_DIE(fd >= 0);
	close(fd);
	none = limit;
	none.rlim_cur = (rlim_t)fd;
	CHECK_OR_DIE(setrlimit(RLIMIT_NOFILE, &none) == 0);
	send_raw(&p, 1, &f, "message0", 8, 1);
	CHECK_INT(receive(&p, 1, 7, 0, got, 8, &fd), SRT_CONTROL_NO_DESCRIPTOR);
	CHECK_OR_DIE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	f.seq = 1;
	send_raw(&p, 1, &f, "message1", 8, 1);
	CHECK_INT(receive(&p, 1, 7, 1, got, 8, &fd), SRT_CONTROL_OK);
	CHECK(fd >= 0);
	close(fd);
	CHECK_INT(srt_control_peer_state(p.channel, 1), SRT_PEER_ALIVE);
	close_pair(&p);
}

/*
 * The socket to a peer that does not read is full: our goodbye follows the messages even so.
 *
 * Reliability: a rank that leaves in order while the socket to a stopped peer is full | that peer
 * called it killed | its goodbye arrives
 */
static void test_leave_full(void)
{
	static unsigned char got[sizeof(srt_frame_t) + 4096];
	srt_control_result_t result;
	srt_frame_t last = { 0 };
	uint32_t nsent = 0;
	pair_t p;

	open_pair(&p);
	do {
		result = srt_control_send(p.channel, 1, 9, nsent, "testing", got, 4096, -1, &go_on,
					  0);
		nsent += result == SRT_CONTROL_OK;
	} while (result == SRT_CONTROL_OK);
	CHECK_INT(result, SRT_CONTROL_TIMEOUT);
	CHECK(nsent > 0);
	srt_control_stop(p.channel, SRT_OK, "");
	p.is_stopped = true;
	for (uint32_t i = 0; i < nsent; i++) {
		CHECK_INT(recv(p.raw[1], got, sizeof(got), 0), sizeof(got));
		memcpy(&last, got, sizeof(last));
		CHECK_INT(last.seq, i);
	}
	CHECK_INT(recv(p.raw[1], got, sizeof(got), 0),
		  sizeof(srt_frame_t) + sizeof(srt_frame_reason_t));
	memcpy(&last, got, sizeof(last));
	CHECK_INT(last.type, SRT_FRAME_GOODBYE);
	close_pair(&p);
}

/* A peer that said goodbye before us hears ours too: to it, our end must be no death. */
static void test_both_leave(void)
{
	pair_t p;
	struct {
		srt_frame_t frame;
		srt_frame_reason_t reason;
	} got;
	srt_frame_reason_t reason = { .status = SRT_OK };
	srt_frame_t f = srt_frame_make(SRT_FRAME_GOODBYE, 0, 0, sizeof(reason));
	double start = srt_now_s();

	open_pair(&p);
	send_raw(&p, 1, &f, &reason, sizeof(reason), 0);
	while (srt_control_peer_state(p.channel, 1) != SRT_PEER_LEFT && srt_now_s() - start < 60)
		usleep(1000);
	CHECK_INT(srt_control_peer_state(p.channel, 1), SRT_PEER_LEFT);
	srt_control_stop(p.channel, SRT_OK, "");
	p.is_stopped = true;
	for (int r = 1; r < SIZE; r++) {
		CHECK_INT(recv(p.raw[r], &got, sizeof(got), 0), sizeof(f) + sizeof(reason));
		CHECK_INT(got.frame.type, SRT_FRAME_GOODBYE);
		CHECK_INT(recv(p.raw[r], &got, sizeof(got), 0), 0);
	}
	close_pair(&p);
}

/* More than the queue holds: the sender is held back, nothing is lost, memory stays bounded. */
static void *flood(void *arg)
{
	static unsigned char payload[SRT_CONTROL_MAX_PAYLOAD];
	int to = *(int *)arg;

	for (uint32_t seq = 0; seq < 1000; seq++) {
		srt_frame_t f = data_frame(1, seq, sizeof(payload));
		struct iovec iov[2] = { { &f, sizeof(f) }, { payload, sizeof(payload) } };
		struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };

		f.src = 1;
		payload[0] = (unsigned char)seq;
		while (sendmsg(to, &msg, MSG_NOSIGNAL) < 0 && (errno == EAGAIN || errno == EINTR))
			usleep(200);
	}
	return NULL;
}

static void test_flood(void)
{
	static unsigned char got[SRT_CONTROL_MAX_PAYLOAD];
	pthread_t thread;
	size_t queued;
	pair_t p;

	open_pair(&p);
	CHECK_OR_DIE(pthread_create(&thread, NULL, flood, &p.raw[1]) == 0);
	usleep(100000);
	pthread_mutex_lock(&p.channel->mutex);
	queued = p.channel->peer[1].queued_nbytes;
	pthread_mutex_unlock(&p.channel->mutex);
	CHECK(queued < SRT_CONTROL_QUEUE_NBYTES + ((size_t)1 << 20));
	for (uint32_t seq = 0; seq < 1000; seq++) {
		CHECK_INT(receive(&p, 1, 1, seq, got, sizeof(got), NULL), SRT_CONTROL_OK);
		CHECK_INT(got[0], seq & 255);
	}
	pthread_join(thread, NULL);
	close_pair(&p);
}

int main(void)
{
	test_hostile();
	test_messages();
	test_goodbye();
	test_abort_and_death();
	test_no_descriptors();
	test_leave_full();
	test_both_leave();
	test_flood();
	return check_done();
}
