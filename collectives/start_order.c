/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verifies that all ranks start the same collectives in the same order. Each rank writes its starts
 * to a shared log (shm/control.h), or with ucx tells them to the ranks that it waits for. A rank
 * compares the log while it waits, or when it announces a start.
 */
#include <stdio.h>

#include "collectives/collective.h"

/* Describes the collective with that number: "all-gather of \"block3\"". */
static void describe_coll(srt_comm_t *comm, uint32_t id, char *text, size_t n)
{
	pthread_mutex_lock(&comm->bootstrap->mutex);
	snprintf(text, n, "a collective that is destroyed here (number %u)", (unsigned)id);
	for (srt_coll_t *c = comm->colls; c != NULL; c = c->next) {
		if (c->id == id)
			snprintf(text, n, "%s of \"%s\"", c->algorithm->name, c->name);
	}
	pthread_mutex_unlock(&comm->bootstrap->mutex);
}

static bool read_log(const srt_comm_t *comm, int rank, uint32_t number, uint32_t *id)
{
	return comm->transport->logged == NULL ? srt_shm_logged(comm, rank, number, id) :
						 comm->transport->logged(comm, rank, number, id);
}

/*
 * Compares the first rank that has a log entry with the first rank that differs. Which ranks these
 * are depends on the time of the call, so all ranks report the message that was stored first, with
 * ucx that of rank 0. The communicator is poisoned once that message is complete.
 */
bool srt_start_order_compare(srt_comm_t *comm, uint32_t number)
{
	uint32_t first_id = 0, id;
	int first = -1;
	char a[160], b[160], text[SRT_CONTROL_TEXT] = "";

	for (int r = 0; r < comm->size; r++) {
		if (!read_log(comm, r, number, &id))
			continue;
		if (first < 0) {
			first = r;
			first_id = id;
		} else if (id != first_id) {
			describe_coll(comm, first_id, a, sizeof(a));
			describe_coll(comm, id, b, sizeof(b));
			snprintf(text, sizeof(text),
				 "rank %d started %s, rank %d started %s (start %u on "
				 "communicator \"%s\"); all ranks must start the same ones "
				 "in the same order",
				 comm->world_rank[first], a, comm->world_rank[r], b,
				 (unsigned)number, comm->name);
			if (comm->transport->may_report == NULL ?
				    srt_shm_set_mismatch(comm, text) :
				    comm->transport->may_report(comm, number, first, r))
				srt_comm_poison(comm, SRT_ERR_MISMATCH, true, "%s", text);
			return true;
		}
	}
	return false;
}

bool srt_start_order_differs(const srt_coll_start_t *start)
{
	srt_comm_t *comm = start->coll->comm;

	return comm->transport->compare == NULL ? srt_start_order_compare(comm, start->number) :
						  comm->transport->compare(comm, start->number);
}
