/* SPDX-License-Identifier: BSD-3-Clause */
/* The relay of a node's control messages: see relay.h. */
#include "collectives/bootstrap/relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/bootstrap/link.h"

/* More than this in the queue of a link: the sender waits. */
#define MAX_QUEUED ((size_t)4 << 20)
/* A rank of this node that does not read, with more than this waiting for it, has failed. */
#define MAX_WAITING ((size_t)64 << 20)
#define HEARTBEATS 8 /* in the time after which a silent link is lost */
#define FLUSH_S 0.5  /* longest wait until the last messages have gone */

/* A frame that waits for a rank of this node, whose socket is full. */
typedef struct waiting {
	struct waiting *next;
	size_t nbytes;
	unsigned char bytes[];
} waiting_t;

typedef struct outbox {
	waiting_t *head, **tail;
	size_t nbytes;
} outbox_t;

typedef struct end {
	srt_link_t *link; /* NULL: lost, or closed in order */
	int carrier;      /* the rank at the other end */
	int node;         /* its node */
	double heard, sent;
} end_t;

struct srt_relay {
	pthread_mutex_t mutex; /* protects the links; they are closed by the progress thread */
	end_t *ends;           /* [nends] */
	int nends;
	int world_size;
	outbox_t *outboxes; /* [world_size] the progress thread's */
	double heartbeat_s;
	double serve_s;
	double asleep_s; /* the monotonic clock less srt_awake_s(): grows while it does not run */
	double pause_s, paused_at; /* how long this process did not run, and when that ended */
	double left_at;            /* 0: this rank has not left */
	double ended_at; /* since when it carries no more than what is queued; 0: it still does */
};

srt_relay_t *srt_relay_create(const srt_control_channel_t *channel,
			      const srt_control_route_t *route)
{
	srt_relay_t *relay = srt_calloc(1, sizeof(*relay), "the links to other nodes");

	if (relay == NULL)
		return NULL;
	relay->ends =
		srt_calloc((size_t)route->nlinks, sizeof(*relay->ends), "the links to other nodes");
	relay->outboxes = srt_calloc((size_t)channel->world_size, sizeof(*relay->outboxes),
				     "the links to other nodes");
	if (relay->ends == NULL || relay->outboxes == NULL) {
		free(relay->ends);
		free(relay->outboxes);
		free(relay);
		return NULL;
	}
	pthread_mutex_init(&relay->mutex, NULL);
	relay->nends = route->nlinks;
	relay->world_size = channel->world_size;
	relay->heartbeat_s = route->heartbeat_s;
	relay->serve_s = route->serve_s;
	relay->asleep_s = srt_now_s() - srt_awake_s();
	for (int i = 0; i < relay->nends; i++) {
		relay->ends[i] = (end_t){ .link = route->links[i].link,
					  .carrier = route->links[i].carrier,
					  .node = channel->node_of[route->links[i].carrier],
					  .heard = srt_awake_s(),
					  .sent = srt_awake_s() };
		route->links[i].link = NULL;
	}
	for (int r = 0; r < channel->world_size; r++)
		relay->outboxes[r].tail = &relay->outboxes[r].head;
	return relay;
}

static void clear_outbox(outbox_t *box)
{
	while (box->head != NULL) {
		waiting_t *w = box->head;

		box->head = w->next;
		free(w);
	}
	box->tail = &box->head;
	box->nbytes = 0;
}

void srt_relay_destroy(srt_relay_t *relay)
{
	if (relay == NULL)
		return;
	for (int i = 0; i < relay->nends; i++)
		srt_link_close(relay->ends[i].link);
	for (int r = 0; r < relay->world_size; r++)
		clear_outbox(&relay->outboxes[r]);
	pthread_mutex_destroy(&relay->mutex);
	free(relay->outboxes);
	free(relay->ends);
	free(relay);
}

void srt_relay_close_copies(srt_relay_t *relay)
{
	for (int i = 0; relay != NULL && i < relay->nends; i++) {
		if (relay->ends[i].link != NULL)
			close(srt_link_fd(relay->ends[i].link));
	}
}

/* ---- sending ------------------------------------------------------------------------------ */

/* Sends a frame over the links towards its destination, but not back over `from` (NULL: from this
 * node). limit: of the queue of a link. 0, or why not: EAGAIN, the queue is full; EPIPE, the rank
 * cannot be reached. Called with the mutex held. */
