/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Optimizers over named parameters of which some are sharded tensors, as PyTorch's
 * ShardedOptimizer: SGD, Adam, AdamW by the rules of <shardrt/optimizer.h>. Each rank steps its own
 * shards, so the results have the bits of an optimizer over the whole tensors.
 *
 * A parameter is sharded (its value and gradient are sharded tensors of one sharding), or plain:
 * each rank has all of it, and the program gives all ranks the same gradient.
 *
 * The states of a sharded parameter are sharded tensors with the sharding of its value, so
 * srt_sharded_tensor_save() and srt_sharded_tensor_load() write and read them, under any sharding.
 * The program itself saves the rest: the step counts of the parameters
 * (srt_sharded_optim_get_steps(), srt_sharded_optim_set_steps()), steps, learning rate and schedule
 * of the groups (srt_sharded_optim_get_state(), srt_sharded_optim_set_state()) and the states of
 * plain parameters (srt_sharded_optim_plain_state()).
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
	int32_t group;                      /* index of its group */
	float weight_decay;                 /* as srt_optim_param_t */
	float lr_scale;                     /* as srt_optim_param_t */
} srt_sharded_optim_param_t;

/** A parameter without tensors, of group 0. */
#define SRT_SHARDED_OPTIM_PARAM_INIT                                                               \
	{                                                                                          \
		.size = sizeof(srt_sharded_optim_param_t), .weight_decay = SRT_GROUP_WEIGHT_DECAY, \
		.lr_scale = 1.0f                                                                   \
	}

/** An optimizer over sharded and plain parameters. Opaque. */
typedef struct srt_sharded_optim srt_sharded_optim_t;

/**
 * Creates an optimizer. Collective over the communicator, blocking.
 * @param comm that of all sharded parameters; NULL: the world.
 * @param groups hyper-parameters of ngroups groups, as srt_optim_create(); the same on all ranks.
 * @param params nparams parameters, the same names in the same order on all ranks, with the same
 *        groups, weight decays and lr scales; copied.
 * @param[out] optim owned by the caller, set on success only.
 * @return on all ranks: SRT_ERR_INVALID_ARGUMENT as srt_optim_create(), and for a parameter that is
 *         both sharded and plain, whose value and gradient differ in shape, dtype or sharding, or
 *         that is on another communicator; SRT_ERR_MISMATCH for different lists or options;
 *         SRT_ERR_OUT_OF_MEMORY.
 */
SRT_API srt_status_t srt_sharded_optim_create(srt_context_t *context, srt_comm_t *comm,
					      const srt_optim_options_t *groups, size_t ngroups,
					      const srt_sharded_optim_param_t *params,
					      size_t nparams, srt_stream_t *stream,
					      srt_sharded_optim_t **optim);

/** Frees the object and its states. Waits for the streams of its last calls. Local. NULL is
 * allowed. */
SRT_API void srt_sharded_optim_destroy(srt_sharded_optim_t *optim);

/**
 * Steps all parameters, as srt_optim_step(). Local, asynchronous: no data moves between ranks.
 * @return SRT_ERR_STATE if a group with parameters has no learning rate.
 */
SRT_API srt_status_t srt_sharded_optim_step(srt_sharded_optim_t *optim, srt_stream_t *stream);

/** Sets the learning rate of a group for the next steps, as srt_optim_set_lr(). Local,
 * asynchronous. @return SRT_ERR_INVALID_ARGUMENT for a value outside its range. */
SRT_API srt_status_t srt_sharded_optim_set_lr(srt_sharded_optim_t *optim, size_t group, float lr,
					      srt_stream_t *stream);

/** What the steps of a group have done. Waits for the stream. Local; the same on all ranks.
 * @param[out] info its size is set by SRT_STEP_INFO_INIT; filled on success only. @return
 * SRT_ERR_INVALID_ARGUMENT for an index outside the range. */
SRT_API srt_status_t srt_sharded_optim_get_state(const srt_sharded_optim_t *optim, size_t group,
						 srt_stream_t *stream, srt_step_info_t *info);
/** Sets steps and schedule of a group, as srt_optim_set_state(). Local, asynchronous; on all ranks
 * with the same values. @return SRT_ERR_INVALID_ARGUMENT for a value outside its range. */
SRT_API srt_status_t srt_sharded_optim_set_state(srt_sharded_optim_t *optim, size_t group,
						 const srt_step_info_t *info, srt_stream_t *stream);

/* ---- named parameters and states; local ------------------------------------------------ */

/** Number of parameters; 0 for NULL. */
SRT_API size_t srt_sharded_optim_count(const srt_sharded_optim_t *optim);
/** Name of the i-th parameter, owned by the optimizer; "" past the last and for NULL. */
SRT_API const char *srt_sharded_optim_name(const srt_sharded_optim_t *optim, size_t i);
/** Index of a parameter; the number of parameters if there is none of this name; 0 for NULL. */
SRT_API size_t srt_sharded_optim_find(const srt_sharded_optim_t *optim, const char *name);
/** Number of states of each parameter; 0 for NULL. */
SRT_API int srt_sharded_optim_count_states(const srt_sharded_optim_t *optim);
/** PyTorch's name of the k-th state: "momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq";
 * "" for an index outside the range and for NULL. */
SRT_API const char *srt_sharded_optim_state_name(const srt_sharded_optim_t *optim, int k);
/**
 * The k-th state of a sharded parameter, to be read and written between steps. Its name is the
 * parameter's, a dot and the state's name.
 * @return owned by the optimizer; NULL for an index outside the range and for a plain parameter.
 */
SRT_API srt_sharded_tensor_t *srt_sharded_optim_state(const srt_sharded_optim_t *optim, size_t i,
						      int k);
/** The k-th state of a plain parameter, (nelem); buffer NULL for an index outside the range and for
 * a sharded parameter. */
SRT_API srt_view_t srt_sharded_optim_plain_state(const srt_sharded_optim_t *optim, size_t i, int k);

/** Copies the number of steps that a parameter has made. Waits for the stream. @param[out] steps
 * set on success. @return SRT_ERR_INVALID_ARGUMENT for an index outside the range. */
SRT_API srt_status_t srt_sharded_optim_get_steps(const srt_sharded_optim_t *optim, size_t i,
						 srt_stream_t *stream, int32_t *steps);
/** Sets the number of steps that a parameter has made, on this rank. Asynchronous. @param steps at
 * least 0. @return SRT_ERR_INVALID_ARGUMENT for a value outside its range. */
SRT_API srt_status_t srt_sharded_optim_set_steps(srt_sharded_optim_t *optim, size_t i,
						 int32_t steps, srt_stream_t *stream);

/**
 * Loads the state of another optimizer: states and step counts of all parameters, by name, and
 * learning rates and schedules of the groups; a group has none afterwards if it had none in the
 * other optimizer. The shardings of the two may differ: then the states are resharded. Values stay.
 * Collective over the communicator of both, blocking.
 * @return on all ranks: SRT_ERR_INVALID_ARGUMENT if the optimizers have other kinds, numbers of
 *         groups or states, or communicators, or a parameter of one is missing in the other or has
 *         another shape or dtype: the sentence names it.
 */
SRT_API srt_status_t srt_sharded_optim_load(srt_sharded_optim_t *optim,
					    const srt_sharded_optim_t *from, srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
