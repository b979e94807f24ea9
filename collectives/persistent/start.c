/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starting a collective, and waiting for its readers. A start allocates nothing: its record is an
 * entry of a ring in the object. If all entries are in flight, a start waits for the oldest.
 */
#include <stdio.h>
#include <time.h>

#include "collectives/collective.h"

static srt_status_t check_stream(const srt_coll_t *coll, const srt_stream_t *stream)
{
	if (stream->device != coll->comm->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s of \"%s\": stream \"%s\" belongs to another device",
				coll->algorithm->name, coll->name, stream->name);
	return SRT_OK;
}

static srt_status_t check_epilogue(const srt_coll_t *coll, const srt_coll_epilogue_t *epilogue)
{
	if (epilogue->divisor == 0.0f || epilogue->predivisor == 0.0f)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s of \"%s\": a divisor is 0; 1 divides by nothing",
				coll->algorithm->name, coll->name);
	if ((epilogue->divisor != 1.0f || epilogue->predivisor != 1.0f) &&
	    !coll->algorithm->reduces)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s of \"%s\" does not sum, so it takes no divisor",
				coll->algorithm->name, coll->name);
	if (coll->shard.buffer != NULL && coll->shard.dtype != coll->dtype &&
	    (epilogue->accumulate || epilogue->divisor != 1.0f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s of \"%s\" keeps its sum in %s: it cannot divide it or add it "
				"to the shard",
				coll->algorithm->name, coll->name,
				srt_dtype_name(coll->shard.dtype));
	if (epilogue->accumulate && coll->kind != SRT_COLL_REDUCE_SCATTER)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s of \"%s\" cannot accumulate: only reduce-scatter can",
				coll->algorithm->name, coll->name);
	return SRT_OK;
}

