/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress thread: sleeps in poll() on the sockets of all peers, queues their messages and
 * detects deaths. Deaths are reported before goodbyes of the same round: if one rank dies and
 * another leaves because of it, a rank that wakes late must report the first.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/bootstrap/control_channel_internal.h"

#define READS_PER_ROUND 32
/* Until the next attempt. */
#define NO_MEMORY_MS 10

/* The descriptor of a received message: -1 = none, or SRT_FD_LOST. More than one violates the
 * protocol. */
static int extract_fd(struct msghdr *msg, bool *is_broken)
{
	int fd = -1;
	bool broken = (msg->msg_flags & MSG_TRUNC) != 0;

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
	*is_broken = broken;
	if (broken)
		return -1;
	/* The control buffer has room for more descriptors than peers send. */
	return fd < 0 && (msg->msg_flags & MSG_CTRUNC) != 0 ? SRT_FD_LOST : fd;
}

/*
 * The message that the next data are received into. It is allocated before they are taken from the
 * socket, so that they wait there while this process has no memory.
 */
static bool have_message(srt_control_channel_t *channel)
{
	if (channel->message == NULL)
		channel->message = malloc(sizeof(*channel->message) + SRT_CONTROL_MAX_PAYLOAD);
	return channel->message != NULL;
}

static void queue_message(srt_control_channel_t *channel, srt_control_peer_t *peer,
			  const srt_frame_t *frame, int fd)
{
	srt_message_t *m = realloc(channel->message, sizeof(*m) + frame->nbytes);

	if (m == NULL) /* It stays larger than it need be. */
		m = channel->message;
	channel->message = NULL;
	(void)have_message(channel); /* now: nothing is allocated once the receiver goes on */
	m->next = NULL;
	m->tag = frame->tag;
	m->seq = frame->seq;
	m->fd = fd;
	memcpy(m->what, frame->what, sizeof(m->what));
	m->nbytes = frame->nbytes;
	memcpy(m->data, channel->scratch + sizeof(*frame), frame->nbytes);

	pthread_mutex_lock(&channel->mutex);
	*peer->tail = m;
	peer->tail = &m->next;
	peer->queued_nbytes += sizeof(*m) + m->nbytes;
	pthread_cond_broadcast(&peer->arrived);
	pthread_mutex_unlock(&channel->mutex);
}

/* Tells the other ranks of a death before this process can end because of it: a rank that sees this
 * process end must know of the first death before. */
static void announce_death(srt_control_channel_t *channel, int dead)
{
	if (channel->peer[dead].announced || dead == channel->rank)
		return;
	channel->peer[dead].announced = true;
	for (int r = 0; r < channel->world_size; r++) {
		if (r != dead && r != channel->rank && !channel->peer[r].ended)
			srt_control_send_abort(channel, r, SRT_CONTROL_TAG_RANK | (uint64_t)dead,
					       SRT_ERR_PEER_DEAD, "");
	}
}

static bool read_one(srt_control_channel_t *channel, int rank);

/* Another rank reports a death. What the dead rank has sent comes first: it may have ended because
 * of a failure that it reported itself. */
static void drain_dead(srt_control_channel_t *channel, int dead)
{
	srt_control_peer_t *peer = &channel->peer[dead];

	if (channel->pollfds[dead].fd < 0 || peer->draining)
		return;
	peer->draining = true;
	while (!peer->ended && read_one(channel, dead))
		;
	peer->draining = false;
}

/* A goodbye or an abort. */
static bool handle_reason(srt_control_channel_t *channel, int rank, const srt_frame_t *frame)
{
	srt_control_peer_t *peer = &channel->peer[rank];
	srt_frame_reason_t reason;

	if (!srt_frame_parse_reason(frame, channel->scratch + sizeof(*frame), &reason))
		return false;
	if (frame->type == SRT_FRAME_GOODBYE) {
		peer->goodbye = true;
		peer->reason = reason;
		return true;
	}
	if ((frame->tag & SRT_CONTROL_TAG_RANK) != 0 && reason.text[0] == '\0') {
		const uint64_t dead = frame->tag & ~SRT_CONTROL_TAG_RANK;

		if (dead >= (uint64_t)channel->world_size)
			return false;
		drain_dead(channel, (int)dead);
		announce_death(channel, (int)dead);
	}
	channel->listener(channel->listener_arg, &(srt_control_notice_t){
							 .what = SRT_CONTROL_NOTICE_ABORT,
							 .rank = rank,
							 .tag = frame->tag,
							 .status = (srt_status_t)reason.status,
							 .text = reason.text,
						 });
	return true;
}

