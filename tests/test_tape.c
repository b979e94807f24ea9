/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tape and its layers: gradients of every layer, and of tensors used several times, against
 * finite differences; the memory plan against a plan that shares nothing, bit for bit; a poisoned
 * arena between runs.
 */
#include "tests/tape_case.h"

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

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		test_gradients(&cases[i]);
		test_plan(&cases[i]);
	}
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