/* Waits until no stream refers to the oldest record of the ring, and returns it. */
static srt_status_t acquire_start(srt_coll_t *coll, srt_coll_start_t **out)
{
	srt_coll_start_t *start = &coll->starts[(coll->epoch + 1) % coll->nstarts];
	double deadline = 0;

	while (atomic_load_explicit(&start->npending, memory_order_acquire) != 0) {
		if (srt_comm_poisoned(coll->comm))
			return srt_comm_fail(coll->comm, 0, "%s of \"%s\" cannot start",
					     coll->algorithm->name, coll->name);
		if (deadline == 0)
			deadline = srt_awake_s() + coll->comm->bootstrap->timeout_s;
		else if (srt_awake_s() > deadline)
			return srt_fail(SRT_ERR_STATE,
					"rank %d: %s of \"%s\": %u starts are in flight and none "
					"ends; a stream has failed, or waits for an event that is "
					"never reached",
					coll->comm->world_rank[coll->comm->rank],
					coll->algorithm->name, coll->name, (unsigned)coll->nstarts);
		if (coll->transport->await_start != NULL)
			coll->transport->await_start(start);
		else
			nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	*out = start;
	return SRT_OK;
}

void srt_coll_start_hold(srt_coll_start_t *start)
{
	if (start->whole != NULL)
		srt_coll_start_hold(start->whole);
	atomic_fetch_add_explicit(&start->npending, 1, memory_order_relaxed);
}

void srt_coll_start_release(srt_coll_start_t *start, srt_status_t status)
{
	srt_flight_t *flight = start->coll->comm->flight;
	const bool ends_here = status != SRT_OK || !start->coll->transport->records_ends;
	const uint32_t index = start->flight;
	srt_coll_start_t *whole = start->whole;

	if (status != SRT_OK)
		srt_flight_end(flight, index, SRT_FLIGHT_FAILED);
	/* After the last release the record may be that of another start. */
	if (atomic_fetch_sub_explicit(&start->npending, 1, memory_order_acq_rel) == 1 && ends_here)
		srt_flight_end(flight, index, SRT_FLIGHT_COMPLETE);
	if (whole != NULL)
		srt_coll_start_release(whole, status);
}

/* Announces the start to the other ranks, which compare it with theirs. */
static srt_status_t announce_start(const srt_coll_start_t *start)
{
	srt_comm_t *comm = start->coll->comm;

	if (comm->size == 1 || start->whole != NULL) /* the whole has been announced */
		return SRT_OK;
	if (comm->transport->announce != NULL)
		return comm->transport->announce(start);
	srt_start_log_write(comm, comm->rank, start->number, start->coll->id);
	return SRT_OK;
}

/* A part of the start may be on the stream: poisons, so that no rank waits for the rest. */
static srt_status_t fail_start(srt_coll_t *coll, srt_status_t status)
{
	srt_comm_t *comm = coll->comm;
	char what[192];

	/* If a rank's death is the cause, the death is reported. */
	if (status == SRT_ERR_DEVICE && coll->transport->grace_s > 0 &&
	    srt_comm_await_poison(comm, coll->transport->grace_s))
		return srt_comm_fail(comm, 0, "%s of \"%s\" cannot start", coll->algorithm->name,
				     coll->name);
	snprintf(what, sizeof(what), "%s of \"%s\"", coll->algorithm->name, coll->name);
	status = srt_comm_fail_alone(comm, what, status, srt_error_last());
	if (coll->transport->abort_starts != NULL)
		coll->transport->abort_starts(coll);
	return status;
}

srt_status_t srt_coll_start_stage(srt_coll_start_t *whole, srt_coll_t *coll,
				  const srt_coll_epilogue_t *epilogue, srt_stream_t *stream)
{
	srt_coll_start_t *start = NULL;
	srt_comm_t *comm = coll->comm;
	srt_status_t status;

	if (srt_comm_poisoned(comm))
		return srt_comm_fail(comm, 0, "%s of \"%s\" cannot start", coll->algorithm->name,
				     coll->name);
	/* A failed stream skips its commands, so the peers would wait for this rank's flags. */
	status = srt_stream_check(stream);
	if (status != SRT_OK)
		return comm->size == 1 ? status : fail_start(coll, status);
	SRT_TRY(acquire_start(coll, &start));
	srt_stream_set_add(&coll->streams, stream);
	start->whole = whole;
	start->epoch = ++coll->epoch;
	coll->has_started = true;
	start->number = ++comm->nstarts;
	start->nhost_steps = 0;
	start->is_open = false;
	start->flight = srt_flight_begin(comm->flight, coll->algorithm->name, coll->dtype,
					 start->number, coll->nbytes, coll->name);
	srt_coll_start_hold(start);
	status = announce_start(start);
	if (status == SRT_OK)
		status = coll->transport->start(start, epilogue, stream);
	srt_coll_start_release(start, status);
	return status == SRT_OK || comm->size == 1 ? status : fail_start(coll, status);
}

srt_status_t srt_coll_start(srt_coll_t *coll, const srt_coll_epilogue_t *epilogue,
			    srt_stream_t *stream)
{
	srt_coll_epilogue_t full = SRT_COLL_EPILOGUE_INIT;

	SRT_NOT_NULL(coll);
	SRT_NOT_NULL(stream);
	SRT_TRY(check_stream(coll, stream));
	SRT_TRY(srt_struct_read(&full, sizeof(full), epilogue, "srt_coll_epilogue_t"));
	if (epilogue != NULL)
		SRT_TRY(check_epilogue(coll, &full));
	return srt_coll_start_stage(NULL, coll, epilogue != NULL ? &full : NULL, stream);
}

srt_status_t srt_coll_wait_readers(srt_coll_t *coll, srt_stream_t *stream)
{
	srt_status_t status;

	SRT_NOT_NULL(coll);
	SRT_NOT_NULL(stream);
	SRT_TRY(check_stream(coll, stream));
	if (srt_comm_poisoned(coll->comm))
		return srt_comm_fail(coll->comm, 0, "waiting for the readers of %s of \"%s\"",
				     coll->algorithm->name, coll->name);
	if (!coll->has_started || coll->comm->size == 1)
		return SRT_OK;
	status = srt_stream_check(stream);
	if (status != SRT_OK)
		return fail_start(coll, status);
	if (coll->transport->wait_readers == NULL)
		return SRT_OK;
	srt_stream_set_add(&coll->streams, stream);
	return coll->transport->wait_readers(&coll->starts[coll->epoch % coll->nstarts], stream);
}
