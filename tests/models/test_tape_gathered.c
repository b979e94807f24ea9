/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Norms of rows that are cut over tensor-parallel ranks, 1 to 3 of them: values and gradients have
 * the bits of the whole rows on one rank, in each dtype, kept and recomputed; wrong shapes, and
 * tapes that differ.
 */
#include <stdlib.h>

#include "tests/harness/options.h"
#include "tests/models/tape_case.h"

enum { ROWS = 5, PART = 20, MOST_RANKS = 4, MOST = PART * MOST_RANKS };

static srt_comm_t *alone;
static srt_mesh_t *mesh;
static int rank, world;

typedef struct model {
	int whole; /* 1: whole rows, on this rank alone */
	int recompute;
	srt_dtype_t dtype;
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *trained, *frozen;
	srt_tape_t *tape;
	srt_tensor_t *x, *y;
	srt_buffer_t *arena;
} model_t;

typedef struct result {
	float y[ROWS * MOST], xgrad[ROWS * MOST], grad[MOST];
} result_t;

static int64_t count_columns(const model_t *m)
{
	return m->whole ? (int64_t)world * PART : PART;
}

static srt_param_t *declare(model_t *m, const char *name, int64_t n, int frozen)
{
	srt_param_options_t options = { PARAM_BASE, .frozen = frozen };
	srt_param_t *param;

	CHECK_OK_OR_DIE(srt_param_create(m->root, name, m->dtype, 1, &n, &options, &param));
	return param;
}

static void open_engine(model_t *m)
{
	srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
					 .optim = OPTIM(.kind = SRT_OPTIM_NONE) };

	if (m->whole)
		options.comm = alone;
	else
		options.mesh = mesh;
	CHECK_OK_OR_DIE(srt_engine_create(tape_context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_unit_create(m->engine, NULL, "root", NULL, &m->root));
	m->trained = declare(m, "trained", (int64_t)world * PART, 0);
	m->frozen = declare(m, "frozen", (int64_t)world * PART, 1);
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	CHECK_OK(srt_param_init_normal(m->trained, 1, 1.0f, 0.5f, tape_stream));
	CHECK_OK(srt_param_init_normal(m->frozen, 2, 0.0f, 0.5f, tape_stream));
}

static void start_tape(model_t *m, int64_t rows, int64_t n)
{
	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &m->tape));
	srt_tape_set_mesh(m->tape, m->whole ? NULL : mesh, "tp");
	m->x = srt_tape_input(m->tape, m->dtype, rows, n);
	srt_tensor_require_grad(m->x);
	srt_tape_unit_begin(m->tape, m->root);
}

static srt_status_t end_tape(model_t *m)
{
	srt_tape_keep(m->tape, m->y);
	srt_tape_keep(m->tape, srt_layer_sum(m->tape, m->y));
	srt_tape_unit_end(m->tape);
	CHECK_OK_OR_DIE(srt_tape_finish(m->tape));
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, srt_tape_mem_kind(m->tape),
					  srt_tape_nbytes(m->tape), "arena", &m->arena));
	return srt_tape_bind(m->tape, m->arena);
}

static srt_tensor_t *record_norm(const model_t *m, srt_tensor_t *x, srt_param_t *weight,
				 int one_plus)
{
	const srt_rmsnorm_in_t in = { .eps = 1e-5f, .one_plus = one_plus };

	return m->whole ? srt_layer_rmsnorm_of(m->tape, x, weight, &in) :
			  srt_layer_rmsnorm_gathered(m->tape, x, weight, &in);
}

/* A weight is used twice, and so is x, whose gradient is merged. */
static void open_model(model_t *m)
{
	srt_tensor_t *x;

	open_engine(m);
	start_tape(m, ROWS, count_columns(m));
	if (m->recompute)
		srt_tape_recompute_begin(m->tape);
	x = record_norm(m, m->x, m->trained, 0);
	x = record_norm(m, srt_layer_silu(m->tape, x), m->frozen, 1);
	x = record_norm(m, srt_layer_silu(m->tape, x), m->trained, 0);
	m->y = srt_layer_relu(m->tape, srt_layer_add(m->tape, x, m->x));
	if (m->recompute)
		srt_tape_recompute_end(m->tape);
	CHECK_OK_OR_DIE(end_tape(m));
}

