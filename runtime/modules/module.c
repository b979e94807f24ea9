/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Module trees: modules, parameters, ties and buffers added; marks; freed.
 */
#include "runtime/modules/module.h"

#include <stdlib.h>
#include <string.h>

char *srt_module_join(const char *path, const char *name)
{
	const size_t n = strlen(path), total = n + strlen(name) + 2;
	char *joined = srt_calloc(1, total, name);

	if (joined != NULL)
		snprintf(joined, total, "%s%s%s", path, n > 0 ? "." : "", name);
	return joined;
}

static void free_module(srt_module_t *module)
{
	for (size_t i = 0; i < module->nchildren; i++)
		free(module->children[i].name);
	for (size_t i = 0; i < module->nparams; i++)
		free(module->params[i].name);
	for (size_t i = 0; i < module->nbuffers; i++)
		free(module->buffers[i].name);
	free(module->children);
	free(module->parents);
	free(module->params);
	free(module->buffers);
	free(module->path);
	free(module->kind);
	free(module);
}

void srt_tree_free(srt_module_tree_t *tree)
{
	for (size_t i = 0; i < tree->nmodules; i++)
		free_module(tree->modules[i]);
	for (size_t i = 0; i < tree->ntensors; i++) {
		free(tree->tensors[i]->mesh_dim);
		free(tree->tensors[i]->recorded);
		free(tree->tensors[i]);
	}
	free(tree->modules);
	free(tree->tensors);
	free(tree);
}

void srt_module_destroy(srt_module_t *root)
{
	if (root != NULL && root->tree->modules[0] == root && root->tree->engine == NULL)
		srt_tree_free(root->tree);
}

srt_status_t srt_module_check_open(const srt_module_t *module, const char *call)
{
	if (module->tree->engine == NULL)
		return SRT_OK;
	return srt_fail(SRT_ERR_STATE,
			"%s changes module '%s' (%s) after srt_engine_wrap(): complete the tree "
			"first",
			call, module->path, module->kind);
}

static bool is_taken(const srt_module_t *module, const char *name)
{
	for (size_t i = 0; i < module->nchildren; i++) {
		if (strcmp(module->children[i].name, name) == 0)
			return true;
	}
	for (size_t i = 0; i < module->nbuffers; i++) {
		if (strcmp(module->buffers[i].name, name) == 0)
			return true;
	}
	return srt_module_entry(module, name) != NULL;
}

/* Before something called `name` is added. */
static srt_status_t check_name(const srt_module_t *module, const char *name, const char *call)
{
	SRT_TRY(srt_module_check_open(module, call));
	if (name[0] == '\0' || strchr(name, '.') != NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: the name '%s' in module '%s' (%s) must not be empty and must "
				"not have a \".\"",
				call, name, module->path, module->kind);
	if (is_taken(module, name))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: module '%s' (%s) already has a child, parameter or buffer "
				"'%s'",
				call, module->path, module->kind, name);
	return SRT_OK;
}

/* ---- modules ---------------------------------------------------------------------------- */

/* A module that is in no tree, with room for it in `tree` and in its parent. */
static srt_module_t *new_module(const char *path, const char *kind)
{
	srt_module_t *module = srt_calloc(1, sizeof(*module), kind);

	if (module == NULL)
		return NULL;
	module->path = srt_strdup(path);
	module->kind = srt_strdup(kind);
	if (module->path != NULL && module->kind != NULL)
		return module;
	free_module(module);
	return NULL;
}

static srt_status_t reserve_module(srt_module_tree_t *tree)
{
	void *grown = srt_grow(tree->modules, tree->nmodules + 1, &tree->modules_room,
			       sizeof(*tree->modules), "list of modules");

	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	tree->modules = grown;
	return SRT_OK;
}

