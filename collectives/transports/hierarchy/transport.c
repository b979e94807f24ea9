/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hierarchical transport's table: the stages of a collective, and their starts. See
 * hierarchy.h.
 *
 * Order of the stages: for each piece of a sum the local and the across stage; then, if the
 * collective copies, the across and the local stage. A stage that this rank has no part in is NULL.
 */
#include <stdlib.h>

#include "collectives/transports/hierarchy/hierarchy.h"

/* Most pieces of a sum: a sum of more is flat. */
#define MAX_PIECES 1024

/* Where a stage's bytes are. */
typedef enum place {
	IN_FULL,
	IN_SHARD,
	IN_PARTIAL,
} place_t;

typedef struct stage {
	srt_coll_desc_t desc; /* without the table of owners */
	bool is_local;
	place_t full, shard; /* what the stage's full and shard are */
	size_t begin, end;   /* elements of each rank's extents */
} stage_t;

/* A part of a rank's extents, in elements. */
typedef struct part {
	size_t full_offset, shard_offset;
	size_t at; /* from the start of the range */
	size_t nelem;
} part_t;

/* ---- the tables of stages ------------------------------------------------------------------- */

/* Elements of each node in `partial`. */
static size_t piece_nelem(const srt_hierarchy_t *h)
{
	return h->partial_nbytes / (size_t)h->nnodes / sizeof(float);
}

/* Iterates over the parts of the elements [begin, end) of extents; start with {0}. */
static bool next_part(const srt_coll_t *coll, const srt_extents_t *extents, size_t begin,
		      size_t end, srt_chunk_iter_t *iter, part_t *part)
{
	const size_t each = coll->elem_nbytes;

	while (iter->extent < extents->nextents && iter->base < end) {
		const srt_extent_t *extent = &extents->extents[iter->extent++];
		const size_t base = iter->base, next = base + extent->nbytes / each;
		const size_t from = base > begin ? base : begin, to = next < end ? next : end;

		iter->base = next;
		if (from >= to)
			continue;
		*part = (part_t){
			.full_offset = extent->full_offset / each + from - base,
			.shard_offset = extent->shard_offset / each + from - base,
			.at = from - begin,
			.nelem = to - from,
		};
		return true;
	}
	return false;
}

static size_t offset_in(const srt_hierarchy_t *h, place_t place, const part_t *part, int node)
{
	switch (place) {
	case IN_FULL:
		return part->full_offset;
	case IN_SHARD:
		return part->shard_offset;
	case IN_PARTIAL:
		break;
	}
	return (size_t)node * piece_nelem(h) + part->at;
}

/* Appends the segments of a rank of the node. */
static void add_rank(const srt_coll_t *coll, const stage_t *stage, int node, int place,
		     srt_coll_segment_t *segments, size_t *n)
{
	const srt_hierarchy_t *h = coll->comm->hierarchy;
	const srt_extents_t *extents = &coll->owner[h->member[node * h->nlocal + place]];
	srt_chunk_iter_t iter = { 0 };
	part_t part;

	while (next_part(coll, extents, stage->begin, stage->end, &iter, &part))
		segments[(*n)++] = (srt_coll_segment_t){
			.full_offset = offset_in(h, stage->full, &part, node),
			.shard_offset = offset_in(h, stage->shard, &part, node),
			.nelem = part.nelem,
		};
}

static int place_of(const srt_hierarchy_t *h)
{
	return srt_comm_rank(h->local);
}

static int node_of(const srt_hierarchy_t *h)
{
	return srt_comm_rank(h->across);
}

/* In a local stage a rank owns what all ranks with its place own. */
static void fill_owners(const srt_coll_t *coll, const stage_t *stage, srt_coll_owner_t *owners,
			srt_coll_segment_t *segments)
{
	const srt_hierarchy_t *h = coll->comm->hierarchy;
	const int nowners = stage->is_local ? h->nlocal : h->nnodes;

	for (int i = 0; i < nowners; i++) {
		size_t n = 0;

		for (int node = 0; node < h->nnodes; node++) {
			if (stage->is_local)
				add_rank(coll, stage, node, i, segments, &n);
			else if (node == i)
				add_rank(coll, stage, node, place_of(h), segments, &n);
		}
		owners[i] = (srt_coll_owner_t){ segments, n };
		segments += n;
	}
}

