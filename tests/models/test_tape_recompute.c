/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sections of a tape that the backward pass runs forward again, inside of units and around them:
 * the bits of a tape that keeps everything, in a smaller arena; what is updated in the forward pass
 * is updated once; mistakes.
 */
#include <stdlib.h>

#include "tests/harness/options.h"
#include "tests/models/tape_case.h"

enum { BLOCKS = 3, ROWS = 12, WIDTH = 8, CONTEXT = 6, STATS = 2 * BLOCKS * WIDTH };

enum form { KEEP, INSIDE, AROUND, FORMS };

enum { WEIGHT, BIAS, QKV, OUT, BLOCK_PARAMS };

typedef struct model {
	srt_engine_t *engine;
	srt_unit_t *root, *unit[BLOCKS];
	srt_param_t *param[BLOCKS][BLOCK_PARAMS];
	srt_buffer_t *stats, *arena;
	srt_tape_t *tape;
	srt_tensor_t *x, *loss, *constant;
} model_t;

/* What a pass leaves. */
typedef struct result {
	float losses[ROWS], xgrad[ROWS * WIDTH], stats[STATS];
	float grads[BLOCKS][BLOCK_PARAMS][3 * WIDTH * WIDTH];
	size_t nbytes;
} result_t;

static const srt_dropout_at_t at = { .seed = 3, .step = 1 };

static void declare(model_t *m, srt_strategy_t strategy, srt_dtype_t cast)
{
	const srt_precision_t precision = { .size = sizeof(precision), .param = cast };
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = strategy,
					       .precision = &precision,
					       .optim = OPTIM(.kind = SRT_OPTIM_NONE) };
	const int64_t shapes[BLOCK_PARAMS][2] = {
		{ WIDTH }, { WIDTH }, { 3 * WIDTH, WIDTH }, { WIDTH, WIDTH }
	};

	CHECK_OK_OR_DIE(srt_engine_create(tape_context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_unit_create(m->engine, NULL, "root", NULL, &m->root));
	for (int b = 0; b < BLOCKS; b++) {
		char name[] = { 'u', (char)('0' + b), 0, 0 };

		CHECK_OK_OR_DIE(srt_unit_create(m->engine, m->root, name, NULL, &m->unit[b]));
		for (int k = 0; k < BLOCK_PARAMS; k++) {
			name[2] = (char)('a' + k);
			CHECK_OK_OR_DIE(srt_param_create(m->unit[b], name, SRT_F32,
							 shapes[k][1] ? 2 : 1, shapes[k], NULL,
							 &m->param[b][k]));
		}
	}
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	for (int b = 0; b < BLOCKS; b++)
		for (int k = 0; k < BLOCK_PARAMS; k++)
			CHECK_OK(srt_param_init_normal(m->param[b][k], 7, k == WEIGHT ? 1.0f : 0.0f,
						       0.3f, tape_stream));
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, SRT_MEM_DEVICE, STATS * sizeof(float),
					  "statistics", &m->stats));
	CHECK_OK(srt_op_fill(srt_view(m->stats, 0, SRT_F32), 0.5f, STATS, tape_stream));
}

static void close_model(model_t *m)
{
	CHECK_OK(srt_stream_sync(tape_stream));
	srt_tape_destroy(m->tape);
	srt_buffer_destroy(m->arena);
	srt_buffer_destroy(m->stats);
	srt_engine_destroy(m->engine);
}

static srt_view_t stats_at(const model_t *m, int i)
{
	return srt_view(m->stats, (size_t)(i * WIDTH) * sizeof(float), SRT_F32);
}

/* A block with what is special: dropout, statistics that are updated, a tensor from outside of the
 * section, one that leaves it besides the output, and one that the backward pass does not need. */
