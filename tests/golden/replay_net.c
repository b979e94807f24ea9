/* SPDX-License-Identifier: BSD-3-Clause */
/* The small models of the table of combinations (replay_net.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/engine.h"
#include "tests/golden/replay_net.h"
#include "tests/harness/half.h"
#include "tests/harness/options.h"

/* Sizes are not recorded, and nothing recorded depends on them. */
enum { ROWS = 4, WIDTH = 4, BATCHNORM_WIDTH = 6 };

/* ---- the job ------------------------------------------------------------------------------ */

/* A mesh that has not all ranks is refused. */
static srt_status_t open_mesh(net_job_t *job, net_mesh_t mesh)
{
	static const char *const names[3][2] = {
		[NET_HYBRID] = { "replicate", "shard" }, [NET_TENSOR] = { "dp", "tp" }
	};
	const bool fits = job->shape[0] * job->shape[1] == job->world;
	srt_status_t status = srt_mesh_create(srt_context_world(job->context), 2, job->shape,
					      names[mesh], &job->mesh[mesh]);

	if (fits)
		return status;
	verdict_exact(job->verdict, status == SRT_ERR_INVALID_ARGUMENT,
		      "a mesh of %d x %d on %d ranks is not refused", job->shape[0], job->shape[1],
		      job->world);
	return SRT_OK;
}

