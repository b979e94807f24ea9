/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of wrap policies and initial values (replay.h): which modules become units, with how
 * many elements, and in which order reset functions and param_init run, by real FSDP1. The sizes of
 * a row's units give the width of its linear layers.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"
#include "tests/golden/replay.h"
#include "tests/harness/options.h"

enum { MAX_CALLS = 32 };

typedef struct meta {
	golden_t *golden;
	srt_context_t *context;
	srt_stream_t *stream;
	verdict_t *verdict;
	int64_t width; /* of the linear layers, as in the last row */
	/* of a row */
	int nresets, ncalls;
	const char *resets[MAX_CALLS], *calls[MAX_CALLS], *kinds[MAX_CALLS];
	bool unset[MAX_CALLS];
} meta_t;

/* ---- the models --------------------------------------------------------------------------- */

static srt_status_t log_reset(srt_module_t *module, uint64_t seed, srt_stream_t *stream, void *arg)
{
	meta_t *m = arg;

	if (m->nresets < MAX_CALLS)
		m->resets[m->nresets++] = srt_module_path(module);
	if (srt_module_param(module, "weight") != NULL)
		SRT_TRY(srt_param_init_normal(srt_module_param(module, "weight"), seed, 0, 1,
					      stream));
	return SRT_OK;
}

static srt_status_t add_linear(meta_t *m, srt_module_t *parent, const char *name, const char *kind)
{
	const int64_t shape[] = { m->width, m->width };
	srt_module_t *module;

	SRT_TRY(srt_module_create(parent, name, kind, &module));
	SRT_TRY(srt_module_set_reset(module, log_reset, m));
	return srt_module_add_param(module, "weight", SRT_F32, 2, shape, NULL);
}

static srt_status_t add_mymodel(meta_t *m, srt_module_t *module)
{
	/* the size of the buffer is not recorded: nothing depends on it */
	const int64_t shape[] = { m->width, m->width };
	srt_module_t *buf_mod;

	SRT_TRY(add_linear(m, module, "lin1", "MyLinear"));
	SRT_TRY(add_linear(m, module, "lin2", "MyLinear"));
	SRT_TRY(srt_module_create(module, "buf_mod", "MyBuffer", &buf_mod));
	SRT_TRY(srt_module_set_reset(buf_mod, log_reset, m));
	return srt_module_add_buffer(buf_mod, "buf", SRT_F32, 2, shape);
}

static srt_status_t add_model(meta_t *m, const char *model, srt_module_t *root)
{
	srt_module_t *l3;

	if (!strcmp(model, "MyModel"))
		return add_mymodel(m, root);
	SRT_TRY(add_linear(m, root, "lin1", "MyLinear"));
	SRT_TRY(add_linear(m, root, "lin2", "MyLinear"));
	SRT_TRY(srt_module_create(root, "l3", "MyModel", &l3));
	return add_mymodel(m, l3);
}

/* The model of test_meta_device_with_mixed_precision. */
static srt_status_t add_mixed(meta_t *m, srt_module_t *root)
{
	srt_module_t *relu;

	SRT_TRY(add_linear(m, root, "lin1", "Linear"));
	SRT_TRY(srt_module_add_param(srt_module_find(root, "lin1"), "bias", SRT_F32, 1, &m->width,
				     NULL));
	SRT_TRY(add_linear(m, root, "lin2", "FakeLinear"));
	return srt_module_create(root, "relu", "ReLU", &relu);
}

/* The linear layers of a model are square and equal: their weights are all elements of a row's
 * units. */
static srt_status_t find_width(meta_t *m, const json_t *row, const char *model)
{
	const int64_t nlayers = strcmp(model, "MyModel") ? 4 : 2;
	int64_t nelem = 0;
	const json_t *n;
	size_t i;

	json_array_foreach(json_object_get(row, "unit_flat_numel"), i, n)
	{
		nelem += json_integer_value(n);
	}
	m->width = llround(sqrt((double)(nelem / nlayers)));
	if (m->width < 1 || nlayers * m->width * m->width != nelem)
		return srt_fail(SRT_ERR_FORMAT, "the units of %s have %lld elements", model,
				(long long)nelem);
	return SRT_OK;
}

