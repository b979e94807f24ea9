/* SPDX-License-Identifier: BSD-3-Clause */
/* A decoder of a model folder on an engine, and its rows of tokens (replay_hf.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay_hf.h"
#include "tests/harness/half.h"

/* ---- engine ----------------------------------------------------------------------------- */

static srt_status_t create_mesh(hf_run_t *r)
{
	static const char *const names[] = { "dp", SRT_MODEL_TENSOR_DIM };
	const int world = srt_context_world_size(r->context), tp = r->options->tp;
	const int shape[] = { world / tp, tp };

	r->ndata = world;
	r->data_rank = srt_context_rank(r->context);
	if (tp == 1)
		return SRT_OK;
	if (world % tp != 0)
		return srt_fail(SRT_ERR_UNSUPPORTED, "%d ranks are no multiple of --tp %d", world,
				tp);
	r->ndata = shape[0];
	r->data_rank /= tp;
	return srt_mesh_create(srt_context_world(r->context), 2, shape, names, &r->mesh);
}

static srt_status_t create_engine(hf_run_t *r, const hf_engine_t *how)
{
	const srt_model_options_t model = { .dtype = how->dtype,
					    .matrix_decay = how->matrix_decay,
					    .vector_decay = how->vector_decay,
					    .flat = r->options->flat,
					    .mesh = r->mesh,
					    .lora = how->lora,
					    .base_dtype = how->base_dtype };
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;

	options.mesh = r->mesh;
	options.strategy = r->options->strategy;
	options.average = SRT_AVERAGE_SUM; /* the loss is divided by all targets */
	if (how->microbatches > 0)
		options.microbatches = how->microbatches;
	options.optim = &how->optim;
	options.norm_p = 2;
	options.max_norm = how->max_norm;
	SRT_TRY(srt_engine_create(r->context, &options, &r->engine));
	SRT_TRY(srt_decoder_declare(r->engine, &r->config, &model, &r->decoder));
	return srt_engine_build(r->engine);
}

static srt_status_t load(hf_run_t *r, const char *folder)
{
	srt_family_file_t match;
	srt_file_names_t names;

	SRT_TRY(srt_file_open(folder, &r->file));
	SRT_TRY(srt_family_match(r->family, &r->config, r->file, folder, &match));
	names = srt_family_names(&match);
	return srt_decoder_load_base(r->decoder, folder, &names, r->stream);
}

srt_optim_options_t hf_read_optim(const golden_t *g)
{
	const json_t *o = json_object_get(g->json, "optimizer"), *betas;
	srt_optim_options_t optim = SRT_OPTIM_ADAM_INIT;

	betas = json_object_get(o, "betas");
	optim.kind = SRT_OPTIM_ADAMW;
	optim.lr = (float)golden_number(o, "lr", 0);
	optim.eps = (float)golden_number(o, "eps", 0);
	optim.beta1 = json_number_value(json_array_get(betas, 0));
	optim.beta2 = json_number_value(json_array_get(betas, 1));
	return optim;
}

srt_status_t hf_open(hf_run_t *r, const hf_engine_t *how)
{
	char *folder = srt_asprintf("%s/%s", r->golden->dir, how->folder);
	char *config = how->config != NULL ?
			       srt_asprintf("%s/%s", r->golden->dir, how->config) :
			       srt_asprintf("%s/%s/config.json", r->golden->dir, how->folder);
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	if (folder != NULL && config != NULL)
		status = srt_family_read_config(config, &r->family, &r->config);
	r->config.tensor_parts = r->options->tensor_parts;
	if (status == SRT_OK && srt_decoder_check(&r->config, r->options->tp) != SRT_OK)
		status = srt_fail(SRT_ERR_UNSUPPORTED, "--tp %d --tensor-parts %d: %s",
				  r->options->tp, r->options->tensor_parts, srt_error_last());
	if (status == SRT_OK)
		status = create_mesh(r);
	if (status == SRT_OK)
		status = srt_stream_create(srt_context_device(r->context), 0, "replay", &r->stream);
	if (status == SRT_OK)
		status = create_engine(r, how);
	if (status == SRT_OK)
		status = load(r, folder);
	free(folder);
	free(config);
	return status;
}

