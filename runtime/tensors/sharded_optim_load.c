/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads the state of a sharded optimizer into another one, whose parameters may have other
 * shardings: what each parameter and each group has, by name.
 */
#include "runtime/optimizer/optimizer.h"
#include "runtime/tensors/sharded_optim.h"

static const char loading[] = "loading the state of a sharded optimizer";

/* ---- checks ------------------------------------------------------------------------------ */

static srt_status_t check_same_param(const srt_named_param_t *to, const srt_named_param_t *from)
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
			to->name);
}

static srt_status_t check_load(const srt_sharded_optim_t *optim, const srt_sharded_optim_t *from)
{
	if (optim->comm != from->comm || optim->kind != from->kind ||
	    optim->ngroups != from->ngroups || optim->nstates != from->nstates)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the optimizers differ in kind, groups, states or communicator: "
				"kinds %d and %d, %zu and %zu groups, %d and %d states",
				(int)optim->kind, (int)from->kind, optim->ngroups, from->ngroups,
				optim->nstates, from->nstates);
	for (size_t i = 0; i < from->nparams; i++) {
		if (srt_sharded_optim_find(optim, from->params[i].name) == optim->nparams)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"the optimizer has no parameter '%s', which the state has",
					from->params[i].name);
	}
	for (size_t i = 0; i < optim->nparams; i++) {
		const size_t j = srt_sharded_optim_find(from, optim->params[i].name);

		if (j == from->nparams)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT, "the state has no parameter '%s'",
					optim->params[i].name);
		SRT_TRY(check_same_param(&optim->params[i], &from->params[j]));
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

	SRT_TRY(srt_sharded_optim_get_steps(from, j, stream, &steps));
	SRT_TRY(srt_sharded_optim_set_steps(optim, i, steps, stream));
	for (int k = 0; k < optim->nstates; k++) {
		const srt_view_t x = srt_sharded_optim_plain_state(from, j, k);
		const srt_view_t y = srt_sharded_optim_plain_state(optim, i, k);

		if (x.buffer != NULL && y.buffer != NULL)
			SRT_TRY(srt_buffer_copy(y.buffer, y.offset, x.buffer, x.offset, nbytes,
						stream));
	}
	return SRT_OK;
}

static srt_status_t load_group(srt_sharded_optim_t *optim, const srt_sharded_optim_t *from,
			       size_t group, srt_stream_t *stream)
{
	srt_step_info_t info = SRT_STEP_INFO_INIT;

	SRT_TRY(srt_sharded_optim_get_state(from, group, stream, &info));
	SRT_TRY(srt_sharded_optim_set_state(optim, group, &info, stream));
	/* The state of a group that no call gave a learning rate does not set one. */
	for (int home = 0; home < 2; home++) {
		if (optim->local[home] != NULL)
			optim->local[home]->has_lr[group] = from->local[0]->has_lr[group];
	}
	return SRT_OK;
}

/* All that does not move between ranks. */
static srt_status_t load_locals(srt_sharded_optim_t *optim, const srt_sharded_optim_t *from,
				srt_stream_t *stream)
{
	for (size_t i = 0; i < optim->nparams; i++)
		SRT_TRY(load_local(optim, i, from,
				   srt_sharded_optim_find(from, optim->params[i].name), stream));
	for (size_t g = 0; g < optim->ngroups; g++)
		SRT_TRY(load_group(optim, from, g, stream));
	return srt_stream_sync(stream);
}

srt_status_t srt_sharded_optim_load(srt_sharded_optim_t *optim, const srt_sharded_optim_t *from,
				    srt_stream_t *stream)
{
	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(from);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_comm_status_consensus(optim->comm, loading, check_load(optim, from)));
	for (size_t i = 0; i < optim->nparams; i++) {
		const size_t j = srt_sharded_optim_find(from, optim->params[i].name);

		SRT_TRY(load_states(&optim->params[i], &from->params[j], optim->nstates, stream));
	}
	return srt_comm_status_consensus(optim->comm, loading, load_locals(optim, from, stream));
}
