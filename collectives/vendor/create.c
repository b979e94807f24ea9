/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Making and destroying the vendor's communicator of one of ours. The id goes through our own
 * control channel, which only processes of the same user can join; joining does not block, so that
 * the deadline, a death and an abort end it too.
 */
#include <stdlib.h>
#include <time.h>

#include "collectives/collective.h"

/* Slots of staging memory that the scratch of sums has the size of: one launch of the vendor's
 * library is worth more bytes than a copy through host memory. */
#define SCRATCH_SLOTS 8u
/* How long peers are waited for that have not ended their last start. */
#define LINGER_S 1.0

size_t srt_vendor_scratch_nbytes(int nranks)
{
	return SCRATCH_SLOTS * srt_staging_slot_nbytes(nranks);
}

static void nap(long us)
{
	nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

srt_status_t srt_vendor_settle(srt_vendor_t *v, const char *what)
{
	srt_comm_t *comm = v->comm;
	double since = srt_awake_s(), timeout_s = comm->bootstrap->timeout_s;
	srt_status_t status;

	for (int i = 0;; i++) {
		int pending = 0;

		if (srt_comm_poisoned(comm))
			return srt_comm_fail(comm, i > 0 ? srt_awake_s() - since : 0, "%s", what);
		pthread_mutex_lock(&v->calls);
		status = v->aborted ? SRT_OK : v->ops->poll(v->impl, &pending);
		pending = pending || v->aborted; /* the poison is there, or about to be */
		pthread_mutex_unlock(&v->calls);
		if (status != SRT_OK || !pending)
			return status;
		if (srt_awake_s() - since > timeout_s)
			srt_comm_poison(comm, SRT_ERR_TIMEOUT, true,
					"%s: %s has not connected rank %d to its peers within %.3g "
					"s (SHARDRT_TIMEOUT)",
					what, v->ops->name, comm->world_rank[comm->rank],
					timeout_s);
		if (i > 100) /* a few microseconds are the rule */
			nap(i < 1000 ? 20 : 500);
	}
}

/* Collective: one id for all. */
static srt_status_t share_id(srt_vendor_t *v, const char *what, srt_comm_id_t *id)
{
	srt_comm_t *comm = v->comm;
	srt_comm_id_t mine = { { 0 } }, *all;
	srt_status_t status = SRT_OK;

	if (comm->rank == 0)
		status = v->ops->make_id(comm->device->impl, &mine);
	SRT_TRY(srt_comm_agree(comm, what, status));
	all = srt_calloc((size_t)comm->size, sizeof(*all), what);
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_exchange_for(comm, what, &mine, sizeof(mine), all);
	*id = all[0];
	free(all);
	return status;
}

/* Collective: joins, and waits for all. */
static srt_status_t join(srt_vendor_t *v, const char *what)
{
	srt_comm_t *comm = v->comm;
	srt_comm_id_t id;
	srt_status_t status;

	SRT_TRY(share_id(v, what, &id));
	status = v->ops->init(comm->device->impl, &id, comm->rank, comm->size, &v->impl);
	/* Who cannot begin must not leave the others to their deadline. */
	if (status != SRT_OK)
		srt_comm_poison(comm, status, true, "rank %d: %s", comm->world_rank[comm->rank],
				srt_last_error());
	else
		status = srt_vendor_settle(v, what);
	return srt_comm_agree(comm, what, status);
}

static void init_sync(srt_vendor_t *v)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&v->calls, NULL);
	pthread_mutex_init(&v->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&v->changed, &attr);
	pthread_condattr_destroy(&attr);
}

/* Of this rank's device. */
static srt_status_t make_objects(srt_vendor_t *v)
{
	srt_device_t *device = v->comm->device;

	SRT_TRY(srt_guard_create(&v->guard));
	SRT_TRY(srt_stream_create(device, -1, "collectives", &v->stream));
	SRT_TRY(srt_event_create(device, &v->ready));
	for (size_t i = 0; i < SRT_VENDOR_NTURNS; i++) {
		SRT_TRY(srt_event_create(device, &v->turn[i].began));
		SRT_TRY(srt_event_create(device, &v->turn[i].ended));
	}
	return SRT_OK;
}