srt_status_t hf_record(hf_run_t *r, srt_tape_mode_t mode, int64_t rows,
		       const srt_decoder_pass_t *pass)
{
	srt_device_t *device = srt_context_device(r->context);
	srt_decoder_pass_t mine = *pass;

	hf_forget(r);
	r->rows = rows;
	r->context_length = pass->context;
	r->nmine = (rows + r->ndata - 1) / r->ndata;
	mine.batch = r->nmine;
	SRT_TRY(srt_tape_create(device, mode, &r->tape));
	SRT_TRY(srt_decoder_record(r->decoder, r->tape, &mine, &r->io));
	SRT_TRY(srt_buffer_create(device, srt_decoder_mem_kind(r->decoder),
				  srt_tape_nbytes(r->tape), "tape", &r->arena));
	return srt_tape_bind(r->tape, r->arena);
}

void hf_forget(hf_run_t *r)
{
	if (r->stream != NULL)
		srt_stream_sync(r->stream);
	srt_tape_destroy(r->tape);
	srt_buffer_destroy(r->arena);
	r->tape = NULL;
	r->arena = NULL;
}

void hf_close(hf_run_t *r)
{
	hf_forget(r);
	srt_decoder_destroy(r->decoder);
	srt_engine_destroy(r->engine);
	srt_mesh_destroy(r->mesh);
	srt_stream_destroy(r->stream);
	srt_file_close(r->file);
}

/* ---- rows ------------------------------------------------------------------------------- */

int64_t hf_row(const hf_run_t *r, int64_t mine)
{
	const int64_t row = r->data_rank + mine * r->ndata;

	return row < r->rows ? row : -1;
}

srt_status_t hf_feed(hf_run_t *r, const int32_t *ids, const int32_t *targets,
		     const int32_t *positions)
{
	const size_t t = (size_t)r->context_length, n = (size_t)r->nmine * t;
	int32_t *mine = srt_calloc(3 * n + 1, sizeof(*mine), "rows");
	srt_status_t status;

	if (mine == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int64_t k = 0; k < r->nmine; k++) {
		const int64_t row = hf_row(r, k);

		for (size_t i = 0; i < t; i++) {
			const size_t to = (size_t)k * t + i, from = (size_t)row * t + i;

			mine[to] = row >= 0 ? ids[from] : 0;
			mine[n + to] = row >= 0 && targets != NULL ? targets[from] : -1;
			mine[2 * n + to] = row >= 0 ? positions[from] : (int32_t)i;
		}
	}
	status = srt_decoder_put_tokens(&r->io, mine, mine + n, r->stream);
	if (status == SRT_OK)
		status = srt_decoder_put_positions(&r->io, mine + 2 * n, r->stream);
	free(mine);
	return status;
}

srt_status_t hf_read_ints(const srt_safetensors_t *file, const char *name, size_t n,
			  int32_t **values)
{
	const srt_safetensors_tensor_t *t = srt_safetensors_find(file, name);
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	int64_t *wide;

	*values = NULL;
	if (t == NULL || t->dtype != SRT_I64 || t->nelem != n)
		return srt_fail(SRT_ERR_FORMAT, "'%s' is not there as %zu integers", name, n);
	wide = srt_calloc(n + 1, sizeof(*wide), name);
	*values = srt_calloc(n + 1, sizeof(**values), name);
	if (wide != NULL && *values != NULL)
		status = srt_safetensors_read(file, t, 0, t->nbytes, wide);
	for (size_t i = 0; i < n && status == SRT_OK; i++)
		(*values)[i] = (int32_t)wide[i];
	free(wide);
	return status;
}

