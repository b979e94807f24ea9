/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Creating and destroying the NCCL communicator. Its id is sent over the control channel, which
 * only processes of the same user can join. Joining does not block, so a deadline or a death ends
 * it. Then the ranks run a first collective of one number, because NCCL connects ranks at their
 * first exchange, which may fail: a container may have too little shared memory, or a network
 * interface may be missing. A failure up to this point fails on all ranks, and neither the device
 * nor the communicator is damaged.
 */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "collectives/transports/capabilities.h"
#include "collectives/transports/nccl/nccl.h"

/* Deadline of the wait for peers to destroy theirs. */
#define LINGER_S 5.0
/* Deadline of joining, and of the first collective; at most half of SHARDRT_TIMEOUT, because other
 * ranks wait that long for the result of a rank that waits here. */
#define JOIN_S 30.0

/* Most waits last a few microseconds, and a sleep lasts tens of them: yields first. */
static void pause_since(double since)
{
	if (srt_awake_s() - since < 200e-6)
		sched_yield();
	else
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

/* See srt_nccl.announced. */
static void set_done(srt_nccl_t *v)
{
	srt_shm_set_flag(srt_shm_flag_of(v->announced, v->comm->rank, SRT_SHM_RELEASE), 1);
}

static bool is_done(const srt_nccl_t *v, int rank)
{
	return srt_shm_flag_reached(srt_shm_flag_of(v->announced, rank, SRT_SHM_RELEASE), 1);
}

static bool any_done(const srt_nccl_t *v)
{
	for (int r = 0; r < v->comm->size; r++) {
		if (is_done(v, r))
			return true;
	}
	return false;
}

/* Waits until all ranks have joined and the event, if given, is reached. Also returns SRT_OK if
 * another rank has failed, which srt_comm_status_consensus() reports. */
static srt_status_t await_peers(srt_nccl_t *v, const char *what, srt_event_t *event)
{
	srt_comm_t *comm = v->comm;
	double since = srt_awake_s(), timeout_s = comm->bootstrap->timeout_s / 2;

	if (timeout_s > JOIN_S)
		timeout_s = JOIN_S;
	while (!any_done(v)) {
		int pending = 0, reached = 1;

		if (srt_comm_poisoned(comm))
			return srt_comm_fail(comm, srt_awake_s() - since, "%s", what);
		SRT_TRY(v->ops->poll(v->impl, &pending));
		if (event != NULL)
			SRT_TRY(srt_event_query(event, &reached));
		if (!pending && reached)
			return SRT_OK;
		if (srt_awake_s() - since > timeout_s)
			return srt_fail(SRT_ERR_TIMEOUT,
					"%s did not connect rank %d to its peers within %.3g s",
					v->ops->name, comm->world_rank[comm->rank], timeout_s);
		pause_since(since);
	}
	return SRT_OK;
}

/* Collective: creates an id on rank 0 and sends it to all ranks. */
static srt_status_t share_id(srt_nccl_t *v, const char *what, srt_comm_id_t *id)
{
	srt_comm_t *comm = v->comm;
	srt_comm_id_t mine = { { 0 } }, *all;
	srt_status_t status = SRT_OK;

	if (comm->rank == 0)
		status = v->ops->make_id(comm->device->impl, &mine);
	SRT_TRY(srt_comm_status_consensus(comm, what, status));
	all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*all), what);
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(comm, what, &mine, sizeof(mine), all);
	*id = all[0];
	free(all);
	return status;
}

static srt_status_t begin_join(srt_nccl_t *v, const srt_comm_id_t *id)
{
	const srt_comm_t *comm = v->comm;

	return v->ops->init(comm->device->impl, id, comm->rank, comm->size, &v->impl);
}

/* An all-gather of one number of each rank. */
static srt_status_t submit_first(srt_nccl_t *v, size_t nbytes)
{
	const size_t own = (size_t)v->comm->rank * nbytes;
	void *memory = v->scratch->impl;
	srt_status_t status;

	SRT_TRY(v->ops->group_begin(v->impl));
	status = v->ops->all_gather(v->impl, memory, 0, memory, own, nbytes);
	return srt_nccl_end_group(v, status);
}

