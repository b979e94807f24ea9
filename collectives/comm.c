/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators: the world, which the bootstrap connects, and groups of its ranks (groups.c).
 * Creating one is collective. Destroying one is local and does not block, except with NCCL.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collective.h"
#include "collectives/transports/hierarchy/hierarchy.h"

int srt_comm_rank(const srt_comm_t *comm)
{
	return comm != NULL ? comm->rank : -1;
}

int srt_comm_size(const srt_comm_t *comm)
{
	return comm != NULL ? comm->size : 0;
}

static srt_status_t alloc_comm(srt_bootstrap_t *bootstrap, srt_device_t *device, srt_comm_t *parent,
			       uint64_t id, int rank, int size, const int *world_ranks,
			       const char *name, srt_comm_t **out)
{
	srt_comm_t *comm = srt_calloc(1, sizeof(*comm), "a communicator");

	if (comm == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	comm->bootstrap = bootstrap;
	comm->device = device;
	comm->parent = parent;
	comm->id = id;
	comm->rank = rank;
	comm->size = size;
	comm->is_world = id == SRT_COMM_WORLD_ID;
	/* A single rank has this transport, and all until one is chosen. */
	comm->transport =
		device->caps.peer_memory ? &srt_transport_zero_copy : &srt_transport_staged;
	comm->name = srt_strdup(name);
	comm->world_rank = srt_calloc((size_t)size, sizeof(*comm->world_rank), "a communicator");
	comm->flight = srt_flight_create();
	if (comm->name == NULL || comm->world_rank == NULL || comm->flight == NULL) {
		srt_flight_destroy(comm->flight);
		free(comm->world_rank);
		free(comm->name);
		free(comm);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	for (int r = 0; r < size; r++)
		comm->world_rank[r] = world_ranks != NULL ? world_ranks[r] : r;
	atomic_init(&comm->nholders, 1);
	atomic_init(&comm->given_up, UINT32_MAX);
	srt_device_hold(device);
	srt_bootstrap_hold(bootstrap);
	srt_comm_enlist(comm);
	/* A rank that died before this point did not poison this communicator. */
	for (int r = 0; r < size && bootstrap->control != NULL; r++) {
		int world_rank = comm->world_rank[r];
		if (srt_control_peer_state(bootstrap->control, world_rank) == SRT_PEER_DEAD)
			srt_comm_poison_dead(comm, world_rank);
	}
	*out = comm;
	return SRT_OK;
}

/* Collective: chooses the transport and creates the shared memory. */
static srt_status_t connect_ranks(srt_comm_t *comm)
{
	if (comm->is_world)
		SRT_TRY(srt_comm_gather_capabilities(comm));
	SRT_TRY(srt_comm_choose_transport(comm));
	if (comm->size > 1 && comm->transport->log_choice != NULL)
		comm->transport->log_choice(comm);
	if (!comm->transport->spans_nodes)
		SRT_TRY(srt_shm_create(comm));
	return comm->transport->create != NULL ? comm->transport->create(comm) : SRT_OK;
}

srt_status_t srt_comm_connect(srt_bootstrap_t *bootstrap, srt_device_t *device, srt_comm_t *parent,
			      uint64_t id, int rank, int size, const int *world_ranks,
			      const char *name, srt_comm_t **out)
{
	srt_comm_t *comm;
	srt_status_t status;

	status = alloc_comm(bootstrap, device, parent, id, rank, size, world_ranks, name, &comm);
	if (status != SRT_OK)
		return srt_bootstrap_fail(bootstrap, "creating a communicator", status,
					  srt_error_last());
	status = connect_ranks(comm);
	if (status != SRT_OK) {
		srt_comm_destroy(comm);
		return status;
	}
	*out = comm;
	return SRT_OK;
}

void srt_comm_hold(srt_comm_t *comm)
{
	atomic_fetch_add(&comm->nholders, 1);
}

void srt_comm_release(srt_comm_t *comm)
{
	if (atomic_fetch_sub(&comm->nholders, 1) > 1)
		return;
	if (comm->hierarchy != NULL)
		comm->hierarchy->destroy(comm->hierarchy);
	if (comm->transport->destroy != NULL)
		comm->transport->destroy(comm);
	srt_comm_delist(comm);
	if (comm->is_world)
		comm->bootstrap->waits = NULL;
	srt_shm_destroy(comm->shm);
	srt_device_release(comm->device);
	srt_bootstrap_release(comm->bootstrap);
	srt_flight_destroy(comm->flight);
	free(comm->world_rank);
	free(comm->name);
	free(comm);
}

void srt_comm_close(srt_comm_t *comm, const char *what)
{
	uint64_t streams = 0;

	pthread_mutex_lock(&comm->bootstrap->mutex);
	for (srt_coll_t *c = comm->colls; c != NULL; c = c->next) {
		srt_coll_close(c, what);
		streams |= atomic_load(&c->streams);
	}
	pthread_mutex_unlock(&comm->bootstrap->mutex);
	srt_device_drain(comm->device, streams);
	srt_comm_poison_closed(comm, what);
}

void srt_bootstrap_close_comms(srt_bootstrap_t *b)
{
	/* The thread that destroys the context owns its communicators: the list does not change. */
	for (srt_comm_t *comm = b->comms; comm != NULL; comm = comm->next) {
		if (comm->parent == NULL) /* parts are closed with their parent */
			srt_comm_close(comm, "the context");
	}
}

void srt_comm_destroy(srt_comm_t *comm)
{
	char what[128];
	int nobjects;

	if (comm == NULL || srt_device_is_inherited(comm->device))
		return;
	if (comm->plain != NULL)
		comm->destroy_plain(comm);
	nobjects = atomic_load(&comm->nholders) - 1;
	if (nobjects > 0) {
		srt_log(SRT_LOG_WARN,
			"rank %d: communicator \"%s\" is destroyed before %d of its collectives, "
			"engines, meshes and scalers, which cannot be used any more",
			comm->world_rank[comm->rank], comm->name, nobjects);
		snprintf(what, sizeof(what), "communicator \"%.64s\"", comm->name);
		srt_comm_close(comm, what);
	}
	srt_comm_release(comm);
}
