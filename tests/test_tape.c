/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tape and its layers: gradients of every layer, and of tensors used several times, against
 * finite differences; the memory plan against a plan that shares nothing, bit for bit; a poisoned
 * arena between runs; the chunked head against product and loss apart and against other chunks, bit
 * for bit, and what it saves.
 */
#include <math.h>
#include <stdlib.h>

#include "models/layers.h"
#include "models/tape_impl.h"
#include "tests/check.h"
#include "tests/random.h"

enum { MAX_PARAMS = 4, MAX_EXTRA = 4 };

static srt_context_t *context;
static srt_device_t *device;
static srt_stream_t *stream;

static float random_float(void)
{
	return (float)((int)(random32() >> 8) - (1 << 23)) * 0x1p-23f;
}

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
static srt_tensor_t *extra(run_t *r, srt_dtype_t dtype, int64_t rows, int64_t n)
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

/* ---- finite differences ------------------------------------------------------------------ */

/* Some elements of `values`, whose analytic gradient is `grad`. */
static void check_differences(run_t *r, const char *what, float *values, const float *grad,
			      int64_t nelem)
{
	const float h = 0x1p-7f;
	int64_t stride = nelem / 12 + 1;

	for (int64_t i = (int64_t)(random_state % (uint64_t)stride); i < nelem; i += stride) {
		float old = values[i];
		double up, down, numeric, analytic = (double)grad[i];

		if (r->c->corner && fabsf(old) < 2.0f * h)
			continue; /* no derivative there */
		values[i] = old + h;
		up = pass(r);
		values[i] = old - h;
		down = pass(r);
		values[i] = old;
		numeric = 0.5 * (up - down) / (2.0 * (double)h);
		CHECK_MSG(fabs(numeric - analytic) <= 4e-3 * (fabs(numeric) + 1.0),
			  "%s: %s[%lld]: numeric %.6f, analytic %.6f", r->c->name, what,
			  (long long)i, numeric, analytic);
	}
}

static void test_gradients(const test_case_t *c)
{
	run_t r;
	float *grads[MAX_PARAMS], *extra_grads[MAX_EXTRA], *xgrad;
	int64_t nx = c->rows * c->n;

	open_run(&r, c);
	pass(&r);
	/* further passes write over r.grads */
	for (int k = 0; k < r.nextra; k++) {
		extra_grads[k] = room(nelem_of(r.extra[k]));
		memcpy(extra_grads[k], r.extra_grads[k], nelem_of(r.extra[k]) * 4);
	}
	xgrad = room((size_t)nx);
	memcpy(xgrad, r.xgrad, (size_t)nx * 4);
	for (int k = 0; k < r.nparams; k++) {
		size_t nelem = (size_t)srt_param_nelem(r.param[k]);

		grads[k] = room(nelem);
		memcpy(grads[k], r.grads[k], nelem * 4);
	}
	if (!c->ids)
		check_differences(&r, "input", r.xvalues, xgrad, nx);
	for (int k = 0; k < r.nextra; k++) {
		if (r.extra[k]->needs_grad)
			check_differences(&r, "further input", r.extra_values[k], extra_grads[k],
					  (int64_t)nelem_of(r.extra[k]));
		free(extra_grads[k]);
	}
	for (int k = 0; k < r.nparams; k++) {
		check_differences(&r, srt_param_name(r.param[k]), r.values[k], grads[k],
				  srt_param_nelem(r.param[k]));
		free(grads[k]);
	}
	free(xgrad);
	close_run(&r);
}

/* ---- the plan against one that shares nothing -------------------------------------------- */