static int send_on(srt_control_channel_t *channel, const end_t *from, const srt_frame_t *frame,
		   const void *payload, size_t limit)
{
	const bool all = frame->dst == SRT_FRAME_ALL;
	srt_relay_t *relay = channel->relay;
	int error = all ? 0 : EPIPE;

	for (int i = 0; i < relay->nends; i++) {
		end_t *end = &relay->ends[i];

		/* Only rank 0's relay has more than one. */
		if (end == from || end->link == NULL ||
		    (!all && channel->rank == 0 && end->node != channel->node_of[frame->dst]))
			continue;
		if (!all && srt_link_queued(end->link) > limit)
			return EAGAIN;
		if (srt_link_send(end->link, frame, sizeof(*frame), payload, frame->nbytes)) {
			end->sent = srt_awake_s();
			error = 0;
		}
	}
	return error;
}

int srt_relay_send(srt_control_channel_t *channel, const srt_frame_t *frame, const void *data)
{
	srt_relay_t *relay = channel->relay;
	int error;

	pthread_mutex_lock(&relay->mutex);
	error = send_on(channel, NULL, frame, data, MAX_QUEUED);
	pthread_mutex_unlock(&relay->mutex);
	if (error == 0)
		srt_control_wake_thread(channel); /* which sends the rest */
	errno = error;
	return error == 0 ? 0 : -1;
}

/* Sends a frame to a rank of this node, now or when its socket has room. */
static void deliver_to(srt_control_channel_t *channel, int rank, const srt_frame_t *frame,
		       const void *payload)
{
	outbox_t *box = &channel->relay->outboxes[rank];
	waiting_t *w;

	if (channel->peer[rank].fd < 0 || channel->peer[rank].ended)
		return;
	if (box->head == NULL && (srt_frame_send(channel->peer[rank].fd, frame, payload, -1) >= 0 ||
				  (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM)))
		return; /* sent, or the rank has ended */
	w = box->nbytes > MAX_WAITING ? NULL : malloc(sizeof(*w) + sizeof(*frame) + frame->nbytes);
	if (w == NULL) {
		channel->peer[rank].ended =
			true; /* its next message would be missing: it is lost */
		return;
	}
	w->next = NULL;
	w->nbytes = sizeof(*frame) + frame->nbytes;
	memcpy(w->bytes, frame, sizeof(*frame));
	memcpy(w->bytes + sizeof(*frame), payload, frame->nbytes);
	*box->tail = w;
	box->tail = &w->next;
	box->nbytes += w->nbytes;
}

static void empty_outboxes(srt_control_channel_t *channel)
{
	for (int r = 0; r < channel->world_size; r++) {
		outbox_t *box = &channel->relay->outboxes[r];

		while (box->head != NULL) {
			waiting_t *w = box->head;

			if (send(channel->peer[r].fd, w->bytes, w->nbytes,
				 MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
				if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ||
				    errno == EINTR)
					break;
				clear_outbox(box);
				break;
			}
			box->nbytes -= w->nbytes;
			box->head = w->next;
			if (box->head == NULL)
				box->tail = &box->head;
			free(w);
		}
	}
}

/* ---- forwarding --------------------------------------------------------------------------- */

/* Passes on a frame, however much is queued. */
static void pass_on(srt_control_channel_t *channel, const end_t *from, const srt_frame_t *frame,
		    const void *payload)
{
	pthread_mutex_lock(&channel->relay->mutex);
	(void)send_on(channel, from, frame, payload, SIZE_MAX);
	pthread_mutex_unlock(&channel->relay->mutex);
}

void srt_relay_forward(srt_control_channel_t *channel, const srt_frame_t *frame,
		       const void *payload)
{
	pass_on(channel, NULL, frame, payload);
}

/* A frame that came over a link: to this rank, to ranks of this node, or on to other nodes. */
static bool route_incoming(srt_control_channel_t *channel, const end_t *from,
			   const srt_frame_t *frame, const void *payload)
{
	const bool all = frame->dst == SRT_FRAME_ALL;
	const int node = channel->node_of[channel->rank];

	if (frame->type == SRT_FRAME_HEARTBEAT)
		return true;
	if (frame->src >= (uint32_t)channel->world_size ||
	    (!all && frame->dst >= (uint32_t)channel->world_size) ||
	    channel->node_of[frame->src] == node ||
	    (channel->rank == 0 && channel->node_of[frame->src] != from->node))
		return false;
	if (channel->rank == 0 && (all || channel->node_of[frame->dst] != node)) {
		pass_on(channel, from, frame, payload);
		if (!all)
			return true;
	}
	for (int r = 0; r < channel->world_size; r++) {
		if (r != channel->rank && (all || (uint32_t)r == frame->dst))
			deliver_to(channel, r, frame, payload);
	}
	return (!all && frame->dst != (uint32_t)channel->rank) ||
	       srt_control_deliver(channel, frame, payload, -1);
}