/* Reads one message. False if there is none at present, no memory for it, or the peer has ended. */
static bool read_one(srt_control_channel_t *channel, int rank)
{
	srt_control_peer_t *peer = &channel->peer[rank];
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec iov = { channel->scratch, sizeof(srt_frame_t) + SRT_CONTROL_MAX_PAYLOAD };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	srt_frame_t frame;
	ssize_t n;

	if (!have_message(channel)) {
		poll(NULL, 0, NO_MEMORY_MS);
		return false;
	}
	n = recvmsg(peer->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0) {
		/* A reset is reported once, before the messages that the peer had sent:
		 * continue. */
		if (errno == EINTR || errno == ECONNRESET)
			return true;
		if (errno == ENOMEM ||
		    errno == ENOBUFS) /* of the kernel; the message is not lost */
			poll(NULL, 0, NO_MEMORY_MS);
		else if (errno != EAGAIN && errno != EWOULDBLOCK)
			peer->ended = true;
		return false;
	}
	if (n == 0) {
		peer->ended = true;
		return false;
	}
	bool broken;
	int fd = extract_fd(&msg, &broken);
	bool good = !broken && srt_frame_parse(channel->scratch, (size_t)n, &frame);
	if (good && frame.type == SRT_FRAME_DATA) {
		queue_message(channel, peer, &frame, fd);
		fd = -1;
	} else if (good) {
		good = handle_reason(channel, rank, &frame);
	}
	if (fd >= 0)
		close(fd);
	if (!good)
		peer->ended = true; /* it violates the protocol: treated as dead */
	return good;
}

static void set_state(srt_control_channel_t *channel, int rank, srt_peer_state_t state)
{
	srt_control_peer_t *peer = &channel->peer[rank];
	bool dead = state == SRT_PEER_DEAD;

	channel->pollfds[rank].fd = -1;
	if (dead)
		announce_death(channel, rank);
	/* The listener is called first: a thread that sees the state finds the reason recorded. */
	channel->listener(channel->listener_arg,
			  &(srt_control_notice_t){
				  .what = dead ? SRT_CONTROL_NOTICE_DEAD : SRT_CONTROL_NOTICE_LEFT,
				  .rank = rank,
				  .status = dead ? SRT_ERR_PEER_DEAD :
						   (srt_status_t)peer->reason.status,
				  .text = dead ? "" : peer->reason.text,
			  });
	pthread_mutex_lock(&channel->mutex);
	atomic_store(&peer->state, state);
	pthread_cond_broadcast(&peer->arrived);
	pthread_mutex_unlock(&channel->mutex);
}

static void read_all(srt_control_channel_t *channel)
{
	for (int r = 0; r < channel->world_size; r++) {
		if (channel->pollfds[r].fd < 0 || channel->pollfds[r].revents == 0)
			continue;
		/* A peer that sends without pause must not block the others or fill the memory. A
		 * peer that has ended is read to its last message. */
		bool last = (channel->pollfds[r].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
		for (int n = 0; (last || n < READS_PER_ROUND) && read_one(channel, r); n++)
			;
	}
	for (int r = 0; r < channel->world_size; r++) {
		if (channel->pollfds[r].fd >= 0 && channel->peer[r].ended &&
		    !channel->peer[r].goodbye)
			set_state(channel, r, SRT_PEER_DEAD);
	}
	for (int r = 0; r < channel->world_size; r++) {
		if (channel->pollfds[r].fd >= 0 && channel->peer[r].goodbye)
			set_state(channel, r, SRT_PEER_LEFT);
	}
}

void *srt_control_progress(void *arg)
{
	srt_control_channel_t *channel = arg;
	struct pollfd *wake = &channel->pollfds[channel->world_size];

	while (!atomic_load(&channel->stopping)) {
		pthread_mutex_lock(&channel->mutex);
		for (int r = 0; r < channel->world_size; r++) {
			bool full = channel->peer[r].queued_nbytes > SRT_CONTROL_QUEUE_NBYTES;
			channel->pollfds[r].events = full ? POLLRDHUP : POLLIN | POLLRDHUP;
		}
		pthread_mutex_unlock(&channel->mutex);

		if (poll(channel->pollfds, (nfds_t)channel->world_size + 1, -1) < 0)
			continue; /* EINTR: signals are blocked here, but not those of a debugger */
		if (wake->revents != 0) {
			uint64_t count;
			ssize_t ignored = read(channel->wake_fd, &count, sizeof(count));
			(void)ignored;
		}
		read_all(channel);
	}
	return NULL;
}
