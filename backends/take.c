/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Takes (take.h): work that came once, compared with what comes, recorded by the backend and
 * replayed; and the few takes of a stretch. Called by sequence.c, which says when.
 */
#include <stdlib.h>

#include "backends/take.h"

/* Pieces that are worth a recording; no device has measured it. */
#define MIN_RECORDED 4

/* ---- one take ---------------------------------------------------------------------------- */

srt_take_t *srt_take_new(const srt_device_t *device)
{
	srt_take_t *take = srt_calloc(1, sizeof(*take), "what a sequence remembers");

	if (take)
		take->device = device;
	return take;
}

void srt_take_free(srt_take_t *take)
{
	if (!take)
		return;
	if (take->recording)
		take->device->backend->work->recording_free(take->recording);
	free(take->pieces);
	free(take);
}

bool srt_take_add(srt_take_t *take, const srt_work_t *work, srt_status_t answer)
{
	srt_piece_of_work_t *pieces = srt_grow(take->pieces, take->n + 1, &take->room,
					       sizeof(*pieces), "what a sequence remembers");

	if (!pieces)
		return false;
	take->pieces = pieces;
	take->pieces[take->n].work = *work;
	take->pieces[take->n++].answer = answer;
	return true;
}

bool srt_take_has(const srt_take_t *take, size_t at, const srt_work_t *work)
{
	return at < take->n && memcmp(&take->pieces[at].work, work, sizeof(*work)) == 0;
}

/* Whether the first n pieces of two takes are the same; b has so many. */
static bool begin_alike(const srt_take_t *a, const srt_take_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!srt_take_has(a, i, &b->pieces[i].work))
			return false;
	return true;
}

srt_status_t srt_take_issue(const srt_take_t *take, size_t n, srt_stream_t *stream)
{
	srt_status_t status = SRT_OK;

	for (size_t i = 0; i < n && status == SRT_OK; i++)
		if (take->pieces[i].answer == SRT_OK)
			status = srt_work_issue(stream, &take->pieces[i].work);
	return status;
}

static void record(srt_take_t *take, const char *name, srt_stream_t *stream)
{
	const srt_backend_work_ops_t *ops = stream->device->backend->work;
	void *recording = NULL;
	srt_status_t status, end;

	take->plain = true;
	if (take->n < MIN_RECORDED)
		return;
	status = ops->record_begin(stream->impl);
	if (status == SRT_OK) {
		status = srt_take_issue(take, take->n, stream);
		end = ops->record_end(stream->impl, &recording);
		status = status == SRT_OK ? end : status;
	}
	if (status == SRT_OK) {
		take->recording = recording;
		take->plain = false;
		srt_log(SRT_LOG_DEBUG, "sequence \"%s\": %zu pieces of work are recorded", name,
			take->n);
		return;
	}
	if (recording)
		ops->recording_free(recording);
	srt_log(SRT_LOG_DEBUG, "sequence \"%s\": %zu pieces of work are not recorded: %s", name,
		take->n, srt_last_error());
}

srt_status_t srt_take_play(srt_take_t *take, const char *name, srt_stream_t *stream)
{
	if (!take->recording && !take->plain)
		record(take, name, stream);
	if (!take->recording)
		return srt_take_issue(take, take->n, stream);
	atomic_fetch_add_explicit(&stream->device->nreplays, 1, memory_order_relaxed);
	return stream->device->backend->work->replay(stream->impl, take->recording);
}

/* ---- the takes of a stretch --------------------------------------------------------------- */

static void make_room(srt_stretch_t *stretch, const srt_take_t *keep)
{
	int oldest = -1;

	for (int i = 0; i < stretch->ntakes; i++)
		if (stretch->takes[i] != keep &&
		    (oldest < 0 || stretch->takes[i]->used < stretch->takes[oldest]->used))
			oldest = i;
	srt_take_free(stretch->takes[oldest]);
	stretch->takes[oldest] = stretch->takes[--stretch->ntakes];
}

void srt_stretch_add(srt_stretch_t *stretch, srt_take_t *take, const srt_take_t *keep)
{
	if (stretch->ntakes == SRT_MAX_TAKES)
		make_room(stretch, keep);
	stretch->takes[stretch->ntakes++] = take;
}

void srt_stretch_drop(srt_stretch_t *stretch, srt_take_t *take)
{
	for (int i = 0; i < stretch->ntakes; i++)
		if (stretch->takes[i] == take)
			stretch->takes[i] = stretch->takes[--stretch->ntakes];
	srt_take_free(take);
}

void srt_stretch_forget(srt_stretch_t *stretch)
{
	for (int i = 0; i < stretch->ntakes; i++)
		srt_take_free(stretch->takes[i]);
	stretch->ntakes = 0;
}

srt_take_t *srt_stretch_last(const srt_stretch_t *stretch)
{
	srt_take_t *last = NULL;

	for (int i = 0; i < stretch->ntakes; i++)
		if (!last || stretch->takes[i]->used > last->used)
			last = stretch->takes[i];
	return last;
}

srt_take_t *srt_stretch_find(const srt_stretch_t *stretch, const srt_take_t *begin, size_t n,
			     const srt_work_t *work)
{
	for (int i = 0; i < stretch->ntakes; i++) {
		srt_take_t *take = stretch->takes[i];

		if (work ? !srt_take_has(take, n, work) : take->n != n)
			continue;
		if (begin_alike(take, begin, n))
			return take;
	}
	return NULL;
}
