/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives: operations in which all ranks of a communicator exchange data.
 *
 * srt_all_reduce(), srt_all_gather(), srt_reduce_scatter() and srt_broadcast() are one call each,
 * on any memory, which they copy. The rest of this header is about persistent collectives, which
 * copy nothing that they need not.
 *
 * A collective is described once by srt_coll_create(), which verifies that all ranks describe the
 * same one. Then srt_coll_start() starts it as often as needed. It works on two views on each rank:
 *
 *     full    the whole layout, for example the unsharded parameters or gradients of a unit
 *     shard   the part of that layout that this rank owns
 *
 * A table of segments, the same on all ranks, defines which elements of `full` each rank owns and
 * their offsets in that rank's `shard`:
 *
 *     all-gather       each owner's shard            -> full of all ranks
 *     reduce-scatter   sum of full of all ranks      -> the owner's shard
 *     all-reduce       sum of full of all ranks      -> full of all ranks, in place
 *     broadcast        the root's segments of full   -> full of all ranks
 *     barrier          no data: each rank's stream waits for all ranks' streams
 *
 * In an all-gather and an all-reduce, segments of different owners must not overlap in `full`. Two
 * more kinds send messages, each from a part of one rank's `full` to a part of one rank's `shard`.
 * The two views need not be related:
 *
 *     all-to-all       from every rank to every rank, by a table of splits
 *     send-recv        a table of messages, all at once
 *
 * The tables of messages are the same on all ranks too, with the messages between other ranks. A
 * rank without messages starts the collective like the others.
 *
 * A collective keeps the memory of its buffers until it is destroyed.
 *
 * Errors: if a wait fails (a rank is dead or missing, a rank aborted, ranks started different
 * collectives), the communicator is poisoned. The stream fails with a message that names the rank,
 * the collective and the unit, and all later calls on the communicator return the same message.
 *
 * Numerics: sums over ranks follow the tree of docs/numerics.md with every transport, except that
 * in numerics mode fast NCCL may sum fp32 in its own order. 16-bit elements are always added in
 * float, and the sum is rounded once.
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

/** Contiguous elements that one rank owns. Offsets in elements of the collective's dtype. Does not
 * grow. */
typedef struct srt_coll_segment {
	size_t full_offset;  /* from the view `full` */
	size_t shard_offset; /* from the view `shard` of the owner */
	size_t nelem;
} srt_coll_segment_t;

/** The segments that one rank owns; nsegments may be 0 (an empty shard). Does not grow. */
typedef struct srt_coll_owner {
	const srt_coll_segment_t *segments;
	size_t nsegments;
} srt_coll_owner_t;

/** A message of a send-recv. Ranks of the communicator; offsets in elements of the dtype. Does not
 * grow. */
typedef struct srt_coll_message {
	int from, to;        /* may be the same rank: a copy there */
	size_t full_offset;  /* from the view `full` of the sender */
	size_t shard_offset; /* from the view `shard` of the receiver */
	size_t nelem;        /* may be 0 */
} srt_coll_message_t;

/** Operations of a reduction on the sum before it is stored. */
typedef struct srt_coll_epilogue {
	size_t size;      /* set by SRT_COLL_EPILOGUE_INIT */
	float divisor;    /* the sum is divided by it; not 0 */
	int accumulate;   /* 1: the result is added to the destination (reduce-scatter only) */
	float predivisor; /* each rank's part is divided by it before the sum; not 0 */
} srt_coll_epilogue_t;

/** Nothing is divided or added. */
#define SRT_COLL_EPILOGUE_INIT                                                                     \
	{                                                                                          \
		.size = sizeof(srt_coll_epilogue_t), .divisor = 1.0f, .predivisor = 1.0f           \
	}

/**
 * The divisors of an average of gradients over nranks: pre before the sum, post after it, for
 * srt_coll_epilogue_t. SRT_F16: as in PyTorch's FSDP, pre is the power of two that keeps the parts
 * and the sum in range, and pre * post = factor. Other dtypes: pre is 1 and post is factor, so the
 * sum is divided once. (PyTorch's first FSDP uses the factors of SRT_F16 for every dtype.)
 * @param factor the product of both divisors; 0 = nranks. Positive and finite.
 * @param[out] pre,post set on success only.
 * Thread-safe.
 */
SRT_API srt_status_t srt_coll_divide_factors(srt_dtype_t dtype, int64_t nranks, float factor,
					     float *pre, float *post);

/**
 * Description of a collective; copied by srt_coll_create().
 *
 * All-to-all: rank r sends splits[r * size + s] elements to rank s (size ranks; 0 is allowed). In
 * r's `full` the parts follow each other in the order of s, from the start of the view. In s's
 * `shard` they follow each other in the order of r. This is torch's all_to_all_single() with input
 * and output splits. With splits = NULL each part has `split` elements.
 *
 * Send-recv: all messages of the table are sent together, in no order. Several messages may have
 * the same sender and receiver. The parts that a rank receives must not overlap
 * (SRT_ERR_INVALID_ARGUMENT); the parts that it sends may.
 *
 * For both kinds, `full` and `shard` of a rank must not overlap.
 */
