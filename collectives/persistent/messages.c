/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages of an all-to-all or a send-recv: one table, the same on all ranks, built from the
 * description. A rank stores the messages that it sends and receives as extents for each peer.
 * Called by check.c, which verifies the table, and coll.c.
 */
#include <stdlib.h>
#include <string.h>

#include "collectives/collective.h"

static srt_status_t fail_too_large(const srt_comm_t *comm, int from, int to)
{
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"the message from rank %d to rank %d is too large", comm->world_rank[from],
			comm->world_rank[to]);
}

/* The messages of an all-to-all. A sender's messages follow each other in its full by receiver; a
 * receiver's follow each other in its shard by sender. */
static srt_status_t split_messages(const srt_comm_t *comm, const srt_coll_desc_t *desc,
				   srt_coll_message_t *all)
{
	size_t n = (size_t)comm->size;

	for (int from = 0; from < comm->size; from++) {
		size_t full = 0;

		for (int to = 0; to < comm->size; to++) {
			size_t i = (size_t)from * n + (size_t)to;
			const srt_coll_message_t *above = from > 0 ? &all[i - n] : NULL;

			all[i] = (srt_coll_message_t){
				.from = from,
				.to = to,
				.full_offset = full,
				.nelem = desc->splits != NULL ? desc->splits[i] : desc->split,
			};
			if (above != NULL &&
			    !srt_add_size(above->shard_offset, above->nelem, &all[i].shard_offset))
				return fail_too_large(comm, from, to);
			if (!srt_add_size(full, all[i].nelem, &full))
				return fail_too_large(comm, from, to);
		}
	}
	return SRT_OK;
}

static srt_status_t check_ranks(const srt_comm_t *comm, const srt_coll_message_t *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const srt_coll_message_t *m = &all[i];

		if (m->from < 0 || m->from >= comm->size || m->to < 0 || m->to >= comm->size)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"message %zu is from rank %d to rank %d, and communicator "
					"\"%s\" has ranks 0 to %d",
					i, m->from, m->to, comm->name, comm->size - 1);
	}
	return SRT_OK;
}

srt_status_t srt_coll_messages(const srt_comm_t *comm, const srt_coll_desc_t *desc,
			       srt_coll_message_t **out, size_t *nout)
{
	bool split = desc->kind == SRT_COLL_ALL_TO_ALL;
	size_t n = split ? (size_t)comm->size * (size_t)comm->size : desc->nmessages;
	srt_coll_message_t *all;
	srt_status_t status = SRT_OK;

	if (!split && n > 0 && desc->messages == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "the table of messages is NULL");
	all = srt_calloc(n + 1, sizeof(*all), "a collective's messages");
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (split)
		status = split_messages(comm, desc, all);
	else if (n > 0)
		memcpy(all, desc->messages, n * sizeof(*all));
	if (status == SRT_OK)
		status = check_ranks(comm, all, n);
	if (status != SRT_OK) {
		free(all);
		return status;
	}
	*out = all;
	*nout = n;
	return SRT_OK;
}

/* ---- the messages of this rank ------------------------------------------------------------- */

/* The extents that a message belongs to, as sent (out) or received; NULL: it is not this rank's. */
static srt_extents_t *find_extents(srt_coll_t *coll, const srt_coll_message_t *m, bool out)
{
	int me = coll->comm->rank;

	if (out)
		return m->from == me ? &coll->out[m->to] : NULL;
	return m->to == me ? &coll->in[m->from] : NULL;
}

/* Sets most_pair. */
static srt_status_t measure_pairs(srt_coll_t *coll, const srt_coll_message_t *all, size_t n)
{
	size_t size = (size_t)coll->comm->size;
	size_t *bytes = srt_calloc(size * size, sizeof(*bytes), "a collective's messages");

	if (bytes == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++) {
		size_t *pair = &bytes[(size_t)all[i].from * size + (size_t)all[i].to];

		*pair += all[i].nelem * coll->elem_nbytes;
		if (*pair > coll->most_pair)
			coll->most_pair = *pair;
	}
	free(bytes);
	return SRT_OK;
}

/* Sender and receiver have the same extents in the same order: that of the table. */
static void fill_extents(srt_coll_t *coll, const srt_coll_message_t *mine, size_t n, bool out,
			 srt_extent_t *free)
{
	for (int peer = 0; peer < coll->comm->size; peer++) {
		srt_extents_t *extents = out ? &coll->out[peer] : &coll->in[peer];
		srt_extent_t *last = NULL;

		extents->extents = free;
		for (size_t i = 0; i < n; i++) {
			const srt_extent_t next = {
				.full_offset = mine[i].full_offset * coll->elem_nbytes,
				.shard_offset = mine[i].shard_offset * coll->elem_nbytes,
				.nbytes = mine[i].nelem * coll->elem_nbytes,
			};

			if (next.nbytes > 0 && find_extents(coll, &mine[i], out) == extents)
				last = srt_extents_append(extents, last, free + extents->nextents,
							  &next);
		}
		free += extents->nextents;
	}
}

srt_status_t srt_coll_store_messages(srt_coll_t *coll, const srt_coll_desc_t *desc)
{
	size_t size = (size_t)coll->comm->size, n, nmine = 0;
	srt_coll_message_t *all;
	srt_status_t status;

	SRT_TRY(srt_coll_messages(coll->comm, desc, &all, &n));
	status = measure_pairs(coll, all, n);
	for (size_t i = 0; i < n; i++) {
		if (all[i].from == coll->comm->rank || all[i].to == coll->comm->rank)
			all[nmine++] = all[i];
	}
	if (status == SRT_OK) {
		/* A message of this rank to itself is counted in both directions. */
		coll->out = srt_calloc(1,
				       2 * size * sizeof(*coll->out) +
					       2 * (nmine + 1) * sizeof(srt_extent_t),
				       "a collective's messages");
		status = coll->out != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	}
	if (status == SRT_OK) {
		srt_extent_t *extents = (srt_extent_t *)(void *)(coll->out + 2 * size);
		size_t sent = 0;

		coll->in = coll->out + size;
		fill_extents(coll, all, nmine, true, extents);
		for (size_t r = 0; r < size; r++)
			sent += coll->out[r].nextents;
		fill_extents(coll, all, nmine, false, extents + sent);
	}
	free(all);
	return status;
}
