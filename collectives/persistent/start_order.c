/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verifies that all ranks start the same collectives in the same order. Each rank writes its starts
 * to a log, which is shared (shm/control.h), or with ucx is told to the ranks that it waits for. A
 * rank compares the log while it waits, or when it announces a start.
 */
#include <stdio.h>

#include "collectives/collective.h"

static _Atomic uint64_t *entry_of(const srt_comm_t *comm, int rank, uint32_t start)
{
	return &comm->start_log[(size_t)rank * SRT_START_LOG_LENGTH + start % SRT_START_LOG_LENGTH];
}

void srt_start_log_write(const srt_comm_t *comm, int rank, uint32_t start, uint32_t coll)
{
	atomic_store_explicit(entry_of(comm, rank, start), (uint64_t)start << 32 | coll,
			      memory_order_release);
}

bool srt_start_log_read(const srt_comm_t *comm, int rank, uint32_t start, uint32_t *coll)
{
	uint64_t entry = atomic_load_explicit(entry_of(comm, rank, start), memory_order_acquire);

	*coll = (uint32_t)entry;
	return entry >> 32 == start;
}

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
		if (!srt_start_log_read(comm, r, number, &id))
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
