/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads the state of a sharded optimizer into another one, whose parameters may have other
 * shardings: what each parameter and each group has, by name.
 */
#include "runtime/optimizer/optimizer.h"
#include "runtime/tensors/sharded_optim.h"

static const char loading[] = "loading the state of a sharded optimizer";

/* ---- checks ------------------------------------------------------------------------------ */

static srt_status_t check_same_param(const char *name, const srt_named_param_t *to,
				     const srt_named_param_t *from)
{
	bool same = to->is_sharded == from->is_sharded;

	if (same && to->is_sharded)
		same = to->states[0] == NULL ||
		       srt_sharded_tensor_matches(to->states[0], from->states[0]);
	else if (same)
		same = to->nelem == from->nelem && to->dtype == from->dtype;
	if (same)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"parameter '%s' has another shape or dtype in the other optimizer, or only "
			"one of them is sharded",
			name);
}

static srt_status_t check_load(const srt_sharded_optim_t *optim, const srt_sharded_optim_t *from)
{
	const srt_optim_t *to_list = optim->local[0], *from_list = from->local[0];
	const srt_optim_kind_t kinds[] = { to_list->groups[0].kind, from_list->groups[0].kind };

	if (optim->comm != from->comm || kinds[0] != kinds[1] ||
	    to_list->ngroups != from_list->ngroups || optim->nstates != from->nstates)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the optimizers differ in kind, groups, states or communicator: "
				"kinds %d and %d, %zu and %zu groups, %d and %d states",
				(int)kinds[0], (int)kinds[1], to_list->ngroups, from_list->ngroups,
				optim->nstates, from->nstates);
	for (size_t i = 0; i < from->nparams; i++) {
		if (srt_optim_find(to_list, srt_optim_name(from_list, i)) == optim->nparams)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"the optimizer has no parameter '%s', which the state has",
					srt_optim_name(from_list, i));
	}
	for (size_t i = 0; i < optim->nparams; i++) {
		const char *name = srt_optim_name(to_list, i);
		const size_t j = srt_optim_find(from_list, name);

		if (j == from->nparams)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT, "the state has no parameter '%s'",
					name);
		SRT_TRY(check_same_param(name, &optim->params[i], &from->params[j]));
	}
	return SRT_OK;
}

/* ---- load -------------------------------------------------------------------------------- */

/* Collective: the states of a sharded parameter. */
static srt_status_t load_states(const srt_named_param_t *to, const srt_named_param_t *from,
				int nstates, srt_stream_t *stream)
{
	for (int k = 0; to->is_sharded && k < nstates; k++)
		SRT_TRY(srt_sharded_tensor_copy(to->states[k], from->states[k], stream));
	return SRT_OK;
}

/* Step counts of parameter i, and the states of a plain one. */
static srt_status_t load_local(srt_sharded_optim_t *optim, size_t i,
			       const srt_sharded_optim_t *from, size_t j, srt_stream_t *stream)
{
	const size_t nbytes = (size_t)from->params[j].nelem * srt_dtype_size(from->params[j].dtype);
	int32_t steps;

	SRT_TRY(srt_optim_get_steps(from->local[0], j, &steps, stream));
	SRT_TRY(srt_optim_set_steps(optim->local[0], i, steps, stream));
	for (size_t k = 0; k < (size_t)optim->nstates && !optim->params[i].is_sharded; k++) {
		srt_view_t x, y;

		SRT_TRY(srt_optim_state(from->local[0], j, k, &x));
		SRT_TRY(srt_optim_state(optim->local[0], i, k, &y));
		if (nbytes > 0)
			SRT_TRY(srt_buffer_copy(y.buffer, y.offset, x.buffer, x.offset, nbytes,
						stream));
	}
	return SRT_OK;
}

static srt_status_t load_group(srt_optim_t *optim, const srt_optim_t *from, size_t group,
			       srt_stream_t *stream)
{
	srt_step_info_t info = SRT_STEP_INFO_INIT;

	SRT_TRY(srt_optim_get_step_info(from, group, &info, stream));
	SRT_TRY(srt_optim_set_step_info(optim, group, &info, stream));
	/* The step info of a group that no call gave a learning rate does not set one. */
	for (; optim != NULL; optim = optim->twin)
		optim->has_lr[group] = from->has_lr[group];
	return SRT_OK;
}

static size_t find_same(const srt_sharded_optim_t *optim, size_t i, const srt_sharded_optim_t *from)
{
	return srt_optim_find(from->local[0], srt_optim_name(optim->local[0], i));
}

/* All that does not move between ranks. */
static srt_status_t load_locals(srt_sharded_optim_t *optim, const srt_sharded_optim_t *from,
				srt_stream_t *stream)
{
	for (size_t i = 0; i < optim->nparams; i++)
		SRT_TRY(load_local(optim, i, from, find_same(optim, i, from), stream));
	for (size_t g = 0; g < optim->local[0]->ngroups; g++)
		SRT_TRY(load_group(optim->local[0], from->local[0], g, stream));
	return srt_stream_sync(stream);
}

srt_status_t srt_sharded_optim_load(srt_optim_t *optim, const srt_optim_t *from,
				    srt_stream_t *stream)
{
	srt_sharded_optim_t *to = srt_sharded_optim(optim);
	const srt_sharded_optim_t *loaded = srt_sharded_optim(from);

	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(from);
	SRT_NOT_NULL(stream);
	if (to == NULL || loaded == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_sharded_optim_load: %s is not of srt_sharded_optim_create()",
				to == NULL ? "optim" : "from");
	SRT_TRY(srt_comm_status_consensus(to->comm, loading, check_load(to, loaded)));
	for (size_t i = 0; i < to->nparams; i++)
		SRT_TRY(load_states(&to->params[i], &loaded->params[find_same(to, i, loaded)],
				    to->nstates, stream));
	return srt_comm_status_consensus(to->comm, loading, load_locals(to, loaded, stream));
}
