/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internals of a collective. A collective combines two tables: an algorithm (which rank needs which
 * bytes of which rank, and what it does with them) and a transport (how a rank accesses a peer's
 * bytes).
 *
 * An algorithm has one or two phases. A phase runs in rounds. In each round a rank offers its part,
 * waits for the parts that it reads, consumes them (copies or sums) and releases them. Algorithms
 * differ in the bytes that a phase moves and in the function that consumes them. Transports:
 *
 *     zero copy  Peers map the source buffers, and the device reads the peers' memory, or writes
 *                the sums of an all-reduce there. A phase is one round, and to offer a source is to
 *                publish it.
 *     staged     For devices whose memory peers cannot map. A round moves a chunk that fits a slot
 *                of the rank's bounce buffers; to offer a chunk is to copy it to the slot. There
 *                are two slots: the copies of one round run while peers read the slot of the round
 *                before it.
 *     nccl       NCCL moves the bytes (transports/nccl/) on a stream of the communicator, without
 *                host functions.
 *     ucx        Messages by UCX (transports/ucx/), for ranks on several nodes.
 *     hierarchical  Collectives of two smaller communicators, one after the other
 *                (transports/hierarchy/): some kinds, with ucx.
 *
 * All steps are submitted to the stream: device work, and host functions that set flags in shared
 * memory and wait for the peers' flags, or with ucx send and receive. So a start is ordered with
 * all other work on the stream. A flag's value is a sequence number: it counts rounds over all
 * starts.
 */
#ifndef SRT_COLLECTIVES_COLLECTIVE_H
#define SRT_COLLECTIVES_COLLECTIVE_H

#include "collectives/comm.h"
#include "collectives/flight/flight.h"
#include "collectives/shm/control.h"

/* Starts of one collective that may be in flight at a time; a further start waits for the oldest.
 * Fewer for a collective of very many rounds. */
#define SRT_COLL_NSTARTS 16u
#define SRT_COLL_MIN_STARTS 2u

/* Contiguous bytes that one rank owns. Neighbours that are adjacent in full and in shard are merged
 * into one extent. */
typedef struct srt_extent {
	size_t full_offset, shard_offset; /* bytes from the views */
	size_t nbytes;
} srt_extent_t;

/* All extents of a rank, or of a pair of ranks. The bounds enclose all of them. */
typedef struct srt_extents {
	const srt_extent_t *extents;
	size_t nextents;
	size_t nbytes;
	size_t full_begin, full_end;
	size_t shard_begin, shard_end;
} srt_extents_t;

typedef struct srt_coll_start srt_coll_start_t;

/* Actions of a host step. */
typedef enum srt_action {
	SRT_ACTION_RELEASE, /* this rank has read its peers' parts: sets the flag */
	SRT_ACTION_CLAIM,   /* staged, ucx: waits until the round's slot is free */
	SRT_ACTION_PUBLISH, /* this rank's part is complete: sets the flag; ucx: sends it */
	SRT_ACTION_AWAIT,   /* waits for the parts of the ranks that this rank reads */
	SRT_NACTIONS,
	SRT_ACTION_READERS = SRT_NACTIONS, /* of no host step: srt_host_step_wait_readers() */
} srt_action_t;

/* One host function of a start. It runs its actions in the order of srt_action_t. */
typedef struct srt_host_step {
	srt_coll_start_t *start;
	uint32_t round[SRT_NACTIONS]; /* by action: 1 + the round, 0 = the action is not run */
} srt_host_step_t;

