/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kind "muon": momentum, update, orthogonalised update and values of matrices in each step
 * (replay_hf.h), of an optimizer over whole matrices. An engine over all ranks, with the same
 * gradients, must have the same bits in values and momentum.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/ops/step.h"
#include "tests/golden/replay_hf.h"
#include "tests/harness/half.h"

typedef struct matrix {
	const char *name;
	int64_t rows, cols;
	size_t nelem;
	srt_buffer_t *buffer; /* views, and the tables of update_alone() */
	srt_view_t value, grad, momentum, update, alone, tables;
	srt_param_t *param; /* of the engine */
} matrix_t;

typedef struct muon {
	golden_t *golden;
	srt_context_t *context;
	const hf_options_t *options;
	verdict_t *verdict;
	srt_stream_t *stream;
	srt_optim_options_t optim;
	matrix_t *matrices; /* n of them */
	size_t n;
	srt_optim_t *whole; /* over `matrices` */
	srt_engine_t *engine;
	srt_unit_t *unit;
} muon_t;

/* ---- the case ----------------------------------------------------------------------------- */

static srt_status_t read_options(muon_t *m)
{
	const json_t *o = json_object_get(m->golden->json, "optimizer");
	const json_t *coefficients = json_object_get(o, "ns_coefficients");
	const char *adjust = golden_text(o, "adjust_lr_fn");

	m->optim = (srt_optim_options_t)SRT_OPTIM_MUON_INIT;
	m->optim.lr = (float)golden_number(o, "lr", 0);
	m->optim.weight_decay = (float)golden_number(o, "weight_decay", 0);
	m->optim.momentum = golden_number(o, "momentum", 0);
	m->optim.nesterov = golden_is_set(o, "nesterov");
	m->optim.eps = (float)golden_number(o, "eps", 0);
	m->optim.ns_steps = (int)golden_number(o, "ns_steps", 0);
	for (size_t i = 0; i < SRT_ARRAY_LEN(m->optim.ns_coefficients); i++)
		m->optim.ns_coefficients[i] =
			(float)json_number_value(json_array_get(coefficients, i));
	if (adjust == NULL || !strcmp(adjust, "original"))
		m->optim.adjust = SRT_MUON_ORIGINAL;
	else if (!strcmp(adjust, "match_rms_adamw"))
		m->optim.adjust = SRT_MUON_MATCH_RMS_ADAMW;
	else if (!strcmp(adjust, "spectral_unclamped"))
		m->optim.adjust = SRT_MUON_SPECTRAL;
	else
		return srt_fail(SRT_ERR_FORMAT, "adjust_lr_fn '%s' is not known", adjust);
	return SRT_OK;
}

