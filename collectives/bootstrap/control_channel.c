/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control channel, callers' side: starting, stopping, sending, and receiving from the queues
 * that the progress thread fills (progress.c).
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "collectives/bootstrap/control_channel_internal.h"
#include "collectives/bootstrap/relay.h"

/* Longest sleep between checks of *stop and the peer's state. */
#define SLICE_S 0.02
/* Attempts to send a goodbye or an abort, a millisecond apart, while the kernel has no memory. */
#define MOST_ATTEMPTS 100

static srt_status_t start_thread(srt_control_channel_t *channel)
{
	int err = srt_thread_create(&channel->thread, srt_control_progress, channel);

	if (err != 0)
		return srt_fail(SRT_ERR_SYSTEM, "rank %d: cannot start the progress thread: %s",
				channel->rank, strerror(err));
	return SRT_OK;
}

static void init_sync(srt_control_channel_t *channel)
{
	pthread_mutex_init(&channel->mutex, NULL);
	for (int r = 0; r < channel->world_size; r++)
		srt_cond_init(&channel->peer[r].arrived);
}

static void destroy_sync(srt_control_channel_t *channel)
{
	for (int r = 0; r < channel->world_size; r++)
		pthread_cond_destroy(&channel->peer[r].arrived);
	pthread_mutex_destroy(&channel->mutex);
}

srt_status_t srt_control_start(int rank, int world_size, const int *fds,
			       const srt_control_route_t *route, srt_control_listener *listener,
			       void *listener_arg, srt_control_channel_t **out)
{
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	size_t n = (size_t)world_size;
	srt_control_channel_t *channel = srt_calloc(1, sizeof(*channel), "the control channel");

	if (channel == NULL)
		return status;
	channel->rank = rank;
	channel->world_size = world_size;
	channel->listener = listener;
	channel->listener_arg = listener_arg;
	channel->peer = srt_calloc(n, sizeof(*channel->peer), "the control channel");
	channel->node_of = route != NULL ? route->node_of : NULL;
	channel->gateway = route != NULL ? route->gateway : rank;
	channel->nlinks = route != NULL ? route->nlinks : 0;
	channel->pollfds = srt_calloc(n + 1 + (size_t)channel->nlinks, sizeof(*channel->pollfds),
				      "the control channel");
	channel->scratch =
		srt_calloc(1, sizeof(srt_frame_t) + SRT_CONTROL_MAX_PAYLOAD, "the control channel");
	if (channel->peer == NULL || channel->pollfds == NULL || channel->scratch == NULL)
		goto free_memory;
	if (channel->nlinks > 0) {
		channel->relay = srt_relay_create(channel, route);
		if (channel->relay == NULL)
			goto free_memory;
	}
	channel->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (channel->wake_fd < 0) {
		status = srt_fail(SRT_ERR_SYSTEM, "rank %d: cannot make an eventfd: %s", rank,
				  strerror(errno));
		goto free_memory;
	}
	for (int r = 0; r < world_size; r++) {
		channel->peer[r].fd = fds[r];
		channel->peer[r].tail = &channel->peer[r].head;
		channel->pollfds[r].fd = fds[r];
	}
	channel->pollfds[world_size] = (struct pollfd){ .fd = channel->wake_fd, .events = POLLIN };
	init_sync(channel);
	status = start_thread(channel);
	if (status != SRT_OK)
		goto close_wake;
	*out = channel;
	return SRT_OK;

close_wake:
	destroy_sync(channel);
	close(channel->wake_fd);
free_memory:
	srt_relay_destroy(channel->relay);
	free(channel->scratch);
	free(channel->pollfds);
	free(channel->peer);
	free(channel);
	return status;
}

/* Room for one more message to a peer that does not read. */
static void enlarge_socket(int fd)
{
	int nbytes;
	socklen_t n = sizeof(nbytes);

	/* The kernel doubles the number that is set. */
	if (getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &nbytes, &n) == 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &nbytes, sizeof(nbytes));
}