/* One start in flight. */
struct srt_coll_start {
	srt_coll_t *coll;
	uint32_t epoch;          /* number of the start of this collective, from 1, modulo 2^32 */
	uint32_t number;         /* number of the start on the communicator */
	uint32_t slot_seqno;     /* staged, ucx: rounds of the slots before this start */
	uint32_t flight;         /* its index in the flight recorder */
	srt_coll_start_t *whole; /* of a stage: the start that it is a part of; or NULL */
	/* Host functions on streams, messages, and the call that submits it, that refer to this. */
	atomic_uint npending;
	srt_host_step_t *host_steps; /* [coll->nhost_steps] */
	uint32_t nhost_steps;        /* in use */
	bool is_open;                /* the last host step is not on the stream yet */
	void *transport_data;        /* [transport->start_nbytes] */
};

/* Which bytes a phase moves. */
typedef enum srt_phase {
	SRT_PHASE_GATHER,  /* each owner's extents, to all ranks */
	SRT_PHASE_SCATTER, /* of all ranks' full, each owner's extents to the owner */
	SRT_PHASE_SIGNAL,  /* no bytes: every rank waits for all ranks */
	SRT_PHASE_PAIRS,   /* of all ranks' full, the messages to each rank, to its shard */
} srt_phase_t;

#define SRT_MAX_PHASES 2

/* async. Consumes the peers' parts of the round, which are complete. */
typedef srt_status_t srt_consume_fn(srt_coll_start_t *start, uint32_t round,
				    const srt_coll_epilogue_t *epilogue, srt_stream_t *stream);

typedef struct srt_coll_algorithm {
	const char *name; /* "all-gather", for messages */
	bool reduces;     /* takes an epilogue, needs a floating-point dtype */
	bool has_buffers; /* false: a barrier */
	bool has_root;    /* only the root's extents are moved */
	bool has_pairs;   /* messages from rank to rank; there are no owners */
	/* The buffer that is offered to peers. */
	enum { SRT_SOURCE_NONE, SRT_SOURCE_FULL, SRT_SOURCE_SHARD } source;
	srt_phase_t phases[SRT_MAX_PHASES];
	srt_consume_fn *consume[SRT_MAX_PHASES]; /* NULL: nothing is consumed or released */
	int nphases;
} srt_coll_algorithm_t;

/* Bytes of an extent that one round moves. A round may cut an extent. */
typedef struct srt_chunk {
	size_t full_offset, shard_offset; /* bytes from the views */
	size_t at; /* bytes from the start of the owner's part of the round */
	size_t nbytes;
} srt_chunk_t;

/* How ranks access each other's bytes. A communicator has one transport. A slot may be NULL: there
 * is nothing to do. */
struct srt_transport {
	const char *name;
	bool maps_sources; /* peers access the sources themselves, which must be SRT_MEM_PEER */
	bool spans_nodes;  /* its ranks need not share memory: there are no flags */
	bool world_only;   /* it serves no communicator but the world */
	/* The transport records the end of a start by srt_flight_end(). Else a start ends with its
	 * last host function. */
	bool records_ends;
	/* A collective is run as stages, which are other collectives and have the rounds. */
	bool runs_stages;
	/* Seconds that a failed start waits for the news that a rank has died: the likely cause. */
	double grace_s;
	/* Bytes of the transport_data of a start; zeros when the collective is created. */
	size_t start_nbytes;

	/* ---- the choice of a communicator's transport (transports/table.c) */
	/* Adds what the choice has to know of this rank's device. */
	void (*describe)(const srt_comm_t *world, struct srt_capabilities *mine);
	/* Local. Sets *is_chosen if the ranks, more than one, use this transport: a function of
	 * their capabilities, so the same on all of them. NULL: they do. */
	srt_status_t (*choose)(const srt_comm_t *comm, bool *is_chosen);
	/* Logs why it was chosen. */
	void (*log_choice)(const srt_comm_t *comm);

	/* ---- of a communicator */
	/* Collective: creates comm->transport_data. May choose another transport instead. */
	srt_status_t (*create)(srt_comm_t *comm);
	/* Also called for a communicator whose creation failed: transport_data may be NULL. */
	void (*destroy)(srt_comm_t *comm);
	/* Adds the memory that its collectives need on comm->rank, with more than one rank. Of the
	 * communicator only what describes it is set: it may not exist yet (plan.c). */
	srt_status_t (*plan)(const srt_comm_t *comm, const srt_coll_uses_t *uses,
			     srt_coll_memory_t *memory);

