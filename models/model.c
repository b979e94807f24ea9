/* SPDX-License-Identifier: BSD-3-Clause */
/* Declares modules and units with the options of their model; the dimensions of a parameter
 * determine its decay. */
#include "models/model.h"

#include <stdio.h>
#include <string.h>

#include "models/try.h"

int srt_model_tensor_ranks(const srt_model_options_t *options)
{
	const int n = options != NULL && options->mesh != NULL ?
			      srt_mesh_size(options->mesh, SRT_MODEL_TENSOR_DIM) :
			      0;

	return n > 1 ? n : 1;
}

static srt_param_options_t param_options(const char *name, int ndim, int is_adapter,
					 const srt_model_options_t *options)
{
	srt_param_options_t po = SRT_PARAM_OPTIONS_INIT;

	po.weight_decay = 0;
	if (options != NULL) {
		po.weight_decay = ndim == 2 ? options->matrix_decay : options->vector_decay;
		po.frozen = (options->frozen != NULL && options->frozen(name, options->arg)) ||
			    (options->lora != NULL && !is_adapter);
	}
	return po;
}

srt_status_t srt_model_module(srt_module_t *root, const char *path, const char *kind,
			      srt_module_t **module)
{
	char part[64];

	*module = root;
	for (const char *rest = path; *rest;) {
		const size_t n = strcspn(rest, ".");
		const int is_last = rest[n] == '\0';
		srt_module_t *child;

		snprintf(part, sizeof(part), "%.*s", (int)n, rest);
		child = srt_module_find(*module, part);
		if (child == NULL)
			SRT_TRY(srt_module_create(*module, part, is_last ? kind : "Module",
						  &child));
		*module = child;
		rest += n + !is_last;
	}
	return SRT_OK;
}

srt_status_t srt_model_add_param(srt_module_t *root, const srt_model_param_spec_t *spec,
				 const srt_model_options_t *options)
{
	const int64_t shape[2] = { spec->rows, spec->n };
	const int ndim = spec->n > 0 ? 2 : 1;
	const char *name = strrchr(spec->name, '.') + 1;
	srt_param_options_t po;
	srt_module_t *module;
	char text[128];

	snprintf(text, sizeof(text), "%.*s", (int)(name - spec->name) - 1, spec->name);
	SRT_TRY(srt_model_module(root, text, spec->kind, &module));
	snprintf(text, sizeof(text), "%s.%s", srt_module_path(module), name);
	po = param_options(text, ndim, spec->is_adapter, options);
	po.group = spec->group;
	if (spec->is_cut && srt_model_tensor_ranks(options) > 1)
		po.placement = (srt_placement_t){ SRT_MODEL_TENSOR_DIM, spec->tensor_dim,
						  spec->nblocks, spec->nparts };
	SRT_TRY(srt_module_add_param(module, name,
				     options != NULL && options->dtype ? options->dtype : SRT_F32,
				     ndim, shape, &po));
	return spec->init != NULL ? srt_module_record_init(module, name, spec->init) : SRT_OK;
}

srt_status_t srt_model_wrap(srt_engine_t *engine, srt_module_t *root,
			    const srt_wrap_policy_t *policy, const srt_model_options_t *options)
{
	const srt_unit_options_t units = { .size = sizeof(units),
					   .reshard = options != NULL ? options->reshard : 0,
					   .flat = options != NULL ? options->flat : SRT_FLAT_NO };
	const srt_wrap_options_t wrap = { .size = sizeof(wrap), .root = &units, .units = &units };
	const srt_status_t status = srt_engine_wrap(engine, root, policy, &wrap);

	if (status != SRT_OK)
		srt_module_destroy(root);
	return status;
}