static srt_tensor_t *record_block(model_t *m, int b, srt_tensor_t *x, srt_tensor_t **leaves)
{
	srt_param_t **p = m->param[b];
	const srt_batchnorm_in_t norm = { .running_mean = stats_at(m, 2 * b),
					  .running_var = stats_at(m, 2 * b + 1),
					  .eps = 1e-5f,
					  .momentum = 0.25f };
	srt_tensor_t *y = srt_layer_layernorm(m->tape, x, p[WEIGHT], p[BIAS], 1e-5f);

	y = srt_layer_linear(m->tape, y, p[QKV], NULL);
	y = srt_layer_attention(m->tape, y, CONTEXT, 2, 1);
	*leaves = y = srt_layer_batchnorm(m->tape, y, p[WEIGHT], p[BIAS], &norm);
	y = srt_layer_dropout(m->tape, y, "drop", 0.25f, &at);
	y = srt_layer_gelu(m->tape, srt_layer_add_row(m->tape, y, m->constant));
	y = srt_layer_linear(m->tape, y, p[OUT], NULL);
	return srt_layer_add(m->tape, y, x);
}

static void record(model_t *m, enum form form)
{
	srt_tensor_t *x, *left = NULL;

	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &m->tape));
	x = m->x = srt_tape_input(m->tape, SRT_F32, ROWS, WIDTH);
	m->constant = srt_tape_input(m->tape, SRT_F32, 1, WIDTH);
	srt_tensor_require_grad(m->x);
	srt_tape_unit_begin(m->tape, m->root);
	for (int b = 0; b < BLOCKS; b++) {
		srt_tensor_t *leaves;

		if (form == AROUND)
			srt_tape_recompute_begin(m->tape);
		srt_tape_unit_begin(m->tape, m->unit[b]);
		if (form == INSIDE)
			srt_tape_recompute_begin(m->tape);
		x = record_block(m, b, x, &leaves);
		if (form == INSIDE)
			srt_tape_recompute_end(m->tape);
		srt_tape_unit_end(m->tape);
		if (form == AROUND)
			srt_tape_recompute_end(m->tape);
		left = left != NULL ?
			       srt_layer_add(m->tape, left, srt_layer_tanh(m->tape, leaves)) :
			       leaves;
	}
	m->loss = srt_layer_sum(m->tape, srt_layer_gelu(m->tape, srt_layer_add(m->tape, x, left)));
	srt_tape_keep(m->tape, m->loss);
	srt_tape_unit_end(m->tape);
	CHECK_OK(srt_tape_finish(m->tape));
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, SRT_MEM_DEVICE, srt_tape_nbytes(m->tape),
					  "arena", &m->arena));
	CHECK_OK_OR_DIE(srt_tape_bind(m->tape, m->arena));
}

static void fill(model_t *m)
{
	float x[ROWS * WIDTH];

	random_state = 99;
	for (int i = 0; i < ROWS * WIDTH; i++)
		x[i] = random_float();
	tape_put(srt_tensor_view(m->x), x, ROWS * WIDTH);
	tape_put(srt_tensor_view(m->constant), x, WIDTH);
}

static void run(model_t *m, result_t *r)
{
	CHECK_OK(srt_op_fill(srt_view(m->arena, 0, SRT_F32), NAN,
			     (int64_t)(srt_buffer_nbytes(m->arena) / sizeof(float)), tape_stream));
	fill(m);
	CHECK_OK(srt_tape_forward(m->tape, tape_stream));
	CHECK_OK(srt_tape_backward(m->tape, 0.5f, (srt_view_t){ 0 }, tape_stream));
	tape_get(srt_tensor_view(m->loss), r->losses, ROWS);
	tape_get(srt_tensor_grad(m->x), r->xgrad, ROWS * WIDTH);
	tape_get(stats_at(m, 0), r->stats, STATS);
	CHECK_OK_OR_DIE(srt_engine_step(m->engine, tape_stream));
	for (int b = 0; b < BLOCKS; b++)
		for (int k = 0; k < BLOCK_PARAMS; k++)
			CHECK_OK(srt_param_get(m->param[b][k], SRT_PARAM_GRAD, r->grads[b][k],
					       tape_stream));
	r->nbytes = srt_tape_nbytes(m->tape);
}

static void pass(srt_strategy_t strategy, srt_dtype_t cast, enum form form, result_t *result)
{
	model_t m = { 0 };

	memset(result, 0, sizeof(*result));
	declare(&m, strategy, cast);
	record(&m, form);
	run(&m, result);
	close_model(&m);
}

