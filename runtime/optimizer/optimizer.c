/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An optimizer: created over a list of parameters, destroyed. Its options are checked (options.c),
 * the list is cut into launches (runs.c), and memory that the caller does not give is allocated.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/optimizer/optimizer.h"

static size_t reserve_bytes(size_t *at, size_t nbytes)
{
	size_t offset = *at;

	*at = srt_align_up(offset + nbytes, SRT_OPTIM_ALIGN);
	return offset;
}

void srt_optim_plan_tables(size_t nparams, size_t ngroups, bool in_8_bits,
			   srt_optim_layout_t *layout)
{
	const size_t segment = in_8_bits ? sizeof(srt_k_segment8_t) : sizeof(srt_k_segment_t);
	size_t at = 0;

	layout->states = reserve_bytes(&at, ngroups * sizeof(srt_k_step_state_t));
	layout->params = reserve_bytes(&at, nparams * sizeof(srt_k_param_state_t));
	layout->segments = reserve_bytes(&at, nparams * segment);
	layout->groups = reserve_bytes(&at, nparams * sizeof(srt_k_group_t));
	layout->total = at;
}

/* ---- the caller's list ------------------------------------------------------------------- */

static srt_status_t check_view(const srt_optim_param_t *p, srt_view_t view, srt_dtype_t dtype,
			       const char *what)
{
	const size_t size = srt_dtype_size(dtype);
	size_t nbytes;

	if (view.buffer == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s of parameter '%s' is absent", what,
				p->name);
	if (view.dtype != dtype)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s of parameter '%s' is %s, must be %s",
				what, p->name, srt_dtype_name(view.dtype), srt_dtype_name(dtype));
	if (view.offset % size != 0 || !srt_mul_size((size_t)p->nelem, size, &nbytes) ||
	    view.offset > srt_buffer_nbytes(view.buffer) ||
	    nbytes > srt_buffer_nbytes(view.buffer) - view.offset)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s of parameter '%s': %lld elements at byte %zu are outside their "
				"buffer of %zu bytes, or not aligned",
				what, p->name, (long long)p->nelem, view.offset,
				srt_buffer_nbytes(view.buffer));
	return SRT_OK;
}

static srt_status_t check_views(const srt_optim_param_t *p, int nstates)
{
	static const char *const names[] = { "state 0", "state 1", "state 2" };
	const bool has_copy = p->copy.buffer != NULL;
	srt_dtype_t grad = p->value.dtype;

	if (p->nelem == 0)
		return SRT_OK;
	if (p->value.buffer != NULL &&
	    (!srt_dtype_is_float(p->value.dtype) || (has_copy && p->value.dtype != SRT_F32)))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the value of parameter '%s' is %s, must be %s", p->name,
				srt_dtype_name(p->value.dtype),
				has_copy ? "f32 with a copy" : "f32, f16 or bf16");
	if (has_copy && p->copy.dtype != SRT_F16 && p->copy.dtype != SRT_BF16)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the copy of parameter '%s' is %s, must be f16 or bf16", p->name,
				srt_dtype_name(p->copy.dtype));
	if (has_copy && p->grad.dtype == p->copy.dtype)
		grad = p->copy.dtype;
	SRT_TRY(check_view(p, p->value, p->value.dtype, "the value"));
	SRT_TRY(check_view(p, p->grad, grad, "the gradient"));
	if (has_copy)
		SRT_TRY(check_view(p, p->copy, p->copy.dtype, "the copy"));
	for (int k = 0; p->state[0].buffer != NULL && k < nstates; k++)
		SRT_TRY(check_view(p, p->state[k], p->value.dtype, names[k]));
	return SRT_OK;
}

static srt_status_t check_matrix(const srt_optim_param_t *p)
{
	int64_t nelem;

	if (p->rows < 0 || p->cols < 0 || __builtin_mul_overflow(p->rows, p->cols, &nelem) ||
	    nelem != p->nelem)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' is in a group of Muon, and has %lld elements, %lld "
				"rows and %lld columns: Muon steps matrices; put other parameters "
				"in a group of AdamW",
				p->name, (long long)p->nelem, (long long)p->rows,
				(long long)p->cols);
	if (p->nelem > 0 && (p->value.dtype != SRT_F32 || p->grad.dtype != SRT_F32))
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"parameter '%s' is in a group of Muon, its value is %s and its "
				"gradient %s: both must be f32; a copy may have 16 bits",
				p->name, srt_dtype_name(p->value.dtype),
				srt_dtype_name(p->grad.dtype));
	if (p->nelem > 0 && p->update.buffer != NULL)
		SRT_TRY(check_view(p, p->update, SRT_BF16, "the update"));
	return SRT_OK;
}

