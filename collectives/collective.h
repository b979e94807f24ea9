/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside of a collective, and the two tables that it is made of: an algorithm (who needs what of
 * whom, and what is done with it) and a transport (how a rank gets at a peer's bytes).
 *
 * An algorithm is one or two flows. A flow runs in rounds: each rank offers its part of the round,
 * waits for those whose part it wants, takes what it wants, releases (srt_step_flows()); how it is
 * taken is all that algorithms differ in. Transports:
 *
 *     zero copy  each flow is one round. A source buffer is mapped by the peers; to offer is to
 *                publish it, and the device reads the peers' memory.
 *     staged     where a device has no memory that peers can map. Each round moves a piece that
 *                fits a slot of the rank's staging memory: to offer is to copy the piece there.
 *                Two slots, so that the copies of one round run while peers read the last one.
 *     nccl       NCCL moves the bytes (transports/nccl/): sends
 *                and receives that it puts on a stream, and no host functions.
 *
 * All steps are put on the stream: device work, and host functions that set words in shared memory
 * and wait for those of the peers. So a start is ordered with everything else on the stream, of
 * whatever kind the stream is. Words count rounds over all starts ("ticks").
 */
#ifndef SRT_COLLECTIVES_COLLECTIVE_H
#define SRT_COLLECTIVES_COLLECTIVE_H

#include "collectives/comm.h"
#include "collectives/shm/control.h"
#include "collectives/transports/staged/staging.h"
#include "collectives/transports/nccl/nccl.h"

/* Starts of one collective that may be under way at a time; more wait for the oldest. Fewer where
 * one has very many rounds. */
#define SRT_COLL_NSTARTS 16u
#define SRT_COLL_MIN_STARTS 2u

/* A run of bytes that one rank owns; neighbours that touch on both sides are one run. */
typedef struct srt_run {
	size_t full_offset, shard_offset; /* bytes from the views */
	size_t nbytes;
} srt_run_t;

/* What a rank owns. The extents are of all runs together, from the views. */
typedef struct srt_runs {
	const srt_run_t *runs;
	size_t nruns;
	size_t nbytes;
	size_t full_begin, full_end;
	size_t shard_begin, shard_end;
} srt_runs_t;

typedef struct srt_coll_start srt_coll_start_t;

/* What a host function of a start can do. */
typedef enum srt_action {
	SRT_ACTION_RELEASE, /* says that this rank has read */
	SRT_ACTION_CLAIM,   /* staged: waits until the round's slot is free */
	SRT_ACTION_PUBLISH, /* says that this rank's part is complete */
	SRT_ACTION_AWAIT,   /* waits for the parts of those that this rank reads */
	SRT_NACTIONS,
} srt_action_t;

/* What one of them does, in this order: by action 1 + the round, 0 = not at all. */
typedef struct srt_coll_point {
	srt_coll_start_t *start;
	uint32_t round[SRT_NACTIONS];
} srt_coll_point_t;

/* One start under way. */
struct srt_coll_start {
	srt_coll_t *coll;
	uint32_t epoch;           /* start of this collective, from 1 */
	uint32_t number;          /* start of the communicator */
	uint32_t lane_tick;       /* staged: ticks of the lane before this start */
	atomic_uint npending;     /* host functions on streams that still refer to this */
	srt_coll_point_t *points; /* [coll->npoints] */
	uint32_t npoints;         /* used; the last one may not be on the stream yet */
	bool is_open;             /* ... and is not */
};

/* Whose bytes go to whom. */
typedef enum srt_flow {
	SRT_FLOW_GATHER,  /* each owner's runs, to everybody */
	SRT_FLOW_SCATTER, /* of everybody's full, each owner's runs to the owner */
	SRT_FLOW_SIGNAL,  /* nothing: everybody waits for everybody */
	SRT_FLOW_PAIRS,   /* of everybody's full, what is for each, to its shard */
} srt_flow_t;

#define SRT_MAX_FLOWS 2

/* async. Takes what the peers offer in the round, which is there. */
typedef srt_status_t srt_take_fn(srt_coll_start_t *start, uint32_t round,
				 const srt_coll_epilogue_t *epilogue, srt_stream_t *stream);

typedef struct srt_coll_algorithm {
	const char *name; /* "all-gather", for messages */
	bool reduces;     /* takes an epilogue, needs a floating-point dtype */
	bool has_buffers; /* false: a barrier */
	bool has_root;    /* the root alone owns what is moved */
	bool has_pairs;   /* messages from rank to rank; nobody owns anything */
	/* The buffer that is offered to peers. */
	enum { SRT_SOURCE_NONE, SRT_SOURCE_FULL, SRT_SOURCE_SHARD } source;
	srt_flow_t flows[SRT_MAX_FLOWS];
	srt_take_fn *take[SRT_MAX_FLOWS]; /* NULL: nothing is taken or released */
	int nflows;
} srt_coll_algorithm_t;

/* Bytes of a run that one round moves; a run may be cut by rounds. */
typedef struct srt_piece {
	size_t full_offset, shard_offset; /* bytes from the views */
	size_t at; /* bytes from the start of the owner's part of the round */
	size_t nbytes;
} srt_piece_t;

/* How ranks get at each other's bytes. A communicator has one; NULL slots have nothing to do. */
struct srt_transport {
	const char *name;
	bool maps_sources; /* peers read sources where they lie, so these must be SRT_MEM_PEER */
	/* Seconds that a start on a failed device waits for news of a death, the likely reason. */
	double grace_s;

	/* ---- of a communicator */
	/* Collective: makes what it needs. May choose another transport instead. */
	srt_status_t (*create)(srt_comm_t *comm);
	/* Also of a communicator that could not be created. */
	void (*destroy)(srt_comm_t *comm);
	/* Adds what collectives need of it, with more than one rank. sums: some of them sum. */
	void (*plan)(int nranks, bool sums, srt_coll_memory_t *memory);

	/* ---- of a collective */
	/* What this rank's peers must know to connect. */
	uint64_t (*tell)(const srt_comm_t *comm, const srt_coll_desc_t *desc);
	/* Collective: makes what the collective needs, on all ranks or on none. told[r]: by rank r.
	 * Only called with more than one rank. */
	srt_status_t (*connect)(srt_coll_t *coll, const char *what, const uint64_t *told);
	/* Local. Waits where work may still use the collective's memory. Also of a collective that
	 * is not connected. */
	void (*disconnect)(srt_coll_t *coll);

	/* ---- of a start */
	/* Tells the other ranks what is started, also where that moves no bytes. NULL: the log is
	 * enough. */
	srt_status_t (*announce)(const srt_coll_start_t *start);
	/* async. Puts all of a start on the stream. */
	srt_status_t (*start)(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			      srt_stream_t *stream);
	/* async. Waits for all who read this rank's source in the start. */
	srt_status_t (*fence)(srt_coll_start_t *start, srt_stream_t *stream);
	/* A start has failed, and has poisoned the communicator. */
	void (*give_up)(const srt_coll_t *coll);

	/* ---- of a round; all async. Only called with more than one rank. */
	/* Bytes of each owner that one round of the flow moves. */
	size_t (*round_nbytes)(const srt_coll_t *coll, srt_flow_t flow);
	/* Makes this rank's part of the round complete for peers when it publishes. */
	srt_status_t (*offer)(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream);
	/* After waiting for the peer: its part of the round is where locate() says. */
	srt_status_t (*acquire)(srt_coll_start_t *start, uint32_t round, int peer,
				srt_stream_t *stream);
	srt_view_t (*locate)(const srt_coll_start_t *start, uint32_t round, int peer,
			     const srt_piece_t *piece);
};

extern const srt_transport_t srt_transport_zero_copy, srt_transport_staged, srt_transport_nccl;

struct srt_coll {
	struct srt_coll *next; /* in comm->colls */
	srt_comm_t *comm;
	const srt_coll_algorithm_t *algorithm;
	const srt_transport_t *transport;
	srt_coll_kind_t kind;
	char *name;
	uint32_t id; /* the same on all ranks, from 1 */
	srt_dtype_t dtype;
	size_t elem_nbytes;
	int root;
	srt_view_t full, shard;
	srt_runs_t *owner;    /* [size]; one allocation with its runs */
	srt_runs_t *out, *in; /* [size] messages to and from each rank, likewise; or NULL */
	size_t most_pair;     /* bytes of the messages between any two ranks, at most */
	srt_export_t *own;
	srt_import_t **imports; /* [size] */
	srt_view_t *source;     /* [size] every rank's source, mapped here; buffer NULL = none */
	srt_buffer_t *scratch;  /* partial sums of more than 8 ranks, or NULL */
	srt_lane_t *lane;       /* staged: where its rounds run, or NULL */
	srt_nccl_t *nccl;       /* with srt_transport_nccl, or NULL */
	bool *uniform;          /* nccl: by place of a run, see srt_nccl_alike() */
	bool nccl_sums;         /* nccl: its sum is taken */
	uint32_t turn;          /* nccl: number of the last start's */
	srt_shm_memory_t *memory;
	srt_shm_word_t *words; /* [size][SRT_SHM_NWORDS] or NULL for a single rank */
	uint32_t flow_begin[SRT_MAX_FLOWS + 1]; /* rounds; [nflows] = all of a start */
	uint32_t nrounds;
	uint32_t epoch; /* of the last start */
	uint32_t nstarts;
	srt_coll_start_t *starts; /* [nstarts] */
	uint32_t npoints;         /* of a start, at most */
	srt_coll_point_t *points; /* [nstarts][npoints] */
};

extern const srt_coll_algorithm_t srt_coll_all_gather, srt_coll_reduce_scatter, srt_coll_all_reduce,
	srt_coll_broadcast, srt_coll_barrier, srt_coll_all_to_all, srt_coll_send_recv;

/* The table's entry or NULL. */
const srt_coll_algorithm_t *srt_coll_algorithm(srt_coll_kind_t kind);

static inline bool srt_coll_owns(const srt_coll_t *coll, int rank)
{
	return coll->owner[rank].nruns > 0;
}

static inline srt_shm_word_t *srt_coll_word(const srt_coll_t *coll, int rank, srt_shm_word_id_t id)
{
	return &coll->words[(size_t)rank * SRT_SHM_NWORDS + id];
}

/* Whether `reader` reads what `owner` offers in the flow (two different ranks). */
static inline bool srt_flow_reads(const srt_coll_t *coll, srt_flow_t flow, int reader, int owner)
{
	if (flow == SRT_FLOW_SIGNAL)
		return true;
	if (flow == SRT_FLOW_PAIRS) /* one of the two is this rank */
		return (owner == coll->comm->rank ? coll->out[reader] : coll->in[owner]).nruns > 0;
	return srt_coll_owns(coll, flow == SRT_FLOW_GATHER ? owner : reader);
}

/* The same in any flow that moves bytes. */
bool srt_coll_reads(const srt_coll_t *coll, int reader, int owner);

/* The flow that a round belongs to: its place in the algorithm, and what it is. */
static inline int srt_coll_flow_of(const srt_coll_t *coll, uint32_t round)
{
	return coll->algorithm->nflows > 1 && round >= coll->flow_begin[1];
}

static inline srt_flow_t srt_coll_flow(const srt_coll_t *coll, uint32_t round)
{
	return coll->algorithm->flows[srt_coll_flow_of(coll, round)];
}

/* What `peer` has for this rank in a flow. */
static inline const srt_runs_t *srt_coll_incoming(const srt_coll_t *coll, srt_flow_t flow, int peer)
{
	if (flow == SRT_FLOW_PAIRS)
		return &coll->in[peer];
	return &coll->owner[flow == SRT_FLOW_GATHER ? peer : coll->comm->rank];
}

/* What this rank has for `peer`. */
static inline const srt_runs_t *srt_coll_outgoing(const srt_coll_t *coll, srt_flow_t flow, int peer)
{
	if (flow == SRT_FLOW_PAIRS)
		return &coll->out[peer];
	return &coll->owner[flow == SRT_FLOW_GATHER ? coll->comm->rank : peer];
}

/* ---- coll.c ------------------------------------------------------------------------------ */

/* Adds a run behind `last` (NULL: the first) or, where they touch on both sides, to it; a new one
 * is written to *free. Returns the last one. */
srt_run_t *srt_runs_add(srt_runs_t *runs, srt_run_t *last, srt_run_t *free, const srt_run_t *next);

/* ---- messages.c -------------------------------------------------------------------------- */

/* The messages of a description, for all ranks alike; to be freed. Ranks are checked, no more. */
srt_status_t srt_coll_messages(const srt_comm_t *comm, const srt_coll_desc_t *desc,
			       srt_coll_message_t **messages, size_t *nmessages);
/* Sets out, in and most_pair. */
srt_status_t srt_coll_keep_messages(srt_coll_t *coll, const srt_coll_desc_t *desc);

/* ---- check.c: the collective as all ranks must describe it --------------------------------- */

/* This rank's description by itself: sizes, views, dtype. */
srt_status_t srt_coll_validate(const srt_comm_t *comm, const srt_coll_desc_t *desc);
/*
 * Collective: takes this rank's verdict on its own description and compares all of them. On success
 * told[r] is what rank r's transport tells.
 */
srt_status_t srt_coll_compare(srt_comm_t *comm, const srt_coll_desc_t *desc, srt_status_t status,
			      uint64_t *told);

/* ---- shm/flags.c: the host functions of a start, and what they wait for --------------------- */

/* Notes what the next host function does. It goes on the stream before the next device work
 * (srt_point_put) or together with what comes after it. */
srt_status_t srt_point_add(srt_coll_start_t *start, srt_action_t action, uint32_t round,
			   srt_stream_t *stream);
/* Puts what has been noted on the stream. Before any device work, and at the end of a start. */
srt_status_t srt_point_put(srt_coll_start_t *start, srt_stream_t *stream);
/* Puts the wait for all who read this rank's source in the start. */
srt_status_t srt_point_fence(srt_coll_start_t *start, srt_stream_t *stream);
/* Whether a rank has started another collective there, as far as they have said; poisons. */
bool srt_point_disagrees(const srt_coll_start_t *start);
/* Waits until all ranks' word is there, as a host function would. */
srt_status_t srt_point_wait_all(const srt_coll_start_t *start, srt_shm_word_t *words,
				srt_shm_word_id_t id, uint32_t value);

/* ---- algorithms/steps.c: what algorithms are made of; all async, in the stream's order --- */

/* All flows of a start. */
srt_status_t srt_step_flows(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			    srt_stream_t *stream);

/* A flow whose bytes are copied to their places: what is gathered, in full; messages, in shard. The
 * first round also copies this rank's own part, where the source is the other one of the two. */
srt_take_fn srt_step_copy_round;
/* Copies under way: what follows on both sides becomes one. Begin with {0}, end with
 * srt_step_copy_end(). */
typedef struct srt_step_copies {
	srt_view_t dst, src;
	size_t nbytes;
} srt_step_copies_t;
/* Copies between two views that do not overlap, after what has been noted. */
srt_status_t srt_step_copy(srt_coll_start_t *start, srt_step_copies_t *copies, srt_view_t dst,
			   srt_view_t src, size_t nbytes, srt_stream_t *stream);
srt_status_t srt_step_copy_end(srt_coll_start_t *start, srt_step_copies_t *copies,
			       srt_stream_t *stream);

/* The pieces of `owner`'s runs that the round moves, one after the other; begin with *at = {0}. */
typedef struct srt_piece_at {
	size_t run;  /* the next one */
	size_t base; /* bytes of the owner before it */
} srt_piece_at_t;
bool srt_piece_next(const srt_coll_t *coll, uint32_t round, int owner, srt_piece_at_t *at,
		    srt_piece_t *piece);
/* Bytes of `owner` that the round moves. */
size_t srt_piece_nbytes(const srt_coll_t *coll, uint32_t round, int owner);
/* The same of any runs, as those of a pair of ranks. */
bool srt_piece_next_of(const srt_coll_t *coll, uint32_t round, const srt_runs_t *runs,
		       srt_piece_at_t *at, srt_piece_t *piece);
size_t srt_piece_nbytes_of(const srt_coll_t *coll, uint32_t round, const srt_runs_t *runs);

/* ---- algorithms/tree_sum.c --------------------------------------------------------------- */

/* A flow that is summed: the tree sum of all ranks' full over what this rank owns of the round, to
 * its shard or, of an all-reduce, in place. */
srt_take_fn srt_step_reduce_round;
/* Bytes of scratch that srt_step_reduce_round() needs for so many ranks. */
size_t srt_step_reduce_scratch(int nranks);
/* dst = in, which is the sum of all ranks, through the epilogue; also in place. SRT_F32. */
srt_status_t srt_step_epilogue(const srt_view_t *dst, const srt_view_t *in, size_t nelem,
			       const srt_coll_epilogue_t *epilogue, srt_stream_t *stream);

static inline srt_view_t srt_view_at(const srt_view_t *view, size_t nbytes)
{
	return srt_view(view->buffer, view->offset + nbytes, view->dtype);
}

#endif
