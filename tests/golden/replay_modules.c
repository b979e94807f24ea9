/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The models of the golden cases as module trees (replay.h): modules by the names of parameters,
 * units and what is ignored as marks, initial values by reset functions that read the recorded
 * ones.
 */
#include "config.h"

#include <string.h>

#include "runtime/engine/engine.h"
#include "tests/golden/replay.h"

enum { MAX_MODULES = 8 }; /* of a unit */

/* Not for groups of ranks: units in units share no memory, so that nothing would be gathered within
 * the groups. */
bool replay_has_modules(const replay_t *r)
{
	const json_t *units = json_object_get(r->golden->json, "units"), *unit;
	size_t i;

	json_array_foreach(units, i, unit)
	{
		if (golden_text(unit, "module") == NULL)
			return false;
	}
	return json_array_size(units) > 0 && r->reshard <= 0;
}

/* The module of "module.what", created with those above it; the rest of the name in *what. */
static srt_status_t find_module(srt_module_t *root, const char *name, srt_module_t **module,
				const char **what)
{
	char part[64];

	*module = root;
	for (*what = name; strchr(*what, '.') != NULL; *what += strlen(part) + 1) {
		srt_module_t *child;

		snprintf(part, sizeof(part), "%.*s", (int)strcspn(*what, "."), *what);
		child = srt_module_find(*module, part);
		if (child == NULL)
			SRT_TRY(srt_module_create(*module, part, "Module", &child));
		*module = child;
	}
	return SRT_OK;
}

/* Sets what is the module's own to its values before step 1. */
static srt_status_t reset(srt_module_t *module, uint64_t seed, srt_stream_t *stream, void *arg)
{
	replay_t *r = arg;
	const char *name;

	(void)seed;
	(void)stream;
	for (size_t i = 0; (name = srt_module_param_name(module, i))[0]; i++) {
		srt_param_t *p = srt_module_param(module, name);
		srt_status_t status;
		float *full;

		if (srt_module_is_alias(module, name))
			continue;
		SRT_TRY(golden_floats(r->golden->init, srt_param_name(p),
				      (size_t)srt_param_nelem(p), &full));
		status = replay_set_param(r, p, full, (size_t)srt_param_nelem(p));
		free(full);
		SRT_TRY(status);
	}
	return SRT_OK;
}

static srt_status_t set_reset(srt_module_t *module, void *arg)
{
	return srt_module_set_reset(module, reset, arg);
}

static srt_status_t add_params(replay_t *r, srt_module_t *root)
{
	const json_t *spec;
	size_t i;

	json_array_foreach(json_object_get(r->golden->json, "params"), i, spec)
	{
		srt_param_options_t options;
		int64_t shape[SRT_MAX_DIMS];
		srt_module_t *module;
		srt_dtype_t dtype;
		const char *what;
		int ndim;

		SRT_TRY(replay_param_options(r, golden_text(spec, "name"), &dtype, &ndim, shape,
					     &options));
		SRT_TRY(find_module(root, golden_text(spec, "name"), &module, &what));
		SRT_TRY(srt_module_add_param(module, what, dtype, ndim, shape, &options));
		if (golden_is_ignored(r->golden, golden_text(spec, "name")))
			SRT_TRY(srt_module_ignore(module, what));
	}
	return SRT_OK;
}

static srt_status_t add_ties(replay_t *r, srt_module_t *root)
{
	const json_t *pair;
	size_t i;

	json_array_foreach(json_object_get(r->golden->json, "tied"), i, pair)
	{
		srt_module_t *module, *owner;
		const char *what, *of;

		SRT_TRY(find_module(root, json_string_value(json_array_get(pair, 0)), &module,
				    &what));
		SRT_TRY(find_module(root, json_string_value(json_array_get(pair, 1)), &owner, &of));
		SRT_TRY(srt_module_tie(module, what, owner, of));
	}
	return SRT_OK;
}

