/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events. Recording makes a point, the end of the stream at that moment, and queues its being
 * reached; a wait holds the point that was the event's when it was called.
 */
#include <stdlib.h>

#include "tests/fakes/fake_cuda/fake.h"

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	fake_entry_t call = { .name = "cuEventCreate" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	CUevent event;

	(void)flags;
	if (status != CUDA_SUCCESS)
		return fake_leave(&call, status);
	event = calloc(1, sizeof(*event));
	if (event == NULL)
		abort();
	fake_object_add(event, FAKE_EVENT, fake_current());
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

	if (status == CUDA_SUCCESS || (fake_current() != NULL && status == fake_current()->sticky))
		fake_event_free(event);
	return fake_leave(&call, status);
}

/* Both belong to one device: an event is recorded on streams of the context that it belongs to. */
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
	op->u.point = fake_point_new(2); /* the event's and the stream's */
	fake_point_drop(event->point);
	event->point = op->u.point;
	fake_put(stream, op);
	return fake_leave(&call, CUDA_SUCCESS);
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
	if (status != CUDA_SUCCESS || event->point == NULL)
		return fake_leave(&call, status);
	op = fake_op_new(FAKE_WAIT, call.name, 0);
	op->u.point = event->point;
	event->point->refs++;
	fake_put(stream, op);
	return fake_leave(&call, CUDA_SUCCESS);
}

CUresult cuEventSynchronize(CUevent event)
{
	fake_entry_t call = { .name = "cuEventSynchronize", .has_event = true, .event = event };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_point_t *point;

	if (status != CUDA_SUCCESS || event->point == NULL)
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

	if (status == CUDA_SUCCESS && event->point != NULL) {
		if (event->point->reached)
			fake_clock_join(&fake_host_clock, &event->point->clock);
		else
			status = CUDA_ERROR_NOT_READY;
	}
	return fake_leave(&call, status);
}
