/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tape and its layers: gradients of every layer, and of tensors used several times, against
 * finite differences, and in 16 bits against those in fp32; the memory plan against a plan that
 * shares nothing, bit for bit; a poisoned arena between runs.
 */
#include "tests/models/tape_case.h"

/* ---- the cases --------------------------------------------------------------------------- */

static srt_tensor_t *linear(tape_run_t *r)
{
	return srt_layer_linear(r->tape, r->x, r->param[0], r->param[1]);
}

static srt_tensor_t *layernorm(tape_run_t *r)
{
	return srt_layer_layernorm(r->tape, r->x, r->param[0], r->param[1], 1e-5f);
}

static srt_tensor_t *gelu(tape_run_t *r)
{
	return srt_layer_gelu(r->tape, r->x);
}

static srt_tensor_t *relu(tape_run_t *r)
{
	srt_tensor_t *y = srt_layer_add(r->tape, r->x, r->x);

	return srt_layer_linear(r->tape, srt_layer_relu(r->tape, y), r->param[0], NULL);
}

static srt_tensor_t *attention(tape_run_t *r)
{
	return srt_layer_attention(r->tape, r->x, 6, 2, 1);
}

static srt_tensor_t *attention_all(tape_run_t *r)
{
	return srt_layer_attention(r->tape, r->x, 6, 1, 0);
}

/* Queries from x (2 items of 3), keys and values from elsewhere (2 of 4), packed. */
static srt_tensor_t *attention_cross(tape_run_t *r)
{
	const srt_attention_in_t in = { .q = r->x,
					.k = tape_extra(r, SRT_F32, 8, 12),
					.lengths = tape_extra(r, SRT_I32, 2, 1),
					.batch = 2,
					.heads = 3 };

	return srt_layer_attention_of(r->tape, &in);
}

/* Attention with separate tensors, a mask, and causal: more queries than keys. */
static srt_tensor_t *attention_apart(tape_run_t *r)
{
	const srt_attention_in_t in = { .q = r->x,
					.k = tape_extra(r, SRT_F32, 6, 6),
					.v = tape_extra(r, SRT_F32, 6, 6),
					.lengths = tape_extra(r, SRT_I32, 2, 1),
					.mask = tape_extra(r, SRT_U8, 2, 3),
					.batch = 2,
					.heads = 2,
					.causal = 1 };

	return srt_layer_attention_of(r->tape, &in);
}

/* Packed, with padding; then one tensor as all three: its gradient has three parts. */
static srt_tensor_t *attention_of_one(tape_run_t *r)
{
	srt_attention_in_t in = { .q = r->x, .batch = 3, .heads = 2 };

	in.lengths = tape_extra(r, SRT_I32, 3, 1);
	in.k = in.v = in.q = srt_layer_attention_of(r->tape, &in);
	return srt_layer_attention_of(r->tape, &in);
}

/* Two heads for each head of keys, queries after the first two keys, each with a first key. */
static srt_tensor_t *attention_grouped(tape_run_t *r)
{
	const srt_attention_in_t in = { .q = r->x,
					.k = tape_extra(r, SRT_F32, 14, 6),
					.v = tape_extra(r, SRT_F32, 14, 6),
					.first = tape_extra(r, SRT_I32, 10, 1),
					.batch = 2,
					.heads = 4,
					.causal = 1,
					.kv_heads = 2,
					.scale = 0.3f,
					.offset = 2 };

	return srt_layer_attention_of(r->tape, &in);
}

/* Packed, all heads of the queries with one of keys; some queries see nothing. */
static srt_tensor_t *attention_of_one_head(tape_run_t *r)
{
	const srt_attention_in_t in = { .q = r->x,
					.first = tape_extra(r, SRT_I32, 12, 1),
					.batch = 2,
					.heads = 3,
					.causal = 1,
					.kv_heads = 1 };

	return srt_layer_attention_of(r->tape, &in);
}

/* Keys and values that take no gradient. */
static srt_tensor_t *attention_of_constants(tape_run_t *r)
{
	srt_attention_in_t in = { .q = r->x, .batch = 2, .heads = 3 };

	in.k = tape_extra(r, SRT_F32, 8, 12);
	in.k->needs_grad = 0;
	return srt_layer_attention_of(r->tape, &in);
}

static srt_tensor_t *embedding(tape_run_t *r)
{
	return srt_layer_embedding(r->tape, r->x, r->param[0], r->param[1], 5);
}

