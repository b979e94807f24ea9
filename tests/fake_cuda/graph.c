/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Capture and graphs. A graph is what each captured stream was given, in its order (a branch), with
 * records and waits as the edges between branches. A launch takes one operation after the other
 * from any branch that can go on, at random; for the race finder each branch is a lane of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fake_cuda/fake.h"

fake_capture_t *fake_capture_forbids(void)
{
	for (int i = 0; i < FAKE_MAX_SLOTS; i++) {
		fake_capture_t *c = fake.captures[i];

		if (c && (c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
			  (c->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
			   pthread_equal(c->thread, pthread_self()))))
			return c;
	}
	return NULL;
}

static void graph_init(fake_graph_t *g)
{
	for (int i = 0; i < FAKE_MAX_SLOTS; i++)
		g->last[i] = &g->first[i];
}

void fake_graph_free(fake_graph_t *g)
{
	for (int i = 0; i < g->nbranches; i++)
		while (g->first[i]) {
			fake_op_t *op = g->first[i];

			g->first[i] = op->next;
			fake_op_free(op);
		}
	fake_object_remove(g);
	free(g);
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
	fake_entry_t call = { .name = "cuStreamBeginCapture",
			      .has_stream = true,
			      .stream = stream };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_capture_t *c;
	int i = 0;

	if (status == CUDA_SUCCESS && stream->capture)
		status = CUDA_ERROR_ILLEGAL_STATE;
	if (status != CUDA_SUCCESS)
		return fake_leave(&call, status);
	c = calloc(1, sizeof(*c));
	if (c)
		c->graph = calloc(1, sizeof(struct CUgraph_st));
	if (!c || !c->graph)
		abort();
	fake_object_add(c->graph, FAKE_GRAPH_OBJECT, fake_current());
	graph_init(c->graph);
	c->graph->nbranches = 1;
	c->origin = stream;
	c->mode = mode;
	c->thread = pthread_self();
	stream->capture = c;
	stream->branch = 0;
	while (fake.captures[i])
		i++;
	fake.captures[i] = c;
	return fake_leave(&call, CUDA_SUCCESS);
}

/* Streams and events that knew of the capture. */
static void detach(fake_capture_t *c)
{
	for (fake_object_t *o = fake.objects; o; o = o->next) {
		CUstream s = (CUstream)(void *)o;
		CUevent e = (CUevent)(void *)o;

		if (o->type == FAKE_STREAM && s->capture == c)
			s->capture = NULL;
		if (o->type == FAKE_EVENT && e->capture == c) {
			e->capture = NULL;
			e->was_captured = true;
		}
	}
	for (int i = 0; i < FAKE_MAX_SLOTS; i++)
		if (fake.captures[i] == c)
			fake.captures[i] = NULL;
}

/* Whether the origin waits for the end of every branch. A branch that a third one waits for counts
 * only by that one's being waited for itself, which the driver would accept. */
