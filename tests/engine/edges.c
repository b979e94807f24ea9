/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Classes by vector clocks: a record ends the work of its stream so far, a wait joins the clock of
 * the record to that of its stream. A synchronization orders later work of all streams, and host
 * functions are ordered with each other, because those of collectives wait for earlier starts.
 * EDGE_SINGLE is what these clocks cannot prove redundant: the data may still make it so.
 */
#include "tests/engine/edges.h"

#include <time.h>

#include "device/stream_queue.h"
#include "tests/harness/check.h"

#define MAX_STREAMS 16
#define MAX_EVENTS 128
#define NHURRIED 16 /* commands after a wait that was left out, which run at once */
#define NDELAYED 4  /* waits up to the one that is left out, between which the host is slow */

/* For each stream, how many of its records happened before. */
typedef struct vector {
	uint32_t at[MAX_STREAMS];
} vector_t;

/* A wait of which no command has shown yet that it is needed. */
typedef struct pending {
	int edge;
	int waiter;
	vector_t recorded; /* what it waits for */
	vector_t without;  /* what the waiter's work comes after without this wait */
} pending_t;

struct edges edges;

static struct {
	const srt_engine_t *engine; /* NULL: waits are not counted */
	const srt_scaler_t *scaler;
	int nwaits, skipped;
	const srt_stream_t *hurried; /* the stream that left out a wait */
	int nhurried;
	const srt_stream_t *streams[MAX_STREAMS];
	vector_t clocks[MAX_STREAMS];
	bool has_work[MAX_STREAMS]; /* since the clock's last tick */
	int nstreams;
	const srt_event_t *events[MAX_EVENTS];
	vector_t recorded[MAX_EVENTS];
	int nevents;
	vector_t host, host_fns;
	pending_t pending[EDGES_MAX];
	int npending;
} run;

/* ---- names ---------------------------------------------------------------------------------- */

static const char *event_name(const srt_event_t *event)
{
	if (event == run.scaler->done)
		return "scaler";
	if (event == run.engine->order.stepped)
		return "stepped";
	if (event == run.engine->order.used)
		return "used";
	if (event == run.engine->home.device_edge)
		return "edge";
	if (event == run.engine->home.edge)
		return "host edge";
	if (event == run.engine->home.downloaded)
		return "downloaded";
	if (event == run.engine->home.landed)
		return "landed";
	for (size_t u = 0; u < run.engine->nunits; u++) {
		const srt_unit_t *unit = run.engine->units[u];

		if (event == unit->unshard.gathered)
			return "gathered";
		if (event == unit->grads.reduced)
			return "reduced";
		if (event == unit->unshard.uploaded)
			return "uploaded";
		if (unit->slot[SRT_SLOT_PARAMS] != NULL &&
		    event == unit->slot[SRT_SLOT_PARAMS]->released)
			return "released";
	}
	return "an event of the program";
}

static int find_kind(const srt_stream_t *stream, const srt_event_t *event)
{
	char name[64];
	int k = 0;

	snprintf(name, sizeof(name), "%s, %s", stream->name, event_name(event));
	while (k < edges.nkinds && strcmp(edges.kinds[k], name) != 0)
		k++;
	CHECK_OR_DIE(k < EDGES_MAX_KINDS);
	if (k == edges.nkinds)
		memcpy(edges.kinds[edges.nkinds++], name, sizeof(name));
	return k;
}

/* ---- vector clocks -------------------------------------------------------------------------- */

static void join(vector_t *to, const vector_t *from)
{
	for (int i = 0; i < MAX_STREAMS; i++)
		if (to->at[i] < from->at[i])
			to->at[i] = from->at[i];
}

/* Whether all of `part` happened before. */
static bool covers(const vector_t *clock, const vector_t *part)
{
	bool all = true;

	for (int i = 0; i < MAX_STREAMS; i++)
		all &= clock->at[i] >= part->at[i];
	return all;
}

static int find_stream(const srt_stream_t *stream)
{
	int s = 0;

	while (s < run.nstreams && run.streams[s] != stream)
		s++;
	CHECK_OR_DIE(s < MAX_STREAMS);
	if (s == run.nstreams)
		run.streams[run.nstreams++] = stream;
	return s;
}

static int find_event(const srt_event_t *event)
{
	int e = 0;

	while (e < run.nevents && run.events[e] != event)
		e++;
	CHECK_OR_DIE(e < MAX_EVENTS);
	if (e == run.nevents)
		run.events[run.nevents++] = event;
	return e;
}

/* The stream's later work comes after `clock`. */
static void order_after(int stream, const vector_t *clock)
{
	join(&run.clocks[stream], clock);
	for (int i = 0; i < run.npending; i++) {
		pending_t *p = &run.pending[i];

		if (p->waiter != stream)
			continue;
		join(&p->without, clock);
		if (!covers(&p->without, &p->recorded))
			continue;
		edges.of[p->edge].class = EDGE_EARLY;
		run.pending[i--] = run.pending[--run.npending];
	}
}

