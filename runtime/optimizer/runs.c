/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of parameters cut into runs, one launch each, and the tables of the kernels.
 *
 * A table of segments maps the elements of a run to their parameter and to its weight decay and
 * factor of the learning rate. A parameter joins the last run that it fits: same group, same
 * buffers and dtypes, and all of its views at one distance from the start of the run, after the
 * parameters that the run has. So the shards of an engine are one run for each pair of dtypes. A
 * matrix of Muon is a separate run, as its shape is an argument of its launches.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/optimizer/optimizer.h"

/* Elements that a run with states of the object may leave out between two parameters. */
#define MOST_GAP 1024

static size_t view_nbytes(srt_view_t view, int64_t nelem)
{
	return (size_t)nelem * srt_dtype_size(view.dtype);
}

/* Elements from `base` to `view`; -1 if they are not of one buffer and dtype, or it is before. */
static int64_t distance(srt_view_t base, srt_view_t view)
{
	if (base.buffer != view.buffer || base.dtype != view.dtype || view.offset < base.offset)
		return -1;
	return (int64_t)((view.offset - base.offset) / srt_dtype_size(view.dtype));
}

/* A view that may be absent is at that distance, or absent as the run's is. */
static bool is_at(srt_view_t base, srt_view_t view, int64_t first)
{
	if (base.buffer == NULL || view.buffer == NULL)
		return base.buffer == view.buffer;
	return distance(base, view) == first;
}

/* Where the parameter would be in the run; -1: it does not fit. */
static int64_t fit(const srt_optim_t *optim, const srt_optim_run_t *run, const srt_optim_param_t *p)
{
	const srt_optim_args_t *args = &run->args;
	const bool allocates = p->state[0].buffer == NULL && optim->nstates > 0;
	int64_t first = distance(args->param, p->value);

	if (optim->groups[p->group].kind == SRT_OPTIM_MUON)
		return -1;
	if (run->group != p->group || run->allocates != allocates || first < args->nelem ||
	    distance(args->grad, p->grad) != first || !is_at(args->copy, p->copy, first))
		return -1;
	if (srt_optim_in_8_bits(optim))
		return first;
	if (allocates)
		return first - args->nelem <= MOST_GAP ? first : -1;
	return is_at(args->m, p->state[0], first) && is_at(args->v, p->state[1], first) &&
			       is_at(args->vmax, p->state[2], first) ?
		       first :
		       -1;
}

static void begin_run(srt_optim_t *optim, const srt_optim_param_t *p)
{
	optim->runs[optim->nruns++] = (srt_optim_run_t){
		.group = p->group,
		.allocates = p->state[0].buffer == NULL && optim->nstates > 0,
		.args = { .param = p->value,
			  .grad = p->grad,
			  .copy = p->copy,
			  .m = p->state[0],
			  .v = p->state[1],
			  .vmax = p->state[2] },
	};
}

static void join_run(srt_optim_t *optim, srt_optim_entry_t *entry)
{
	const srt_optim_param_t *p = &entry->param;
	size_t r = optim->nruns;
	int64_t first = -1;

	while (r > 0 && first < 0)
		first = fit(optim, &optim->runs[--r], p);
	if (first < 0) {
		begin_run(optim, p);
		r = optim->nruns - 1;
		first = 0;
	}
	entry->run = (int32_t)r;
	entry->first = first;
	optim->runs[r].args.nsegments++;
	optim->runs[r].args.nelem = first + p->nelem;
}

/* Without elements there is nothing to step. */
static bool is_stepped(const srt_optim_t *optim, const srt_optim_entry_t *entry)
{
	return optim->groups[0].kind != SRT_OPTIM_NONE && entry->param.nelem > 0;
}