static void test_bits(srt_strategy_t strategy, srt_dtype_t cast)
{
	static result_t want, got;

	pass(strategy, cast, KEEP, &want);
	for (enum form form = INSIDE; form < FORMS; form++) {
		pass(strategy, cast, form, &got);
		CHECK_BITS(got.losses, want.losses, ROWS);
		CHECK_BITS(got.xgrad, want.xgrad, ROWS * WIDTH);
		CHECK_BITS(got.stats, want.stats, STATS);
		for (int b = 0; b < BLOCKS; b++)
			for (int k = 0; k < BLOCK_PARAMS; k++)
				CHECK_BITS(got.grads[b][k], want.grads[b][k],
					   sizeof(got.grads[b][k]) / sizeof(float));
		CHECK_MSG(got.nbytes * 10 < want.nbytes * 8, "%zu bytes, %zu without sections",
			  got.nbytes, want.nbytes);
		if (strategy == SRT_STRATEGY_ZERO3)
			printf("arena of %zu bytes with sections %s units, %zu without\n",
			       got.nbytes, form == INSIDE ? "inside of" : "around", want.nbytes);
	}
}

/* The last product and the sum after it do not run again: nothing needs their results. */
static void test_what_runs_again(void)
{
	int again = 0, layers = 0;
	model_t m = { 0 };

	declare(&m, SRT_STRATEGY_DDP, SRT_DTYPE_NONE);
	record(&m, INSIDE);
	for (int i = 0; i < m.tape->nnodes; i++) {
		const srt_node_t *node = &m.tape->nodes[i];

		layers += node->layer != NULL && node->section;
		again += node->layer != NULL && node->recomputed;
		CHECK(!node->recomputed || node->section);
	}
	CHECK_INT(layers, BLOCKS * 9);
	CHECK_INT(again, BLOCKS * 7);
	close_model(&m);
}

/* ---- mistakes ------------------------------------------------------------------------------ */

enum mistake { NESTED, LOSS_INSIDE, UNIT_ENDS, ENDS_IN_UNIT, NO_BEGIN, NO_END, MISTAKES };

static void test_mistake(model_t *m, enum mistake mistake, const char *why)
{
	srt_tensor_t *x;

	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &m->tape));
	x = srt_tape_input(m->tape, SRT_F32, ROWS, WIDTH);
	if (mistake == UNIT_ENDS)
		srt_tape_unit_begin(m->tape, m->root);
	if (mistake != NO_BEGIN)
		srt_tape_recompute_begin(m->tape);
	if (mistake == NESTED)
		srt_tape_recompute_begin(m->tape);
	if (mistake == LOSS_INSIDE)
		CHECK(srt_layer_sum(m->tape, x) == NULL);
	if (mistake == ENDS_IN_UNIT)
		srt_tape_unit_begin(m->tape, m->root);
	if (mistake == UNIT_ENDS)
		srt_tape_unit_end(m->tape);
	if (mistake != NO_END)
		srt_tape_recompute_end(m->tape);
	CHECK(srt_tape_finish(m->tape) != SRT_OK);
	CHECK_ERROR_HAS(why);
	srt_tape_destroy(m->tape);
}

static void test_mistakes(void)
{
	static const char *const why[MISTAKES] = {
		[NESTED] = "begins inside another one",
		[LOSS_INSIDE] = "sum: a loss cannot be in a section",
		[UNIT_ENDS] = "a unit ends inside a section",
		[ENDS_IN_UNIT] = "ends inside a unit that began in it",
		[NO_BEGIN] = "without srt_tape_recompute_begin()",
		[NO_END] = "still open",
	};
	model_t m = { 0 };

	declare(&m, SRT_STRATEGY_DDP, SRT_DTYPE_NONE);
	for (enum mistake i = NESTED; i < MISTAKES; i++)
		test_mistake(&m, i, why[i]);
	m.tape = NULL;
	close_model(&m);
}

int main(void)
{
	tape_begin();
	for (srt_strategy_t s = SRT_STRATEGY_DDP; s <= SRT_STRATEGY_ZERO3; s++)
		test_bits(s, SRT_DTYPE_NONE);
	test_bits(SRT_STRATEGY_ZERO3, SRT_F16);
	test_bits(SRT_STRATEGY_ZERO3, SRT_BF16);
	test_what_runs_again();
	test_mistakes();
	return tape_end();
}
