/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls around a unit's compute, and their rules.
 *
 * A pass starts with the root's forward. A unit runs inside its parent: forward inside the parent's
 * forward, backward inside the parent's backward. A unit may run forward several times in a pass;
 * its gradients go when as many backward runs have ended. Forward calls during the backward pass
 * are recomputation (activation checkpointing): they gather, and leave order and counts alone.
 */
#include "runtime/engine/engine.h"

static srt_status_t check_call(const srt_unit_t *unit, const char *call)
{
	if (unit == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s needs a unit", call);
	return srt_engine_require_built(unit->engine, call);
}

static bool recomputes(const srt_unit_t *unit)
{
	const srt_unit_t *root = unit->engine->units[0];

	return root->in_backward && !root->in_forward;
}

static srt_status_t check_forward(const srt_unit_t *unit)
{
	if (unit->in_forward)
		return srt_fail(SRT_ERR_STATE,
				"the forward pass of unit '%s' begins inside its own: end it first",
				unit->name);
	if (unit->parent == NULL && unit->in_backward)
		return srt_fail(SRT_ERR_STATE,
				"the forward pass of root '%s' begins inside its backward pass",
				unit->name);
	if (unit->parent == NULL || unit->parent->in_forward)
		return SRT_OK;
	if (recomputes(unit)) {
		if (unit->parent->in_backward || unit->parent->recompute > 0)
			return SRT_OK;
		return srt_fail(SRT_ERR_STATE,
				"unit '%s' is recomputed outside the backward pass of its parent "
				"'%s'",
				unit->name, unit->parent->name);
	}
	return srt_fail(SRT_ERR_STATE,
			"the forward pass of unit '%s' begins outside that of its parent '%s': the "
			"root '%s' comes first, then its units inside it",
			unit->name, unit->parent->name, unit->engine->units[0]->name);
}

/* A new pass, perhaps of a new micro-batch. */
static srt_status_t pass_begin(srt_engine_t *engine, srt_stream_t *stream)
{
	if (engine->microbatch_over) {
		SRT_TRY(srt_reduce_missing(engine, stream));
		engine->microbatch++;
		engine->microbatch_over = false;
	}
	for (size_t u = 0; u < engine->nunits; u++)
		engine->units[u]->uses = 0;
	engine->last_forward = NULL;
	return SRT_OK;
}

static void record_forward(srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;

	if (engine->last_forward != NULL)
		engine->last_forward->next_forward = unit;
	engine->last_forward = unit;
}

static void record_backward(srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;

	if (engine->last_backward != NULL)
		engine->last_backward->next_backward = unit;
	engine->last_backward = unit;
}

srt_status_t srt_unit_forward_begin(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine;

	SRT_TRY(check_call(unit, "srt_unit_forward_begin"));
	SRT_TRY(check_forward(unit));
	engine = unit->engine;
	if (recomputes(unit)) {
		SRT_TRY(srt_unshard_begin(unit, stream));
		unit->recompute++;
		return SRT_OK;
	}
	SRT_TRY(srt_engine_agree(engine, SRT_PHASE_FORWARD, unit));
	if (unit->parent == NULL)
		SRT_TRY(pass_begin(engine, stream));
	record_forward(unit);
	SRT_TRY(srt_unshard_begin(unit, stream));
	unit->in_forward = true;
	unit->uses++;
	return srt_unshard_prefetch(unit, false);
}

static const srt_unit_t *open_child(const srt_unit_t *unit, bool backward)
{
	const srt_engine_t *engine = unit->engine;

	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *child = engine->units[u];

		if (child->parent == unit && (backward ? child->in_backward : child->in_forward))
			return child;
	}
	return NULL;
}

srt_status_t srt_unit_forward_end(srt_unit_t *unit, srt_stream_t *stream)
{
	const srt_unit_t *child;

	SRT_TRY(check_call(unit, "srt_unit_forward_end"));
	if (unit->recompute > 0) {
		unit->recompute--;
		return srt_unshard_end(unit, stream);
	}
	if (!unit->in_forward)
		return srt_fail(SRT_ERR_STATE,
				"the forward pass of unit '%s' ends but has not begun", unit->name);
	child = open_child(unit, false);
	if (child != NULL)
		return srt_fail(SRT_ERR_STATE,
				"the forward pass of unit '%s' ends before that of its unit '%s'",
				unit->name, child->name);
	SRT_TRY(srt_unshard_end(unit, stream));
	unit->in_forward = false;
	if (unit->parent == NULL)
		unit->engine->last_forward->next_forward = NULL;
	return SRT_OK;
}

