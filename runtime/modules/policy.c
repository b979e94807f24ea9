/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which modules become units: marks, and torch.distributed.fsdp.wrap's policies and its recursive
 * wrapping. A policy is asked twice of a module: whether to look at what is below it, and then,
 * with the elements that are in no unit yet, whether to make it a unit.
 */
#include "runtime/modules/module.h"

#include <string.h>

/* ---- marks -------------------------------------------------------------------------------- */

static srt_status_t check_mark(const srt_module_t *module, const char *call)
{
	SRT_TRY(srt_module_check_open(module, call));
	SRT_TRY(srt_module_check_not_root(module, call,
					  "which always is a unit: srt_wrap_options_t.root"));
	if (module->mate != NULL)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s: module '%s' (%s) is in one unit with other modules already",
				call, module->path, module->kind);
	return SRT_OK;
}

static srt_status_t mark(srt_module_t *module, const srt_unit_options_t *options)
{
	if (options != NULL)
		SRT_TRY(srt_module_copy_options(module, options));
	module->is_marked = true;
	module->has_options = options != NULL;
	return SRT_OK;
}

srt_status_t srt_module_wrap(srt_module_t *module, const srt_unit_options_t *options)
{
	srt_unit_options_t read = SRT_UNIT_OPTIONS_INIT;

	SRT_NOT_NULL(module);
	SRT_TRY(srt_struct_read(&read, sizeof(read), options, "srt_unit_options_t"));
	SRT_TRY(check_mark(module, __func__));
	return mark(module, options != NULL ? &read : NULL);
}

srt_status_t srt_module_wrap_together(srt_module_t *const *modules, size_t nmodules,
				      const srt_unit_options_t *options)
{
	srt_unit_options_t read = SRT_UNIT_OPTIONS_INIT;

	SRT_NOT_NULL(modules);
	SRT_TRY(srt_struct_read(&read, sizeof(read), options, "srt_unit_options_t"));
	if (nmodules == 0)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT, "%s: nmodules is 0", __func__);
	for (size_t i = 0; i < nmodules; i++) {
		SRT_NOT_NULL(modules[i]);
		SRT_TRY(check_mark(modules[i], __func__));
		if (modules[i]->tree != modules[0]->tree)
			return srt_fail(
				SRT_ERR_INVALID_ARGUMENT,
				"%s: modules '%s' (%s) and '%s' (%s) are in different trees",
				__func__, modules[0]->path, modules[0]->kind, modules[i]->path,
				modules[i]->kind);
	}
	for (size_t i = 0; i < nmodules; i++) {
		SRT_TRY(mark(modules[i], options != NULL ? &read : NULL));
		modules[i]->mate = modules[0];
	}
	return SRT_OK;
}

/* ---- policies ----------------------------------------------------------------------------- */

static srt_status_t refuse(const char *field, const char *why)
{
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_wrap_policy_t: %s %s", field, why);
}

/* A field that a rule needs, and that only this rule has. */
static srt_status_t check_field(bool is_set, bool is_needed, const char *field, const char *rule)
{
	if (is_set == is_needed)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "srt_wrap_policy_t: %s %s %s", field,
			is_needed ? "is missing, which is needed by" : "is only for", rule);
}

srt_status_t srt_policy_read(const srt_wrap_policy_t *given, srt_wrap_policy_t *p)
{
	const srt_wrap_policy_t defaults = SRT_WRAP_POLICY_INIT;
	srt_wrap_policy_t one;
	bool is_list;

	*p = defaults;
	SRT_TRY(srt_struct_read(p, sizeof(*p), given, "srt_wrap_policy_t"));
	is_list = p->rule == SRT_WRAP_AND || p->rule == SRT_WRAP_OR;
	if (p->rule < SRT_WRAP_NONE || p->rule > SRT_WRAP_OR)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_wrap_policy_t: %d is not a rule (srt_wrap_rule_t)",
				(int)p->rule);
	SRT_TRY(check_field(p->kinds != NULL, p->rule == SRT_WRAP_KINDS, "kinds",
			    "SRT_WRAP_KINDS"));
	SRT_TRY(check_field(p->callback != NULL, p->rule == SRT_WRAP_CALLBACK, "callback",
			    "SRT_WRAP_CALLBACK"));
	SRT_TRY(check_field(p->policies != NULL && p->npolicies > 0, is_list, "policies",
			    "SRT_WRAP_AND and SRT_WRAP_OR"));
	if (p->arg != NULL && p->callback == NULL)
		return refuse("arg", "is only for SRT_WRAP_CALLBACK");
	if (p->min_nelem < 0)
		return refuse("min_nelem", "must be at least 0");
	if (p->rule != SRT_WRAP_SIZE &&
	    ((p->min_nelem != 0 && p->min_nelem != defaults.min_nelem) || p->leaf_kinds != NULL ||
	     p->excluded_kinds != NULL))
		return refuse("min_nelem, leaf_kinds or excluded_kinds",
			      "is only for SRT_WRAP_SIZE");
	for (size_t i = 0; is_list && i < p->npolicies; i++)
		SRT_TRY(srt_policy_read(srt_struct_at(p->policies, i), &one));
	return SRT_OK;
}

