/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress thread: sleeps in poll() on the sockets of all peers, queues their messages and
 * finds out who is gone.
 *
 * Deaths are reported before goodbyes of the same round: when one rank dies and another leaves
 * because of it, a survivor that wakes late must name the first.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/bootstrap/control_channel_internal.h"

#define READS_PER_ROUND 32

/* Takes the descriptor of a received message; more than one breaks the protocol. -2 = broken. */
static int take_fd(struct msghdr *msg)
{
	int fd = -1;
	bool broken = (msg->msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int got;
			memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (fd >= 0 || broken) {
				close(got);
				broken = true;
			} else {
				fd = got;
			}
		}
	}
	if (broken && fd >= 0)
		close(fd);
	return broken ? -2 : fd;
}

static bool queue_message(srt_peers_t *peers, srt_peer_t *peer, const srt_frame_t *frame, int fd)
{
	srt_message_t *m = malloc(sizeof(*m) + frame->nbytes);

	if (m == NULL)
		return false;
	m->next = NULL;
	m->tag = frame->tag;
	m->seq = frame->seq;
	m->fd = fd;
	m->nbytes = frame->nbytes;
	memcpy(m->data, peers->scratch + sizeof(*frame), frame->nbytes);

	pthread_mutex_lock(&peers->mutex);
	*peer->tail = m;
	peer->tail = &m->next;
	peer->queued_nbytes += sizeof(*m) + m->nbytes;
	pthread_cond_broadcast(&peers->arrived);
	pthread_mutex_unlock(&peers->mutex);
	return true;
}

/* A goodbye or an abort. */
static bool take_reason(srt_peers_t *peers, int rank, const srt_frame_t *frame)
{
	srt_peer_t *peer = &peers->peer[rank];
	srt_frame_reason_t reason;

	if (frame->nbytes != sizeof(reason))
		return false;
	memcpy(&reason, peers->scratch + sizeof(*frame), sizeof(reason));
	reason.text[sizeof(reason.text) - 1] = '\0';
	if (reason.status < 0 || reason.status >= SRT_STATUS_COUNT)
		return false;
	if (frame->type == SRT_FRAME_GOODBYE) {
		peer->goodbye = true;
		peer->reason = reason;
		return true;
	}
	peers->listener(peers->listener_arg, &(srt_peers_notice_t){
						     .what = SRT_NOTICE_ABORT,
						     .rank = rank,
						     .tag = frame->tag,
						     .status = (srt_status_t)reason.status,
						     .text = reason.text,
					     });
	return true;
}

/* Reads one message; false when there is none for now or the peer is done. */
static bool read_one(srt_peers_t *peers, int rank)
{
	srt_peer_t *peer = &peers->peer[rank];
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec iov = { peers->scratch, sizeof(srt_frame_t) + SRT_PEERS_MAX_PAYLOAD };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	srt_frame_t frame;
	ssize_t n = recvmsg(peer->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0) {
		/* A reset is reported once, before what the peer had sent: read on. */
		if (errno == EINTR || errno == ECONNRESET)
			return true;
		if (errno != EAGAIN && errno != EWOULDBLOCK)
			peer->ended = true;
		return false;
	}
	if (n == 0) {
		peer->ended = true;
		return false;
	}
	int fd = take_fd(&msg);
	bool good = fd != -2 && (size_t)n >= sizeof(frame);
	if (good) {
		memcpy(&frame, peers->scratch, sizeof(frame));
		good = frame.magic == SRT_FRAME_MAGIC && frame.nbytes == (size_t)n - sizeof(frame);
	}
	if (good && frame.type == SRT_FRAME_DATA) {
		good = queue_message(peers, peer, &frame, fd);
		if (good)
			fd = -1;
	} else if (good) {
		good = (frame.type == SRT_FRAME_GOODBYE || frame.type == SRT_FRAME_ABORT) &&
		       take_reason(peers, rank, &frame);
	}
	if (fd >= 0)
		close(fd);
	if (!good)
		peer->ended = true; /* not one of us any more: as good as dead */
	return good;
}

static void set_state(srt_peers_t *peers, int rank, srt_peer_state_t state)
{
	srt_peer_t *peer = &peers->peer[rank];
	bool dead = state == SRT_PEER_DEAD;

	peers->pollfds[rank].fd = -1;
	/* Passed on before anything here can end because of it: who sees this process end must have
	 * heard of the first death before. */
	for (int r = 0; dead && r < peers->world_size; r++) {
		if (r != rank && r != peers->rank && !peers->peer[r].ended)
			srt_peers_tell_abort(peers, r, SRT_PEERS_TAG_DEAD | (uint64_t)rank,
					     SRT_ERR_PEER_DEAD, "");
	}
	/* The listener first: whoever sees the state finds the reason already recorded. */
	peers->listener(peers->listener_arg,
			&(srt_peers_notice_t){
				.what = dead ? SRT_NOTICE_DEAD : SRT_NOTICE_LEFT,
				.rank = rank,
				.status = dead ? SRT_ERR_PEER_DEAD :
						 (srt_status_t)peer->reason.status,
				.text = dead ? "" : peer->reason.text,
			});
	pthread_mutex_lock(&peers->mutex);
	atomic_store(&peer->state, state);
	pthread_cond_broadcast(&peers->arrived);
	pthread_mutex_unlock(&peers->mutex);
}

static void read_all(srt_peers_t *peers)
{
	for (int r = 0; r < peers->world_size; r++) {
		if (peers->pollfds[r].fd < 0 || peers->pollfds[r].revents == 0)
			continue;
		/* A peer that talks without pause must not keep the others from being heard, nor
		 * fill the memory; one that is gone has a last message. */
		bool last = (peers->pollfds[r].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
		for (int n = 0; (last || n < READS_PER_ROUND) && read_one(peers, r); n++)
			;
	}
	for (int r = 0; r < peers->world_size; r++) {
		if (peers->pollfds[r].fd >= 0 && peers->peer[r].ended && !peers->peer[r].goodbye)
			set_state(peers, r, SRT_PEER_DEAD);
	}
	for (int r = 0; r < peers->world_size; r++) {
		if (peers->pollfds[r].fd >= 0 && peers->peer[r].goodbye)
			set_state(peers, r, SRT_PEER_LEFT);
	}
}

void *srt_peers_progress(void *arg)
{
	srt_peers_t *peers = arg;
	struct pollfd *wake = &peers->pollfds[peers->world_size];

	while (!atomic_load(&peers->stopping)) {
		pthread_mutex_lock(&peers->mutex);
		for (int r = 0; r < peers->world_size; r++) {
			bool full = peers->peer[r].queued_nbytes > SRT_PEERS_QUEUE_NBYTES;
			peers->pollfds[r].events = full ? POLLRDHUP : POLLIN | POLLRDHUP;
		}
		pthread_mutex_unlock(&peers->mutex);

		if (poll(peers->pollfds, (nfds_t)peers->world_size + 1, -1) < 0)
			continue; /* EINTR; signals are blocked here, but a debugger's are not */
		if (wake->revents != 0) {
			uint64_t count;
			ssize_t ignored = read(peers->wake_fd, &count, sizeof(count));
			(void)ignored;
		}
		read_all(peers);
	}
	return NULL;
}