static srt_status_t create_stage(const srt_coll_t *coll, const stage_t *stage, srt_coll_t **out)
{
	const srt_hierarchy_t *h = coll->comm->hierarchy;
	srt_comm_t *comm = stage->is_local ? h->local : h->across;
	srt_coll_desc_t desc = stage->desc;
	srt_coll_segment_t *segments;
	srt_coll_owner_t *owners;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	size_t most = 0;

	for (int r = 0; r < coll->comm->size; r++)
		most += coll->owner[r].nextents;
	owners = srt_comm_calloc(comm, (size_t)comm->size, sizeof(*owners), coll->name);
	segments = srt_comm_calloc(comm, most, sizeof(*segments), coll->name);
	if (owners != NULL && segments != NULL) {
		fill_owners(coll, stage, owners, segments);
		desc.name = coll->name;
		desc.owners = owners;
		status = srt_coll_create(comm, &desc, out);
	}
	free(segments);
	free(owners);
	return status;
}

/* ---- the stages of a collective ------------------------------------------------------------- */

static stage_t sum_stage(const srt_coll_t *coll, uint32_t piece, bool is_local)
{
	const srt_hierarchy_t *h = coll->comm->hierarchy;
	const srt_stages_t *s = coll->transport_data;
	const srt_view_t partial = srt_view(h->partial, 0, SRT_F32);
	const bool in_full = coll->kind == SRT_COLL_ALL_REDUCE;
	stage_t stage = {
		.desc = { .size = sizeof(srt_coll_desc_t),
			  .kind = SRT_COLL_REDUCE_SCATTER,
			  .dtype = is_local ? coll->dtype : SRT_F32,
			  .full = is_local ? coll->full : partial,
			  .shard = partial },
		.is_local = is_local,
		.full = is_local ? IN_FULL : IN_PARTIAL,
		.shard = IN_PARTIAL,
		.begin = piece * piece_nelem(h),
		.end = (piece + 1) * piece_nelem(h),
	};

	if (!is_local && s->sums_to_result) {
		stage.desc.shard = in_full ? coll->full : coll->shard;
		stage.shard = in_full ? IN_FULL : IN_SHARD;
	}
	return stage;
}

/* The local stage is in place. The stage of a broadcast has the root's node or place as root. */
static stage_t copy_stage(const srt_coll_t *coll, bool is_local)
{
	const srt_hierarchy_t *h = coll->comm->hierarchy;
	const bool in_place = is_local || coll->algorithm->source == SRT_SOURCE_FULL;
	const int root = coll->algorithm->has_root ? srt_hierarchy_find(h, coll->root) : 0;

	return (stage_t){
		.desc = { .size = sizeof(srt_coll_desc_t),
			  .kind = coll->algorithm->has_root ? SRT_COLL_BROADCAST :
							      SRT_COLL_ALL_GATHER,
			  .dtype = coll->dtype,
			  .full = coll->full,
			  .shard = in_place ? coll->full : coll->shard,
			  .root = is_local ? root % h->nlocal : root / h->nlocal },
		.is_local = is_local,
		.full = IN_FULL,
		.shard = in_place ? IN_FULL : IN_SHARD,
		.end = SIZE_MAX,
	};
}

static bool copies(const srt_coll_t *coll)
{
	return coll->kind != SRT_COLL_REDUCE_SCATTER;
}

/* Only the ranks with the root's place send a broadcast to other nodes. */
static bool takes_part_across(const srt_coll_t *coll)
{
	const srt_hierarchy_t *h = coll->comm->hierarchy;

	return !coll->algorithm->has_root ||
	       srt_hierarchy_find(h, coll->root) % h->nlocal == place_of(h);
}

/* The local stages, or those across nodes: so that all ranks of the communicator fail together if
 * some fail in between. */
static srt_status_t create_stages(srt_coll_t *coll, bool is_local)
{
	srt_stages_t *s = coll->transport_data;
	stage_t stage;

	for (uint32_t p = 0; p < s->npieces; p++) {
		stage = sum_stage(coll, p, is_local);
		SRT_TRY(create_stage(coll, &stage, &s->stages[2 * p + !is_local]));
	}
	if (!copies(coll) || (!is_local && !takes_part_across(coll)))
		return SRT_OK;
	stage = copy_stage(coll, is_local);
	return create_stage(coll, &stage, &s->stages[2 * s->npieces + is_local]);
}

