/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine's life: created, units declared, built, reset, destroyed.
 *
 * Building is collective: the ranks compare what they declared, each allocates exactly what its
 * memory plan says, and all collectives are made, in the same order everywhere. After that, steps
 * allocate nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"

srt_status_t srt_engine_edge(srt_engine_t *engine, srt_stream_t *from, srt_stream_t *to)
{
	SRT_TRY(srt_event_record(engine->edge, from));
	return srt_stream_wait_event(to, engine->edge);
}

srt_status_t srt_engine_require_built(const srt_engine_t *engine, const char *call)
{
	if (engine == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s needs an engine", call);
	if (!engine->built)
		return srt_fail(SRT_ERR_STATE, "%s before srt_engine_build()", call);
	return SRT_OK;
}

/* What torch.optim refuses too; comparisons that are false for NaN. */
static srt_status_t check_optimizer(const srt_engine_options_t *o)
{
	if (!(o->lr >= 0.0f && o->min_lr >= 0.0f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"options lr %g and min_lr %g must be numbers of at least 0",
				(double)o->lr, (double)o->min_lr);
	if (o->optimizer != SRT_OPTIMIZER_SGD) {
		if (o->beta1 >= 0.0 && o->beta1 < 1.0 && o->beta2 >= 0.0 && o->beta2 < 1.0 &&
		    o->eps >= 0.0f)
			return SRT_OK;
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"options beta1 %g and beta2 %g must be in [0, 1), eps %g at least "
				"0",
				o->beta1, o->beta2, (double)o->eps);
	}
	if (o->amsgrad)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option amsgrad is set, but the optimizer is SGD: it belongs to "
				"Adam and AdamW");
	if (!(o->momentum >= 0.0f) || o->dampening != o->dampening)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option momentum is %g, must be at least 0, and dampening %g a "
				"number",
				(double)o->momentum, (double)o->dampening);
	if (o->nesterov && (o->momentum == 0.0f || o->dampening != 0.0f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option nesterov needs a momentum (it is %g) and no dampening "
				"(it is %g)",
				(double)o->momentum, (double)o->dampening);
	return SRT_OK;
}

static srt_status_t check_options(const srt_engine_options_t *o)
{
	if ((unsigned)o->strategy > SRT_STRATEGY_ZERO3 || (unsigned)o->reduction > SRT_REDUCE_SUM ||
	    (unsigned)o->accumulation > SRT_ACCUMULATE_LAST ||
	    (unsigned)o->optimizer > SRT_OPTIMIZER_ADAMW)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"one of the options strategy (%d), reduction (%d), accumulation "
				"(%d), optimizer (%d) is not a value of its enum",
				(int)o->strategy, (int)o->reduction, (int)o->accumulation,
				(int)o->optimizer);
	if (o->microbatches < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "option microbatches is %d, below 0",
				o->microbatches);
	if (o->norm_p != 0 && o->norm_p != 1 && o->norm_p != 2 && o->norm_p != 3 &&
	    o->norm_p != SRT_NORM_INF)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option norm_p is %d; the gradient norm exists for p = 1, 2, 3 and "
				"SRT_NORM_INF",
				o->norm_p);
	if (o->max_norm != o->max_norm)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "option max_norm is not a number");
	if (o->norm_p == 0 && o->max_norm > 0.0f)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"option max_norm is %g but norm_p is 0: choose the norm to clip by",
				(double)o->max_norm);
	if (o->warmup < 0 || o->lr_steps < 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"options warmup %d and lr_steps %d must not be negative",
				(int)o->warmup, (int)o->lr_steps);
	return check_optimizer(o);
}

static void fill_defaults(srt_engine_options_t *o)
{
	if (o->microbatches == 0)
		o->microbatches = 1;
	o->prefetch = o->prefetch == 0 ? 1 : o->prefetch < 0 ? 0 : o->prefetch;
	if (o->optimizer != SRT_OPTIMIZER_SGD && o->beta1 == 0.0 && o->beta2 == 0.0 &&
	    o->eps == 0.0f) {
		o->beta1 = 0.9;
		o->beta2 = 0.999;
		o->eps = 1e-8f;
	}
}