static void test_plan(const test_case_t *c)
{
	run_t r;
	size_t offset = 0, planned;
	float *losses, *xgrad, *grads[MAX_PARAMS], *extra_grads[MAX_EXTRA];
	int64_t nx = c->rows * c->n;

	open_run(&r, c);
	pass(&r);
	losses = r.losses;
	xgrad = r.xgrad;
	memcpy(grads, r.grads, sizeof(grads));
	memcpy(extra_grads, r.extra_grads, sizeof(extra_grads));
	for (int k = 0; k < r.nextra; k++)
		r.extra_grads[k] = room(nelem_of(r.extra[k]));
	r.losses = room((size_t)r.loss->rows);
	r.xgrad = room((size_t)nx);
	for (int k = 0; k < r.nparams; k++)
		r.grads[k] = room((size_t)srt_param_nelem(r.param[k]));

	planned = srt_tape_nbytes(r.tape);
	for (int b = 0; b < r.tape->nblocks; b++) {
		r.tape->blocks[b].offset = offset;
		offset += (r.tape->blocks[b].nbytes + 511) / 256 * 256;
	}
	CHECK_MSG(planned <= offset, "%s: %zu bytes planned, %zu without sharing", c->name, planned,
		  offset);
	r.tape->nbytes = offset;
	srt_buffer_destroy(r.arena);
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, offset, "arena", &r.arena));
	CHECK_OK_OR_DIE(srt_tape_bind(r.tape, r.arena));
	for (int again = 0; again < 2; again++) {
		uint64_t allocations = srt_device_allocations(device);

		pass(&r);
		CHECK_INT(srt_device_allocations(device), allocations);
		CHECK_BITS(r.losses, losses, (size_t)r.loss->rows);
		CHECK_BITS(r.xgrad, xgrad, (size_t)nx);
		for (int k = 0; k < r.nparams; k++)
			CHECK_BITS(r.grads[k], grads[k], (size_t)srt_param_nelem(r.param[k]));
		for (int k = 0; k < r.nextra; k++)
			CHECK_BITS(r.extra_grads[k], extra_grads[k], nelem_of(r.extra[k]));
	}
	free(losses);
	free(xgrad);
	for (int k = 0; k < r.nparams; k++)
		free(grads[k]);
	for (int k = 0; k < r.nextra; k++)
		free(extra_grads[k]);
	close_run(&r);
}

/* ---- the cases --------------------------------------------------------------------------- */

static srt_tensor_t *linear(run_t *r)
{
	return srt_layer_linear(r->tape, r->x, r->param[0], r->param[1]);
}

static srt_tensor_t *layernorm(run_t *r)
{
	return srt_layer_layernorm(r->tape, r->x, r->param[0], r->param[1], 1e-5f);
}

static srt_tensor_t *gelu(run_t *r)
{
	return srt_layer_gelu(r->tape, r->x);
}

static srt_tensor_t *relu(run_t *r)
{
	srt_tensor_t *y = srt_layer_add(r->tape, r->x, r->x);

	return srt_layer_linear(r->tape, srt_layer_relu(r->tape, y), r->param[0], NULL);
}

static srt_tensor_t *attention(run_t *r)
{
	return srt_layer_attention(r->tape, r->x, 6, 2, 1);
}

static srt_tensor_t *attention_all(run_t *r)
{
	return srt_layer_attention(r->tape, r->x, 6, 1, 0);
}

/* Queries from x (2 items of 3), keys and values from elsewhere (2 of 4), packed. */
static srt_tensor_t *attention_cross(run_t *r)
{
	const srt_attention_in_t in = { .q = r->x,
					.k = extra(r, SRT_F32, 8, 12),
					.lengths = extra(r, SRT_I32, 2, 1),
					.batch = 2,
					.heads = 3 };

	return srt_layer_attention_of(r->tape, &in);
}

/* The same with tensors of their own, a mask, and causal: more queries than keys. */
static srt_tensor_t *attention_apart(run_t *r)
{
	const srt_attention_in_t in = { .q = r->x,
					.k = extra(r, SRT_F32, 6, 6),
					.v = extra(r, SRT_F32, 6, 6),
					.lengths = extra(r, SRT_I32, 2, 1),
					.mask = extra(r, SRT_U8, 2, 3),
					.batch = 2,
					.heads = 2,
					.causal = 1 };

	return srt_layer_attention_of(r->tape, &in);
}

/* Packed, with padding; then one tensor as all three: its gradient has three parts. */
static srt_tensor_t *attention_of_one(run_t *r)
{
	srt_attention_in_t in = { .q = r->x, .batch = 3, .heads = 2 };

	in.lengths = extra(r, SRT_I32, 3, 1);
	in.k = in.v = in.q = srt_layer_attention_of(r->tape, &in);
	return srt_layer_attention_of(r->tape, &in);
}

/* Keys and values that take no gradient. */
static srt_tensor_t *attention_of_constants(run_t *r)
{
	srt_attention_in_t in = { .q = r->x, .batch = 2, .heads = 3 };

	in.k = extra(r, SRT_F32, 8, 12);
	in.k->needs_grad = 0;
	return srt_layer_attention_of(r->tape, &in);
}

static srt_tensor_t *embedding(run_t *r)
{
	return srt_layer_embedding(r->tape, r->x, r->param[0], r->param[1], 5);
}

static srt_tensor_t *cross_entropy(run_t *r)
{
	return srt_layer_cross_entropy(r->tape, r->x, r->target);
}

static int64_t head_chunk_rows;

