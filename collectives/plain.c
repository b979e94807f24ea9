/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives in one call, on any memory: srt_all_reduce(), srt_all_gather(), srt_reduce_scatter()
 * and srt_broadcast().
 *
 * A call copies its elements through buffers of the library, which peers can read, in chunks of
 * bounded size. Each chunk is a persistent collective over these buffers. It depends on the call's
 * arguments and not on the program's memory, so the communicator keeps the last ones for later
 * calls; the ranks keep the same ones, because they make the same calls.
 *
 * A rank on which a chunk is new creates its collective, in an exchange of all ranks. It first
 * starts a barrier: ranks on which the chunk is not new start its collective instead, and the
 * comparison of starts (start_order.c) reports both.
 */
#include <stdio.h>
#include <stdlib.h>

#include "collectives/collective.h"

/* Bytes of a chunk, over all ranks, and collectives that are kept. */
#define CHUNK_NBYTES ((size_t)4 << 20)
#define NKEPT 8

/* The arguments of a call. `whole` has the parts of all ranks, `part` has this rank's. */
typedef struct call {
	const char *name; /* of the public function */
	srt_coll_kind_t kind;
	srt_reduce_op_t op; /* of reductions */
	int root;           /* of a broadcast */
	srt_view_t whole, part;
	size_t nelem;      /* of `whole` */
	size_t part_nelem; /* of each rank's part; of the last ones fewer */
} call_t;

/* The elements of a call that one start moves: of each part the elements [at, at + width). */
typedef struct chunk {
	size_t at, width;
	size_t nelem; /* over all parts */
} chunk_t;

/* The collective of a chunk. */
typedef struct kept {
	srt_coll_kind_t kind;
	srt_reduce_op_t op;
	int root;
	srt_dtype_t dtype;
	size_t width, nelem;
	srt_coll_t *coll; /* NULL: the entry is free */
	srt_buffer_t *whole, *part;
	srt_event_t *used; /* the end of its last use, on any stream */
	uint64_t last_use; /* number of its last use */
} kept_t;

struct srt_plain {
	srt_coll_t *news; /* the barrier */
	kept_t kept[NKEPT];
	uint64_t nuses;
};

static bool call_reduces(const call_t *call)
{
	return call->kind == SRT_COLL_ALL_REDUCE || call->kind == SRT_COLL_REDUCE_SCATTER;
}

static bool call_has_part(const call_t *call)
{
	return call->kind == SRT_COLL_ALL_GATHER || call->kind == SRT_COLL_REDUCE_SCATTER;
}

/* Elements [from, from + width) of a layout of nelem, as far as it has them. */
static size_t count_within(size_t nelem, size_t from, size_t width)
{
	const size_t left = nelem > from ? nelem - from : 0;

	return left < width ? left : width;
}

/* The elements of rank r's part in the chunk. */
static size_t chunk_part(const call_t *call, const chunk_t *chunk, int r)
{
	return count_within(count_within(call->nelem, (size_t)r * call->part_nelem,
					 call->part_nelem),
			    chunk->at, chunk->width);
}

static chunk_t make_chunk(const srt_comm_t *comm, const call_t *call, size_t at)
{
	const size_t most =
		CHUNK_NBYTES / srt_dtype_size(call->whole.dtype) / (size_t)comm->size + 1;
	chunk_t chunk = { .at = at, .width = count_within(call->part_nelem, at, most) };

	for (int r = 0; r < comm->size; r++)
		chunk.nelem += chunk_part(call, &chunk, r);
	return chunk;
}

/* ---- collectives that are kept ------------------------------------------------------------- */

static void free_kept(kept_t *kept)
{
	srt_coll_destroy(kept->coll);
	srt_buffer_destroy(kept->whole);
	srt_buffer_destroy(kept->part);
	srt_event_destroy(kept->used);
	*kept = (kept_t){ 0 };
}

static void destroy_plain(srt_comm_t *comm)
{
	for (size_t i = 0; i < NKEPT; i++)
		free_kept(&comm->plain->kept[i]);
	srt_coll_destroy(comm->plain->news);
	free(comm->plain);
	comm->plain = NULL;
}

