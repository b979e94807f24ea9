/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host functions of a start: they set this rank's flags and wait for the flags of other ranks.
 *
 * A host function may cost tens of microseconds on a device. So actions that follow each other on
 * the stream without device work between them share one host step, and a wait that is already
 * complete is not submitted.
 *
 * Staged, the bounce buffers have flags too. They show when a slot is free, and are set in the
 * order of rounds, on any stream. The flags of the collective show that a part is complete. So
 * ranks that start different collectives never read each other's parts.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/shm/flags.h"

/* ---- the waits of a round ----------------------------------------------------------------- */

static uint32_t round_seqno(const srt_coll_start_t *start, uint32_t round)
{
	return (start->epoch - 1) * start->coll->nrounds + round + 1;
}

static uint32_t bounce_seqno(const srt_coll_start_t *start, uint32_t round)
{
	return start->bounce_seqno + round + 1;
}

static srt_flag_wait_t make_offers_wait(const srt_coll_start_t *start, uint32_t round)
{
	const srt_coll_t *coll = start->coll;

	return (srt_flag_wait_t){
		.start = start,
		.flags = coll->flags,
		.id = SRT_SHM_PUBLISH,
		.value = round_seqno(start, round),
		.who = SRT_WAIT_OFFERS,
		.phase = srt_coll_phase(coll, round),
	};
}

static srt_flag_wait_t make_readers_wait(const srt_coll_start_t *start)
{
	return (srt_flag_wait_t){
		.start = start,
		.flags = start->coll->flags,
		.id = SRT_SHM_RELEASE,
		.value = round_seqno(start, start->coll->nrounds - 1),
		.who = SRT_WAIT_READERS,
	};
}

/* All ranks have released the earlier chunk of the round's slot. */
static srt_flag_wait_t make_slot_wait(const srt_coll_start_t *start, uint32_t round)
{
	return (srt_flag_wait_t){
		.start = start,
		.flags = start->coll->bounce->flags,
		.id = SRT_SHM_RELEASE,
		.value = bounce_seqno(start, round) - SRT_STAGING_NSLOTS,
		.who = SRT_WAIT_ALL,
	};
}

/* This rank has set the same flag of the bounce buffers `back` rounds earlier, on any stream. So
 * flags only rise, and the scratch and each slot have one user at a time. */
static srt_flag_wait_t make_own_wait(const srt_coll_start_t *start, uint32_t round,
				     srt_shm_flag_id_t id, uint32_t back)
{
	return (srt_flag_wait_t){
		.start = start,
		.flags = start->coll->bounce->flags,
		.id = id,
		.value = bounce_seqno(start, round) - back,
		.who = SRT_WAIT_OWN,
	};
}

/* ---- host functions ------------------------------------------------------------------- */

static void set_flags(const srt_coll_start_t *start, uint32_t round, srt_shm_flag_id_t id)
{
	const srt_coll_t *coll = start->coll;
	int me = coll->comm->rank;

	if (coll->bounce != NULL)
		srt_shm_set_flag(&coll->bounce->flags[(size_t)me * SRT_SHM_NFLAGS + id],
				 bounce_seqno(start, round));
	srt_shm_set_flag(srt_coll_flag(coll, me, id), round_seqno(start, round));
}

static srt_status_t run_action(const srt_coll_start_t *start, srt_action_t action, uint32_t round)
{
	bool staged = start->coll->bounce != NULL;
	srt_flag_wait_t w;

	switch (action) {
	case SRT_ACTION_RELEASE:
	case SRT_ACTION_PUBLISH: {
		srt_shm_flag_id_t id =
			action == SRT_ACTION_PUBLISH ? SRT_SHM_PUBLISH : SRT_SHM_RELEASE;
		if (staged) {
			w = make_own_wait(start, round, id, 1);
			SRT_TRY(srt_flag_wait(&w));
		}
		set_flags(start, round, id);
		return SRT_OK;
	}
	case SRT_ACTION_CLAIM:
		w = make_own_wait(start, round, SRT_SHM_PUBLISH, SRT_STAGING_NSLOTS);
		SRT_TRY(srt_flag_wait(&w));
		w = make_slot_wait(start, round);
		return srt_flag_wait(&w);
	case SRT_ACTION_AWAIT:
		if (staged) {
			w = make_own_wait(start, round, SRT_SHM_RELEASE, 1);
			SRT_TRY(srt_flag_wait(&w));
		}
		w = make_offers_wait(start, round);
		return srt_flag_wait(&w);
	case SRT_NACTIONS:
		break;
	}
	return SRT_OK;
}

