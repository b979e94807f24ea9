/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Internals of <shardrt/sharded_optim.h>. A rank's shards are parameters of an optimizer of
 * <shardrt/optimizer.h> on each of its devices.
 */
#ifndef SRT_RUNTIME_TENSORS_SHARDED_OPTIM_H
#define SRT_RUNTIME_TENSORS_SHARDED_OPTIM_H

#include <shardrt/sharded_optim.h>

#include "runtime/tensors/tensors.h"

/* A parameter of the list. Names, groups and step counts are in the local optimizers. */
typedef struct srt_named_param {
	bool is_sharded;
	srt_dtype_t dtype; /* plain: with nelem */
	int64_t nelem;
	srt_sharded_tensor_t *states[SRT_OPTIM_MAX_STATES]; /* sharded */
} srt_named_param_t;

/* A shard with elements: an entry of a local optimizer. */
typedef struct srt_shard_entry {
	size_t param; /* of the list */
	int home;     /* which local optimizer */
	size_t index; /* in its list */
} srt_shard_entry_t;

typedef struct srt_sharded_optim {
	srt_comm_t *comm;
	int nstates;
	srt_named_param_t *params;
	size_t nparams;
	srt_shard_entry_t *shards;
	size_t nshards;
	/* On the device, what the program has: entry i is parameter i, without elements if it is
	 * sharded, so that each rank counts its steps; then the shards. On the host device: shards;
	 * NULL without any. */
	srt_optim_t *local[2];
	srt_host_side_t host;
} srt_sharded_optim_t;

/* NULL if it is an optimizer without sharded tensors. */
srt_sharded_optim_t *srt_sharded_optim(const srt_optim_t *optim);

#endif