typedef struct srt_coll_desc {
	size_t size; /* set by SRT_COLL_DESC_INIT */
	srt_coll_kind_t kind;
	const char *name;                   /* of the unit or tensor, for errors */
	srt_dtype_t dtype;                  /* of both sides and of the wire; but the shard of a
					       16-bit reduce-scatter may be SRT_F32: the sum is
					       not rounded, and not divided or added */
	srt_view_t full;                    /* of srt_comm_mem_kind(), except for all-gather */
	srt_view_t shard;                   /* of srt_comm_mem_kind() for all-gather; unused for
					       all-reduce and broadcast */
	const srt_coll_owner_t *owners;     /* one per rank; unused for messages */
	int root;                           /* broadcast only */
	const size_t *splits;               /* all-to-all only: size * size, or NULL */
	size_t split;                       /* all-to-all without splits */
	const srt_coll_message_t *messages; /* send-recv only */
	size_t nmessages;
} srt_coll_desc_t;

/** Sets srt_coll_desc_t.size; the other defaults are zero. */
#define SRT_COLL_DESC_INIT                                                                         \
	{                                                                                          \
		.size = sizeof(srt_coll_desc_t)                                                    \
	}

/** Rank within the communicator; -1 for NULL, a group without this rank. Thread-safe. */
SRT_API int srt_comm_rank(const srt_comm_t *comm);
/** Number of ranks of the communicator; 0 for NULL. Thread-safe. */
SRT_API int srt_comm_size(const srt_comm_t *comm);

/**
 * The kind of memory of buffers that other ranks read: `shard` of an all-gather, `full` of the
 * other collectives. SRT_MEM_PEER if peers can map the memory of all ranks' devices, or of those on
 * this rank's node if the ranks are on several. Else SRT_MEM_DEVICE, and buffers of any kind may be
 * used. The same on all ranks of a node. On several nodes collectives with buffers of other kinds,
 * also `full` of an all-gather, work but are slower. Thread-safe.
 */
SRT_API srt_mem_kind_t srt_comm_mem_kind(const srt_comm_t *comm);

/**
 * How the communicator's collectives move bytes: "zero copy", "staged", "nccl", "ucx", or
 * "hierarchical", of which some kinds move bytes by "ucx". "none" with one rank; "" for NULL, a
 * group without this rank. The same on all ranks. Thread-safe.
 */
SRT_API const char *srt_comm_transport(const srt_comm_t *comm);

/**
 * Creates a communicator of some ranks of another one. Collective over `parent`: every rank calls
 * it, and ranks outside the group receive *comm = NULL.
 * @param ranks ranks of `parent`, in rising order; ranks[i] becomes rank i of the group.
 * @param name copied, for messages; NULL: "unnamed".
 * @param[out] comm owned by the caller.
 * @return on all ranks of `parent`: SRT_ERR_INVALID_ARGUMENT for ranks outside the range or not in
 *         rising order, SRT_ERR_MISMATCH for names or ranks that differ.
 */
SRT_API srt_status_t srt_comm_create_group(srt_comm_t *parent, const int *ranks, int nranks,
					   const char *name, srt_comm_t **comm);

/** Colour of srt_comm_split(): this rank is in no group. */
#define SRT_COLOUR_NONE (-1)

/**
 * Splits the ranks of a communicator into groups, all at once, as MPI_Comm_split does: ranks with
 * the same colour form a group, in the order of their ranks in `parent`. Collective over `parent`.
 * @param colour at least 0, or SRT_COLOUR_NONE.
 * @param name of all the groups, copied, for messages; NULL: "unnamed".
 * @param[out] comm this rank's group, owned by the caller; NULL for SRT_COLOUR_NONE.
 * @return SRT_ERR_INVALID_ARGUMENT for another colour, SRT_ERR_MISMATCH for names that differ, both
 *         on all ranks.
 */
SRT_API srt_status_t srt_comm_split(srt_comm_t *parent, int colour, const char *name,
				    srt_comm_t **comm);

/**
 * Frees a communicator created by srt_comm_create_group() or srt_comm_split(). Local. NULL is
 * allowed. If collectives, engines, meshes or scalers still refer to it, this ends their work, as
 * srt_coll_destroy() does, and logs a warning; after that they can only be destroyed, and the last
 * of them frees the communicator.
 */
SRT_API void srt_comm_destroy(srt_comm_t *comm);

/**
 * Aborts the communicator: every pending and later wait on it returns SRT_ERR_ABORTED with
 * `reason`, on this rank at once and on the other ranks when the message arrives. Does not block.
 * May be called from any thread at any time. NULL is allowed, for the reason too.
 */
SRT_API void srt_comm_abort(srt_comm_t *comm, const char *reason);

/**
 * Out-of-band all-gather of small host data: rank r's nbytes are stored at recv + r * nbytes on all
 * ranks. Collective, blocking. Does not use the device.
 */