static bool is_joined(const fake_capture_t *c)
{
	for (int i = 1; i < c->graph->nbranches; i++)
		if (c->joined[i] < c->graph->length[i])
			return false;
	return true;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
	fake_entry_t call = { .name = "cuStreamEndCapture", .has_stream = true, .stream = stream };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_capture_t *c = status == CUDA_SUCCESS ? stream->capture : NULL;

	/* A call that fails on purpose ends the capture too, as one that the driver refuses. */
	if (status != CUDA_SUCCESS && fake_live(stream, FAKE_STREAM, call.name) == CUDA_SUCCESS)
		c = stream->capture;
	*out = NULL;
	if (!c)
		return fake_leave(&call,
				  status == CUDA_SUCCESS ? CUDA_ERROR_ILLEGAL_STATE : status);
	if (status == CUDA_SUCCESS && !pthread_equal(c->thread, pthread_self()) &&
	    c->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
		return fake_leave(&call, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	if (status == CUDA_SUCCESS && c->origin != stream)
		return fake_leave(&call, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	if (status == CUDA_SUCCESS && c->invalid)
		status = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (status == CUDA_SUCCESS && !is_joined(c))
		status = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	detach(c);
	if (status == CUDA_SUCCESS)
		*out = (CUgraph)(void *)c->graph;
	else
		fake_graph_free(c->graph);
	free(c);
	return fake_leave(&call, status);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *out)
{
	fake_entry_t call = { .name = "cuStreamIsCapturing", .has_stream = true, .stream = stream };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);

	if (status == CUDA_SUCCESS)
		*out = !stream->capture         ? CU_STREAM_CAPTURE_STATUS_NONE :
		       stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED :
						  CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return fake_leave(&call, status);
}

CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	fake_entry_t call = { .name = "cuGraphInstantiateWithFlags" };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_graph_t *g;

	(void)flags;
	if (status == CUDA_SUCCESS)
		status = fake_live(graph, FAKE_GRAPH_OBJECT, call.name);
	if (status != CUDA_SUCCESS)
		return fake_leave(&call, status);
	g = calloc(1, sizeof(struct CUgraphExec_st));
	if (!g)
		abort();
	fake_object_add(g, FAKE_EXEC, fake_current());
	graph_init(g);
	g->nbranches = graph->graph.nbranches;
	for (int i = 0; i < g->nbranches; i++) {
		g->length[i] = graph->graph.length[i];
		for (fake_op_t *op = graph->graph.first[i]; op; op = op->next) {
			*g->last[i] = fake_op_clone(op);
			g->last[i] = &(*g->last[i])->next;
		}
	}
	*out = (CUgraphExec)(void *)g;
	return fake_leave(&call, CUDA_SUCCESS);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	fake_entry_t call = { .name = "cuGraphLaunch", .has_stream = true, .stream = stream };
	CUresult status = fake_enter(&call, FAKE_CURRENT | FAKE_CAN_FAIL);
	fake_op_t *op;

	if (status == CUDA_SUCCESS)
		status = fake_live(exec, FAKE_EXEC, call.name);
	if (status == CUDA_SUCCESS) {
		op = fake_op_new(FAKE_GRAPH, call.name, 0);
		op->u.graph = exec;
		status = fake_put(stream, op);
	}
	return fake_leave(&call, status);
}

CUresult cuGraphDestroy(CUgraph graph)
{
	fake_entry_t call = { .name = "cuGraphDestroy" };
	CUresult status = fake_enter(&call, FAKE_INIT);

	if (status == CUDA_SUCCESS)
		status = fake_live(graph, FAKE_GRAPH_OBJECT, call.name);
	if (status == CUDA_SUCCESS)
		fake_graph_free(&graph->graph);
	return fake_leave(&call, status);
}

/* Launches under way go on with the driver; here they are waited for, as nothing can tell. */
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	fake_entry_t call = { .name = "cuGraphExecDestroy" };
	CUresult status = fake_enter(&call, FAKE_INIT);
	long host_syncs = fake.host_syncs;

	if (status == CUDA_SUCCESS)
		status = fake_live(exec, FAKE_EXEC, call.name);
	if (status == CUDA_SUCCESS) {
		fake_wait_context(exec->graph.object.ctx);
		fake.host_syncs = host_syncs;
		fake_graph_free(&exec->graph);
	}
	return fake_leave(&call, status);
}

/* ---- running one --------------------------------------------------------------------------- */
typedef struct run {
	fake_lane_t *lane[FAKE_MAX_SLOTS];
	fake_op_t *next[FAKE_MAX_SLOTS];
	int done[FAKE_MAX_SLOTS];
	fake_clock_t *clocks[FAKE_MAX_SLOTS]; /* of a branch, after each of its operations */
} run_t;

static void run_begin(run_t *r, fake_lane_t *lane, const fake_graph_t *g)
{
	for (int i = 0; i < g->nbranches; i++) {
		r->lane[i] = lane;
		r->next[i] = g->first[i];
		r->clocks[i] = calloc((size_t)g->length[i] + 1, sizeof(*r->clocks[i]));
		if (i)
			r->lane[i] = calloc(1, sizeof(*lane));
		if (!r->clocks[i] || !r->lane[i])
			abort();
		if (!i)
			continue;
		*r->lane[i] = *lane;
		fake_lock();
		r->lane[i]->slot = fake_slot_take();
		fake_unlock();
	}
}

static void run_end(run_t *r, const fake_graph_t *g)
{
	for (int i = 0; i < g->nbranches; i++) {
		free(r->clocks[i]);
		if (!i)
			continue;
		fake_lock();
		fake_slot_release(r->lane[i]->slot);
		fake_unlock();
		free(r->lane[i]);
	}
}

static bool can_go_on(const run_t *r, int i)
{
	const fake_op_t *op = r->next[i];

	return op && (op->kind != FAKE_WAIT || r->done[op->u.event.branch] > op->u.event.index);
}

static void step(CUcontext ctx, run_t *r, int i)
{
	fake_op_t *op = r->next[i];

	if (op->kind == FAKE_WAIT)
		fake_clock_join(&r->lane[i]->clock,
				&r->clocks[op->u.event.branch][op->u.event.index]);
	else if (op->kind != FAKE_RECORD)
		fake_run(ctx, r->lane[i], op);
	r->clocks[i][r->done[i]++] = r->lane[i]->clock;
	r->next[i] = op->next;
}

void fake_run_graph(CUcontext ctx, fake_lane_t *lane, CUgraphExec exec)
{
	const fake_graph_t *g = &exec->graph;
	uint32_t random = fake.seed + exec->graph.object.number;
	int left = 0;
	run_t r = { 0 };

	for (int i = 0; i < g->nbranches; i++)
		left += g->length[i];
	run_begin(&r, lane, g);
	while (left > 0) {
		int i = (int)(fake_random(&random) % (uint32_t)g->nbranches);

		if (!can_go_on(&r, i))
			continue;
		step(ctx, &r, i);
		left--;
	}
	run_end(&r, g);
}
