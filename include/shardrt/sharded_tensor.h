/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sharded tensors: a tensor whose parts are in the memory of several ranks, as PyTorch's
 * ShardedTensor. They need a context and a communicator, no engine.
 *
 * A sharding (srt_sharding_t) describes the parts, the shards. Each shard is a box of the tensor
 * and has a location: a rank of the communicator, and its device or its host device. Each rank
 * knows all shards. It has memory for those at its location: the elements of a box, dense and
 * row-major.
 *
 *     SRT_SHARDING_CHUNK  one dimension is cut into one chunk for each location, as PyTorch's
 *                         ChunkShardingSpec. The locations are any ranks in any order.
 *     SRT_SHARDING_BOXES  a list of boxes, as PyTorch's EnumerableShardingSpec. Together they are
 *                         the tensor, and none overlap.
 *
 * A rank may have several shards or none, and a shard may be empty.
 *
 * Streams. A call with a stream does its work in the order of this stream, on the context's device.
 * Work on shards of the host device is ordered in between.
 *
 * Data moves between ranks by one all-to-all for each call: all that a rank sends to another one is
 * one message, whatever the boxes are.
 *
 * Errors. Collective calls return an error of one rank's arguments on all ranks. A NULL pointer is
 * an error on this rank only.
 *
 * Thread safety: a tensor belongs to one thread at a time.
 */
#ifndef SHARDRT_SHARDED_TENSOR_H
#define SHARDRT_SHARDED_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/coll.h>
#include <shardrt/context.h>
#include <shardrt/device.h>
#include <shardrt/engine_options.h>
#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a tensor is cut. */
typedef enum srt_sharding_kind {
	SRT_SHARDING_CHUNK,
	SRT_SHARDING_BOXES,
} srt_sharding_kind_t;

/** Where a shard is: "rank:2/cuda" of PyTorch. */
typedef struct srt_shard_location {
	int rank;    /* of the communicator */
	int on_host; /* 0: on the rank's device; 1: in the memory of srt_context_host() */
} srt_shard_location_t;

/** A shard: a box of the tensor, and where it is. Unused dimensions are zero. */
typedef struct srt_shard {
	int64_t offset[SRT_MAX_DIMS];
	int64_t size[SRT_MAX_DIMS]; /* a shard with a size of 0 is empty */
	srt_shard_location_t location;
} srt_shard_t;

/** A sharding; copied by the calls that take it. */
typedef struct srt_sharding {
	size_t size; /* sizeof(srt_sharding_t) */
	srt_sharding_kind_t kind;
	int dim; /* CHUNK: the dimension that is cut; a negative one counts from the last */
	/* CHUNK: nlocations, at least 1: of each chunk, in order. */
	const srt_shard_location_t *locations;
	size_t nlocations;
	const srt_shard_t *shards; /* BOXES: nshards, at least 1 */
	size_t nshards;
} srt_sharding_t;

/** Chunks of dimension 0; locations must be set. */
#define SRT_SHARDING_INIT                                                                          \
	{                                                                                          \
		.size = sizeof(srt_sharding_t)                                                     \
	}

/** A sharded tensor. Opaque. */
typedef struct srt_sharded_tensor srt_sharded_tensor_t;

/**
 * The shards of a tensor by a sharding, as build_metadata() of PyTorch. A chunk has ceil(n /
 * nlocations) of the n indices of the dimension, the last ones fewer or none. The offset of an
 * empty chunk is the one that a full one would have, which may be past the end. Pure; thread-safe.
 * @param nranks ranks that locations may name, 0 .. nranks - 1.
 * @param ndim 1 .. SRT_MAX_DIMS.
 * @param shape ndim sizes, not negative.
 * @param[out] shards memory for nshards shards; set on success only.
 * @param nshards number of locations or boxes of the sharding.
 * @return SRT_ERR_INVALID_ARGUMENT for a dimension or a rank outside its range, no locations or
 * boxes, boxes that overlap, leave elements out or end outside the tensor, or another nshards; more
 * than INT32_MAX locations or boxes; a size above INT64_MAX / 16.
 */
SRT_API srt_status_t srt_sharding_resolve(const srt_sharding_t *sharding, int nranks, int ndim,
					  const int64_t *shape, srt_shard_t *shards,
					  size_t nshards);

/**
 * Creates a sharded tensor, its elements zero. Collective over the communicator, blocking.
 * @param comm NULL: the world.
 * @param name for messages, and the name of its random numbers; copied.
 * @param dtype any.
 * @param ndim 1 .. SRT_MAX_DIMS.
 * @param shape ndim sizes of the whole tensor, not negative.
 * @param[out] tensor owned by the caller, set on success only.
 * @return on all ranks: as srt_sharding_resolve(); SRT_ERR_MISMATCH if the ranks describe different
 *         tensors: the sentence has what differs; SRT_ERR_OUT_OF_MEMORY if one has no memory.
 */