	/* ---- of a collective */
	/* What this rank's peers must know to connect: their peer_info[] of this rank. */
	uint64_t (*connect_info)(const srt_comm_t *comm, const srt_coll_desc_t *desc);
	/* Collective: creates coll->transport_data. Only called with more than one rank. The result
	 * is the status of this rank, and the caller makes it one of all ranks, or with
	 * connects_all already that of all ranks. */
	bool connects_all;
	srt_status_t (*connect)(srt_coll_t *coll, const char *what, const uint64_t *peer_info);
	/* Local. Waits for work that may still use the collective's memory. Also called for a
	 * collective that is not connected: transport_data is NULL. */
	void (*disconnect)(srt_coll_t *coll);
	/* srt_coll_close() of its stages. */
	void (*close)(srt_coll_t *coll, const char *what);

	/* ---- of a start */
	/* Announces the start to the other ranks, also a start that moves no bytes. NULL: the entry
	 * in the log is sufficient. */
	srt_status_t (*announce)(const srt_coll_start_t *start);
	/* srt_start_order_compare() after receiving what other ranks tell of their starts. NULL, as
	 * the two below: the log of starts is in shared memory. */
	bool (*compare)(srt_comm_t *comm, uint32_t start);
	/* Tells other ranks that this rank waits in the start: the ranks of `part`, a part of the
	 * communicator's hierarchy, or with NULL those with which the start still has messages. */
	void (*tell)(const srt_coll_start_t *start, const srt_comm_t *part);
	/* Two ranks started different collectives under the number `start`. Whether this rank
	 * reports it: all ranks must report the same two. */
	bool (*may_report)(srt_comm_t *comm, uint32_t start, int one, int other);
	/* async. Submits all work of a start. */
	srt_status_t (*start)(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
			      srt_stream_t *stream);
	/* async. Waits for all ranks that read this rank's source in the start. */
	srt_status_t (*wait_readers)(srt_coll_start_t *start, srt_stream_t *stream);
	/* Waits a moment for the end of an earlier start, by making progress. NULL: sleep. */
	void (*await_start)(srt_coll_start_t *start);
	/* Called after a start has failed and the communicator is poisoned. */
	void (*abort_starts)(const srt_coll_t *coll);

	/* ---- of host steps, with more than one rank */
	/* Runs an action on the stream's thread; blocks. */
	srt_status_t (*run_action)(srt_coll_start_t *start, srt_action_t action, uint32_t round);
	/* Whether the action has nothing to do or to wait for. Does not block. */
	bool (*is_idle)(const srt_coll_start_t *start, srt_action_t action, uint32_t round);

	/* ---- of a round; all async. Only called with more than one rank. */
	/* Bytes of each owner that one round of the phase moves. */
	size_t (*round_nbytes)(const srt_coll_t *coll, srt_phase_t phase);
	/* Prepares this rank's part of the round, which is complete when this rank publishes. */
	srt_status_t (*offer)(srt_coll_start_t *start, uint32_t round, srt_stream_t *stream);
	/* Called after the wait for the peer: makes its part readable at locate(). */
	srt_status_t (*acquire)(srt_coll_start_t *start, uint32_t round, int peer,
				srt_stream_t *stream);
	srt_view_t (*locate)(const srt_coll_start_t *start, uint32_t round, int peer,
			     const srt_chunk_t *chunk);
	/* Whether the i-th of this rank's own extents is already in full, as the round moves it
	 * there too. */
	bool (*moves_own)(const srt_coll_t *coll, size_t i);
};