static srt_status_t add_child(srt_module_t *parent, const char *name, srt_module_t *child)
{
	void *children = srt_grow(parent->children, parent->nchildren + 1, &parent->children_room,
				  sizeof(*parent->children), "list of children");
	void *parents;
	char *copy;

	if (children == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	parent->children = children;
	parents = srt_grow(child->parents, child->nparents + 1, &child->parents_room,
			   sizeof(*child->parents), "list of parents");
	if (parents == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	child->parents = parents;
	copy = srt_strdup(name);
	if (copy == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	child->parents[child->nparents++] = parent;
	parent->children[parent->nchildren++] = (srt_module_child_t){ copy, child };
	return SRT_OK;
}

static srt_status_t create_root(const char *kind, srt_module_t **out)
{
	srt_module_tree_t *tree = srt_calloc(1, sizeof(*tree), "module tree");
	srt_module_t *root;

	if (tree == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	root = reserve_module(tree) == SRT_OK ? new_module("", kind) : NULL;
	if (root == NULL) {
		srt_tree_free(tree);
		return SRT_ERR_OUT_OF_MEMORY;
	}
	root->tree = tree;
	tree->modules[tree->nmodules++] = root;
	*out = root;
	return SRT_OK;
}

srt_status_t srt_module_create(srt_module_t *parent, const char *name, const char *kind,
			       srt_module_t **out)
{
	srt_module_t *module;
	srt_status_t status;
	char *path;

	SRT_NOT_NULL(kind);
	SRT_TRY(srt_check_not_null(out, __func__, "module"));
	if (kind[0] == '\0')
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: kind is empty", __func__);
	if (parent == NULL && name != NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: the root of a tree has the name '%s': it must be NULL",
				__func__, name);
	if (parent == NULL)
		return create_root(kind, out);
	SRT_NOT_NULL(name);
	SRT_TRY(check_name(parent, name, __func__));
	SRT_TRY(reserve_module(parent->tree));
	path = srt_module_join(parent->path, name);
	module = path != NULL ? new_module(path, kind) : NULL;
	free(path);
	if (module == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	module->tree = parent->tree;
	status = add_child(parent, name, module);
	if (status != SRT_OK) {
		free_module(module);
		return status;
	}
	parent->tree->modules[parent->tree->nmodules++] = module;
	*out = module;
	return SRT_OK;
}

static bool is_above(const srt_module_t *above, const srt_module_t *module)
{
	if (above == module)
		return true;
	for (size_t i = 0; i < module->nparents; i++) {
		if (is_above(above, module->parents[i]))
			return true;
	}
	return false;
}

static srt_status_t check_same_tree(const srt_module_t *module, const srt_module_t *other,
				    const char *call)
{
	if (module->tree == other->tree)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"%s: module '%s' (%s) and module '%s' (%s) are in different trees", call,
			module->path, module->kind, other->path, other->kind);
}

srt_status_t srt_module_share(srt_module_t *parent, const char *name, srt_module_t *module)
{
	SRT_NOT_NULL(parent);
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(module);
	SRT_TRY(check_same_tree(parent, module, __func__));
	SRT_TRY(check_name(parent, name, __func__));
	if (is_above(module, parent))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: module '%s' (%s) would be below itself, as '%s' of '%s'",
				__func__, module->path, module->kind, name, parent->path);
	return add_child(parent, name, module);
}

/* ---- tensors ---------------------------------------------------------------------------- */

static srt_status_t check_shape(const srt_module_t *module, const char *name, int ndim,
				const int64_t *shape, int64_t *nelem)
{
	size_t n = 1;
	bool fits = true;

	if (ndim < 0 || ndim > SRT_MAX_DIMS)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"'%s' of module '%s' (%s) has %d dimensions, must have at most %d",
				name, module->path, module->kind, ndim, SRT_MAX_DIMS);
	for (int i = 0; i < ndim; i++) {
		if (shape[i] < 0)
			return srt_fail(SRT_ERR_INVALID_ARGUMENT,
					"'%s' of module '%s' (%s) has size %lld in dimension %d, "
					"must be at least 0",
					name, module->path, module->kind, (long long)shape[i], i);
		fits = fits && srt_mul_size(n, (size_t)shape[i], &n);
	}
	if (!fits || n > INT64_MAX / 4096)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"'%s' of module '%s' (%s) is too large: it does not fit the "
				"address space",
				name, module->path, module->kind);
	*nelem = (int64_t)n;
	return SRT_OK;
}

/* Takes the tensor over if it succeeds. */
static srt_status_t add_entry(srt_module_t *module, const char *name, srt_module_tensor_t *tensor)
{
	void *grown = srt_grow(module->params, module->nparams + 1, &module->params_room,
			       sizeof(*module->params), "list of parameters");
	char *copy;

	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	module->params = grown;
	copy = srt_strdup(name);
	if (copy == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	module->params[module->nparams++] = (srt_module_entry_t){ copy, tensor };
	return SRT_OK;
}

static srt_status_t copy_param_options(srt_module_tensor_t *tensor,
				       const srt_param_options_t *options)
{
	tensor->options = *options;
	if (options->placement.mesh_dim == NULL)
		return SRT_OK;
	tensor->mesh_dim = srt_strdup(options->placement.mesh_dim);
	tensor->options.placement.mesh_dim = tensor->mesh_dim;
	return tensor->mesh_dim != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
}

srt_status_t srt_module_add_param(srt_module_t *module, const char *name, srt_dtype_t dtype,
				  int ndim, const int64_t *shape,
				  const srt_param_options_t *options)
{
	srt_param_options_t of_param = SRT_PARAM_OPTIONS_INIT;
	srt_module_tensor_t *tensor;
	srt_module_tree_t *tree;
	srt_status_t status;
	int64_t nelem;
	void *grown;

	SRT_NOT_NULL(module);
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(shape);
	SRT_TRY(srt_struct_read(&of_param, sizeof(of_param), options, "srt_param_options_t"));
	SRT_TRY(check_name(module, name, __func__));
	if (ndim == 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' of module '%s' (%s) is a scalar, which cannot be "
				"sharded: declare it 1-D with one element",
				name, module->path, module->kind);
	SRT_TRY(check_shape(module, name, ndim, shape, &nelem));
	if (!srt_dtype_is_float(dtype) && (dtype != SRT_U8 || !of_param.frozen))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"parameter '%s' of module '%s' (%s) has dtype %s, parameters must "
				"have a float dtype, or u8 if they are frozen",
				name, module->path, module->kind, srt_dtype_name(dtype));
	tree = module->tree;
	grown = srt_grow(tree->tensors, tree->ntensors + 1, &tree->tensors_room,
			 sizeof(*tree->tensors), "list of parameters");
	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	tree->tensors = grown;
	tensor = srt_calloc(1, sizeof(*tensor), name);
	if (tensor == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	tensor->dtype = dtype;
	tensor->ndim = ndim;
	memcpy(tensor->shape, shape, (size_t)ndim * sizeof(*shape));
	tensor->nelem = nelem;
	status = copy_param_options(tensor, &of_param);
	if (status == SRT_OK)
		status = add_entry(module, name, tensor);
	if (status != SRT_OK) {
		free(tensor->mesh_dim);
		free(tensor);
		return status;
	}
	tree->tensors[tree->ntensors++] = tensor;
	return SRT_OK;
}

static srt_status_t find_entry(const srt_module_t *module, const char *name, const char *call,
			       srt_module_entry_t **entry)
{
	*entry = srt_module_entry(module, name);
	if (*entry != NULL)
		return SRT_OK;
	return srt_fail(SRT_ERR_NOT_FOUND, "%s: module '%s' (%s) has no parameter '%s'", call,
			module->path, module->kind, name);
}

srt_status_t srt_module_tie(srt_module_t *module, const char *name, srt_module_t *of,
			    const char *param)
{
	srt_module_entry_t *entry;

	SRT_NOT_NULL(module);
	SRT_NOT_NULL(name);
	SRT_NOT_NULL(of);
	SRT_NOT_NULL(param);
	SRT_TRY(check_same_tree(module, of, __func__));
	SRT_TRY(check_name(module, name, __func__));
	SRT_TRY(find_entry(of, param, __func__, &entry));
	return add_entry(module, name, entry->tensor);
}

srt_status_t srt_module_add_buffer(srt_module_t *module, const char *name, srt_dtype_t dtype,
				   int ndim, const int64_t *shape)
{
	srt_module_buffer_t buffer = { .dtype = dtype, .ndim = ndim };
	int64_t nelem;
	void *grown;

	SRT_NOT_NULL(module);
	SRT_NOT_NULL(name);
	if (ndim > 0)
		SRT_NOT_NULL(shape);
	SRT_TRY(check_name(module, name, __func__));
	SRT_TRY(check_shape(module, name, ndim, shape, &nelem));
	if (srt_dtype_bits(dtype) < 8)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"buffer '%s' of module '%s' (%s) has dtype %s (%d), must have that "
				"of elements of whole bytes",
				name, module->path, module->kind, srt_dtype_name(dtype),
				(int)dtype);
	grown = srt_grow(module->buffers, module->nbuffers + 1, &module->buffers_room,
			 sizeof(*module->buffers), "list of buffers");
	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	module->buffers = grown;
	for (int i = 0; i < ndim; i++)
		buffer.shape[i] = shape[i];
	buffer.name = srt_strdup(name);
	if (buffer.name == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	module->buffers[module->nbuffers++] = buffer;
	return SRT_OK;
}

/* ---- marks ------------------------------------------------------------------------------ */

srt_status_t srt_module_set_reset(srt_module_t *module, srt_module_init_fn *reset, void *arg)
{
	SRT_NOT_NULL(module);
	SRT_NOT_NULL(reset);
	module->reset = reset;
	module->reset_arg = arg;
	return SRT_OK;
}

srt_status_t srt_module_record_init(srt_module_t *module, const char *param, const srt_init_t *init)
{
	srt_module_entry_t *entry;
	srt_module_tensor_t *tensor;
	void *grown;

	SRT_NOT_NULL(module);
	SRT_NOT_NULL(param);
	SRT_NOT_NULL(init);
	SRT_TRY(find_entry(module, param, __func__, &entry));
	tensor = entry->tensor;
	grown = srt_grow(tensor->recorded, tensor->nrecorded + 1, &tensor->recorded_room,
			 sizeof(*tensor->recorded), "recorded initial values");
	if (grown == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	tensor->recorded = grown;
	tensor->recorded[tensor->nrecorded++] = *init;
	return SRT_OK;
}

srt_status_t srt_module_copy_options(srt_module_t *module, const srt_unit_options_t *options)
{
	srt_precision_t precision = SRT_PRECISION_INIT;

	SRT_TRY(srt_struct_read(&precision, sizeof(precision), options->precision,
				"srt_precision_t"));
	module->options = *options;
	if (options->precision == NULL)
		return SRT_OK;
	module->precision = precision;
	module->options.precision = &module->precision;
	return SRT_OK;
}

srt_status_t srt_module_check_not_root(const srt_module_t *module, const char *call,
				       const char *why)
{
	if (module != module->tree->modules[0])
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: module is the root (%s), %s", call,
			module->kind, why);
}

srt_status_t srt_module_ignore(srt_module_t *module, const char *param)
{
	srt_module_entry_t *entry;

	SRT_NOT_NULL(module);
	SRT_TRY(srt_module_check_open(module, __func__));
	if (param == NULL) {
		SRT_TRY(srt_module_check_not_root(module, __func__,
						  "without which nothing is left"));
		module->ignored = true;
		return SRT_OK;
	}
	SRT_TRY(find_entry(module, param, __func__, &entry));
	entry->tensor->ignored = true;
	return SRT_OK;
}