/* Sends a frame towards a rank, without waiting. -1 with errno on failure. */
static ssize_t send_towards(srt_control_channel_t *channel, int to, const srt_frame_t *frame,
			    const void *data, int fd)
{
	if (!srt_control_is_remote(channel, to))
		return srt_frame_send(channel->peer[to].fd, frame, data, fd);
	if (channel->relay != NULL)
		return srt_relay_send(channel, frame, data);
	return srt_frame_send(channel->peer[channel->gateway].fd, frame, data, fd);
}

/* After a failed send: whether the kernel lacks memory, which it has again when peers have read.
 * Sleeps then. */
static bool is_short_of_memory(int err)
{
	if (err != ENOBUFS && err != ENOMEM && err != ETOOMANYREFS)
		return false;
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	return true;
}

/* nattempts: how often sends of these reasons have slept. */
static void send_reason(srt_control_channel_t *channel, int to, srt_frame_t *frame,
			const srt_frame_reason_t *reason, int *nattempts)
{
	const srt_control_peer_t *peer = &channel->peer[to];

	/* A peer that has sent a goodbye still reads until it has stopped. It must not report the
	 * end of this socket as a death to the other ranks. */
	if (peer->fd < 0 || atomic_load(&peer->state) == SRT_PEER_DEAD)
		return;
	for (bool enlarged = false; srt_frame_send(peer->fd, frame, reason, -1) < 0;) {
		if (errno == EAGAIN && !enlarged) {
			enlarge_socket(peer->fd);
			enlarged = true;
		} else if (errno != EINTR &&
			   (*nattempts >= MOST_ATTEMPTS || !is_short_of_memory(errno) ||
			    ++*nattempts == MOST_ATTEMPTS)) {
			return;
		}
	}
}

/* Sends a goodbye or an abort to all other ranks of the node, except to `sender`. If that is this
 * rank, those of other nodes receive a copy by the relays: first, as the rank that has the relay
 * may end because of what it reads itself. */
static void send_reasons(srt_control_channel_t *channel, int sender, srt_frame_type_t type,
			 uint64_t tag, uint32_t seq, srt_status_t status, const char *text)
{
	srt_frame_reason_t reason = { .status = (int32_t)status };
	srt_frame_t frame = srt_frame_make(type, channel->rank, SRT_FRAME_ALL, sizeof(reason));
	int nattempts = 0;

	frame.tag = tag;
	frame.seq = seq;
	strncpy(reason.text, text, sizeof(reason.text) - 1);
	if (sender == channel->rank && channel->relay != NULL)
		(void)srt_relay_send(channel, &frame, &reason);
	/* A rank without a relay says goodbye to its gateway, which tells the other nodes. */
	else if (sender == channel->rank && channel->node_of != NULL && type != SRT_FRAME_GOODBYE)
		send_reason(channel, channel->gateway, &frame, &reason, &nattempts);
	for (int r = 0; r < channel->world_size; r++) {
		frame.dst = (uint32_t)r;
		if (r != sender)
			send_reason(channel, r, &frame, &reason, &nattempts);
	}
}

void srt_control_send_abort(srt_control_channel_t *channel, int sender, uint64_t tag, uint32_t seq,
			    srt_status_t status, const char *text)
{
	send_reasons(channel, sender, SRT_FRAME_ABORT, tag, seq, status, text);
}

void srt_control_tell_death(srt_control_channel_t *channel, int to, int rank)
{
	srt_frame_reason_t reason = { .status = SRT_ERR_PEER_DEAD };
	srt_frame_t frame =
		srt_frame_make(SRT_FRAME_ABORT, channel->rank, (uint32_t)to, sizeof(reason));
	int nattempts = 0;

	frame.tag = SRT_CONTROL_TAG_RANK | (uint64_t)rank;
	send_reason(channel, to, &frame, &reason, &nattempts);
}

