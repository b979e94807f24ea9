/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Joining the job: the launcher says who this rank is (launcher.h); the server of its node connects
 * it to the ranks that share the node (join.h, node.h); rank 0 connects the nodes (root.h). Then
 * the control channel is started.
 */
#include "collectives/bootstrap/internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/bootstrap/address.h"
#include "collectives/bootstrap/join.h"
#include "collectives/bootstrap/launcher.h"
#include "collectives/bootstrap/node.h"
#include "collectives/bootstrap/root.h"
#include "collectives/bootstrap/wire.h"
#include "collectives/flight/flight.h"
#include "collectives/transports/ucx/ucx.h"

/* How long a collective that this rank destroys may still wait for other ranks. */
#define CLOSE_S 0.5
#define TCP "tcp:"

/* What rank 0 chooses and tells the others, if the launcher can exchange data. */
typedef struct choice {
	char job[64];
	char token[SRT_TOKEN_NBYTES];
	char address[280];
	int32_t status; /* why rank 0 could not listen */
	char text[256];
} choice_t;

static bool is_alone_on_node(const srt_place_t *place)
{
	return place->local_size == place->world_size;
}

/* Without a token anybody who can connect could join; at a loopback address, users of this host. */
static srt_status_t check_address(int rank, const choice_t *choice)
{
	struct sockaddr_storage where;
	socklen_t length;

	if (choice->address[0] == '\0')
		return SRT_OK;
	if (!srt_link_is_supported())
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"rank %d: this libshardrt was built without libsodium, which jobs "
				"of several nodes need",
				rank);
	SRT_TRY(srt_address_resolve(choice->address + strlen(TCP), &where, &length));
	if (choice->token[0] == '\0' &&
	    !srt_address_is_local(choice->address + strlen(TCP), &where))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"rank %d: SHARDRT_TOKEN is not set: a job that listens on %s needs "
				"a secret that all its ranks know, e.g. of `openssl rand -hex 16`",
				rank, choice->address);
	return SRT_OK;
}

/* The part of this rank in its node's server. Rank 0 opens the address, and stores its port. */
static srt_status_t open_node(const srt_place_t *place, choice_t *choice, double timeout_s,
			      uint32_t generation, char *name, srt_node_t **node)
{
	const srt_node_desc_t desc = {
		.rank = place->rank,
		.world_size = place->world_size,
		.name = name,
		.address = choice->address[0] != '\0' ? choice->address + strlen(TCP) : NULL,
		.token = choice->token,
		.timeout_s = timeout_s,
	};
	char *colon = strrchr(choice->address, ':');
	int port = 0;

	snprintf(name, SRT_WIRE_NAME, "shardrt-%s-%u", choice->job, (unsigned)generation);
	SRT_TRY(check_address(place->rank, choice));
	SRT_TRY(srt_node_create(&desc, node, &port));
	if (port > 0 && strcmp(colon, ":0") == 0)
		snprintf(colon, sizeof(choice->address) - (size_t)(colon - choice->address), ":%d",
			 port);
	return SRT_OK;
}

/* Rank 0 of a launcher that can exchange data: what all ranks use. */
static srt_status_t choose(const srt_place_t *place, choice_t *choice)
{
	if (!srt_wire_random(choice->job, 16) || !srt_wire_random(choice->token, 16))
		return srt_fail(SRT_ERR_SYSTEM, "cannot read random bytes: %s", strerror(errno));
	if (place->token[0] != '\0')
		snprintf(choice->token, sizeof(choice->token), "%s", place->token);
	if (place->address[0] != '\0')
		snprintf(choice->address, sizeof(choice->address), "%s", place->address);
	else if (!is_alone_on_node(place) && (srt_link_is_supported() || place->local_size > 0))
		/* Without libsodium, ranks of which nothing is known must share a node. */
		SRT_TRY(srt_address_find_own(choice->address, sizeof(choice->address)));
	return SRT_OK;
}

/* Sets what all ranks use, and creates this rank's part of its node's server. */
static srt_status_t agree(const srt_place_t *place, double timeout_s, choice_t *choice, char *name,
			  srt_node_t **node)
{
	static atomic_uint ngenerations; /* joins of this process: a rank may be early */
	const uint32_t generation = atomic_fetch_add(&ngenerations, 1);
	srt_status_t status = SRT_OK;

	if (place->share == NULL) {
		snprintf(choice->job, sizeof(choice->job), "%s", place->job);
		snprintf(choice->token, sizeof(choice->token), "%s", place->token);
		snprintf(choice->address, sizeof(choice->address), "%s", place->address);
		return open_node(place, choice, timeout_s, generation, name, node);
	}
	if (place->rank == 0) {
		status = choose(place, choice);
		if (status == SRT_OK)
			status = open_node(place, choice, timeout_s, generation, name, node);
	}
	if (status != SRT_OK) {
		choice->status = (int32_t)status;
		snprintf(choice->text, sizeof(choice->text), "%s", srt_error_last());
	}
	SRT_TRY(place->share(place, generation, choice, sizeof(*choice), timeout_s));
	if (choice->status != SRT_OK)
		return srt_fail((srt_status_t)choice->status, "on rank 0: %s", choice->text);
	return place->rank == 0 ? SRT_OK :
				  open_node(place, choice, timeout_s, generation, name, node);
}

/* This rank's number among those of its node. */
static void count_local(srt_bootstrap_t *b, const srt_join_t *join)
{
	b->local_size = join->nlocal;
	b->local_rank = 0;
	for (int r = 0; r < b->rank; r++)
		b->local_rank +=
			join->node_of == NULL || join->node_of[r] == join->node_of[b->rank];
}