/* Collective, at the first call. */
static srt_status_t create_plain(srt_comm_t *comm)
{
	const srt_coll_desc_t news = { .size = sizeof(news),
				       .kind = SRT_COLL_BARRIER,
				       .name = "a call with new arguments" };
	struct srt_plain *plain;
	srt_status_t status;

	if (comm->plain != NULL)
		return SRT_OK;
	plain = srt_comm_calloc(comm, 1, sizeof(*plain), "collectives in one call");
	if (plain == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_coll_create(comm, &news, &plain->news);
	if (status != SRT_OK) {
		free(plain);
		return status;
	}
	comm->plain = plain;
	comm->destroy_plain = destroy_plain;
	return SRT_OK;
}

static kept_t *find_kept(const srt_comm_t *comm, const call_t *call, const chunk_t *chunk)
{
	for (size_t i = 0; comm->plain != NULL && i < NKEPT; i++) {
		kept_t *k = &comm->plain->kept[i];

		if (k->coll != NULL && k->kind == call->kind && k->op == call->op &&
		    k->root == call->root && k->dtype == call->whole.dtype &&
		    k->width == chunk->width && k->nelem == chunk->nelem)
			return k;
	}
	return NULL;
}

/* A free entry, or the one that was not used for the longest time, emptied: its last start is over
 * on all ranks before it is destroyed. */
static srt_status_t empty_entry(srt_comm_t *comm, srt_stream_t *stream, kept_t **out)
{
	kept_t *oldest = &comm->plain->kept[0];

	for (size_t i = 1; i < NKEPT; i++) {
		if (comm->plain->kept[i].last_use < oldest->last_use)
			oldest = &comm->plain->kept[i];
	}
	*out = oldest;
	if (oldest->coll == NULL)
		return SRT_OK;
	SRT_TRY(srt_stream_wait_event(stream, oldest->used));
	SRT_TRY(srt_coll_wait_readers(oldest->coll, stream));
	SRT_TRY(srt_stream_sync(stream));
	free_kept(oldest);
	return SRT_OK;
}

static srt_status_t create_buffers(srt_comm_t *comm, kept_t *kept, bool has_part)
{
	const srt_mem_kind_t kind = srt_comm_mem_kind(comm);
	const size_t elem = srt_dtype_size(kept->dtype);

	SRT_TRY(srt_event_create(comm->device, &kept->used));
	SRT_TRY(srt_buffer_create(comm->device, kind, kept->nelem * elem,
				  "a collective in one call", &kept->whole));
	if (!has_part)
		return SRT_OK;
	return srt_buffer_create(comm->device, kind, kept->width * elem,
				 "a part of a collective in one call", &kept->part);
}

/* Collective: describes the chunk in its own buffers. */
static srt_status_t create_coll(srt_comm_t *comm, const call_t *call, const chunk_t *chunk,
				kept_t *kept)
{
	const size_t world = (size_t)comm->size;
	srt_coll_segment_t *segments =
		srt_comm_calloc(comm, world, sizeof(*segments), "a collective in one call");
	srt_coll_owner_t *owners =
		srt_comm_calloc(comm, world, sizeof(*owners), "a collective in one call");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	char name[96];
	const srt_coll_desc_t desc = {
		.size = sizeof(desc),
		.kind = kept->kind,
		.name = name,
		.dtype = kept->dtype,
		.full = srt_view(kept->whole, 0, kept->dtype),
		.shard = srt_view(kept->part, 0, kept->dtype),
		.owners = owners,
		.root = kept->root,
	};

	snprintf(name, sizeof(name), "%s%s of %zu elements of %s", call->name,
		 !call_reduces(call)            ? "" :
		 call->op == SRT_REDUCE_AVERAGE ? ", average" :
						  ", sum",
		 kept->nelem, srt_dtype_name(kept->dtype));
	if (segments != NULL && owners != NULL) {
		for (int r = 0; r < comm->size; r++) {
			segments[r].nelem = chunk_part(call, chunk, r);
			if (segments[r].nelem > 0)
				segments[r].full_offset = (size_t)r * chunk->width;
			owners[r] = (srt_coll_owner_t){ &segments[r], 1 };
		}
		if (call->kind == SRT_COLL_BROADCAST && call->root >= 0 &&
		    call->root < comm->size) {
			segments[call->root] = (srt_coll_segment_t){ .nelem = chunk->nelem };
		}
		status = srt_coll_create(comm, &desc, &kept->coll);
	}
	free(segments);
	free(owners);
	return status;
}

/* Collective, blocking: the chunk is new. `status`: this rank's check of its arguments. All ranks
 * return the same error, and have then kept the same collectives. */
static srt_status_t create_kept(srt_comm_t *comm, const call_t *call, const chunk_t *chunk,
				srt_status_t status, srt_stream_t *stream, kept_t **out)
{
	static const char what[] = "a collective in one call";
	srt_error_text_t why;
	kept_t *kept;

	srt_error_save(&why);
	SRT_TRY(create_plain(comm));
	SRT_TRY(srt_coll_start(comm->plain->news, NULL, stream));
	if (status != SRT_OK)
		srt_error_restore(&why);
	SRT_TRY(srt_comm_status_consensus(comm, what, status));
	SRT_TRY(empty_entry(comm, stream, &kept));
	kept->kind = call->kind;
	kept->op = call->op;
	kept->root = call->root;
	kept->dtype = call->whole.dtype;
	kept->width = chunk->width;
	kept->nelem = chunk->nelem;
	status = create_buffers(comm, kept, call_has_part(call));
	status = srt_comm_status_consensus(comm, what, status);
	if (status == SRT_OK)
		status = create_coll(comm, call, chunk, kept);
	if (status != SRT_OK)
		free_kept(kept);
	*out = kept;
	return status;
}

/* ---- a call -------------------------------------------------------------------------------- */

/* Copies the chunk between the program's `whole` and the library's, of which each has one range of
 * elements a part. */
static srt_status_t copy_whole(const srt_comm_t *comm, const call_t *call, const chunk_t *chunk,
			       srt_buffer_t *own, bool to_own, srt_stream_t *stream)
{
	const size_t elem = srt_dtype_size(call->whole.dtype);
	const bool is_all = chunk->width == call->part_nelem; /* the ranges are adjacent */

	for (int r = 0; r < (is_all ? 1 : comm->size); r++) {
		const size_t nbytes = (is_all ? chunk->nelem : chunk_part(call, chunk, r)) * elem;
		const size_t at =
			call->whole.offset + ((size_t)r * call->part_nelem + chunk->at) * elem;
		const size_t own_at = (size_t)r * chunk->width * elem;

		if (nbytes == 0)
			continue;
		if (to_own)
			SRT_TRY(srt_buffer_copy(own, own_at, call->whole.buffer, at, nbytes,
						stream));
		else
			SRT_TRY(srt_buffer_copy(call->whole.buffer, at, own, own_at, nbytes,
						stream));
	}
	return SRT_OK;
}

static srt_status_t copy_part(const srt_comm_t *comm, const call_t *call, const chunk_t *chunk,
			      srt_buffer_t *own, bool to_own, srt_stream_t *stream)
{
	const size_t elem = srt_dtype_size(call->whole.dtype);
	const size_t nbytes = chunk_part(call, chunk, comm->rank) * elem;
	const size_t at = call->part.offset + chunk->at * elem;

	if (nbytes == 0)
		return SRT_OK;
	return to_own ? srt_buffer_copy(own, 0, call->part.buffer, at, nbytes, stream) :
			srt_buffer_copy(call->part.buffer, at, own, 0, nbytes, stream);
}

static srt_status_t copy_source(const srt_comm_t *comm, const call_t *call, const chunk_t *chunk,
				const kept_t *kept, srt_stream_t *stream)
{
	if (call->kind == SRT_COLL_ALL_GATHER)
		return copy_part(comm, call, chunk, kept->part, true, stream);
	if (call->kind == SRT_COLL_BROADCAST && comm->rank != call->root)
		return SRT_OK;
	return copy_whole(comm, call, chunk, kept->whole, true, stream);
}

static srt_status_t copy_result(const srt_comm_t *comm, const call_t *call, const chunk_t *chunk,
				const kept_t *kept, srt_stream_t *stream)
{
	if (call->kind == SRT_COLL_REDUCE_SCATTER)
		return copy_part(comm, call, chunk, kept->part, false, stream);
	if (call->kind == SRT_COLL_BROADCAST && comm->rank == call->root)
		return SRT_OK;
	return copy_whole(comm, call, chunk, kept->whole, false, stream);
}

static srt_status_t run_chunk(srt_comm_t *comm, const call_t *call, const chunk_t *chunk,
			      kept_t *kept, srt_stream_t *stream)
{
	srt_coll_epilogue_t average = SRT_COLL_EPILOGUE_INIT;

	average.divisor = (float)comm->size;
	if (kept->last_use > 0) {
		/* Edge: the last use, perhaps on another stream -> this one. */
		SRT_TRY(srt_stream_wait_event(stream, kept->used));
		/* Edge: the peers' reading in the last use -> this one's source. */
		SRT_TRY(srt_coll_wait_readers(kept->coll, stream));
	}
	kept->last_use = ++comm->plain->nuses;
	SRT_TRY(copy_source(comm, call, chunk, kept, stream));
	SRT_TRY(srt_coll_start(kept->coll,
			       call_reduces(call) && call->op == SRT_REDUCE_AVERAGE ? &average :
										      NULL,
			       stream));
	SRT_TRY(copy_result(comm, call, chunk, kept, stream));
	return srt_event_record(kept->used, stream);
}

static srt_status_t check_view(const srt_comm_t *comm, const call_t *call, const srt_view_t *view,
			       size_t nelem, const char *what)
{
	if (srt_dtype_size(call->whole.dtype) == 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: %d is not a dtype", call->name,
				(int)call->whole.dtype);
	if (view->dtype != call->whole.dtype)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: the part is %s, the whole is %s",
				call->name, srt_dtype_name(view->dtype),
				srt_dtype_name(call->whole.dtype));
	if (view->buffer == NULL && nelem == 0)
		return SRT_OK;
	SRT_TRY(srt_view_check(view, nelem, what));
	if (view->buffer->device != comm->device)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: %s, buffer \"%s\", belongs to another device than "
				"communicator \"%s\"",
				call->name, what, view->buffer->name, comm->name);
	return SRT_OK;
}

