/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The groups and parameters of an optimizer, and what a step changes: step states of the groups,
 * step counts and states of the parameters, read and set.
 */
#include <string.h>

#include "runtime/optimizer/optimizer.h"

/* ---- owners ------------------------------------------------------------------------------ */

srt_status_t srt_optim_enter(const srt_optim_t *optim, const char *call, srt_stream_t *stream,
			     srt_stream_t **home)
{
	*home = stream;
	if (optim->owner == NULL || optim->owner->enter == NULL)
		return SRT_OK;
	return optim->owner->enter(optim->owner_arg, call, stream, home);
}

srt_status_t srt_optim_leave(const srt_optim_t *optim, srt_stream_t *home, srt_stream_t *stream)
{
	if (optim->owner == NULL || optim->owner->leave == NULL)
		return SRT_OK;
	return optim->owner->leave(optim->owner_arg, home, stream);
}

srt_status_t srt_optim_check_owner(const srt_optim_t *optim, const char *call)
{
	if (optim->owner == NULL || optim->owner->stepped_by == NULL)
		return SRT_OK;
	return srt_fail(SRT_ERR_STATE, "%s: the optimizer belongs to an engine: %s() steps it",
			call, optim->owner->stepped_by);
}

/* ---- groups ------------------------------------------------------------------------------ */

size_t srt_optim_group_count(const srt_optim_t *optim)
{
	return optim != NULL ? optim->ngroups : 0;
}

static srt_status_t check_group(const srt_optim_t *optim, const char *call, size_t group)
{
	if (group >= optim->ngroups)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: group is %zu, must be less than %zu",
				call, group, optim->ngroups);
	return SRT_OK;
}

srt_status_t srt_optim_group_options(const srt_optim_t *optim, size_t group,
				     srt_optim_options_t *options)
{
	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(options);
	SRT_TRY(srt_struct_check(options, "srt_optim_options_t"));
	SRT_TRY(check_group(optim, "srt_optim_group_options", group));
	return srt_struct_write(options, &optim->groups[group], sizeof(*options),
				"srt_optim_options_t");
}

srt_view_t srt_optim_state_view(const srt_optim_t *optim, size_t group)
{
	return srt_view(optim->tables.buffer,
			optim->tables.offset + optim->layout.states +
				group * sizeof(srt_k_step_state_t),
			SRT_U8);
}

srt_status_t srt_optim_found_inf(const srt_optim_t *optim, srt_view_t *view)
{
	srt_view_t state;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(view);
	if (optim->tables.buffer == NULL)
		return srt_fail(SRT_ERR_STATE, "srt_optim_found_inf() before srt_engine_build()");
	if (optim->twin != NULL)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"srt_optim_found_inf: the optimizer has shards on the device and "
				"on the host, and each device has a step state");
	state = srt_optim_state_view(optim, 0);
	*view = srt_view(state.buffer, state.offset + offsetof(srt_k_step_state_t, found_inf),
			 SRT_F32);
	return SRT_OK;
}

/* ---- learning rates and step states of groups -------------------------------------------- */

static srt_status_t set_lr(srt_optim_t *optim, size_t group, float lr, srt_stream_t *stream)
{
	const srt_k_step_state_t state = { .base_lr = lr, .schedule = SRT_SCHEDULE_CONSTANT };
	const size_t first = offsetof(srt_k_step_state_t, base_lr);
	const size_t nbytes = offsetof(srt_k_step_state_t, skipped) - first;
	const bool all = group == SRT_OPTIM_ALL_GROUPS;
	srt_stream_t *home;

	SRT_TRY(srt_optim_enter(optim, "srt_optim_set_lr", stream, &home));
	if (optim->owner != NULL && optim->owner->set_lr != NULL)
		SRT_TRY(optim->owner->set_lr(optim->owner_arg, group, lr));
	for (size_t g = all ? 0 : group; g < (all ? optim->ngroups : group + 1); g++) {
		const srt_view_t view = srt_optim_state_view(optim, g);

		optim->has_lr[g] = true;
		SRT_TRY(srt_buffer_copy_from_host(view.buffer, view.offset + first,
						  (const char *)&state + first, nbytes, home));
	}
	return srt_optim_leave(optim, home, stream);
}

