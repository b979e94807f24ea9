/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a step changes, read and set: step states of the groups, step counts and states of the
 * parameters.
 */
#include <string.h>

#include "runtime/optimizer/optimizer.h"

srt_view_t srt_optim_step_state(const srt_optim_t *optim, size_t group)
{
	return srt_view(optim->tables.buffer,
			optim->tables.offset + optim->layout.states +
				group * sizeof(srt_k_step_state_t),
			SRT_U8);
}

srt_view_t srt_optim_found_inf(const srt_optim_t *optim)
{
	srt_view_t state;

	if (optim == NULL)
		return (srt_view_t){ 0 };
	state = srt_optim_step_state(optim, 0);
	return srt_view(state.buffer, state.offset + offsetof(srt_k_step_state_t, found_inf),
			SRT_F32);
}

static srt_status_t check_group(const srt_optim_t *optim, const char *call, size_t group)
{
	if (group >= optim->ngroups)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: group is %zu, must be less than %zu",
				call, group, optim->ngroups);
	return SRT_OK;
}

static srt_status_t check_param(const srt_optim_t *optim, const char *call, size_t i)
{
	if (i >= optim->nentries)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: the parameter's index is %zu, must be less than %zu", call, i,
				optim->nentries);
	return SRT_OK;
}

srt_status_t srt_optim_set_lr(srt_optim_t *optim, size_t group, float lr, srt_stream_t *stream)
{
	const srt_k_step_state_t state = { .base_lr = lr, .schedule = SRT_SCHEDULE_CONSTANT };
	const size_t first = offsetof(srt_k_step_state_t, base_lr);
	srt_view_t view;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	SRT_TRY(check_group(optim, "srt_optim_set_lr", group));
	SRT_TRY(srt_optim_check_amount("srt_optim_set_lr: lr", (double)lr));
	view = srt_optim_step_state(optim, group);
	optim->has_lr[group] = true;
	return srt_buffer_copy_from_host(view.buffer, view.offset + first,
					 (const char *)&state + first,
					 offsetof(srt_k_step_state_t, skipped) - first, stream);
}

srt_status_t srt_optim_get_state(const srt_optim_t *optim, size_t group, srt_stream_t *stream,
				 srt_step_info_t *info)
{
	srt_k_step_state_t state;
	srt_view_t view;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(info);
	SRT_TRY(srt_struct_check(info, "srt_step_info_t"));
	SRT_TRY(check_group(optim, "srt_optim_get_state", group));
	view = srt_optim_step_state(optim, group);
	SRT_TRY(srt_buffer_copy_to_host(&state, view.buffer, view.offset, sizeof(state), stream));
	return srt_step_info_write(info, &state);
}

srt_status_t srt_optim_set_state(srt_optim_t *optim, size_t group, const srt_step_info_t *info,
				 srt_stream_t *stream)
{
	srt_k_step_state_t state;
	srt_view_t view;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(info);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_step_info_read(&state, info));
	SRT_TRY(check_group(optim, "srt_optim_set_state", group));
	if (state.step < 0 || state.skipped < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_optim_set_state: step is %d and skipped is %d, must be at "
				"least 0",
				(int)state.step, (int)state.skipped);
	SRT_TRY(srt_optim_check_amount("srt_optim_set_state: base_lr", (double)state.base_lr));
	SRT_TRY(srt_optim_check_schedule(state.min_lr, state.warmup, state.lr_steps,
					 (srt_schedule_t)state.schedule, state.decay_steps));
	optim->has_lr[group] = true;
	view = srt_optim_step_state(optim, group);
	return srt_buffer_copy_from_host(view.buffer, view.offset, &state, sizeof(state), stream);
}

/* Offset of a field of the parameter's state, in the buffer of the tables. */
static size_t field_offset(const srt_optim_t *optim, size_t i, size_t field)
{
	return optim->tables.offset + optim->layout.params +
	       (size_t)optim->entries[i].slot * sizeof(srt_k_param_state_t) + field;
}

srt_status_t srt_optim_set_used(srt_optim_t *optim, size_t i, int used, srt_stream_t *stream)
{
	const int32_t flag = used != 0;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	SRT_TRY(check_param(optim, "srt_optim_set_used", i));
	return srt_buffer_copy_from_host(optim->tables.buffer,
					 field_offset(optim, i,
						      offsetof(srt_k_param_state_t, used)),
					 &flag, sizeof(flag), stream);
}

srt_status_t srt_optim_get_steps(const srt_optim_t *optim, size_t i, srt_stream_t *stream,
				 int32_t *steps)
{
	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(steps);
	SRT_TRY(check_param(optim, "srt_optim_get_steps", i));
	return srt_buffer_copy_to_host(steps, optim->tables.buffer,
				       field_offset(optim, i, offsetof(srt_k_param_state_t, step)),
				       sizeof(*steps), stream);
}

srt_status_t srt_optim_set_steps(srt_optim_t *optim, size_t i, int32_t steps, srt_stream_t *stream)
{
	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	SRT_TRY(check_param(optim, "srt_optim_set_steps", i));
	if (steps < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_optim_set_steps of '%s': steps is %d, must be at least 0",
				optim->entries[i].name, (int)steps);
	return srt_buffer_copy_from_host(optim->tables.buffer,
					 field_offset(optim, i,
						      offsetof(srt_k_param_state_t, step)),
					 &steps, sizeof(steps), stream);
}

int srt_optim_count_states(const srt_optim_t *optim)
{
	return optim != NULL ? optim->nstates : 0;
}

srt_view_t srt_optim_state(const srt_optim_t *optim, size_t i, int k)
{
	const srt_optim_entry_t *entry;
	srt_view_t view;

	if (optim == NULL || i >= optim->nentries || k < 0 || k >= optim->nstates)
		return (srt_view_t){ 0 };
	entry = &optim->entries[i];
	view = entry->param.state[k];
	return entry->param.nelem > 0 ? view : (srt_view_t){ 0 };
}

size_t srt_optim_find(const srt_optim_t *optim, const char *name)
{
	size_t i = 0;

	if (optim == NULL || name == NULL)
		return optim != NULL ? optim->nentries : 0;
	while (i < optim->nentries && strcmp(optim->entries[i].name, name) != 0)
		i++;
	return i;
}