static srt_status_t check_call(const srt_comm_t *comm, const call_t *call)
{
	if (call->op != SRT_REDUCE_SUM && call->op != SRT_REDUCE_AVERAGE)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: op is %d, must be SRT_REDUCE_SUM or SRT_REDUCE_AVERAGE",
				call->name, (int)call->op);
	SRT_TRY(check_view(comm, call, &call->whole, call->nelem, "the whole"));
	if (!call_has_part(call))
		return SRT_OK;
	return check_view(comm, call, &call->part,
			  count_within(call->nelem, (size_t)comm->rank * call->part_nelem,
				       call->part_nelem),
			  "the part");
}

static srt_status_t run_call(srt_comm_t *comm, call_t *call, srt_stream_t *stream)
{
	const size_t size = (size_t)comm->size;
	srt_status_t status;
	size_t at = 0;

	call->part_nelem = call->nelem / size + (call->nelem % size != 0);
	status = check_call(comm, call);
	do { /* one chunk of a call without elements: the ranks compare their calls */
		const chunk_t chunk =
			status == SRT_OK ? make_chunk(comm, call, at) : (chunk_t){ 0 };
		kept_t *kept = status == SRT_OK ? find_kept(comm, call, &chunk) : NULL;

		if (kept == NULL)
			SRT_TRY(create_kept(comm, call, &chunk, status, stream, &kept));
		SRT_TRY(run_chunk(comm, call, &chunk, kept, stream));
		at += chunk.width;
	} while (at < call->part_nelem);
	return SRT_OK;
}

