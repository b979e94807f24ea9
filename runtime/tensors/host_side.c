/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work on a rank's host device in the order of a stream of its other device: one edge to the host's
 * stream and one back.
 */
#include "runtime/tensors/tensors.h"

srt_status_t srt_host_side_create(srt_context_t *context, srt_host_side_t *side)
{
	srt_device_t *device = srt_context_device(context), *host;

	*side = (srt_host_side_t){ 0 };
	SRT_TRY(srt_context_host(context, &host));
	if (host == device)
		return SRT_OK;
	side->device = host;
	SRT_TRY(srt_stream_create(host, 0, "sharded tensor", &side->stream));
	SRT_TRY(srt_event_create(device, &side->entered));
	return srt_event_create(host, &side->left);
}

void srt_host_side_destroy(srt_host_side_t *side)
{
	srt_stream_destroy(side->stream);
	srt_event_destroy(side->entered);
	srt_event_destroy(side->left);
	*side = (srt_host_side_t){ 0 };
}

srt_status_t srt_host_side_enter(const srt_host_side_t *side, const srt_device_t *device,
				 srt_stream_t *stream, srt_stream_t **home)
{
	*home = stream;
	if (side->device == NULL || device != side->device)
		return SRT_OK;
	*home = side->stream;
	/* Edge: the caller's work -> work on the host. */
	SRT_TRY(srt_event_record(side->entered, stream));
	return srt_stream_wait_event(side->stream, side->entered);
}

srt_status_t srt_host_side_leave(const srt_host_side_t *side, srt_stream_t *home,
				 srt_stream_t *stream)
{
	if (home == stream)
		return SRT_OK;
	/* Edge: work on the host -> the caller's later work. */
	SRT_TRY(srt_event_record(side->left, home));
	return srt_stream_wait_event(stream, side->left);
}