/* Starts the control channel with what the rank was told; it owns the sockets and links then. */
static srt_status_t start_control(srt_bootstrap_t *b, srt_join_t *join, srt_node_t *node)
{
	const int nlinks = node != NULL && join->node_of != NULL && join->gateway == b->rank ?
				   srt_node_nlinks(node) :
				   0;
	srt_control_link_t *links = srt_calloc((size_t)nlinks, sizeof(*links), "the links");
	srt_control_route_t route = {
		.node_of = join->node_of,
		.gateway = join->gateway,
		.links = links,
		.nlinks = nlinks,
		.heartbeat_s = srt_config_seconds("SHARDRT_HEARTBEAT"),
		.serve_s = b->timeout_s,
	};
	srt_status_t status = SRT_OK;

	if (links == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int i = 0; i < nlinks; i++) {
		links[i].link = srt_node_take_link(node, i, &links[i].carrier);
		if (links[i].link == NULL)
			status = srt_fail(SRT_ERR_PEER_DEAD,
					  "a node left before all ranks had joined");
	}
	if (status == SRT_OK)
		status = srt_control_start(b->rank, b->world_size, join->fds,
					   join->node_of != NULL ? &route : NULL,
					   srt_bootstrap_handle_notice, b, &b->control);
	for (int i = 0; status != SRT_OK && i < nlinks; i++)
		srt_link_close(links[i].link);
	free(links);
	return status;
}

static srt_status_t join_world(srt_bootstrap_t *b, const srt_place_t *place)
{
	const bool has_server = strncmp(place->address, SRT_WIRE_ADDRESS_PREFIX,
					strlen(SRT_WIRE_ADDRESS_PREFIX)) == 0;
	char address[sizeof(SRT_WIRE_ADDRESS_PREFIX) + SRT_WIRE_NAME];
	srt_join_t join = {
		.rank = b->rank,
		.world_size = b->world_size,
		.timeout_s = b->timeout_s,
		.is_patient = !has_server,
	};
	choice_t choice = { .job = "" };
	srt_node_t *node = NULL;
	srt_status_t status;

	if (has_server) {
		status = srt_join_node(&join, place->address);
	} else {
		memcpy(address, SRT_WIRE_ADDRESS_PREFIX, sizeof(SRT_WIRE_ADDRESS_PREFIX));
		status = agree(place, b->timeout_s, &choice,
			       address + strlen(SRT_WIRE_ADDRESS_PREFIX), &node);
		if (status == SRT_OK)
			status = srt_node_serve(node);
		if (status == SRT_OK)
			status = srt_join_node(&join, address);
		if (node != NULL)
			srt_node_finish(node, status);
	}
	if (status == SRT_OK) {
		if (!has_server)
			count_local(b, &join);
		if (join.nlocal == b->world_size) { /* one node after all */
			free(join.node_of);
			join.node_of = NULL;
		}
		status = start_control(b, &join, node);
		if (status != SRT_OK)
			srt_join_undo(&join);
	}
	srt_node_destroy(node);
	if (status != SRT_OK)
		return status;
	b->node_of = join.node_of;
	b->pid_of = join.pid_of;
	/* shardrun sees by it that the rank is in the job. */
	if (has_server)
		b->launcher = join.server;
	else
		close(join.server);
	free(join.fds);
	return SRT_OK;
}

/* ---- fork() ------------------------------------------------------------------------------- */

/* The bootstraps with sockets. */
static srt_bootstrap_t *joined;
static pthread_mutex_t joined_lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void)
{
	pthread_mutex_lock(&joined_lock);
	for (srt_bootstrap_t *b = joined; b != NULL; b = b->next)
		pthread_mutex_lock(&b->mutex);
}

static void unlock_all(void)
{
	for (srt_bootstrap_t *b = joined; b != NULL; b = b->next)
		pthread_mutex_unlock(&b->mutex);
}

static void after_fork_parent(void)
{
	unlock_all();
	pthread_mutex_unlock(&joined_lock);
}

/* The child is no rank: all that talks to other ranks fails there. The sockets are closed, else the
 * peers and the launcher would see the parent's death only when the child ends too. */
static void after_fork_child(void)
{
	unlock_all();
	for (srt_bootstrap_t *b = joined; b != NULL; b = b->next) {
		srt_bootstrap_poison_child(b);
		srt_control_close_copies(b->control);
		if (b->launcher >= 0)
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

srt_status_t srt_bootstrap_join(const srt_context_options_t *options, srt_bootstrap_t **out)
{
	srt_bootstrap_t *b = srt_calloc(1, sizeof(*b), "the bootstrap");
	srt_place_t place = { .world_size = 1 };
	srt_status_t status;

	if (b == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	atomic_init(&b->nholders, 1);
	pthread_mutex_init(&b->mutex, NULL);
	b->launcher = -1;
	b->ncores = srt_available_cores();
	b->timeout_s =
		options->timeout_s > 0 ? options->timeout_s : srt_config_seconds("SHARDRT_TIMEOUT");
	b->close_s = CLOSE_S;
	status = srt_launcher_find(options, &place);
	b->rank = place.rank;
	b->world_size = place.world_size;
	b->local_rank = place.local_rank;
	b->local_size = place.local_size;
	if (status == SRT_OK)
		srt_flight_open(b, place.address[0] != '\0' ? place.address : place.job);
	if (status == SRT_OK && place.launcher[0] != '\0')
		status = join_world(b, &place);
	if (status != SRT_OK) {
		srt_flight_close(b);
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
	free(b->capabilities);
	free(b->node_of);
	free(b->pid_of);
	pthread_mutex_destroy(&b->mutex);
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
	srt_flight_close(b);
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
