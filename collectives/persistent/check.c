/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of a collective's description: each rank's own, then all ranks' against each other. An
 * error on one rank, or a mismatch between two, is the same error on all ranks.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collective.h"

/* A rank's description of the collective that it creates. Fixed size, no pointers. */
typedef struct record {
	int32_t status; /* of the rank's own checks */
	int32_t kind;
	int32_t dtype;
	int32_t root;
	uint32_t id;        /* collectives that it has created on this communicator */
	uint32_t nsegments; /* of all owners */
	uint64_t nelem;     /* of all owners */
	uint64_t name_hash;
	uint64_t segments_hash;
	char name[96]; /* truncated; the hash is of the full name */
	char text[SRT_CONTROL_TEXT];
} record_t;

/* What the ranks exchange first. Their records have many bytes, and are only needed for a message.
 */
typedef struct digest {
	uint64_t hash;      /* of the record without its texts; they hold the status */
	uint64_t peer_info; /* the transport's connect_info() */
} digest_t;

/* Sets the ends of the layouts, in elements. Overflow is an error. */
static srt_status_t measure_segments(const srt_comm_t *comm, const srt_coll_desc_t *desc,
				     size_t *full_nelem, size_t *shard_nelem)
{
	*full_nelem = *shard_nelem = 0;
	for (int r = 0; r < comm->size; r++) {
		const srt_coll_owner_t *owner = &desc->owners[r];

		if (owner->nsegments > 0 && owner->segments == NULL)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"the segments of rank %d are NULL", comm->world_rank[r]);
		for (size_t i = 0; i < owner->nsegments; i++) {
			const srt_coll_segment_t *s = &owner->segments[i];
			size_t full_end, shard_end, nbytes;

			if (!srt_add_size(s->full_offset, s->nelem, &full_end) ||
			    !srt_add_size(s->shard_offset, s->nelem, &shard_end) ||
			    !srt_mul_size(full_end, 8, &nbytes) ||
			    !srt_mul_size(shard_end, 8, &nbytes))
				return srt_fail(SRT_ERR_INVALID_ARGUMENT,
						"segment %zu of rank %d is too large", i,
						comm->world_rank[r]);
			if (full_end > *full_nelem)
				*full_nelem = full_end;
			if (r == comm->rank && shard_end > *shard_nelem)
				*shard_nelem = shard_end;
		}
	}
	return SRT_OK;
}

/* A segment and who owns it. */
typedef struct placed {
	size_t begin, end; /* in the full layout */
	int owner;
} placed_t;

static int by_begin(const void *a, const void *b)
{
	const placed_t *x = a, *y = b;

	return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Checks, for a collective that writes the segments of all owners, that segments of different
 * owners do not overlap. Their ends are in range. */
static srt_status_t check_owners(const srt_comm_t *comm, const srt_coll_desc_t *desc)
{
	size_t total = 0, n = 0, last = 0;
	srt_status_t status = SRT_OK;
	placed_t *all;

	for (int r = 0; r < comm->size; r++)
		total += desc->owners[r].nsegments;
	all = srt_calloc(total, sizeof(*all), "the segments of a collective");
	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int r = 0; r < comm->size; r++) {
		for (size_t i = 0; i < desc->owners[r].nsegments; i++) {
			const srt_coll_segment_t *s = &desc->owners[r].segments[i];

			if (s->nelem > 0)
				all[n++] =
					(placed_t){ s->full_offset, s->full_offset + s->nelem, r };
		}
	}
	qsort(all, n, sizeof(*all), by_begin);
	/* all[last] ends last of those before all[i]. */
	for (size_t i = 1; i < n && status == SRT_OK; i++) {
		if (all[i].begin < all[last].end && all[i].owner != all[last].owner)
			status = srt_fail(SRT_ERR_INVALID_ARGUMENT,
					  "the segments of rank %d and rank %d overlap at element "
					  "%zu of the full layout",
					  comm->world_rank[all[last].owner],
					  comm->world_rank[all[i].owner], all[i].begin);
		if (all[i].end > all[last].end)
			last = i;
	}
	free(all);
	return status;
}

static int by_place(const void *a, const void *b)
{
	const srt_coll_message_t *x = a, *y = b;

	return (x->shard_offset > y->shard_offset) - (x->shard_offset < y->shard_offset);
}