static void close_model(model_t *m)
{
	CHECK_OK(srt_stream_sync(tape_stream));
	srt_tape_destroy(m->tape);
	srt_buffer_destroy(m->arena);
	srt_engine_destroy(m->engine);
}

/* Two passes: the second one overwrites what the peers of the first one read. */
static void run_model(const model_t *m, result_t *r)
{
	const int64_t n = count_columns(m), first = m->whole ? 0 : rank * PART;
	float x[ROWS * MOST];

	for (int64_t i = 0; i < ROWS * n; i++)
		x[i] = (float)(((i / n * MOST + first + i % n) * 7919 + 13) % 101 - 50) / 16.0f;
	for (int i = 0; i < 2; i++) {
		CHECK_OK(srt_op_fill(srt_view(m->arena, 0, SRT_F32), NAN,
				     (int64_t)(srt_buffer_nbytes(m->arena) / sizeof(float)),
				     tape_stream));
		tape_put(srt_tensor_view(m->x), x, ROWS * n);
		CHECK_OK_OR_DIE(srt_tape_forward(m->tape, tape_stream));
		CHECK_OK_OR_DIE(srt_tape_backward(m->tape, 0.5f, (srt_view_t){ 0 }, tape_stream));
		CHECK_OK(srt_engine_finish_backward(m->engine, tape_stream));
		tape_get(test_local(m->trained, SRT_PARAM_GRAD), r->grad, (int64_t)world * PART);
		CHECK_OK_OR_DIE(srt_engine_step(m->engine, tape_stream));
	}
	tape_get(srt_tensor_view(m->y), r->y, ROWS * n);
	tape_get(srt_tensor_grad(m->x), r->xgrad, ROWS * n);
}

/* This rank's columns, and the whole gradient of the weight. */
static void check_columns(const result_t *got, const result_t *want)
{
	for (int row = 0; row < ROWS; row++) {
		const int at = (row * world + rank) * PART;

		CHECK_BITS(got->y + row * PART, want->y + at, PART);
		CHECK_BITS(got->xgrad + row * PART, want->xgrad + at, PART);
	}
	CHECK_BITS(got->grad, want->grad, world * PART);
}

static void test_bits(srt_dtype_t dtype)
{
	static result_t want, got;
	model_t whole = { .dtype = dtype, .whole = 1 };

	open_model(&whole);
	run_model(&whole, &want);
	close_model(&whole);
	CHECK(want.xgrad[0] != 0.0f && want.xgrad[0] != want.xgrad[1] &&
	      want.grad[0] != want.grad[1]);
	for (int recompute = 0; recompute < 2; recompute++) {
		model_t cut = { .dtype = dtype, .recompute = recompute };

		open_model(&cut);
		run_model(&cut, &got);
		check_columns(&got, &want);
		close_model(&cut);
	}
}

/* ---- mistakes ------------------------------------------------------------------------------ */

static void test_shape(void)
{
	model_t m = { .dtype = SRT_F32 };

	open_engine(&m);
	start_tape(&m, ROWS, 2 * PART);
	CHECK(record_norm(&m, m.x, m.trained, 0) == NULL);
	CHECK_STATUS(srt_tape_finish(m.tape), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("rmsnorm_gathered: parameter trained does not have the shape");
	close_model(&m);
}

static void test_other_rows(void)
{
	model_t m = { .dtype = SRT_F32 };

	open_engine(&m);
	start_tape(&m, ROWS + (rank == world - 1), PART);
	m.y = record_norm(&m, m.x, m.trained, 0);
	CHECK_STATUS(end_tape(&m), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("sum 0 is the input (5,20) f32 of rmsnorm_gathered trained on rank 0");
	close_model(&m);
}

int main(void)
{
	const char *const names[] = { "dp", "tp" };
	int shape[] = { 1, 0 };

	tape_begin();
	rank = srt_context_rank(tape_context);
	world = shape[1] = srt_context_world_size(tape_context);
	CHECK_OR_DIE(world <= MOST_RANKS);
	CHECK_OK_OR_DIE(srt_comm_split(srt_context_world(tape_context), rank, "alone", &alone));
	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(tape_context), 2, shape, names, &mesh));
	test_bits(SRT_F32);
	test_bits(SRT_BF16);
	test_bits(SRT_F16);
	test_shape();
	if (world > 1)
		test_other_rows();
	srt_mesh_destroy(mesh);
	srt_comm_destroy(alone);
	return tape_end();
}