srt_status_t srt_optim_set_lr(srt_optim_t *optim, size_t group, float lr, srt_stream_t *stream)
{
	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	if (group != SRT_OPTIM_ALL_GROUPS)
		SRT_TRY(check_group(optim, "srt_optim_set_lr", group));
	SRT_TRY(srt_optim_check_amount("srt_optim_set_lr: lr", (double)lr));
	for (; optim != NULL; optim = optim->twin)
		SRT_TRY(set_lr(optim, group, lr, stream));
	return SRT_OK;
}

srt_status_t srt_optim_get_step_info(const srt_optim_t *optim, size_t group, srt_step_info_t *info,
				     srt_stream_t *stream)
{
	srt_k_step_state_t state;
	srt_stream_t *home;
	srt_view_t view;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(info);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_struct_check(info, "srt_step_info_t"));
	SRT_TRY(check_group(optim, "srt_optim_get_step_info", group));
	SRT_TRY(srt_optim_enter(optim, "srt_optim_get_step_info", stream, &home));
	view = srt_optim_state_view(optim, group);
	SRT_TRY(srt_buffer_copy_to_host(&state, view.buffer, view.offset, sizeof(state), home));
	return srt_step_info_write(info, &state);
}

static srt_status_t set_step_info(srt_optim_t *optim, size_t group, const srt_k_step_state_t *state,
				  srt_stream_t *stream)
{
	srt_stream_t *home;
	srt_view_t view;

	SRT_TRY(srt_optim_enter(optim, "srt_optim_set_step_info", stream, &home));
	view = srt_optim_state_view(optim, group);
	optim->has_lr[group] = true;
	SRT_TRY(srt_buffer_copy_from_host(view.buffer, view.offset, state, sizeof(*state), home));
	if (optim->owner != NULL && optim->owner->set_info != NULL)
		optim->owner->set_info(optim->owner_arg, group);
	return srt_optim_leave(optim, home, stream);
}

srt_status_t srt_optim_set_step_info(srt_optim_t *optim, size_t group, const srt_step_info_t *info,
				     srt_stream_t *stream)
{
	static const char call[] = "srt_optim_set_step_info";
	srt_k_step_state_t state;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(info);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_step_info_read(&state, info));
	SRT_TRY(check_group(optim, call, group));
	if (state.step < 0 || state.skipped < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: step is %d and skipped is %d, must be at least 0", call,
				(int)state.step, (int)state.skipped);
	SRT_TRY(srt_optim_check_amount("srt_optim_set_step_info: base_lr", (double)state.base_lr));
	SRT_TRY(srt_optim_check_schedule(state.min_lr, state.warmup, state.lr_steps,
					 (srt_schedule_t)state.schedule, state.decay_steps));
	for (; optim != NULL; optim = optim->twin)
		SRT_TRY(set_step_info(optim, group, &state, stream));
	return SRT_OK;
}

/* ---- parameters -------------------------------------------------------------------------- */

size_t srt_optim_count(const srt_optim_t *optim)
{
	return optim != NULL ? optim->nparams : 0;
}

const char *srt_optim_name(const srt_optim_t *optim, size_t i)
{
	return i < srt_optim_count(optim) ? optim->entries[i].name : "";
}

size_t srt_optim_find(const srt_optim_t *optim, const char *name)
{
	const size_t n = srt_optim_count(optim);
	size_t i = 0;

	if (name == NULL)
		return n;
	while (i < n && strcmp(optim->entries[i].name, name) != 0)
		i++;
	return i;
}

static srt_status_t check_param(const srt_optim_t *optim, const char *call, size_t i)
{
	if (i >= optim->nparams)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: the parameter's index is %zu, must be less than %zu", call, i,
				optim->nparams);
	return SRT_OK;
}

