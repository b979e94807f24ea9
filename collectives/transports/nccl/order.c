/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The order of starts by NCCL, and the turns that they take on its stream.
 *
 * Who starts something says so in the log that all ranks see, and then looks what the others have
 * said for the same number: of two ranks at least the later one sees the other's word, and if that
 * differs it puts nothing on its stream. So what two ranks have put under one number is the same,
 * and no rank waits for another. The log remembers SRT_SHM_LOG_LENGTH starts: a rank that is half
 * of them ahead of another waits for it.
 *
 * A turn's end is an event. The observer (watchdog.c) looks at that of the oldest, and so does the
 * caller when all turns are taken.
 */
#include <time.h>

#include "collectives/collective.h"

#define MAX_AHEAD (SRT_SHM_LOG_LENGTH / 2)

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static srt_shm_word_t *own_word(const srt_nccl_t *v, srt_shm_word_t *words, srt_shm_word_id_t id)
{
	return &words[(size_t)v->comm->rank * SRT_SHM_NWORDS + id];
}

static srt_status_t fail_start(const srt_coll_t *coll)
{
	return srt_comm_fail(coll->comm, 0, "%s of \"%s\"", coll->algorithm->name, coll->name);
}

srt_status_t srt_nccl_say(const srt_coll_start_t *start)
{
	srt_comm_t *comm = start->coll->comm;
	srt_nccl_t *v = comm->nccl;

	SRT_TRY(srt_point_wait_all(start, v->said, SRT_SHM_PUBLISH, start->number - MAX_AHEAD));
	srt_shm_log_start(comm, start->number, start->coll->id);
	srt_shm_set(own_word(v, v->said, SRT_SHM_PUBLISH), start->number);
	/* This rank's word before its look at the others': of two ranks one sees the other's. */
	atomic_thread_fence(memory_order_seq_cst);
	/* All say what the first to find it says: it may still be writing. */
	while (srt_point_disagrees(start) && !srt_comm_poisoned(comm))
		nap();
	return srt_comm_poisoned(comm) ? fail_start(start->coll) : SRT_OK;
}

/* ---- turns ------------------------------------------------------------------------------ */

static srt_nccl_turn_t *turn_of(srt_nccl_t *v, uint32_t number)
{
	return &v->turn[(number - 1) % SRT_NCCL_NTURNS];
}

/* The oldest turn if it is on the stream, or NULL; its number. */
static srt_nccl_turn_t *oldest_turn(srt_nccl_t *v, uint32_t *number)
{
	srt_nccl_turn_t *turn = NULL;

	pthread_mutex_lock(&v->mutex);
	*number = v->nended + 1;
	if (!v->over && v->nended != v->nstarts && turn_of(v, *number)->put)
		turn = turn_of(v, *number);
	pthread_mutex_unlock(&v->mutex);
	return turn;
}

/* Notes what was found, unless somebody else has. Release: for peers that destroy theirs, this rank
 * needs nothing of them. */
static void note_turn(srt_nccl_t *v, uint32_t number, int began, int ended)
{
	pthread_mutex_lock(&v->mutex);
	if (v->nended + 1 == number && (began || ended))
		srt_shm_set(own_word(v, v->turns, SRT_SHM_PUBLISH), number);
	if (v->nended + 1 == number && ended) {
		v->since = 0;
		v->nended = number;
		srt_shm_set(own_word(v, v->turns, SRT_SHM_RELEASE), number);
	} else if (v->nended + 1 == number && began && v->since == 0) {
		v->since = srt_awake_s();
	}
	pthread_mutex_unlock(&v->mutex);
}

srt_status_t srt_nccl_look(srt_nccl_t *v)
{
	srt_nccl_turn_t *turn;
	int began = 0, ended = 1;
	uint32_t number;

	while (ended && (turn = oldest_turn(v, &number)) != NULL) {
		SRT_TRY(srt_event_query(turn->ended, &ended));
		if (!ended)
			SRT_TRY(srt_event_query(turn->began, &began));
		note_turn(v, number, began, ended);
	}
	return SRT_OK;
}

srt_status_t srt_nccl_take_turn(srt_nccl_t *v, const srt_coll_t *coll, srt_nccl_turn_t **out,
				uint32_t *number)
{
	srt_status_t status = SRT_OK;

	pthread_mutex_lock(&v->mutex);
	while (status == SRT_OK && !v->over && v->nstarts - v->nended == SRT_NCCL_NTURNS) {
		/* The deadline is the watchdog's. */
		pthread_mutex_unlock(&v->mutex);
		nap();
		status = srt_nccl_look(v);
		pthread_mutex_lock(&v->mutex);
	}
	if (status == SRT_OK && v->over)
		status = fail_start(coll);
	if (status == SRT_OK) {
		/* Else both threads are awake. */
		if (v->nstarts == v->nended) {
			v->looked = srt_awake_s();
			pthread_cond_broadcast(&v->changed);
		}
		*number = ++v->nstarts;
		*out = turn_of(v, v->nstarts);
		(*out)->coll = coll;
		(*out)->put = false;
	}
	pthread_mutex_unlock(&v->mutex);
	return status;
}

void srt_nccl_put_turn(srt_nccl_t *v, srt_nccl_turn_t *turn)
{
	pthread_mutex_lock(&v->mutex);
	turn->put = true;
	pthread_mutex_unlock(&v->mutex);
}