SRT_API srt_status_t srt_sharded_tensor_create(srt_context_t *context, srt_comm_t *comm,
					       const char *name, srt_dtype_t dtype, int ndim,
					       const int64_t *shape, const srt_sharding_t *sharding,
					       srt_sharded_tensor_t **tensor);

/**
 * Creates a tensor with the communicator, shape, dtype and sharding of another one, its elements
 * zero: a gradient, a state. Collective over the communicator, blocking.
 * @param name as for srt_sharded_tensor_create().
 * @param[out] like owned by the caller, set on success only.
 * @return on all ranks: as srt_sharded_tensor_create().
 */
SRT_API srt_status_t srt_sharded_tensor_create_like(const srt_sharded_tensor_t *tensor,
						    const char *name, srt_sharded_tensor_t **like);

/** Frees a tensor. Waits for the streams that had work on it. Local. NULL is allowed. */
SRT_API void srt_sharded_tensor_destroy(srt_sharded_tensor_t *tensor);

/* ---- metadata; local ------------------------------------------------------------------- */

/** Name of a tensor; "" for NULL. */
SRT_API const char *srt_sharded_tensor_name(const srt_sharded_tensor_t *tensor);
/** Dtype of a tensor; SRT_DTYPE_NONE for NULL. */
SRT_API srt_dtype_t srt_sharded_tensor_dtype(const srt_sharded_tensor_t *tensor);
/** Number of dimensions; 0 for NULL. @param[out] shape SRT_MAX_DIMS sizes of the whole tensor,
 * the unused ones 1; NULL is allowed. */
SRT_API int srt_sharded_tensor_shape(const srt_sharded_tensor_t *tensor, int64_t *shape);
/** Number of shards of all ranks; 0 for NULL. */
SRT_API size_t srt_sharded_tensor_shard_count(const srt_sharded_tensor_t *tensor);
/** The i-th shard of all, in the order of the sharding. @param[out] shard set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for an index outside the range. */
SRT_API srt_status_t srt_sharded_tensor_shard_at(const srt_sharded_tensor_t *tensor, size_t i,
						 srt_shard_t *shard);
/** Number of shards of this rank; 0 for NULL. */
SRT_API size_t srt_sharded_tensor_local_count(const srt_sharded_tensor_t *tensor);
/** The index among all shards of this rank's i-th one; the number of shards past the last. */
SRT_API size_t srt_sharded_tensor_local_index(const srt_sharded_tensor_t *tensor, size_t i);

/* ---- this rank's shards ---------------------------------------------------------------- */

/**
 * The memory of this rank's i-th shard, row-major: of a buffer of the context's device or, for a
 * shard on the host, of srt_context_host(); srt_view_host() has its address. Local.
 * @return valid until the tensor is destroyed; buffer NULL for an index outside the range and for
 *         an empty shard.
 */
SRT_API srt_view_t srt_sharded_tensor_local(const srt_sharded_tensor_t *tensor, size_t i);

/**
 * Copies this rank's i-th shard to host memory. Waits for the stream. Local.
 * @param[out] host memory for the elements of the shard; unused for an empty one.
 * @return SRT_ERR_INVALID_ARGUMENT for an index outside the range.
 */
SRT_API srt_status_t srt_sharded_tensor_get(const srt_sharded_tensor_t *tensor, size_t i,
					    void *host, srt_stream_t *stream);

/**
 * Sets this rank's i-th shard from host memory, which may be reused when the call returns. Local,
 * asynchronous.
 * @param host the elements of the shard; unused for an empty one.
 * @return SRT_ERR_INVALID_ARGUMENT for an index outside the range.
 */
SRT_API srt_status_t srt_sharded_tensor_set(srt_sharded_tensor_t *tensor, size_t i,
					    const void *host, srt_stream_t *stream);

/* ---- values; local, asynchronous; every rank makes the call ---------------------------- */

/** All elements = value. @return SRT_ERR_INVALID_ARGUMENT for a tensor that is not SRT_F32, SRT_F16
 * or SRT_BF16. */
SRT_API srt_status_t srt_sharded_tensor_fill(srt_sharded_tensor_t *tensor, float value,
					     srt_stream_t *stream);
/**
 * Elements uniform in [low, high), as srt_op_uniform(), keyed by seed, the tensor's name and the
 * element's number in the whole tensor: the same bits for every sharding and number of ranks.
 * @return on all ranks: SRT_ERR_INVALID_ARGUMENT as srt_op_uniform(), and for another dtype than
 *         SRT_F32, SRT_F16 and SRT_BF16.
 */
SRT_API srt_status_t srt_sharded_tensor_uniform(srt_sharded_tensor_t *tensor, uint64_t seed,
						float low, float high, srt_stream_t *stream);