/* "module_wrap_KIND" and "size_based_NELEM" have a parameter. */
static srt_status_t choose_policy(const char *name, srt_module_t *root, const char **kinds,
				  srt_wrap_policy_t *policy)
{
	static const char by_kind[] = "module_wrap_", by_size[] = "size_based_";
	bool is_known = true;
	char *end;

	if (!strcmp(name, "always_wrap")) {
		*policy = (srt_wrap_policy_t){ .size = sizeof(srt_wrap_policy_t),
					       .rule = SRT_WRAP_ALWAYS };
	} else if (!strncmp(name, by_kind, strlen(by_kind))) {
		kinds[0] = name + strlen(by_kind);
		*policy = (srt_wrap_policy_t){ .size = sizeof(srt_wrap_policy_t),
					       .rule = SRT_WRAP_KINDS,
					       .kinds = kinds };
	} else if (!strncmp(name, by_size, strlen(by_size))) {
		*policy = (srt_wrap_policy_t)SRT_WRAP_POLICY_INIT;
		policy->rule = SRT_WRAP_SIZE;
		policy->min_nelem = strtoll(name + strlen(by_size), &end, 10);
		is_known = end[0] == '\0';
	} else if (!strcmp(name, "manual_wrap")) {
		SRT_TRY(srt_module_wrap(srt_module_find(root, "lin1"), NULL));
		SRT_TRY(srt_module_wrap(srt_module_find(root, "l3"), NULL));
	} else {
		is_known = !strcmp(name, "none");
	}
	return is_known ? SRT_OK :
			  srt_fail(SRT_ERR_FORMAT, "the replay does not know the policy %s", name);
}

/* ---- rows --------------------------------------------------------------------------------- */

/* The recorded param_init_fn: a reset of what has no values. */
static srt_status_t log_init(srt_module_t *module, uint64_t seed, srt_stream_t *stream, void *arg)
{
	meta_t *m = arg;

	if (m->ncalls < MAX_CALLS) {
		m->unset[m->ncalls] = srt_module_is_unset(module);
		m->calls[m->ncalls++] = srt_module_path(module);
	}
	return srt_module_is_unset(module) ? srt_module_reset(module, seed, stream) : SRT_OK;
}

static bool is_text(const json_t *value, const char *text)
{
	return json_is_string(value) && !strcmp(json_string_value(value), text);
}

static void compare_calls(meta_t *m, const json_t *row, const char *what)
{
	const json_t *resets = json_object_get(row, "reset_order");
	const json_t *calls = json_object_get(row, "init_fn_calls");

	verdict_exact(m->verdict, (size_t)m->nresets == json_array_size(resets), "%s: %d resets",
		      what, m->nresets);
	for (int i = 0; i < m->nresets && (size_t)i < json_array_size(resets); i++)
		verdict_exact(m->verdict, is_text(json_array_get(resets, (size_t)i), m->resets[i]),
			      "%s: reset %d is of '%s'", what, i, m->resets[i]);
	verdict_exact(m->verdict, (size_t)m->ncalls == json_array_size(calls), "%s: %d calls", what,
		      m->ncalls);
	for (int i = 0; i < m->ncalls && (size_t)i < json_array_size(calls); i++) {
		const json_t *call = json_array_get(calls, (size_t)i);

		verdict_exact(m->verdict,
			      is_text(json_array_get(call, 0), m->calls[i]) &&
				      m->unset[i] == json_is_true(json_array_get(call, 1)),
			      "%s: call %d is of '%s', without values: %d", what, i, m->calls[i],
			      m->unset[i]);
	}
}

