/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events. Recording makes a point, the end of the stream at that moment, and queues its being
 * reached; a wait holds the point that was the event's when it was called. In a capture both become
 * parts of the graph: a record is a place in a branch, a wait an edge from it.
 */
#include <stdlib.h>

#include "tests/fake_cuda/fake.h"

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	fake_entry_t call = { .name = "cuEventCreate" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	CUevent event;

	if (status != CUDA_SUCCESS)
		return fake_leave(&call, status);
	event = calloc(1, sizeof(*event));
	if (!event)
		abort();
	fake_object_add(event, FAKE_EVENT, fake_current());
	event->flags = flags;
	call.event_number = event->object.number;
	*out = event;
	return fake_leave(&call, CUDA_SUCCESS);
}

void fake_event_free(CUevent event)
{
	fake_point_drop(event->point);
	fake_object_remove(event);
	free(event);
}

CUresult cuEventDestroy(CUevent event)
{
	fake_entry_t call = { .name = "cuEventDestroy", .has_event = true, .event = event };
	CUresult status = fake_enter(&call, FAKE_CURRENT);

	if (status == CUDA_SUCCESS || (fake_current() && status == fake_current()->sticky))
		fake_event_free(event);
	return fake_leave(&call, status);
}

/* Both belong to one device: events are recorded on streams of their own context. */
static CUresult check_contexts(CUevent event, CUstream stream)
{
	return event->object.ctx == stream->object.ctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	fake_entry_t call = { .name = "cuEventRecord",
			      .has_stream = true,
			      .stream = stream,
			      .has_event = true,
			      .event = event };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_op_t *op;

	if (status == CUDA_SUCCESS)
		status = check_contexts(event, stream);
	if (status != CUDA_SUCCESS)
		return fake_leave(&call, status);
	op = fake_op_new(FAKE_RECORD, call.name, 0);
	if (stream->capture) {
		event->capture = stream->capture;
		event->branch = stream->branch;
		event->index = stream->capture->graph->length[stream->branch];
	} else {
		op->u.event.point = fake_point_new(2); /* the event's and the stream's */
		fake_point_drop(event->point);
		event->point = op->u.event.point;
		event->capture = NULL;
	}
	event->was_captured = false;
	return fake_leave(&call, fake_put(stream, op));
}

/* A captured event is an edge in the graph, and takes the stream into the capture. */
static CUresult wait_captured(CUstream stream, CUevent event)
{
	fake_capture_t *capture = event->capture;
	fake_op_t *op;

	if (stream->capture && stream->capture != capture) {
		capture->invalid = stream->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (!stream->capture) {
		stream->capture = capture;
		stream->branch = capture->graph->nbranches++;
	}
	op = fake_op_new(FAKE_WAIT, "cuStreamWaitEvent", 0);
	op->u.event.branch = event->branch;
	op->u.event.index = event->index;
	if (stream == capture->origin && capture->joined[event->branch] < event->index + 1)
		capture->joined[event->branch] = event->index + 1;
	return fake_put(stream, op);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	fake_entry_t call = { .name = "cuStreamWaitEvent",
			      .has_stream = true,
			      .stream = stream,
			      .has_event = true,
			      .event = event };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_op_t *op;

	(void)flags;
	if (status != CUDA_SUCCESS)
		return fake_leave(&call, status);
	if (event->capture)
		return fake_leave(&call, wait_captured(stream, event));
	if (event->was_captured)
		return fake_leave(&call, CUDA_ERROR_CAPTURED_EVENT);
	if (stream->capture) {
		/* The graph would not have the edge to work outside of it. */
		if (!event->point)
			return fake_leave(&call, CUDA_SUCCESS);
		stream->capture->invalid = true;
		return fake_leave(&call, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	}
	if (!event->point)
		return fake_leave(&call, CUDA_SUCCESS);
	op = fake_op_new(FAKE_WAIT, call.name, 0);
	op->u.event.point = event->point;
	event->point->refs++;
	return fake_leave(&call, fake_put(stream, op));
}

/* The host may not ask for an event that was recorded in a capture. */
static CUresult check_host_use(CUevent event)
{
	if (!event->capture)
		return event->was_captured ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
	event->capture->invalid = true;
	return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult cuEventSynchronize(CUevent event)
{
	fake_entry_t call = { .name = "cuEventSynchronize", .has_event = true, .event = event };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_point_t *point;

	if (status == CUDA_SUCCESS)
		status = check_host_use(event);
	if (status != CUDA_SUCCESS || !event->point)
		return fake_leave(&call, status);
	point = event->point;
	point->refs++;
	while (!point->reached)
		pthread_cond_wait(&fake.changed, &fake.lock);
	fake_clock_join(&fake_host_clock, &point->clock);
	fake_point_drop(point);
	fake.host_syncs++;
	return fake_leave(&call, fake_current()->sticky);
}

CUresult cuEventQuery(CUevent event)
{
	fake_entry_t call = { .name = "cuEventQuery", .has_event = true, .event = event };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS)
		status = check_host_use(event);
	if (status == CUDA_SUCCESS && event->point) {
		if (event->point->reached)
			fake_clock_join(&fake_host_clock, &event->point->clock);
		else
			status = CUDA_ERROR_NOT_READY;
	}
	return fake_leave(&call, status);
}

static CUresult check_timed(CUevent event)
{
	if (event->flags & CU_EVENT_DISABLE_TIMING || !event->point)
		return CUDA_ERROR_INVALID_HANDLE;
	return event->point->reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	fake_entry_t call = { .name = "cuEventElapsedTime", .has_event = true, .event = end };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS)
		status = fake_live(start, FAKE_EVENT, call.name);
	if (status == CUDA_SUCCESS)
		status = check_timed(start);
	if (status == CUDA_SUCCESS)
		status = check_timed(end);
	if (status == CUDA_SUCCESS) {
		const struct timespec *a = &start->point->when, *b = &end->point->when;

		*ms = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 +
			      (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
	}
	return fake_leave(&call, status);
}
