/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the owned values are: on the device or, with offload, in host memory. All work on them is
 * done on the home stream. Without offload that is the caller's stream, and no edge is needed.
 */
#include "runtime/engine/layout/layout.h"

srt_status_t srt_order_streams(srt_engine_t *engine, srt_stream_t *from, srt_stream_t *to)
{
	srt_event_t *edge =
		from == engine->home.stream ? engine->home.edge : engine->home.device_edge;

	SRT_TRY(srt_event_record(edge, from));
	return srt_stream_wait_event(to, edge);
}

srt_status_t srt_home_enter(srt_engine_t *engine, srt_stream_t *stream, srt_stream_t **home)
{
	*home = stream;
	if (engine->home.stream == NULL)
		return SRT_OK;
	*home = engine->home.stream;
	/* Edge: the caller's work -> work on the host. */
	return srt_order_streams(engine, stream, engine->home.stream);
}

srt_status_t srt_home_leave(srt_engine_t *engine, srt_stream_t *stream)
{
	if (engine->home.stream == NULL)
		return SRT_OK;
	/* Edge: work on the host -> the caller's later work. */
	return srt_order_streams(engine, engine->home.stream, stream);
}