/* Units in the order of the engine. */
static void compare_units(meta_t *m, const json_t *row, srt_engine_t *engine, const char *what)
{
	const json_t *units = json_object_get(row, "units"), *unit;
	const json_t *sizes = json_object_get(row, "unit_flat_numel");
	size_t i, k = 0;

	json_array_foreach(units, i, unit)
	{
		srt_module_t *module =
			srt_module_find(srt_engine_module(engine), json_string_value(unit));
		int64_t n = json_integer_value(json_array_get(sizes, i));
		srt_param_t *p;

		verdict_exact(m->verdict, srt_module_is_unit(module), "%s: '%s' is not a unit",
			      what, json_string_value(unit));
		/* its parameters follow those of the units before */
		for (; (p = srt_engine_param_at(engine, k)) != NULL &&
		       p->unit == srt_module_unit(module);
		     k++)
			n -= srt_param_nelem(p);
		verdict_exact(m->verdict, n == 0, "%s: unit '%s' has other parameters", what,
			      json_string_value(unit));
	}
	verdict_exact(m->verdict, srt_engine_param_at(engine, k) == NULL, "%s: more parameters",
		      what);
}

static srt_status_t count_units(srt_module_t *module, void *arg)
{
	size_t *n = arg;

	*n += srt_module_is_unit(module) != 0;
	return SRT_OK;
}

static srt_status_t count_unset(srt_module_t *module, void *arg)
{
	size_t *n = arg;

	*n += srt_module_is_unset(module) != 0;
	return SRT_OK;
}

static srt_status_t run_row(meta_t *m, const json_t *row, srt_engine_t *engine, srt_module_t **root)
{
	const char *model = golden_text(row, "model"), *wrap = golden_text(row, "policy");
	const char *function = golden_text(row, "param_init_fn"), *kinds[2] = { NULL };
	srt_materialize_options_t init = { .size = sizeof(init), .seed = 1 };
	srt_wrap_policy_t policy = { .size = sizeof(policy), .rule = SRT_WRAP_NONE };
	size_t nunits = 0, nunset = 0;
	char what[96];

	if (model == NULL || wrap == NULL || function == NULL ||
	    json_object_get(row, "error") != NULL)
		return srt_fail(SRT_ERR_FORMAT,
				"a row without model, policy, param_init_fn or units");
	snprintf(what, sizeof(what), "%s, %s, %s", model, wrap, function);
	SRT_TRY(find_width(m, row, model));
	SRT_TRY(srt_module_create(NULL, NULL, model, root));
	SRT_TRY(add_model(m, model, *root));
	SRT_TRY(choose_policy(wrap, *root, kinds, &policy));
	SRT_TRY(srt_engine_wrap(engine, *root, &policy, NULL));
	SRT_TRY(srt_engine_build(engine));
	if (strcmp(function, "default") != 0) {
		init.param_init = log_init;
		init.arg = m;
	}
	SRT_TRY(srt_engine_materialize(engine, &init, m->stream));
	compare_calls(m, row, what);
	compare_units(m, row, engine, what);
	SRT_TRY(srt_module_apply(*root, count_units, &nunits));
	SRT_TRY(srt_module_apply(*root, count_unset, &nunset));
	verdict_exact(m->verdict, nunits == json_array_size(json_object_get(row, "units")),
		      "%s: %zu units", what, nunits);
	verdict_exact(m->verdict, nunset == json_array_size(json_object_get(row, "meta_left")),
		      "%s: %zu modules without values", what, nunset);
	return SRT_OK;
}

/* ---- errors ------------------------------------------------------------------------------- */

/* "Expected 42 to be callable": in C the type is checked, and what is left is NULL. */
static srt_status_t run_not_callable(meta_t *m, const json_t *row, srt_engine_t *engine,
				     srt_module_t **root)
{
	const srt_materialize_options_t no_function = { .size = sizeof(no_function), .arg = m };
	srt_status_t status;

	(void)row;
	SRT_TRY(srt_module_create(NULL, NULL, "NestedModel", root));
	SRT_TRY(add_model(m, "NestedModel", *root));
	status = srt_module_set_reset(*root, NULL, NULL);
	verdict_exact(m->verdict, status == SRT_ERR_INVALID_ARGUMENT, "a reset function NULL");
	SRT_TRY(srt_engine_wrap(engine, *root, NULL, NULL));
	SRT_TRY(srt_engine_build(engine));
	status = srt_engine_materialize(engine, &no_function, m->stream);
	verdict_exact(m->verdict,
		      status == SRT_ERR_INVALID_ARGUMENT &&
			      strstr(srt_error_last(), "must be a function") != NULL &&
			      m->nresets == 0,
		      "param_init NULL with an arg: %s", srt_error_last());
	return SRT_OK;
}