static bool has_kind(const srt_module_t *module, const char *const *kinds)
{
	for (; *kinds != NULL; kinds++) {
		if (strcmp(*kinds, module->kind) == 0)
			return true;
	}
	return false;
}

static bool is_large(const srt_wrap_policy_t *p, const srt_module_t *module, int64_t nelem,
		     bool recurse)
{
	static const char *const leaves[] = { "MultiheadAttention", NULL };
	static const char *const containers[] = { "ModuleList", "ModuleDict", NULL };
	const char *const *refused = recurse ? p->leaf_kinds : p->excluded_kinds;

	if (refused == NULL)
		refused = recurse ? leaves : containers;
	return nelem >= p->min_nelem && !has_kind(module, refused);
}

/* The options of a module that it does not wrap stay. */
static bool ask_callback(const srt_wrap_policy_t *p, const srt_module_t *module,
			 srt_unit_options_t *options)
{
	srt_unit_options_t changed = *options;

	if (p->callback(module, &changed, p->arg) == 0)
		return false;
	*options = changed;
	return true;
}

static bool ask_one(const srt_wrap_policy_t *list, size_t i, const srt_module_t *module,
		    int64_t nelem, bool recurse, srt_unit_options_t *options);

/* nelem: of the parameters at and below the module; unless recurse, without those in units. */
static bool ask(const srt_wrap_policy_t *p, const srt_module_t *module, int64_t nelem, bool recurse,
		srt_unit_options_t *options)
{
	switch (p->rule) {
	case SRT_WRAP_NONE:
		return false;
	case SRT_WRAP_ALWAYS:
		return true;
	case SRT_WRAP_KINDS:
		return recurse || has_kind(module, p->kinds);
	case SRT_WRAP_SIZE:
		return is_large(p, module, nelem, recurse);
	case SRT_WRAP_CALLBACK:
		return recurse || ask_callback(p, module, options);
	case SRT_WRAP_AND:
		for (size_t i = 0; i < p->npolicies; i++) {
			if (!ask_one(p, i, module, nelem, recurse, options))
				return false;
		}
		return true;
	case SRT_WRAP_OR:
		for (size_t i = 0; i < p->npolicies; i++) {
			if (ask_one(p, i, module, nelem, recurse, options))
				return true;
		}
		return false;
	}
	return false;
}

/* Policy i of a list, which srt_policy_read() has accepted. */
static bool ask_one(const srt_wrap_policy_t *list, size_t i, const srt_module_t *module,
		    int64_t nelem, bool recurse, srt_unit_options_t *options)
{
	srt_wrap_policy_t p = SRT_WRAP_POLICY_INIT;

	return srt_struct_read(&p, sizeof(p), srt_struct_at(list->policies, i),
			       "srt_wrap_policy_t") == SRT_OK &&
	       ask(&p, module, nelem, recurse, options);
}

static int64_t count_elements(srt_module_t *module)
{
	int64_t n = 0;

	if (!srt_module_enter(module))
		return 0;
	for (size_t i = 0; i < module->nparams; i++) {
		srt_module_tensor_t *tensor = module->params[i].tensor;

		if (tensor->visit != module->tree->visit && !tensor->ignored)
			n += tensor->nelem;
		tensor->visit = module->tree->visit;
	}
	for (size_t i = 0; i < module->nchildren; i++)
		n += count_elements(module->children[i].module);
	return n;
}

/* Decides for the modules at and below this one, the lowest first. `looks`: the policy is asked.
 * @param status the first failure to copy options.
 * @return the elements in units, as size_based_auto_wrap_policy counts them. */
static int64_t choose(srt_module_t *module, const srt_wrap_policy_t *policy, bool looks,
		      const srt_unit_options_t *defaults, srt_status_t *status)
{
	srt_unit_options_t options = *defaults;
	int64_t nelem, nwrapped = 0;

	if (module->nwrapped >= 0) /* of another parent, too */
		return module->nwrapped;
	module->tree->visit++;
	nelem = count_elements(module);
	looks = looks && ask(policy, module, nelem, true, &options);
	for (size_t i = 0; i < module->nchildren; i++) {
		srt_module_t *child = module->children[i].module;

		if (!child->ignored)
			nwrapped += choose(child, policy, looks, defaults, status);
	}
	module->is_unit = module == module->tree->modules[0] || module->is_marked ||
			  (looks && ask(policy, module, nelem - nwrapped, false, &options));
	if (module->is_unit && !module->has_options && *status == SRT_OK)
		*status = srt_module_copy_options(module, &options);
	module->nwrapped = module->is_unit ? nelem : nwrapped;
	return module->nwrapped;
}

srt_status_t srt_policy_apply(srt_module_t *root, const srt_wrap_policy_t *policy,
			      const srt_unit_options_t *options)
{
	srt_status_t status = SRT_OK;

	choose(root, policy, true, options, &status);
	return status;
}
