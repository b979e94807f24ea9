/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joining the job: environment -> hello to the launcher -> one socket per peer -> control channel.
 * Every step has a deadline. The launcher reports the missing ranks. This side gives up some
 * seconds later, in case the launcher does not answer.
 */
#include "collectives/bootstrap/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "collectives/bootstrap/wire.h"
#include "collectives/transports/ucx/ucx.h"

/* How much later than the launcher this side gives up. */
#define GRACE_S 3.0
/* How long a collective that this rank destroys may still wait for other ranks. */
#define CLOSE_S 0.5

/* Reads and checks the environment. */
static srt_status_t read_place(srt_bootstrap_t *b)
{
	int64_t rank = srt_config_int("SHARDRT_RANK");
	int64_t size = srt_config_int("SHARDRT_WORLD_SIZE");
	int64_t local_rank = srt_config_int("SHARDRT_LOCAL_RANK");
	int64_t local_size = srt_config_int("SHARDRT_LOCAL_SIZE");

	if (size > SRT_WIRE_MAX_WORLD)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"SHARDRT_WORLD_SIZE=%lld: at most %d ranks can share a node",
				(long long)size, SRT_WIRE_MAX_WORLD);
	if (rank >= size)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"SHARDRT_RANK=%lld is not below SHARDRT_WORLD_SIZE=%lld",
				(long long)rank, (long long)size);
	if (local_size > size || local_rank >= local_size)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"SHARDRT_LOCAL_RANK=%lld, SHARDRT_LOCAL_SIZE=%lld do not fit "
				"SHARDRT_WORLD_SIZE=%lld",
				(long long)local_rank, (long long)local_size, (long long)size);
	b->rank = (int)rank;
	b->world_size = (int)size;
	b->local_rank = (int)local_rank;
	b->local_size = (int)local_size;
	return SRT_OK;
}

static srt_status_t parse_address(const char *address, struct sockaddr_un *sun, socklen_t *length)
{
	const size_t prefix = strlen(SRT_WIRE_ADDRESS_PREFIX);
	size_t n = strlen(address);

	if (strncmp(address, SRT_WIRE_ADDRESS_PREFIX, prefix) != 0 || n == prefix ||
	    n - prefix > sizeof(sun->sun_path) - 1)
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"bootstrap address \"%s\" is not of the form " SRT_WIRE_ADDRESS_PREFIX
			"NAME; start the program with shardrun, or clear SHARDRT_BOOTSTRAP "
			"to run one rank alone",
			address);
	memset(sun, 0, sizeof(*sun));
	sun->sun_family = AF_UNIX;
	/* sun_path[0] stays 0: the abstract name space, no file. */
	memcpy(sun->sun_path + 1, address + prefix, n - prefix);
	*length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n - prefix);
	return SRT_OK;
}

/* Checks that the launcher belongs to the user of this process. */
static srt_status_t check_owner(int fd, int rank)
{
	struct ucred cred;
	socklen_t n = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) != 0)
		return srt_fail(SRT_ERR_SYSTEM,
				"rank %d: cannot read the owner of the launcher's socket: %s", rank,
				strerror(errno));
	if (cred.uid != geteuid())
		return srt_fail(
			SRT_ERR_SYSTEM,
			"rank %d: the launcher's socket belongs to user %ld, not to user %ld", rank,
			(long)cred.uid, (long)geteuid());
	return SRT_OK;
}

static srt_status_t connect_launcher(const srt_bootstrap_t *b, const char *address, double deadline,
				     int *out)
{
	struct sockaddr_un sun;
	socklen_t length = 0;
	srt_status_t status;
	int fd;

	SRT_TRY(parse_address(address, &sun, &length));
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return srt_fail(SRT_ERR_SYSTEM, "rank %d: cannot make a socket: %s", b->rank,
				strerror(errno));
	while (connect(fd, (struct sockaddr *)&sun, length) != 0) {
		/* EAGAIN: the launcher's backlog is full for the moment. */
		if ((errno == EAGAIN || errno == EINTR) && srt_awake_s() < deadline) {
			nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
			continue;
		}
		status = srt_fail(SRT_ERR_SYSTEM,
				  "rank %d: cannot reach the launcher at %s: %s; it has ended, or "
				  "SHARDRT_BOOTSTRAP is left from an earlier job",
				  b->rank, address, strerror(errno));
		goto close_fd;
	}
	status = check_owner(fd, b->rank);
	if (status != SRT_OK)
		goto close_fd;
	*out = fd;
	return SRT_OK;

close_fd:
	close(fd);
	return status;
}

static srt_status_t say_hello(const srt_bootstrap_t *b, int fd)
{
	double ms = b->timeout_s * 1000;
	srt_wire_hello_t hello = {
		.magic = SRT_WIRE_MAGIC,
		.version = SRT_WIRE_VERSION,
		.type = SRT_WIRE_HELLO,
		.rank = (uint32_t)b->rank,
		.world_size = (uint32_t)b->world_size,
		.local_rank = (uint32_t)b->local_rank,
		.local_size = (uint32_t)b->local_size,
		.timeout_ms = ms < 1   ? 1 :
			      ms > 4e9 ? 4000000000u :
					 (uint32_t)ms,
	};
	ssize_t n;

	do {
		n = send(fd, &hello, sizeof(hello), MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)sizeof(hello))
		return srt_fail(SRT_ERR_SYSTEM, "rank %d: cannot send to the launcher: %s", b->rank,
				strerror(errno));
	return SRT_OK;
}

