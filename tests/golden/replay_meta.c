/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of wrap policies and initial values (replay.h): which modules become units, with how
 * many elements, and in which order reset functions and param_init run, by real FSDP1.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay.h"

enum { MAX_CALLS = 32 };

typedef struct meta {
	golden_t *golden;
	srt_context_t *context;
	srt_stream_t *stream;
	verdict_t *verdict;
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
	if (srt_module_param(module, "weight"))
		SRT_TRY(srt_param_init_normal(srt_module_param(module, "weight"), seed, 0, 1,
					      stream));
	return SRT_OK;
}

static srt_status_t add_linear(meta_t *m, srt_module_t *parent, const char *name, const char *kind,
			       int64_t d)
{
	const int64_t shape[] = { d, d };
	srt_module_t *module;

	SRT_TRY(srt_module_create(parent, name, kind, &module));
	SRT_TRY(srt_module_set_reset(module, log_reset, m));
	return srt_module_add_param(module, "weight", SRT_F32, 2, shape, NULL);
}

static srt_status_t add_mymodel(meta_t *m, srt_module_t *module)
{
	const int64_t shape[] = { 3, 3 };
	srt_module_t *buf_mod;

	SRT_TRY(add_linear(m, module, "lin1", "MyLinear", 2));
	SRT_TRY(add_linear(m, module, "lin2", "MyLinear", 2));
	SRT_TRY(srt_module_create(module, "buf_mod", "MyBuffer", &buf_mod));
	SRT_TRY(srt_module_set_reset(buf_mod, log_reset, m));
	return srt_module_add_buffer(buf_mod, "buf", SRT_F32, 2, shape);
}

static srt_status_t add_model(meta_t *m, const char *model, srt_module_t *root)
{
	srt_module_t *l3;

	if (!strcmp(model, "MyModel"))
		return add_mymodel(m, root);
	SRT_TRY(add_linear(m, root, "lin1", "MyLinear", 2));
	SRT_TRY(add_linear(m, root, "lin2", "MyLinear", 2));
	SRT_TRY(srt_module_create(root, "l3", "MyModel", &l3));
	return add_mymodel(m, l3);
}

/* The model of test_meta_device_with_mixed_precision. */
static srt_status_t add_mixed(meta_t *m, srt_module_t *root)
{
	const int64_t five = 5;
	srt_module_t *relu;

	SRT_TRY(add_linear(m, root, "lin1", "Linear", 5));
	SRT_TRY(srt_module_add_param(srt_module_find(root, "lin1"), "bias", SRT_F32, 1, &five,
				     NULL));
	SRT_TRY(add_linear(m, root, "lin2", "FakeLinear", 5));
	return srt_module_create(root, "relu", "ReLU", &relu);
}