void srt_control_wake_thread(srt_control_channel_t *channel)
{
	uint64_t one = 1;
	ssize_t ignored = write(channel->wake_fd, &one, sizeof(one));
	(void)ignored; /* a full counter also wakes the thread */
}

void srt_control_stop(srt_control_channel_t *channel, srt_status_t status, const char *text)
{
	if (channel == NULL)
		return;
	send_reasons(channel, channel->rank, SRT_FRAME_GOODBYE, 0, 0, status, text);
	channel->leaves_in_order = status == SRT_OK;
	atomic_store(&channel->stopping, true);
	srt_control_wake_thread(channel);
	pthread_join(channel->thread, NULL);
	srt_relay_destroy(channel->relay);
	channel->relay = NULL;
	for (int r = 0; r < channel->world_size; r++) {
		srt_control_peer_t *peer = &channel->peer[r];
		while (peer->head != NULL) {
			srt_message_t *m = peer->head;
			peer->head = m->next;
			if (m->fd >= 0)
				close(m->fd);
			free(m);
		}
		if (peer->fd >= 0)
			close(peer->fd);
		peer->fd = -1;
	}
}

void srt_control_close_copies(srt_control_channel_t *channel)
{
	for (int r = 0; r < channel->world_size; r++) {
		if (channel->peer[r].fd >= 0)
			close(channel->peer[r].fd);
		channel->peer[r].fd = -1;
	}
	srt_relay_close_copies(channel->relay);
}

void srt_control_free(srt_control_channel_t *channel)
{
	if (channel == NULL)
		return;
	destroy_sync(channel);
	close(channel->wake_fd);
	free(channel->message);
	free(channel->scratch);
	free(channel->pollfds);
	free(channel->peer);
	free(channel);
}

srt_peer_state_t srt_control_peer_state(const srt_control_channel_t *channel, int rank)
{
	return (srt_peer_state_t)atomic_load(&channel->peer[rank].state);
}

void srt_control_wake(srt_control_channel_t *channel)
{
	pthread_mutex_lock(&channel->mutex);
	for (int r = 0; r < channel->world_size; r++)
		pthread_cond_broadcast(&channel->peer[r].arrived);
	pthread_mutex_unlock(&channel->mutex);
}

/* The Unix socket that a message to a rank goes through, -1 for a link. */
static int socket_towards(const srt_control_channel_t *channel, int to)
{
	if (!srt_control_is_remote(channel, to))
		return channel->peer[to].fd;
	return channel->relay != NULL ? -1 : channel->peer[channel->gateway].fd;
}

srt_control_result_t srt_control_send(srt_control_channel_t *channel, int to, uint64_t tag,
				      uint32_t seq, const char *what, const void *data,
				      size_t nbytes, int fd, const atomic_int *stop,
				      double deadline)
{
	srt_frame_t frame = srt_frame_make(SRT_FRAME_DATA, channel->rank, (uint32_t)to, nbytes);

	if (nbytes > SRT_CONTROL_MAX_PAYLOAD || (fd >= 0 && srt_control_is_remote(channel, to)))
		return SRT_CONTROL_MALFORMED;
	frame.tag = tag;
	frame.seq = seq;
	strncpy(frame.what, what, sizeof(frame.what) - 1);
	for (;;) {
		if (atomic_load(&channel->peer[to].state) != SRT_PEER_ALIVE &&
		    srt_control_is_remote(channel, to))
			return SRT_CONTROL_GONE;
		if (send_towards(channel, to, &frame, data, fd) >= 0)
			return SRT_CONTROL_OK;
		if (is_short_of_memory(errno)) {
			/* again */
		} else if (errno == EAGAIN || errno == EWOULDBLOCK) {
			struct pollfd p = { .fd = socket_towards(channel, to), .events = POLLOUT };
			poll(&p, 1, p.fd >= 0 ? (int)(SLICE_S * 1000) : 1);
		} else if (errno != EINTR) {
			return SRT_CONTROL_GONE;
		}
		if (atomic_load(stop) != 0)
			return SRT_CONTROL_STOPPED;
		if (srt_awake_s() > deadline)
			return SRT_CONTROL_TIMEOUT;
	}
}