/* The descriptor of a message, or -1. Further descriptors are closed. */
static int extract_fd(struct msghdr *msg)
{
	int fd = -1;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			if (fd >= 0)
				close(fd);
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		}
	}
	return fd;
}

/* Waits for one reply. *fd = the descriptor that came with it or -1. */
static srt_status_t read_reply(const srt_bootstrap_t *b, int launcher, double deadline,
			       srt_wire_reply_t *reply, int *fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control;
	unsigned char message[sizeof(*reply)];
	struct iovec iov = { message, sizeof(message) };
	ssize_t n;

	for (;;) {
		struct msghdr msg = {
			.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = control.bytes,
			.msg_controllen = sizeof(control.bytes),
		};
		double left_s = deadline - srt_awake_s();
		n = recvmsg(launcher, &msg, MSG_CMSG_CLOEXEC);
		if (n >= 0) {
			*fd = extract_fd(&msg);
			if (msg.msg_flags & MSG_CTRUNC)
				return srt_fail(SRT_ERR_SYSTEM,
						"rank %d: cannot receive the sockets of %d ranks; "
						"raise the limit of open files (ulimit -n)",
						b->rank, b->world_size);
			break;
		}
		if (errno == EINTR || errno == ECONNRESET)
			continue;
		if (errno != EAGAIN && errno != EWOULDBLOCK)
			return srt_fail(SRT_ERR_SYSTEM,
					"rank %d: cannot read from the launcher: %s", b->rank,
					strerror(errno));
		if (left_s <= 0)
			return srt_fail(SRT_ERR_TIMEOUT,
					"rank %d: the launcher did not answer within %g s", b->rank,
					b->timeout_s + GRACE_S);
		struct pollfd p = { .fd = launcher, .events = POLLIN };
		poll(&p, 1,
		     left_s * 1000 < SRT_AWAKE_SLICE_MS ? (int)(left_s * 1000) + 1 :
							  SRT_AWAKE_SLICE_MS);
	}
	if (n == 0)
		return srt_fail(SRT_ERR_SYSTEM,
				"rank %d: the launcher ended before all ranks had joined", b->rank);
	if (!srt_wire_parse_reply(message, (size_t)n, reply))
		return srt_fail(
			SRT_ERR_SYSTEM,
			"rank %d: the launcher uses another version of the bootstrap protocol; "
			"use the shardrun of the same installation",
			b->rank);
	return SRT_OK;
}

static srt_status_t join_failed(const srt_bootstrap_t *b, const srt_wire_reply_t *reply)
{
	srt_status_t status = SRT_ERR_SYSTEM;

	if (reply->status > SRT_OK && reply->status < SRT_STATUS_COUNT)
		status = (srt_status_t)reply->status;
	return srt_fail(status, "rank %d of %d cannot join: %s", b->rank, b->world_size,
			reply->text);
}

/* Fills fds[world_size] with the sockets to the peers. */
static srt_status_t receive_sockets(const srt_bootstrap_t *b, int launcher, double deadline,
				    int *fds)
{
	int missing = b->world_size - 1;

	for (;;) {
		srt_wire_reply_t reply;
		int fd = -1;
		srt_status_t status = read_reply(b, launcher, deadline, &reply, &fd);

		if (status == SRT_OK && reply.type == SRT_WIRE_FAIL)
			status = join_failed(b, &reply);
		if (status == SRT_OK && reply.type == SRT_WIRE_READY && missing == 0 && fd < 0)
			return SRT_OK;
		if (status == SRT_OK && (!srt_wire_is_peer(&reply, b->rank, b->world_size) ||
					 fd < 0 || fds[reply.rank] >= 0))
			status = srt_fail(SRT_ERR_SYSTEM,
					  "rank %d: the launcher sent an unexpected message "
					  "(type %u, rank %u)",
					  b->rank, (unsigned)reply.type, (unsigned)reply.rank);
		if (status != SRT_OK) {
			if (fd >= 0)
				close(fd);
			return status;
		}
		fds[reply.rank] = fd;
		missing--;
	}
}

static srt_status_t join_world(srt_bootstrap_t *b, const char *address)
{
	double deadline = srt_awake_s() + b->timeout_s + GRACE_S;
	int *fds = srt_calloc((size_t)b->world_size, sizeof(*fds), "the sockets of the peers");
	srt_status_t status;

	if (fds == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int r = 0; r < b->world_size; r++)
		fds[r] = -1;
	status = connect_launcher(b, address, deadline, &b->launcher);
	if (status != SRT_OK)
		goto free_fds;
	status = say_hello(b, b->launcher);
	if (status == SRT_OK)
		status = receive_sockets(b, b->launcher, deadline, fds);
	if (status == SRT_OK)
		status = srt_control_start(b->rank, b->world_size, fds, srt_bootstrap_handle_notice,
					   b, &b->control);
	if (status != SRT_OK)
		close(b->launcher);
	for (int r = 0; r < b->world_size; r++) {
		if (status != SRT_OK && fds[r] >= 0)
			close(fds[r]);
	}
free_fds:
	free(fds);
	return status;
}