static srt_status_t check_backward(const srt_unit_t *unit)
{
	if (unit->in_backward)
		return srt_fail(SRT_ERR_STATE,
				"the backward pass of unit '%s' begins inside its own", unit->name);
	if (unit->in_forward)
		return srt_fail(
			SRT_ERR_STATE,
			"the backward pass of unit '%s' begins inside its forward pass: end "
			"that first",
			unit->name);
	if (unit->uses == 0)
		return srt_fail(SRT_ERR_STATE,
				"the backward pass of unit '%s' begins without a forward pass of "
				"present values in this micro-batch",
				unit->name);
	if (unit->parent == NULL && unit->backward_done)
		return srt_fail(SRT_ERR_STATE,
				"a second backward pass begins in micro-batch %d of %d, whose "
				"gradients are on their way: announce the next micro-batch with "
				"srt_engine_microbatch() before its forward pass",
				unit->engine->microbatch + 1, unit->engine->nmicrobatches);
	if (unit->parent != NULL && !unit->parent->in_backward)
		return srt_fail(SRT_ERR_STATE,
				"the backward pass of unit '%s' begins outside that of its parent "
				"'%s'",
				unit->name, unit->parent->name);
	return SRT_OK;
}

srt_status_t srt_unit_backward_begin(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine;

	SRT_TRY(check_call(unit, "srt_unit_backward_begin"));
	SRT_TRY(check_backward(unit));
	engine = unit->engine;
	SRT_TRY(srt_engine_agree(engine, SRT_PHASE_BACKWARD, unit));
	if (unit->parent == NULL)
		engine->last_backward = NULL;
	record_backward(unit);
	engine->backward_begun = true;
	engine->any_backward = true;
	SRT_TRY(srt_unshard_begin(unit, stream));
	SRT_TRY(srt_reduce_prepare(unit, stream));
	unit->in_backward = true;
	return srt_unshard_prefetch(unit, true);
}

srt_status_t srt_unit_backward_end(srt_unit_t *unit, srt_stream_t *stream)
{
	const srt_unit_t *child;

	SRT_TRY(check_call(unit, "srt_unit_backward_end"));
	if (!unit->in_backward)
		return srt_fail(SRT_ERR_STATE,
				"the backward pass of unit '%s' ends but has not begun",
				unit->name);
	child = open_child(unit, true);
	if (child != NULL)
		return srt_fail(SRT_ERR_STATE,
				"the backward pass of unit '%s' ends before that of its unit '%s'",
				unit->name, child->name);
	SRT_TRY(srt_unshard_end(unit, stream));
	unit->in_backward = false;
	unit->uses--;
	if (unit->parent == NULL)
		unit->engine->last_backward->next_backward = NULL;
	return unit->uses == 0 ? srt_reduce_begin(unit, stream) : SRT_OK;
}

srt_status_t srt_engine_microbatch(srt_engine_t *engine, int i, int n)
{
	SRT_TRY(srt_engine_require_built(engine, "srt_engine_microbatch"));
	if (n < 1 || i < 0 || i >= n)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"micro-batch %d of %d: they count from 0 to one less than their "
				"number",
				i, n);
	if (n > engine->options.microbatches)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"a step of %d micro-batches, but memory is planned for %d: set the "
				"engine's microbatches option",
				n, engine->options.microbatches);
	if (i == 0) {
		if (engine->any_backward)
			return srt_fail(SRT_ERR_STATE,
					"micro-batch 0 begins while the last step has gradients: "
					"call srt_engine_step() or srt_engine_reset()");
		engine->microbatch = 0;
		engine->nmicrobatches = n;
		return SRT_OK;
	}
	if (i != engine->microbatch + 1 || n != engine->nmicrobatches || engine->microbatch_over ||
	    !engine->backward_begun)
		return srt_fail(
			SRT_ERR_STATE,
			"micro-batch %d of %d is announced after micro-batch %d of %d%s: "
			"each comes once, in rising order, with a forward and a backward pass",
			i, n, engine->microbatch, engine->nmicrobatches,
			engine->backward_begun ? "" : ", which ran no backward pass");
	engine->microbatch_over = true;
	return SRT_OK;
}

srt_status_t srt_param_data(srt_param_t *param, srt_view_t *view)
{
	const srt_unit_t *unit = param->unit;

	SRT_TRY(srt_engine_require_built(unit->engine, "srt_param_data"));
	if (!srt_unit_in_use(unit))
		return srt_fail(
			SRT_ERR_STATE,
			"parameter '%s' is not whole now: it is between begin and end of its "
			"unit '%s'",
			param->name, unit->name);
	*view = param->full;
	return SRT_OK;
}

static srt_status_t check_grad(const srt_param_t *param)
{
	if (param->frozen)
		return srt_fail(SRT_ERR_STATE, "parameter '%s' is frozen: it has no gradient",
				param->name);
	if (!param->unit->in_backward)
		return srt_fail(SRT_ERR_STATE,
				"the gradient of parameter '%s' has a place only between "
				"srt_unit_backward_begin() and _end() of its unit '%s'",
				param->name, param->unit->name);
	return SRT_OK;
}

srt_status_t srt_param_grad(srt_param_t *param, srt_view_t *view, int *accumulate)
{
	SRT_TRY(check_grad(param));
	*view = param->full_grad;
	*accumulate = param->written;
	return SRT_OK;
}

srt_status_t srt_param_grad_ready(srt_param_t *param)
{
	SRT_TRY(check_grad(param));
	param->written = true;
	param->used = true;
	return SRT_OK;
}