static srt_status_t choose_policy(const char *name, srt_module_t *root, srt_wrap_policy_t *policy)
{
	static const char *const kinds[] = { "MyLinear", NULL };

	if (!strcmp(name, "always_wrap")) {
		*policy = (srt_wrap_policy_t){ .rule = SRT_WRAP_ALWAYS };
	} else if (!strcmp(name, "module_wrap_MyLinear")) {
		*policy = (srt_wrap_policy_t){ .rule = SRT_WRAP_KINDS, .kinds = kinds };
	} else if (!strcmp(name, "size_based_5")) {
		*policy = (srt_wrap_policy_t){ .rule = SRT_WRAP_SIZE, .min_nelem = 5 };
	} else if (!strcmp(name, "manual_wrap")) {
		SRT_TRY(srt_module_wrap(srt_module_find(root, "lin1"), NULL));
		SRT_TRY(srt_module_wrap(srt_module_find(root, "l3"), NULL));
	} else if (strcmp(name, "none") != 0) {
		return srt_fail(SRT_ERR_FORMAT, "the replay does not know the policy %s", name);
	}
	return SRT_OK;
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

static void compare_calls(meta_t *m, const json_t *row, const char *what)
{
	const json_t *resets = json_object_get(row, "reset_order");
	const json_t *calls = json_object_get(row, "init_fn_calls");

	verdict_exact(m->verdict, (size_t)m->nresets == json_array_size(resets), "%s: %d resets",
		      what, m->nresets);
	for (int i = 0; i < m->nresets; i++)
		verdict_exact(m->verdict,
			      !strcmp(m->resets[i],
				      json_string_value(json_array_get(resets, (size_t)i))),
			      "%s: reset %d is of '%s'", what, i, m->resets[i]);
	verdict_exact(m->verdict, (size_t)m->ncalls == json_array_size(calls), "%s: %d calls", what,
		      m->ncalls);
	for (int i = 0; i < m->ncalls && (size_t)i < json_array_size(calls); i++) {
		const json_t *call = json_array_get(calls, (size_t)i);

		verdict_exact(m->verdict,
			      !strcmp(m->calls[i], json_string_value(json_array_get(call, 0))) &&
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
		for (; n > 0 && (p = srt_engine_param(engine, k)); k++)
			n -= srt_param_nelem(p);
		verdict_exact(m->verdict, n == 0, "%s: unit '%s' has other parameters", what,
			      json_string_value(unit));
	}
	verdict_exact(m->verdict, !srt_engine_param(engine, k), "%s: more parameters", what);
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
	const bool has_init = strcmp(golden_text(row, "param_init_fn"), "default") != 0;
	srt_materialize_options_t init = { .seed = 1 };
	srt_wrap_policy_t policy = { .rule = SRT_WRAP_NONE };
	size_t nunits = 0, nunset = 0;
	char what[96];

	snprintf(what, sizeof(what), "%s, %s, %s", golden_text(row, "model"),
		 golden_text(row, "policy"), golden_text(row, "param_init_fn"));
	SRT_TRY(srt_module_create(NULL, NULL, golden_text(row, "model"), root));
	SRT_TRY(add_model(m, golden_text(row, "model"), *root));
	SRT_TRY(choose_policy(golden_text(row, "policy"), *root, &policy));
	SRT_TRY(srt_engine_wrap(engine, *root, &policy, NULL));
	SRT_TRY(srt_engine_build(engine));
	if (has_init) {
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
	const srt_materialize_options_t no_function = { .arg = m };
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
			      strstr(srt_last_error(), "must be a function") && m->nresets == 0,
		      "param_init NULL with an arg: %s", srt_last_error());
	return SRT_OK;
}

static srt_status_t run_no_reset(meta_t *m, const json_t *row, srt_engine_t *engine,
				 srt_module_t **root)
{
	const int64_t shape[] = { 2, 2 };
	srt_status_t status;

	(void)row;
	SRT_TRY(srt_module_create(NULL, NULL, "NoReset", root));
	SRT_TRY(srt_module_add_param(*root, "w", SRT_F32, 2, shape, NULL));
	SRT_TRY(srt_engine_wrap(engine, *root, NULL, NULL));
	SRT_TRY(srt_engine_build(engine));
	status = srt_engine_materialize(engine, NULL, m->stream);
	verdict_exact(m->verdict,
		      status == SRT_ERR_NOT_FOUND && strstr(srt_last_error(), "(NoReset)") &&
			      strstr(srt_last_error(), "there is no reset function"),
		      "no reset function: %s", srt_last_error());
	status = srt_unit_forward_begin(srt_module_unit(*root), m->stream);
	verdict_exact(m->verdict, status == SRT_ERR_STATE && strstr(srt_last_error(), "'w'"),
		      "a parameter without values: %s", srt_last_error());
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

static srt_status_t run_mixed(meta_t *m, const json_t *row, srt_engine_t *engine,
			      srt_module_t **root)
{
	static const char *const kinds[] = { "Linear", NULL };
	const srt_wrap_policy_t policy = { .rule = SRT_WRAP_KINDS, .kinds = kinds };
	const srt_materialize_options_t init = { .param_init = apply_init, .arg = m };
	const json_t *entry;
	srt_unit_types_t types;
	int n = 0;
	size_t i;

	SRT_TRY(srt_module_create(NULL, NULL, "Model", root));
	SRT_TRY(add_mixed(m, *root));
	SRT_TRY(srt_engine_wrap(engine, *root, &policy, NULL));
	SRT_TRY(srt_engine_build(engine));
	SRT_TRY(srt_engine_materialize(engine, &init, m->stream));
	json_array_foreach(json_object_get(row, "order"), i, entry)
	{
		const char *apply = golden_text(entry, "apply");
		const char *path = apply ? apply : golden_text(entry, "param_init_fn");
		srt_module_t *module = srt_module_find(*root, path);

		/* torch's wrapper is a module, here the unit of one that was visited before */
		if (!strcmp(golden_text(entry, "kind"), "FullyShardedDataParallel")) {
			verdict_exact(m->verdict, n > 0 && srt_module_is_unit(module),
				      "%s is not a unit", path);
			continue;
		}
		verdict_exact(m->verdict,
			      n < m->ncalls && !strcmp(m->calls[n], path) &&
				      !strcmp(m->kinds[n], apply ? "apply" : "param_init_fn") &&
				      !strcmp(srt_module_kind(module), golden_text(entry, "kind")),
			      "call %d is not %s of '%s'", n, apply ? "apply" : "param_init_fn",
			      path);
		n++;
	}
	verdict_exact(m->verdict, n == m->ncalls, "%d calls, not %d", m->ncalls, n);
	json_array_foreach(json_object_get(row, "handles"), i, entry)
	{
		srt_dtype_t param, reduce;

		SRT_TRY(srt_unit_types(srt_module_unit(i ? srt_module_find(*root, "lin1") : *root),
				       &types));
		verdict_exact(m->verdict,
			      golden_dtype(golden_text(entry, "param_dtype"), &param) &&
				      golden_dtype(golden_text(entry, "reduce_dtype"), &reduce) &&
				      types.compute == param && types.reduce == reduce,
			      "unit %zu has other dtypes", i);
	}
	verdict_exact(m->verdict, i == 2, "%zu units", i);
	return SRT_OK;
}

/* ---- the table ----------------------------------------------------------------------------- */

typedef srt_status_t run_fn(meta_t *m, const json_t *row, srt_engine_t *engine,
			    srt_module_t **root);

static srt_status_t with_engine(meta_t *m, run_fn *run, const json_t *row)
{
	static const srt_precision_t mixed = { .param = SRT_CAST_F32,
					       .reduce = SRT_CAST_F16,
					       .rule = SRT_PRECISION_FSDP1 };
	const srt_engine_options_t options = { .strategy = SRT_STRATEGY_ZERO3,
					       .precision = run == run_mixed ? &mixed : NULL };
	srt_module_t *root = NULL;
	srt_engine_t *engine;
	srt_status_t status;

	m->nresets = m->ncalls = 0;
	SRT_TRY(srt_engine_create(m->context, &options, &engine));
	status = run(m, row, engine, &root);
	if (!srt_engine_module(engine))
		srt_module_destroy(root);
	srt_engine_destroy(engine);
	return status;
}

static srt_status_t run_table(meta_t *m)
{
	const json_t *errors = json_object_get(m->golden->json, "errors"), *row;
	size_t i;

	json_array_foreach(json_object_get(m->golden->json, "rows"), i, row)
		SRT_TRY(with_engine(m, run_row, row));
	verdict_exact(m->verdict, i > 0 && json_array_size(errors) == 2, "%zu rows, %zu errors", i,
		      json_array_size(errors));
	SRT_TRY(with_engine(m, run_not_callable, json_array_get(errors, 0)));
	SRT_TRY(with_engine(m, run_no_reset, json_array_get(errors, 1)));
	return with_engine(m, run_mixed, json_object_get(m->golden->json, "mixed_precision_case"));
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
