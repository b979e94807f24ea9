/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls around a unit's compute, with the rules of the table in <shardrt/engine.h>.
 *
 * A unit may run forward several times in a pass; its gradients are reduced when as many backward
 * runs have ended. Forward calls in the backward pass recompute (activation checkpointing): they
 * gather, and do not change the expected order or the counts.
 */
#include "runtime/engine/checks/checks.h"
#include "runtime/engine/checks/verify.h"
#include "runtime/engine/declare/declare.h"
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/step/step.h"

static bool is_recomputation(const srt_unit_t *unit)
{
	const srt_unit_t *root = unit->engine->units[0];

	return root->pass.in_backward && !root->pass.in_forward;
}

/* No pass begins while the program changes values, or after the gradients are complete. */
static srt_status_t check_phase(const srt_unit_t *unit, const char *pass, const char *call)
{
	const srt_engine_t *engine = unit->engine;

	SRT_TRY(srt_full_check(engine, call));
	if (!engine->writes.open && !engine->step.finished)
		return SRT_OK;
	return srt_fail(SRT_ERR_STATE, "the %s pass of unit '%s' begins after %s: call %s first",
			pass, unit->name,
			engine->writes.open ? "srt_engine_write_begin()" :
					      "srt_engine_finish_backward()",
			engine->writes.open ? "srt_engine_write_end()" : "srt_engine_step()");
}

static srt_status_t check_forward(const srt_unit_t *unit)
{
	if (unit->pass.in_forward)
		return srt_fail(SRT_ERR_STATE,
				"the forward pass of unit '%s' begins, but the one before has not "
				"ended",
				unit->name);
	SRT_TRY(check_phase(unit, "forward", "srt_unit_forward_begin"));
	if (unit->parent == NULL && unit->pass.in_backward)
		return srt_fail(
			SRT_ERR_STATE,
			"the forward pass of root '%s' begins inside its backward pass: end "
			"that first",
			unit->name);
	if (unit->parent == NULL || unit->parent->pass.in_forward)
		return SRT_OK;
	if (is_recomputation(unit)) {
		if (unit->parent->pass.in_backward || unit->parent->pass.recompute > 0)
			return SRT_OK;
		return srt_fail(SRT_ERR_STATE,
				"unit '%s' is recomputed outside the backward pass of its parent "
				"'%s'",
				unit->name, unit->parent->name);
	}
	return srt_fail(
		SRT_ERR_STATE,
		"the forward pass of unit '%s' begins outside that of its parent '%s': begin "
		"the root '%s' first, then its units inside it",
		unit->name, unit->parent->name, unit->engine->units[0]->name);
}

/* Begins a pass; ends the micro-batch before if the next one was announced. */
static srt_status_t begin_pass(srt_engine_t *engine, srt_stream_t *stream)
{
	if (engine->step.microbatch_over) {
		SRT_TRY(srt_reduce_end_microbatch(engine, stream));
		engine->step.microbatch++;
		engine->step.microbatch_over = false;
	}
	for (size_t u = 0; u < engine->nunits; u++)
		engine->units[u]->pass.uses = 0;
	engine->step.last_forward = NULL;
	SRT_TRY(srt_writes_before_read(engine, stream));
	if (engine->step.microbatch > 0 && srt_roles_defer(engine))
		return SRT_OK;
	return srt_buffers_broadcast(engine, stream);
}

static void record_forward(srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;

	if (engine->step.last_forward != NULL)
		engine->step.last_forward->pass.next_forward = unit;
	engine->step.last_forward = unit;
}

static void record_backward(srt_unit_t *unit)
{
	srt_engine_t *engine = unit->engine;

	if (engine->step.last_backward != NULL)
		engine->step.last_backward->pass.next_backward = unit;
	engine->step.last_backward = unit;
}

srt_status_t srt_unit_forward_begin(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine;

	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(unit->engine, "srt_unit_forward_begin"));
	SRT_TRY(check_forward(unit));
	engine = unit->engine;
	if (is_recomputation(unit)) {
		SRT_TRY(srt_unshard_begin(unit, stream));
		unit->pass.recompute++;
		srt_check_set_views(unit);
		return SRT_OK;
	}
	SRT_TRY(srt_values_check(engine));
	SRT_TRY(srt_verify_order(engine, SRT_ACTION_FORWARD, unit));
	if (unit->parent == NULL)
		SRT_TRY(begin_pass(engine, stream));
	record_forward(unit);
	SRT_TRY(srt_unshard_begin(unit, stream));
	unit->pass.in_forward = true;
	srt_check_set_views(unit);
	unit->pass.uses++;
	return srt_unshard_prefetch(unit, false);
}

static const srt_unit_t *find_open_child(const srt_unit_t *unit, bool backward)
{
	const srt_engine_t *engine = unit->engine;

	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *child = engine->units[u];

		if (child->parent == unit &&
		    (backward ? child->pass.in_backward : child->pass.in_forward))
			return child;
	}
	return NULL;
}

