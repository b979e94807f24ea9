/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress thread: sleeps in poll() on the sockets of all peers, queues their messages and
 * detects deaths. Deaths are reported before goodbyes of the same round: if one rank dies and
 * another leaves because of it, a rank that wakes late must report the first.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/bootstrap/control_channel_internal.h"
#include "collectives/bootstrap/relay.h"

#define READS_PER_ROUND 32
/* More messages than the socket of a dead rank holds: one that is alive may go on sending. */
#define DRAIN_READS 4096
/* Until the next attempt. */
#define NO_MEMORY_MS 10

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
			  const srt_frame_t *frame, const void *payload, int fd)
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
	memcpy(m->data, payload, frame->nbytes);

	pthread_mutex_lock(&channel->mutex);
	*peer->tail = m;
	peer->tail = &m->next;
	peer->queued_nbytes += sizeof(*m) + m->nbytes;
	pthread_mutex_unlock(&channel->mutex);
	pthread_cond_broadcast(&peer->arrived);
}

static void set_state(srt_control_channel_t *channel, int rank, srt_peer_state_t state,
		      const srt_frame_reason_t *reason);
static bool read_one(srt_control_channel_t *channel, int rank);

/* Tells the other ranks of a death on this node, a relay those of other nodes too, before this
 * process can end because of it: a rank that sees this process end must know of the first death
 * before. */
static void announce_death(srt_control_channel_t *channel, int dead)
{
	if (channel->peer[dead].announced || dead == channel->rank ||
	    srt_control_is_remote(channel, dead))
		return;
	channel->peer[dead].announced = true;
	for (int r = 0; r < channel->world_size; r++) {
		if (r != dead && r != channel->rank && !channel->peer[r].ended)
			srt_control_tell_death(channel, r, dead);
	}
	if (channel->relay != NULL)
		srt_relay_tell_end(channel, dead, true, &(srt_frame_reason_t){ 0 });
}

/* Another rank reports a death. What the dead rank has sent comes first: it may have ended because
 * of a failure that it reported itself. */
static void drain_dead(srt_control_channel_t *channel, int dead)
{
	srt_control_peer_t *peer = &channel->peer[dead];

	if (channel->pollfds[dead].fd < 0 || peer->draining)
		return;
	peer->draining = true;
	for (int n = 0; n < DRAIN_READS && !peer->ended && read_one(channel, dead); n++)
		;
	peer->draining = false;
}

/* A goodbye, an abort or the loss of a rank. */
static bool handle_reason(srt_control_channel_t *channel, const srt_frame_t *frame,
			  const void *payload)
{
	const int rank = (int)frame->src;
	srt_control_peer_t *peer = &channel->peer[rank];
	srt_frame_reason_t reason;

	if (!srt_frame_parse_reason(frame, payload, &reason))
		return false;
	switch (frame->type) {
	case SRT_FRAME_GOODBYE:
		if (srt_control_is_remote(channel, rank)) {
			set_state(channel, rank, SRT_PEER_LEFT, &reason);
		} else {
			peer->goodbye = true;
			peer->reason = reason;
		}
		return true;
	case SRT_FRAME_LOST:
		if (frame->tag >= (uint64_t)channel->world_size ||
		    !srt_control_is_remote(channel, (int)frame->tag))
			return false;
		set_state(channel, (int)frame->tag, SRT_PEER_DEAD, &reason);
		return true;
	case SRT_FRAME_ABORT:
		if ((frame->tag & SRT_CONTROL_TAG_RANK) != 0 && reason.text[0] == '\0') {
			const uint64_t dead = frame->tag & ~SRT_CONTROL_TAG_RANK;

			if (dead >= (uint64_t)channel->world_size)
				return false;
			drain_dead(channel, (int)dead);
			announce_death(channel, (int)dead);
		}
		channel->listener(channel->listener_arg,
				  &(srt_control_notice_t){
					  .what = SRT_CONTROL_NOTICE_ABORT,
					  .rank = rank,
					  .tag = frame->tag,
					  .seq = frame->seq,
					  .status = (srt_status_t)reason.status,
					  .text = reason.text,
				  });
		return true;
	default:
		return false;
	}
}

