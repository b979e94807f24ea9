/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control channel, callers' side: start and stop, send, receive from the queues that the
 * progress thread fills (progress.c).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "collectives/bootstrap/wire.h"
#include "collectives/bootstrap/control_channel_internal.h"

/* Longest sleep before *stop and the peer's state are looked at again. */
#define SLICE_S 0.02

static srt_status_t start_thread(srt_peers_t *peers)
{
	sigset_t all, old;
	int err;

	/* Signals are for the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&peers->thread, NULL, srt_peers_progress, peers);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err != 0)
		return srt_fail(SRT_ERR_SYSTEM, "rank %d: cannot start the progress thread: %s",
				peers->rank, strerror(err));
	return SRT_OK;
}

static void init_sync(srt_peers_t *peers)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&peers->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&peers->arrived, &attr);
	pthread_condattr_destroy(&attr);
}

srt_status_t srt_peers_start(int rank, int world_size, const int *fds, srt_peers_listener *listener,
			     void *listener_arg, srt_peers_t **out)
{
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	size_t n = (size_t)world_size;
	srt_peers_t *peers = srt_calloc(1, sizeof(*peers), "the control channel");

	if (peers == NULL)
		return status;
	peers->rank = rank;
	peers->world_size = world_size;
	peers->listener = listener;
	peers->listener_arg = listener_arg;
	peers->peer = srt_calloc(n, sizeof(*peers->peer), "the control channel");
	peers->pollfds = srt_calloc(n + 1, sizeof(*peers->pollfds), "the control channel");
	peers->scratch =
		srt_calloc(1, sizeof(srt_frame_t) + SRT_PEERS_MAX_PAYLOAD, "the control channel");
	if (peers->peer == NULL || peers->pollfds == NULL || peers->scratch == NULL)
		goto free_memory;
	peers->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (peers->wake_fd < 0) {
		status = srt_fail(SRT_ERR_SYSTEM, "rank %d: cannot make an eventfd: %s", rank,
				  strerror(errno));
		goto free_memory;
	}
	for (int r = 0; r < world_size; r++) {
		peers->peer[r].fd = fds[r];
		peers->peer[r].tail = &peers->peer[r].head;
		peers->pollfds[r].fd = fds[r];
	}
	peers->pollfds[world_size] = (struct pollfd){ .fd = peers->wake_fd, .events = POLLIN };
	init_sync(peers);
	status = start_thread(peers);
	if (status != SRT_OK)
		goto close_wake;
	*out = peers;
	return SRT_OK;

close_wake:
	pthread_cond_destroy(&peers->arrived);
	pthread_mutex_destroy(&peers->mutex);
	close(peers->wake_fd);
free_memory:
	free(peers->scratch);
	free(peers->pollfds);
	free(peers->peer);
	free(peers);
	return status;
}

/* One message in one system call: on a SEQPACKET socket it goes out whole or not at all. */
static ssize_t send_frame(int to_fd, const srt_frame_t *frame, const void *data, int fd)
{
	srt_wire_control_t control;
	struct iovec iov[2] = {
		{ (void *)(uintptr_t)frame, sizeof(*frame) },
		{ (void *)(uintptr_t)data, frame->nbytes },
	};
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = frame->nbytes > 0 ? 2 : 1 };

	if (fd >= 0)
		srt_wire_attach(&msg, &control, fd);
	return sendmsg(to_fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_reason(srt_peer_t *peer, srt_frame_type_t type, uint64_t tag, srt_status_t status,
			const char *text)
{
	srt_frame_reason_t reason = { .status = (int32_t)status };
	srt_frame_t frame = {
		.magic = SRT_FRAME_MAGIC,
		.type = (uint32_t)type,
		.tag = tag,
		.nbytes = sizeof(reason),
	};

	/* Who has said goodbye still listens until it has stopped: it must not take our end for a
	 * death, and tell the others so. */
	if (peer->fd < 0 || atomic_load(&peer->state) == SRT_PEER_DEAD)
		return;
	strncpy(reason.text, text, sizeof(reason.text) - 1);
	while (send_frame(peer->fd, &frame, &reason, -1) < 0 && errno == EINTR)
		;
}

void srt_peers_tell_abort(srt_peers_t *peers, int to, uint64_t tag, srt_status_t status,
			  const char *text)
{
	send_reason(&peers->peer[to], SRT_FRAME_ABORT, tag, status, text);
}

static void wake_thread(srt_peers_t *peers)
{
	uint64_t one = 1;
	ssize_t ignored = write(peers->wake_fd, &one, sizeof(one));
	(void)ignored; /* a full counter wakes just as well */
}

void srt_peers_stop(srt_peers_t *peers, srt_status_t status, const char *text)
{
	if (peers == NULL)
		return;
	for (int r = 0; r < peers->world_size; r++)
		send_reason(&peers->peer[r], SRT_FRAME_GOODBYE, 0, status, text);
	atomic_store(&peers->stopping, true);
	wake_thread(peers);
	pthread_join(peers->thread, NULL);
	for (int r = 0; r < peers->world_size; r++) {
		srt_peer_t *peer = &peers->peer[r];
		while (peer->head != NULL) {
			srt_message_t *m = peer->head;
			peer->head = m->next;
			if (m->fd >= 0)
				close(m->fd);
			free(m);
		}
		if (peer->fd >= 0)
			close(peer->fd);
	}
	pthread_cond_destroy(&peers->arrived);
	pthread_mutex_destroy(&peers->mutex);
	close(peers->wake_fd);
	free(peers->scratch);
	free(peers->pollfds);
	free(peers->peer);
	free(peers);
}

srt_peer_state_t srt_peers_state(const srt_peers_t *peers, int rank)
{
	return (srt_peer_state_t)atomic_load(&peers->peer[rank].state);
}

void srt_peers_wake(srt_peers_t *peers)
{
	pthread_mutex_lock(&peers->mutex);
	pthread_cond_broadcast(&peers->arrived);
	pthread_mutex_unlock(&peers->mutex);
}

srt_peers_result_t srt_peers_send(srt_peers_t *peers, int to, uint64_t tag, uint32_t seq,
				  const void *data, size_t nbytes, int fd, const atomic_int *stop,
				  double deadline)
{
	srt_peer_t *peer = &peers->peer[to];
	srt_frame_t frame = {
		.magic = SRT_FRAME_MAGIC,
		.type = SRT_FRAME_DATA,
		.tag = tag,
		.seq = seq,
		.nbytes = (uint32_t)nbytes,
	};

	if (nbytes > SRT_PEERS_MAX_PAYLOAD)
		return SRT_PEERS_MALFORMED;
	for (;;) {
		if (atomic_load(stop) != 0)
			return SRT_PEERS_STOPPED;
		if (send_frame(peer->fd, &frame, data, fd) >= 0)
			return SRT_PEERS_OK;
		if (errno == ENOBUFS || errno == ENOMEM || errno == ETOOMANYREFS) {
			/* A shortage that passes when the peers have read. */
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			struct pollfd p = { .fd = peer->fd, .events = POLLOUT };
			poll(&p, 1, (int)(SLICE_S * 1000));
		} else if (errno != EINTR) {
			return SRT_PEERS_GONE;
		}
		if (srt_awake_s() > deadline)
			return SRT_PEERS_TIMEOUT;
	}
}

/* Takes the message out of the queue, or NULL. Called under the mutex. */
static srt_message_t *fetch(srt_peers_t *peers, srt_peer_t *peer, uint64_t tag, uint32_t seq)
{
	for (srt_message_t **link = &peer->head; *link != NULL; link = &(*link)->next) {
		srt_message_t *m = *link;
		if (m->tag != tag || m->seq != seq)
			continue;
		*link = m->next;
		if (*link == NULL)
			peer->tail = link;
		bool was_full = peer->queued_nbytes > SRT_PEERS_QUEUE_NBYTES;
		peer->queued_nbytes -= sizeof(*m) + m->nbytes;
		if (was_full && peer->queued_nbytes <= SRT_PEERS_QUEUE_NBYTES)
			wake_thread(peers);
		return m;
	}
	return NULL;
}

srt_peers_result_t srt_peers_recv(srt_peers_t *peers, int from, uint64_t tag, uint32_t seq,
				  void *data, size_t nbytes, int *fd, const atomic_int *stop,
				  double deadline)
{
	srt_peer_t *peer = &peers->peer[from];
	srt_peers_result_t result = SRT_PEERS_OK;
	srt_message_t *m;

	pthread_mutex_lock(&peers->mutex);
	while ((m = fetch(peers, peer, tag, seq)) == NULL) {
		/* The state is set after the last message was queued: none can come any more. */
		if (atomic_load(&peer->state) != SRT_PEER_ALIVE)
			result = SRT_PEERS_GONE;
		else if (atomic_load(stop) != 0)
			result = SRT_PEERS_STOPPED;
		else if (srt_awake_s() > deadline)
			result = SRT_PEERS_TIMEOUT;
		if (result != SRT_PEERS_OK)
			break;
		srt_cond_wait_s(&peers->arrived, &peers->mutex, SLICE_S);
	}
	pthread_mutex_unlock(&peers->mutex);
	if (m == NULL)
		return result;

	if (m->nbytes != nbytes || (fd == NULL && m->fd >= 0)) {
		result = SRT_PEERS_MALFORMED;
		if (m->fd >= 0)
			close(m->fd);
	} else {
		if (nbytes > 0)
			memcpy(data, m->data, nbytes);
		if (fd != NULL)
			*fd = m->fd;
	}
	free(m);
	return result;
}