/* What tells all other nodes that a rank has left or died; a reason follows. */
static srt_frame_t end_frame(int rank, bool has_died)
{
	srt_frame_t frame = srt_frame_make(has_died ? SRT_FRAME_LOST : SRT_FRAME_GOODBYE, rank,
					   SRT_FRAME_ALL, sizeof(srt_frame_reason_t));

	frame.tag = (uint64_t)rank;
	return frame;
}

void srt_relay_tell_end(srt_control_channel_t *channel, int rank, bool has_died,
			const srt_frame_reason_t *reason)
{
	const srt_frame_t frame = end_frame(rank, has_died);

	clear_outbox(&channel->relay->outboxes[rank]);
	srt_relay_forward(channel, &frame, reason);
}

/* ---- lost links --------------------------------------------------------------------------- */

/* Rank `rank`, of another node, cannot be reached any more: this node's ranks and, by rank 0, the
 * other nodes are told. */
static void lose_rank(srt_control_channel_t *channel, const end_t *end, int rank,
		      const srt_frame_reason_t *reason)
{
	const srt_frame_t frame = end_frame(rank, true);

	if (atomic_load(&channel->peer[rank].state) == SRT_PEER_ALIVE)
		(void)route_incoming(channel, end, &frame, reason);
}

/* The link has ended, or is silent: `silent_s`. */
static void lose_link(srt_control_channel_t *channel, end_t *end, double silent_s)
{
	const srt_relay_t *relay = channel->relay;
	srt_frame_reason_t reason = { .status = SRT_ERR_PEER_DEAD };
	bool has_reason;
	srt_link_t *link;

	pthread_mutex_lock(&channel->relay->mutex);
	link = end->link;
	end->link = NULL; /* before it is closed: a child by fork() closes its copy */
	srt_link_close(link);
	pthread_mutex_unlock(&channel->relay->mutex);
	/* The rank at the other end first: its end is the reason for the others. */
	if (silent_s > 0)
		snprintf(reason.text, sizeof(reason.text),
			 "rank %d has not answered for %.3g s (SHARDRT_HEARTBEAT): its host is "
			 "down, its process is stopped, or the network is cut",
			 end->carrier, silent_s);
	else if (relay->pause_s > 0 && srt_awake_s() - relay->paused_at < relay->heartbeat_s)
		snprintf(reason.text, sizeof(reason.text),
			 "rank %d did not run for %.3g s, as it was stopped or its host was, and "
			 "lost the connection to rank %d (SHARDRT_HEARTBEAT)",
			 channel->rank, relay->pause_s, end->carrier);
	has_reason = reason.text[0] != '\0';
	lose_rank(channel, end, end->carrier, &reason);
	for (int r = 0; r < channel->world_size; r++) {
		if (channel->node_of[r] == channel->node_of[channel->rank] ||
		    (channel->rank == 0 && channel->node_of[r] != end->node))
			continue;
		if (!has_reason)
			reason = srt_control_unreachable(r, end->carrier);
		lose_rank(channel, end, r, &reason);
	}
}

/* ---- the progress thread ------------------------------------------------------------------- */

size_t srt_relay_poll(srt_control_channel_t *channel, struct pollfd *fds)
{
	srt_relay_t *relay = channel->relay;
	size_t n = 0;

	for (int r = 0; r < channel->world_size; r++) {
		if (relay->outboxes[r].head != NULL)
			channel->pollfds[r].events |= POLLOUT;
	}
	pthread_mutex_lock(&relay->mutex);
	for (int i = 0; i < relay->nends; i++) {
		if (relay->ends[i].link != NULL)
			fds[n++] =
				(struct pollfd){ .fd = srt_link_fd(relay->ends[i].link),
						 .events = srt_link_events(relay->ends[i].link) };
	}
	pthread_mutex_unlock(&relay->mutex);
	return n;
}

/* The next message of a link, copied to the channel's scratch; 0 = none. */
static size_t read_message(srt_control_channel_t *channel, end_t *end)
{
	size_t nbytes = 0;
	const void *message;

	pthread_mutex_lock(&channel->relay->mutex);
	message = srt_link_receive(end->link, &nbytes);
	if (message != NULL && nbytes <= sizeof(srt_frame_t) + SRT_CONTROL_MAX_PAYLOAD)
		memcpy(channel->scratch, message, nbytes);
	pthread_mutex_unlock(&channel->relay->mutex);
	return message != NULL ? nbytes : 0;
}

