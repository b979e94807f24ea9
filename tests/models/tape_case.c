/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/harness/options.h"
#include "tests/models/tape_case.h"

#include <stdlib.h>

#include "tests/harness/check.h"
#include "tests/harness/half.h"
#include "tests/harness/random.h"

srt_context_t *tape_context;
srt_device_t *tape_device;
srt_stream_t *tape_stream;
int64_t tape_head_rows;

void tape_begin(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &tape_context));
	tape_device = srt_context_device(tape_context);
	CHECK_OK_OR_DIE(srt_stream_create(tape_device, 0, "compute", &tape_stream));
}

int tape_end(void)
{
	srt_stream_destroy(tape_stream);
	srt_context_destroy(tape_context);
	return check_done();
}

void *tape_zeros(size_t n)
{
	void *p = calloc(n + 1, 4);

	CHECK_OR_DIE(p != NULL);
	return p;
}

void tape_declare(tape_run_t *r)
{
	srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_DDP,
					 .precision = r->c->precision,
					 .optim = OPTIM(.kind = SRT_OPTIM_NONE) };

	CHECK_OK_OR_DIE(srt_engine_create(tape_context, &options, &r->engine));
	CHECK_OK_OR_DIE(srt_unit_create(r->engine, NULL, "root", NULL, &r->root));
	for (int k = 0; k < MAX_PARAMS && r->c->shape[k][0]; k++) {
		const char name[2] = { (char)('a' + k), 0 };
		int ndim = r->c->shape[k][1] ? 2 : 1;

		CHECK_OK_OR_DIE(srt_param_create(r->root, name, tape_dtype(r->c), ndim,
						 r->c->shape[k], NULL, &r->param[k]));
		r->nparams++;
	}
	CHECK_OK_OR_DIE(srt_engine_build(r->engine));
	for (int k = 0; k < r->nparams; k++) {
		size_t nelem = (size_t)srt_param_nelem(r->param[k]);

		r->values[k] = tape_zeros(nelem);
		r->grads[k] = tape_zeros(nelem);
		for (size_t i = 0; i < nelem; i++)
			r->values[k][i] = half_round(tape_dtype(r->c), random_float());
	}
}

void tape_record(tape_run_t *r)
{
	const tape_case_t *c = r->c;
	srt_tensor_t *y;

	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &r->tape));
	r->x = srt_tape_input(r->tape, c->ids ? SRT_I32 : tape_dtype(c), c->rows, c->n);
	if (!c->ids)
		srt_tensor_require_grad(r->x);
	if (c->targets)
		r->target = srt_tape_input(r->tape, SRT_I32, c->rows, 1);
	srt_tape_unit_begin(r->tape, r->root);
	y = c->build(r);
	CHECK_MSG(y != NULL, "%s: %s", c->name, srt_error_last());
	CHECK_OR_DIE(y != NULL);
	if (!c->targets) {
		r->target = srt_tape_input(r->tape, SRT_F32, y->rows, y->n);
		y = srt_layer_mse(r->tape, y, r->target);
	}
	r->loss = y;
	srt_tape_keep(r->tape, y);
	srt_tape_unit_end(r->tape);
	CHECK_MSG(srt_tape_finish(r->tape) == SRT_OK, "%s: %s", c->name, srt_error_last());
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, SRT_MEM_DEVICE, srt_tape_nbytes(r->tape),
					  "arena", &r->arena));
	CHECK_OK_OR_DIE(srt_tape_bind(r->tape, r->arena));
}

srt_tensor_t *tape_extra(tape_run_t *r, srt_dtype_t dtype, int64_t rows, int64_t n)
{
	const int is_float = dtype == SRT_F32;
	srt_tensor_t *x = srt_tape_input(r->tape, is_float ? tape_dtype(r->c) : dtype, rows, n);

	CHECK_OR_DIE(x != NULL && r->nextra < MAX_EXTRA);
	if (is_float)
		srt_tensor_require_grad(x);
	r->extra[r->nextra++] = x;
	return x;
}

size_t tape_nelem(const srt_tensor_t *x)
{
	return (size_t)(x->rows * x->n);
}

static void fill_extra(tape_run_t *r)
{
	for (int k = 0; k < r->nextra; k++) {
		size_t n = tape_nelem(r->extra[k]);

		r->extra_values[k] = tape_zeros(n);
		r->extra_grads[k] = tape_zeros(n);
		for (size_t i = 0; i < n; i++) {
			if (r->extra[k]->dtype == SRT_I32)
				((int32_t *)r->extra_values[k])[i] = (int32_t)((i * 2 + 3) % 5);
			else if (r->extra[k]->dtype == SRT_U8)
				((unsigned char *)r->extra_values[k])[i] = i % 3 != 1;
			else
				((float *)r->extra_values[k])[i] =
					half_round(tape_dtype(r->c), random_float());
		}
	}
}

static void fill(tape_run_t *r)
{
	size_t nx = (size_t)(r->c->rows * r->c->n);
	size_t ntarget = (size_t)(r->target->rows * r->target->n);

	r->xvalues = tape_zeros(nx);
	r->xgrad = tape_zeros(nx);
	r->losses = tape_zeros((size_t)r->loss->rows);
	r->target_values = tape_zeros(ntarget);
	for (size_t i = 0; i < nx; i++) {
		if (r->c->ids)
			((int32_t *)(void *)r->xvalues)[i] =
				(int32_t)((int64_t)(random_float() * 1e6f + 1e6f) % r->c->ids);
		else
			r->xvalues[i] = half_round(tape_dtype(r->c), random_float());
	}
	for (size_t i = 0; i < ntarget; i++) {
		if (r->c->targets)
			((int32_t *)r->target_values)[i] =
				(int32_t)((int64_t)(random_float() * 1e6f + 1e6f) % r->c->targets);
		else
			((float *)r->target_values)[i] = random_float();
	}
	fill_extra(r);
}