SRT_API srt_status_t srt_comm_oob_allgather(srt_comm_t *comm, const void *send, size_t nbytes,
					    void *recv);

/**
 * Creates a collective. Collective over the communicator, in the same order on all its ranks.
 * Verifies that kind, name, dtype and segments or messages are the same on all ranks. A difference
 * is SRT_ERR_MISMATCH, with the same message on all ranks.
 * @param[out] coll owned by the caller, set on success only.
 */
SRT_API srt_status_t srt_coll_create(srt_comm_t *comm, const srt_coll_desc_t *desc,
				     srt_coll_t **coll);

/**
 * Frees a collective. Local. Waits for the streams of its starts. A start in flight that waits for
 * another rank for half a second more is aborted: the communicator fails on all ranks with
 * SRT_ERR_ABORTED, which names this rank. NULL is allowed.
 */
SRT_API void srt_coll_destroy(srt_coll_t *coll);

/**
 * Starts the collective on a stream. Asynchronous. All ranks must start the collectives of a
 * communicator in the same order. When the stream has passed the start, this rank's destination is
 * complete, but peers may still read its source (srt_coll_wait_readers()).
 * @param epilogue for reductions; NULL = the sum is stored as it is.
 * @return SRT_ERR_INVALID_ARGUMENT for an epilogue that the collective does not take.
 */
SRT_API srt_status_t srt_coll_start(srt_coll_t *coll, const srt_coll_epilogue_t *epilogue,
				    srt_stream_t *stream);

/**
 * Makes the stream wait until peers no longer read this rank's source of the last start. Call it
 * before work that overwrites the source. Asynchronous.
 */
SRT_API srt_status_t srt_coll_wait_readers(srt_coll_t *coll, srt_stream_t *stream);

/* ---- in one call ------------------------------------------------------------------------ */

/*
 * The functions below take views of any buffer of the communicator's device: of the library, of any
 * kind, or of the program (srt_buffer_wrap()). `whole` has nelem elements. Rank r's part of them is
 * ceil(nelem / ranks) elements from r * ceil(nelem / ranks); the last ranks have fewer or none.
 * nelem may be 0. Offsets, buffers and streams may differ between ranks and calls.
 *
 * Collective, asynchronous: in the order of the stream the call reads the elements, and then writes
 * the result; the memory may be used again by later work on the stream. The bits are those of
 * a persistent collective. The first call of a communicator with other arguments than buffers also
 * blocks until all ranks make it, and allocates buffers, at most 8 MiB. The communicator keeps the
 * last 8 of them; a call of more than 4 MiB uses them in turn. They are in no memory plan.
 *
 * Errors: SRT_ERR_INVALID_ARGUMENT for a view that is too small or of another dtype or device,
 * SRT_ERR_MISMATCH for ranks that pass different sizes, dtypes, operations or roots,
 * SRT_ERR_UNSUPPORTED for a sum of integers. If the call is the first one of its kind on all ranks,
 * all return the error and the communicator is as good as before; else it fails.
 */

/** What a reduction stores. */
typedef enum srt_reduce_op {
	SRT_REDUCE_SUM,
	SRT_REDUCE_AVERAGE, /* the sum, divided by the number of ranks, then rounded */
} srt_reduce_op_t;

/**
 * The sum or average of all ranks' elements, in place, on all ranks. Collective, asynchronous.
 * @param view (nelem), SRT_F32, SRT_F16 or SRT_BF16.
 * @return the errors above.
 */
SRT_API srt_status_t srt_all_reduce(srt_comm_t *comm, srt_view_t view, size_t nelem,
				    srt_reduce_op_t op, srt_stream_t *stream);

/**
 * The parts of all ranks, one after the other, on all ranks. Collective, asynchronous.
 * @param part this rank's part, of any dtype; it may be a part of `whole`.
 * @param[out] whole (nelem), of this dtype.
 * @param nelem of all ranks together.
 * @return the errors above.
 */
SRT_API srt_status_t srt_all_gather(srt_comm_t *comm, srt_view_t part, srt_view_t whole,
				    size_t nelem, srt_stream_t *stream);

/**
 * The sum or average of all ranks' elements, of which each rank gets its part. Collective,
 * asynchronous.
 * @param whole (nelem), SRT_F32, SRT_F16 or SRT_BF16.
 * @param[out] part this rank's part, of this dtype; it may be a part of `whole`.
 * @param nelem of all ranks together.
 * @return the errors above.
 */
SRT_API srt_status_t srt_reduce_scatter(srt_comm_t *comm, srt_view_t whole, srt_view_t part,
					size_t nelem, srt_reduce_op_t op, srt_stream_t *stream);

/**
 * The root's elements, on all ranks. Collective, asynchronous.
 * @param view (nelem), of any dtype: read on the root, written on the other ranks.
 * @param root a rank of the communicator.
 * @return the errors above.
 */
SRT_API srt_status_t srt_broadcast(srt_comm_t *comm, srt_view_t view, size_t nelem, int root,
				   srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