static srt_tensor_t *cross_entropy(tape_run_t *r)
{
	return srt_layer_cross_entropy(r->tape, r->x, r->target);
}

static srt_tensor_t *tied(tape_run_t *r)
{
	srt_tensor_t *y = srt_layer_embedding(r->tape, r->x, r->param[0], r->param[1], 4);

	return srt_layer_head_loss(r->tape, srt_layer_gelu(r->tape, y), r->param[0], r->target, 0);
}

/* Residual branches: what a transformer block does. */
static srt_tensor_t *residual(tape_run_t *r)
{
	srt_tensor_t *x = srt_layer_gelu(r->tape, r->x), *y;

	y = srt_layer_layernorm(r->tape, x, r->param[0], r->param[1], 1e-5f);
	x = srt_layer_add(r->tape, x, srt_layer_linear(r->tape, y, r->param[2], NULL));
	y = srt_layer_layernorm(r->tape, x, r->param[0], r->param[1], 1e-5f);
	return srt_layer_add(r->tape, x, srt_layer_gelu(r->tape, y));
}

/* Everything that could let one gradient be written while another still lies in its place. */
static srt_tensor_t *several_uses(tape_run_t *r)
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

static srt_tensor_t *add_row(tape_run_t *r)
{
	srt_tensor_t *y = srt_layer_add_row(r->tape, r->x, tape_extra(r, SRT_F32, 1, 5));

	y = srt_layer_add(r->tape, srt_layer_gelu(r->tape, y), r->x);
	return srt_layer_add_param(r->tape, srt_layer_add_param(r->tape, y, r->param[0]),
				   r->param[0]);
}

static srt_tensor_t *transpose(tape_run_t *r)
{
	srt_tensor_t *y = srt_layer_transpose(r->tape, r->x, 4, 12); /* (4,9) to (3,12) */

	y = srt_layer_linear(r->tape, y, r->param[0], NULL);
	return srt_layer_transpose(r->tape, y, 3, 3);
}

/* q of one input, k and v of another, by rows of one parameter; its last 2 rows are unused. */
static srt_tensor_t *linear_rows(tape_run_t *r)
{
	srt_tensor_t *q, *kv, *other = tape_extra(r, SRT_F32, 3, 4);

	q = srt_layer_linear_rows(r->tape, r->x, r->param[0], r->param[1], 0, 3);
	kv = srt_layer_linear_rows(r->tape, other, r->param[0], r->param[1], 3, 6);
	return srt_layer_add(r->tape, srt_layer_linear(r->tape, q, r->param[2], NULL),
			     srt_layer_gelu(r->tape, kv));
}

static srt_tensor_t *sum(tape_run_t *r)
{
	srt_tensor_t *y = srt_layer_gelu(r->tape, r->x);

	return srt_layer_sum(r->tape, srt_layer_linear(r->tape, y, r->param[0], NULL));
}

static const tape_case_t cases[] = {
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
	{ .name = "head",
	  .rows = 7,
	  .n = 6,
	  .targets = 11,
	  .shape = { { 11, 6 } },
	  .build = tape_head },
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
	{ .name = "add row", .rows = 7, .n = 5, .shape = { { 5 } }, .build = add_row },
	{ .name = "transpose", .rows = 6, .n = 6, .shape = { { 5, 12 } }, .build = transpose },
	{ .name = "linear rows",
	  .rows = 3,
	  .n = 4,
	  .shape = { { 11, 4 }, { 11 }, { 6, 3 } },
	  .build = linear_rows },
	{ .name = "sum", .rows = 4, .n = 6, .targets = 1, .shape = { { 3, 6 } }, .build = sum },
	{ .name = "attention of constants", .rows = 6, .n = 6, .build = attention_of_constants },
	{ .name = "attention grouped", .rows = 10, .n = 12, .build = attention_grouped },
	{ .name = "attention of one head", .rows = 12, .n = 15, .build = attention_of_one_head },
};

int main(void)
{
	tape_begin();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		tape_check_gradients(&cases[i]);
		tape_check_plan(&cases[i]);
		tape_check_dtypes(&cases[i]);
	}
	CHECK_MSG(tape_digest == 0xd77d1ea84e864389u, "16 bits: the digest is 0x%016llxu",
		  (unsigned long long)tape_digest);
	return tape_end();
}