srt_status_t net_job_open(net_job_t *job, srt_context_t *context, const int *shape, verdict_t *v)
{
	*job = (net_job_t){ .context = context,
			    .verdict = v,
			    .rank = srt_context_rank(context),
			    .world = srt_context_world_size(context),
			    .shape = { shape[0], shape[1] } };
	for (size_t i = 0; i < SRT_ARRAY_LEN(job->all); i++) {
		job->all[i] = srt_calloc((size_t)job->world, sizeof(**job->all), "of all ranks");
		if (job->all[i] == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
	}
	SRT_TRY(srt_stream_create(srt_context_device(context), 0, "replay", &job->stream));
	SRT_TRY(srt_comm_split(srt_context_world(context), job->rank, "ignored parameters",
			       &job->alone));
	SRT_TRY(open_mesh(job, NET_HYBRID));
	return open_mesh(job, NET_TENSOR);
}

void net_job_close(net_job_t *job)
{
	for (int m = NET_HYBRID; m <= NET_TENSOR; m++)
		srt_mesh_destroy(job->mesh[m]);
	srt_comm_destroy(job->alone);
	srt_stream_destroy(job->stream);
	for (size_t i = 0; i < SRT_ARRAY_LEN(job->all); i++)
		free(job->all[i]);
}

bool net_has_mesh(const net_job_t *job, const net_recipe_t *recipe)
{
	return recipe->mesh == NET_FLAT || recipe->no_mesh || job->mesh[recipe->mesh] != NULL;
}

int net_count_shards(const net_job_t *job, const net_recipe_t *recipe)
{
	return recipe->mesh == NET_FLAT   ? job->world :
	       recipe->mesh == NET_TENSOR ? job->shape[0] :
					    job->shape[1];
}

int net_reshard(const net_job_t *job, const net_recipe_t *recipe)
{
	if (recipe->reshard == NET_RESHARD_WORLD)
		return job->world;
	if (recipe->reshard == NET_RESHARD_NO_FACTOR)
		return job->world % 3 ? 3 : 4;
	return recipe->reshard;
}

srt_status_t net_gather(net_job_t *job, double mine, double *all)
{
	return srt_comm_oob_allgather(srt_context_world(job->context), &mine, sizeof(mine), all);
}

/* ---- declaring ---------------------------------------------------------------------------- */

/* Whether the k-th layer is the n-th of the pair that is cut. */
static bool is_in_pair(const net_recipe_t *recipe, int k, int n)
{
	return recipe->mesh == NET_TENSOR && k - (recipe->layers == NET_PAIR_LAST) == n;
}

static int count_layers(const net_recipe_t *recipe)
{
	return recipe->layers == NET_PAIR || recipe->layers == NET_UNEVEN ? 2 : 3;
}

static int64_t inner_size(const net_t *net)
{
	const net_job_t *job = net->job;

	return net->recipe->layers == NET_UNEVEN ? 4 * job->shape[1] + 1 : 8 * job->world;
}

/* Rows and columns of the k-th layer's weight; one dimension for the BatchNorm, the second. */
static void layer_shape(const net_t *net, int k, int64_t shape[2])
{
	const int first = net->recipe->layers == NET_PAIR_LAST;

	shape[0] = k == first ? inner_size(net) : WIDTH;
	shape[1] = k == first + 1 ? inner_size(net) : WIDTH;
	if (net->recipe->layers == NET_BATCHNORM) {
		shape[0] = k < 2 ? BATCHNORM_WIDTH : WIDTH;
		shape[1] = k == 0 ? WIDTH : BATCHNORM_WIDTH;
	}
}

static srt_status_t declare_param(net_t *net, int k, const char *what, int ndim,
				  const int64_t *shape)
{
	const net_recipe_t *recipe = net->recipe;
	const bool is_cut = is_in_pair(recipe, k, 0) || (is_in_pair(recipe, k, 1) && ndim == 2);
	const bool is_other = recipe->mixed && k == 1;
	srt_unit_t *unit = net->unit;
	srt_param_options_t options = { PARAM_BASE };
	srt_param_t *p;
	char name[32];

	snprintf(name, sizeof(name), "%d.%s", k, what);
	if (is_cut)
		options.placement = (srt_placement_t){ "tp", is_in_pair(recipe, k, 1), 0, 0 };
	options.frozen = recipe->frozen != NULL && !strcmp(recipe->frozen, name);
	if (recipe->ignoring && !strcmp(name, "0.bias"))
		unit = net->ignored_unit;
	return srt_param_create(unit, name, is_other ? SRT_F16 : net_stored(recipe), ndim, shape,
				&options, &p);
}

static srt_status_t declare_params(net_t *net)
{
	for (int k = 0; k < count_layers(net->recipe); k++) {
		const bool is_norm = net->recipe->layers == NET_BATCHNORM && k == 1;
		int64_t shape[2];

		layer_shape(net, k, shape);
		SRT_TRY(declare_param(net, k, "weight", is_norm ? 1 : 2, shape));
		SRT_TRY(declare_param(net, k, "bias", 1, shape));
		if (!is_norm)
			continue;
		SRT_TRY(srt_unit_buffer_create(net->unit, "running_mean", SRT_F32, 1, shape,
					       &net->mean));
		SRT_TRY(srt_unit_buffer_create(net->unit, "running_var", SRT_F32, 1, shape,
					       &net->var));
	}
	return SRT_OK;
}

static srt_status_t declare(net_t *net)
{
	const net_recipe_t *recipe = net->recipe;
	const net_mesh_t mesh = recipe->no_mesh ? NET_FLAT : recipe->mesh;
	srt_optim_options_t optim = SRT_OPTIM_SGD_INIT;
	srt_engine_options_t options = {
		.size = sizeof(options),
		.mesh = net->job->mesh[mesh],
		.strategy = recipe->mesh == NET_HYBRID ? SRT_STRATEGY_HYBRID : SRT_STRATEGY_ZERO3,
		.precision = recipe->precision,
		.accumulation = recipe->accumulation,
		.microbatches = 2,
		.prefetch = 1,
		.optim = &optim,
		.offload = { .params = recipe->offload,
			     .grads = recipe->offload,
			     .state = recipe->offload },
	};
	const srt_unit_options_t unit = { .size = sizeof(unit),
					  .reshard = net_reshard(net->job, recipe),
					  .flat = recipe->flat };
	srt_unit_t *root, *other;

	if (recipe->optimizer != SRT_OPTIM_SGD)
		optim = (srt_optim_options_t)SRT_OPTIM_OPTIONS_INIT;
	optim.kind = recipe->optimizer;
	optim.lr = 0.125f;
	optim.weight_decay = 0;
	SRT_TRY(srt_engine_create(net->job->context, &options, &net->engine));
	SRT_TRY(srt_unit_create(net->engine, NULL, "root", NULL, &root));
	SRT_TRY(srt_unit_create(net->engine, root, "net", &unit, &net->unit));
	if (recipe->ignoring) {
		options.mesh = NULL;
		options.comm = net->job->alone;
		options.strategy = SRT_STRATEGY_DDP;
		SRT_TRY(srt_engine_create(net->job->context, &options, &net->ignored));
		SRT_TRY(srt_unit_create(net->ignored, NULL, "ignored", NULL, &net->ignored_unit));
	}
	SRT_TRY(declare_params(net));
	if (recipe->tied) {
		SRT_TRY(srt_unit_create(net->engine, root, "other", NULL, &other));
		SRT_TRY(srt_param_tie(other, net_param(net, 0), "other.weight"));
	}
	SRT_TRY(srt_engine_build(net->engine));
	return net->ignored != NULL ? srt_engine_build(net->ignored) : SRT_OK;
}

/* ---- recording ---------------------------------------------------------------------------- */

static srt_tensor_t *record_batchnorm(net_t *net, srt_tensor_t *x, srt_param_t *weight,
				      srt_param_t *bias)
{
	const srt_batchnorm_in_t in = { .running_mean = test_buffer_view(net->mean),
					.running_var = test_buffer_view(net->var),
					.eps = 1e-5f,
					.momentum = 0.5f };

	return srt_layer_relu(net->tape, srt_layer_batchnorm(net->tape, x, weight, bias, &in));
}

static srt_tensor_t *record_layer(net_t *net, srt_tensor_t *x, int k)
{
	srt_param_t *weight, *bias;
	char name[32];

	snprintf(name, sizeof(name), "%d.weight", k);
	weight = net_find(net, name);
	snprintf(name, sizeof(name), "%d.bias", k);
	bias = net_find(net, name);
	if (net->mean != NULL && k == 1)
		return record_batchnorm(net, x, weight, bias);
	if (is_in_pair(net->recipe, k, 0))
		return srt_layer_linear_colwise(net->tape, x, weight, bias);
	if (is_in_pair(net->recipe, k, 1))
		return srt_layer_linear_rowwise(net->tape, x, weight, bias);
	return srt_layer_linear(net->tape, x, weight, bias);
}

/* y, and the loss: its sum. */
static srt_status_t record(net_t *net)
{
	srt_device_t *device = srt_context_device(net->job->context);
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;
	srt_tensor_t *y;

	SRT_TRY(srt_unit_types(net->unit, &types));
	SRT_TRY(srt_tape_create(device, SRT_TAPE_TRAINING, &net->tape));
	srt_tape_set_mesh(net->tape, net->job->mesh[net->recipe->mesh], "tp");
	net->x = y = srt_tape_input(net->tape, types.compute, ROWS, WIDTH);
	if (net->ignored != NULL)
		srt_tape_unit_begin(net->tape, net->ignored_unit);
	srt_tape_unit_begin(net->tape, net->unit->parent);
	srt_tape_unit_begin(net->tape, net->unit);
	for (int k = 0; k < count_layers(net->recipe); k++)
		y = record_layer(net, y, k);
	y = srt_tape_unit_output(net->tape, y);
	srt_layer_sum(net->tape, y);
	srt_tape_unit_end(net->tape);
	srt_tape_unit_end(net->tape);
	if (net->ignored != NULL)
		srt_tape_unit_end(net->tape);
	SRT_TRY(srt_tape_finish(net->tape));
	net->output_dtype = srt_tensor_dtype(y);
	SRT_TRY(srt_buffer_create(device, srt_tape_mem_kind(net->tape), srt_tape_nbytes(net->tape),
				  "tape", &net->arena));
	return srt_tape_bind(net->tape, net->arena);
}

static srt_status_t set_values(net_t *net)
{
	const srt_view_t view = srt_tensor_view(net->x);
	const size_t nbytes = srt_dtype_bits(view.dtype) / 8;
	float x[ROWS * WIDTH];
	srt_param_t *p;

	for (size_t i = 0; i < ROWS * WIDTH; i++)
		half_put(view.dtype, x, i, (float)(i * 7 % 11) * 0.25f - 1);
	SRT_TRY(srt_buffer_copy_from_host(view.buffer, view.offset, x, ROWS * WIDTH * nbytes,
					  net->job->stream));
	for (size_t i = 0; (p = net_param(net, i)) != NULL; i++)
		SRT_TRY(srt_param_init_normal(p, 3, 0.125f, 0.25f, net->job->stream));
	return SRT_OK;
}

srt_status_t net_create(net_t *net, net_job_t *job, const net_recipe_t *recipe)
{
	srt_scaler_options_t scaler = SRT_SCALER_OPTIONS_INIT;

	scaler.rule = recipe->rule;
	scaler.init_scale = 2;
	*net = (net_t){ .recipe = recipe, .job = job };
	SRT_TRY(declare(net));
	SRT_TRY(record(net));
	if (recipe->scaled)
		SRT_TRY(srt_scaler_create(job->context, &scaler, &net->scaler));
	return set_values(net);
}

void net_destroy(net_t *net)
{
	srt_stream_sync(net->job->stream);
	srt_scaler_destroy(net->scaler);
	srt_tape_destroy(net->tape);
	srt_buffer_destroy(net->arena);
	srt_engine_destroy(net->engine);
	srt_engine_destroy(net->ignored);
}

/* ---- running ------------------------------------------------------------------------------ */

srt_status_t net_pass(net_t *net, int i, int n)
{
	const srt_view_t none = { 0 };

	SRT_TRY(srt_engine_microbatch(net->engine, i, n));
	if (net->ignored != NULL)
		SRT_TRY(srt_engine_microbatch(net->ignored, i, n));
	SRT_TRY(srt_tape_forward(net->tape, net->job->stream));
	return srt_tape_backward(net->tape, 1,
				 net->scaler != NULL ? test_scaler_view(net->scaler) : none,
				 net->job->stream);
}

/* An infinity in the first element that this rank has. */
static srt_status_t spoil(net_t *net)
{
	const net_recipe_t *recipe = net->recipe;
	const int last = net->job->mesh[recipe->mesh] != NULL ? net->job->shape[1] - 1 : 0;
	const int rank = recipe->spoils_rank0 ? 0 : last;
	srt_view_t view;

	if (recipe->spoiled == NULL || net->job->rank != rank)
		return SRT_OK;
	view = test_local(net_find(net, recipe->spoiled), SRT_PARAM_GRAD);
	if (view.buffer == NULL)
		return srt_fail(SRT_ERR_STATE, "rank %d has no gradient of %s", rank,
				recipe->spoiled);
	return srt_op_fill(view, INFINITY, 1, net->job->stream);
}

srt_status_t net_finish(net_t *net)
{
	SRT_TRY(srt_engine_finish_backward(net->engine, net->job->stream));
	if (net->ignored != NULL)
		SRT_TRY(srt_engine_finish_backward(net->ignored, net->job->stream));
	return spoil(net);
}

srt_status_t net_step(net_t *net)
{
	SRT_TRY(net->scaler != NULL ? srt_scaler_step(net->scaler, net->engine, net->job->stream) :
				      srt_engine_step(net->engine, net->job->stream));
	if (net->scaler != NULL)
		SRT_TRY(srt_scaler_update(net->scaler, net->job->stream));
	return net->ignored != NULL && net->scaler == NULL ?
		       srt_engine_step(net->ignored, net->job->stream) :
		       SRT_OK;
}

/* ---- looking ------------------------------------------------------------------------------ */

srt_param_t *net_param(const net_t *net, size_t i)
{
	const size_t n = net->engine->nparams;

	return i < n || net->ignored == NULL ? srt_engine_param_at(net->engine, i) :
					       srt_engine_param_at(net->ignored, i - n);
}

srt_param_t *net_find(const net_t *net, const char *name)
{
	srt_param_t *p = srt_engine_param_find(net->engine, name);

	return p != NULL || net->ignored == NULL ? p : srt_engine_param_find(net->ignored, name);
}

srt_status_t net_get(net_t *net, srt_param_t *p, srt_param_what_t what, float **x)
{
	const size_t n = (size_t)srt_param_nelem(p);
	const srt_dtype_t dtype = net_stored(net->recipe);
	void *stored = srt_calloc(n + 1, sizeof(**x), "values");
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;

	*x = srt_calloc(n + 1, sizeof(**x), "values");
	if (stored != NULL && *x != NULL)
		status = srt_param_get(p, what, stored, net->job->stream);
	for (size_t i = 0; i < n && status == SRT_OK; i++)
		(*x)[i] = half_get(dtype, stored, i);
	free(stored);
	if (status != SRT_OK) {
		free(*x);
		*x = NULL;
	}
	return status;
}

srt_status_t net_norm(net_t *net, const srt_engine_t *engine, int p, double *norm)
{
	srt_param_t *param;
	double most = 0, squares = 0;
	float *x;

	for (size_t i = 0; (param = net_param(net, i)) != NULL; i++) {
		if (param->unit->engine != engine)
			continue;
		SRT_TRY(net_get(net, param, SRT_PARAM_GRAD, &x));
		for (int64_t k = 0; k < srt_param_nelem(param); k++) {
			most = fmax(most, fabs((double)x[k]));
			squares += (double)x[k] * (double)x[k];
		}
		free(x);
	}
	*norm = p == SRT_NORM_INF ? most : sqrt(squares);
	return SRT_OK;
}

srt_status_t net_sum(net_t *net, double *sum)
{
	srt_param_t *param;
	float *x;

	*sum = 0;
	for (size_t i = 0; (param = net_param(net, i)) != NULL; i++) {
		SRT_TRY(net_get(net, param, SRT_PARAM_GRAD, &x));
		for (int64_t k = 0; k < srt_param_nelem(param); k++)
			*sum += (double)x[k];
		free(x);
	}
	return SRT_OK;
}