/* Checks the messages that this rank receives, mine[n], in any order. */
static srt_status_t check_overlap(const srt_comm_t *comm, srt_coll_message_t *mine, size_t n)
{
	qsort(mine, n, sizeof(*mine), by_place);
	for (size_t i = 1; i < n; i++) {
		if (mine[i - 1].shard_offset + mine[i - 1].nelem > mine[i].shard_offset)
			return srt_fail(
				SRT_ERR_INVALID_ARGUMENT,
				"the messages that rank %d receives from rank %d and from rank %d "
				"overlap at element %zu of its shard",
				comm->world_rank[comm->rank], comm->world_rank[mine[i - 1].from],
				comm->world_rank[mine[i].from], mine[i].shard_offset);
	}
	return SRT_OK;
}

static bool message_fits(const srt_coll_message_t *m)
{
	size_t full_end, shard_end, nbytes;

	return srt_add_size(m->full_offset, m->nelem, &full_end) &&
	       srt_add_size(m->shard_offset, m->nelem, &shard_end) &&
	       srt_mul_size(full_end, 8, &nbytes) && srt_mul_size(shard_end, 8, &nbytes);
}

/* measure_segments() for messages. */
static srt_status_t measure_messages(const srt_comm_t *comm, const srt_coll_desc_t *desc,
				     size_t *full_nelem, size_t *shard_nelem)
{
	srt_status_t status = SRT_OK;
	srt_coll_message_t *all;
	size_t n, nmine = 0;

	*full_nelem = *shard_nelem = 0;
	SRT_TRY(srt_coll_messages(comm, desc, &all, &n));
	for (size_t i = 0; i < n && status == SRT_OK; i++) {
		const srt_coll_message_t m = all[i];

		if (!message_fits(&m))
			status = srt_fail(SRT_ERR_INVALID_ARGUMENT,
					  "message %zu, from rank %d to rank %d, is too large", i,
					  comm->world_rank[m.from], comm->world_rank[m.to]);
		if (m.nelem == 0 || status != SRT_OK)
			continue;
		if (m.from == comm->rank && m.full_offset + m.nelem > *full_nelem)
			*full_nelem = m.full_offset + m.nelem;
		if (m.to != comm->rank)
			continue;
		if (m.shard_offset + m.nelem > *shard_nelem)
			*shard_nelem = m.shard_offset + m.nelem;
		all[nmine++] = m;
	}
	if (status == SRT_OK)
		status = check_overlap(comm, all, nmine);
	free(all);
	return status;
}

static srt_status_t check_view(const srt_comm_t *comm, const srt_coll_desc_t *desc,
			       const srt_view_t *view, size_t nelem, bool read_by_peers,
			       const char *what)
{
	if (view->buffer == NULL && nelem == 0)
		return SRT_OK;
	SRT_TRY(srt_view_check(view, nelem, what));
	if (view->dtype != desc->dtype && !(desc->kind == SRT_COLL_REDUCE_SCATTER &&
					    view == &desc->shard && view->dtype == SRT_F32))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s is %s, the collective %s", what,
				srt_dtype_name(view->dtype), srt_dtype_name(desc->dtype));
	if (view->buffer->device != comm->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s, buffer \"%s\", belongs to another device than communicator "
				"\"%s\"",
				what, view->buffer->name, comm->name);
	if (read_by_peers && srt_comm_zero_copy(comm) && view->buffer->nbytes > 0 &&
	    (view->buffer->kind != SRT_MEM_PEER || view->buffer->imported))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s is read by the other ranks, so buffer \"%s\" must be made with "
				"SRT_MEM_PEER; srt_all_reduce() and other collectives in one call "
				"take any memory",
				what, view->buffer->name);
	return SRT_OK;
}

