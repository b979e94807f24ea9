/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Persistent collectives: created once, verified on all ranks, started many times (start.c). The
 * object contains a ring of start records.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collective.h"

/* Most host steps of all starts of a collective; most rounds of one start. */
#define MAX_HOST_STEPS 4096u
#define MAX_ROUNDS 1000000

/* ---- making --------------------------------------------------------------------------- */

/* Copies the owners' tables as extents in bytes, without empty segments. */
static srt_status_t copy_owners(srt_coll_t *coll, const srt_coll_desc_t *desc)
{
	size_t size = (size_t)coll->comm->size, total = 0;
	bool has_owners = !coll->algorithm->has_pairs && desc->owners != NULL;
	srt_extent_t *extent;

	for (size_t r = 0; r < size && has_owners; r++)
		total += desc->owners[r].nsegments;
	coll->owner = srt_calloc(1, size * sizeof(*coll->owner) + total * sizeof(*extent),
				 "a collective's segments");
	if (coll->owner == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	extent = (srt_extent_t *)(void *)(coll->owner + size);
	for (size_t r = 0; r < size && total > 0; r++) {
		srt_extents_t *extents = &coll->owner[r];
		srt_extent_t *last = NULL;

		extents->extents = extent;
		if (coll->algorithm->has_root && (int)r != coll->root)
			continue;
		for (size_t i = 0; i < desc->owners[r].nsegments; i++) {
			const srt_coll_segment_t *s = &desc->owners[r].segments[i];
			srt_extent_t next = {
				.full_offset = s->full_offset * coll->elem_nbytes,
				.shard_offset = s->shard_offset * coll->elem_nbytes,
				.nbytes = s->nelem * coll->elem_nbytes,
			};

			if (next.nbytes > 0)
				last = srt_extents_append(extents, last, extent + extents->nextents,
							  &next);
		}
		extent += extents->nextents;
	}
	return SRT_OK;
}

static srt_status_t alloc_scratch(srt_coll_t *coll)
{
	size_t nbytes = srt_step_reduce_scratch(coll->comm->size);

	if (!coll->algorithm->reduces || nbytes == 0 || !srt_coll_owns(coll, coll->comm->rank) ||
	    coll->transport->runs_stages)
		return SRT_OK;
	if (coll->comm->parent != NULL) { /* it is a stage */
		coll->scratch = coll->comm->sum_scratch;
		srt_buffer_hold(coll->scratch);
		return SRT_OK;
	}
	return srt_buffer_create(coll->comm->device, SRT_MEM_DEVICE, nbytes,
				 "partial sums over ranks", &coll->scratch);
}

/* Allocates the object, without the parts that other ranks take part in. */
static srt_status_t alloc_coll(srt_comm_t *comm, const srt_coll_desc_t *desc, srt_coll_t **out)
{
	srt_coll_t *coll = srt_calloc(1, sizeof(*coll), "a collective");

	if (coll == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	coll->comm = comm;
	srt_comm_hold(comm);
	coll->algorithm = srt_coll_algorithm(desc->kind);
	coll->transport = srt_coll_transport(comm, coll->algorithm);
	coll->kind = desc->kind;
	coll->id = comm->ncolls;
	coll->dtype = desc->dtype;
	coll->elem_nbytes = srt_dtype_bits(desc->dtype) / 8;
	coll->root = desc->root;
	coll->full = desc->full;
	coll->shard = desc->shard;
	if (coll->full.buffer != NULL)
		srt_buffer_hold(coll->full.buffer);
	if (coll->shard.buffer != NULL)
		srt_buffer_hold(coll->shard.buffer);
	coll->name = srt_strdup(desc->name);
	if (coll->name == NULL || copy_owners(coll, desc) != SRT_OK ||
	    (coll->algorithm->has_pairs && srt_coll_store_messages(coll, desc) != SRT_OK)) {
		srt_coll_destroy(coll);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	coll->source = coll->algorithm->source == SRT_SOURCE_SHARD ? coll->shard : coll->full;
	*out = coll;
	return SRT_OK;
}

/* Computes the rounds that move the largest owner's bytes. At least one: ranks also wait for each
 * other in a collective without bytes. */
static srt_status_t plan_rounds(srt_coll_t *coll)
{
	const srt_coll_algorithm_t *a = coll->algorithm;
	size_t most = coll->most_pair, nrounds = 0;

	for (int r = 0; r < coll->comm->size; r++) {
		if (coll->owner[r].nbytes > most)
			most = coll->owner[r].nbytes;
		coll->nbytes += coll->owner[r].nbytes;
		if (coll->algorithm->has_pairs)
			coll->nbytes += coll->out[r].nbytes;
	}
	for (int f = 0; f < a->nphases; f++) {
		size_t each = coll->transport->round_nbytes(coll, a->phases[f]);

		nrounds += most > each ? most / each + (most % each != 0) : 1;
		if (nrounds > MAX_ROUNDS)
			return srt_fail(SRT_ERR_UNSUPPORTED,
					"%zu bytes in chunks of %zu are more than %d rounds; raise "
					"SHARDRT_STAGING_BYTES",
					most, each, MAX_ROUNDS);
		coll->phase_begin[f + 1] = (uint32_t)nrounds;
	}
	coll->nrounds = (uint32_t)nrounds;
	return SRT_OK;
}

/* Allocates the ring of starts. */
static srt_status_t alloc_starts(srt_coll_t *coll)
{
	const size_t start_nbytes = coll->transport->start_nbytes;
	uint32_t nstarts;

	SRT_TRY(plan_rounds(coll));
	/* Two for each round, and two more for each phase. */
	coll->nhost_steps = 2 * coll->nrounds + 2 * SRT_MAX_PHASES;
	nstarts = MAX_HOST_STEPS / coll->nhost_steps;
	nstarts = nstarts > SRT_COLL_NSTARTS    ? SRT_COLL_NSTARTS :
		  nstarts < SRT_COLL_MIN_STARTS ? SRT_COLL_MIN_STARTS :
						  nstarts;
	/* A power of two: `epoch % nstarts` goes on when the epoch wraps. */
	while ((nstarts & (nstarts - 1)) != 0)
		nstarts &= nstarts - 1;
	coll->starts = srt_calloc(nstarts, sizeof(*coll->starts), "a collective");
	coll->host_steps = srt_calloc((size_t)nstarts * coll->nhost_steps,
				      sizeof(*coll->host_steps), "a collective");
	coll->start_data = srt_calloc(nstarts, start_nbytes, "a collective");
	if (coll->starts == NULL || coll->host_steps == NULL || coll->start_data == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	coll->nstarts = nstarts;
	for (uint32_t i = 0; i < coll->nstarts; i++) {
		coll->starts[i].coll = coll;
		coll->starts[i].host_steps = coll->host_steps + (size_t)i * coll->nhost_steps;
		coll->starts[i].transport_data = coll->start_data + i * start_nbytes;
	}
	return SRT_OK;
}

/* Collective: connects the ranks, after their descriptions have been verified. */
static srt_status_t connect_coll(srt_coll_t *coll, const uint64_t *peer_info)
{
	srt_comm_t *comm = coll->comm;
	srt_status_t status = SRT_OK;
	char what[192];

	snprintf(what, sizeof(what), "creating %s of \"%s\"", coll->algorithm->name, coll->name);
	if (comm->size > 1) {
		if (comm->shm != NULL)
			SRT_TRY(srt_shm_alloc_flags(comm, what, &coll->memory, &coll->flags));
		if (coll->algorithm->has_buffers)
			status = coll->transport->connect(coll, what, peer_info);
		if (status != SRT_OK && coll->transport->connects_all)
			return status;
	}
	if (status == SRT_OK)
		status = alloc_starts(coll);
	if (status == SRT_OK)
		status = alloc_scratch(coll);
	return srt_comm_status_consensus(comm, what, status);
}

srt_status_t srt_coll_create(srt_comm_t *comm, const srt_coll_desc_t *desc, srt_coll_t **out)
{
	srt_coll_desc_t named = SRT_COLL_DESC_INIT;
	srt_coll_t *coll = NULL;
	uint64_t *peer_info;
	srt_status_t status;

	SRT_NOT_NULL(comm);
	SRT_NOT_NULL(desc);
	SRT_TRY(srt_check_not_null(out, __func__, "coll"));
	status = srt_struct_read(&named, sizeof(named), desc, "srt_coll_desc_t");
	if (named.name == NULL)
		named.name = "unnamed";
	peer_info = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*peer_info),
				    "creating a collective");
	if (peer_info == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	comm->ncolls++;
	if (status == SRT_OK)
		status = srt_coll_validate(comm, &named);
	if (status == SRT_OK)
		status = alloc_coll(comm, &named, &coll);
	status = srt_coll_verify(comm, &named, status, peer_info);
	if (status == SRT_OK)
		status = connect_coll(coll, peer_info);
	free(peer_info);
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

srt_status_t srt_coll_create_gather(srt_comm_t *comm, srt_view_t local, srt_view_t all,
				    size_t nelem, const char *name, srt_coll_t **out)
{
	const size_t world = (size_t)comm->size;
	srt_coll_segment_t *segments = srt_comm_calloc(comm, world, sizeof(*segments), name);
	srt_coll_owner_t *owners = srt_comm_calloc(comm, world, sizeof(*owners), name);
	const srt_coll_desc_t desc = {
		.size = sizeof(srt_coll_desc_t),
		.kind = SRT_COLL_ALL_GATHER,
		.name = name,
		.dtype = local.dtype,
		.full = all,
		.shard = local,
		.owners = owners,
	};
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (segments != NULL && owners != NULL) {
		for (size_t r = 0; r < world; r++) {
			segments[r] =
				(srt_coll_segment_t){ .full_offset = r * nelem, .nelem = nelem };
			owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
		}
		status = srt_coll_create(comm, &desc, out);
	}
	free(segments);
	free(owners);
	return status;
}

static void delist_coll(srt_coll_t *coll)
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

void srt_coll_close(srt_coll_t *coll, const char *what)
{
	if (coll == NULL || atomic_load(&coll->is_closing))
		return;
	snprintf(coll->closing_text, sizeof(coll->closing_text), "rank %d destroyed %s",
		 coll->comm->world_rank[coll->comm->rank], what);
	atomic_store(&coll->is_closing, true);
	if (coll->transport->close != NULL)
		coll->transport->close(coll, what);
}

void srt_coll_destroy(srt_coll_t *coll)
{
	srt_comm_t *comm;

	if (coll == NULL || srt_device_is_inherited(coll->comm->device))
		return;
	comm = coll->comm;
	srt_coll_close(coll, "a collective");
	/* Host functions on streams refer to the object. */
	srt_device_drain(comm->device, atomic_load(&coll->streams));
	delist_coll(coll);
	coll->transport->disconnect(coll);
	srt_buffer_destroy(coll->scratch);
	srt_buffer_destroy(coll->full.buffer);
	srt_buffer_destroy(coll->shard.buffer);
	srt_shm_release(coll->memory);
	free(coll->out); /* with `in` */
	free(coll->owner);
	free(coll->host_steps);
	free(coll->start_data);
	free(coll->starts);
	free(coll->name);
	free(coll);
	srt_comm_release(comm);
}