bool srt_control_deliver(srt_control_channel_t *channel, const srt_frame_t *frame,
			 const void *payload, int fd)
{
	if (frame->type == SRT_FRAME_DATA && have_message(channel)) {
		queue_message(channel, &channel->peer[frame->src], frame, payload, fd);
		return true;
	}
	if (fd >= 0)
		close(fd);
	return frame->type != SRT_FRAME_DATA && handle_reason(channel, frame, payload);
}

/* A frame that came from a rank of this node. */
static bool route_frame(srt_control_channel_t *channel, int from, const srt_frame_t *frame, int fd)
{
	const void *payload = channel->scratch + sizeof(*frame);
	/* The gateway passes on what ranks of other nodes sent. */
	const bool is_passed_on = from == channel->gateway && channel->node_of != NULL &&
				  frame->src < (uint32_t)channel->world_size &&
				  srt_control_is_remote(channel, (int)frame->src);
	const bool is_mine = frame->dst == (uint32_t)channel->rank ||
			     (is_passed_on && frame->dst == SRT_FRAME_ALL);

	if (frame->src == (uint32_t)from || is_passed_on) {
		if (is_mine)
			return srt_control_deliver(channel, frame, payload, fd);
		if (channel->relay != NULL && fd < 0 &&
		    (frame->dst == SRT_FRAME_ALL ||
		     (frame->dst < (uint32_t)channel->world_size &&
		      srt_control_is_remote(channel, (int)frame->dst)))) {
			srt_relay_forward(channel, frame, payload);
			return true;
		}
	}
	if (fd >= 0)
		close(fd);
	return false;
}

/* Reads one message. False if there is none at present, no memory for it, or the peer has ended. */
static bool read_one(srt_control_channel_t *channel, int rank)
{
	srt_control_peer_t *peer = &channel->peer[rank];
	srt_wire_attached_t attached;
	srt_frame_t frame;
	ssize_t n;
	bool good;

	if (!have_message(channel)) {
		poll(NULL, 0, NO_MEMORY_MS);
		return false;
	}
	n = srt_wire_receive(peer->fd, channel->scratch,
			     sizeof(srt_frame_t) + SRT_CONTROL_MAX_PAYLOAD, &attached);
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
	if (attached.nfds == 0 && (attached.flags & MSG_CTRUNC) != 0)
		attached.fd = SRT_FD_LOST;
	good = attached.nfds <= 1 && (attached.flags & MSG_TRUNC) == 0 &&
	       srt_frame_parse(channel->scratch, (size_t)n, &frame) && frame.type >= SRT_FRAME_DATA;
	if (good)
		good = route_frame(channel, rank, &frame, attached.fd);
	else if (attached.fd >= 0)
		close(attached.fd);
	if (!good)
		peer->ended = true; /* it violates the protocol: treated as dead */
	return good;
}

srt_frame_reason_t srt_control_unreachable(int rank, int carrier)
{
	srt_frame_reason_t reason = { .status = SRT_ERR_PEER_DEAD };

	snprintf(reason.text, sizeof(reason.text),
		 "rank %d cannot be reached: rank %d, which carried its messages, is gone", rank,
		 carrier);
	return reason;
}

/* The gateway was the way to the ranks of other nodes. */
static void lose_gateway(srt_control_channel_t *channel)
{
	for (int r = 0; r < channel->world_size; r++) {
		const srt_frame_reason_t reason = srt_control_unreachable(r, channel->gateway);

		if (srt_control_is_remote(channel, r))
			set_state(channel, r, SRT_PEER_DEAD, &reason);
	}
}

