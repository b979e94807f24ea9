/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Persistent collectives.
 *
 * A collective is described once, compared on all ranks of the communicator when it is made,
 * and then started as often as needed. Two views take part on each rank:
 *
 *     full    the whole layout, e.g. a unit's unsharded parameters or gradients
 *     shard   the part that this rank owns
 *
 * One table of segments, the same on every rank, says which elements of `full` each rank owns
 * and where they lie in that rank's `shard`:
 *
 *     all-gather       every owner's shard      -> everybody's full
 *     reduce-scatter   sum of everybody's full  -> the owner's shard
 *     all-reduce       sum of everybody's full  -> everybody's full (in place)
 *     broadcast        the root's full          -> everybody's full (the root's segments)
 *
 * Segments of different owners must not overlap. Two more kinds move messages, from places in a
 * rank's `full` to places in a rank's `shard`, which both kinds of views need no relation for:
 *
 *     all-to-all       a part of everybody's full -> everybody's shard, by a table of splits
 *     send-recv        a table of messages, each from one rank to one rank, all at once
 *
 * Their tables are the same on every rank too, also for messages between other ranks; a rank whose
 * part is empty starts them like the others. Buffers must outlive the collectives on them.
 * A wait that fails (a dead or missing rank, an abort, ranks that start different collectives)
 * poisons its communicator: the stream's failure names who, the collective and the unit, and all
 * later calls on the communicator return the same at once. Destroying it never blocks.
 *
 * Sums over ranks follow the tree of docs/numerics.md on every transport; in numerics mode fast
 * sums of floats may be in another order (of NCCL). 16-bit elements are added in
 * float, and the sum is rounded once, always.
 */
#ifndef SHARDRT_COLL_H
#define SHARDRT_COLL_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/context.h>
#include <shardrt/device.h>
#include <shardrt/dtype.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A persistent collective. Opaque. */
typedef struct srt_coll srt_coll_t;

/** What a collective does. */
typedef enum srt_coll_kind {
	SRT_COLL_ALL_GATHER,
	SRT_COLL_REDUCE_SCATTER,
	SRT_COLL_ALL_REDUCE,
	SRT_COLL_BROADCAST,
	SRT_COLL_BARRIER,
	SRT_COLL_ALL_TO_ALL,
	SRT_COLL_SEND_RECV,
} srt_coll_kind_t;

/** A run of elements that one rank owns. Offsets in elements of the collective's dtype. */
typedef struct srt_coll_segment {
	size_t full_offset;  /* from the view `full` */
	size_t shard_offset; /* from the view `shard` of the owner */
	size_t nelem;
} srt_coll_segment_t;

/** The segments that one rank owns; nsegments may be 0 (an empty shard). */
typedef struct srt_coll_owner {
	const srt_coll_segment_t *segments;
	size_t nsegments;
} srt_coll_owner_t;

/** A message of a send-recv. Ranks of the communicator; offsets in elements of the dtype. */
typedef struct srt_coll_message {
	int from, to;        /* may be the same rank: a copy there */
	size_t full_offset;  /* from the view `full` of the sender */
	size_t shard_offset; /* from the view `shard` of the receiver */
	size_t nelem;        /* may be 0 */
} srt_coll_message_t;

/** What a reduction does with the sum before it is stored. Zero-initialise for "just store". */
typedef struct srt_coll_epilogue {
	float divisor;    /* 0 or 1: none; else one IEEE division by it, after the sum */
	int accumulate;   /* 1: one separate add onto what the destination holds */
	float predivisor; /* 0 or 1: none; else each rank's part is divided by it before the sum */
} srt_coll_epilogue_t;

/**
 * What an average of gradients of a dtype over nranks divides by: pre before the sum, post after
 * it, for srt_coll_epilogue_t. SRT_F16: as PyTorch's FSDP, pre is the power of two that keeps
 * both the parts and the sum in range, pre * post = factor; other dtypes: 1 and factor, that is one
 * division of the sum. (PyTorch's first FSDP uses the factors of SRT_F16 for every dtype.)
 * @param factor what the sum is divided by in all; 0 = nranks. Positive and finite.
 * @param[out] pre,post set on success only.
 * Thread-safe.
 */
SRT_API srt_status_t srt_coll_divide_factors(srt_dtype_t dtype, int64_t nranks, float factor,
					     float *pre, float *post);

/**
 * Description of a collective; copied by srt_coll_create().
 *
 * All-to-all: splits[r * size + s] elements go from rank r to rank s (size ranks; 0 is allowed). In
 * r's `full` the parts lie one behind the other by s, from the view's begin, in s's `shard`
 * by r: as torch's all_to_all_single() with input and output splits. Without splits each part has
 * `split` elements.
 *
 * Send-recv: all messages of the table together, in no order; several may go between the same two
 * ranks. What one rank receives must not overlap (SRT_ERR_INVALID_ARGUMENT); what it sends may.
 *
 * In both `full` and `shard` must not overlap on a rank.
 */
typedef struct srt_coll_desc {
	srt_coll_kind_t kind;
	const char *name;                   /* of the unit or tensor, for errors */
	srt_dtype_t dtype;                  /* of both sides and of the wire */
	srt_view_t full;                    /* memory of srt_comm_mem_kind() where peers read it */
	srt_view_t shard;                   /* likewise; unused for all-reduce and broadcast */
	const srt_coll_owner_t *owners;     /* one per rank of the communicator; not for messages */
	int root;                           /* broadcast only */
	const size_t *splits;               /* all-to-all only: size * size, or NULL */
	size_t split;                       /* all-to-all without splits */
	const srt_coll_message_t *messages; /* send-recv only */
	size_t nmessages;
} srt_coll_desc_t;

/** Rank within the communicator. Thread-safe. */
SRT_API int srt_comm_rank(const srt_comm_t *comm);
/** Number of ranks of the communicator. Thread-safe. */
SRT_API int srt_comm_size(const srt_comm_t *comm);

/**
 * The kind of memory that a buffer must be made with which other ranks read in collectives of the
 * communicator: all-gather reads `shard`, the others `full`. SRT_MEM_PEER if the devices of all its
 * ranks have memory that peers can map; else the collectives are staged through host memory, and
 * any kind will do: SRT_MEM_DEVICE. The same on all ranks. Thread-safe.
 */
SRT_API srt_mem_kind_t srt_comm_mem_kind(const srt_comm_t *comm);

/**
 * Makes a communicator of some ranks of another one. Collective over `parent`: every rank calls
 * it, those outside the group get *comm = NULL.
 * @param ranks ranks of `parent`, rising, no duplicates; position = rank in the new one.
 * @param name copied, for messages.
 * @param[out] comm owned by the caller.
 */
SRT_API srt_status_t srt_comm_create_group(srt_comm_t *parent, const int *ranks, int nranks,
					   const char *name, srt_comm_t **comm);

/**
 * Frees a communicator made by srt_comm_create_group(). NULL is allowed. Blocks only where
 * collectives go by NCCL: a second at most for peers in their last one, and with
 * NCCL until all ranks have destroyed or aborted theirs.
 */
SRT_API void srt_comm_destroy(srt_comm_t *comm);

/**
 * Poisons the communicator: every pending and later wait on it returns SRT_ERR_ABORTED with
 * `reason`, on this rank at once and on the others as soon as they hear of it. Never blocks.
 * Callable from any thread at any time. NULL is allowed.
 */
SRT_API void srt_comm_abort(srt_comm_t *comm, const char *reason);

/** Exchanges small host data: rank r's nbytes land at recv + r*nbytes. Blocking, collective. */
SRT_API srt_status_t srt_comm_oob_allgather(srt_comm_t *comm, const void *send, size_t nbytes,
					    void *recv);

/**
 * Makes a collective. Collective over the communicator, in the same order on all its ranks;
 * kind, name, dtype and segments or messages are compared, and a difference is SRT_ERR_MISMATCH
 * with the same sentence on all ranks.
 * @param[out] coll owned by the caller, set on success only.
 */
SRT_API srt_status_t srt_coll_create(srt_comm_t *comm, const srt_coll_desc_t *desc,
				     srt_coll_t **coll);

/** Frees a collective whose starts have completed. Local, never blocks. NULL is allowed. */
SRT_API void srt_coll_destroy(srt_coll_t *coll);

/**
 * Puts the collective on a stream. Asynchronous; all ranks must start the same collectives of a
 * communicator in the same order. When the stream reaches its end, this rank's destination is
 * complete; its source may still be read by peers (srt_coll_wait_readers()).
 * @param epilogue of reductions; NULL = just store.
 */
SRT_API srt_status_t srt_coll_start(srt_coll_t *coll, const srt_coll_epilogue_t *epilogue,
				    srt_stream_t *stream);

/**
 * Makes the stream wait until peers have finished reading this rank's source buffer of the last
 * start. To be put before anything that overwrites it. Asynchronous.
 */
SRT_API srt_status_t srt_coll_wait_readers(srt_coll_t *coll, srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