static srt_tensor_t *head(run_t *r)
{
	return srt_layer_head_loss(r->tape, r->x, r->param[0], r->target, head_chunk_rows);
}

/* The gradient of the first is added onto that of the second. */
static srt_tensor_t *head_twice(run_t *r)
{
	srt_layer_head_loss(r->tape, r->x, r->param[0], r->target, head_chunk_rows);
	return head(r);
}

static srt_tensor_t *head_apart(run_t *r)
{
	srt_tensor_t *logits = srt_layer_linear(r->tape, r->x, r->param[0], NULL);

	return srt_layer_cross_entropy(r->tape, logits, r->target);
}

static srt_tensor_t *tied(run_t *r)
{
	srt_tensor_t *y = srt_layer_embedding(r->tape, r->x, r->param[0], r->param[1], 4);

	return srt_layer_head_loss(r->tape, srt_layer_gelu(r->tape, y), r->param[0], r->target, 0);
}

/* Residual branches: what a transformer block does. */
static srt_tensor_t *residual(run_t *r)
{
	srt_tensor_t *x = srt_layer_gelu(r->tape, r->x), *y;

	y = srt_layer_layernorm(r->tape, x, r->param[0], r->param[1], 1e-5f);
	x = srt_layer_add(r->tape, x, srt_layer_linear(r->tape, y, r->param[2], NULL));
	y = srt_layer_layernorm(r->tape, x, r->param[0], r->param[1], 1e-5f);
	return srt_layer_add(r->tape, x, srt_layer_gelu(r->tape, y));
}

/* Everything that could let one gradient be written while another still lies in its place. */
static srt_tensor_t *several_uses(run_t *r)
{
	srt_tensor_t *a = srt_layer_gelu(r->tape, r->x);
	srt_tensor_t *b = srt_layer_gelu(r->tape, r->x);
	srt_tensor_t *sum = srt_layer_add(r->tape, a, b);
	srt_tensor_t *c = srt_layer_gelu(r->tape, sum);
	srt_tensor_t *d = srt_layer_add(r->tape, c, srt_layer_add(r->tape, sum, a));

	d = srt_layer_add(r->tape, d, srt_layer_add(r->tape, d, d));
	d = srt_layer_add(r->tape, d, srt_layer_linear(r->tape, a, r->param[0], NULL));
	d = srt_layer_add(r->tape, srt_layer_linear(r->tape, d, r->param[0], NULL), d);
	return srt_layer_add(r->tape, srt_layer_add(r->tape, d, b), r->x);
}

static const test_case_t cases[] = {
	{ .name = "linear", .rows = 5, .n = 7, .shape = { { 3, 7 }, { 3 } }, .build = linear },
	{ .name = "linear without bias",
	  .rows = 1,
	  .n = 1,
	  .shape = { { 1, 1 } },
	  .build = linear },
	{ .name = "layernorm",
	  .rows = 6,
	  .n = 11,
	  .shape = { { 11 }, { 11 } },
	  .build = layernorm },
	{ .name = "layernorm without bias",
	  .rows = 6,
	  .n = 5,
	  .shape = { { 5 } },
	  .build = layernorm },
	{ .name = "gelu", .rows = 3, .n = 9, .build = gelu },
	{ .name = "relu", .rows = 4, .n = 4, .corner = 1, .shape = { { 2, 4 } }, .build = relu },
	{ .name = "attention", .rows = 12, .n = 18, .build = attention },
	{ .name = "attention over all", .rows = 6, .n = 15, .build = attention_all },
	{ .name = "embedding",
	  .rows = 10,
	  .n = 1,
	  .ids = 4,
	  .shape = { { 9, 3 }, { 7, 3 } },
	  .build = embedding },
	{ .name = "cross-entropy", .rows = 6, .n = 5, .targets = 5, .build = cross_entropy },
	{ .name = "head", .rows = 7, .n = 6, .targets = 11, .shape = { { 11, 6 } }, .build = head },
	{ .name = "tied",
	  .rows = 8,
	  .n = 1,
	  .ids = 6,
	  .targets = 6,
	  .shape = { { 6, 5 }, { 4, 5 } },
	  .build = tied },
	{ .name = "residual",
	  .rows = 4,
	  .n = 6,
	  .shape = { { 6 }, { 6 }, { 6, 6 } },
	  .build = residual },
	{ .name = "several uses", .rows = 3, .n = 4, .shape = { { 4, 4 } }, .build = several_uses },
	{ .name = "attention over others", .rows = 6, .n = 6, .build = attention_cross },
	{ .name = "attention apart", .rows = 10, .n = 6, .build = attention_apart },
	{ .name = "attention of one", .rows = 12, .n = 12, .build = attention_of_one },
	{ .name = "attention of constants", .rows = 6, .n = 6, .build = attention_of_constants },
};