/* With states in 8 bits. */
static srt_status_t check_rows(const srt_optim_param_t *p)
{
	if (p->state[0].buffer != NULL)
		return srt_fail(SRT_ERR_UNSUPPORTED,
				"state 0 of parameter '%s' is given, but option state_bits is 8: "
				"the optimizer allocates such states",
				p->name);
	if (p->row_nelem < 0 || p->whole_nelem < 0 ||
	    (p->row_nelem > 0 && p->nelem % p->row_nelem != 0))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' has %lld elements in rows of %lld, of a tensor of "
				"%lld: must be whole rows",
				p->name, (long long)p->nelem, (long long)p->row_nelem,
				(long long)p->whole_nelem);
	return SRT_OK;
}

static srt_status_t check_list(const srt_optim_options_t *groups, size_t ngroups,
			       const srt_optim_param_t *params, size_t nparams)
{
	const int nstates = srt_optim_count_states_of(groups, ngroups);

	for (size_t i = 0; i < nparams; i++) {
		const srt_optim_param_t *p = &params[i];
		bool is_muon;

		if (p->name == NULL || p->name[0] == '\0')
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"parameter %zu of the optimizer has no name", i);
		for (size_t j = 0; j < i; j++) {
			if (strcmp(params[j].name, p->name) == 0)
				return srt_fail(SRT_ERR_INVALID_ARGUMENT,
						"parameter '%s' is in the optimizer's list twice",
						p->name);
		}
		if (p->nelem < 0 || p->group >= ngroups)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"parameter '%s' has %lld elements, must have at least 0; "
					"its group is %zu, must be less than %zu",
					p->name, (long long)p->nelem, p->group, ngroups);
		SRT_TRY(srt_optim_check_param(p->name, p->weight_decay, p->lr_scale));
		if (groups[0].state_bits == 8)
			SRT_TRY(check_rows(p));
		is_muon = groups[p->group].kind == SRT_OPTIM_MUON;
		SRT_TRY(check_views(p, is_muon ? 1 : nstates));
		if (is_muon)
			SRT_TRY(check_matrix(p));
	}
	return SRT_OK;
}

/* A program's list. @param[out] params to be freed. */
static srt_status_t read_list(const srt_optim_param_t *given, size_t nparams,
			      srt_optim_param_t **out)
{
	srt_optim_param_t *params = srt_calloc(nparams, sizeof(*params), "optimizer parameters");
	srt_status_t status = params == NULL ? SRT_ERR_OUT_OF_MEMORY : SRT_OK;

	for (size_t i = 0; status == SRT_OK && i < nparams; i++) {
		params[i] = (srt_optim_param_t)SRT_OPTIM_PARAM_INIT;
		status = srt_struct_read(&params[i], sizeof(*params), srt_struct_at(given, i),
					 "srt_optim_param_t");
	}
	if (status == SRT_OK)
		*out = params;
	else
		free(params);
	return status;
}

/* ---- created ----------------------------------------------------------------------------- */