/* A program without an address is a job of one rank: refused if the environment names more ranks of
 * ours, with a warning, once, if another launcher names more. */
static srt_status_t check_alone(void)
{
	static atomic_flag foreign_warned = ATOMIC_FLAG_INIT;
	long long size = (long long)srt_config_int("SHARDRT_WORLD_SIZE");
	const char *launcher = srt_config_foreign_ranks();

	if (size > 1)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"SHARDRT_WORLD_SIZE=%lld, but SHARDRT_BOOTSTRAP is not set; start "
				"the ranks with shardrun, or clear SHARDRT_WORLD_SIZE to run one "
				"rank alone",
				size);
	if (launcher != NULL && !atomic_flag_test_and_set(&foreign_warned))
		srt_log(SRT_LOG_WARN,
			"%s is set to more than one process, but SHARDRT_BOOTSTRAP is not set: "
			"each process is a separate job of one rank; start them with shardrun",
			launcher);
	return SRT_OK;
}

/* ---- fork() ------------------------------------------------------------------------------- */

/* Those with sockets. */
static srt_bootstrap_t *joined;
static pthread_mutex_t joined_lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void)
{
	pthread_mutex_lock(&joined_lock);
}

static void after_fork_parent(void)
{
	pthread_mutex_unlock(&joined_lock);
}

/* Else the peers and the launcher would see the parent's death only when the child ends too. */
static void after_fork_child(void)
{
	for (srt_bootstrap_t *b = joined; b != NULL; b = b->next) {
		srt_control_close_copies(b->control);
		close(b->launcher);
		b->launcher = -1;
	}
	joined = NULL;
	pthread_mutex_unlock(&joined_lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static void enlist(srt_bootstrap_t *b)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&joined_lock);
	b->next = joined;
	joined = b;
	pthread_mutex_unlock(&joined_lock);
}

static void delist(const srt_bootstrap_t *b)
{
	pthread_mutex_lock(&joined_lock);
	for (srt_bootstrap_t **link = &joined; *link != NULL; link = &(*link)->next) {
		if (*link == b) {
			*link = b->next;
			break;
		}
	}
	pthread_mutex_unlock(&joined_lock);
}

srt_status_t srt_bootstrap_join(const char *address, double timeout_s, srt_bootstrap_t **out)
{
	srt_bootstrap_t *b = srt_calloc(1, sizeof(*b), "the bootstrap");
	srt_status_t status = SRT_OK;

	if (b == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	atomic_init(&b->nholders, 1);
	pthread_mutex_init(&b->mutex, NULL);
	b->world_size = b->local_size = 1;
	b->launcher = -1;
	b->ncores = srt_available_cores();
	b->timeout_s = timeout_s > 0 ? timeout_s : srt_config_seconds("SHARDRT_TIMEOUT");
	b->close_s = CLOSE_S;
	if (address == NULL) {
		address = srt_config_string("SHARDRT_BOOTSTRAP");
		if (address[0] == '\0')
			status = check_alone();
	}
	if (address[0] != '\0') {
		status = read_place(b);
		if (status == SRT_OK)
			status = join_world(b, address);
	}
	if (status != SRT_OK) {
		pthread_mutex_destroy(&b->mutex);
		free(b);
		return status;
	}
	if (b->control != NULL)
		enlist(b);
	*out = b;
	return SRT_OK;
}

void srt_bootstrap_hold(srt_bootstrap_t *b)
{
	atomic_fetch_add(&b->nholders, 1);
}

void srt_bootstrap_release(srt_bootstrap_t *b)
{
	if (atomic_fetch_sub(&b->nholders, 1) > 1)
		return;
	srt_ucx_worker_destroy(b->ucx);
	srt_control_free(b->control);
	pthread_mutex_destroy(&b->mutex);
	free(b->node_of);
	free(b);
}

void srt_bootstrap_leave(srt_bootstrap_t *b)
{
	char text[SRT_CONTROL_TEXT];
	srt_status_t failure;

	if (b == NULL)
		return;
	srt_bootstrap_close_comms(b);
	delist(b);
	pthread_mutex_lock(&b->mutex);
	failure = b->failure;
	memcpy(text, b->failure_text, sizeof(text));
	pthread_mutex_unlock(&b->mutex);
	srt_control_stop(b->control, failure, text);
	if (b->launcher >= 0)
		close(b->launcher);
	srt_bootstrap_release(b);
}

int srt_bootstrap_rank(const srt_bootstrap_t *b)
{
	return b->rank;
}

int srt_bootstrap_world_size(const srt_bootstrap_t *b)
{
	return b->world_size;
}

int srt_bootstrap_local_rank(const srt_bootstrap_t *b)
{
	return b->local_rank;
}

int srt_bootstrap_local_size(const srt_bootstrap_t *b)
{
	return b->local_size;
}
