/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The optimizer: one launch over this rank's shards of all trainable parameters of one pair of
 * dtypes.
 *
 * Values, gradients and moments are flat arenas of one layout, with one launch for each of its
 * parts. A table of segments maps runs of elements to their parameter and group (weight decay,
 * scale of the learning rate). Learning rate, step counts and clip coefficient are on the device
 * and are advanced there, so the host does not wait in a step.
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

/* The tables in the making: the segments of each part follow each other. */
typedef struct optim_tables {
	srt_optim_segment_t *segments;
	srt_optim_group_t *groups;
	int32_t nsegments, ngroups;
} optim_tables_t;

/* Adds the owned run of a parameter, if it has elements. */
static void add_segment(srt_optim_args_t *args, const srt_param_t *param, optim_tables_t *tables)
{
	int64_t nelem = param->nrows * param->row_nelem;
	int64_t offset = (int64_t)param->shard_offset;

	if (param->frozen || nelem == 0)
		return;
	tables->segments[tables->nsegments++] = (srt_optim_segment_t){
		.offset = offset,
		.nelem = nelem,
		.group = find_or_add_group(param, tables->groups, &tables->ngroups),
		.param = param->trainable,
	};
	args->nsegments++;
	args->nelem = offset + nelem;
}

/* The part's range of an arena; absent if there is no such arena. */
static srt_view_t part_view(const srt_engine_t *engine, int arena, int part, srt_dtype_t dtype)
{
	if (engine->arena[arena] == NULL)
		return (srt_view_t){ 0 };
	return srt_view(engine->arena[arena], engine->memory.layout.offset[arena][part], dtype);
}

/* The optimizer's own pass writes 16-bit copies of fp32 values. */
static bool writes_copy(int part)
{
	return part / 3 == SRT_F32 && part % 3 != SRT_F32;
}

static void fill_part(srt_engine_t *engine, int part, optim_tables_t *tables)
{
	const srt_staging_t *staging = &engine->memory.staging;
	const srt_dtype_t stored = (srt_dtype_t)(part / 3), compute = (srt_dtype_t)(part % 3);
	srt_optim_args_t *args = &engine->optim[part];

	*args = (srt_optim_args_t){
		.state = srt_view(engine->staging, staging->state, SRT_U8),
		.params = srt_view(engine->staging, staging->params, SRT_U8),
		.segments = srt_view(engine->staging,
				     staging->segments + (size_t)tables->nsegments *
								 sizeof(srt_optim_segment_t),
				     SRT_U8),
		.groups = srt_view(engine->staging, staging->groups, SRT_U8),
		.param = part_view(engine, SRT_ROLE_MASTER, part, stored),
		.grad = part_view(engine, SRT_ROLE_GRAD, part, stored),
		.m = part_view(engine, SRT_ROLE_STATE, part, stored),
		.v = part_view(engine, SRT_ROLE_STATE + 1, part, stored),
		.vmax = part_view(engine, SRT_ROLE_STATE + 2, part, stored),
	};
	if (writes_copy(part))
		args->copy = part_view(engine, SRT_ROLE_COMPUTE, part, compute);
	for (size_t u = 0; u < engine->nunits; u++) { /* the order of the arena: offsets rise */
		const srt_unit_t *unit = engine->units[u];

		for (size_t i = 0; srt_shard_part(unit) == part && i < unit->nparams; i++)
			add_segment(args, unit->params[i], tables);
	}
}

static srt_status_t upload_tables(srt_engine_t *engine, const optim_tables_t *tables,
				  srt_stream_t *stream)
{
	const srt_staging_t *staging = &engine->memory.staging;
	const srt_engine_options_t *options = &engine->options;
	const srt_step_state_t state = {
		.scale = 1.0f,
		.inv_scale = 1.0f,
		.clip_coef = 1.0f,
		.base_lr = options->lr,
		.min_lr = options->min_lr,
		.warmup = options->warmup,
		.lr_steps = options->lr_steps,
		.schedule = (int32_t)options->schedule,
		.decay_steps = options->decay_steps,
	};

	SRT_TRY(upload_table(engine, staging->state, &state, sizeof(state), stream));
	SRT_TRY(upload_table(engine, staging->segments, tables->segments,
			     (size_t)tables->nsegments * sizeof(*tables->segments), stream));
	return upload_table(engine, staging->groups, tables->groups,
			    (size_t)tables->ngroups * sizeof(*tables->groups), stream);
}

/* Fills the tables of the optimizer; the arenas are allocated. */
srt_status_t srt_optim_create(srt_engine_t *engine, srt_stream_t *stream)
{
	optim_tables_t tables = {
		.segments = srt_calloc(engine->ntrainable, sizeof(*tables.segments),
				       "optimizer segments"),
		.groups =
			srt_calloc(engine->ntrainable, sizeof(*tables.groups), "optimizer groups"),
	};
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (tables.segments != NULL && tables.groups != NULL) {
		for (int part = 0; part < SRT_NPARTS; part++)
			fill_part(engine, part, &tables);
		status = upload_tables(engine, &tables, stream);
	}
	free(tables.segments);
	free(tables.groups);
	return status;
}

/* The step counts, the learning rate and, from the norm, the clip coefficient of this step. */
srt_status_t srt_optim_advance(srt_engine_t *engine, srt_stream_t *stream)
{
	const srt_engine_options_t *options = &engine->options;
	const srt_staging_t *staging = &engine->memory.staging;
	srt_view_t norm = { 0 };

	if (!engine->clipped && options->norm_p != 0 && engine->trainable_nelem > 0)
		norm = srt_view(engine->staging, staging->norm, SRT_F32);
	return srt_op_step_advance(stream, srt_view(engine->staging, staging->state, SRT_U8),
				   srt_view(engine->staging, staging->params, SRT_U8),
				   (int64_t)engine->ntrainable, norm, options->max_norm,
				   options->beta1, options->beta2);
}

static srt_status_t step_part(const srt_engine_t *engine, int part, srt_stream_t *stream)
{
	const srt_engine_options_t *options = &engine->options;
	const srt_optim_args_t *args = &engine->optim[part];

	if (options->optimizer == SRT_OPTIMIZER_SGD)
		return srt_op_sgd(stream, args,
				  &(srt_sgd_t){ .momentum = options->momentum,
						.dampening = options->dampening,
						.nesterov = options->nesterov,
						.maximize = options->maximize });
	return srt_op_adam(stream, args,
			   &(srt_adam_t){ .beta1 = options->beta1,
					  .beta2 = options->beta2,
					  .eps = options->eps,
					  .decoupled = options->optimizer == SRT_OPTIMIZER_ADAMW,
					  .amsgrad = options->amsgrad,
					  .maximize = options->maximize });
}

srt_status_t srt_optim_step(srt_engine_t *engine, srt_stream_t *stream)
{
	if (engine->options.optimizer == SRT_OPTIMIZER_NONE)
		return SRT_OK;
	for (int part = 0; part < SRT_NPARTS; part++) {
		if (engine->optim[part].nsegments > 0)
			SRT_TRY(step_part(engine, part, stream));
	}
	for (size_t u = 0; u < engine->nunits; u++) {
		if (!writes_copy(srt_shard_part(engine->units[u])))
			SRT_TRY(srt_values_round(engine->units[u], stream));
	}
	return SRT_OK;
}
