/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Persistent collectives: made once, compared on all ranks, started often (start.c). The records of
 * starts are a ring in the object.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collective.h"

/* Host functions of all starts of a collective that are kept ready, at most; and rounds of one. */
#define MAX_POINTS 4096u
#define MAX_ROUNDS 1000000

const srt_coll_algorithm_t *srt_coll_algorithm(srt_coll_kind_t kind)
{
	static const srt_coll_algorithm_t *const table[] = {
		[SRT_COLL_ALL_GATHER] = &srt_coll_all_gather,
		[SRT_COLL_REDUCE_SCATTER] = &srt_coll_reduce_scatter,
		[SRT_COLL_ALL_REDUCE] = &srt_coll_all_reduce,
		[SRT_COLL_BROADCAST] = &srt_coll_broadcast,
		[SRT_COLL_BARRIER] = &srt_coll_barrier,
		[SRT_COLL_ALL_TO_ALL] = &srt_coll_all_to_all,
		[SRT_COLL_SEND_RECV] = &srt_coll_send_recv,
	};

	return (size_t)kind < SRT_ARRAY_LEN(table) ? table[kind] : NULL;
}

/* ---- making --------------------------------------------------------------------------- */

srt_run_t *srt_runs_add(srt_runs_t *runs, srt_run_t *last, srt_run_t *free, const srt_run_t *next)
{
	size_t full_end = next->full_offset + next->nbytes;
	size_t shard_end = next->shard_offset + next->nbytes;
	bool first = runs->nruns == 0;

	if (first || next->full_offset < runs->full_begin)
		runs->full_begin = next->full_offset;
	if (first || next->shard_offset < runs->shard_begin)
		runs->shard_begin = next->shard_offset;
	if (full_end > runs->full_end)
		runs->full_end = full_end;
	if (shard_end > runs->shard_end)
		runs->shard_end = shard_end;
	runs->nbytes += next->nbytes;
	if (!first && last->full_offset + last->nbytes == next->full_offset &&
	    last->shard_offset + last->nbytes == next->shard_offset) {
		last->nbytes += next->nbytes;
		return last;
	}
	*free = *next;
	runs->nruns++;
	return free;
}