srt_status_t srt_coll_validate(const srt_comm_t *comm, const srt_coll_desc_t *desc)
{
	const srt_coll_algorithm_t *a = srt_coll_algorithm(desc->kind);
	size_t full_nelem, shard_nelem;
	bool uses_shard;

	if (a == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%d is not a kind of collective",
				(int)desc->kind);
	if (!a->has_buffers)
		return SRT_OK;
	if (srt_dtype_bits(desc->dtype) == 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "dtype is %s (%d)",
				srt_dtype_name(desc->dtype), (int)desc->dtype);
	if (a->reduces && !srt_dtype_is_float(desc->dtype))
		return srt_fail(SRT_ERR_UNSUPPORTED, "%s cannot be summed over ranks",
				srt_dtype_name(desc->dtype));
	if (a->reduces && comm->size > SRT_SUM_MAX_RANKS)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%d ranks are too many for a sum: at most %d; use a mesh of groups",
				comm->size, SRT_SUM_MAX_RANKS);
	if (desc->kind == SRT_COLL_BROADCAST && (desc->root < 0 || desc->root >= comm->size))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the root %d is not a rank of the communicator", desc->root);
	if (!a->has_pairs && desc->owners == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "the table of owners is NULL");
	SRT_TRY(a->has_pairs ? measure_messages(comm, desc, &full_nelem, &shard_nelem) :
			       measure_segments(comm, desc, &full_nelem, &shard_nelem));
	if (desc->kind == SRT_COLL_ALL_GATHER || desc->kind == SRT_COLL_ALL_REDUCE)
		SRT_TRY(check_owners(comm, desc));
	uses_shard = a->has_pairs || desc->kind == SRT_COLL_ALL_GATHER ||
		     desc->kind == SRT_COLL_REDUCE_SCATTER;
	SRT_TRY(check_view(comm, desc, &desc->full, full_nelem, a->source == SRT_SOURCE_FULL,
			   "the full layout"));
	if (uses_shard)
		SRT_TRY(check_view(comm, desc, &desc->shard, shard_nelem,
				   a->source == SRT_SOURCE_SHARD, "the shard"));
	return SRT_OK;
}

/* Adds the messages of a valid description to the record. Fails only if memory is missing. */
static srt_status_t sum_messages(const srt_comm_t *comm, const srt_coll_desc_t *desc,
				 record_t *mine)
{
	srt_coll_message_t *all;
	size_t n;

	SRT_TRY(srt_coll_messages(comm, desc, &all, &n));
	mine->nsegments = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		const srt_coll_message_t *m = &all[i];
		uint64_t row[5] = { (uint64_t)m->from, (uint64_t)m->to, m->full_offset,
				    m->shard_offset, m->nelem };

		mine->nelem += m->nelem;
		mine->segments_hash = srt_hash64(mine->segments_hash, row, sizeof(row));
	}
	free(all);
	return SRT_OK;
}

static void fill_record(const srt_comm_t *comm, const srt_coll_desc_t *desc, srt_status_t status,
			record_t *mine)
{
	const srt_coll_algorithm_t *a = srt_coll_algorithm(desc->kind);

	memset(mine, 0, sizeof(*mine));
	mine->kind = (int32_t)desc->kind;
	mine->id = comm->ncolls;
	mine->name_hash = srt_hash64(0, desc->name, strlen(desc->name));
	snprintf(mine->name, sizeof(mine->name), "%s", desc->name);
	if (status == SRT_OK && a->has_pairs)
		status = sum_messages(comm, desc, mine);
	mine->status = (int32_t)status;
	if (status != SRT_OK) {
		snprintf(mine->text, sizeof(mine->text), "%s", srt_error_last());
		return;
	}
	if (!a->has_buffers)
		return;
	mine->dtype = (int32_t)desc->dtype;
	mine->root = desc->kind == SRT_COLL_BROADCAST ? desc->root : 0;
	for (int r = 0; !a->has_pairs && r < comm->size; r++) {
		const srt_coll_owner_t *owner = &desc->owners[r];

		mine->segments_hash = srt_mix64(mine->segments_hash, owner->nsegments);
		mine->nsegments += (uint32_t)owner->nsegments;
		for (size_t i = 0; i < owner->nsegments; i++) {
			const srt_coll_segment_t *s = &owner->segments[i];
			uint64_t row[3] = { s->full_offset, s->shard_offset, s->nelem };

			mine->nelem += s->nelem;
			mine->segments_hash = srt_hash64(mine->segments_hash, row, sizeof(row));
		}
	}
}

static const char *kind_name(int32_t kind)
{
	const srt_coll_algorithm_t *a = srt_coll_algorithm((srt_coll_kind_t)kind);

	return a != NULL ? a->name : "a collective of unknown kind";
}

