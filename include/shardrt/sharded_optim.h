/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Optimizers over named parameters of which some are sharded tensors, as PyTorch's
 * ShardedOptimizer: SGD, Adam, AdamW by the rules of <shardrt/optimizer.h>. Each rank steps its own
 * shards, so the results have the bits of an optimizer over the whole tensors.
 *
 * A parameter is sharded (its value and gradient are sharded tensors of one sharding), or plain:
 * each rank has all of it, and the program gives all ranks the same gradient.
 *
 * srt_sharded_optim_create() makes an srt_optim_t, and the functions of <shardrt/optimizer.h> step
 * it, read and set what it has. The states of a sharded parameter are sharded tensors with the
 * sharding of its value (srt_sharded_optim_state()), so srt_sharded_tensor_save() and
 * srt_sharded_tensor_load() write and read them, under any sharding. The program itself saves the
 * rest: step counts, step infos of the groups and states of plain parameters. All ranks set the
 * same.
 *
 * Thread safety: an object belongs to one thread at a time.
 */
#ifndef SHARDRT_SHARDED_OPTIM_H
#define SHARDRT_SHARDED_OPTIM_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/device.h>
#include <shardrt/export.h>
#include <shardrt/optimizer.h>
#include <shardrt/sharded_tensor.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A named parameter. */
typedef struct srt_sharded_optim_param {
	size_t size;      /* sizeof(srt_sharded_optim_param_t) */
	const char *name; /* unique in the list; copied */
	/* Sharded: both, of one shape, dtype and sharding, SRT_F32, SRT_F16 or SRT_BF16. They must
	 * outlive the optimizer. */
	srt_sharded_tensor_t *value, *grad;
	/* Plain: as srt_optim_param_t; value and grad are then NULL. */
	int64_t nelem;
	srt_view_t plain_value, plain_grad; /* (nelem), on the context's device */
	size_t group;                       /* index of its group */
	float weight_decay;                 /* as srt_optim_param_t */
	float lr_scale;                     /* as srt_optim_param_t */
} srt_sharded_optim_param_t;

/** A parameter without tensors, of group 0. */
#define SRT_SHARDED_OPTIM_PARAM_INIT                                                               \
	{                                                                                          \
		.size = sizeof(srt_sharded_optim_param_t),                                         \
		.weight_decay = SRT_OPTIM_GROUP_WEIGHT_DECAY, .lr_scale = 1.0f                     \
	}

/**
 * Creates an optimizer. Collective over the communicator, blocking.
 * @param comm that of all sharded parameters; NULL: the world.
 * @param groups hyper-parameters of ngroups groups, as srt_optim_create(); the same on all ranks.
 * @param params nparams parameters, the same names in the same order on all ranks, with the same
 *        groups, weight decays and lr scales; copied.
 * @param[out] optim owned by the caller, freed by srt_optim_destroy(), a local call; set on
 *        success only.
 * @return on all ranks: SRT_ERR_INVALID_ARGUMENT as srt_optim_create(), and for a parameter that is
 *         both sharded and plain, whose value and gradient differ in shape, dtype or sharding, or
 *         that is on another communicator; SRT_ERR_MISMATCH for different lists or options;
 *         SRT_ERR_UNSUPPORTED for Muon and state_bits 8; SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_sharded_optim_create(srt_context_t *context, srt_comm_t *comm,
					      const srt_optim_options_t *groups, size_t ngroups,
					      const srt_sharded_optim_param_t *params,
					      size_t nparams, srt_optim_t **optim,
					      srt_stream_t *stream);

/**
 * A state of a sharded parameter, to be read and written between steps. Its name is the
 * parameter's, a dot and srt_optim_state_name(). Local.
 * @param i index in the list.
 * @param k as srt_optim_state(), which has the states of plain parameters.
 * @return owned by the optimizer; NULL for an index outside the range, a plain parameter and an
 *         optimizer of another function.
 */
SRT_API srt_sharded_tensor_t *srt_sharded_optim_state(const srt_optim_t *optim, size_t i, size_t k);

/**
 * Loads the state of another optimizer: states and step counts of all parameters, by name, and
 * learning rates and schedules of the groups; a group has none afterwards if it had none in the
 * other optimizer. The shardings of the two may differ: then the states are resharded. Values stay.
 * Collective over the communicator of both, blocking.
 * @return on all ranks: SRT_ERR_INVALID_ARGUMENT if the optimizers have other kinds, numbers of
 *         groups or states, or communicators, or a parameter of one is missing in the other or has
 *         another shape or dtype: the sentence names it; and for an optimizer of another function
 *         than srt_sharded_optim_create().
 */
SRT_API srt_status_t srt_sharded_optim_load(srt_optim_t *optim, const srt_optim_t *from,
					    srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