srt_status_t srt_all_reduce(srt_comm_t *comm, srt_view_t view, size_t nelem, srt_reduce_op_t op,
			    srt_stream_t *stream)
{
	call_t call = { .name = "srt_all_reduce",
			.kind = SRT_COLL_ALL_REDUCE,
			.op = op,
			.whole = view,
			.nelem = nelem };

	SRT_NOT_NULL(comm);
	SRT_NOT_NULL(stream);
	return run_call(comm, &call, stream);
}

srt_status_t srt_all_gather(srt_comm_t *comm, srt_view_t part, srt_view_t whole, size_t nelem,
			    srt_stream_t *stream)
{
	call_t call = { .name = "srt_all_gather",
			.kind = SRT_COLL_ALL_GATHER,
			.part = part,
			.whole = whole,
			.nelem = nelem };

	SRT_NOT_NULL(comm);
	SRT_NOT_NULL(stream);
	return run_call(comm, &call, stream);
}

srt_status_t srt_reduce_scatter(srt_comm_t *comm, srt_view_t whole, srt_view_t part, size_t nelem,
				srt_reduce_op_t op, srt_stream_t *stream)
{
	call_t call = { .name = "srt_reduce_scatter",
			.kind = SRT_COLL_REDUCE_SCATTER,
			.op = op,
			.part = part,
			.whole = whole,
			.nelem = nelem };

	SRT_NOT_NULL(comm);
	SRT_NOT_NULL(stream);
	return run_call(comm, &call, stream);
}

srt_status_t srt_broadcast(srt_comm_t *comm, srt_view_t view, size_t nelem, int root,
			   srt_stream_t *stream)
{
	call_t call = { .name = "srt_broadcast",
			.kind = SRT_COLL_BROADCAST,
			.root = root,
			.whole = view,
			.nelem = nelem };

	SRT_NOT_NULL(comm);
	SRT_NOT_NULL(stream);
	return run_call(comm, &call, stream);
}
