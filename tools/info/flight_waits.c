/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ranks wait for which: the waits that the files have, and starts in progress that other
 * ranks did not reach (NCCL waits on the device, which records no wait). They are the edges of a
 * graph of ranks, in which cycles are looked for.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/info/flight_report.h"

/* A rank in a wait. */
typedef struct waiter {
	int rank;
	const char *comm_id, *comm;
	const flight_file_t *file;
	const flight_wait_t *wait;
} waiter_t;

typedef struct edge {
	int from, to;
} edge_t;

typedef struct graph {
	waiter_t *waiters;
	size_t nwaiters;
	flight_wait_t *implied; /* [nfiles]: of starts in progress without a wait */
	size_t nimplied;
	edge_t *edges; /* by `from` */
	size_t nedges;
	size_t *first; /* [world + 1] edge of each rank */
	bool *awaited; /* [world] */
} graph_t;

/* ---- collecting ----------------------------------------------------------------------------- */

static bool has_waits(const flight_file_t *file)
{
	for (size_t c = 0; c < file->ncomms; c++) {
		if (file->comms[c].nwaits > 0)
			return true;
	}
	return false;
}

static const flight_call_t *oldest_running(const flight_comm_t *comm)
{
	for (size_t i = 0; i < comm->ncalls; i++) {
		if (comm->calls[i].running && !comm->calls[i].exchange)
			return &comm->calls[i];
	}
	return NULL;
}

/* The ranks that did not reach a start of the member, as a wait. False: all with a file did. */
static bool imply_wait(const flight_job_t *job, size_t member, flight_wait_t *wait)
{
	const flight_member_t *m = &job->members[member];
	const flight_call_t *call = oldest_running(m->comm);
	size_t i = member;

	if (call == NULL)
		return false;
	*wait = (flight_wait_t){ .number = call->number,
				 .kind = call->kind,
				 .name = call->name,
				 .since_us = call->began_us };
	while (i > 0 && strcmp(job->members[i - 1].comm->id.text, m->comm->id.text) == 0)
		i--;
	for (; i < job->nmembers; i++) {
		const flight_member_t *other = &job->members[i];
		const flight_call_t *last;

		if (strcmp(other->comm->id.text, m->comm->id.text) != 0)
			break;
		last = flight_last_start(other, false);
		if (last != NULL && !flight_is_before(last->number, call->number))
			continue;
		if (wait->nlisted < FLIGHT_NRANKS)
			wait->ranks[wait->nlisted++] = other->file->rank;
		wait->nranks++;
	}
	return wait->nranks > 0;
}

static void collect_waiters(const flight_job_t *job, graph_t *g)
{
	for (size_t i = 0; i < job->nmembers; i++) {
		const flight_member_t *m = &job->members[i];
		flight_wait_t *implied = &g->implied[g->nimplied];
		waiter_t waiter = { m->file->rank, m->comm->id.text, m->comm->name.text, m->file,
				    implied };

		for (size_t w = 0; w < m->comm->nwaits; w++) {
			waiter.wait = &m->comm->waits[w];
			g->waiters[g->nwaiters++] = waiter;
		}
		if (!has_waits(m->file) && imply_wait(job, i, implied)) {
			g->waiters[g->nwaiters++] = waiter;
			g->nimplied++;
		}
	}
}