void tape_open(tape_run_t *r, const tape_case_t *c)
{
	memset(r, 0, sizeof(*r));
	r->c = c;
	tape_declare(r);
	tape_record(r);
	fill(r);
}

void tape_close(tape_run_t *r)
{
	srt_stream_sync(tape_stream);
	srt_tape_destroy(r->tape);
	srt_buffer_destroy(r->arena);
	srt_engine_destroy(r->engine);
	for (int k = 0; k < r->nparams; k++) {
		free(r->values[k]);
		free(r->grads[k]);
	}
	for (int k = 0; k < r->nextra; k++) {
		free(r->extra_values[k]);
		free(r->extra_grads[k]);
	}
	free(r->xvalues);
	free(r->xgrad);
	free(r->losses);
	free(r->target_values);
}

static int is_half(srt_dtype_t dtype)
{
	return dtype == SRT_F16 || dtype == SRT_BF16;
}

void tape_put(srt_view_t view, const void *values, int64_t nelem)
{
	const size_t n = (size_t)nelem, size = srt_dtype_bits(view.dtype) / 8;
	unsigned char *bytes = tape_zeros(n);

	if (is_half(view.dtype))
		for (size_t i = 0; i < n; i++)
			half_put(view.dtype, bytes, i, ((const float *)values)[i]);
	else
		memcpy(bytes, values, n * size);
	CHECK_OK(srt_buffer_copy_from_host(view.buffer, view.offset, bytes, n * size, tape_stream));
	free(bytes);
}

void tape_get(srt_view_t view, void *values, int64_t nelem)
{
	const size_t n = (size_t)nelem, size = srt_dtype_bits(view.dtype) / 8;

	CHECK_OK(srt_buffer_copy_to_host(values, view.buffer, view.offset, n * size, tape_stream));
	for (size_t i = n; i-- > 0 && is_half(view.dtype);)
		((float *)values)[i] = half_get(view.dtype, values, i);
}

static void set_param(const tape_run_t *r, int k)
{
	const size_t nelem = (size_t)srt_param_nelem(r->param[k]);
	void *values = tape_zeros(nelem);

	for (size_t i = 0; i < nelem; i++)
		half_put(tape_dtype(r->c), values, i, r->values[k][i]);
	CHECK_OK(srt_param_set(r->param[k], SRT_PARAM_VALUE, values, tape_stream));
	free(values);
}

static void get_param_grad(tape_run_t *r, int k)
{
	CHECK_OK(srt_param_get(r->param[k], SRT_PARAM_GRAD, r->grads[k], tape_stream));
	for (int64_t i = srt_param_nelem(r->param[k]); i-- > 0 && is_half(tape_dtype(r->c));)
		r->grads[k][i] = half_get(tape_dtype(r->c), r->grads[k], (size_t)i);
}

double tape_pass(tape_run_t *r)
{
	double sum = 0.0;

	CHECK_OK(srt_op_fill(srt_view(r->arena, 0, SRT_F32), NAN,
			     (int64_t)(srt_buffer_nbytes(r->arena) / 4), tape_stream));
	for (int k = 0; k < r->nparams; k++)
		set_param(r, k);
	tape_put(srt_tensor_view(r->x), r->xvalues, r->c->rows * r->c->n);
	for (int k = 0; k < r->nextra; k++)
		tape_put(srt_tensor_view(r->extra[k]), r->extra_values[k],
			 (int64_t)tape_nelem(r->extra[k]));
	tape_put(srt_tensor_view(r->target), r->target_values, r->target->rows * r->target->n);
	CHECK_OK_OR_DIE(srt_tape_forward(r->tape, tape_stream));
	CHECK_OK_OR_DIE(srt_tape_backward(r->tape, 0.5f, r->scale, tape_stream));
	tape_get(srt_tensor_view(r->loss), r->losses, r->loss->rows);
	if (!r->c->ids)
		tape_get(srt_tensor_grad(r->x), r->xgrad, r->c->rows * r->c->n);
	for (int k = 0; k < r->nextra; k++)
		if (r->extra[k]->needs_grad)
			tape_get(srt_tensor_grad(r->extra[k]), r->extra_grads[k],
				 (int64_t)tape_nelem(r->extra[k]));
	CHECK_OK_OR_DIE(srt_engine_step(r->engine, tape_stream));
	for (int k = 0; k < r->nparams; k++)
		get_param_grad(r, k);
	for (int64_t i = 0; i < r->loss->rows; i++)
		sum += (double)r->losses[i];
	return sum;
}

srt_tensor_t *tape_head(tape_run_t *r)
{
	return srt_layer_head_loss(r->tape, r->x, r->param[0], r->target, tape_head_rows);
}

srt_tensor_t *tape_head_twice(tape_run_t *r)
{
	srt_layer_head_loss(r->tape, r->x, r->param[0], r->target, tape_head_rows);
	return tape_head(r);
}