static srt_status_t check_first(const srt_nccl_t *v, const float *numbers)
{
	for (int r = 0; r < v->comm->size; r++) {
		if (numbers[r] != (float)(r + 1))
			return srt_fail(SRT_ERR_DEVICE,
					"%s: rank %d received %g from rank %d, not %d",
					v->ops->name, v->comm->rank, (double)numbers[r], r, r + 1);
	}
	return SRT_OK;
}

/* Runs the first collective and checks its result. */
static srt_status_t run_first(srt_nccl_t *v, const char *what, float *numbers)
{
	const size_t nbytes = (size_t)v->comm->size * sizeof(*numbers);
	int reached = 0;

	SRT_TRY(srt_buffer_create(v->comm->device, SRT_MEM_DEVICE, nbytes, what, &v->scratch));
	numbers[v->comm->rank] = (float)(v->comm->rank + 1);
	SRT_TRY(srt_buffer_copy_from_host(v->scratch, 0, numbers, nbytes, v->stream));
	SRT_TRY(submit_first(v, sizeof(*numbers)));
	SRT_TRY(srt_event_record(v->ready, v->stream));
	SRT_TRY(await_peers(v, what, v->ready));
	SRT_TRY(srt_event_query(v->ready, &reached));
	if (!reached) /* another rank has failed */
		return SRT_OK;
	SRT_TRY(srt_buffer_copy_to_host(numbers, v->scratch, 0, nbytes, v->stream));
	srt_buffer_destroy(v->scratch);
	v->scratch = NULL;
	return check_first(v, numbers);
}

/* Collective: srt_comm_status_consensus(). A rank that fails ends the waits of the other ranks. */
static srt_status_t reach_consensus(srt_nccl_t *v, const char *what, srt_status_t status)
{
	if (status != SRT_OK)
		set_done(v);
	return srt_comm_status_consensus(v->comm, what, status);
}

/* Collective: joins, waits for all ranks, and runs the first collective. */
static srt_status_t join_comm(srt_nccl_t *v, const char *what)
{
	srt_status_t status;
	srt_comm_id_t id;
	float *numbers;

	SRT_TRY(share_id(v, what, &id));
	status = begin_join(v, &id);
	if (status == SRT_OK)
		status = await_peers(v, what, NULL);
	SRT_TRY(reach_consensus(v, what, status));
	if (v->ops->all_gather == NULL)
		return SRT_OK;
	numbers = srt_calloc((size_t)v->comm->size, sizeof(*numbers), what);
	status = numbers != NULL ? run_first(v, what, numbers) : SRT_ERR_OUT_OF_MEMORY;
	free(numbers);
	return reach_consensus(v, what, status);
}

/* Creates the stream and the events. */
static srt_status_t create_objects(srt_nccl_t *v)
{
	srt_device_t *device = v->comm->device;

	SRT_TRY(srt_stream_create(device, -1, "collectives", &v->stream));
	SRT_TRY(srt_event_create(device, &v->ready));
	for (size_t i = 0; i < SRT_NCCL_MAX_IN_FLIGHT; i++) {
		SRT_TRY(srt_event_create(device, &v->in_flight[i].began));
		SRT_TRY(srt_event_create(device, &v->in_flight[i].ended));
	}
	return SRT_OK;
}

static void free_objects(srt_nccl_t *v)
{
	for (size_t i = 0; i < SRT_NCCL_MAX_IN_FLIGHT; i++) {
		srt_event_destroy(v->in_flight[i].began);
		srt_event_destroy(v->in_flight[i].ended);
	}
	srt_event_destroy(v->ready);
	srt_stream_destroy(v->stream);
}