srt_status_t srt_optim_make_runs(srt_optim_t *optim)
{
	srt_optim_run_t *shrunk;

	optim->runs = srt_calloc(optim->nentries, sizeof(*optim->runs), "optimizer runs");
	if (optim->runs == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < optim->nentries; i++) {
		optim->entries[i].run = -1;
		if (is_stepped(optim, &optim->entries[i]))
			join_run(optim, &optim->entries[i]);
	}
	shrunk = srt_realloc(optim->runs, optim->nruns, sizeof(*shrunk), "optimizer runs");
	if (shrunk == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	optim->runs = shrunk;
	return SRT_OK;
}

/* ---- states ------------------------------------------------------------------------------ */

static srt_view_t *run_state(srt_optim_run_t *run, int k)
{
	return k == 0 ? &run->args.m : k == 1 ? &run->args.v : &run->args.vmax;
}

/* Groups of one kind have the states of that with most, as they are saved so. */
static int run_nstates(const srt_optim_t *optim, const srt_optim_run_t *run)
{
	const srt_optim_options_t *group = &optim->groups[run->group];

	return group->kind == SRT_OPTIM_MUON ? srt_optim_count_states(group) : optim->nstates;
}

srt_status_t srt_optim_allocate_states(srt_optim_t *optim)
{
	size_t at = 0;

	if (srt_optim_in_8_bits(optim))
		return srt_coded_place_states(optim);
	for (size_t r = 0; r < optim->nruns; r++) {
		srt_optim_run_t *run = &optim->runs[r];

		for (int k = 0; run->allocates && k < run_nstates(optim, run); k++) {
			*run_state(run, k) = srt_view(NULL, at, run->args.param.dtype);
			at += srt_align_up(view_nbytes(run->args.param, run->args.nelem),
					   SRT_OPTIM_ALIGN);
		}
	}
	if (at > 0)
		SRT_TRY(srt_buffer_create(optim->device, SRT_MEM_DEVICE, at, "optimizer state",
					  &optim->state_buffer));
	for (size_t i = 0; i < optim->nentries; i++) {
		srt_optim_entry_t *entry = &optim->entries[i];
		srt_optim_run_t *run = entry->run < 0 ? NULL : &optim->runs[entry->run];

		for (int k = 0; run != NULL && run->allocates && k < run_nstates(optim, run); k++) {
			srt_view_t *base = run_state(run, k);

			base->buffer = optim->state_buffer;
			srt_buffer_hold(base->buffer);
			entry->param.state[k] =
				srt_view(base->buffer,
					 base->offset + view_nbytes(*base, entry->first),
					 base->dtype);
		}
	}
	for (size_t r = 0; r < optim->nruns; r++) { /* a group without momentum has no use of m */
		if (optim->groups[0].kind == SRT_OPTIM_SGD &&
		    optim->groups[optim->runs[r].group].momentum == 0.0)
			optim->runs[r].args.m = (srt_view_t){ 0 };
	}
	return SRT_OK;
}

/* ---- tables ------------------------------------------------------------------------------ */

/* The tables in the making. */
typedef struct tables {
	srt_k_step_state_t *states;
	srt_k_param_state_t *params;
	srt_k_segment_t *segments;
	srt_k_segment8_t *segments8; /* or these, in their place */
	srt_k_group_t *factors;
	int32_t nfactors;
} tables_t;

/* Index of the parameter's decay and factor; adds them if no earlier parameter has them. */
static int32_t find_or_add_factors(const srt_optim_param_t *p, tables_t *tables)
{
	const srt_k_group_t factors = { .lr_scale = p->lr_scale, .weight_decay = p->weight_decay };

	for (int32_t i = 0; i < tables->nfactors; i++) {
		if (memcmp(&tables->factors[i], &factors, sizeof(factors)) == 0)
			return i;
	}
	tables->factors[tables->nfactors] = factors;
	return tables->nfactors++;
}

static srt_view_t table_view(const srt_optim_t *optim, size_t offset)
{
	return srt_view(optim->tables.buffer, optim->tables.offset + offset, SRT_U8);
}

/* The segments of each run follow those of the run before it. */
static void fill_segments(srt_optim_t *optim, tables_t *tables)
{
	const srt_optim_layout_t *layout = &optim->layout;
	const bool in_8_bits = srt_optim_in_8_bits(optim);
	const size_t size = in_8_bits ? sizeof(srt_k_segment8_t) : sizeof(srt_k_segment_t);
	size_t n = 0;

	for (size_t r = 0; r < optim->nruns; r++) {
		srt_optim_run_t *run = &optim->runs[r];

		run->args.state = srt_optim_state_view(optim, run->group);
		run->args.params = table_view(optim, layout->params);
		run->args.segments = table_view(optim, layout->segments + n * size);
		run->args.groups = table_view(optim, layout->groups);
		n += (size_t)run->args.nsegments;
		run->args.nsegments = 0; /* counted again */
	}
	for (size_t i = 0; i < optim->nentries; i++) {
		const srt_optim_entry_t *entry = &optim->entries[i];
		srt_optim_run_t *run;
		size_t at;

		if (entry->run < 0)
			continue;
		run = &optim->runs[entry->run];
		at = (run->args.segments.offset - optim->tables.offset - layout->segments) / size +
		     (size_t)run->args.nsegments++;
		if (in_8_bits) {
			tables->segments8[at] = srt_coded_segment(optim, entry, &run->args.nblocks);
			tables->segments8[at].group = find_or_add_factors(&entry->param, tables);
			continue;
		}
		tables->segments[at] = (srt_k_segment_t){
			.offset = entry->first,
			.nelem = entry->param.nelem,
			.group = find_or_add_factors(&entry->param, tables),
			.param = entry->slot,
		};
	}
}

static void fill_states(const srt_optim_t *optim, tables_t *tables)
{
	for (size_t g = 0; g < optim->ngroups; g++) {
		const srt_optim_options_t *o = &optim->groups[g];

		tables->states[g] = (srt_k_step_state_t){
			.scale = 1.0f,
			.inv_scale = 1.0f,
			.clip_coef = 1.0f,
			.base_lr = o->lr,
			.min_lr = o->min_lr,
			.warmup = o->warmup,
			.lr_steps = o->lr_steps,
			.schedule = (int32_t)o->schedule,
			.decay_steps = o->decay_steps,
		};
	}
	/* An engine, whose tables these are then, finds out in each step which are used. */
	for (size_t i = 0; optim->table_buffer != NULL && i < optim->nentries; i++)
		tables->params[i].used = 1;
}

srt_status_t srt_optim_upload_tables(srt_optim_t *optim, srt_stream_t *stream)
{
	const srt_optim_layout_t *layout = &optim->layout;
	char *host = srt_calloc(layout->total, 1, "optimizer tables");
	tables_t tables;
	srt_status_t status;

	if (host == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	tables = (tables_t){
		.states = (void *)(host + layout->states),
		.params = (void *)(host + layout->params),
		.segments = (void *)(host + layout->segments),
		.segments8 = (void *)(host + layout->segments),
		.factors = (void *)(host + layout->groups),
	};
	fill_states(optim, &tables);
	fill_segments(optim, &tables);
	status = srt_buffer_copy_from_host(optim->tables.buffer, optim->tables.offset, host,
					   layout->total, stream);
	free(host);
	return status;
}