static size_t count_pieces(const srt_coll_t *coll)
{
	size_t most = 0;

	if (!coll->algorithm->reduces)
		return 0;
	for (int r = 0; r < coll->comm->size; r++)
		most = coll->owner[r].nbytes > most ? coll->owner[r].nbytes : most;
	most /= coll->elem_nbytes;
	return most > 0 ? (most - 1) / piece_nelem(coll->comm->hierarchy) + 1 : 1;
}

/* Allocates the table of stages, and the memory of sums. */
static srt_status_t alloc_stages(srt_coll_t *coll, bool sums_to_result)
{
	const uint32_t npieces = (uint32_t)count_pieces(coll);
	const uint32_t nstages = 2 * (npieces + copies(coll));
	srt_stages_t *s = srt_calloc(1, sizeof(*s) + nstages * sizeof(*s->stages), "a collective");

	if (s == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	s->npieces = npieces;
	s->nstages = nstages;
	s->sums_to_result = sums_to_result;
	coll->transport_data = s;
	return npieces > 0 ? srt_hierarchy_acquire_sums(coll->comm) : SRT_OK;
}

/* What a rank tells the others of its description. */
enum {
	READABLE = 1,    /* the other ranks of the node can read full, as all local stages do */
	HAS_SHARD = 2,   /* of a reduce-scatter */
	FLOAT_SHARD = 4, /* and it is of floats */
};

static uint64_t get_connect_info(const srt_comm_t *comm, const srt_coll_desc_t *desc)
{
	const srt_buffer_t *full = desc->full.buffer;
	uint64_t info = 0;

	if (full == NULL || full->nbytes == 0 || !srt_comm_zero_copy(comm->hierarchy->local) ||
	    (full->kind == SRT_MEM_PEER && !full->imported))
		info |= READABLE;
	if (desc->kind == SRT_COLL_REDUCE_SCATTER && desc->shard.buffer != NULL)
		info |= desc->shard.dtype == SRT_F32 ? HAS_SHARD | FLOAT_SHARD : HAS_SHARD;
	return info;
}

/* Whether the ranks can run it in stages: their shards, of ranks that have one, are of one dtype,
 * as the dtype decides what the stages are. Sets *sums_to_result. */
static bool can_stage(const srt_coll_t *coll, const uint64_t *peer_info, bool *sums_to_result)
{
	uint64_t first = 0;

	for (int r = 0; r < coll->comm->size; r++) {
		const uint64_t info = peer_info[r] & (HAS_SHARD | FLOAT_SHARD);

		if ((peer_info[r] & READABLE) == 0 || (first != 0 && info != 0 && info != first))
			return false;
		first = first != 0 ? first : info;
	}
	*sums_to_result = coll->dtype == SRT_F32 || (first & FLOAT_SHARD) != 0;
	return count_pieces(coll) <= MAX_PIECES;
}

static srt_status_t connect_stages(srt_coll_t *coll, const char *what, const uint64_t *peer_info)
{
	srt_comm_t *comm = coll->comm;
	srt_status_t status;
	bool sums_to_result;

	if (!can_stage(coll, peer_info, &sums_to_result)) {
		coll->transport = comm->transport;
		return coll->transport->connect(coll, what, peer_info);
	}
	status = alloc_stages(coll, sums_to_result);
	SRT_TRY(srt_comm_status_consensus(comm, what, status));
	status = create_stages(coll, true);
	SRT_TRY(srt_comm_status_consensus(comm, what, status));
	return create_stages(coll, false);
}

static void disconnect_stages(srt_coll_t *coll)
{
	srt_stages_t *s = coll->transport_data;

	if (s == NULL)
		return;
	for (uint32_t i = 0; i < s->nstages; i++)
		srt_coll_destroy(s->stages[i]);
	if (s->npieces > 0)
		srt_hierarchy_release_sums(coll->comm->hierarchy);
	free(s);
}

static void close_stages(srt_coll_t *coll, const char *what)
{
	const srt_stages_t *s = coll->transport_data;

	for (uint32_t i = 0; s != NULL && i < s->nstages; i++)
		srt_coll_close(s->stages[i], what);
}

/* ---- starts ---------------------------------------------------------------------------------- */

/* Rounds this rank's sums of a piece, in `partial`, to the result, with the epilogue. */
static srt_status_t finish_piece(const srt_coll_t *coll, uint32_t piece,
				 const srt_coll_epilogue_t *epilogue, srt_stream_t *stream)
{
	const srt_hierarchy_t *h = coll->comm->hierarchy;
	const stage_t stage = sum_stage(coll, piece, false);
	const bool in_full = coll->kind == SRT_COLL_ALL_REDUCE;
	const srt_view_t *to = in_full ? &coll->full : &coll->shard;
	srt_chunk_iter_t iter = { 0 };
	part_t part;

	while (next_part(coll, &coll->owner[coll->comm->rank], stage.begin, stage.end, &iter,
			 &part)) {
		const size_t at = in_full ? part.full_offset : part.shard_offset;
		const srt_view_t dst = srt_view_at(to, at * coll->elem_nbytes);
		const srt_view_t sum =
			srt_view(h->partial,
				 offset_in(h, IN_PARTIAL, &part, node_of(h)) * sizeof(float),
				 SRT_F32);

		SRT_TRY(srt_step_epilogue(coll->dtype, &dst, &sum, part.nelem, epilogue, stream));
	}
	return SRT_OK;
}

/* The first stage of a sum divides before it, the last one after it. */
static srt_status_t start_sums(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			       srt_stream_t *stream)
{
	const srt_coll_t *coll = start->coll;
	const srt_stages_t *s = coll->transport_data;
	srt_event_t *done = coll->comm->hierarchy->done;
	srt_coll_epilogue_t first = SRT_COLL_EPILOGUE_INIT, last = SRT_COLL_EPILOGUE_INIT;

	if (epilogue != NULL) {
		last = *epilogue;
		last.predivisor = 1.0f;
		first.predivisor = epilogue->predivisor;
	}
	SRT_TRY(srt_stream_wait_event(stream, done));
	for (uint32_t p = 0; p < s->npieces; p++) {
		srt_coll_t *across = s->stages[2 * p + 1];
		const bool is_result = s->sums_to_result;

		SRT_TRY(srt_coll_start_stage(start, s->stages[2 * p], &first, stream));
		SRT_TRY(srt_coll_start_stage(start, across, is_result ? &last : NULL, stream));
		if (!is_result)
			SRT_TRY(finish_piece(coll, p, &last, stream));
		/* The next piece overwrites what was sent. */
		SRT_TRY(srt_coll_wait_readers(across, stream));
	}
	return srt_event_record(done, stream);
}

/* Peers on the node read full, which the program does not know: it may write to it afterwards. */
static srt_status_t start_copies(srt_coll_start_t *start, srt_stream_t *stream)
{
	const srt_stages_t *s = start->coll->transport_data;
	srt_coll_t *across = s->stages[2 * s->npieces];
	srt_coll_t *local = s->stages[2 * s->npieces + 1];

	if (across != NULL)
		SRT_TRY(srt_coll_start_stage(start, across, NULL, stream));
	SRT_TRY(srt_coll_start_stage(start, local, NULL, stream));
	return srt_coll_wait_readers(local, stream);
}

static srt_status_t start_stages(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				 srt_stream_t *stream)
{
	const srt_stages_t *s = start->coll->transport_data;

	if (s->npieces > 0)
		SRT_TRY(start_sums(start, epilogue, stream));
	return copies(start->coll) ? start_copies(start, stream) : SRT_OK;
}

static srt_status_t wait_readers(srt_coll_start_t *start, srt_stream_t *stream)
{
	const srt_stages_t *s = start->coll->transport_data;

	for (uint32_t i = 0; i < s->nstages; i++) {
		if (s->stages[i] != NULL)
			SRT_TRY(srt_coll_wait_readers(s->stages[i], stream));
	}
	return SRT_OK;
}

/* It has no rounds: those of its stages are theirs. */
static size_t get_round_nbytes(const srt_coll_t *coll, srt_phase_t phase)
{
	(void)coll;
	(void)phase;
	return SIZE_MAX;
}

const srt_transport_t srt_transport_hierarchical = {
	.name = "hierarchical",
	.spans_nodes = true,
	.runs_stages = true,
	.plan = srt_hierarchy_plan,
	.connect_info = get_connect_info,
	.connect = connect_stages,
	.disconnect = disconnect_stages,
	.close = close_stages,
	.start = start_stages,
	.wait_readers = wait_readers,
	.round_nbytes = get_round_nbytes,
};