/* Removes the message from the queue and returns it, or NULL. Called with the mutex held. */
static srt_message_t *fetch_message(srt_control_channel_t *channel, srt_control_peer_t *peer,
				    uint64_t tag, uint32_t seq)
{
	for (srt_message_t **link = &peer->head; *link != NULL; link = &(*link)->next) {
		srt_message_t *m = *link;
		if (m->tag != tag || m->seq != seq)
			continue;
		*link = m->next;
		if (*link == NULL)
			peer->tail = link;
		bool was_full = peer->queued_nbytes > SRT_CONTROL_QUEUE_NBYTES;
		peer->queued_nbytes -= sizeof(*m) + m->nbytes;
		if (was_full && peer->queued_nbytes <= SRT_CONTROL_QUEUE_NBYTES)
			srt_control_wake_thread(channel);
		return m;
	}
	return NULL;
}

bool srt_control_may_come(srt_control_channel_t *channel, int from, uint64_t tag, uint32_t seq)
{
	const srt_control_peer_t *peer = &channel->peer[from];
	/* The state is set after the last message was queued. */
	bool may = atomic_load(&peer->state) == SRT_PEER_ALIVE;

	pthread_mutex_lock(&channel->mutex);
	for (const srt_message_t *m = peer->head; m != NULL && !may; m = m->next)
		may = m->tag == tag && m->seq == seq;
	pthread_mutex_unlock(&channel->mutex);
	return may;
}

/* The part of `what` that is equal on all ranks: the first word, or the first three if the second
 * one is "the". */
static size_t operation_nbytes(const char *what)
{
	size_t n = strcspn(what, " ");

	if (strncmp(what + n, " the ", 5) == 0)
		n += 5 + strcspn(what + n + 5, " ");
	return n;
}

bool srt_control_is_same_operation(const char *a, const char *b)
{
	const size_t n = operation_nbytes(a);

	return n == operation_nbytes(b) && memcmp(a, b, n) == 0;
}

srt_control_result_t srt_control_recv(srt_control_channel_t *channel, int from, uint64_t tag,
				      uint32_t seq, const char *what, void *data, size_t nbytes,
				      int *fd, const atomic_int *stop, double deadline,
				      char theirs[SRT_CONTROL_WHAT])
{
	srt_control_peer_t *peer = &channel->peer[from];
	srt_control_result_t result = SRT_CONTROL_OK;
	srt_message_t *m;

	pthread_mutex_lock(&channel->mutex);
	while ((m = fetch_message(channel, peer, tag, seq)) == NULL) {
		/* The state is set after the last message was queued: no more messages follow. */
		if (atomic_load(&peer->state) != SRT_PEER_ALIVE)
			result = SRT_CONTROL_GONE;
		else if (atomic_load(stop) != 0)
			result = SRT_CONTROL_STOPPED;
		else if (srt_awake_s() > deadline)
			result = SRT_CONTROL_TIMEOUT;
		if (result != SRT_CONTROL_OK)
			break;
		srt_cond_wait_s(&peer->arrived, &channel->mutex, SLICE_S);
	}
	pthread_mutex_unlock(&channel->mutex);
	if (m == NULL)
		return result;

	if (m->fd == SRT_FD_LOST) {
		result = SRT_CONTROL_NO_DESCRIPTOR;
	} else if (!srt_control_is_same_operation(m->what, what)) {
		result = SRT_CONTROL_OTHER;
		memcpy(theirs, m->what, sizeof(m->what));
		if (m->fd >= 0)
			close(m->fd);
	} else if (m->nbytes != nbytes || (fd == NULL && m->fd >= 0)) {
		result = SRT_CONTROL_MALFORMED;
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