srt_status_t srt_optim_new(srt_device_t *device, srt_optim_t **out)
{
	srt_optim_t *optim = srt_calloc(1, sizeof(*optim), "optimizer");

	if (optim == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	optim->device = device;
	*out = optim;
	return SRT_OK;
}

srt_status_t srt_optim_add_group(srt_optim_t *optim, const srt_optim_options_t *options)
{
	static const char what[] = "groups of parameters";
	const size_t n = optim->ngroups + 1;
	srt_optim_options_t *groups = srt_realloc(optim->groups, n, sizeof(*groups), what);
	bool *has_lr = srt_realloc(optim->has_lr, n, sizeof(*has_lr), what);

	optim->groups = groups != NULL ? groups : optim->groups;
	optim->has_lr = has_lr != NULL ? has_lr : optim->has_lr;
	if (groups == NULL || has_lr == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	groups[optim->ngroups] = *options;
	has_lr[optim->ngroups] = options->lr > 0.0f;
	optim->ngroups = n;
	optim->nstates = srt_optim_count_states_of(groups, n);
	return SRT_OK;
}

/* Calls fn for the buffers of all views of a parameter. */
static void for_each_buffer(const srt_optim_param_t *param, void (*fn)(srt_buffer_t *buffer))
{
	const srt_view_t *views[4 + SRT_OPTIM_MAX_STATES] = { &param->value, &param->grad,
							      &param->copy, &param->update };

	for (int k = 0; k < SRT_OPTIM_MAX_STATES; k++)
		views[4 + k] = &param->state[k];
	for (size_t i = 0; i < SRT_ARRAY_LEN(views); i++) {
		if (views[i]->buffer != NULL)
			fn(views[i]->buffer);
	}
}

static srt_status_t copy_list(srt_optim_t *optim, const srt_optim_param_t *params, size_t nparams)
{
	optim->entries = srt_calloc(nparams, sizeof(*optim->entries), "optimizer parameters");
	if (optim->entries == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < nparams; i++) {
		srt_optim_entry_t *entry = &optim->entries[i];
		srt_optim_param_t *p = &entry->param;

		*p = params[i];
		entry->name = srt_strdup(p->name);
		if (entry->name == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		for_each_buffer(p, srt_buffer_hold);
		optim->nentries++;
		p->name = entry->name;
		p->weight_decay = srt_optim_weight_decay(p->weight_decay, &optim->groups[p->group]);
		p->row_nelem = p->row_nelem > 0 ? p->row_nelem : p->nelem;
		p->whole_nelem = p->whole_nelem > 0 ? p->whole_nelem : p->nelem;
	}
	return SRT_OK;
}

/* Indices in the table of parameter states: the order of the list, group by group. */
static srt_status_t number_slots(srt_optim_t *optim)
{
	size_t slot = 0;

	optim->first_slot =
		srt_calloc(optim->ngroups + 1, sizeof(*optim->first_slot), "optimizer groups");
	if (optim->first_slot == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t g = 0; g < optim->ngroups; g++) {
		optim->first_slot[g] = slot;
		for (size_t i = 0; i < optim->nentries; i++) {
			if (optim->entries[i].param.group == g)
				optim->entries[i].slot = (int32_t)slot++;
		}
	}
	optim->first_slot[optim->ngroups] = slot;
	return SRT_OK;
}

static srt_status_t place_tables(srt_optim_t *optim, srt_view_t tables)
{
	srt_optim_plan_tables(optim->nentries, optim->ngroups, srt_optim_in_8_bits(optim),
			      &optim->layout);
	optim->tables = tables;
	if (tables.buffer != NULL)
		return SRT_OK;
	SRT_TRY(srt_buffer_create(optim->device, SRT_MEM_DEVICE, optim->layout.total,
				  "optimizer tables", &optim->table_buffer));
	optim->tables = srt_view(optim->table_buffer, 0, SRT_U8);
	return SRT_OK;
}

srt_status_t srt_optim_complete(srt_optim_t *optim, const srt_optim_param_t *params, size_t nparams,
				srt_view_t tables, srt_stream_t *stream)
{
	SRT_TRY(copy_list(optim, params, nparams));
	SRT_TRY(number_slots(optim));
	SRT_TRY(srt_optim_make_runs(optim));
	SRT_TRY(srt_optim_allocate_states(optim));
	SRT_TRY(srt_muon_allocate(optim));
	SRT_TRY(place_tables(optim, tables));
	SRT_TRY(srt_optim_upload_tables(optim, stream));
	optim->nparams = nparams;
	return SRT_OK;
}

static srt_status_t create(srt_device_t *device, const srt_optim_options_t *groups, size_t ngroups,
			   const srt_optim_param_t *params, size_t nparams, srt_stream_t *stream,
			   srt_optim_t **out)
{
	srt_status_t status;
	srt_optim_t *optim;

	SRT_TRY(check_list(groups, ngroups, params, nparams));
	SRT_TRY(srt_optim_new(device, &optim));
	status = SRT_OK;
	for (size_t g = 0; status == SRT_OK && g < ngroups; g++)
		status = srt_optim_add_group(optim, &groups[g]);
	if (status == SRT_OK)
		status = srt_optim_complete(optim, params, nparams, (srt_view_t){ 0 }, stream);
	if (status == SRT_OK)
		*out = optim;
	else
		srt_optim_free(optim);
	return status;
}

srt_status_t srt_optim_create(srt_device_t *device, const srt_optim_options_t *groups,
			      size_t ngroups, const srt_optim_param_t *params, size_t nparams,
			      srt_optim_t **optim, srt_stream_t *stream)
{
	srt_optim_options_t *of_groups;
	srt_optim_param_t *list = NULL;
	srt_status_t status;

	SRT_NOT_NULL(device);
	SRT_NOT_NULL(groups);
	if (nparams > 0)
		SRT_NOT_NULL(params);
	SRT_NOT_NULL(stream);
	SRT_NOT_NULL(optim);
	SRT_TRY(srt_optim_read_groups(groups, ngroups, &of_groups));
	status = read_list(params, nparams, &list);
	if (status == SRT_OK)
		status = create(device, of_groups, ngroups, list, nparams, stream, optim);
	free(list);
	free(of_groups);
	return status;
}

void srt_optim_free(srt_optim_t *optim)
{
	if (optim == NULL)
		return;
	srt_buffer_destroy(optim->table_buffer);
	srt_buffer_destroy(optim->state_buffer);
	srt_buffer_destroy(optim->muon_buffer);
	for (size_t i = 0; i < optim->nentries; i++) {
		for_each_buffer(&optim->entries[i].param, srt_buffer_destroy);
		free(optim->entries[i].name);
	}
	free(optim->entries);
	free(optim->runs);
	free(optim->first_slot);
	free(optim->has_lr);
	free(optim->groups);
	free(optim);
}

void srt_optim_destroy(srt_optim_t *optim)
{
	if (optim == NULL || srt_device_is_inherited(optim->device))
		return;
	if (optim->owner == NULL)
		srt_optim_free(optim);
	else if (optim->owner->destroy != NULL)
		optim->owner->destroy(optim->owner_arg);
}
