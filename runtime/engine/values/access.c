/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of a program inside and between passes: the unsharded parameter, the memory of its
 * gradient, the addresses of both, the micro-batch that comes next.
 */
#include "runtime/engine/checks/checks.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"

srt_status_t srt_param_data(srt_param_t *param, srt_view_t *view)
{
	SRT_NOT_NULL(param);
	SRT_NOT_NULL(view);

	const srt_unit_t *unit = param->unit;

	SRT_TRY(srt_engine_require_built(unit->engine, "srt_param_data"));
	if (!srt_unit_in_use(unit))
		return srt_fail(
			SRT_ERR_STATE,
			"parameter '%s' is not unsharded: call srt_param_data() between begin and "
			"end of its unit '%s'",
			param->name, unit->name);
	*view = param->views.unsharded;
	return srt_check_view(param, false, view);
}

static srt_status_t check_trainable(const srt_param_t *param)
{
	if (param->frozen)
		return srt_fail(SRT_ERR_STATE, "parameter '%s' is frozen: it has no gradient",
				param->name);
	return SRT_OK;
}

srt_status_t srt_param_address(srt_param_t *param, srt_param_what_t what, srt_view_t *view)
{
	SRT_NOT_NULL(param);
	SRT_NOT_NULL(view);

	const bool is_grad = what == SRT_PARAM_GRAD;

	if (what != SRT_PARAM_VALUE && !is_grad)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_param_address: what is %d, must be SRT_PARAM_VALUE or "
				"SRT_PARAM_GRAD",
				(int)what);
	SRT_TRY(srt_engine_require_built(param->unit->engine, "srt_param_address"));
	if (is_grad)
		SRT_TRY(check_trainable(param));
	*view = is_grad ? param->views.unsharded_grad : param->views.unsharded;
	return srt_check_view(param, is_grad, view);
}

static srt_status_t check_grad(const srt_param_t *param)
{
	SRT_TRY(check_trainable(param));
	if (!param->unit->pass.in_backward)
		return srt_fail(SRT_ERR_STATE,
				"the gradient of parameter '%s' has memory only between "
				"srt_unit_backward_begin() and srt_unit_backward_end() of its unit "
				"'%s'",
				param->name, param->unit->name);
	return SRT_OK;
}

srt_status_t srt_param_grad(srt_param_t *param, srt_view_t *view, int *accumulate)
{
	SRT_NOT_NULL(param);
	SRT_NOT_NULL(view);
	SRT_NOT_NULL(accumulate);
	SRT_TRY(check_grad(param));
	*view = param->views.unsharded_grad;
	SRT_TRY(srt_check_view(param, true, view));
	*accumulate = param->grad.written || param->unit->engine->options.clear_grads;
	param->grad.requested = true;
	return SRT_OK;
}

srt_status_t srt_param_grad_ready(srt_param_t *param)
{
	SRT_NOT_NULL(param);
	SRT_TRY(check_grad(param));
	if (!param->grad.requested)
		return srt_fail(SRT_ERR_STATE,
				"srt_param_grad_ready() of parameter '%s' without srt_param_grad() "
				"in this backward pass of its unit '%s': request the memory of the "
				"gradient and queue the work that writes it first",
				param->name, param->unit->name);
	param->grad.ready = true;
	param->grad.written = true;
	param->grad.used = true;
	return SRT_OK;
}

srt_status_t srt_engine_microbatch(srt_engine_t *engine, int i, int n)
{
	SRT_NOT_NULL(engine);
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_microbatch"));
	if (n < 1 || i < 0 || i >= n)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_microbatch: i is %d, must be 0 to n - 1, and n is %d",
				i, n);
	if (n > engine->options.microbatches)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"a step of %d micro-batches, but memory is planned for %d: set "
				"srt_engine_options_t.microbatches",
				n, engine->options.microbatches);
	if (engine->units[0]->pass.in_forward || engine->units[0]->pass.in_backward)
		return srt_fail(SRT_ERR_STATE,
				"micro-batch index %d is announced inside a pass of root '%s': end "
				"the pass first",
				i, engine->units[0]->name);
	if (srt_roles_tree(engine) && (n & (n - 1)) != 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_microbatch: n is %d, must be a power of two with "
				"SRT_ACCUMULATE_TREE",
				n);
	if (i == 0) {
		if (engine->step.any_backward)
			return srt_fail(SRT_ERR_STATE,
					"micro-batch 0 is announced, but the current step has "
					"gradients: call srt_engine_step() or srt_engine_reset()");
		engine->step.microbatch = 0;
		engine->step.nmicrobatches = n;
		return SRT_OK;
	}
	if (i != engine->step.microbatch + 1 || n != engine->step.nmicrobatches ||
	    engine->step.microbatch_over || !engine->step.backward_begun)
		return srt_fail(
			SRT_ERR_STATE,
			"micro-batch index %d of %d is announced after index %d of %d%s: announce "
			"each once, in rising order, after the backward pass of the one before",
			i, n, engine->step.microbatch + engine->step.microbatch_over,
			engine->step.nmicrobatches,
			engine->step.backward_begun ? "" : ", which ran no backward pass");
	engine->step.microbatch_over = true;
	return SRT_OK;
}
