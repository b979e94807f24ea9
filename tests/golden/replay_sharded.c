/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays the tables of sharded optimizers (replay.h): two Linear layers whose weights are sharded,
 * by rows and by columns. All rows of the input are rank 0's, so the gradients are those of the
 * recorded local model. replay_sharded_add.c has the second model of the tables.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay_sharded.h"

enum { W1, B1, W2, B2, NPARAMS };

static const char *const param_names[NPARAMS] = { "linear1.weight", "linear1.bias",
						  "linear2.weight", "linear2.bias" };

static srt_status_t open_file(sharded_run_t *r, const char *name, srt_safetensors_t **file)
{
	char *path = srt_asprintf("%s/%s", r->golden->dir, name);
	srt_status_t status =
		path != NULL ? srt_safetensors_open(path, file) : SRT_ERR_OUT_OF_MEMORY;

	free(path);
	return status;
}

srt_status_t sharded_open(sharded_run_t *r)
{
	const int world = srt_context_world_size(r->context);

	r->locations = srt_calloc((size_t)world, sizeof(*r->locations), "locations");
	if (r->locations == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (int i = 0; i < world; i++)
		r->locations[i] = (srt_shard_location_t){ .rank = i };
	return srt_stream_create(srt_context_device(r->context), 0, "replay", &r->stream);
}

void sharded_close(sharded_run_t *r)
{
	srt_stream_destroy(r->stream);
	free(r->locations);
}

/* Device memory with these values. */
srt_status_t sharded_upload(sharded_run_t *r, const float *values, size_t n, srt_buffer_t **buffer)
{
	SRT_TRY(srt_buffer_create(srt_context_device(r->context), SRT_MEM_DEVICE,
				  n * sizeof(*values), "replayed", buffer));
	return srt_buffer_copy_from_host(*buffer, 0, values, n * sizeof(*values), r->stream);
}

srt_sharding_t sharded_chunks(const sharded_run_t *r, int dim)
{
	const size_t world = (size_t)srt_context_world_size(r->context);

	return (srt_sharding_t){ .size = sizeof(srt_sharding_t),
				 .dim = dim,
				 .locations = r->locations,
				 .nlocations = world };
}

static srt_status_t compare_shard(sharded_run_t *r, const char *key, const srt_sharded_tensor_t *t)
{
	golden_t *g = r->golden;
	const srt_safetensors_tensor_t *recorded = srt_safetensors_find(g->expect_rank, key);
	float *got, *want = NULL;
	srt_status_t status;

	if (recorded == NULL)
		return srt_fail(SRT_ERR_FORMAT, "the case has no %s of rank %d", key,
				srt_context_rank(r->context));
	got = srt_calloc(recorded->nelem + 1, sizeof(*got), key);
	status = got != NULL ? golden_floats(g->expect_rank, key, recorded->nelem, &want) :
			       SRT_ERR_OUT_OF_MEMORY;
	if (status == SRT_OK)
		status = srt_sharded_tensor_get(t, 0, got, r->stream);
	if (status == SRT_OK)
		verdict_values(r->verdict, g, key, got, want, recorded->nelem);
	free(got);
	free(want);
	return status;
}

srt_status_t sharded_compare_plain(sharded_run_t *r, const srt_safetensors_t *file, const char *key,
				   srt_buffer_t *buffer, size_t n)
{
	float *got = srt_calloc(n + 1, sizeof(*got), key), *want = NULL;
	srt_status_t status =
		got != NULL ? golden_floats(file, key, n, &want) : SRT_ERR_OUT_OF_MEMORY;

	if (status == SRT_OK)
		status = srt_buffer_copy_to_host(got, buffer, 0, n * sizeof(*got), r->stream);
	if (status == SRT_OK)
		verdict_values(r->verdict, r->golden, key, got, want, n);
	free(got);
	free(want);
	return status;
}

/* ---- two Linear layers ------------------------------------------------------------------- */

/* Where the shards were recorded. */
static void compare_metadata(sharded_run_t *r, const sharded_param_t *p)
{
	const json_t *want =
		json_object_get(json_object_get(json_object_get(r->golden->json, "sharded"),
						p->name),
				"shards");
	srt_shard_t shard;
	const json_t *row;
	size_t i;

	verdict_exact(r->verdict, json_array_size(want) == srt_sharded_tensor_shard_count(p->value),
		      "%s has %zu shards", p->name, srt_sharded_tensor_shard_count(p->value));
	json_array_foreach(want, i, row)
	{
		if (srt_sharded_tensor_shard_at(p->value, i, &shard) != SRT_OK)
			return;
		for (size_t d = 0; d < 2; d++)
			verdict_exact(
				r->verdict,
				shard.offset[d] ==
						json_integer_value(
							json_array_get(json_object_get(row,
										       "offsets"),
								       d)) &&
					shard.size[d] ==
						json_integer_value(
							json_array_get(json_object_get(row,
										       "sizes"),
								       d)) &&
					shard.location.rank == (int)golden_number(row, "rank", -1),
				"%s: shard %zu has %lld+%lld in dimension %zu", p->name, i,
				(long long)shard.offset[d], (long long)shard.size[d], d);
	}
}

/* Rank 0 has the parameters: weights are sharded, biases are set on each rank. */
static srt_status_t create_param(sharded_run_t *r, int i, int64_t rows, int64_t columns)
{
	sharded_param_t *p = &r->params[i];
	const srt_sharding_t sharding = sharded_chunks(r, i == W2);
	float *values = NULL;
	srt_buffer_t *whole = NULL;
	srt_status_t status;

	*p = (sharded_param_t){ .name = param_names[i],
				.ndim = columns > 0 ? 2 : 1,
				.shape = { rows, columns },
				.nelem = (size_t)(columns > 0 ? rows * columns : rows) };
	r->nparams++;
	SRT_TRY(golden_floats(r->init, p->name, p->nelem, &values));
	status = sharded_upload(r, values, p->nelem, &whole);
	if (status == SRT_OK && p->ndim == 2)
		status = srt_sharded_tensor_create_from(r->context, NULL, p->name, 2, p->shape,
							&sharding, 0, srt_view(whole, 0, SRT_F32),
							&p->value, r->stream);
	if (status == SRT_OK && p->ndim == 2)
		status = srt_sharded_tensor_create_like(p->value, p->name, &p->grad);
	if (status == SRT_OK && p->ndim == 1)
		status = sharded_upload(r, values, p->nelem, &p->plain_grad);
	free(values);
	if (p->ndim == 1)
		p->plain_value = whole;
	else
		srt_buffer_destroy(whole);
	return status;
}

srt_status_t sharded_create_optimizer(sharded_run_t *r)
{
	const json_t *optimizer = json_object_get(r->golden->json, "optimizer");
	srt_sharded_optim_param_t list[NPARAMS];
	srt_optim_options_t sgd = SRT_OPTIM_SGD_INIT;

	sgd.lr = (float)golden_number(optimizer, "lr", 0);
	for (size_t i = 0; i < r->nparams; i++) {
		const sharded_param_t *p = &r->params[i];

		list[i] = (srt_sharded_optim_param_t)SRT_SHARDED_OPTIM_PARAM_INIT;
		list[i].name = p->name;
		if (p->value != NULL) {
			list[i].value = p->value;
			list[i].grad = p->grad;
		} else {
			list[i].nelem = (int64_t)p->nelem;
			list[i].plain_value = srt_view(p->plain_value, 0, SRT_F32);
			list[i].plain_grad = srt_view(p->plain_grad, 0, SRT_F32);
		}
	}
	return srt_sharded_optim_create(r->context, NULL, &sgd, 1, list, r->nparams, &r->optim,
					r->stream);
}

/* named_params of PyTorch's optimizer. */
static void compare_names(sharded_run_t *r, const json_t *want)
{
	verdict_exact(r->verdict, json_array_size(want) == srt_optim_count(r->optim),
		      "the optimizer has %zu parameters", srt_optim_count(r->optim));
	for (size_t i = 0; i < json_array_size(want); i++)
		verdict_exact(r->verdict,
			      srt_optim_find(r->optim,
					     json_string_value(json_array_get(want, i))) == i,
			      "parameter %zu is '%s'", i, srt_optim_name(r->optim, i));
}

/* ---- passes ------------------------------------------------------------------------------ */

/* Tensors of this rank's rows: input, hidden layer, output, and their gradients. */
enum { X, HIDDEN, GELU, OUTPUT, LOSS, DOUTPUT, DGELU, DHIDDEN, DBIAS, NTENSORS };

typedef struct passes {
	srt_sharded_layer_t *linear1, *linear2;
	int64_t rows, d0, d1, d2;
	srt_buffer_t *buffers[NTENSORS];
} passes_t;

static srt_view_t tensor(const passes_t *p, int t)
{
	return srt_view(p->buffers[t], 0, SRT_F32);
}

static void passes_free(passes_t *p)
{
	srt_sharded_layer_destroy(p->linear1);
	srt_sharded_layer_destroy(p->linear2);
	for (int t = 0; t < NTENSORS; t++)
		srt_buffer_destroy(p->buffers[t]);
}

static srt_status_t passes_create(sharded_run_t *r, passes_t *p)
{
	const srt_safetensors_tensor_t *x =
		srt_safetensors_find(r->golden->input, "step1.micro0.x");
	const int64_t widths[NTENSORS] = { p->d0, p->d1, p->d1, p->d2,        1,
					   p->d2, p->d1, p->d1, p->d1 + p->d2 };

	if (x == NULL || x->ndim != 2 || x->shape[1] != p->d0)
		return srt_fail(SRT_ERR_FORMAT, "the case has no input of %lld columns",
				(long long)p->d0);
	p->rows = srt_context_rank(r->context) == 0 ? x->shape[0] : 0;
	for (int t = 0; t < NTENSORS; t++)
		SRT_TRY(srt_buffer_create(srt_context_device(r->context), SRT_MEM_DEVICE,
					  (size_t)(x->shape[0] * widths[t]) * sizeof(float),
					  "replayed", &p->buffers[t]));
	SRT_TRY(srt_sharded_layer_create_linear(r->params[W1].value, r->params[W1].grad, p->rows,
						&p->linear1));
	return srt_sharded_layer_create_linear(r->params[W2].value, r->params[W2].grad, p->rows,
					       &p->linear2);
}

/* linear2(gelu(linear1(x))), whose sum is the loss. */
static srt_status_t forward(sharded_run_t *r, passes_t *p, int s)
{
	const srt_view_t b1 = srt_view(r->params[B1].plain_value, 0, SRT_F32);
	const srt_view_t b2 = srt_view(r->params[B2].plain_value, 0, SRT_F32);
	const size_t n = (size_t)(p->rows * p->d0);
	srt_loss_t loss = SRT_LOSS_INIT;
	float *x = NULL;
	srt_status_t status = SRT_OK;
	char key[64];

	snprintf(key, sizeof(key), "step%d.micro0.x", s);
	if (n > 0) {
		SRT_TRY(golden_floats(r->golden->input, key, n, &x));
		status = srt_buffer_copy_from_host(p->buffers[X], 0, x, n * sizeof(*x), r->stream);
		free(x);
	}
	SRT_TRY(status);
	SRT_TRY(srt_sharded_layer_forward(p->linear1, tensor(p, X), b1, tensor(p, HIDDEN),
					  r->stream));
	SRT_TRY(srt_op_gelu_erf(tensor(p, GELU), tensor(p, HIDDEN), p->rows * p->d1, r->stream));
	SRT_TRY(srt_sharded_layer_forward(p->linear2, tensor(p, GELU), b2, tensor(p, OUTPUT),
					  r->stream));
	loss.rows = p->rows;
	loss.n = p->d2;
	loss.x = tensor(p, OUTPUT);
	loss.loss = tensor(p, LOSS);
	loss.dx = tensor(p, DOUTPUT);
	return srt_op_sum_loss(&loss, r->stream);
}

static srt_status_t backward(sharded_run_t *r, passes_t *p)
{
	SRT_TRY(srt_sharded_layer_backward(p->linear2, tensor(p, DOUTPUT), tensor(p, DGELU), 0,
					   r->stream));
	SRT_TRY(srt_op_gelu_erf_backward(tensor(p, DHIDDEN), tensor(p, DGELU), tensor(p, HIDDEN),
					 p->rows * p->d1, r->stream));
	return srt_sharded_layer_backward(p->linear1, tensor(p, DHIDDEN), (srt_view_t){ 0 }, 0,
					  r->stream);
}

/* The gradient of a weight. Each rank steps with its shard of the recorded one, so that the next
 * step begins with the recorded values: the tolerance is that of one step. */
static srt_status_t compare_weight(sharded_run_t *r, int i, int s)
{
	const sharded_param_t *weight = &r->params[i];
	float *grad = NULL;
	srt_buffer_t *whole = NULL;
	srt_status_t status;
	char key[96];

	snprintf(key, sizeof(key), "step%d.grad.%s", s, weight->name);
	SRT_TRY(compare_shard(r, key, weight->grad));
	SRT_TRY(golden_floats(r->golden->expect, key, weight->nelem, &grad));
	status = sharded_upload(r, grad, weight->nelem, &whole);
	if (status == SRT_OK)
		status = srt_sharded_tensor_scatter(weight->grad, 0, srt_view(whole, 0, SRT_F32),
						    r->stream);
	srt_buffer_destroy(whole);
	free(grad);
	return status;
}

/* The gradient of a bias on rank 0, which has all rows. Each rank steps with the recorded one. */
static srt_status_t compare_bias(sharded_run_t *r, const passes_t *p, int i, int dy, int s)
{
	const sharded_param_t *bias = &r->params[i];
	const int64_t n = (int64_t)bias->nelem;
	float *grad = NULL;
	srt_status_t status;
	char key[96];

	snprintf(key, sizeof(key), "step%d.grad.%s", s, bias->name);
	if (p->rows > 0) {
		SRT_TRY(srt_op_bias_backward(tensor(p, DBIAS), tensor(p, dy), p->rows, n, 0,
					     r->stream));
		SRT_TRY(sharded_compare_plain(r, r->golden->expect, key, p->buffers[DBIAS],
					      bias->nelem));
	}
	SRT_TRY(golden_floats(r->golden->expect, key, bias->nelem, &grad));
	status = srt_buffer_copy_from_host(bias->plain_grad, 0, grad, bias->nelem * sizeof(*grad),
					   r->stream);
	free(grad);
	return status;
}

static srt_status_t compare_grads(sharded_run_t *r, const passes_t *p, int s)
{
	SRT_TRY(compare_weight(r, W1, s));
	SRT_TRY(compare_weight(r, W2, s));
	SRT_TRY(compare_bias(r, p, B1, DHIDDEN, s));
	return compare_bias(r, p, B2, DOUTPUT, s);
}

/* A parameter after step s: this rank's shard, and on rank 0 the whole. */
static srt_status_t compare_param(sharded_run_t *r, const sharded_param_t *p, int s)
{
	srt_buffer_t *whole;
	srt_status_t status;
	char key[96];

	snprintf(key, sizeof(key), "step%d.param.%s", s, p->name);
	if (p->value == NULL)
		return s > 0 ? sharded_compare_plain(r, r->golden->expect, key, p->plain_value,
						     p->nelem) :
			       SRT_OK;
	SRT_TRY(compare_shard(r, key, p->value));
	if (s == 0)
		return SRT_OK;
	SRT_TRY(srt_buffer_create(srt_context_device(r->context), SRT_MEM_DEVICE,
				  p->nelem * sizeof(float), "gathered", &whole));
	status = srt_sharded_tensor_gather(p->value, 0, srt_view(whole, 0, SRT_F32), r->stream);
	if (status == SRT_OK && srt_context_rank(r->context) == 0)
		status = sharded_compare_plain(r, r->golden->expect, key, whole, p->nelem);
	srt_buffer_destroy(whole);
	return status;
}

static srt_status_t run_step(sharded_run_t *r, passes_t *p, int s)
{
	SRT_TRY(forward(r, p, s));
	SRT_TRY(backward(r, p));
	SRT_TRY(compare_grads(r, p, s));
	SRT_TRY(srt_optim_step(r->optim, r->stream));
	for (int i = 0; i < NPARAMS; i++)
		SRT_TRY(compare_param(r, &r->params[i], s));
	return SRT_OK;
}

static srt_status_t run_linear(sharded_run_t *r)
{
	const json_t *hyper = json_object_get(json_object_get(r->golden->json, "model"), "hyper");
	const int64_t d0 = (int64_t)golden_number(hyper, "d0", 0);
	const int64_t d1 = (int64_t)golden_number(hyper, "d1", 0);
	const int64_t d2 = (int64_t)golden_number(hyper, "d2", 0);
	const int nsteps = (int)golden_number(r->golden->json, "steps", 0);
	passes_t p = { .d0 = d0, .d1 = d1, .d2 = d2 };
	srt_status_t status;

	SRT_TRY(create_param(r, W1, d1, d0));
	SRT_TRY(create_param(r, B1, d1, 0));
	SRT_TRY(create_param(r, W2, d2, d1));
	SRT_TRY(create_param(r, B2, d2, 0));
	SRT_TRY(sharded_create_optimizer(r));
	compare_names(r, json_object_get(r->golden->json, "named_parameters"));
	compare_metadata(r, &r->params[W1]);
	compare_metadata(r, &r->params[W2]);
	for (int i = 0; i < NPARAMS; i++)
		SRT_TRY(compare_param(r, &r->params[i], 0));
	status = passes_create(r, &p);
	for (int s = 1; s <= nsteps && status == SRT_OK; s++)
		status = run_step(r, &p, s);
	passes_free(&p);
	return status;
}

void sharded_free(sharded_run_t *r)
{
	srt_optim_destroy(r->optim);
	r->optim = NULL;
	for (size_t i = 0; i < r->nparams; i++) {
		srt_sharded_tensor_destroy(r->params[i].value);
		srt_sharded_tensor_destroy(r->params[i].grad);
		srt_buffer_destroy(r->params[i].plain_value);
		srt_buffer_destroy(r->params[i].plain_grad);
	}
	r->nparams = 0;
}

/* ---- cases ------------------------------------------------------------------------------- */

srt_status_t replay_sharded_optimizer(golden_t *g, srt_context_t *context, verdict_t *v)
{
	sharded_run_t r = { .golden = g, .context = context, .verdict = v };
	char file[64];
	srt_status_t status;

	snprintf(file, sizeof(file), "expect.rank%d.safetensors", srt_context_rank(context));
	status = open_file(&r, "init.safetensors", &r.init);
	if (status == SRT_OK)
		status = open_file(&r, file, &g->expect_rank);
	if (status == SRT_OK)
		status = open_file(&r, "input.safetensors", &g->input);
	if (status == SRT_OK)
		status = sharded_open(&r);
	if (status == SRT_OK)
		status = run_linear(&r);
	sharded_free(&r);
	if (status == SRT_OK)
		status = sharded_run_add(&r);
	if (status == SRT_OK)
		compare_names(&r, json_object_get(json_object_get(g->json, "add_model"),
						  "named_params"));
	sharded_free(&r);
	sharded_close(&r);
	srt_safetensors_close(r.init);
	return status;
}
