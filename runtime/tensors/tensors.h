/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internals of sharded tensors (<shardrt/sharded_tensor.h>). A tensor's shards are in one buffer of
 * each home: the context's device, and its host device where that is another one.
 */
#ifndef SRT_RUNTIME_TENSORS_TENSORS_H
#define SRT_RUNTIME_TENSORS_TENSORS_H

#include <shardrt/sharded_tensor.h>

#include "collectives/comm.h"
#include "device/device.h"

/* The host device of a rank, next to an accelerator: work on it in the order of the caller's
 * stream. Without one all members are NULL, and the caller's stream does the work. */
typedef struct srt_host_side {
	srt_device_t *device;
	srt_stream_t *stream;
	srt_event_t *entered, *left; /* recorded on the caller's stream and on this one */
} srt_host_side_t;

struct srt_sharded_tensor {
	srt_context_t *context;
	srt_comm_t *comm;
	char *name;
	srt_dtype_t dtype;
	int ndim;
	int64_t shape[SRT_MAX_DIMS];
	int64_t nelem;
	srt_sharding_kind_t kind; /* with dim: for messages and the layers */
	int dim;                  /* CHUNK: not negative */
	srt_shard_t *shards;      /* [nshards], the same on all ranks */
	size_t nshards;
	size_t *local;     /* [nlocal] which of the shards this rank has */
	srt_view_t *views; /* [nlocal] buffer NULL: empty */
	size_t nlocal;
	srt_buffer_t *buffers[2]; /* of the device, of the host device */
	srt_host_side_t host;     /* only where this rank has shards on it */
};

/* ---- spec.c ---------------------------------------------------------------------------- */

/* The number of shards that a sharding makes. */
size_t srt_sharding_count(const srt_sharding_t *sharding);
/* Elements of a shard. */
int64_t srt_shard_nelem(const srt_shard_t *shard, int ndim);
/* Fails for a shape that no tensor has; else its elements. */
srt_status_t srt_check_shape(const char *name, int ndim, const int64_t *shape, int64_t *nelem);

/* A box of the whole tensor on a rank's device. */
srt_shard_t srt_shard_whole(int ndim, const int64_t *shape, int rank);

/* A shard is made of runs: elements that follow each other in the whole tensor. Their length: the
 * last dimensions, of which only the first one may be cut. Sets the number of dimensions before. */
int64_t srt_shard_run_length(const srt_sharded_tensor_t *t, const srt_shard_t *shard, int *nouter);
/* The number in the whole tensor of the first element of the i-th run. */
int64_t srt_shard_run_first(const srt_sharded_tensor_t *t, const srt_shard_t *shard, int nouter,
			    int64_t i);

/* Fails for a sharding without shards, or with more than INT32_MAX. */
srt_status_t srt_check_sharding(const srt_sharding_t *sharding);

/* Whether two tensors have the same communicator, shape and dtype, and the same shards. */
bool srt_sharded_tensor_matches(const srt_sharded_tensor_t *a, const srt_sharded_tensor_t *b);
bool srt_sharded_tensor_same_shards(const srt_sharded_tensor_t *a, const srt_sharded_tensor_t *b);

/* ---- sharded_tensor.c ------------------------------------------------------------------ */

/* Collective: all ranks have a list of n entries with this hash. what: the call, of: the
 * entries, for the message. */
srt_status_t srt_verify_list(srt_comm_t *comm, const char *what, const char *of, size_t n,
			     uint64_t hash);

/* ---- host_side.c ----------------------------------------------------------------------- */

/* Creates stream and events, unless the host device is the context's device. */
srt_status_t srt_host_side_create(srt_context_t *context, srt_host_side_t *side);
void srt_host_side_destroy(srt_host_side_t *side);
/* The stream for work on a buffer of `device`, after what is on `stream`. */
srt_status_t srt_host_side_enter(const srt_host_side_t *side, const srt_device_t *device,
				 srt_stream_t *stream, srt_stream_t **home);
/* Later work on `stream` follows the work on `home`. */
srt_status_t srt_host_side_leave(const srt_host_side_t *side, srt_stream_t *home,
				 srt_stream_t *stream);

/* ---- transfer.c ------------------------------------------------------------------------ */

/* One side of a transfer: boxes of one tensor, the same list on all ranks. */
typedef struct srt_side {
	const srt_shard_t *shards;
	size_t nshards;
} srt_side_t;

/*
 * A transfer of a tensor between two sets of boxes, which may be used several times. Each element
 * of a box of `to` comes from the boxes of `from` that have it, which do not overlap.
 */
typedef struct srt_transfer srt_transfer_t;

/* Collective. name: of the tensor, for messages. */
srt_status_t srt_transfer_create(srt_context_t *context, srt_comm_t *comm, const char *name,
				 srt_dtype_t dtype, int ndim, srt_side_t from, srt_side_t to,
				 srt_transfer_t **out);
/* Local. Waits for the streams of its runs. NULL is allowed. */
void srt_transfer_destroy(srt_transfer_t *transfer);
/* Collective, asynchronous. The views are those of this rank's boxes, in the order of the lists.
 * A failure on one rank fails the job. */
srt_status_t srt_transfer_run(srt_transfer_t *transfer, const srt_view_t *from,
			      const srt_view_t *to, srt_stream_t *stream);

#endif
