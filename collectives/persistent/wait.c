/* SPDX-License-Identifier: BSD-3-Clause */
/* The checks of a wait for other ranks: see wait.h. */
#include "collectives/persistent/wait.h"

#include <stdio.h>
#include <string.h>

#define SLICE_S 0.01
/* With ucx a wait tells other ranks what it waits in: when first, and how often again. */
#define TELL_S 0.05
#define TELL_AGAIN_S 1.0

void srt_late_ranks_add(srt_late_ranks_t *late, int world_rank)
{
	const size_t n = strlen(late->list);

	if (n + 8 < sizeof(late->list))
		snprintf(late->list + n, sizeof(late->list) - n, "%s%d", late->n > 0 ? ", " : "",
			 world_rank);
	late->n++;
}

void srt_wait_begin(srt_wait_checks_t *checks, const srt_coll_start_t *start,
		    srt_wait_late_fn *late, const void *arg, const char *verb)
{
	*checks = (srt_wait_checks_t){
		.start = start,
		.late = late,
		.arg = arg,
		.verb = verb,
		.since = srt_awake_s(),
		.tell_at_s = TELL_S,
	};
	snprintf(checks->what, sizeof(checks->what), "%s of \"%s\"", start->coll->algorithm->name,
		 start->coll->name);
}

/* The collective is being destroyed. */
static void poison_destroyed(const srt_wait_checks_t *checks)
{
	const srt_coll_t *coll = checks->start->coll;
	srt_late_ranks_t late = { 0 };

	checks->late(checks->arg, &late);
	srt_comm_poison(coll->comm, SRT_ERR_ABORTED, true, "%s while %s waited for rank%s %s",
			coll->closing_text, checks->what, late.n == 1 ? "" : "s",
			late.n > 0 ? late.list : "?");
}

/* The deadline has passed. */
static void poison_late(const srt_wait_checks_t *checks, double waited_s)
{
	srt_comm_t *comm = checks->start->coll->comm;
	const char *in_stage = "";
	char stopped[160];
	srt_late_ranks_t late = { 0 };

	checks->late(checks->arg, &late);
	/* The rank may be in an earlier stage, where this rank had not to wait. */
	if (comm->parent != NULL)
		in_stage = ", or waits in it for other ranks";
	srt_wait_list_stopped(comm, stopped, sizeof(stopped));
	srt_comm_poison(
		comm, SRT_ERR_TIMEOUT, true,
		"%s: rank %d gave up after %.3g s (SHARDRT_TIMEOUT): rank%s %s did not %s it%s%s",
		checks->what, comm->world_rank[comm->rank], waited_s, late.n == 1 ? "" : "s",
		late.n > 0 ? late.list : "?", checks->verb, in_stage, stopped);
}

srt_status_t srt_wait_fail(const srt_coll_start_t *start, double since)
{
	double waited_s = since > 0 ? srt_awake_s() - since : 0;

	return srt_comm_fail(start->coll->comm, waited_s, "%s of \"%s\"",
			     start->coll->algorithm->name, start->coll->name);
}

/* The start that this rank has announced to the others: a stage's is that of the whole. */
static const srt_coll_start_t *announced(const srt_coll_start_t *start)
{
	return start->whole != NULL ? start->whole : start;
}

/* Tells other ranks what this rank waits in, if they do not see it in shared memory. */
static void tell(srt_wait_checks_t *checks, double waited_s)
{
	const srt_coll_start_t *start = announced(checks->start);
	const srt_comm_t *part = checks->start->whole != NULL ? checks->start->coll->comm : NULL;
	const srt_transport_t *transport = start->coll->comm->transport;

	if (transport->tell == NULL || waited_s < checks->tell_at_s)
		return;
	checks->tell_at_s = waited_s + TELL_AGAIN_S;
	transport->tell(start, part);
}

srt_status_t srt_wait_check(srt_wait_checks_t *checks, double *slice_s)
{
	const srt_coll_start_t *start = checks->start;
	srt_comm_t *comm = start->coll->comm;
	const double timeout_s = comm->bootstrap->timeout_s;
	double waited_s;

	if (srt_comm_poisoned(comm))
		return srt_wait_fail(start, checks->since);
	waited_s = srt_awake_s() - checks->since;
	tell(checks, waited_s);
	(void)srt_start_order_differs(announced(start));
	if (checks->closing_since == 0 && atomic_load(&start->coll->is_closing))
		checks->closing_since = srt_awake_s();
	if (checks->closing_since > 0 &&
	    srt_awake_s() - checks->closing_since >= comm->bootstrap->close_s)
		poison_destroyed(checks);
	if (!checks->warned && waited_s >= srt_wait_warn_s(comm)) {
		checks->warned = true;
		srt_wait_warn(comm, checks->what, waited_s);
	}
	if (waited_s >= timeout_s)
		poison_late(checks, waited_s);
	if (srt_comm_poisoned(comm))
		return srt_wait_fail(start, checks->since);
	/* Again each time: another stream's wait may have replaced it. */
	srt_wait_publish(comm, checks->what);
	*slice_s = timeout_s - waited_s < SLICE_S ? timeout_s - waited_s : SLICE_S;
	return SRT_OK;
}