srt_status_t srt_engine_create(srt_context_t *context, const srt_engine_options_t *options,
			       srt_engine_t **out)
{
	srt_engine_t *engine;

	if (context == NULL || options == NULL || out == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"an engine needs a context, options and a place for the handle");
	SRT_TRY(check_options(options));
	engine = srt_calloc(1, sizeof(*engine), "engine");
	if (engine == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	engine->context = context;
	engine->comm = options->comm != NULL ? options->comm : srt_context_world(context);
	engine->device = srt_context_device(context);
	engine->options = *options;
	fill_defaults(&engine->options);
	engine->rank = srt_comm_rank(engine->comm);
	engine->world = srt_comm_size(engine->comm);
	engine->nmicrobatches = 1;
	*out = engine;
	return SRT_OK;
}

static void unit_free(srt_unit_t *unit)
{
	srt_coll_destroy(unit->gather);
	srt_coll_destroy(unit->reduce);
	srt_event_destroy(unit->gathered);
	srt_event_destroy(unit->reduced);
	for (size_t i = 0; i < unit->nparams; i++)
		srt_param_free(unit->params[i]);
	free(unit->params);
	free(unit->name);
	free(unit);
}

void srt_engine_destroy(srt_engine_t *engine)
{
	if (engine == NULL)
		return;
	srt_stream_destroy(engine->comm_stream);
	srt_sum_destroy(&engine->user_sum);
	srt_sum_destroy(&engine->norm_sum);
	srt_coll_destroy(engine->reduce_flags);
	for (size_t u = 0; u < engine->nunits; u++)
		unit_free(engine->units[u]);
	for (int s = 0; engine->slots != NULL && s < engine->memory.slots.nslots; s++)
		srt_event_destroy(engine->slots[s].released);
	srt_event_destroy(engine->edge);
	srt_event_destroy(engine->stepped);
	srt_buffer_destroy(engine->values);
	srt_buffer_destroy(engine->grads);
	for (int k = 0; k < SRT_MAX_STATES; k++)
		srt_buffer_destroy(engine->states[k]);
	srt_buffer_destroy(engine->slots_buffer);
	srt_buffer_destroy(engine->grad_slots_buffer);
	srt_buffer_destroy(engine->staging);
	srt_memory_free(&engine->memory);
	free(engine->slots);
	free(engine->grad_slots);
	free(engine->flags);
	free(engine->units);
	free(engine->params);
	free(engine);
}

static srt_status_t check_unit(const srt_engine_t *engine, const srt_unit_t *parent,
			       const char *name)
{
	if (engine->built)
		return srt_fail(SRT_ERR_STATE, "unit '%s' is declared after srt_engine_build()",
				name);
	if (parent == NULL && engine->nunits > 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"unit '%s' has no parent, but '%s' is the root already: an engine "
				"has one root",
				name, engine->units[0]->name);
	if (parent != NULL && parent->engine != engine)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the parent '%s' of unit '%s' belongs to another engine",
				parent->name, name);
	for (size_t u = 0; u < engine->nunits; u++) {
		if (strcmp(engine->units[u]->name, name) == 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT, "unit '%s' is declared twice",
					name);
	}
	return SRT_OK;
}

srt_status_t srt_unit_create(srt_engine_t *engine, srt_unit_t *parent, const char *name,
			     srt_unit_t **out)
{
	srt_unit_t **grown, *unit;

	if (engine == NULL || name == NULL || name[0] == '\0' || out == NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"a unit needs an engine, a name and a place for the handle");
	SRT_TRY(check_unit(engine, parent, name));
	grown = srt_realloc(engine->units, engine->nunits + 1, sizeof(*grown), "list of units");
	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	engine->units = grown;
	unit = srt_calloc(1, sizeof(*unit), name);
	if (unit == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	unit->name = srt_strdup(name);
	if (unit->name == NULL) {
		free(unit);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	unit->engine = engine;
	unit->parent = parent;
	unit->index = engine->nunits;
	unit->depth = parent == NULL ? 0 : parent->depth + 1;
	engine->units[engine->nunits++] = unit;
	*out = unit;
	return SRT_OK;
}

/*
 * What comes next is expected to be what came next in the last pass; before one has been seen, the
 * order of declaration and back. Prefetches follow it, so it must be the same on all ranks: after a
 * failure, when their histories may differ, it starts again from the declaration.
 */
void srt_engine_expect_declared(srt_engine_t *engine)
{
	size_t n = engine->nunits;

	for (size_t u = 0; u < n; u++) {
		srt_unit_t *unit = engine->units[u];

		unit->next_forward = u + 1 < n ? engine->units[u + 1] : NULL;
		unit->next_backward = u > 1 ? engine->units[u - 1] : NULL;
	}
	if (n > 1)
		engine->units[0]->next_backward = engine->units[n - 1];
}

/* Ends the step under way: nothing is in use, nothing gathered, no gradient kept. */
srt_status_t srt_engine_reset(srt_engine_t *engine)
{
	srt_status_t status;

	SRT_TRY(srt_engine_require_built(engine, "srt_engine_reset"));
	status = srt_stream_sync(engine->comm_stream);
	for (size_t u = 0; u < engine->nunits; u++) {
		srt_unit_t *unit = engine->units[u];

		unit->in_forward = unit->in_backward = false;
		unit->is_gathered = unit->is_prefetched = false;
		unit->recompute = unit->uses = 0;
		if (unit->slot != NULL)
			unit->slot->holder = NULL;
	}
	srt_reduce_forget(engine);
	srt_engine_expect_declared(engine);
	engine->last_forward = engine->last_backward = NULL;
	return status;
}
