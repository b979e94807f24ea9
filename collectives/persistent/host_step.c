/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host functions of a start: they run the transport's actions of its rounds, in the order of
 * the stream.
 *
 * A host function may cost tens of microseconds on a device. So actions that follow each other on
 * the stream without device work between them share one host step, and a wait that is already
 * complete is not submitted.
 */
#include <stdio.h>
#include <string.h>

#include "collectives/collective.h"
#include "collectives/persistent/wait.h"

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
		poison_start(start, status, srt_error_last());
	return status;
}

static srt_status_t run_host_step(void *arg)
{
	const srt_host_step_t *step = arg;
	srt_coll_start_t *start = step->start;
	srt_status_t status = SRT_OK;

	if (srt_comm_poisoned(start->coll->comm))
		status = srt_wait_fail(start, 0);
	else
		status = check_device(start);
	for (int a = 0; a < SRT_NACTIONS && status == SRT_OK; a++) {
		if (step->round[a] != 0)
			status = start->coll->transport->run_action(start, (srt_action_t)a,
								    step->round[a] - 1);
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
	srt_status_t status = start->coll->transport->run_action(start, SRT_ACTION_READERS, 0);

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

	if (start->coll->comm->size == 1 || start->coll->transport->is_idle(start, action, round))
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
	return start->coll->transport->is_idle(start, SRT_ACTION_READERS, 0) ?
		       SRT_OK :
		       enqueue_host_fn(start, stream, run_wait_readers, fail_wait_readers, start);
}