/* Collective: creates the transport_data. */
static srt_status_t create_comm(srt_comm_t *comm, const char *what)
{
	srt_nccl_t *v = srt_comm_calloc(comm, 1, sizeof(*v), what);

	if (v == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	v->comm = comm;
	v->ops = comm->device->backend->comm;
	v->fast = srt_nccl_all_fast(comm);
	pthread_mutex_init(&v->mutex, NULL);
	srt_cond_init(&v->changed);
	comm->transport_data = v; /* destroyed with comm, also after a failure */
	SRT_TRY(srt_shm_alloc_flags(comm, what, &v->announced_memory, &v->announced));
	SRT_TRY(srt_shm_alloc_flags(comm, what, &v->progress_memory, &v->progress));
	SRT_TRY(srt_comm_status_consensus(comm, what, create_objects(v)));
	SRT_TRY(join_comm(v, what));
	atomic_store(&comm->device->news_ms, (int)(1000 * SRT_NCCL_GRACE_S));
	return srt_comm_status_consensus(comm, what, srt_nccl_watchdog_start(v));
}

srt_status_t srt_nccl_create(srt_comm_t *comm)
{
	const char *name = comm->device->backend->comm->name;
	srt_status_t status = create_comm(comm, "creating an NCCL communicator");

	if (status == SRT_OK) {
		comm->driver_overhead =
			(size_t)srt_capabilities_of(comm, comm->rank)->driver_overhead;
		srt_log(SRT_LOG_INFO, "communicator \"%s\": collectives by %s", comm->name, name);
	}
	if (status == SRT_OK || !srt_nccl_may_stage(comm) || srt_comm_poisoned(comm))
		return status;
	srt_log(SRT_LOG_WARN,
		"communicator \"%s\": collectives are staged, as %s cannot be used "
		"(SHARDRT_COLLECTIVES=staged does not try it): %s",
		comm->name, name, srt_error_last());
	srt_nccl_destroy(comm->transport_data);
	comm->transport = &srt_transport_staged;
	return comm->transport->create(comm);
}

/* Whether all starts of this rank have ended. */
static bool all_starts_ended(srt_nccl_t *v)
{
	bool all;

	(void)srt_nccl_poll(v);
	pthread_mutex_lock(&v->mutex);
	all = v->nended == v->nstarts;
	pthread_mutex_unlock(&v->mutex);
	return all;
}

/* Waits until all ranks destroy the communicator or have left the job. False: a rank does not, or
 * it has announced a start that needs this rank. */
static bool all_leave(const srt_nccl_t *v)
{
	const srt_comm_t *comm = v->comm;
	double since = srt_awake_s();

	for (int r = 0; r < comm->size; r++) {
		while (!is_done(v, r) &&
		       srt_control_peer_state(comm->bootstrap->control, comm->world_rank[r]) ==
			       SRT_PEER_ALIVE) {
			const srt_shm_flag_t *announced =
				srt_shm_flag_of(v->announced, r, SRT_SHM_PUBLISH);

			if (srt_comm_poisoned(comm) || srt_awake_s() - since > LINGER_S ||
			    srt_shm_flag_reached(announced, comm->nstarts + 1))
				return false;
			pause_since(since);
		}
	}
	return !srt_comm_poisoned(comm);
}

/* Whether no work is left on any device. Else poisons, so that all ranks abort. */
static bool leave_in_order(srt_nccl_t *v)
{
	const srt_comm_t *comm = v->comm;
	int rank = comm->world_rank[comm->rank];

	if (srt_comm_poisoned(comm))
		return false;
	if (!all_starts_ended(v)) { /* the caller does not wait for them */
		srt_comm_poison(v->comm, SRT_ERR_ABORTED, true,
				"rank %d destroyed communicator \"%s\" before its collectives had "
				"ended",
				rank, comm->name);
		return false;
	}
	set_done(v);
	if (all_leave(v))
		return true;
	srt_comm_poison(v->comm, SRT_ERR_PEER_DEAD, true,
			"rank %d left the job before it took part", rank);
	return false;
}

void srt_nccl_destroy(srt_nccl_t *v)
{
	bool in_order;

	if (v == NULL)
		return;
	in_order = v->nthreads == 2 && leave_in_order(v);
	srt_nccl_watchdog_stop(v);
	atomic_store(&v->comm->device->news_ms, 0);
	if (v->impl != NULL && !in_order) {
		srt_nccl_abort(v);
		(void)srt_stream_sync(v->stream); /* the tree sums use the scratch */
	}
	srt_buffer_destroy(v->scratch);
	free_objects(v);
	if (v->impl != NULL)
		v->ops->destroy(v->impl);
	srt_shm_release(v->progress_memory);
	srt_shm_release(v->announced_memory);
	pthread_cond_destroy(&v->changed);
	pthread_mutex_destroy(&v->mutex);
	v->comm->transport_data = NULL;
	free(v);
}
