/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Units, parameters and buffers of an engine from a module tree.
 *
 * 1. Names are those of the first place in the order of the tree.
 * 2. Marks and the policy choose the modules that become units. Several may be one unit.
 * 3. What is in several units, by a module with several parents or by tied parameters, goes to
 *    their closest common ancestor.
 * 4. The engine gets the units in the order of the tree, each with its parameters in that order.
 */
#include "runtime/modules/module.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/declare/declare.h"

/* Forgets what a wrap that failed has left. */
static void clear(const srt_module_tree_t *tree)
{
	for (size_t m = 0; m < tree->nmodules; m++) {
		srt_module_t *module = tree->modules[m];

		module->is_unit = module->is_placed = false;
		module->is_placing = false;
		module->made = NULL;
		module->leader = NULL;
		module->nwrapped = -1;
		for (size_t i = 0; i < module->nbuffers; i++)
			module->buffers[i].buffer = NULL;
	}
	for (size_t t = 0; t < tree->ntensors; t++) {
		tree->tensors[t]->home = NULL;
		tree->tensors[t]->unit = NULL;
		tree->tensors[t]->param = NULL;
	}
}

/* ---- what is ignored ---------------------------------------------------------------------- */

static srt_status_t ignore_below(srt_module_t *module)
{
	module->ignored = true;
	if (module->is_marked)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"module '%s' (%s) is marked as a unit by srt_module_wrap(), and it "
				"or a module above it is ignored: it can be one of them",
				module->path, module->kind);
	for (size_t i = 0; i < module->nparams; i++)
		module->params[i].tensor->ignored = true;
	for (size_t i = 0; i < module->nchildren; i++)
		SRT_TRY(ignore_below(module->children[i].module));
	return SRT_OK;
}

static srt_status_t spread_ignored(const srt_module_tree_t *tree)
{
	for (size_t i = 0; i < tree->nmodules; i++) {
		if (tree->modules[i]->ignored)
			SRT_TRY(ignore_below(tree->modules[i]));
	}
	return SRT_OK;
}

/* ---- the unit of everything --------------------------------------------------------------- */

/* The closest unit that contains both; NULL is no unit. */
static srt_module_t *find_common(srt_module_t *a, srt_module_t *b)
{
	if (a == NULL || b == NULL)
		return a == NULL ? b : a;
	while (a != b) {
		if (a->depth >= b->depth)
			a = a->parent;
		else
			b = b->parent;
	}
	return a;
}

/* The module that has the unit: of several that are one, the first in the order of the tree. */
static srt_module_t *find_leader(srt_module_t *module)
{
	return module->mate != NULL ? module->mate->leader : module;
}

static void set_leaders(const srt_module_tree_t *tree)
{
	for (size_t m = 0; m < tree->nmodules; m++) {
		srt_module_t *mate = tree->modules[m]->mate;

		if (mate != NULL && mate->leader == NULL)
			mate->leader = tree->modules[m];
	}
}

static srt_status_t place_module(srt_module_t *module);

/* The closest unit that contains *above and what is above the module. */
static srt_status_t find_above(const srt_module_t *module, srt_module_t **above)
{
	for (size_t i = 0; i < module->nparents; i++) {
		SRT_TRY(place_module(module->parents[i]));
		*above = find_common(*above, module->parents[i]->unit);
	}
	return SRT_OK;
}

/* Sets the unit above a unit, and the unit of its modules. */
static srt_status_t place_unit(srt_module_t *leader)
{
	const srt_module_tree_t *tree = leader->tree;
	srt_module_t *above = NULL;

	if (leader->is_placing)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_wrap: of the modules that are the unit '%s', one is "
				"below another, or in a unit that is: leave it out of "
				"srt_module_wrap_together(), the unit has its parameters",
				leader->path);
	leader->is_placing = true;
	for (size_t m = 0; m < tree->nmodules; m++) {
		if (find_leader(tree->modules[m]) == leader)
			SRT_TRY(find_above(tree->modules[m], &above));
	}
	leader->parent = above;
	leader->depth = above != NULL ? above->depth + 1 : 0;
	for (size_t m = 0; m < tree->nmodules; m++) {
		if (find_leader(tree->modules[m]) != leader)
			continue;
		tree->modules[m]->unit = leader;
		tree->modules[m]->is_placed = true;
	}
	return SRT_OK;
}

