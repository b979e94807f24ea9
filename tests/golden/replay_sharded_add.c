/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replays the second model of the tables of sharded optimizers (replay.h): a plain parameter, and a
 * sharded one of which each rank has as many rows. Also its training on one rank.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/golden/replay_sharded.h"

/* Recorded tensors of this model: init, input, and what is expected. */
typedef struct add_keys {
	const srt_safetensors_t *init, *input, *expect;
	const char *param, *sharded, *x, *new_param, *new_sharded;
	bool has_loss; /* and gradients, of step 1 */
} add_keys_t;

/* The recorded loss, and the gradients, which are equal. */
static srt_status_t compare_loss(sharded_run_t *r, srt_buffer_t *rows, size_t nrows)
{
	golden_t *g = r->golden;
	const json_t *step = json_array_get(json_object_get(g->json, "steps"), 0);
	const json_t *rank = json_array_get(json_object_get(step, "ranks"), 0);
	const sharded_param_t *param = &r->params[0];
	float *values = srt_calloc(nrows, sizeof(*values), "losses");
	srt_status_t status = values != NULL ?
				      srt_buffer_copy_to_host(values, rows, 0,
							      nrows * sizeof(*values), r->stream) :
				      SRT_ERR_OUT_OF_MEMORY;
	double loss = 0;

	for (size_t i = 0; status == SRT_OK && i < nrows; i++)
		loss += (double)values[i];
	free(values);
	SRT_TRY(status);
	verdict_scalar(r->verdict, g, "step1.loss.rank0.0", loss,
		       golden_scalar(json_array_get(json_object_get(rank, "loss"), 0)));
	SRT_TRY(sharded_compare_plain(r, g->expect, "step1.grad.param", param->plain_grad,
				      param->nelem));
	return sharded_compare_plain(r, g->expect, "step1.grad.sharded_param", param->plain_grad,
				     param->nelem);
}

/* The loss is the sum of the local rows, so both gradients are the gradient of the sum. */
static srt_status_t add_backward(sharded_run_t *r, srt_buffer_t *x, int64_t rows, int64_t n,
				 bool has_loss)
{
	const sharded_param_t *param = &r->params[0], *sharded = &r->params[1];
	const srt_view_t shard = srt_sharded_tensor_local(sharded->value, 0);
	const srt_view_t grad = srt_sharded_tensor_local(sharded->grad, 0);
	const srt_view_t y = srt_view(x, 0, SRT_F32);
	srt_buffer_t *loss;
	srt_status_t status;

	SRT_TRY(srt_buffer_create(srt_context_device(r->context), SRT_MEM_DEVICE,
				  (size_t)rows * sizeof(float), "loss", &loss));
	status = srt_op_add(y, y, srt_view(param->plain_value, 0, SRT_F32), rows * n, r->stream);
	if (status == SRT_OK)
		status = srt_op_add(y, y, shard, rows * n, r->stream);
	if (status == SRT_OK)
		status = srt_op_sum_loss(&(srt_loss_t){ .size = sizeof(srt_loss_t),
							.grad_scale = 1.0f,
							.rows = rows,
							.n = n,
							.x = y,
							.loss = srt_view(loss, 0, SRT_F32),
							.dx = grad },
					 r->stream);
	if (status == SRT_OK)
		status = srt_buffer_copy(param->plain_grad, 0, grad.buffer, grad.offset,
					 (size_t)(rows * n) * sizeof(float), r->stream);
	if (status == SRT_OK && has_loss)
		status = compare_loss(r, loss, (size_t)rows);
	srt_buffer_destroy(loss);
	return status;
}

/* A recorded tensor in device memory. */
static srt_status_t upload_recorded(sharded_run_t *r, const srt_safetensors_t *file,
				    const char *key, size_t n, srt_buffer_t **buffer)
{
	float *values = NULL;
	srt_status_t status = golden_floats(file, key, n, &values);

	if (status == SRT_OK)
		status = sharded_upload(r, values, n, buffer);
	free(values);
	return status;
}

