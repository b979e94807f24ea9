/* SPDX-License-Identifier: BSD-3-Clause */
/* A small module tree and its checks (module_case.h). */
#include "tests/engine/module_case.h"

srt_engine_t *modules_create_engine(srt_context_t *context, srt_comm_t *comm)
{
	const srt_engine_options_t options = { ENGINE_BASE, .comm = comm,
					       .strategy = SRT_STRATEGY_ZERO3,
					       .optim = OPTIM_SGD(0.1f) };
	srt_engine_t *engine;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	return engine;
}

srt_module_t *modules_add(srt_module_t *parent, const char *name, const char *kind)
{
	srt_module_t *module;

	CHECK_OK_OR_DIE(srt_module_create(parent, name, kind, &module));
	return module;
}

static srt_status_t reset_ones(srt_module_t *module, uint64_t seed, srt_stream_t *on, void *arg)
{
	const char *name;

	(void)seed;
	(void)arg;
	for (size_t i = 0; (name = srt_module_param_name(module, i))[0]; i++) {
		if (!srt_module_is_alias(module, name))
			SRT_TRY(srt_param_init_constant(srt_module_param(module, name), 1.0f, on));
	}
	return SRT_OK;
}

srt_module_t *modules_add_layer(srt_module_t *parent, const char *name, const char *kind,
				int64_t rows)
{
	srt_module_t *module = modules_add(parent, name, kind);

	CHECK_OK_OR_DIE(srt_module_add_param(module, "weight", SRT_F32, 1, &rows, NULL));
	CHECK_OK_OR_DIE(srt_module_set_reset(module, reset_ones, NULL));
	return module;
}

void modules_check_units(srt_engine_t *engine, const char *expected)
{
	char text[1024] = "";
	size_t n = 0;

	for (size_t u = 0; u < engine->nunits; u++) {
		const srt_unit_t *unit = engine->units[u];

		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s(", u > 0 ? " " : "",
				      unit->name);
		for (size_t i = 0; i < unit->nparams; i++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i > 0 ? " " : "",
					      unit->params[i]->name);
		n += (size_t)snprintf(text + n, sizeof(text) - n, ")");
	}
	CHECK_STR(text, expected);
}

srt_module_t *modules_create_blocks(void)
{
	srt_module_t *root = modules_add(NULL, NULL, "Model"), *list, *block, *attn;

	modules_add_layer(root, "emb", "Embedding", 6);
	list = modules_add(root, "blocks", "ModuleList");
	block = modules_add(list, "0", "Block");
	attn = modules_add_layer(block, "attn", "MultiheadAttention", 8);
	modules_add_layer(attn, "proj", "Linear", 4);
	modules_add_layer(block, "fc", "Linear", 5);
	block = modules_add(list, "1", "Block");
	modules_add_layer(block, "fc", "Linear", 5);
	modules_add_layer(root, "head", "Linear", 2);
	return root;
}