static srt_status_t place_module(srt_module_t *module)
{
	srt_module_t *above = NULL;

	if (module->is_placed)
		return SRT_OK;
	if (module->is_unit)
		return place_unit(find_leader(module));
	SRT_TRY(find_above(module, &above));
	module->unit = module->ignored ? NULL : above;
	module->is_placed = true;
	return SRT_OK;
}

static srt_status_t place_all(const srt_module_tree_t *tree)
{
	for (size_t m = 0; m < tree->nmodules; m++)
		SRT_TRY(place_module(tree->modules[m]));
	for (size_t m = 0; m < tree->nmodules; m++) {
		const srt_module_t *module = tree->modules[m];

		for (size_t i = 0; i < module->nparams; i++) {
			srt_module_tensor_t *tensor = module->params[i].tensor;

			if (tensor->home == NULL)
				tensor->home = module;
			if (!tensor->ignored)
				tensor->unit = find_common(tensor->unit, module->unit);
		}
	}
	return SRT_OK;
}

/* ---- declaring ---------------------------------------------------------------------------- */

static srt_status_t declare_units(srt_engine_t *engine, const srt_module_tree_t *tree,
				  const srt_wrap_options_t *options)
{
	const char *root_name = options->root_name != NULL ? options->root_name : "root";

	for (size_t m = 0; m < tree->nmodules; m++) {
		srt_module_t *module = tree->modules[m];

		if (!module->is_unit)
			continue;
		if (module->unit != module) { /* its leader came before it */
			module->made = module->unit->made;
			continue;
		}
		SRT_TRY(srt_unit_create(engine,
					module->parent != NULL ? module->parent->made : NULL,
					module->parent != NULL ? module->path : root_name,
					&module->options, &module->made));
	}
	return SRT_OK;
}