/* The stream has work that needs its waits. */
static void need_waits(int stream)
{
	for (int i = 0; i < run.npending; i++)
		if (run.pending[i].waiter == stream)
			run.pending[i--] = run.pending[--run.npending];
}

/* The end of the stream's work so far. */
static const vector_t *tick(int stream)
{
	need_waits(stream);
	if (run.has_work[stream])
		run.clocks[stream].at[stream]++;
	run.has_work[stream] = false;
	return &run.clocks[stream];
}

static void list_edge(const srt_stream_t *stream, const srt_event_t *event)
{
	edge_t *edge = &edges.of[edges.n];
	pending_t p = {
		.edge = edges.n,
		.waiter = find_stream(stream),
		.recorded = run.recorded[find_event(event)],
	};

	CHECK_OR_DIE(edges.n < EDGES_MAX);
	p.without = run.clocks[p.waiter];
	edge->kind = find_kind(stream, event);
	edge->class = covers(&p.without, &p.recorded) ? EDGE_IMPLIED : EDGE_SINGLE;
	order_after(p.waiter, &p.recorded);
	if (edge->class == EDGE_SINGLE)
		run.pending[run.npending++] = p;
	edges.n++;
}

/* ---- calls of the library ------------------------------------------------------------------- */

srt_status_t __real_srt_stream_wait_event(srt_stream_t *stream, srt_event_t *event);
srt_status_t __wrap_srt_stream_wait_event(srt_stream_t *stream, srt_event_t *event);
srt_status_t __real_srt_event_record(srt_event_t *event, srt_stream_t *stream);
srt_status_t __wrap_srt_event_record(srt_event_t *event, srt_stream_t *stream);
srt_status_t __real_srt_queue_put(srt_stream_t *stream, const srt_command_t *command);
srt_status_t __wrap_srt_queue_put(srt_stream_t *stream, const srt_command_t *command);
srt_status_t __real_srt_stream_sync(srt_stream_t *stream);
srt_status_t __wrap_srt_stream_sync(srt_stream_t *stream);

static srt_status_t sleep_ms(void *arg)
{
	(void)arg;
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
	return SRT_OK;
}

/* The host device runs its commands at once and not in unlucky orders, so those before the wait
 * that is left out get a delay. */
static void delay_host(srt_stream_t *stream, const srt_command_t *command)
{
	if (stream->device != run.engine->device && command->kind != SRT_COMMAND_HOST_FN &&
	    run.nwaits <= run.skipped && run.nwaits + NDELAYED > run.skipped)
		CHECK_OK(srt_stream_host_fn(stream, sleep_ms, NULL));
}

srt_status_t edges_wait(srt_stream_t *stream, srt_event_t *event)
{
	if (run.engine != NULL)
		order_after(find_stream(stream), &run.recorded[find_event(event)]);
	return __real_srt_stream_wait_event(stream, event);
}

srt_status_t __wrap_srt_stream_wait_event(srt_stream_t *stream, srt_event_t *event)
{
	const uint64_t recorder = atomic_load(&event->stream);

	if (run.engine == NULL || recorder == 0 || /* orders nothing */
	    (recorder == stream->number && event->device == stream->device))
		return __real_srt_stream_wait_event(stream, event);
	if (run.skipped < 0)
		list_edge(stream, event);
	if (run.nwaits++ != run.skipped)
		return __real_srt_stream_wait_event(stream, event);
	run.hurried = stream;
	run.nhurried = NHURRIED;
	return SRT_OK;
}

srt_status_t __wrap_srt_event_record(srt_event_t *event, srt_stream_t *stream)
{
	if (run.engine != NULL)
		run.recorded[find_event(event)] = *tick(find_stream(stream));
	return __real_srt_event_record(event, stream);
}

srt_status_t __wrap_srt_queue_put(srt_stream_t *stream, const srt_command_t *command)
{
	srt_status_t status;

	if (run.engine != NULL && command->kind < SRT_COMMAND_EVENT_RECORD) {
		const int s = find_stream(stream);

		delay_host(stream, command);
		order_after(s, &run.host);
		if (command->kind == SRT_COMMAND_HOST_FN) {
			order_after(s, &run.host_fns);
			join(&run.host_fns, tick(s));
		}
		need_waits(s);
		run.has_work[s] = true;
	}
	status = __real_srt_queue_put(stream, command);
	if (stream == run.hurried && run.nhurried-- > 0)
		srt_queue_sync(stream); /* the stream has the failure */
	return status;
}

srt_status_t __wrap_srt_stream_sync(srt_stream_t *stream)
{
	if (run.engine != NULL)
		join(&run.host, tick(find_stream(stream)));
	return __real_srt_stream_sync(stream);
}

/* ---- parts of a program --------------------------------------------------------------------- */

void edges_clear(void)
{
	memset(&edges, 0, sizeof(edges));
}

void edges_begin(const srt_engine_t *engine, const srt_scaler_t *scaler, int skipped)
{
	memset(&run, 0, sizeof(run));
	run.engine = engine;
	run.scaler = scaler;
	run.skipped = skipped;
	if (skipped < 0)
		edges.n = 0;
}

void edges_end(void)
{
	run.engine = NULL;
	run.hurried = NULL;
}