/** Elements mean + std * N(0,1), as srt_op_normal(), keyed as in srt_sharded_tensor_uniform().
 * @return on all ranks: SRT_ERR_INVALID_ARGUMENT for a mean or std that is not finite, a negative
 *         std, or another dtype. */
SRT_API srt_status_t srt_sharded_tensor_normal(srt_sharded_tensor_t *tensor, uint64_t seed,
					       float mean, float std, srt_stream_t *stream);

/* ---- moving data; collective, blocking ------------------------------------------------- */

/**
 * Gives each rank its shards of a tensor that one rank has.
 * @param root rank of the communicator; the same on all ranks.
 * @param whole the tensor, dense and row-major, in memory of the root's device, of the tensor's
 *        dtype; unused on the other ranks.
 * @return on all ranks: SRT_ERR_INVALID_ARGUMENT for a root outside the range or a view on the root
 *         that does not fit, SRT_ERR_MISMATCH for different roots.
 */
SRT_API srt_status_t srt_sharded_tensor_scatter(srt_sharded_tensor_t *tensor, int root,
						srt_view_t whole, srt_stream_t *stream);

/** Collects the whole tensor on one rank. Arguments and errors as srt_sharded_tensor_scatter(). */
SRT_API srt_status_t srt_sharded_tensor_gather(const srt_sharded_tensor_t *tensor, int root,
					       srt_view_t whole, srt_stream_t *stream);

/**
 * Copies the elements of a tensor to another one of the same communicator, shape and dtype, which
 * may have another sharding. With equal shardings no data moves between ranks.
 * @return on all ranks: SRT_ERR_INVALID_ARGUMENT if communicator, shape or dtype differ.
 */
SRT_API srt_status_t srt_sharded_tensor_copy(srt_sharded_tensor_t *to,
					     const srt_sharded_tensor_t *from,
					     srt_stream_t *stream);

/**
 * Makes a tensor of the same name, shape, dtype and elements with another sharding, on the same or
 * other ranks of the communicator. The old one stays.
 * @param[out] resharded owned by the caller, set on success only.
 * @return on all ranks: as srt_sharded_tensor_create().
 */
SRT_API srt_status_t srt_sharded_tensor_reshard(const srt_sharded_tensor_t *tensor,
						const srt_sharding_t *sharding,
						srt_sharded_tensor_t **resharded,
						srt_stream_t *stream);

/**
 * Makes a sharded tensor from one that a rank has: srt_sharded_tensor_create(), then
 * srt_sharded_tensor_scatter(). PyTorch's shard_parameter().
 * @param comm NULL: the world.
 * @param root rank of the communicator that has the tensor.
 * @param whole as for srt_sharded_tensor_scatter(); its dtype is the tensor's, on all ranks.
 * @param[out] tensor owned by the caller, set on success only.
 * @return on all ranks: as the two calls.
 */
SRT_API srt_status_t srt_sharded_tensor_create_from(srt_context_t *context, srt_comm_t *comm,
						    const char *name, int ndim,
						    const int64_t *shape,
						    const srt_sharding_t *sharding, int root,
						    srt_view_t whole, srt_sharded_tensor_t **tensor,
						    srt_stream_t *stream);

/* ---- files; collective, blocking ------------------------------------------------------- */

/**
 * Saves whole tensors to a safetensors file, under their names. Rank 0 of the communicator gathers
 * one tensor after the other, in memory of its device, and writes it. The old file stays complete
 * until the new one is, as with srt_engine_save().
 * @param tensors ntensors tensors of one communicator, at least one, the same on all ranks.
 * @param path of the file, used on rank 0; NULL is allowed on the others.
 * @return on all ranks: SRT_ERR_INVALID_ARGUMENT for tensors of several communicators or with one
 *         name, or no path on rank 0, SRT_ERR_MISMATCH for different numbers or names of tensors,
 *         SRT_ERR_IO if rank 0 cannot write, SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_sharded_tensor_save(srt_sharded_tensor_t *const *tensors, size_t ntensors,
					     const char *path, srt_stream_t *stream);

/**
 * Sets tensors from a safetensors file of whole tensors, by their names. Each rank reads its own
 * shards. Other tensors of the file are ignored.
 * @param tensors as for srt_sharded_tensor_save(); their shardings may be others than when saved.
 * @param path of the file, the same one on all ranks.
 * @return on all ranks: SRT_ERR_INVALID_ARGUMENT for a missing tensor or another shape or dtype
 *         (the sentence has the name and both), SRT_ERR_NOT_FOUND without a file, SRT_ERR_FORMAT
 *         for a malformed one, SRT_ERR_MISMATCH for different files, or different numbers or names
 *         of tensors: no tensor has changed.
 *         SRT_ERR_IO if a later read fails: some have changed.
 */
SRT_API srt_status_t srt_sharded_tensor_load(srt_sharded_tensor_t *const *tensors, size_t ntensors,
					     const char *path, srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