static srt_status_t run_no_reset(meta_t *m, const json_t *row, srt_engine_t *engine,
				 srt_module_t **root)
{
	const int64_t shape[] = { m->width, m->width };
	srt_status_t status;

	(void)row;
	SRT_TRY(srt_module_create(NULL, NULL, "NoReset", root));
	SRT_TRY(srt_module_add_param(*root, "w", SRT_F32, 2, shape, NULL));
	SRT_TRY(srt_engine_wrap(engine, *root, NULL, NULL));
	SRT_TRY(srt_engine_build(engine));
	status = srt_engine_materialize(engine, NULL, m->stream);
	verdict_exact(m->verdict,
		      status == SRT_ERR_NOT_FOUND &&
			      strstr(srt_error_last(), "(NoReset)") != NULL &&
			      strstr(srt_error_last(), "there is no reset function") != NULL,
		      "no reset function: %s", srt_error_last());
	status = srt_unit_forward_begin(srt_module_unit(*root), m->stream);
	verdict_exact(m->verdict,
		      status == SRT_ERR_STATE && strstr(srt_error_last(), "'w'") != NULL,
		      "a parameter without values: %s", srt_error_last());
	return SRT_OK;
}

/* ---- param_init over wrapped children ------------------------------------------------------ */

static void log_call(meta_t *m, const char *call, const srt_module_t *module)
{
	if (m->ncalls >= MAX_CALLS)
		return;
	m->kinds[m->ncalls] = call;
	m->calls[m->ncalls++] = srt_module_path(module);
}

static srt_status_t log_apply(srt_module_t *module, void *arg)
{
	log_call(arg, "apply", module);
	return SRT_OK;
}

static srt_status_t apply_init(srt_module_t *module, uint64_t seed, srt_stream_t *stream, void *arg)
{
	const char *name;

	log_call(arg, "param_init_fn", module);
	for (size_t i = 0; (name = srt_module_param_name(module, i))[0]; i++)
		SRT_TRY(srt_param_init_normal(srt_module_param(module, name), seed, 0, 0.1f,
					      stream));
	return srt_module_apply(module, log_apply, arg);
}

/* The root's handle, then that of the one unit below it. */
static srt_status_t compare_handles(meta_t *m, const json_t *row, srt_module_t *root)
{
	const json_t *handles = json_object_get(row, "handles"), *handle;
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;
	size_t i, nunits = 0;

	SRT_TRY(srt_module_apply(root, count_units, &nunits));
	verdict_exact(m->verdict, nunits == 2 && json_array_size(handles) == nunits,
		      "%zu units, %zu handles", nunits, json_array_size(handles));
	json_array_foreach(handles, i, handle)
	{
		srt_dtype_t param, reduce;

		SRT_TRY(srt_unit_types(srt_module_unit(i ? srt_module_find(root, "lin1") : root),
				       &types));
		verdict_exact(m->verdict,
			      golden_dtype(golden_text(handle, "param_dtype"), &param) &&
				      golden_dtype(golden_text(handle, "reduce_dtype"), &reduce) &&
				      types.compute == param && types.reduce == reduce,
			      "unit %zu has other dtypes", i);
	}
	return SRT_OK;
}

