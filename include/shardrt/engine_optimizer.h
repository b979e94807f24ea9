/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The optimizer of an engine (<shardrt/engine.h>): groups of parameters, and what a step changes
 * besides values, read and set.
 *
 * To resume a run, a program sets the values (srt_param_set()), the optimizer states and step
 * counts of all trainable parameters, and the state of each group, which it read in the earlier run
 * by srt_param_get(), srt_param_steps() and srt_engine_group_state(). The next step then has the
 * bits that it would have had there, with any strategy. These calls are made between steps, on all
 * ranks, with the same values.
 *
 * Streams, ranks, errors, thread safety: as in <shardrt/engine.h>.
 */
#ifndef SHARDRT_ENGINE_OPTIMIZER_H
#define SHARDRT_ENGINE_OPTIMIZER_H

#include <stdint.h>

#include <shardrt/device.h>
#include <shardrt/engine.h>
#include <shardrt/export.h>
#include <shardrt/optimizer.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- groups of parameters -------------------------------------------------------------- */

/**
 * The hyper-parameters of a group of parameters: to read them, or to change a copy for another
 * group. Local.
 * @param group 0: srt_engine_options_t.optim; or of srt_engine_group_create().
 * @param[out] options its size by SRT_OPTIM_OPTIONS_INIT; set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for a group that there is not.
 */
SRT_API srt_status_t srt_engine_group_options(const srt_engine_t *engine, int32_t group,
					      srt_optim_options_t *options);

/**
 * Declares a group of parameters with its own hyper-parameters and schedule, as torch.optim's
 * param_groups are; srt_param_options_t.group names it. A group costs a launch more in a step (for
 * each dtype); weight decay and lr_scale of srt_param_options_t cost none. Local; in the same order
 * on all ranks.
 * @param options of the kind of the engine's optimizer; copied.
 * @param[out] group its index: 1 for the first.
 * @return SRT_ERR_INVALID_ARGUMENT as srt_engine_create(), and for another kind; SRT_ERR_STATE
 *         after srt_engine_build().
 */
SRT_API srt_status_t srt_engine_group_create(srt_engine_t *engine,
					     const srt_optim_options_t *options, int32_t *group);

/** As srt_engine_set_lr(), of one group. @return SRT_ERR_INVALID_ARGUMENT for a group that there is
 * not, too. */
SRT_API srt_status_t srt_engine_set_group_lr(srt_engine_t *engine, int32_t group, float lr,
					     srt_stream_t *stream);

/* ---- what a step changes --------------------------------------------------------------- */

/** As srt_engine_state(), of a group: its learning rate and schedule; srt_engine_state() has those
 * of group 0. @return SRT_ERR_INVALID_ARGUMENT for a group that there is not, too. */
SRT_API srt_status_t srt_engine_group_state(srt_engine_t *engine, int32_t group,
					    srt_stream_t *stream, srt_step_info_t *info);

/**
 * Sets steps, skipped steps, learning rate and schedule of a group. Local, asynchronous.
 * @param info copied.
 * @return SRT_ERR_INVALID_ARGUMENT for a group that there is not or a field outside its range;
 *         SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_engine_set_group_state(srt_engine_t *engine, int32_t group,
						const srt_step_info_t *info, srt_stream_t *stream);

/**
 * Copies the number of steps that the optimizer made of a parameter; steps without its gradient and
 * skipped ones are not counted. Local; waits for the step.
 * @param[out] steps set on success only.
 * @return SRT_ERR_NOT_FOUND for a frozen parameter; SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_param_steps(srt_param_t *param, srt_stream_t *stream, int32_t *steps);

/**
 * Sets the number of steps that the optimizer made of a parameter. Local, asynchronous.
 * @param steps at least 0.
 * @return SRT_ERR_NOT_FOUND for a frozen parameter; SRT_ERR_INVALID_ARGUMENT for a negative number;
 *         SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_param_set_steps(srt_param_t *param, int32_t steps, srt_stream_t *stream);

/**
 * Sets this rank's shard of an optimizer state from the unsharded tensor in host memory, as
 * srt_param_set() does for values. Local.
 * @param what SRT_PARAM_STATE0 or a later one.
 * @param unsharded srt_param_nelem() elements of the parameter's dtype, row-major; may be reused
 *        when the call returns. NULL only for a parameter without elements.
 * @return SRT_ERR_NOT_FOUND if the parameter does not have this state; SRT_ERR_INVALID_ARGUMENT for
 *         NULL; SRT_ERR_STATE before srt_engine_build().
 */
SRT_API srt_status_t srt_param_set_state(srt_param_t *param, srt_param_what_t what,
					 const void *unsharded, srt_stream_t *stream);

/**
 * Sets this rank's shard of values or of an optimizer state from its elements in host memory, so
 * that no rank needs the unsharded tensor. Local; for values every rank must call it.
 * @param what SRT_PARAM_VALUE (the rules of srt_param_set()), SRT_PARAM_STATE0 or a later one.
 * @param elements those of srt_param_part() of this rank, of the parameter's dtype, row-major; may
 *        be reused when the call returns. NULL only for a shard without elements.
 * @return as srt_param_set() and srt_param_set_state(); SRT_ERR_NOT_FOUND for SRT_PARAM_GRAD, which
 *         work on a stream writes (srt_param_local()).
 */
SRT_API srt_status_t srt_param_set_local(srt_param_t *param, srt_param_what_t what,
					 const void *elements, srt_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