extern const srt_transport_t srt_transport_zero_copy, srt_transport_staged, srt_transport_nccl,
	srt_transport_ucx, srt_transport_hierarchical;

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
	srt_stream_set_t streams; /* of its starts and its waits for readers */
	/* Set when it, or the object that owns it, is being destroyed: a wait for other ranks then
	 * ends soon and poisons with this text, "rank 0 destroyed the engine". Written once. */
	atomic_bool is_closing;
	char closing_text[SRT_CONTROL_TEXT / 4];
	srt_extents_t *owner; /* [size]; one allocation with its extents */
	srt_extents_t *out,
		*in;       /* [size] messages to and from each rank; one allocation; or NULL */
	size_t most_pair;  /* most bytes of messages from one rank to one rank */
	size_t nbytes;     /* of all owners, or that this rank sends */
	srt_view_t source; /* this rank's part, which peers read; buffer NULL = none */
	/* Zero copy, an all-reduce: the owner of a segment writes its sum to all ranks' full. */
	bool pushes_sums;
	srt_buffer_t *scratch; /* partial sums of more than 8 ranks, or NULL */
	void *transport_data;  /* made by transport->connect, freed by disconnect; or NULL */
	/* Staged, ucx: rounds use slots in turn, so all are counted, also those in which this rank
	 * offers or reads nothing. */
	bool has_slots;
	srt_shm_memory_t *memory;
	srt_shm_flag_t *flags; /* [size][SRT_SHM_NFLAGS]; NULL for a single rank, and with ucx */
	uint32_t phase_begin[SRT_MAX_PHASES + 1]; /* rounds; [nphases] = all of a start */
	uint32_t nrounds;
	uint32_t epoch; /* of the last start, modulo 2^32 */
	bool has_started;
	uint32_t nstarts;
	srt_coll_start_t *starts;    /* [nstarts] */
	char *start_data;            /* [nstarts][transport->start_nbytes] */
	uint32_t nhost_steps;        /* of a start, at most */
	srt_host_step_t *host_steps; /* [nstarts][nhost_steps] */
};

extern const srt_coll_algorithm_t srt_coll_all_gather, srt_coll_reduce_scatter, srt_coll_all_reduce,
	srt_coll_broadcast, srt_coll_barrier, srt_coll_all_to_all, srt_coll_send_recv;

static inline bool srt_coll_owns(const srt_coll_t *coll, int rank)
{
	return coll->owner[rank].nextents > 0;
}

/* Whether `reader` reads what `owner` offers in the phase (two different ranks). */
static inline bool srt_phase_reads(const srt_coll_t *coll, srt_phase_t phase, int reader, int owner)
{
	if (phase == SRT_PHASE_SIGNAL)
		return true;
	if (phase == SRT_PHASE_PAIRS) /* one of the two is this rank */
		return (owner == coll->comm->rank ? coll->out[reader] : coll->in[owner]).nextents >
		       0;
	return srt_coll_owns(coll, phase == SRT_PHASE_GATHER ? owner : reader);
}

/* Index of the phase that a round belongs to. */
static inline int srt_coll_phase_index(const srt_coll_t *coll, uint32_t round)
{
	return coll->algorithm->nphases > 1 && round >= coll->phase_begin[1];
}

static inline srt_phase_t srt_coll_phase(const srt_coll_t *coll, uint32_t round)
{
	return coll->algorithm->phases[srt_coll_phase_index(coll, round)];
}

/* The extents that this rank reads of `peer` in a phase. */
static inline const srt_extents_t *srt_coll_incoming(const srt_coll_t *coll, srt_phase_t phase,
						     int peer)
{
	if (phase == SRT_PHASE_PAIRS)
		return &coll->in[peer];
	return &coll->owner[phase == SRT_PHASE_GATHER ? peer : coll->comm->rank];
}