srt_status_t hf_read_tensor(hf_run_t *r, srt_tensor_t *tensor, float **values)
{
	const size_t n = (size_t)(srt_tensor_rows(tensor) * srt_tensor_cols(tensor));
	const srt_view_t view = srt_tensor_view(tensor);
	void *stored = srt_calloc(n + 1, sizeof(float), "a tensor");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	*values = srt_calloc(n + 1, sizeof(**values), "a tensor");
	if (stored != NULL && *values != NULL)
		status = srt_buffer_copy_to_host(stored, view.buffer, view.offset,
						 n * srt_dtype_bits(view.dtype) / 8, r->stream);
	for (size_t i = 0; i < n && status == SRT_OK; i++)
		(*values)[i] = half_get(view.dtype, stored, i);
	free(stored);
	return status;
}

srt_status_t hf_sum(hf_run_t *r, const float *values, size_t n, double *sum)
{
	const int world = srt_context_world_size(r->context), tp = r->options->tp;
	double mine = 0, *all = srt_calloc((size_t)world, sizeof(*all), "sums");
	srt_status_t status;

	if (all == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++)
		mine += (double)values[i];
	status = srt_comm_oob_allgather(srt_context_world(r->context), &mine, sizeof(mine), all);
	*sum = 0;
	for (int k = 0; k < world; k += tp)
		*sum += all[k];
	free(all);
	return status;
}

/* ---- parameters ------------------------------------------------------------------------- */

/* Where element i of a parameter of (rows,n) is in a file's tensor. */
static size_t find_element(const srt_file_source_t *source, size_t rows, size_t n, size_t i)
{
	const size_t row = i / n, column = i % n, heads = (size_t)source->interleaved_heads;
	size_t dim, part;

	if (source->transposed)
		return column * rows + row;
	if (heads == 0)
		return i;
	dim = rows / (3 * heads);
	part = row / (heads * dim);
	return ((row / dim % heads * 3 + part) * dim + row % dim) * n + column;
}

static void reorder(const srt_file_source_t *source, const srt_param_t *p, float *values,
		    float *scratch)
{
	int64_t shape[SRT_MAX_DIMS];
	const int ndim = srt_param_shape(p, shape);
	const size_t rows = (size_t)shape[0], n = ndim > 1 ? (size_t)shape[1] : 1;

	memcpy(scratch, values, rows * n * sizeof(*values));
	for (size_t i = 0; i < rows * n; i++)
		values[i] = scratch[find_element(source, rows, n, i)];
}

srt_status_t hf_compare_param(hf_run_t *r, const char *key, const char *name, srt_param_what_t what)
{
	const srt_family_file_t match = { .family = r->family, .config = &r->config };
	const srt_file_names_t names = srt_family_names(&match);
	srt_file_source_t source = { .size = sizeof(source) };
	srt_param_t *p = srt_engine_param_find(r->engine, name);
	float *want = NULL, *got = NULL, *scratch = NULL;
	srt_status_t status;
	size_t n;

	if (p == NULL || !names.find(name, &source, names.arg))
		return srt_fail(SRT_ERR_FORMAT, "'%s' names no parameter", key);
	n = (size_t)srt_param_nelem(p);
	got = srt_calloc(n + 1, sizeof(*got), name);
	scratch = srt_calloc(n + 1, sizeof(*got), name);
	status = got != NULL && scratch != NULL ? SRT_OK : SRT_ERR_OUT_OF_MEMORY;
	if (status == SRT_OK)
		status = srt_param_get(p, what, got, r->stream);
	if (status == SRT_OK)
		status = golden_floats(r->golden->expect, key, n, &want);
	if (status == SRT_OK && srt_context_rank(r->context) == 0) {
		reorder(&source, p, want, scratch);
		verdict_values(r->verdict, r->golden, key, got, want, n);
	}
	free(got);
	free(scratch);
	free(want);
	return status;
}

srt_status_t hf_compare_params(hf_run_t *r, const char *prefix, srt_param_what_t what)
{
	const srt_safetensors_t *expect = r->golden->expect;

	for (size_t i = 0; i < srt_safetensors_count(expect); i++) {
		const char *key = srt_safetensors_tensor(expect, i)->name;

		if (!strncmp(key, prefix, strlen(prefix)))
			SRT_TRY(hf_compare_param(r, key, key + strlen(prefix), what));
	}
	return SRT_OK;
}