srt_status_t srt_unit_forward_end(srt_unit_t *unit, srt_stream_t *stream)
{
	const srt_unit_t *child;

	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(unit->engine, "srt_unit_forward_end"));
	if (unit->pass.recompute > 0) {
		unit->pass.recompute--;
		SRT_TRY(srt_unshard_end(unit, stream));
		return srt_unshard_release(unit, stream);
	}
	if (!unit->pass.in_forward)
		return srt_fail(SRT_ERR_STATE,
				"the forward pass of unit '%s' ends but did not begin", unit->name);
	child = find_open_child(unit, false);
	if (child != NULL)
		return srt_fail(SRT_ERR_STATE,
				"the forward pass of unit '%s' ends before that of its unit '%s'",
				unit->name, child->name);
	SRT_TRY(srt_unshard_end(unit, stream));
	unit->pass.in_forward = false;
	SRT_TRY(srt_unshard_release(unit, stream));
	if (unit->parent != NULL)
		return SRT_OK;
	unit->engine->step.last_forward->pass.next_forward = NULL;
	return srt_writes_end_pass(unit->engine, stream);
}

static srt_status_t check_backward(const srt_unit_t *unit)
{
	if (unit->pass.in_backward)
		return srt_fail(SRT_ERR_STATE,
				"the backward pass of unit '%s' begins, but the one before has not "
				"ended",
				unit->name);
	if (unit->pass.in_forward)
		return srt_fail(
			SRT_ERR_STATE,
			"the backward pass of unit '%s' begins inside its forward pass: end "
			"that first",
			unit->name);
	SRT_TRY(check_phase(unit, "backward", "srt_unit_backward_begin"));
	if (unit->pass.uses == 0)
		return srt_fail(SRT_ERR_STATE,
				"the backward pass of unit '%s' begins without a forward pass of "
				"the current values in this micro-batch",
				unit->name);
	if (unit->parent == NULL && unit->grads.backward_done)
		return srt_fail(SRT_ERR_STATE,
				"a second backward pass begins in micro-batch %d of %d, but its "
				"gradients are complete: announce the next micro-batch with "
				"srt_engine_microbatch() before its forward pass",
				unit->engine->step.microbatch + 1,
				unit->engine->step.nmicrobatches);
	if (unit->parent != NULL && !unit->parent->pass.in_backward)
		return srt_fail(SRT_ERR_STATE,
				"the backward pass of unit '%s' begins outside that of its parent "
				"'%s'",
				unit->name, unit->parent->name);
	return SRT_OK;
}

srt_status_t srt_unit_backward_begin(srt_unit_t *unit, srt_stream_t *stream)
{
	srt_engine_t *engine;

	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(unit->engine, "srt_unit_backward_begin"));
	SRT_TRY(check_backward(unit));
	engine = unit->engine;
	SRT_TRY(srt_verify_order(engine, SRT_ACTION_BACKWARD, unit));
	if (unit->parent == NULL)
		engine->step.last_backward = NULL;
	record_backward(unit);
	engine->step.backward_begun = true;
	engine->step.any_backward = true;
	SRT_TRY(srt_unshard_begin(unit, stream));
	SRT_TRY(srt_reduce_prepare(unit, stream));
	for (size_t i = 0; i < unit->nparams; i++)
		unit->params[i]->grad.requested = unit->params[i]->grad.ready = false;
	SRT_TRY(srt_check_begin_grads(unit, stream));
	unit->pass.in_backward = true;
	srt_check_set_views(unit);
	return srt_unshard_prefetch(unit, true);
}

/* A gradient that was written but not marked ready is lost: the program most likely forgot it. */
static void warn_not_ready(srt_unit_t *unit)
{
	for (size_t i = 0; i < unit->nparams; i++) {
		srt_param_t *param = unit->params[i];

		if (!param->grad.requested || param->grad.ready || param->grad.warned)
			continue;
		param->grad.warned = true;
		srt_log(SRT_LOG_WARN,
			"rank %d: the memory of the gradient of parameter '%s' was requested, but "
			"srt_param_grad_ready() was not called before the backward pass of unit "
			"'%s' ended: what was written there is not used",
			unit->engine->rank, param->name, unit->name);
	}
}

srt_status_t srt_unit_backward_end(srt_unit_t *unit, srt_stream_t *stream)
{
	const srt_unit_t *child;

	SRT_NOT_NULL(unit);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_engine_require_built(unit->engine, "srt_unit_backward_end"));
	if (!unit->pass.in_backward)
		return srt_fail(SRT_ERR_STATE,
				"the backward pass of unit '%s' ends but did not begin",
				unit->name);
	child = find_open_child(unit, true);
	if (child != NULL)
		return srt_fail(SRT_ERR_STATE,
				"the backward pass of unit '%s' ends before that of its unit '%s'",
				unit->name, child->name);
	SRT_TRY(srt_unshard_end(unit, stream));
	warn_not_ready(unit);
	SRT_TRY(srt_check_end_grads(unit, stream));
	unit->pass.in_backward = false;
	SRT_TRY(srt_unshard_release(unit, stream));
	unit->pass.uses--;
	if (unit->parent == NULL)
		unit->engine->step.last_backward->pass.next_backward = NULL;
	if (unit->pass.uses == 0)
		SRT_TRY(srt_reduce_begin(unit, stream));
	return unit->parent == NULL ? srt_writes_end_pass(unit->engine, stream) : SRT_OK;
}