static void step_end(srt_control_channel_t *channel, end_t *end)
{
	srt_relay_t *relay = channel->relay;
	srt_link_state_t state;
	srt_frame_t frame;
	bool good = true;
	size_t nbytes;

	pthread_mutex_lock(&relay->mutex);
	state = srt_link_step(end->link);
	pthread_mutex_unlock(&relay->mutex);
	while (good && (nbytes = read_message(channel, end)) > 0) {
		end->heard = srt_awake_s();
		good = srt_frame_parse(channel->scratch, nbytes, &frame) &&
		       frame.type >= SRT_FRAME_DATA &&
		       route_incoming(channel, end, &frame, channel->scratch + sizeof(frame));
	}
	if (!good || state == SRT_LINK_CLOSED) {
		lose_link(channel, end, 0);
	} else if (srt_awake_s() - end->heard > relay->heartbeat_s) {
		lose_link(channel, end, srt_awake_s() - end->heard);
	} else if (srt_awake_s() - end->sent > relay->heartbeat_s / HEARTBEATS) {
		const srt_frame_t beat = srt_frame_make(SRT_FRAME_HEARTBEAT, channel->rank,
							(uint32_t)end->carrier, 0);

		pass_on(channel, NULL, &beat, NULL);
	}
}

/* A process that was stopped for long finds its links closed by the other ends. */
static void notice_pause(srt_relay_t *relay)
{
	const double asleep_s = srt_now_s() - srt_awake_s();

	if (asleep_s - relay->asleep_s > relay->heartbeat_s / 2) {
		relay->pause_s = asleep_s - relay->asleep_s;
		relay->paused_at = srt_awake_s();
	}
	relay->asleep_s = asleep_s;
}

void srt_relay_step(srt_control_channel_t *channel)
{
	notice_pause(channel->relay);
	empty_outboxes(channel);
	for (int i = 0; i < channel->relay->nends; i++) {
		if (channel->relay->ends[i].link != NULL)
			step_end(channel, &channel->relay->ends[i]);
	}
}

/* Whether ranks that are alive need this process to reach each other: those of any two nodes need
 * rank 0, those of this node and of another one its relay. */
static bool is_between(const srt_control_channel_t *channel)
{
	const uint16_t *node_of = channel->node_of, own = node_of[channel->rank];
	int first = -1;

	for (int r = 0; r < channel->world_size; r++) {
		if (r == channel->rank || atomic_load(&channel->peer[r].state) != SRT_PEER_ALIVE)
			continue;
		if (first < 0)
			first = r;
		else if (node_of[r] != node_of[first] &&
			 (channel->rank == 0 || node_of[r] == own || node_of[first] == own))
			return true;
	}
	return false;
}

static bool is_flushing(srt_relay_t *relay)
{
	bool has_queued = false;

	pthread_mutex_lock(&relay->mutex);
	for (int i = 0; i < relay->nends; i++)
		has_queued = has_queued || (relay->ends[i].link != NULL &&
					    srt_link_queued(relay->ends[i].link) > 0);
	pthread_mutex_unlock(&relay->mutex);
	for (int r = 0; r < relay->world_size; r++)
		has_queued = has_queued || relay->outboxes[r].head != NULL;
	return has_queued;
}

bool srt_relay_is_needed(srt_control_channel_t *channel)
{
	srt_relay_t *relay = channel->relay;
	const double now = srt_awake_s();
	double serve_s;

	if (relay == NULL)
		return false;
	if (relay->left_at == 0)
		relay->left_at = now;
	/* After a failure the others end too, or are stopped. */
	serve_s = channel->leaves_in_order ? relay->serve_s : FLUSH_S;
	if (relay->ended_at == 0 && is_between(channel)) {
		if (now - relay->left_at < serve_s)
			return true;
		if (channel->leaves_in_order)
			srt_log(SRT_LOG_WARN,
				"rank %d left %.3g s ago (SHARDRT_TIMEOUT), and now ends the "
				"connections between the nodes of ranks that have not",
				channel->rank, now - relay->left_at);
	}
	if (relay->ended_at == 0)
		relay->ended_at = now;
	return now - relay->ended_at < FLUSH_S && is_flushing(relay);
}