/* Compares b, of rank r, with a, of the communicator's rank 0. The message names both values. */
static srt_status_t verify_record(const srt_comm_t *comm, const record_t *a, const record_t *b,
				  int r)
{
	int ra = comm->world_rank[0], rb = comm->world_rank[r];

	if (a->kind != b->kind || a->name_hash != b->name_hash)
		return srt_fail(
			SRT_ERR_MISMATCH,
			"the ranks create different collectives: rank %d %s of \"%s\", rank "
			"%d %s of \"%s\"",
			ra, kind_name(a->kind), a->name, rb, kind_name(b->kind), b->name);
	if (a->dtype != b->dtype)
		return srt_fail(SRT_ERR_MISMATCH,
				"%s of \"%s\": dtype is %s on rank %d, %s on "
				"rank %d",
				kind_name(a->kind), a->name, srt_dtype_name((srt_dtype_t)a->dtype),
				ra, srt_dtype_name((srt_dtype_t)b->dtype), rb);
	if (a->root != b->root)
		return srt_fail(SRT_ERR_MISMATCH,
				"%s of \"%s\": the root is %d on rank %d, %d on "
				"rank %d",
				kind_name(a->kind), a->name, (int)a->root, ra, (int)b->root, rb);
	if (a->nelem != b->nelem || a->nsegments != b->nsegments ||
	    a->segments_hash != b->segments_hash)
		return srt_fail(
			SRT_ERR_MISMATCH,
			"%s of \"%s\": the %s differ: rank %d has %u with %llu "
			"elements (table %016llx), rank %d has %u with %llu (table %016llx)",
			kind_name(a->kind), a->name,
			srt_coll_algorithm((srt_coll_kind_t)a->kind)->has_pairs ? "messages" :
										  "segments",
			ra, (unsigned)a->nsegments, (unsigned long long)a->nelem,
			(unsigned long long)a->segments_hash, rb, (unsigned)b->nsegments,
			(unsigned long long)b->nelem, (unsigned long long)b->segments_hash);
	if (a->id != b->id)
		return srt_fail(
			SRT_ERR_MISMATCH,
			"%s of \"%s\": it is collective number %u of rank %d, but number %u "
			"of rank %d",
			kind_name(a->kind), a->name, (unsigned)a->id, ra, (unsigned)b->id, rb);
	return SRT_OK;
}

/* Exchanges the digests. *same: all ranks have given the same valid description. */
static srt_status_t compare_digests(srt_comm_t *comm, const char *what, const record_t *record,
				    uint64_t info, uint64_t *peer_info, bool *same)
{
	const digest_t mine = { srt_hash64(0, record, offsetof(record_t, name)), info };
	digest_t *all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*all), what);
	srt_status_t status;

	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(comm, what, &mine, sizeof(mine), all);
	*same = record->status == SRT_OK;
	for (int r = 0; r < comm->size && status == SRT_OK; r++) {
		*same = *same && all[r].hash == mine.hash;
		peer_info[r] = all[r].peer_info;
	}
	free(all);
	return status;
}

/* Exchanges the records, of which one has an error or two differ. */
static srt_status_t compare_records(srt_comm_t *comm, const char *what, const record_t *mine)
{
	record_t *all = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*all), what);
	srt_status_t status;

	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_comm_oob_allgather_for(comm, what, mine, sizeof(*mine), all);
	for (int r = 0; r < comm->size && status == SRT_OK; r++) {
		all[r].name[sizeof(all[r].name) - 1] = '\0';
		all[r].text[sizeof(all[r].text) - 1] = '\0';
		if (all[r].status > SRT_OK && all[r].status < SRT_STATUS_COUNT)
			status = srt_fail((srt_status_t)all[r].status,
					  "%s of \"%s\" on rank %d: %s", kind_name(all[r].kind),
					  all[r].name, comm->world_rank[r], all[r].text);
	}
	for (int r = 1; r < comm->size && status == SRT_OK; r++)
		status = verify_record(comm, &all[0], &all[r], r);
	free(all);
	return status;
}

/* The transport's connect_info() of a description, if it is valid. */
static uint64_t connect_info(const srt_comm_t *comm, const srt_coll_desc_t *desc)
{
	const srt_coll_algorithm_t *a = srt_coll_algorithm(desc->kind);
	const srt_transport_t *transport = srt_coll_transport(comm, a);

	return a->has_buffers && transport->connect_info != NULL ?
		       transport->connect_info(comm, desc) :
		       0;
}

srt_status_t srt_coll_verify(srt_comm_t *comm, const srt_coll_desc_t *desc, srt_status_t status,
			     uint64_t *peer_info)
{
	const uint64_t info = status == SRT_OK ? connect_info(comm, desc) : 0;
	bool same = false;
	char what[192];
	record_t mine;

	snprintf(what, sizeof(what), "creating %s of \"%s\"", kind_name((int32_t)desc->kind),
		 desc->name);
	fill_record(comm, desc, status, &mine);
	SRT_TRY(compare_digests(comm, what, &mine, info, peer_info, &same));
	return same ? SRT_OK : compare_records(comm, what, &mine);
}