static int compare_ints(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

/* Whether the sentence is the same, but for the rank that waits. */
static int compare_waits(const waiter_t *x, const waiter_t *y)
{
	const flight_wait_t *a = x->wait, *b = y->wait;
	int c = strcmp(x->comm_id, y->comm_id);

	c = c != 0 ? c : compare_ints(a->exchange, b->exchange);
	c = c != 0 ? c : compare_ints(a->number, b->number);
	c = c != 0 ? c : compare_ints((int)a->why, (int)b->why);
	c = c != 0 ? c : strcmp(a->kind.text, b->kind.text);
	c = c != 0 ? c : strcmp(a->name.text, b->name.text);
	c = c != 0 ? c : compare_ints(a->nranks, b->nranks);
	c = c != 0 ? c : compare_ints(a->nlisted, b->nlisted);
	for (int r = 0; r < a->nlisted && c == 0; r++)
		c = compare_ints(a->ranks[r], b->ranks[r]);
	return c;
}

static int compare_waiters(const void *a, const void *b)
{
	const waiter_t *x = a, *y = b;
	const int c = compare_waits(x, y);

	return c != 0 ? c : compare_ints(x->rank, y->rank);
}

static int compare_edges(const void *a, const void *b)
{
	const edge_t *x = a, *y = b;
	const int c = compare_ints(x->from, y->from);

	return c != 0 ? c : compare_ints(x->to, y->to);
}

static void collect_edges(const flight_job_t *job, graph_t *g)
{
	for (size_t i = 0; i < g->nwaiters; i++) {
		const waiter_t *w = &g->waiters[i];

		for (int r = 0; w->wait->why != FLIGHT_FOR_ITSELF && r < w->wait->nlisted; r++) {
			g->edges[g->nedges++] = (edge_t){ w->rank, w->wait->ranks[r] };
			g->awaited[w->wait->ranks[r]] = true;
		}
	}
	if (g->nedges > 0)
		qsort(g->edges, g->nedges, sizeof(*g->edges), compare_edges);
	for (size_t e = 0; e < g->nedges; e++)
		g->first[g->edges[e].from + 1] = e + 1;
	for (int r = 0; r < job->world; r++) {
		if (g->first[r + 1] < g->first[r])
			g->first[r + 1] = g->first[r];
	}
}

/* ---- printing ------------------------------------------------------------------------------- */

/* "all-gather of "block3" (start 17 of "world")". */
static void describe_call(char *text, size_t nbytes, const waiter_t *w)
{
	const flight_wait_t *wait = w->wait;

	if (wait->exchange)
		snprintf(text, nbytes, "'%s' (exchange %" PRIu32 " of \"%s\")", wait->name.text,
			 wait->number, w->comm);
	else
		snprintf(text, nbytes, "%s of \"%s\" (start %" PRIu32 " of \"%s\")",
			 wait->kind.text, wait->name.text, wait->number, w->comm);
}

/* The ranks that make the same wait: first to before last. */
static void print_wait(const flight_job_t *job, const waiter_t *first, const waiter_t *last)
{
	const flight_wait_t *wait = first->wait;
	char who[256] = "", whom[256] = "", call[320];
	int64_t longest_us = 0;
	size_t n = 0;

	for (const waiter_t *w = first; w < last; w++) {
		const int64_t us = w->file->monotonic_us - w->wait->since_us;

		if (n == 0 || job->list[n - 1] != w->rank)
			job->list[n++] = w->rank;
		longest_us = us > longest_us ? us : longest_us;
	}
	flight_list_ranks(job->list, n, who, sizeof(who));
	flight_list_ranks(wait->ranks, (size_t)wait->nlisted, whom, sizeof(whom));
	describe_call(call, sizeof(call), first);
	fprintf(job->out, "  %s wait%s in %s ", who, n == 1 ? "s" : "", call);
	if (wait->why == FLIGHT_FOR_ITSELF)
		fprintf(job->out, "for an earlier start on another stream of the same rank");
	else
		fprintf(job->out, "%s %s",
			wait->why == FLIGHT_FOR_READERS ? "until it was read by" : "for", whom);
	if (wait->nranks > wait->nlisted)
		fprintf(job->out, " and %" PRId64 " more", wait->nranks - wait->nlisted);
	fprintf(job->out, ", for %.1f s\n", (double)longest_us * 1e-6);
}

static void print_waits(const flight_job_t *job, const graph_t *g)
{
	for (size_t i = 0; i < g->nwaiters;) {
		size_t k = i;

		while (k < g->nwaiters && compare_waits(&g->waiters[i], &g->waiters[k]) == 0)
			k++;
		print_wait(job, &g->waiters[i], &g->waiters[k]);
		i = k;
	}
}

/* The ranks that others wait for, and that wait for none. */
static void print_culprits(const flight_job_t *job, const graph_t *g)
{
	for (int with_file = 0; with_file < 2; with_file++) {
		char list[256] = "";
		size_t n = 0;

		for (int r = 0; r < job->world; r++) {
			const bool has_file = job->by_rank[r] != NULL;

			if (g->awaited[r] && has_file == (with_file == 1) &&
			    g->first[r] == g->first[r + 1])
				job->list[n++] = r;
		}
		if (n == 0)
			continue;
		flight_list_ranks(job->list, n, list, sizeof(list));
		if (with_file)
			fprintf(job->out,
				"  %s wait%s for no other rank: computing, stopped, or hanging in "
				"the program's own code\n",
				list, n == 1 ? "s" : "");
		else
			fprintf(job->out, "  %s: no file\n", list);
	}
}

static void print_cycle(const flight_job_t *job, const int *ranks, size_t n)
{
	fprintf(job->out, "  cycle: rank %d", ranks[0]);
	for (size_t i = 1; i <= n; i++)
		fprintf(job->out, " waits for rank %d%s", ranks[i % n], i < n ? ", which" : "\n");
}

/* Depth first. A rank is on the path while its state is ON_PATH; each rank is left once. Prints one
 * cycle for each edge back to the path, but each rank in one cycle only. */
static int print_cycles(const flight_job_t *job, const graph_t *g)
{
	enum { NEW, ON_PATH, DONE };
	const size_t world = (size_t)job->world;
	unsigned char *state = calloc(world, 1);
	bool *in_cycle = calloc(world, sizeof(*in_cycle));
	size_t *next = malloc(world * sizeof(*next));
	int *path = malloc(world * sizeof(*path));
	const bool has_memory = state != NULL && in_cycle != NULL && next != NULL && path != NULL;

	for (size_t root = 0; has_memory && root < world; root++) {
		size_t n = 0;

		if (state[root] != NEW)
			continue;
		path[n++] = (int)root;
		state[root] = ON_PATH;
		next[root] = g->first[root];
		while (n > 0) {
			const int rank = path[n - 1];
			int to;

			if (next[rank] == g->first[rank + 1]) {
				state[rank] = DONE;
				n--;
				continue;
			}
			to = g->edges[next[rank]++].to;
			if (state[to] == NEW) {
				path[n++] = to;
				state[to] = ON_PATH;
				next[to] = g->first[to];
			} else if (state[to] == ON_PATH && !in_cycle[rank]) {
				size_t from = n - 1;

				while (path[from] != to)
					from--;
				print_cycle(job, path + from, n - from);
				for (; from < n; from++)
					in_cycle[path[from]] = true;
			}
		}
	}
	free(path);
	free(next);
	free(in_cycle);
	free(state);
	return has_memory ? 0 : -1;
}

int flight_report_waits(flight_job_t *job)
{
	graph_t g = { .waiters = NULL };
	size_t nwaits = job->nmembers;
	int status = -1;

	for (size_t i = 0; i < job->nmembers; i++)
		nwaits += job->members[i].comm->nwaits;
	g.waiters = calloc(nwaits + 1, sizeof(*g.waiters));
	g.implied = calloc(job->nmembers + 1, sizeof(*g.implied));
	g.edges = calloc(nwaits * FLIGHT_NRANKS + 1, sizeof(*g.edges));
	g.first = calloc((size_t)job->world + 1, sizeof(*g.first));
	g.awaited = calloc((size_t)job->world, sizeof(*g.awaited));
	if (g.waiters != NULL && g.implied != NULL && g.edges != NULL && g.first != NULL &&
	    g.awaited != NULL) {
		collect_waiters(job, &g);
		if (g.nwaiters > 0)
			qsort(g.waiters, g.nwaiters, sizeof(*g.waiters), compare_waiters);
		collect_edges(job, &g);
		fprintf(job->out, "waits\n");
		if (g.nwaiters == 0)
			fprintf(job->out, "  no rank waits for another one\n");
		print_waits(job, &g);
		print_culprits(job, &g);
		status = print_cycles(job, &g);
	}
	free(g.awaited);
	free(g.first);
	free(g.edges);
	free(g.implied);
	free(g.waiters);
	return status;
}