/* Copies the owners' tables as byte runs; empty segments vanish. */
static srt_status_t copy_owners(srt_coll_t *coll, const srt_coll_desc_t *desc)
{
	size_t size = (size_t)coll->comm->size, total = 0;
	bool has_owners = !coll->algorithm->has_pairs && desc->owners != NULL;
	srt_run_t *run;

	for (size_t r = 0; r < size && has_owners; r++)
		total += desc->owners[r].nsegments;
	coll->owner = srt_calloc(1, size * sizeof(*coll->owner) + total * sizeof(*run),
				 "a collective's segments");
	if (coll->owner == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	run = (srt_run_t *)(void *)(coll->owner + size);
	for (size_t r = 0; r < size && total > 0; r++) {
		srt_runs_t *runs = &coll->owner[r];
		srt_run_t *last = NULL;

		runs->runs = run;
		if (coll->algorithm->has_root && (int)r != coll->root)
			continue;
		for (size_t i = 0; i < desc->owners[r].nsegments; i++) {
			const srt_coll_segment_t *s = &desc->owners[r].segments[i];
			srt_run_t next = {
				.full_offset = s->full_offset * coll->elem_nbytes,
				.shard_offset = s->shard_offset * coll->elem_nbytes,
				.nbytes = s->nelem * coll->elem_nbytes,
			};

			if (next.nbytes > 0)
				last = srt_runs_add(runs, last, run + runs->nruns, &next);
		}
		run += runs->nruns;
	}
	return SRT_OK;
}

static srt_status_t alloc_scratch(srt_coll_t *coll)
{
	size_t nbytes = srt_step_reduce_scratch(coll->comm->size);

	if (!coll->algorithm->reduces || nbytes == 0 || !srt_coll_owns(coll, coll->comm->rank))
		return SRT_OK;
	return srt_buffer_create(coll->comm->device, SRT_MEM_DEVICE, nbytes,
				 "partial sums over ranks", &coll->scratch);
}

/* The object without what the other ranks have to do with. */
static srt_status_t coll_new(srt_comm_t *comm, const srt_coll_desc_t *desc, srt_coll_t **out)
{
	size_t n = (size_t)comm->size;
	srt_coll_t *coll = srt_calloc(1, sizeof(*coll), "a collective");

	if (coll == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	coll->comm = comm;
	coll->algorithm = srt_coll_algorithm(desc->kind);
	/* What moves nothing from rank to rank needs no more than words. */
	coll->transport = comm->size > 1 && coll->algorithm->has_buffers ? comm->transport :
									   &srt_transport_zero_copy;
	coll->kind = desc->kind;
	coll->id = comm->ncolls;
	coll->dtype = desc->dtype;
	coll->elem_nbytes = srt_dtype_bits(desc->dtype) / 8;
	coll->root = desc->root;
	coll->full = desc->full;
	coll->shard = desc->shard;
	coll->name = srt_strdup(desc->name);
	coll->imports = srt_calloc(n, sizeof(*coll->imports), "a collective");
	coll->source = srt_calloc(n, sizeof(*coll->source), "a collective");
	if (coll->name == NULL || coll->imports == NULL || coll->source == NULL ||
	    copy_owners(coll, desc) != SRT_OK ||
	    (coll->algorithm->has_pairs && srt_coll_keep_messages(coll, desc) != SRT_OK)) {
		srt_coll_destroy(coll);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	coll->source[comm->rank] =
		coll->algorithm->source == SRT_SOURCE_SHARD ? coll->shard : coll->full;
	*out = coll;
	return SRT_OK;
}

/* Rounds that move the largest owner's bytes; at least one, in which the ranks meet. */
static srt_status_t plan_rounds(srt_coll_t *coll)
{
	const srt_coll_algorithm_t *a = coll->algorithm;
	size_t most = coll->most_pair, nrounds = 0;

	for (int r = 0; r < coll->comm->size; r++) {
		if (coll->owner[r].nbytes > most)
			most = coll->owner[r].nbytes;
	}
	for (int f = 0; f < a->nflows; f++) {
		size_t each = coll->transport->round_nbytes(coll, a->flows[f]);

		nrounds += most > each ? most / each + (most % each != 0) : 1;
		if (nrounds > MAX_ROUNDS)
			return srt_fail(SRT_ERR_UNSUPPORTED,
					"%zu bytes in pieces of %zu are more than %d rounds; raise "
					"SHARDRT_STAGING_BYTES",
					most, each, MAX_ROUNDS);
		coll->flow_begin[f + 1] = (uint32_t)nrounds;
	}
	coll->nrounds = (uint32_t)nrounds;
	return SRT_OK;
}

/* The ring of starts. */
static srt_status_t alloc_starts(srt_coll_t *coll)
{
	uint32_t nstarts;

	SRT_TRY(plan_rounds(coll));
	/* Two for a round, two more to begin each flow. */
	coll->npoints = 2 * coll->nrounds + 2 * SRT_MAX_FLOWS;
	nstarts = MAX_POINTS / coll->npoints;
	coll->nstarts = nstarts > SRT_COLL_NSTARTS    ? SRT_COLL_NSTARTS :
			nstarts < SRT_COLL_MIN_STARTS ? SRT_COLL_MIN_STARTS :
							nstarts;
	coll->starts = srt_calloc(coll->nstarts, sizeof(*coll->starts), "a collective");
	coll->points = srt_calloc((size_t)coll->nstarts * coll->npoints, sizeof(*coll->points),
				  "a collective");
	if (coll->starts == NULL || coll->points == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < coll->nstarts; i++) {
		coll->starts[i].coll = coll;
		coll->starts[i].points = coll->points + (size_t)i * coll->npoints;
	}
	return SRT_OK;
}

/* The part that all ranks do together, after their descriptions agree. */
static srt_status_t connect(srt_coll_t *coll, const uint64_t *told)
{
	srt_comm_t *comm = coll->comm;
	srt_status_t status;
	char what[192];

	snprintf(what, sizeof(what), "making %s of \"%s\"", coll->algorithm->name, coll->name);
	if (comm->size > 1) {
		SRT_TRY(srt_shm_take_words(comm, what, &coll->memory, &coll->words));
		if (coll->algorithm->has_buffers)
			SRT_TRY(coll->transport->connect(coll, what, told));
	}
	status = alloc_starts(coll);
	if (status == SRT_OK)
		status = alloc_scratch(coll);
	return srt_comm_status_consensus(comm, what, status);
}

srt_status_t srt_coll_create(srt_comm_t *comm, const srt_coll_desc_t *desc, srt_coll_t **out)
{
	srt_coll_desc_t named;
	srt_coll_t *coll = NULL;
	uint64_t *told;
	srt_status_t status;

	if (comm == NULL || desc == NULL || out == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_coll_create: %s is NULL",
				comm == NULL ? "comm" :
				desc == NULL ? "desc" :
					       "the result");
	named = *desc;
	if (named.name == NULL)
		named.name = "unnamed";
	told = srt_calloc((size_t)comm->size, sizeof(*told), "a collective");
	if (told == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	comm->ncolls++;
	status = srt_coll_validate(comm, &named);
	if (status == SRT_OK)
		status = coll_new(comm, &named, &coll);
	status = srt_coll_compare(comm, &named, status, told);
	if (status == SRT_OK)
		status = connect(coll, told);
	free(told);
	if (status != SRT_OK) {
		srt_coll_destroy(coll);
		return status;
	}
	pthread_mutex_lock(&comm->bootstrap->mutex);
	coll->next = comm->colls;
	comm->colls = coll;
	pthread_mutex_unlock(&comm->bootstrap->mutex);
	*out = coll;
	return SRT_OK;
}

static void delist(srt_coll_t *coll)
{
	srt_comm_t *comm = coll->comm;

	pthread_mutex_lock(&comm->bootstrap->mutex);
	for (srt_coll_t **link = &comm->colls; *link != NULL; link = &(*link)->next) {
		if (*link == coll) {
			*link = coll->next;
			break;
		}
	}
	pthread_mutex_unlock(&comm->bootstrap->mutex);
}

void srt_coll_destroy(srt_coll_t *coll)
{
	if (coll == NULL)
		return;
	delist(coll);
	coll->transport->disconnect(coll);
	srt_buffer_destroy(coll->scratch);
	srt_shm_release(coll->memory);
	free(coll->out); /* with `in` */
	free(coll->owner);
	free(coll->points);
	free(coll->starts);
	free(coll->source);
	free(coll->imports);
	free(coll->name);
	free(coll);
}