static void free_objects(srt_vendor_t *v)
{
	for (size_t i = 0; i < SRT_VENDOR_NTURNS; i++) {
		srt_event_destroy(v->turn[i].began);
		srt_event_destroy(v->turn[i].ended);
	}
	srt_event_destroy(v->ready);
	srt_stream_destroy(v->stream);
	srt_guard_drop(v->guard);
}

srt_status_t srt_vendor_create(srt_comm_t *comm)
{
	const char *what = "making a communicator of the vendor's library";
	srt_vendor_t *v = srt_calloc(1, sizeof(*v), what);
	srt_status_t status;

	if (v == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	v->comm = comm;
	v->ops = comm->device->backend->comm;
	init_sync(v);
	comm->vendor = v; /* destroyed with it */
	SRT_TRY(srt_shm_take_words(comm, what, &v->said_memory, &v->said));
	SRT_TRY(srt_shm_take_words(comm, what, &v->turn_memory, &v->turns));
	status = make_objects(v);
	SRT_TRY(srt_comm_agree(comm, what, status));
	SRT_TRY(join(v, what));
	SRT_TRY(srt_comm_agree(comm, what, srt_vendor_watch(v)));
	srt_log(SRT_LOG_INFO, "communicator \"%s\": collectives by %s", comm->name, v->ops->name);
	return SRT_OK;
}

/* Whether all peers have ended all starts: then none needs this rank's memory. */
static bool peers_ended(const srt_vendor_t *v)
{
	const srt_comm_t *comm = v->comm;

	for (int r = 0; r < comm->size; r++) {
		const srt_shm_word_t *word =
			&v->turns[(size_t)r * SRT_SHM_NWORDS + SRT_SHM_RELEASE];

		if (!srt_shm_reached(word, v->nstarts) &&
		    srt_peers_state(comm->bootstrap->peers, comm->world_rank[r]) == SRT_PEER_ALIVE)
			return false;
	}
	return true;
}

static void linger(const srt_vendor_t *v)
{
	double since = srt_awake_s();

	while (!srt_comm_poisoned(v->comm) && !peers_ended(v) && srt_awake_s() - since < LINGER_S)
		nap(100);
}

/* Whether all starts of this rank have ended. */
static bool ended(srt_vendor_t *v)
{
	bool all;

	pthread_mutex_lock(&v->mutex);
	(void)srt_vendor_look(v);
	all = v->nended == v->nstarts;
	pthread_mutex_unlock(&v->mutex);
	return all;
}

void srt_vendor_destroy(srt_vendor_t *v)
{
	if (v == NULL)
		return;
	if (v->impl != NULL) {
		if (ended(v))
			linger(v);
		else /* its caller has given up */
			srt_comm_poison(v->comm, SRT_ERR_ABORTED, true,
					"rank %d destroyed communicator \"%s\" before its "
					"collectives had ended",
					v->comm->world_rank[v->comm->rank], v->comm->name);
	}
	srt_vendor_unwatch(v);
	if (v->impl != NULL && srt_comm_poisoned(v->comm)) {
		srt_vendor_abort(v);
		(void)srt_stream_sync(v->stream); /* our sums use the scratch */
	}
	srt_buffer_destroy(v->scratch);
	free_objects(v);
	if (v->impl != NULL)
		v->ops->destroy(v->impl);
	srt_shm_release(v->turn_memory);
	srt_shm_release(v->said_memory);
	pthread_cond_destroy(&v->changed);
	pthread_mutex_destroy(&v->mutex);
	pthread_mutex_destroy(&v->calls);
	v->comm->vendor = NULL;
	free(v);
}