/* The modules of a unit: "a", or several, "a+b". */
static srt_status_t find_modules(srt_module_t *root, const char *paths, srt_module_t **modules,
				 size_t *nmodules)
{
	char path[64];

	*nmodules = 0;
	for (const char *rest = paths;; rest++) {
		const size_t n = strcspn(rest, "+");

		snprintf(path, sizeof(path), "%.*s", (int)n, rest);
		modules[*nmodules] = srt_module_find(root, path);
		if (modules[*nmodules] == NULL || *nmodules + 1 == MAX_MODULES)
			return srt_fail(SRT_ERR_FORMAT, "unit '%s' has no parameters", paths);
		(*nmodules)++;
		rest += n;
		if (!rest[0])
			return SRT_OK;
	}
}

static srt_status_t mark_units(replay_t *r, srt_module_t *root)
{
	const json_t *unit;
	size_t i;

	json_array_foreach(json_object_get(r->golden->json, "units"), i, unit)
	{
		const char *paths = golden_text(unit, "module");
		srt_module_t *modules[MAX_MODULES];
		size_t n;

		SRT_TRY(find_modules(root, paths, modules, &n));
		if (n > 1)
			SRT_TRY(srt_module_wrap_together(modules, n, NULL));
		else if (paths[0])
			SRT_TRY(srt_module_wrap(modules[0], NULL));
	}
	return SRT_OK;
}

static srt_status_t build_tree(replay_t *r, srt_module_t *root)
{
	SRT_TRY(add_params(r, root));
	SRT_TRY(add_ties(r, root));
	SRT_TRY(mark_units(r, root));
	return srt_module_apply(root, set_reset, r);
}

/* The units are those of the case, with their parameters, and the order of both is the tree's. */
static srt_status_t compare_units(replay_t *r, srt_module_t *root)
{
	const json_t *units = json_object_get(r->golden->json, "units"), *unit;
	size_t i, n = json_array_size(units);

	r->units = srt_calloc(n + 1, sizeof(*r->units), "units");
	if (r->units == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	verdict_exact(r->verdict, r->engine->nunits == n, "%zu units, not %zu", r->engine->nunits,
		      n);
	json_array_foreach(units, i, unit)
	{
		const json_t *params = json_object_get(unit, "params");
		srt_module_t *modules[MAX_MODULES];
		const srt_unit_t *u;
		size_t nmodules;

		SRT_TRY(find_modules(root, golden_text(unit, "module"), modules, &nmodules));
		r->units[i] = srt_module_unit(modules[0]);
		u = r->units[i];
		verdict_exact(r->verdict, u->nparams == json_array_size(params),
			      "unit %s has %zu parameters", u->name, u->nparams);
		for (size_t k = 0; k < u->nparams && k < json_array_size(params); k++)
			verdict_exact(r->verdict,
				      !strcmp(json_string_value(json_array_get(params, k)),
					      srt_param_name(u->params[k])),
				      "parameter %zu of unit %s is %s", k, u->name,
				      srt_param_name(u->params[k]));
	}
	return SRT_OK;
}

srt_status_t replay_declare_modules(replay_t *r)
{
	const srt_unit_options_t of_root = { .size = sizeof(of_root),
					     .precision = &r->root_precision,
					     .flat = r->flat };
	const srt_unit_options_t of_others = { .size = sizeof(of_others),
					       .precision = &r->precision,
					       .reshard = r->reshard,
					       .flat = r->flat };
	const srt_wrap_options_t options = { .size = sizeof(options),
					     .root = &of_root,
					     .units = &of_others,
					     .ignored = r->ignored_unit };
	srt_module_t *root;
	srt_status_t status;

	SRT_TRY(srt_module_create(NULL, NULL, "Module", &root));
	status = build_tree(r, root);
	if (status == SRT_OK)
		status = srt_engine_wrap(r->engine, root, NULL, &options);
	if (status != SRT_OK) {
		srt_module_destroy(root);
		return status;
	}
	return compare_units(r, root);
}