/* The extents that `peer` reads of this rank in a phase. */
static inline const srt_extents_t *srt_coll_outgoing(const srt_coll_t *coll, srt_phase_t phase,
						     int peer)
{
	if (phase == SRT_PHASE_PAIRS)
		return &coll->out[peer];
	return &coll->owner[phase == SRT_PHASE_GATHER ? coll->comm->rank : peer];
}

/* ---- algorithms/table.c ------------------------------------------------------------------ */

/* The algorithm of a kind, NULL for an unknown kind. */
const srt_coll_algorithm_t *srt_coll_algorithm(srt_coll_kind_t kind);

/* ---- persistent/extents.c ---------------------------------------------------------------- */

/* Appends an extent, merging it into `last` (NULL: there is none) if it is adjacent in full and in
 * shard. A new extent is written to *free. Returns the last extent. */
srt_extent_t *srt_extents_append(srt_extents_t *extents, srt_extent_t *last, srt_extent_t *free,
				 const srt_extent_t *next);
/* Whether the i-th extents of all owners have one size, and follow each other in full in the order
 * of ranks. */
bool srt_extents_are_uniform(const srt_coll_t *coll, size_t i);
/* Whether `reader` reads bytes of `owner` in any phase (two different ranks). */
bool srt_coll_reads(const srt_coll_t *coll, int reader, int owner);

/* Iterates over the chunks of extents that a round moves; start with {0}. */
typedef struct srt_chunk_iter {
	size_t extent; /* the next one */
	size_t base;   /* bytes of the extents before it */
} srt_chunk_iter_t;
bool srt_chunk_next(const srt_coll_t *coll, uint32_t round, const srt_extents_t *extents,
		    srt_chunk_iter_t *iter, srt_chunk_t *chunk);
/* Bytes of the extents that the round moves. */
size_t srt_chunk_nbytes(const srt_coll_t *coll, uint32_t round, const srt_extents_t *extents);

/* ---- persistent/messages.c --------------------------------------------------------------- */

/* The message table of a description, the same on all ranks; freed by the caller. Checks the ranks
 * only. */
srt_status_t srt_coll_messages(const srt_comm_t *comm, const srt_coll_desc_t *desc,
			       srt_coll_message_t **messages, size_t *nmessages);
/* Sets coll->out, in and most_pair. */
srt_status_t srt_coll_store_messages(srt_coll_t *coll, const srt_coll_desc_t *desc);

/* ---- persistent/check.c: the description of a collective ---------------------------------- */

/* Checks this rank's description: sizes, views, dtype. */
srt_status_t srt_coll_validate(const srt_comm_t *comm, const srt_coll_desc_t *desc);
/*
 * Collective: verifies that all ranks have given the same description. `status` is the result of
 * this rank's own checks. On success peer_info[r] is the connect_info() of rank r.
 */
srt_status_t srt_coll_verify(srt_comm_t *comm, const srt_coll_desc_t *desc, srt_status_t status,
			     uint64_t *peer_info);

/* ---- persistent/start_order.c ------------------------------------------------------------- */

/* Logs that a rank has started collective `coll` as its start number `start`. */
void srt_start_log_write(const srt_comm_t *comm, int rank, uint32_t start, uint32_t coll);
/* The collective that a rank started under the number `start`. False if it did not start one as far
 * as this rank knows, or the log no longer has it. */
bool srt_start_log_read(const srt_comm_t *comm, int rank, uint32_t start, uint32_t *coll);
/* Whether the log shows that a rank started another collective under the number of this start.
 * Poisons the communicator. */
bool srt_start_order_differs(const srt_coll_start_t *start);
/* Compares the start with that number. */
bool srt_start_order_compare(srt_comm_t *comm, uint32_t number);

/* ---- transports/table.c ---------------------------------------------------------------------- */

/* The transport of the communicator's collectives of an algorithm. */
const srt_transport_t *srt_coll_transport(const srt_comm_t *comm,
					  const srt_coll_algorithm_t *algorithm);

/* ---- persistent/start.c ------------------------------------------------------------------- */

