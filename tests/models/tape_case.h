/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A case of the tape's tests: parameters, an input, layers and a loss, on random values, and one
 * pass through it forward and back. Used by test_tape.c and test_tape_head.c.
 */
#ifndef SRT_TESTS_TAPE_CASE_H
#define SRT_TESTS_TAPE_CASE_H

#include <math.h>
#include <stdlib.h>

#include "models/layers.h"
#include "models/tape_impl.h"
#include "tests/harness/check.h"
#include "tests/harness/random.h"

enum { MAX_PARAMS = 4, MAX_EXTRA = 4 };

static srt_context_t *context;
static srt_device_t *device;
static srt_stream_t *stream;

/* ---- a case: parameters, an input, layers, a loss ---------------------------------------- */

typedef struct run run_t;

typedef struct test_case {
	const char *name;
	int64_t rows, n;                    /* of the input, f32 */
	int64_t ids;                        /* > 0: the input is ids below this instead */
	int64_t shape[MAX_PARAMS][2];       /* 0: no such parameter; n = 0: a vector */
	int corner;                         /* the layers have one where the input is 0 */
	int64_t targets;                    /* > 0: the layers end in a loss with such targets */
	srt_tensor_t *(*build)(run_t *run); /* from run->x */
} test_case_t;

struct run {
	const test_case_t *c;
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *param[MAX_PARAMS];
	int nparams;
	srt_tape_t *tape;
	srt_tensor_t *x, *target, *loss;
	srt_tensor_t *extra[MAX_EXTRA]; /* further inputs, made by `build` */
	int nextra;
	srt_buffer_t *arena;
	void *extra_values[MAX_EXTRA];
	float *extra_grads[MAX_EXTRA]; /* of those that take one */
	float *values[MAX_PARAMS], *grads[MAX_PARAMS], *xvalues, *xgrad, *losses;
	void *target_values;
};

static void *room(size_t n)
{
	void *p = calloc(n + 1, 4);

	CHECK_OR_DIE(p != NULL);
	return p;
}

static void declare(run_t *r)
{
	srt_engine_options_t options = { .optimizer = SRT_OPTIMIZER_SGD };

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &r->engine));
	CHECK_OK_OR_DIE(srt_unit_create(r->engine, NULL, "root", &r->root));
	for (int k = 0; k < MAX_PARAMS && r->c->shape[k][0]; k++) {
		const char name[2] = { (char)('a' + k), 0 };
		int ndim = r->c->shape[k][1] ? 2 : 1;

		CHECK_OK_OR_DIE(srt_param_create(r->root, name, SRT_F32, ndim, r->c->shape[k], NULL,
						 &r->param[k]));
		r->nparams++;
	}
	CHECK_OK_OR_DIE(srt_engine_build(r->engine));
	for (int k = 0; k < r->nparams; k++) {
		size_t nelem = (size_t)srt_param_nelem(r->param[k]);

		r->values[k] = room(nelem);
		r->grads[k] = room(nelem);
		for (size_t i = 0; i < nelem; i++)
			r->values[k][i] = random_float();
	}
}

static void record(run_t *r)
{
	const test_case_t *c = r->c;
	srt_tensor_t *y;

	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &r->tape));
	r->x = srt_tape_input(r->tape, c->ids ? SRT_I32 : SRT_F32, c->rows, c->n);
	if (!c->ids)
		srt_tensor_require_grad(r->x);
	if (c->targets)
		r->target = srt_tape_input(r->tape, SRT_I32, c->rows, 1);
	srt_tape_unit_begin(r->tape, r->root);
	y = c->build(r);
	CHECK_MSG(y != NULL, "%s: %s", c->name, srt_tape_error(r->tape));
	CHECK_OR_DIE(y != NULL);
	if (!c->targets) {
		r->target = srt_tape_input(r->tape, SRT_F32, y->rows, y->n);
		y = srt_layer_mse(r->tape, y, r->target);
	}
	r->loss = y;
	srt_tape_keep(r->tape, y);
	srt_tape_unit_end(r->tape);
	CHECK_MSG(srt_tape_finish(r->tape) == SRT_OK, "%s: %s", c->name, srt_tape_error(r->tape));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, srt_tape_nbytes(r->tape), "arena",
					  &r->arena));
	CHECK_OK_OR_DIE(srt_tape_bind(r->tape, r->arena));
}

/* For a case's layers: a further input. Floats take a gradient; i32 are lengths, u8 masks. */
static inline srt_tensor_t *extra(run_t *r, srt_dtype_t dtype, int64_t rows, int64_t n)
{
	srt_tensor_t *x = srt_tape_input(r->tape, dtype, rows, n);

	CHECK_OR_DIE(x != NULL && r->nextra < MAX_EXTRA);
	if (dtype == SRT_F32)
		srt_tensor_require_grad(x);
	r->extra[r->nextra++] = x;
	return x;
}

