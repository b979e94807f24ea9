/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Initial values of an engine's shards, in the order of PyTorch's FSDP: it wraps the lowest units
 * first, and materializes each when it wraps it, breadth first, up to the units that it has wrapped
 * already.
 */
#include "runtime/modules/module.h"

#include <stdlib.h>

#include "runtime/engine/declare/declare.h"

typedef struct walk {
	const srt_materialize_options_t *options;
	srt_stream_t *stream;
	srt_module_t **queue;
} walk_t;

/* At and below a module, also in other units. */
static bool has_unset_buffers(srt_module_t *module)
{
	if (module->ignored || !srt_module_enter(module))
		return false;
	for (size_t i = 0; i < module->nbuffers; i++) {
		if (module->buffers[i].buffer->is_unset)
			return true;
	}
	for (size_t i = 0; i < module->nchildren; i++) {
		if (has_unset_buffers(module->children[i].module))
			return true;
	}
	return false;
}

static srt_status_t init_module(const walk_t *walk, srt_module_t *module)
{
	const srt_materialize_options_t *o = walk->options;
	srt_status_t status;

	if (o->param_init == NULL)
		return srt_module_reset(module, o->seed, walk->stream);
	status = o->param_init(module, o->seed, walk->stream, o->arg);
	if (status != SRT_OK)
		return srt_fail_prefix(status, "param_init of module '%s' (%s): ", module->path,
				       module->kind);
	for (size_t i = 0; i < module->nbuffers; i++)
		module->buffers[i].buffer->is_unset = false;
	return SRT_OK;
}

/* The modules of a unit, breadth first, in the queue. @return how many. */
static size_t list_unit(const walk_t *walk, srt_module_t *unit)
{
	size_t first = 0, last = 0;

	unit->tree->visit++;
	srt_module_enter(unit);
	walk->queue[last++] = unit;
	while (first < last) {
		const srt_module_t *module = walk->queue[first++];

		for (size_t i = 0; i < module->nchildren; i++) {
			srt_module_t *child = module->children[i].module;

			if (!child->is_unit && !child->ignored && srt_module_enter(child))
				walk->queue[last++] = child;
		}
	}
	return last;
}

static srt_status_t init_unit(const walk_t *walk, srt_module_t *unit)
{
	const size_t n = list_unit(walk, unit);
	bool needs_values;

	unit->tree->visit++;
	needs_values = has_unset_buffers(unit);
	for (size_t i = 0; i < n && !needs_values; i++)
		needs_values = srt_module_is_unset(walk->queue[i]);
	for (size_t i = 0; i < n && needs_values; i++)
		SRT_TRY(init_module(walk, walk->queue[i]));
	return SRT_OK;
}

/* The units at and below a module, the lowest first. */
static srt_status_t init_below(walk_t *walk, srt_module_t *module)
{
	if (module->ignored || module->is_materialized)
		return SRT_OK;
	module->is_materialized = true;
	for (size_t i = 0; i < module->nchildren; i++)
		SRT_TRY(init_below(walk, module->children[i].module));
	return module->is_unit ? init_unit(walk, module) : SRT_OK;
}

srt_status_t srt_engine_materialize(srt_engine_t *engine, const srt_materialize_options_t *given,
				    srt_stream_t *stream)
{
	srt_materialize_options_t options = SRT_MATERIALIZE_OPTIONS_INIT;
	walk_t walk = { .options = &options, .stream = stream };
	const srt_module_tree_t *tree;
	srt_status_t status;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(stream);
	SRT_TRY(srt_struct_read(&options, sizeof(options), given, "srt_materialize_options_t"));
	if (options.param_init == NULL && options.arg != NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_materialize: arg is given, but param_init is NULL: it "
				"must be a function");
	SRT_TRY(srt_engine_require_built(engine, __func__));
	if (engine->modules == NULL)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_materialize: the engine has no module tree: call "
				"srt_engine_wrap() before srt_engine_build()");
	tree = engine->modules->tree;
	walk.queue = srt_calloc(tree->nmodules, sizeof(*walk.queue), "queue of modules");
	if (walk.queue == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t m = 0; m < tree->nmodules; m++)
		tree->modules[m]->is_materialized = false;
	status = init_below(&walk, engine->modules);
	free(walk.queue);
	return status;
}