/* srt_coll_start() without its checks, of a stage of a start; whole NULL: of no other one. */
srt_status_t srt_coll_start_stage(srt_coll_start_t *whole, srt_coll_t *coll,
				  const srt_coll_epilogue_t *epilogue, srt_stream_t *stream);

/* For a host function that refers to the start: before it is submitted, and when it has ended or
 * will not run. `status`: how it ended. Also of the start that it is a stage of. */
void srt_coll_start_hold(srt_coll_start_t *start);
void srt_coll_start_release(srt_coll_start_t *start, srt_status_t status);

/* ---- persistent/host_step.c: the host functions of a start ----------------------------- */

/* Adds an action to the open host step, or to a new one. The host step is submitted before the next
 * device work. */
srt_status_t srt_host_step_add(srt_coll_start_t *start, srt_action_t action, uint32_t round,
			       srt_stream_t *stream);
/* Submits the open host step. Call before any device work, and at the end of a start. */
srt_status_t srt_host_step_submit(srt_coll_start_t *start, srt_stream_t *stream);
/* Submits a wait for all ranks that read this rank's source in the start. */
srt_status_t srt_host_step_wait_readers(srt_coll_start_t *start, srt_stream_t *stream);

/* ---- algorithms/steps.c: common parts of algorithms; all async, in the stream's order -------- */

/* Submits all phases of a start. */
srt_status_t srt_step_submit_phases(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				    srt_stream_t *stream);
/* Submits an all-reduce that pushes its sums: the ranks wait for their peers' sums, and copy
 * nothing. */
srt_status_t srt_step_submit_pushed(srt_coll_start_t *start, const srt_coll_epilogue_t *epilogue,
				    srt_stream_t *stream);

/* Consumes a round by copies: gathered bytes to full, messages to shard. The first round of a phase
 * also copies this rank's own part, unless that is there already. */
srt_consume_fn srt_step_copy_round;
/* Pending copies: copies that are adjacent in both buffers are merged into one. Start with {0}, end
 * with srt_step_copy_end(). */
typedef struct srt_step_copies {
	srt_view_t dst, src;
	size_t nbytes;
} srt_step_copies_t;
/* Copies between two views that do not overlap, after the open host step. */
srt_status_t srt_step_copy(srt_coll_start_t *start, srt_step_copies_t *copies, srt_view_t dst,
			   srt_view_t src, size_t nbytes, srt_stream_t *stream);
srt_status_t srt_step_copy_end(srt_coll_start_t *start, srt_step_copies_t *copies,
			       srt_stream_t *stream);
/* Copies the round's chunks of these extents from this rank's source to `slot`. */
srt_status_t srt_step_copy_out(srt_coll_start_t *start, uint32_t round,
			       const srt_extents_t *extents, srt_view_t slot, srt_stream_t *stream);

/* ---- algorithms/tree_sum.c --------------------------------------------------------------- */

/* Most ranks of a communicator that sums. */
#define SRT_SUM_MAX_RANKS 4096
/* Consumes a round by the tree sum of all ranks' full over this rank's own extents, to its shard
 * or, for an all-reduce, in place. */
srt_consume_fn srt_step_reduce_round;
/* Bytes of scratch that srt_step_reduce_round() needs with `nranks` ranks. */
size_t srt_step_reduce_scratch(int nranks);
/* dst = in, the sum of all ranks as floats, after the epilogue and rounded to the dtype; of floats
 * dst may be in. */
srt_status_t srt_step_epilogue(srt_dtype_t dtype, const srt_view_t *dst, const srt_view_t *in,
			       size_t nelem, const srt_coll_epilogue_t *epilogue,
			       srt_stream_t *stream);

static inline srt_view_t srt_view_at(const srt_view_t *view, size_t nbytes)
{
	return srt_view(view->buffer, view->offset + nbytes, view->dtype);
}

#endif