static size_t nelem_of(const srt_tensor_t *x)
{
	return (size_t)(x->rows * x->n);
}

static void fill_extra(run_t *r)
{
	for (int k = 0; k < r->nextra; k++) {
		size_t n = nelem_of(r->extra[k]);

		r->extra_values[k] = room(n);
		r->extra_grads[k] = room(n);
		for (size_t i = 0; i < n; i++) {
			if (r->extra[k]->dtype == SRT_I32)
				((int32_t *)r->extra_values[k])[i] = (int32_t)((i * 2 + 3) % 5);
			else if (r->extra[k]->dtype == SRT_U8)
				((unsigned char *)r->extra_values[k])[i] = i % 3 != 1;
			else
				((float *)r->extra_values[k])[i] = random_float();
		}
	}
}

static void fill(run_t *r)
{
	size_t nx = (size_t)(r->c->rows * r->c->n);
	size_t ntarget = (size_t)(r->target->rows * r->target->n);

	r->xvalues = room(nx);
	r->xgrad = room(nx);
	r->losses = room((size_t)r->loss->rows);
	r->target_values = room(ntarget);
	for (size_t i = 0; i < nx; i++) {
		if (r->c->ids)
			((int32_t *)(void *)r->xvalues)[i] =
				(int32_t)((int64_t)(random_float() * 1e6f + 1e6f) % r->c->ids);
		else
			r->xvalues[i] = random_float();
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

static void open_run(run_t *r, const test_case_t *c)
{
	memset(r, 0, sizeof(*r));
	r->c = c;
	declare(r);
	record(r);
	fill(r);
}

static void close_run(run_t *r)
{
	srt_stream_sync(stream);
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

static void put(srt_view_t view, const void *values, int64_t nelem)
{
	CHECK_OK(srt_copy_from_host(stream, view.buffer, view.offset, values, (size_t)nelem * 4));
}

static void get(srt_view_t view, void *values, int64_t nelem)
{
	CHECK_OK(srt_copy_to_host(stream, values, view.buffer, view.offset, (size_t)nelem * 4));
}

/* Forward and backward pass over poison; gradients and losses to the host; the sum of the
 * losses. */
static double pass(run_t *r)
{
	double sum = 0.0;

	CHECK_OK(srt_op_fill(stream, srt_view(r->arena, 0, SRT_F32), NAN,
			     (int64_t)(srt_buffer_nbytes(r->arena) / 4)));
	for (int k = 0; k < r->nparams; k++)
		CHECK_OK(srt_param_set(r->param[k], r->values[k], stream));
	put(srt_tensor_view(r->x), r->xvalues, r->c->rows * r->c->n);
	for (int k = 0; k < r->nextra; k++) {
		srt_view_t view = srt_tensor_view(r->extra[k]);

		CHECK_OK(srt_copy_from_host(stream, view.buffer, view.offset, r->extra_values[k],
					    nelem_of(r->extra[k]) *
						    (srt_dtype_bits(view.dtype) / 8)));
	}
	put(srt_tensor_view(r->target), r->target_values, r->target->rows * r->target->n);
	CHECK_OK_OR_DIE(srt_tape_forward(r->tape, stream));
	CHECK_OK_OR_DIE(srt_tape_backward(r->tape, stream, 0.5f));
	get(srt_tensor_view(r->loss), r->losses, r->loss->rows);
	if (!r->c->ids)
		get(srt_tensor_grad(r->x), r->xgrad, r->c->rows * r->c->n);
	for (int k = 0; k < r->nextra; k++)
		if (r->extra[k]->needs_grad)
			get(srt_tensor_grad(r->extra[k]), r->extra_grads[k],
			    (int64_t)nelem_of(r->extra[k]));
	CHECK_OK_OR_DIE(srt_engine_step(r->engine, stream));
	for (int k = 0; k < r->nparams; k++)
		CHECK_OK(srt_param_get(r->param[k], SRT_PARAM_GRAD, r->grads[k], stream));
	for (int64_t i = 0; i < r->loss->rows; i++)
		sum += (double)r->losses[i];
	return sum;
}

/* ---- the head and its loss, in chunks of rows ---------------------------------------------- */

static int64_t head_chunk_rows; /* 0: the layer's own */

static inline srt_tensor_t *head(run_t *r)
{
	return srt_layer_head_loss(r->tape, r->x, r->param[0], r->target, head_chunk_rows);
}

/* The gradient of the first is added onto that of the second. */
static inline srt_tensor_t *head_twice(run_t *r)
{
	srt_layer_head_loss(r->tape, r->x, r->param[0], r->target, head_chunk_rows);
	return head(r);
}

#endif