/* A relay that has left goes on for a while, until its socket ends. */
static bool still_relays(const srt_control_channel_t *channel, int rank, srt_peer_state_t state)
{
	return channel->node_of != NULL && rank == channel->gateway && state == SRT_PEER_LEFT &&
	       !channel->peer[rank].ended;
}

/* A rank has left or died. The text of the reason of a death: "" = its process has ended. */
static void set_state(srt_control_channel_t *channel, int rank, srt_peer_state_t state,
		      const srt_frame_reason_t *reason)
{
	srt_control_peer_t *peer = &channel->peer[rank];
	const bool dead = state == SRT_PEER_DEAD, remote = srt_control_is_remote(channel, rank);
	srt_control_notice_t notice = {
		.what = dead ? SRT_CONTROL_NOTICE_DEAD : SRT_CONTROL_NOTICE_LEFT,
		.rank = rank,
		.status = dead ? SRT_ERR_PEER_DEAD : (srt_status_t)reason->status,
		.text = reason->text,
	};

	if (atomic_load(&peer->state) != SRT_PEER_ALIVE)
		return;
	if (!still_relays(channel, rank, state))
		channel->pollfds[rank].fd = -1;
	if (dead)
		announce_death(channel, rank);
	else if (channel->relay != NULL && !remote)
		srt_relay_tell_end(channel, rank, false, reason);
	if (dead && reason->text[0] != '\0') {
		notice.what = SRT_CONTROL_NOTICE_ABORT;
		notice.tag = SRT_CONTROL_TAG_RANK | (uint64_t)rank;
	}
	/* The listener is called first: a thread that sees the state finds the reason recorded. */
	channel->listener(channel->listener_arg, &notice);
	pthread_mutex_lock(&channel->mutex);
	atomic_store(&peer->state, state);
	pthread_cond_broadcast(&peer->arrived);
	pthread_mutex_unlock(&channel->mutex);
	if (rank == channel->gateway && !still_relays(channel, rank, state))
		lose_gateway(channel);
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
			set_state(channel, r, SRT_PEER_DEAD, &(srt_frame_reason_t){ 0 });
	}
	for (int r = 0; r < channel->world_size; r++) {
		const bool has_left = atomic_load(&channel->peer[r].state) == SRT_PEER_LEFT;

		if (channel->pollfds[r].fd >= 0 && channel->peer[r].ended && has_left) {
			channel->pollfds[r].fd = -1;
			lose_gateway(channel);
		}
		if (channel->pollfds[r].fd >= 0 && channel->peer[r].goodbye)
			set_state(channel, r, SRT_PEER_LEFT, &channel->peer[r].reason);
	}
}

void *srt_control_progress(void *arg)
{
	srt_control_channel_t *channel = arg;
	struct pollfd *wake = &channel->pollfds[channel->world_size];

	while (!atomic_load(&channel->stopping) || srt_relay_is_needed(channel)) {
		nfds_t n = (nfds_t)channel->world_size + 1;

		pthread_mutex_lock(&channel->mutex);
		for (int r = 0; r < channel->world_size; r++) {
			bool full = channel->peer[r].queued_nbytes > SRT_CONTROL_QUEUE_NBYTES;
			channel->pollfds[r].events = full ? POLLRDHUP : POLLIN | POLLRDHUP;
		}
		pthread_mutex_unlock(&channel->mutex);
		if (channel->relay != NULL)
			n += srt_relay_poll(channel, wake + 1);

		/* A relay has deadlines. */
		if (poll(channel->pollfds, n, channel->relay != NULL ? SRT_AWAKE_SLICE_MS : -1) < 0)
			continue; /* EINTR: signals are blocked here, but not those of a debugger */
		if (wake->revents != 0) {
			uint64_t count;
			ssize_t ignored = read(channel->wake_fd, &count, sizeof(count));
			(void)ignored;
		}
		read_all(channel);
		if (channel->relay != NULL)
			srt_relay_step(channel);
	}
	return NULL;
}