/* Offset of a field of the parameter's state, in the buffer of the tables. */
static size_t field_offset(const srt_optim_t *optim, size_t i, size_t field)
{
	return optim->tables.offset + optim->layout.params +
	       (size_t)optim->entries[i].slot * sizeof(srt_k_param_state_t) + field;
}

srt_status_t srt_optim_set_field(srt_optim_t *optim, size_t i, size_t field, int32_t value,
				 srt_stream_t *stream)
{
	return srt_buffer_copy_from_host(optim->tables.buffer, field_offset(optim, i, field),
					 &value, sizeof(value), stream);
}

/* Sets the field for the program: all entries of its parameter. */
static srt_status_t change_field(srt_optim_t *optim, const char *call, size_t i, size_t field,
				 int32_t value, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_TRY(srt_optim_enter(optim, call, stream, &home));
	SRT_TRY(check_param(optim, call, i));
	SRT_TRY(srt_optim_set_field(optim, i, field, value, home));
	if (optim->owner != NULL && optim->owner->set_field != NULL)
		SRT_TRY(optim->owner->set_field(optim->owner_arg, i, field, value, home));
	return srt_optim_leave(optim, home, stream);
}

srt_status_t srt_optim_set_used(srt_optim_t *optim, size_t i, int used, srt_stream_t *stream)
{
	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_optim_check_owner(optim, "srt_optim_set_used"));
	return change_field(optim, "srt_optim_set_used", i, offsetof(srt_k_param_state_t, used),
			    used != 0, stream);
}

srt_status_t srt_optim_get_steps(const srt_optim_t *optim, size_t i, int32_t *steps,
				 srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(steps);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_optim_enter(optim, "srt_optim_get_steps", stream, &home));
	SRT_TRY(check_param(optim, "srt_optim_get_steps", i));
	return srt_buffer_copy_to_host(steps, optim->tables.buffer,
				       field_offset(optim, i, offsetof(srt_k_param_state_t, step)),
				       sizeof(*steps), home);
}

srt_status_t srt_optim_set_steps(srt_optim_t *optim, size_t i, int32_t steps, srt_stream_t *stream)
{
	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	if (steps < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_optim_set_steps of '%s': steps is %d, must be at least 0",
				srt_optim_name(optim, i), (int)steps);
	return change_field(optim, "srt_optim_set_steps", i, offsetof(srt_k_param_state_t, step),
			    steps, stream);
}

/* ---- states of parameters ---------------------------------------------------------------- */

size_t srt_optim_state_count(const srt_optim_t *optim)
{
	return optim != NULL ? (size_t)optim->nstates : 0;
}

srt_optim_kind_t srt_optim_kind(const srt_optim_t *optim)
{
	for (size_t g = 1; g < optim->ngroups; g++) {
		if (optim->groups[g].kind == SRT_OPTIM_MUON)
			return SRT_OPTIM_MUON;
	}
	return optim->groups[0].kind;
}

/* The kind whose names the states have. */
static srt_optim_kind_t naming_kind(const srt_optim_t *optim)
{
	for (size_t g = 0; g < optim->ngroups; g++) {
		if (optim->groups[g].kind != SRT_OPTIM_MUON)
			return optim->groups[g].kind;
	}
	return SRT_OPTIM_MUON;
}

const char *srt_optimizer_state_name(srt_optim_kind_t kind, size_t k)
{
	static const char *const adam[] = { "exp_avg", "exp_avg_sq", "max_exp_avg_sq" };

	if (kind == SRT_OPTIM_SGD || kind == SRT_OPTIM_MUON)
		return k == 0 ? "momentum_buffer" : "";
	return k < SRT_ARRAY_LEN(adam) ? adam[k] : "";
}

const char *srt_optim_state_name(const srt_optim_t *optim, size_t k)
{
	return k < srt_optim_state_count(optim) ? srt_optimizer_state_name(naming_kind(optim), k) :
						  "";
}