/* ---- the chunked head -------------------------------------------------------------------- */

static void test_head_bits(int64_t rows)
{
	const test_case_t chunked = { .name = "head",
				      .rows = rows,
				      .n = 24,
				      .targets = 37,
				      .shape = { { 37, 24 } },
				      .build = head };
	test_case_t apart = chunked;
	run_t a, b;
	uint64_t seed = random_state;

	apart.build = head_apart;
	open_run(&a, &chunked);
	random_state = seed; /* the same values */
	open_run(&b, &apart);
	pass(&a);
	pass(&b);
	CHECK_BITS(a.losses, b.losses, (size_t)rows);
	CHECK_BITS(a.xgrad, b.xgrad, (size_t)(rows * 24));
	CHECK_BITS(a.grads[0], b.grads[0], 37 * 24);
	close_run(&a);
	close_run(&b);
}

/* However many rows are taken at a time: the same bits, in a gradient that is stored and in one
 * that is added to. */
static void test_head_chunks(srt_tensor_t *(*build)(run_t *))
{
	const test_case_t c = { .name = "head",
				.rows = 1601,
				.n = 24,
				.targets = 37,
				.shape = { { 37, 24 } },
				.build = build };
	uint64_t seed = random_state;
	run_t want, got;

	open_run(&want, &c);
	pass(&want);
	for (head_chunk_rows = 1024; head_chunk_rows <= 2048; head_chunk_rows += 512) {
		random_state = seed; /* the same values */
		open_run(&got, &c);
		pass(&got);
		CHECK(srt_tape_nbytes(got.tape) > srt_tape_nbytes(want.tape));
		CHECK_BITS(got.losses, want.losses, (size_t)c.rows);
		CHECK_BITS(got.xgrad, want.xgrad, (size_t)(c.rows * c.n));
		CHECK_BITS(got.grads[0], want.grads[0], 37 * 24);
		close_run(&got);
	}
	head_chunk_rows = 0;
	close_run(&want);
}

/* The plan of 2048 rows by GPT-2's vocabulary: whole logits against chunks of 512 rows. */
static void test_head_memory(void)
{
	enum { ROWS = 2048, N = 8, VOCAB = 50257 };
	const test_case_t c = {
		.name = "head memory", .rows = ROWS, .n = N, .shape = { { VOCAB, N } }
	};
	const size_t chunk = (size_t)SRT_HEAD_ROWS * VOCAB * 4, whole = (size_t)ROWS * VOCAB * 4;
	size_t nbytes[2];
	run_t r = { .c = &c };

	declare(&r);
	for (int apart = 0; apart < 2; apart++) {
		CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &r.tape));
		r.x = srt_tape_input(r.tape, SRT_F32, ROWS, N);
		r.target = srt_tape_input(r.tape, SRT_I32, ROWS, 1);
		srt_tape_unit_begin(r.tape, r.root);
		r.loss = apart ? head_apart(&r) : head(&r);
		srt_tape_unit_end(r.tape);
		CHECK_OK(srt_tape_finish(r.tape));
		nbytes[apart] = srt_tape_nbytes(r.tape);
		srt_tape_destroy(r.tape);
	}
	printf("activations of 2048 rows, vocabulary 50257: %zu bytes, with whole logits %zu\n",
	       nbytes[0], nbytes[1]);
	CHECK(nbytes[0] >= chunk && nbytes[0] < chunk + (1u << 20));
	CHECK(nbytes[1] >= whole);
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &r.tape));
	r.x = srt_tape_input(r.tape, SRT_F32, ROWS, N);
	r.target = srt_tape_input(r.tape, SRT_I32, ROWS, 1);
	CHECK(!srt_layer_head_loss(r.tape, r.x, r.param[0], r.target, 500));
	CHECK(strstr(srt_tape_error(r.tape), "chunks of 500 rows, must be a multiple of 512"));
	srt_tape_destroy(r.tape);
	srt_engine_destroy(r.engine);
	for (int k = 0; k < r.nparams; k++) {
		free(r.values[k]);
		free(r.grads[k]);
	}
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		test_gradients(&cases[i]);
		test_plan(&cases[i]);
	}
	test_head_bits(1);
	test_head_bits(512);
	test_head_bits(513);
	test_head_bits(1201);
	test_head_chunks(head);
	test_head_chunks(head_twice);
	test_head_memory();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