static srt_status_t read_matrices(muon_t *m)
{
	const json_t *params = json_object_get(m->golden->json, "params"), *p;
	size_t i;

	m->matrices = srt_calloc(json_array_size(params) + 1, sizeof(*m->matrices), "matrices");
	if (m->matrices == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	m->n = json_array_size(params);
	if (m->n == 0)
		return srt_fail(SRT_ERR_FORMAT, "the case has no matrices");
	json_array_foreach(params, i, p)
	{
		const json_t *shape = json_object_get(p, "shape");
		matrix_t *x = &m->matrices[i];

		x->name = golden_text(p, "name");
		x->rows = (int64_t)json_integer_value(json_array_get(shape, 0));
		x->cols = (int64_t)json_integer_value(json_array_get(shape, 1));
		x->nelem = (size_t)(x->rows * x->cols);
		if (x->name == NULL || json_array_size(shape) != 2 || x->rows < 1 || x->cols < 1)
			return srt_fail(SRT_ERR_FORMAT, "parameter %zu is no matrix", i);
	}
	return SRT_OK;
}

/* Every tensor of the recording has one of these names. */
static void check_keys(muon_t *m)
{
	static const char *const known[] = { "momentum.", "update.", "orthogonal.", "param." };
	const golden_t *g = m->golden;
	const size_t n = srt_safetensors_count(g->expect);

	for (size_t i = 0; i < n; i++) {
		const char *key = srt_safetensors_tensor(g->expect, i)->name;
		const char *rest = strchr(key, '.');
		bool is_known = false;

		for (size_t k = 0; rest != NULL && k < SRT_ARRAY_LEN(known); k++)
			is_known = is_known || !strncmp(rest + 1, known[k], strlen(known[k]));
		verdict_exact(m->verdict, is_known, "%s was not compared", key);
	}
	verdict_exact(m->verdict, n == SRT_ARRAY_LEN(known) * m->n * (size_t)g->nsteps,
		      "%zu tensors were recorded", n);
}

/* ---- device memory ------------------------------------------------------------------------ */

static srt_status_t put(const muon_t *m, srt_view_t to, const void *data, size_t nbytes)
{
	return srt_buffer_copy_from_host(to.buffer, to.offset, data, nbytes, m->stream);
}

/* A recorded input to the device. */
static srt_status_t put_input(const muon_t *m, const matrix_t *x, const char *key, srt_view_t to)
{
	float *values;
	srt_status_t status;

	SRT_TRY(golden_floats(m->golden->input, key, x->nelem, &values));
	status = put(m, to, values, x->nelem * sizeof(*values));
	free(values);
	return status;
}

static srt_status_t create_matrix(muon_t *m, matrix_t *x)
{
	const size_t row = srt_align_up(x->nelem * sizeof(float), 64);
	srt_view_t *views[] = {
		&x->value, &x->grad, &x->momentum, &x->update, &x->alone, &x->tables
	};
	char key[96];

	SRT_TRY(srt_buffer_create(srt_context_device(m->context), SRT_MEM_DEVICE, 6 * row + 4096,
				  x->name, &x->buffer));
	for (size_t i = 0; i < SRT_ARRAY_LEN(views); i++)
		*views[i] = srt_view(x->buffer, i * row, SRT_F32);
	x->update.dtype = SRT_BF16;
	x->tables.dtype = SRT_U8;
	snprintf(key, sizeof(key), "init.%s", x->name);
	return put_input(m, x, key, x->value);
}

static srt_status_t create_whole(muon_t *m)
{
	srt_optim_param_t *list = srt_calloc(m->n, sizeof(*list), "list");
	srt_status_t status = list != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;

	for (size_t i = 0; i < m->n && status == SRT_OK; i++) {
		matrix_t *x = &m->matrices[i];

		status = create_matrix(m, x);
		list[i] = (srt_optim_param_t)SRT_OPTIM_PARAM_INIT;
		list[i].name = x->name;
		list[i].nelem = (int64_t)x->nelem;
		list[i].rows = x->rows;
		list[i].cols = x->cols;
		list[i].value = x->value;
		list[i].grad = x->grad;
		list[i].state[0] = x->momentum;
		list[i].update = x->update;
	}
	if (status == SRT_OK)
		status = srt_optim_create(srt_context_device(m->context), &m->optim, 1, list, m->n,
					  &m->whole, m->stream);
	free(list);
	return status;
}

static srt_status_t get(const muon_t *m, const matrix_t *x, srt_view_t view, float **values)
{
	char *stored = srt_calloc(x->nelem, sizeof(float), x->name);
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	*values = srt_calloc(x->nelem, sizeof(**values), x->name);
	if (stored != NULL && *values != NULL)
		status = srt_buffer_copy_to_host(stored, view.buffer, view.offset,
						 x->nelem * srt_dtype_bits(view.dtype) / 8,
						 m->stream);
	for (size_t i = 0; i < x->nelem && status == SRT_OK; i++)
		(*values)[i] = half_get(view.dtype, stored, i);
	free(stored);
	return status;
}

/* ---- comparing ---------------------------------------------------------------------------- */

/* Within this absolute deviation; 0: within the tolerances of the case. */
static srt_status_t compare(muon_t *m, int step, const char *what, const matrix_t *x,
			    srt_view_t view, double atol)
{
	float *got = NULL, *want = NULL;
	char key[128];
	srt_status_t status = get(m, x, view, &got);

	snprintf(key, sizeof(key), "step%d.%s.%s", step, what, x->name);
	if (status == SRT_OK)
		status = golden_floats(m->golden->expect, key, x->nelem, &want);
	if (status == SRT_OK && atol == 0)
		verdict_values(m->verdict, m->golden, key, got, want, x->nelem);
	for (size_t i = 0; atol != 0 && i < x->nelem && status == SRT_OK; i++)
		verdict_exact(m->verdict, fabs((double)got[i] - (double)want[i]) <= atol,
			      "%s[%zu] is %g, was %g", key, i, (double)got[i], (double)want[i]);
	free(got);
	free(want);
	return status;
}

/* The input of the iteration in fp32, from a copy of the momentum. */
static srt_status_t update_alone(muon_t *m, const matrix_t *x)
{
	const struct tables {
		srt_k_step_state_t state;
		srt_k_param_state_t param;
		srt_k_segment_t segment;
		srt_k_group_t group;
	} tables = { .state = { .clip_coef = 1.0f },
		     .param = { .used = 1 },
		     .segment = { .nelem = (int64_t)x->nelem } };
	const srt_muon_t muon = { .momentum = m->optim.momentum, .nesterov = m->optim.nesterov };
	const srt_view_t all = x->tables;
	srt_optim_args_t args = { .nsegments = 1, .nelem = (int64_t)x->nelem, .grad = x->grad };
	const size_t row = srt_align_up(x->nelem * sizeof(float), 64);

	SRT_TRY(put(m, all, &tables, sizeof(tables)));
	args.state = srt_view(all.buffer, all.offset + offsetof(struct tables, state), SRT_U8);
	args.params = srt_view(all.buffer, all.offset + offsetof(struct tables, param), SRT_U8);
	args.segments = srt_view(all.buffer, all.offset + offsetof(struct tables, segment), SRT_U8);
	args.groups = srt_view(all.buffer, all.offset + offsetof(struct tables, group), SRT_U8);
	args.m = srt_view(all.buffer, all.offset + 2048, SRT_F32);
	args.update = x->alone;
	SRT_TRY(srt_buffer_copy(args.m.buffer, args.m.offset, x->momentum.buffer,
				x->momentum.offset, row, m->stream));
	return srt_op_muon_update(&args, &muon, m->stream);
}

static srt_status_t step_whole(muon_t *m, int step)
{
	const json_t *tolerance = json_object_get(m->golden->json, "tolerance");
	const double atol = golden_number(tolerance, "orthogonal_atol", 1e-6);
	char key[128];

	for (size_t i = 0; i < m->n; i++) {
		matrix_t *x = &m->matrices[i];

		snprintf(key, sizeof(key), "step%d.grad.%s", step, x->name);
		SRT_TRY(put_input(m, x, key, x->grad));
		SRT_TRY(update_alone(m, x));
		SRT_TRY(compare(m, step, "update", x, x->alone, 0));
	}
	SRT_TRY(srt_optim_step(m->whole, m->stream));
	for (size_t i = 0; i < m->n; i++) {
		matrix_t *x = &m->matrices[i];

		SRT_TRY(compare(m, step, "momentum", x, x->momentum, 0));
		SRT_TRY(compare(m, step, "orthogonal", x, x->update, atol));
		SRT_TRY(compare(m, step, "param", x, x->value, 0));
	}
	return SRT_OK;
}

/* ---- an engine over all ranks -------------------------------------------------------------- */

static srt_status_t create_engine(muon_t *m)
{
	const srt_unit_options_t unit = { .size = sizeof(unit), .flat = m->options->flat };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
	char key[96];

	options.strategy = m->options->strategy;
	options.average = SRT_AVERAGE_SUM;
	options.optim = &m->optim;
	SRT_TRY(srt_engine_create(m->context, &options, &m->engine));
	SRT_TRY(srt_unit_create(m->engine, NULL, "root", &unit, &m->unit));
	for (size_t i = 0; i < m->n; i++) {
		matrix_t *x = &m->matrices[i];
		const int64_t shape[] = { x->rows, x->cols };

		SRT_TRY(srt_param_create(m->unit, x->name, SRT_F32, 2, shape, NULL, &x->param));
	}
	SRT_TRY(srt_engine_build(m->engine));
	for (size_t i = 0; i < m->n; i++) {
		const matrix_t *x = &m->matrices[i];
		float *values;
		srt_status_t status;

		snprintf(key, sizeof(key), "init.%s", x->name);
		SRT_TRY(golden_floats(m->golden->input, key, x->nelem, &values));
		status = srt_param_set(x->param, SRT_PARAM_VALUE, values, m->stream);
		free(values);
		SRT_TRY(status);
	}
	return SRT_OK;
}

/* The gradients are those of one rank, so that their sum is exact. */
static srt_status_t pass(muon_t *m, int step)
{
	const int rank = srt_context_rank(m->context);
	const int source = step % srt_context_world_size(m->context);

	SRT_TRY(srt_engine_microbatch(m->engine, 0, 1));
	SRT_TRY(srt_unit_forward_begin(m->unit, m->stream));
	SRT_TRY(srt_unit_forward_end(m->unit, m->stream));
	SRT_TRY(srt_unit_backward_begin(m->unit, m->stream));
	for (size_t i = 0; i < m->n; i++) {
		const matrix_t *x = &m->matrices[i];
		srt_view_t grad;
		int accumulate;
		char key[128];

		snprintf(key, sizeof(key), "step%d.grad.%s", step, x->name);
		SRT_TRY(srt_param_grad(x->param, &grad, &accumulate));
		if (rank == source)
			SRT_TRY(put_input(m, x, key, grad));
		else
			SRT_TRY(srt_buffer_zero(grad.buffer, grad.offset, x->nelem * sizeof(float),
						m->stream));
		SRT_TRY(srt_param_grad_ready(x->param));
	}
	return srt_unit_backward_end(m->unit, m->stream);
}

static srt_status_t compare_bits(muon_t *m, int step, size_t i, srt_param_what_t what,
				 srt_view_t view)
{
	const matrix_t *x = &m->matrices[i];
	float *got = srt_calloc(x->nelem, sizeof(*got), x->name), *want = NULL;
	srt_status_t status =
		got != NULL ? srt_param_get(x->param, what, got, m->stream) : SRT_ERR_OUT_OF_MEMORY;

	if (status == SRT_OK)
		status = get(m, x, view, &want);
	if (status == SRT_OK)
		verdict_exact(m->verdict, !memcmp(got, want, x->nelem * sizeof(*got)),
			      "step %d: %s of '%s' has other bits in an engine", step,
			      what == SRT_PARAM_VALUE ? "the value" : "the momentum", x->name);
	free(got);
	free(want);
	return status;
}

static srt_status_t step_engine(muon_t *m, int step)
{
	SRT_TRY(pass(m, step));
	SRT_TRY(srt_engine_finish_backward(m->engine, m->stream));
	SRT_TRY(srt_engine_step(m->engine, m->stream));
	for (size_t i = 0; i < m->n; i++) {
		SRT_TRY(compare_bits(m, step, i, SRT_PARAM_VALUE, m->matrices[i].value));
		SRT_TRY(compare_bits(m, step, i, SRT_PARAM_STATE0, m->matrices[i].momentum));
	}
	return SRT_OK;
}

static srt_status_t run(muon_t *m)
{
	SRT_TRY(srt_stream_create(srt_context_device(m->context), 0, "replay", &m->stream));
	SRT_TRY(read_options(m));
	SRT_TRY(read_matrices(m));
	check_keys(m);
	SRT_TRY(create_whole(m));
	SRT_TRY(create_engine(m));
	for (int step = 1; step <= m->golden->nsteps; step++) {
		SRT_TRY(step_whole(m, step));
		SRT_TRY(step_engine(m, step));
	}
	return SRT_OK;
}

srt_status_t replay_hf_muon(golden_t *g, srt_context_t *context, const hf_options_t *options,
			    verdict_t *v)
{
	muon_t m = { .golden = g, .context = context, .options = options, .verdict = v };
	srt_status_t status;

	if (options->tp > 1)
		return srt_fail(SRT_ERR_UNSUPPORTED, "--tp: Muon is not for tensor parallelism");
	status = run(&m);
	srt_engine_destroy(m.engine);
	srt_optim_destroy(m.whole);
	srt_stream_destroy(m.stream);
	for (size_t i = 0; i < m.n; i++)
		srt_buffer_destroy(m.matrices[i].buffer);
	free(m.matrices);
	return status;
}
