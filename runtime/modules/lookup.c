/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Module trees: found by name, visited, and put into their order: depth first, own parameters
 * before children, each module at its first place.
 */
#include "runtime/modules/module.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"

bool srt_module_enter(srt_module_t *module)
{
	const bool is_first = module->visit != module->tree->visit;

	module->visit = module->tree->visit;
	return is_first;
}

/* Appends the module and what is below it, but for what was seen. `path` is the module's, and is
 * taken over. */
static srt_status_t sort_below(srt_module_t *module, srt_module_t *above, char *path,
			       srt_module_t **sorted, size_t *n)
{
	if (path == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (!srt_module_enter(module)) {
		free(path);
		return SRT_OK;
	}
	free(module->path);
	module->path = path;
	module->above = above;
	sorted[(*n)++] = module;
	for (size_t i = 0; i < module->nchildren; i++) {
		const srt_module_child_t *child = &module->children[i];

		SRT_TRY(sort_below(child->module, module, srt_module_join(path, child->name),
				   sorted, n));
	}
	return SRT_OK;
}

srt_status_t srt_tree_sort(srt_module_tree_t *tree)
{
	srt_module_t **sorted = srt_calloc(tree->nmodules, sizeof(*sorted), "order of modules");
	srt_status_t status;
	size_t n = 0;

	if (sorted == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	tree->visit++;
	status = sort_below(tree->modules[0], NULL, srt_strdup(""), sorted, &n);
	if (status == SRT_OK) /* every module has a parent, so all were seen */
		memcpy(tree->modules, sorted, n * sizeof(*sorted));
	free(sorted);
	return status;
}

srt_module_entry_t *srt_module_entry(const srt_module_t *module, const char *name)
{
	for (size_t i = 0; i < module->nparams; i++) {
		if (strcmp(module->params[i].name, name) == 0)
			return &module->params[i];
	}
	return NULL;
}

const char *srt_module_path(const srt_module_t *module)
{
	return module != NULL ? module->path : "";
}

const char *srt_module_kind(const srt_module_t *module)
{
	return module != NULL ? module->kind : "";
}

srt_module_t *srt_module_child_at(const srt_module_t *module, size_t i)
{
	return module != NULL && i < module->nchildren ? module->children[i].module : NULL;
}

/* The child whose name is the first part of the path. */
static srt_module_t *find_child(const srt_module_t *module, const char *path, size_t length)
{
	for (size_t i = 0; i < module->nchildren; i++) {
		const char *name = module->children[i].name;

		if (strlen(name) == length && strncmp(name, path, length) == 0)
			return module->children[i].module;
	}
	return NULL;
}

srt_module_t *srt_module_find(srt_module_t *module, const char *path)
{
	if (path == NULL)
		return NULL;
	while (module != NULL && path[0] != '\0') {
		const size_t length = strcspn(path, ".");

		module = find_child(module, path, length);
		path += length;
		if (path[0] == '.' && *++path == '\0')
			return NULL;
	}
	return module;
}

const char *srt_module_param_name(const srt_module_t *module, size_t i)
{
	return module != NULL && i < module->nparams ? module->params[i].name : "";
}

int srt_module_is_alias(const srt_module_t *module, const char *name)
{
	const srt_module_entry_t *entry, *first;

	if (module == NULL || name == NULL)
		return 0;
	entry = srt_module_entry(module, name);
	if (entry == NULL || entry->tensor->home == NULL)
		return 0;
	if (entry->tensor->home != module)
		return 1;
	for (first = module->params; first->tensor != entry->tensor; first++)
		;
	return first != entry;
}

srt_unit_t *srt_module_unit(const srt_module_t *module)
{
	return module != NULL && module->unit != NULL ? module->unit->made : NULL;
}

int srt_module_is_unit(const srt_module_t *module)
{
	return module != NULL && module->made != NULL;
}

srt_param_t *srt_module_param(const srt_module_t *module, const char *name)
{
	const srt_module_entry_t *entry;

	if (module == NULL || name == NULL)
		return NULL;
	entry = srt_module_entry(module, name);
	return entry != NULL ? entry->tensor->param : NULL;
}

srt_unit_buffer_t *srt_module_buffer(const srt_module_t *module, const char *name)
{
	if (module == NULL || name == NULL)
		return NULL;
	for (size_t i = 0; i < module->nbuffers; i++) {
		if (strcmp(module->buffers[i].name, name) == 0)
			return module->buffers[i].buffer;
	}
	return NULL;
}

int srt_module_is_unset(const srt_module_t *module)
{
	if (module == NULL)
		return 0;
	for (size_t i = 0; i < module->nparams; i++) {
		const srt_param_t *param = module->params[i].tensor->param;

		if (param != NULL && param->is_unset)
			return 1;
	}
	for (size_t i = 0; i < module->nbuffers; i++) {
		const srt_unit_buffer_t *buffer = module->buffers[i].buffer;

		if (buffer != NULL && buffer->is_unset)
			return 1;
	}
	return 0;
}

srt_status_t srt_module_apply(srt_module_t *module, srt_module_visit_fn *visit, void *arg)
{
	SRT_NOT_NULL(module);
	SRT_NOT_NULL(visit);
	for (size_t i = 0; i < module->nchildren; i++)
		SRT_TRY(srt_module_apply(module->children[i].module, visit, arg));
	return visit(module, arg);
}
