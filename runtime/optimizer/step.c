/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A step of the optimizer. Step counts, learning rates and clip coefficient are on the device and
 * are advanced there, so the host does not wait.
 */
#include "runtime/optimizer/optimizer.h"

/* found_inf of the first group decides for all. */
static srt_status_t copy_found_inf(const srt_optim_t *optim, size_t group, srt_stream_t *stream)
{
	const size_t at = offsetof(srt_k_step_state_t, found_inf);
	const srt_view_t from = srt_optim_state_view(optim, 0);
	const srt_view_t to = srt_optim_state_view(optim, group);

	return srt_buffer_copy(to.buffer, to.offset + at, from.buffer, from.offset + at,
			       sizeof(float), stream);
}

srt_status_t srt_optim_advance(srt_optim_t *optim, srt_view_t norm, float max_norm,
			       srt_stream_t *stream)
{
	const srt_view_t *tables = &optim->tables;

	for (size_t g = 0; g < optim->ngroups; g++) {
		const size_t first = optim->first_slot[g];
		const size_t at = optim->layout.params + first * sizeof(srt_k_param_state_t);

		if (g > 0)
			SRT_TRY(copy_found_inf(optim, g, stream));
		SRT_TRY(srt_op_step_advance(
			&(srt_step_advance_t){
				.state = srt_optim_state_view(optim, g),
				.params = srt_view(tables->buffer, tables->offset + at, SRT_U8),
				.nparams = (int64_t)(optim->first_slot[g + 1] - first),
				.norm = norm,
				.max_norm = max_norm,
				.beta1 = optim->groups[g].beta1,
				.beta2 = optim->groups[g].beta2 },
			stream));
	}
	return SRT_OK;
}

static srt_status_t step_run(const srt_optim_t *optim, const srt_optim_run_t *run,
			     srt_stream_t *stream)
{
	const srt_optim_options_t *group = &optim->groups[run->group];

	if (group->kind == SRT_OPTIM_MUON)
		return SRT_OK; /* srt_muon_apply() */
	if (group->kind == SRT_OPTIM_SGD)
		return srt_op_sgd(&run->args,
				  &(srt_sgd_t){ .momentum = (float)group->momentum,
						.dampening = group->dampening,
						.nesterov = group->nesterov,
						.maximize = group->maximize },
				  stream);
	return srt_op_adam(&run->args,
			   &(srt_adam_t){ .beta1 = group->beta1,
					  .beta2 = group->beta2,
					  .eps = group->eps,
					  .decoupled = group->kind == SRT_OPTIM_ADAMW,
					  .amsgrad = group->amsgrad,
					  .maximize = group->maximize,
					  .in_8_bits = group->state_bits == 8 },
			   stream);
}

srt_status_t srt_optim_apply(srt_optim_t *optim, srt_stream_t *stream)
{
	if (optim->groups[0].kind == SRT_OPTIM_NONE)
		return SRT_OK;
	for (size_t r = 0; r < optim->nruns; r++)
		SRT_TRY(step_run(optim, &optim->runs[r], stream));
	return srt_muon_apply(optim, stream);
}

srt_status_t srt_optim_check_lr(const srt_optim_t *optim, const char *call)
{
	if (optim->groups[0].kind == SRT_OPTIM_NONE)
		return SRT_OK;
	for (size_t g = 0; g < optim->ngroups; g++) {
		if (!optim->has_lr[g] && optim->first_slot[g + 1] > optim->first_slot[g])
			return srt_fail(SRT_ERR_STATE,
					"%s: group %zu has no learning rate: set its option lr, or "
					"call srt_optim_set_lr(), also for a learning rate of 0",
					call, g);
	}
	return SRT_OK;
}

static srt_status_t step(srt_optim_t *optim, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_TRY(srt_optim_enter(optim, "srt_optim_step", stream, &home));
	SRT_TRY(srt_optim_advance(optim, (srt_view_t){ 0 }, 0.0f, home));
	SRT_TRY(srt_optim_apply(optim, home));
	return srt_optim_leave(optim, home, stream);
}

srt_status_t srt_optim_step(srt_optim_t *optim, srt_stream_t *stream)
{
	SRT_NOT_NULL(optim);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_optim_check_owner(optim, "srt_optim_step"));
	SRT_TRY(srt_optim_check_lr(optim, "srt_optim_step"));
	for (; optim != NULL; optim = optim->twin)
		SRT_TRY(step(optim, stream));
	return SRT_OK;
}