static srt_status_t declare_param(const srt_module_t *module, const srt_module_entry_t *entry,
				  const srt_wrap_options_t *options)
{
	srt_module_tensor_t *tensor = entry->tensor;
	srt_unit_t *unit = tensor->ignored ? options->ignored : tensor->unit->made;
	srt_status_t status;
	char *name;

	if (unit == NULL || tensor->home != module || tensor->param != NULL)
		return SRT_OK;
	name = srt_module_join(module->path, entry->name);
	if (name == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_param_create(unit, name, tensor->dtype, tensor->ndim, tensor->shape,
				  &tensor->options, &tensor->param);
	if (status == SRT_OK)
		srt_param_expect_values(tensor->param);
	free(name);
	return status;
}

static srt_status_t declare_buffer(const srt_module_t *module, srt_module_buffer_t *buffer,
				   const srt_wrap_options_t *options)
{
	srt_unit_t *unit = module->ignored ? options->ignored : module->unit->made;
	srt_status_t status;
	char *name;

	if (unit == NULL)
		return SRT_OK;
	name = srt_module_join(module->path, buffer->name);
	if (name == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_unit_buffer_create(unit, name, buffer->dtype, buffer->ndim, buffer->shape,
					&buffer->buffer);
	if (status == SRT_OK)
		buffer->buffer->is_unset = true;
	free(name);
	return status;
}

/* Parameters unit by unit, as srt_engine_param_at() counts them, then buffers. */
static srt_status_t declare_tensors(const srt_module_tree_t *tree,
				    const srt_wrap_options_t *options)
{
	for (size_t u = 0; u < tree->nmodules; u++) {
		const srt_module_t *unit = tree->modules[u];

		for (size_t m = u; unit->is_unit && m < tree->nmodules; m++) {
			const srt_module_t *module = tree->modules[m];

			for (size_t i = 0; i < module->nparams; i++) {
				if (module->params[i].tensor->unit == unit)
					SRT_TRY(declare_param(module, &module->params[i], options));
			}
		}
	}
	for (size_t m = 0; m < tree->nmodules; m++) {
		srt_module_t *module = tree->modules[m];

		for (size_t i = 0; i < module->nparams; i++) {
			if (module->params[i].tensor->ignored)
				SRT_TRY(declare_param(module, &module->params[i], options));
		}
		for (size_t i = 0; i < module->nbuffers; i++)
			SRT_TRY(declare_buffer(module, &module->buffers[i], options));
	}
	return SRT_OK;
}

/* The other names of parameters, at all places of the module. */
static srt_status_t declare_aliases(const srt_module_t *module, const char *path)
{
	srt_status_t status = SRT_OK;

	for (size_t i = 0; i < module->nparams && status == SRT_OK; i++) {
		srt_param_t *param = module->params[i].tensor->param;
		char *name = srt_module_join(path, module->params[i].name);

		if (name == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		if (param != NULL && strcmp(name, param->name) != 0)
			status = srt_param_tie(param->unit, param, name);
		free(name);
	}
	for (size_t i = 0; i < module->nchildren && status == SRT_OK; i++) {
		char *below = srt_module_join(path, module->children[i].name);

		if (below == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		status = declare_aliases(module->children[i].module, below);
		free(below);
	}
	return status;
}

/* ---- srt_engine_wrap() ---------------------------------------------------------------------- */

static srt_status_t check_arguments(const srt_engine_t *engine, const srt_module_t *root)
{
	if (root->tree->modules[0] != root)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_engine_wrap: module '%s' (%s) is not the root of its tree",
				root->path, root->kind);
	if (root->tree->engine != NULL)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_wrap: the tree (%s) belongs to an engine already",
				root->kind);
	if (engine->nunits > 0)
		return srt_fail(SRT_ERR_STATE,
				"srt_engine_wrap: the engine already has the root unit '%s'",
				engine->units[0]->name);
	return SRT_OK;
}

srt_status_t srt_engine_wrap(srt_engine_t *engine, srt_module_t *root,
			     const srt_wrap_policy_t *given,
			     const srt_wrap_options_t *given_options)
{
	srt_wrap_options_t options = SRT_WRAP_OPTIONS_INIT;
	srt_wrap_policy_t policy;
	srt_unit_options_t of_root = SRT_UNIT_OPTIONS_INIT, of_units = SRT_UNIT_OPTIONS_INIT;
	srt_module_tree_t *tree;

	SRT_NOT_NULL(engine);
	SRT_NOT_NULL(root);
	SRT_TRY(srt_policy_read(given, &policy));
	SRT_TRY(srt_struct_read(&options, sizeof(options), given_options, "srt_wrap_options_t"));
	SRT_TRY(srt_struct_read(&of_root, sizeof(of_root), options.root, "srt_unit_options_t"));
	SRT_TRY(srt_struct_read(&of_units, sizeof(of_units), options.units, "srt_unit_options_t"));
	SRT_TRY(check_arguments(engine, root));
	tree = root->tree;
	clear(tree);
	SRT_TRY(srt_tree_sort(tree));
	SRT_TRY(spread_ignored(tree));
	SRT_TRY(srt_policy_apply(root, &policy, &of_units));
	SRT_TRY(srt_module_copy_options(root, &of_root));
	set_leaders(tree);
	SRT_TRY(place_all(tree));
	SRT_TRY(declare_units(engine, tree, &options));
	SRT_TRY(declare_tensors(tree, &options));
	SRT_TRY(declare_aliases(root, ""));
	tree->engine = engine;
	engine->modules = root;
	return SRT_OK;
}

srt_module_t *srt_engine_module(const srt_engine_t *engine)
{
	return engine != NULL ? engine->modules : NULL;
}