/* Whether the action has nothing to wait for. */
static bool is_idle(const srt_coll_start_t *start, srt_action_t action, uint32_t round)
{
	srt_flag_wait_t w;

	if (action == SRT_ACTION_CLAIM) {
		w = make_own_wait(start, round, SRT_SHM_PUBLISH, SRT_STAGING_NSLOTS);
		if (!srt_flag_wait_is_complete(&w))
			return false;
		w = make_slot_wait(start, round);
		return srt_flag_wait_is_complete(&w);
	}
	if (action != SRT_ACTION_AWAIT)
		return false;
	if (start->coll->bounce != NULL) {
		w = make_own_wait(start, round, SRT_SHM_RELEASE, 1);
		if (!srt_flag_wait_is_complete(&w))
			return false;
	}
	w = make_offers_wait(start, round);
	return srt_flag_wait_is_complete(&w);
}

/* The device or the stream has failed: peers must not wait for this rank's flags. */
static void poison_start(const srt_coll_start_t *start, srt_status_t status, const char *message)
{
	const srt_coll_t *coll = start->coll;
	char what[192];

	snprintf(what, sizeof(what), "%s of \"%s\"", coll->algorithm->name, coll->name);
	(void)srt_comm_fail_alone(coll->comm, what, status, message);
}

/* If the device has failed, the results of earlier work on the stream are not valid, and peers must
 * not read them. */
static srt_status_t check_device(const srt_coll_start_t *start)
{
	srt_status_t status = srt_device_check(start->coll->comm->device);

	if (status != SRT_OK)
		poison_start(start, status, srt_last_error());
	return status;
}

static srt_status_t run_host_step(void *arg)
{
	const srt_host_step_t *step = arg;
	srt_coll_start_t *start = step->start;
	srt_status_t status = SRT_OK;

	if (srt_comm_poisoned(start->coll->comm))
		status = srt_flag_wait_fail(start, 0);
	else
		status = check_device(start);
	for (int a = 0; a < SRT_NACTIONS && status == SRT_OK; a++) {
		if (step->round[a] != 0)
			status = run_action(start, (srt_action_t)a, step->round[a] - 1);
	}
	srt_coll_start_release(start, status);
	return status;
}

static void fail_host_step(void *arg, int status, const char *message)
{
	const srt_host_step_t *step = arg;

	poison_start(step->start, (srt_status_t)status, message);
	srt_coll_start_release(step->start, (srt_status_t)status);
}

static srt_status_t run_wait_readers(void *arg)
{
	srt_coll_start_t *start = arg;
	srt_flag_wait_t w = make_readers_wait(start);
	srt_status_t status = srt_flag_wait(&w);

	srt_coll_start_release(start, status);
	return status;
}

static void fail_wait_readers(void *arg, int status, const char *message)
{
	srt_coll_start_t *start = arg;

	poison_start(start, (srt_status_t)status, message);
	srt_coll_start_release(start, (srt_status_t)status);
}

static srt_status_t enqueue_host_fn(srt_coll_start_t *start, srt_stream_t *stream, srt_host_fn *fn,
				    void (*failed)(void *arg, int status, const char *message),
				    void *arg)
{
	srt_status_t status;

	srt_coll_start_hold(start);
	status = srt_stream_host_fn_or(stream, fn, failed, arg);
	if (status != SRT_OK)
		srt_coll_start_release(start, status);
	return status;
}

srt_status_t srt_host_step_submit(srt_coll_start_t *start, srt_stream_t *stream)
{
	if (!start->is_open)
		return SRT_OK;
	start->is_open = false;
	return enqueue_host_fn(start, stream, run_host_step, fail_host_step,
			       &start->host_steps[start->nhost_steps - 1]);
}

srt_status_t srt_host_step_add(srt_coll_start_t *start, srt_action_t action, uint32_t round,
			       srt_stream_t *stream)
{
	srt_host_step_t *step;

	if (start->coll->comm->size == 1 || is_idle(start, action, round))
		return SRT_OK;
	/* A host function does its actions in one order only. */
	for (int a = (int)action; start->is_open && a < SRT_NACTIONS; a++) {
		if (start->host_steps[start->nhost_steps - 1].round[a] != 0)
			SRT_TRY(srt_host_step_submit(start, stream));
	}
	if (!start->is_open) {
		if (start->nhost_steps == start->coll->nhost_steps)
			return srt_fail(SRT_ERR_STATE, "%s of \"%s\" has more steps than planned",
					start->coll->algorithm->name, start->coll->name);
		start->host_steps[start->nhost_steps] = (srt_host_step_t){ .start = start };
		start->nhost_steps++;
		start->is_open = true;
	}
	step = &start->host_steps[start->nhost_steps - 1];
	step->round[action] = 1 + round;
	return SRT_OK;
}

srt_status_t srt_host_step_wait_readers(srt_coll_start_t *start, srt_stream_t *stream)
{
	srt_flag_wait_t w = make_readers_wait(start);

	return srt_flag_wait_is_complete(&w) ?
		       SRT_OK :
		       enqueue_host_fn(start, stream, run_wait_readers, fail_wait_readers, start);
}
