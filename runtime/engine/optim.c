/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The optimizer: one launch over this rank's shards of all trainable parameters.
 *
 * Values, gradients and moments are flat arenas of one layout. A table of segments maps runs of
 * elements to their parameter and group (weight decay, scale of the learning rate). Learning rate,
 * step counts and clip coefficient are on the device and are advanced there, so the host does not
 * wait in a step.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"

/* Index of the parameter's group; adds the group if no earlier parameter has it. */
static int32_t find_or_add_group(const srt_param_t *param, srt_optim_group_t *groups,
				 int32_t *ngroups)
{
	const srt_optim_group_t group = { .lr_scale = param->lr_scale,
					  .weight_decay = param->weight_decay };

	for (int32_t g = 0; g < *ngroups; g++) {
		if (memcmp(&groups[g], &group, sizeof(group)) == 0)
			return g;
	}
	groups[*ngroups] = group;
	return (*ngroups)++;
}

static srt_status_t upload_table(srt_engine_t *engine, size_t offset, const void *src,
				 size_t nbytes, srt_stream_t *stream)
{
	return nbytes == 0 ? SRT_OK :
			     srt_copy_from_host(stream, engine->staging, offset, src, nbytes);
}

/* Adds the owned run of a parameter, if it has elements. */
static void add_segment(srt_optim_args_t *args, const srt_param_t *param,
			srt_optim_segment_t *segments, srt_optim_group_t *groups, int32_t *ngroups)
{
	int64_t nelem = param->nrows * param->row_nelem;
	int64_t offset = (int64_t)(param->arena_offset / sizeof(float));

	if (param->frozen || nelem == 0)
		return;
	segments[args->nsegments++] = (srt_optim_segment_t){
		.offset = offset,
		.nelem = nelem,
		.group = find_or_add_group(param, groups, ngroups),
		.param = param->trainable,
	};
	args->nelem = offset + nelem;
}

static srt_status_t upload_tables(srt_engine_t *engine, srt_optim_segment_t *segments,
				  srt_optim_group_t *groups, srt_stream_t *stream)
{
	const srt_staging_t *staging = &engine->memory.staging;
	const srt_engine_options_t *options = &engine->options;
	srt_optim_args_t *args = &engine->optim;
	int32_t ngroups = 0;
	const srt_step_state_t state = {
		.scale = 1.0f,
		.inv_scale = 1.0f,
		.clip_coef = 1.0f,
		.base_lr = options->lr,
		.min_lr = options->min_lr,
		.warmup = options->warmup,
		.lr_steps = options->lr_steps,
	};

	for (size_t u = 0; u < engine->nunits; u++) { /* the order of the arena: offsets rise */
		const srt_unit_t *unit = engine->units[u];

		for (size_t i = 0; i < unit->nparams; i++)
			add_segment(args, unit->params[i], segments, groups, &ngroups);
	}
	SRT_TRY(upload_table(engine, staging->state, &state, sizeof(state), stream));
	SRT_TRY(upload_table(engine, staging->segments, segments,
			     (size_t)args->nsegments * sizeof(*segments), stream));
	return upload_table(engine, staging->groups, groups, (size_t)ngroups * sizeof(*groups),
			    stream);
}

/* Fills the tables of the optimizer; the arenas are allocated. */
srt_status_t srt_optim_create(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_staging_t *staging = &engine->memory.staging;
	srt_optim_segment_t *segments =
		srt_calloc(engine->ntrainable, sizeof(*segments), "optimizer segments");
	srt_optim_group_t *groups =
		srt_calloc(engine->ntrainable, sizeof(*groups), "optimizer groups");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	engine->optim = (srt_optim_args_t){
		.state = srt_view(engine->staging, staging->state, SRT_U8),
		.params = srt_view(engine->staging, staging->params, SRT_U8),
		.segments = srt_view(engine->staging, staging->segments, SRT_U8),
		.groups = srt_view(engine->staging, staging->groups, SRT_U8),
		.param = srt_view(engine->values, 0, SRT_F32),
		.grad = srt_view(engine->grads, 0, SRT_F32),
	};
	if (engine->memory.nstates > 0)
		engine->optim.m = srt_view(engine->states[0], 0, SRT_F32);
	if (engine->memory.nstates > 1)
		engine->optim.v = srt_view(engine->states[1], 0, SRT_F32);
	if (engine->memory.nstates > 2)
		engine->optim.vmax = srt_view(engine->states[2], 0, SRT_F32);
	if (segments != NULL && groups != NULL)
		status = upload_tables(engine, segments, groups, stream);
	free(segments);
	free(groups);
	return status;
}

/* The step counts, the learning rate and, from the norm, the clip coefficient of this step. */
srt_status_t srt_optim_advance(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_engine_options_t *options = &engine->options;
	srt_view_t norm = { 0 };

	if (options->norm_p != 0 && engine->trainable_nelem > 0)
		norm = srt_view(engine->staging, engine->memory.staging.norm, SRT_F32);
	return srt_op_step_advance(stream, engine->optim.state, engine->optim.params,
				   (int64_t)engine->ntrainable, norm, options->max_norm,
				   options->beta1, options->beta2);
}

srt_status_t srt_optim_step(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_engine_options_t *options = &engine->options;

	if (engine->optim.nsegments == 0)
		return SRT_OK;
	if (options->optimizer == SRT_OPTIMIZER_SGD)
		return srt_op_sgd(stream, &engine->optim,
				  &(srt_sgd_t){ .momentum = options->momentum,
						.dampening = options->dampening,
						.nesterov = options->nesterov,
						.maximize = options->maximize });
	return srt_op_adam(stream, &engine->optim,
			   &(srt_adam_t){ .beta1 = options->beta1,
					  .beta2 = options->beta2,
					  .eps = options->eps,
					  .decoupled = options->optimizer == SRT_OPTIMIZER_ADAMW,
					  .amsgrad = options->amsgrad,
					  .maximize = options->maximize });
}