/* The sharded parameter: each rank has as many rows as the plain one, with recorded values. */
static srt_status_t create_rows(sharded_run_t *r, const add_keys_t *keys, sharded_param_t *p,
				size_t n)
{
	const srt_sharding_t sharding = sharded_chunks(r, 0);
	float *values = NULL;
	srt_status_t status;

	SRT_TRY(srt_sharded_tensor_create(r->context, NULL, p->name, SRT_F32, 2, p->shape,
					  &sharding, &p->value));
	SRT_TRY(srt_sharded_tensor_create_like(p->value, p->name, &p->grad));
	SRT_TRY(golden_floats(keys->init, keys->sharded, n, &values));
	status = srt_sharded_tensor_set(p->value, 0, values, r->stream);
	free(values);
	return status;
}

static srt_status_t compare_rows(sharded_run_t *r, const add_keys_t *keys, size_t n)
{
	float *got = srt_calloc(n, sizeof(*got), "a shard"), *want = NULL;
	srt_status_t status = got != NULL ?
				      golden_floats(keys->expect, keys->new_sharded, n, &want) :
				      SRT_ERR_OUT_OF_MEMORY;

	if (status == SRT_OK)
		status = srt_sharded_tensor_get(r->params[1].value, 0, got, r->stream);
	if (status == SRT_OK)
		verdict_values(r->verdict, r->golden, keys->new_sharded, got, want, n);
	free(got);
	free(want);
	return status;
}

static srt_status_t run_add(sharded_run_t *r, const add_keys_t *keys)
{
	const srt_safetensors_tensor_t *t = srt_safetensors_find(keys->init, keys->param);
	sharded_param_t *param = &r->params[0], *sharded = &r->params[1];
	srt_buffer_t *x = NULL;
	srt_status_t status;

	if (t == NULL || t->ndim != 2)
		return srt_fail(SRT_ERR_FORMAT, "the case has no matrix '%s'", keys->param);
	*param = (sharded_param_t){ .name = "param", .nelem = t->nelem };
	*sharded = (sharded_param_t){ .name = "sharded_param",
				      .shape = { t->shape[0] * srt_context_world_size(r->context),
						 t->shape[1] } };
	r->nparams = 2;
	SRT_TRY(upload_recorded(r, keys->init, keys->param, t->nelem, &param->plain_value));
	SRT_TRY(upload_recorded(r, keys->init, keys->param, t->nelem, &param->plain_grad));
	SRT_TRY(create_rows(r, keys, sharded, t->nelem));
	SRT_TRY(sharded_create_optimizer(r));
	SRT_TRY(upload_recorded(r, keys->input, keys->x, t->nelem, &x));
	status = add_backward(r, x, t->shape[0], t->shape[1], keys->has_loss);
	srt_buffer_destroy(x);
	SRT_TRY(status);
	SRT_TRY(srt_optim_step(r->optim, r->stream));
	SRT_TRY(sharded_compare_plain(r, keys->expect, keys->new_param, param->plain_value,
				      t->nelem));
	return compare_rows(r, keys, t->nelem);
}

/* ---- cases ------------------------------------------------------------------------------- */

srt_status_t sharded_run_add(sharded_run_t *r)
{
	const golden_t *g = r->golden;

	return run_add(r, &(add_keys_t){ .init = g->expect,
					 .input = g->expect,
					 .expect = g->expect_rank,
					 .param = "add.init.param",
					 .sharded = "add.init.sharded_param_shard",
					 .x = "add.input",
					 .new_param = "add.param",
					 .new_sharded = "add.sharded_param" });
}

bool replay_is_sharded_add(const golden_t *g)
{
	const char *model = golden_text(json_object_get(g->json, "model"), "name");

	return !strcmp(g->kind, "train") && model != NULL && !strcmp(model, "add_params");
}

srt_status_t replay_sharded_add(golden_t *g, srt_context_t *context, verdict_t *v)
{
	sharded_run_t r = { .golden = g, .context = context, .verdict = v };
	srt_status_t status = sharded_open(&r);

	if (status == SRT_OK)
		status = run_add(&r, &(add_keys_t){ .init = g->init,
						    .input = g->input,
						    .expect = g->expect,
						    .param = "param",
						    .sharded = "sharded_param",
						    .x = "step1.micro0.x",
						    .new_param = "step1.param.param",
						    .new_sharded = "step1.param.sharded_param",
						    .has_loss = true });
	sharded_free(&r);
	sharded_close(&r);
	return status;
}
