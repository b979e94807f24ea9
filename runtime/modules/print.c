/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints a module tree: modules, parameters, buffers, units. For people and bug reports. */
#include "runtime/modules/module.h"

#include <string.h>

#include "runtime/engine/engine.h"

static void print_shape(srt_dtype_t dtype, int ndim, const int64_t *shape, FILE *out)
{
	fprintf(out, " %s (", srt_dtype_name(dtype));
	for (int d = 0; d < ndim; d++)
		fprintf(out, "%s%lld", d > 0 ? ", " : "", (long long)shape[d]);
	fputc(')', out);
}

static void print_param(const srt_module_t *module, const srt_module_entry_t *entry, int indent,
			FILE *out)
{
	const srt_module_tensor_t *tensor = entry->tensor;
	const srt_placement_t *p = &tensor->options.placement;

	fprintf(out, "%*s%s", indent, "", entry->name);
	if (srt_module_is_alias(module, entry->name)) {
		fprintf(out, ", tied to %s\n",
			tensor->param != NULL ? srt_param_name(tensor->param) : "another name");
		return;
	}
	print_shape(tensor->dtype, tensor->ndim, tensor->shape, out);
	if (p->mesh_dim != NULL)
		fprintf(out, ", dimension %d cut over %s", p->tensor_dim, p->mesh_dim);
	if (p->mesh_dim != NULL && p->nblocks > 1)
		fprintf(out, " in %d blocks", p->nblocks);
	if (tensor->options.frozen)
		fprintf(out, ", frozen");
	if (tensor->ignored)
		fprintf(out, ", ignored");
	else if (tensor->unit != NULL && tensor->unit != module->unit)
		fprintf(out, ", of unit %s", tensor->unit->made->name);
	fputc('\n', out);
}

static void print_module(srt_module_t *module, const char *name, int indent, FILE *out)
{
	const bool is_first = srt_module_enter(module);

	fprintf(out, "%*s%s%s%s%s", indent, "", name, name[0] != '\0' ? " (" : "", module->kind,
		name[0] != '\0' ? ")" : "");
	if (!is_first)
		fprintf(out, ", the same as %s", module->path);
	else if (module->made != NULL)
		fprintf(out, ", unit %s", module->made->name);
	fprintf(out, "%s\n", is_first && module->ignored ? ", ignored" : "");
	for (size_t i = 0; is_first && i < module->nparams; i++)
		print_param(module, &module->params[i], indent + 2, out);
	for (size_t i = 0; is_first && i < module->nbuffers; i++) {
		const srt_module_buffer_t *buffer = &module->buffers[i];

		fprintf(out, "%*sbuffer %s", indent + 2, "", buffer->name);
		print_shape(buffer->dtype, buffer->ndim, buffer->shape, out);
		fputc('\n', out);
	}
	for (size_t i = 0; is_first && i < module->nchildren; i++)
		print_module(module->children[i].module, module->children[i].name, indent + 2, out);
}

srt_status_t srt_module_print(const srt_module_t *module, FILE *out)
{
	SRT_NOT_NULL(module);
	SRT_NOT_NULL(out);
	module->tree->visit++;
	/* a walk marks the modules that it has seen; nothing that a caller sees changes */
	print_module((srt_module_t *)module, module->path, 0, out);
	return SRT_OK;
}