static srt_status_t run_mixed(meta_t *m, const json_t *row, srt_engine_t *engine,
			      srt_module_t **root)
{
	static const char *const kinds[] = { "Linear", NULL };
	const srt_wrap_policy_t policy = { .size = sizeof(policy),
					   .rule = SRT_WRAP_KINDS,
					   .kinds = kinds };
	const srt_materialize_options_t init = { .size = sizeof(init),
						 .param_init = apply_init,
						 .arg = m };
	const json_t *entry;
	int n = 0;
	size_t i;

	SRT_TRY(srt_module_create(NULL, NULL, "Model", root));
	SRT_TRY(add_mixed(m, *root));
	SRT_TRY(srt_engine_wrap(engine, *root, &policy, NULL));
	SRT_TRY(srt_engine_build(engine));
	SRT_TRY(srt_engine_materialize(engine, &init, m->stream));
	json_array_foreach(json_object_get(row, "order"), i, entry)
	{
		const char *apply = golden_text(entry, "apply"), *kind = golden_text(entry, "kind");
		const char *path = apply != NULL ? apply : golden_text(entry, "param_init_fn");
		srt_module_t *module = path != NULL ? srt_module_find(*root, path) : NULL;

		/* torch's wrapper is a module, here the unit of one that was visited before */
		if (module == NULL || kind == NULL)
			return srt_fail(SRT_ERR_FORMAT, "call %zu has no module or kind", i);
		if (!strcmp(kind, "FullyShardedDataParallel")) {
			verdict_exact(m->verdict, n > 0 && srt_module_is_unit(module),
				      "%s is not a unit", path);
			continue;
		}
		verdict_exact(m->verdict,
			      n < m->ncalls && !strcmp(m->calls[n], path) &&
				      !strcmp(m->kinds[n],
					      apply != NULL ? "apply" : "param_init_fn") &&
				      !strcmp(srt_module_kind(module), kind),
			      "call %d is not %s of '%s'", n,
			      apply != NULL ? "apply" : "param_init_fn", path);
		n++;
	}
	verdict_exact(m->verdict, n == m->ncalls, "%d calls, not %d", m->ncalls, n);
	return compare_handles(m, row, *root);
}

/* ---- the table ----------------------------------------------------------------------------- */

typedef srt_status_t run_fn(meta_t *m, const json_t *row, srt_engine_t *engine,
			    srt_module_t **root);

static srt_status_t with_engine(meta_t *m, run_fn *run, const json_t *row,
				const srt_precision_t *precision)
{
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
					       .precision = precision,
					       .optim = OPTIM(.kind = SRT_OPTIM_SGD) };
	srt_module_t *root = NULL;
	srt_engine_t *engine;
	srt_status_t status;

	m->nresets = m->ncalls = 0;
	SRT_TRY(srt_engine_create(m->context, &options, &engine));
	status = run(m, row, engine, &root);
	if (srt_engine_module(engine) == NULL)
		srt_module_destroy(root);
	srt_engine_destroy(engine);
	return status;
}

/* What FSDP1 refuses: a param_init_fn that is none, and a module without reset function. */
static srt_status_t run_errors(meta_t *m)
{
	const json_t *row;
	int nfunctions = 0;
	size_t i;

	json_array_foreach(json_object_get(m->golden->json, "errors"), i, row)
	{
		const bool is_function = json_object_get(row, "param_init_fn") != NULL;

		nfunctions += is_function;
		verdict_exact(m->verdict, !golden_is_set(row, "ok"), "error %zu is none", i);
		SRT_TRY(with_engine(m, is_function ? run_not_callable : run_no_reset, row, NULL));
	}
	verdict_exact(m->verdict, i == 2 && nfunctions == 1, "%zu errors, %d of param_init_fn", i,
		      nfunctions);
	return SRT_OK;
}

static srt_status_t run_table(meta_t *m)
{
	const json_t *mixed = json_object_get(m->golden->json, "mixed_precision_case"), *row;
	srt_precision_t precision;
	size_t i;

	json_array_foreach(json_object_get(m->golden->json, "rows"), i, row)
	{
		SRT_TRY(with_engine(m, run_row, row, NULL));
	}
	verdict_exact(m->verdict, i > 0, "the table is empty");
	SRT_TRY(run_errors(m));
	/* all units have the policy, which is not recorded by itself */
	SRT_TRY(replay_policy(json_array_get(json_object_get(mixed, "handles"), 0),
			      SRT_PRECISION_FSDP1, &precision));
	return with_engine(m, run_mixed, mixed, &precision);
}

srt_status_t replay_meta(golden_t *g, srt_context_t *context, verdict_t *v)
{
	meta_t m = { .golden = g, .context = context, .verdict = v };
	srt_status_t status;

	SRT_TRY(srt_stream_create(srt_context_device(context), 0, "replay", &m.stream));
	status = run_table(&m);
	srt_stream_destroy(m.stream);
	return status;
}
