/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Initial values of one module: recorded ones, by its reset function, or by PyTorch's defaults.
 *
 * A parameter that has names in several modules gets its values in the first of them only, so that
 * they do not depend on the order of the modules.
 */
#include "runtime/modules/module.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"

/* ---- recorded ------------------------------------------------------------------------------ */

static bool is_recorded(const srt_module_t *module)
{
	for (size_t i = 0; i < module->nparams; i++) {
		if (module->params[i].tensor->nrecorded > 0)
			return true;
	}
	return false;
}

static srt_status_t replay(const srt_module_t *module, uint64_t seed, srt_stream_t *stream)
{
	for (size_t i = 0; i < module->nparams; i++) {
		const srt_module_entry_t *entry = &module->params[i];
		const srt_module_tensor_t *tensor = entry->tensor;

		if (tensor->param == NULL || srt_module_is_alias(module, entry->name))
			continue;
		if (tensor->nrecorded == 0)
			return srt_fail(SRT_ERR_NOT_FOUND,
					"nothing is recorded for parameter '%s', but for others of "
					"the module: call srt_module_record_init() for it",
					entry->name);
		for (size_t k = 0; k < tensor->nrecorded; k++)
			SRT_TRY(srt_param_init(tensor->param, seed, &tensor->recorded[k], stream));
	}
	return SRT_OK;
}

/* ---- the defaults of kinds ------------------------------------------------------------------ */

/* The inputs of a Linear: elements of a row of its weight; 0 without one. */
static int64_t count_inputs(const srt_module_t *module)
{
	const srt_module_entry_t *entry = srt_module_entry(module, "weight");
	int64_t n = entry != NULL;

	for (int d = 1; entry != NULL && d < entry->tensor->ndim; d++)
		n *= entry->tensor->shape[d];
	return n;
}

/* The default of something in the module, by the outermost module that has one for it: modules draw
 * again what those in them have drawn. */
static srt_status_t find_default(const srt_module_t *around, const char *path,
				 srt_init_query_t *query, srt_init_t *init)
{
	const size_t skipped = strlen(around->path);

	if (around->above != NULL && find_default(around->above, path, query, init) == SRT_OK)
		return SRT_OK;
	query->kind = around->kind;
	query->name = path + skipped + (skipped > 0);
	return srt_init_default(query, init);
}

static srt_status_t find_init(const srt_module_t *module, const char *name, int ndim,
			      const int64_t *shape, srt_init_t *init)
{
	srt_init_query_t query = {
		.size = sizeof(query), .ndim = ndim, .shape = shape, .fan_in = count_inputs(module)
	};
	char *path = srt_module_join(module->path, name);
	srt_status_t status;

	if (path == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = find_default(module, path, &query, init);
	free(path);
	return status;
}

/* Buffers have constants. */
static srt_status_t fill_buffer(srt_module_buffer_t *buffer, double value, srt_stream_t *stream)
{
	srt_view_t view;
	void *zeros;
	srt_status_t status;

	SRT_TRY(srt_unit_buffer_view(buffer->buffer, &view));
	if (value != 0)
		return srt_op_fill(view, (float)value, buffer->buffer->nelem, stream);
	zeros = srt_calloc(1, buffer->buffer->nbytes + 1, buffer->name);
	if (zeros == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	status = srt_unit_buffer_set(buffer->buffer, zeros, stream);
	free(zeros);
	return status;
}

static srt_status_t init_defaults(srt_module_t *module, uint64_t seed, srt_stream_t *stream)
{
	srt_init_t init;

	for (size_t i = 0; i < module->nparams; i++) {
		const srt_module_entry_t *entry = &module->params[i];
		const srt_module_tensor_t *tensor = entry->tensor;

		if (tensor->param == NULL || srt_module_is_alias(module, entry->name))
			continue;
		SRT_TRY(find_init(module, entry->name, tensor->ndim, tensor->shape, &init));
		SRT_TRY(srt_param_init(tensor->param, seed, &init, stream));
	}
	for (size_t i = 0; i < module->nbuffers; i++) {
		srt_module_buffer_t *buffer = &module->buffers[i];

		if (buffer->buffer == NULL)
			continue;
		SRT_TRY(find_init(module, buffer->name, buffer->ndim, buffer->shape, &init));
		SRT_TRY(fill_buffer(buffer, init.value, stream));
	}
	return SRT_OK;
}

/* ---- srt_module_reset() --------------------------------------------------------------------- */

/* PyTorch has a default for something in the module. */
static bool has_default(const srt_module_t *module)
{
	srt_init_t init;

	for (size_t i = 0; i < module->nparams; i++) {
		const srt_module_tensor_t *tensor = module->params[i].tensor;

		if (find_init(module, module->params[i].name, tensor->ndim, tensor->shape, &init) ==
		    SRT_OK)
			return true;
	}
	for (size_t i = 0; i < module->nbuffers; i++) {
		const srt_module_buffer_t *buffer = &module->buffers[i];

		if (find_init(module, buffer->name, buffer->ndim, buffer->shape, &init) == SRT_OK)
			return true;
	}
	return false;
}

static srt_status_t reset(srt_module_t *module, uint64_t seed, srt_stream_t *stream)
{
	if (is_recorded(module))
		return replay(module, seed, stream);
	if (module->reset != NULL)
		return module->reset(module, seed, stream, module->reset_arg);
	if (has_default(module))
		return init_defaults(module, seed, stream);
	return srt_fail(SRT_ERR_NOT_FOUND,
			"there is no reset function, and the kind is none of srt_init_default(): "
			"call srt_module_set_reset() or srt_module_record_init(), or give "
			"srt_engine_materialize() a param_init function");
}

srt_status_t srt_module_reset(srt_module_t *module, uint64_t seed, srt_stream_t *stream)
{
	srt_status_t status;

	SRT_NOT_NULL(module);
	SRT_NOT_NULL(stream);
	if (module->tree->engine == NULL)
		return srt_fail(SRT_ERR_STATE,
				"srt_module_reset: module '%s' (%s) is in no engine: call "
				"srt_engine_wrap() and srt_engine_build() first",
				module->path, module->kind);
	if (module->nparams == 0 && module->nbuffers == 0)
		return SRT_OK;
	status = reset(module, seed, stream);
	if (status != SRT_OK)
		return srt_fail_prefix(status, "initial values of module '%s' (%s): ", module->path,
				       module->kind);
	for (size_t i = 0; i < module->nbuffers; i++) {
		if (module->buffers[i].buffer != NULL)
			module->buffers[i].buffer->is_unset = false;
	}
	return SRT_OK;
}
