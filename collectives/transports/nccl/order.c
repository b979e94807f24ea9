/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order of starts with NCCL, and the starts in flight. NCCL does not check for mismatches, so
 * ranks must agree before calling it. A rank announces a start in the log that all ranks see, and
 * then reads the other ranks' entries under the same number. Of two ranks, at least the later one
 * sees the other's entry; if it differs, it submits nothing. So two ranks never submit different
 * starts under one number, and no rank waits for another. The log has SRT_START_LOG_LENGTH entries:
 * a rank that is half of them ahead of another waits for it. The end of a start is an event. The
 * poller (watchdog.c) polls the event of the oldest start, and so does the caller when
 * SRT_NCCL_MAX_IN_FLIGHT starts are in flight.
 */
#include <time.h>

#include "collectives/shm/flags.h"
#include "collectives/transports/nccl/nccl.h"

#define MAX_AHEAD (SRT_START_LOG_LENGTH / 2)

static void sleep_briefly(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static srt_status_t fail_poisoned(const srt_coll_t *coll)
{
	return srt_comm_fail(coll->comm, 0, "%s of \"%s\"", coll->algorithm->name, coll->name);
}

srt_status_t srt_nccl_announce(const srt_coll_start_t *start)
{
	srt_comm_t *comm = start->coll->comm;
	srt_nccl_t *v = comm->transport_data;

	SRT_TRY(srt_flag_wait_all(start, v->announced, SRT_SHM_PUBLISH, start->number - MAX_AHEAD));
	srt_start_log_write(comm, comm->rank, start->number, start->coll->id);
	srt_shm_set_flag(srt_shm_flag_of(v->announced, v->comm->rank, SRT_SHM_PUBLISH),
			 start->number);
	/* This rank's entry is written before the others' are read: one of two ranks sees the
	 * other's entry. */
	atomic_thread_fence(memory_order_seq_cst);
	/* All ranks report the first message, which may still be being written. */
	while (srt_start_order_differs(start) && !srt_comm_poisoned(comm))
		sleep_briefly();
	return srt_comm_poisoned(comm) ? fail_poisoned(start->coll) : SRT_OK;
}

/* ---- starts in flight ---------------------------------------------------------------------- */

static srt_nccl_in_flight_t *in_flight_of(srt_nccl_t *v, uint32_t number)
{
	return &v->in_flight[(number - 1) % SRT_NCCL_MAX_IN_FLIGHT];
}

/* The oldest start in flight if it is submitted, or NULL; and its number. */
static srt_nccl_in_flight_t *oldest_in_flight(srt_nccl_t *v, uint32_t *number)
{
	srt_nccl_in_flight_t *entry = NULL;

	pthread_mutex_lock(&v->mutex);
	*number = v->nended + 1;
	if (!v->closed && v->nended != v->nstarts && in_flight_of(v, *number)->submitted)
		entry = in_flight_of(v, *number);
	pthread_mutex_unlock(&v->mutex);
	return entry;
}

/* Records the result of a poll, unless the other thread has. The release flag tells peers that
 * destroy their communicator that this rank no longer needs them. */
static void record_progress(srt_nccl_t *v, uint32_t number, int began, int ended)
{
	pthread_mutex_lock(&v->mutex);
	if (v->nended + 1 == number && (began || ended))
		srt_shm_set_flag(srt_shm_flag_of(v->progress, v->comm->rank, SRT_SHM_PUBLISH),
				 number);
	if (v->nended + 1 == number && ended) {
		v->began_at = 0;
		v->warned = false;
		v->nended = number;
		srt_flight_end(v->comm->flight, in_flight_of(v, number)->flight,
			       SRT_FLIGHT_COMPLETE);
		srt_shm_set_flag(srt_shm_flag_of(v->progress, v->comm->rank, SRT_SHM_RELEASE),
				 number);
	} else if (v->nended + 1 == number && began && v->began_at == 0) {
		v->began_at = srt_awake_s();
	}
	pthread_mutex_unlock(&v->mutex);
}

srt_status_t srt_nccl_poll(srt_nccl_t *v)
{
	srt_nccl_in_flight_t *entry;
	int began = 0, ended = 1;
	uint32_t number;

	while (ended && (entry = oldest_in_flight(v, &number)) != NULL) {
		SRT_TRY(srt_event_query(entry->ended, &ended));
		if (!ended)
			SRT_TRY(srt_event_query(entry->began, &began));
		record_progress(v, number, began, ended);
	}
	return SRT_OK;
}

srt_status_t srt_nccl_in_flight_add(srt_nccl_t *v, const srt_coll_t *coll,
				    srt_nccl_in_flight_t **out, uint32_t *number)
{
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&v->mutex);
	while (status == SRT_OK && !v->closed && v->nstarts - v->nended == SRT_NCCL_MAX_IN_FLIGHT) {
		/* The deadline is the watchdog's. */
		pthread_mutex_unlock(&v->mutex);
		sleep_briefly();
		status = srt_nccl_poll(v);
		pthread_mutex_lock(&v->mutex);
	}
	if (status == SRT_OK && v->closed)
		status = fail_poisoned(coll);
	if (status == SRT_OK) {
		/* The two threads sleep only while no start is in flight. */
		if (v->nstarts == v->nended) {
			v->polled_at = srt_awake_s();
			pthread_cond_broadcast(&v->changed);
		}
		*number = ++v->nstarts;
		*out = in_flight_of(v, v->nstarts);
		(*out)->coll = coll;
		(*out)->submitted = false;
	}
	pthread_mutex_unlock(&v->mutex);
	return status;
}

void srt_nccl_in_flight_submitted(srt_nccl_t *v, srt_nccl_in_flight_t *entry)
{
	pthread_mutex_lock(&v->mutex);
	entry->submitted = true;
	pthread_mutex_unlock(&v->mutex);
}