srt_status_t srt_optim_state(const srt_optim_t *optim, size_t i, size_t k, srt_view_t *view)
{
	const srt_optim_entry_t *entry;

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(view);
	SRT_TRY(check_param(optim, "srt_optim_state", i));
	if (k >= srt_optim_state_count(optim))
		return srt_fail(SRT_ERR_NOT_FOUND,
				"srt_optim_state: the optimizer has %d states, there is no state "
				"%zu",
				optim->nstates, k);
	entry = &optim->entries[i];
	if (srt_optim_is_coded(optim, &entry->param))
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"srt_optim_state: the states of parameter '%s' are in 8 bits: read "
				"and set their values by srt_optim_get_state() and "
				"srt_optim_set_state()",
				entry->name);
	*view = entry->param.nelem > 0 ? entry->param.state[k] : (srt_view_t){ 0 };
	return SRT_OK;
}

/* The entry of a state of codes or floats. */
static srt_status_t find_values(const srt_optim_t *optim, const char *call, size_t i, size_t k,
				const srt_optim_param_t **p)
{
	SRT_TRY(check_param(optim, call, i));
	*p = &optim->entries[i].param;
	if (k >= srt_optim_state_count(optim))
		return srt_fail(SRT_ERR_NOT_FOUND,
				"%s: the optimizer has %d states, there is no state %zu", call,
				optim->nstates, k);
	if ((*p)->nelem > 0 && !srt_optim_is_coded(optim, *p) && (*p)->state[k].buffer == NULL)
		return srt_fail(SRT_ERR_NOT_FOUND,
				"%s: parameter '%s' is a matrix of Muon, which has no state %zu",
				call, (*p)->name, k);
	if ((*p)->nelem > 0 && !srt_optim_is_coded(optim, *p) && (*p)->state[k].dtype != SRT_F32)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"%s: state %zu of parameter '%s' is %s: srt_optim_state() has it",
				call, k, (*p)->name, srt_dtype_name((*p)->state[k].dtype));
	return SRT_OK;
}

/* Checks the arguments of an access to a state; a parameter without elements needs no memory.
 * *home: as srt_optim_enter() has it. */
static srt_status_t begin_access(const srt_optim_t *optim, const char *call, size_t i, size_t k,
				 const float *elements, srt_stream_t *stream,
				 const srt_optim_param_t **p, srt_stream_t **home)
{
	SRT_TRY(srt_check_not_null(optim, call, "optim"));
	SRT_TRY(srt_check_not_null(stream, call, "stream"));
	if (i >= optim->nentries || optim->entries[i].param.nelem > 0)
		SRT_TRY(srt_check_not_null(elements, call, "elements"));
	SRT_TRY(srt_optim_enter(optim, call, stream, home));
	return find_values(optim, call, i, k, p);
}

srt_status_t srt_optim_get_state(const srt_optim_t *optim, size_t i, size_t k, float *elements,
				 srt_stream_t *stream)
{
	const srt_optim_param_t *p;
	srt_stream_t *home;

	SRT_TRY(begin_access(optim, __func__, i, k, elements, stream, &p, &home));
	if (p->nelem == 0)
		return SRT_OK;
	if (srt_optim_is_coded(optim, p))
		return srt_coded_read(p->state[k], p->state[2], (int)k, p->nelem, p->row_nelem,
				      elements, home);
	return srt_buffer_copy_to_host(elements, p->state[k].buffer, p->state[k].offset,
				       (size_t)p->nelem * sizeof(float), home);
}

srt_status_t srt_optim_set_state(srt_optim_t *optim, size_t i, size_t k, const float *elements,
				 srt_stream_t *stream)
{
	const srt_optim_param_t *p;
	srt_stream_t *home;

	SRT_TRY(begin_access(optim, __func__, i, k, elements, stream, &p, &home));
	if (p->nelem == 0)
		return srt_optim_leave(optim, home, stream);
	if (srt_optim_is_coded(optim, p))
		SRT_TRY(srt_coded_write(p->state[k], p->state[2], (int)k, p->nelem, p->row_nelem,
					elements, home));
	else
		SRT_TRY(srt_buffer_copy_from_host(p->state[k].buffer, p->state[k].offset, elements,
						  (size_t)p->nelem * sizeof(float), home));
	return srt_optim_leave(optim, home, stream);
}
