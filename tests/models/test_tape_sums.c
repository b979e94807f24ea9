/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layers that are cut over tensor-parallel ranks, 1 to 4 of them: the bits of the whole layers
 * where all sums are exact, in an arena whose memory is shared and with sections that are
 * recomputed; attention with heads of this rank; norms of heads over micro-batches; 16-bit sums are
 * rounded once; tapes that differ.
 */
#include <stdlib.h>

#include "tests/harness/options.h"
#include "tests/models/tape_case.h"

enum { ROWS = 6, CONTEXT = 3, WIDTH = 8, HIDDEN = 7, BLOCKS = 3, HEAD_DIM = 4 };
enum { FC, FC_BIAS, OUT, OUT_BIAS, NPARAMS };

static srt_comm_t *alone;
static srt_mesh_t *mesh;
static int rank, world;

typedef struct model {
	int whole; /* 1: on this rank alone, without cuts */
	int recompute;
	srt_dtype_t dtype;
	int micros; /* micro-batches of a step; 0: 1 */
	srt_accumulation_t accumulation;
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *param[BLOCKS][NPARAMS];
	srt_tape_t *tape;
	srt_tensor_t *x, *y, *loss;
	srt_buffer_t *arena;
} model_t;

typedef struct result {
	float y[ROWS * WIDTH], xgrad[ROWS * WIDTH], losses[ROWS];
	float grads[BLOCKS][NPARAMS][3 * WIDTH * WIDTH];
} result_t;

static void open_engine(model_t *m)
{
	srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
					 .optim = OPTIM(.kind = SRT_OPTIM_NONE),
					 .accumulation = m->accumulation };

	options.microbatches = m->micros > 0 ? m->micros : 1;
	if (m->whole)
		options.comm = alone;
	else
		options.mesh = mesh;
	CHECK_OK_OR_DIE(srt_engine_create(tape_context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_unit_create(m->engine, NULL, "root", NULL, &m->root));
}

/* A parameter cut in dimension `dim`, -1: whole; its values are small integers. */
static srt_param_t *declare(model_t *m, const char *name, int64_t rows, int64_t n, int dim,
			    int nblocks)
{
	const int64_t shape[2] = { rows, n };
	srt_param_options_t options = { PARAM_BASE };
	srt_param_t *param;

	if (dim >= 0 && !m->whole)
		options.placement = (srt_placement_t){ "tp", dim, nblocks, 0 };
	CHECK_OK_OR_DIE(
		srt_param_create(m->root, name, m->dtype, n ? 2 : 1, shape, &options, &param));
	return param;
}

static void set_integers(srt_param_t *param)
{
	const int64_t nelem = srt_param_nelem(param);
	float *values = tape_zeros((size_t)nelem);

	for (int64_t i = 0; i < nelem; i++)
		values[i] = (float)((i * 7 + 3) % 5 - 2);
	CHECK_OK(srt_param_set(param, SRT_PARAM_VALUE, values, tape_stream));
	free(values);
}

static void bind(model_t *m)
{
	CHECK_OK(srt_tape_finish(m->tape));
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, srt_tape_mem_kind(m->tape),
					  srt_tape_nbytes(m->tape), "arena", &m->arena));
	CHECK_OK(srt_tape_bind(m->tape, m->arena));
}

static void start_tape(model_t *m, int64_t n)
{
	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &m->tape));
	srt_tape_set_mesh(m->tape, m->whole ? NULL : mesh, "tp");
	m->x = srt_tape_input(m->tape, m->dtype, ROWS, n);
	srt_tensor_require_grad(m->x);
	srt_tape_unit_begin(m->tape, m->root);
}

static void end_tape(model_t *m)
{
	m->loss = srt_layer_sum(m->tape, m->y);
	srt_tape_keep(m->tape, m->y);
	srt_tape_keep(m->tape, m->loss);
	srt_tape_unit_end(m->tape);
	bind(m);
}

static void close_model(model_t *m)
{
	CHECK_OK(srt_stream_sync(tape_stream));
	srt_tape_destroy(m->tape);
	srt_buffer_destroy(m->arena);
	srt_engine_destroy(m->engine);
}

static void put_integers(const model_t *m)
{
	float x[ROWS * 3 * WIDTH];

	for (int i = 0; i < ROWS * 3 * WIDTH; i++)
		x[i] = (float)((i * 5 + 1) % 7 - 3);
	tape_put(srt_tensor_view(m->x), x, (int64_t)tape_nelem(m->x));
}

static void pass(const model_t *m)
{
	CHECK_OK(srt_op_fill(srt_view(m->arena, 0, SRT_F32), NAN,
			     (int64_t)(srt_buffer_nbytes(m->arena) / sizeof(float)), tape_stream));
	put_integers(m);
	CHECK_OK_OR_DIE(srt_tape_forward(m->tape, tape_stream));
	CHECK_OK_OR_DIE(srt_tape_backward(m->tape, 0.5f, (srt_view_t){ 0 }, tape_stream));
}

/* ---- the feed-forward part --------------------------------------------------------------- */

/* x is used twice, so its gradient is merged; the residual passes the gradient on. */
static srt_tensor_t *record_block(model_t *m, srt_param_t **p, srt_tensor_t *x)
{
	srt_tensor_t *y;

	if (m->recompute)
		srt_tape_recompute_begin(m->tape);
	y = srt_layer_linear_colwise(m->tape, x, p[FC], p[FC_BIAS]);
	y = srt_layer_relu(m->tape, y);
	y = srt_layer_linear_rowwise(m->tape, y, p[OUT], p[OUT_BIAS]);
	y = srt_layer_relu(m->tape, srt_layer_add(m->tape, y, x));
	if (m->recompute)
		srt_tape_recompute_end(m->tape);
	return y;
}

static void open_blocks(model_t *m)
{
	srt_tensor_t *x;

	open_engine(m);
	for (int b = 0; b < BLOCKS; b++) {
		char name[] = { (char)('0' + b), 0, 0 };

		for (int k = 0; k < NPARAMS; k++) {
			const int64_t rows[] = { HIDDEN, HIDDEN, WIDTH, WIDTH };
			const int64_t n[] = { WIDTH, 0, HIDDEN, 0 };
			const int dim[] = { 0, 0, 1, -1 };

			name[1] = (char)('a' + k);
			m->param[b][k] = declare(m, name, rows[k], n[k], dim[k], 0);
		}
	}
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	for (int b = 0; b < BLOCKS; b++)
		for (int k = 0; k < NPARAMS; k++)
			set_integers(m->param[b][k]);
	start_tape(m, WIDTH);
	x = m->x;
	for (int b = 0; b < BLOCKS; b++)
		x = record_block(m, m->param[b], x);
	m->y = x;
	end_tape(m);
}

/* Three passes: the last one overwrites what the others' peers read. */
static void run_blocks(const model_t *m, result_t *r)
{
	memset(r, 0, sizeof(*r));
	for (int i = 0; i < 3; i++) {
		const uint64_t allocations = srt_device_allocations(tape_device);

		pass(m);
		/* A stream with a thread takes scratch when it runs a command. */
		CHECK_OK(srt_stream_sync(tape_stream));
		CHECK(i == 0 || srt_device_allocations(tape_device) == allocations);
		CHECK_OK_OR_DIE(srt_engine_step(m->engine, tape_stream));
	}
	tape_get(srt_tensor_view(m->y), r->y, ROWS * WIDTH);
	tape_get(srt_tensor_view(m->loss), r->losses, ROWS);
	tape_get(srt_tensor_grad(m->x), r->xgrad, ROWS * WIDTH);
	for (int b = 0; b < BLOCKS; b++)
		for (int k = 0; k < NPARAMS; k++)
			CHECK_OK(srt_param_get(m->param[b][k], SRT_PARAM_GRAD, r->grads[b][k],
					       tape_stream));
}

/* Whole and cut, kept and recomputed. */
static void test_blocks(void)
{
	static result_t want, got;
	model_t whole = { .dtype = SRT_F32, .whole = 1 };

	open_blocks(&whole);
	run_blocks(&whole, &want);
	close_model(&whole);
	CHECK(want.y[0] > 0.0f && want.grads[0][FC][0] != 0.0f);
	for (int recompute = 0; recompute < 2; recompute++) {
		model_t cut = { .dtype = SRT_F32, .recompute = recompute };

		open_blocks(&cut);
		run_blocks(&cut, &got);
		CHECK_BITS(got.y, want.y, ROWS * WIDTH);
		CHECK_BITS(got.losses, want.losses, ROWS);
		CHECK_BITS(got.xgrad, want.xgrad, ROWS * WIDTH);
		for (int b = 0; b < BLOCKS; b++)
			for (int k = 0; k < NPARAMS; k++)
				CHECK_BITS(got.grads[b][k], want.grads[b][k],
					   sizeof(got.grads[b][k]) / sizeof(float));
		close_model(&cut);
	}
}

/* ---- attention --------------------------------------------------------------------------- */

/* One head on each rank: its columns of the whole attention, bit for bit. */
static void open_attention(model_t *m)
{
	const int64_t width = (int64_t)world * HEAD_DIM;

	open_engine(m);
	m->param[0][FC] = declare(m, "qkv", 3 * width, WIDTH, 0, 3);
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	set_integers(m->param[0][FC]);
	start_tape(m, WIDTH);
	m->y = srt_layer_linear_colwise(m->tape, m->x, m->param[0][FC], NULL);
	m->y = srt_layer_attention(m->tape, m->y, CONTEXT, m->whole ? world : 1, 1);
	end_tape(m);
}

static void test_attention(void)
{
	model_t whole = { .dtype = SRT_F32, .whole = 1 }, cut = { .dtype = SRT_F32 };
	const size_t width = (size_t)world * HEAD_DIM;
	float *want = tape_zeros(ROWS * width), got[ROWS * HEAD_DIM];

	open_attention(&whole);
	open_attention(&cut);
	pass(&whole);
	pass(&cut);
	tape_get(srt_tensor_view(whole.y), want, (int64_t)(ROWS * width));
	tape_get(srt_tensor_view(cut.y), got, ROWS * HEAD_DIM);
	for (size_t i = 0; i < ROWS; i++)
		CHECK_BITS(got + i * HEAD_DIM, want + i * width + (size_t)rank * HEAD_DIM,
			   HEAD_DIM);
	close_model(&whole);
	close_model(&cut);
	free(want);
}

/* ---- norms of heads ------------------------------------------------------------------------ */

enum { MICROS = 3 };

/* A norm of one head on each rank, whose weight is used twice, and a frozen one. */
static void open_norms(model_t *m, srt_accumulation_t accumulation)
{
	const srt_rmsnorm_in_t in = { .eps = 0.0f };
	const int64_t shape[] = { HEAD_DIM };
	const int nheads = m->whole ? world : 1;
	srt_param_options_t frozen = { PARAM_BASE, .frozen = 1 };

	m->micros = MICROS;
	m->accumulation = accumulation;
	open_engine(m);
	m->param[0][OUT] = declare(m, "norm", HEAD_DIM, 0, -1, 0);
	CHECK_OK_OR_DIE(
		srt_param_create(m->root, "frozen", m->dtype, 1, shape, &frozen, &m->param[0][FC]));
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	for (int k = FC; k <= OUT; k += OUT - FC) {
		const float values[HEAD_DIM] = { 2, -2, 2, 2 };
		const unsigned short bits[HEAD_DIM] = { 0x4000, 0xc000, 0x4000, 0x4000 };

		CHECK_OK(srt_param_set(m->param[0][k], SRT_PARAM_VALUE,
				       m->dtype == SRT_F32 ? (const void *)values : bits,
				       tape_stream));
	}
	start_tape(m, nheads * HEAD_DIM);
	if (m->recompute)
		srt_tape_recompute_begin(m->tape);
	m->y = srt_layer_rmsnorm_colwise(m->tape, m->x, m->param[0][OUT], &in);
	m->y = srt_layer_rmsnorm_colwise(m->tape, m->y, m->param[0][FC], &in);
	m->y = srt_layer_rmsnorm_colwise(m->tape, m->y, m->param[0][OUT], &in);
	if (m->recompute)
		srt_tape_recompute_end(m->tape);
	m->y = srt_layer_relu(m->tape, m->y);
	end_tape(m);
}

/* All of a head's values are 4 or -4, so that its norm is exact; head h is that of rank h. */
static void run_norms(const model_t *m, float grad[HEAD_DIM])
{
	const int nheads = m->whole ? world : 1, first = m->whole ? 0 : rank;
	float *x = tape_zeros(ROWS * (size_t)nheads * HEAD_DIM);

	for (int micro = 0; micro < MICROS; micro++) {
		for (int i = 0; i < ROWS * nheads * HEAD_DIM; i++) {
			const int row = i / (nheads * HEAD_DIM), column = i % (nheads * HEAD_DIM);
			const int at = first * HEAD_DIM + column + 16 * (row + ROWS * micro);

			x[i] = at * at * 7 % 11 < 6 ? 4.0f : -4.0f;
		}
		tape_put(srt_tensor_view(m->x), x, (int64_t)tape_nelem(m->x));
		CHECK_OK(srt_engine_microbatch(m->engine, micro, MICROS));
		CHECK_OK_OR_DIE(srt_tape_forward(m->tape, tape_stream));
		CHECK_OK_OR_DIE(srt_tape_backward(m->tape, 0.5f, (srt_view_t){ 0 }, tape_stream));
	}
	CHECK_OK(srt_engine_finish_backward(m->engine, tape_stream));
	tape_get(test_local(m->param[0][OUT], SRT_PARAM_GRAD), grad, HEAD_DIM);
	CHECK_OK(srt_engine_step(m->engine, tape_stream));
	free(x);
}

/* The weight's gradient has the bits of all heads on one rank: each micro-batch and each use is
 * summed once. */
static void test_norms(srt_dtype_t dtype, srt_accumulation_t accumulation)
{
	model_t whole = { .dtype = dtype, .whole = 1 };
	float want[HEAD_DIM], got[HEAD_DIM];

	open_norms(&whole, accumulation);
	run_norms(&whole, want);
	close_model(&whole);
	CHECK(want[0] != 0.0f && want[1] != 0.0f);
	for (int recompute = 0; recompute < 2; recompute++) {
		model_t cut = { .dtype = dtype, .recompute = recompute };

		open_norms(&cut, accumulation);
		for (int step = 0; step < 2; step++) {
			run_norms(&cut, got);
			CHECK_BITS(got, want, HEAD_DIM);
		}
		close_model(&cut);
	}
}

/* ---- 16 bits ------------------------------------------------------------------------------ */

/* bf16 has 8 bits: 256 + 1 is 256, but 256 + 1 + 1, summed in fp32, is 258. */
static void test_rounding(void)
{
	model_t m = { .dtype = SRT_BF16 };
	float y[ROWS], ones[ROWS * 8];
	unsigned short bits[8];
	int want = 255 + world;

	open_engine(&m);
	m.param[0][OUT] = declare(&m, "out", 1, world, 1, 0);
	CHECK_OK_OR_DIE(srt_engine_build(m.engine));
	for (int i = 0; i < world; i++)
		bits[i] = i == 0 ? 0x4380 : 0x3f80; /* 256, 1, 1, ... */
	CHECK_OK(srt_param_set(m.param[0][OUT], SRT_PARAM_VALUE, bits, tape_stream));
	start_tape(&m, 1);
	m.y = srt_layer_linear_rowwise(m.tape, m.x, m.param[0][OUT], NULL);
	end_tape(&m);
	for (int i = 0; i < ROWS * 8; i++)
		ones[i] = 1.0f;
	tape_put(srt_tensor_view(m.x), ones, ROWS);
	CHECK_OK_OR_DIE(srt_tape_forward(m.tape, tape_stream));
	CHECK_OK_OR_DIE(srt_tape_backward(m.tape, 1.0f, (srt_view_t){ 0 }, tape_stream));
	tape_get(srt_tensor_view(m.y), y, ROWS);
	if (want % 2) /* to even */
		want += want % 4 == 1 ? -1 : 1;
	for (int i = 0; i < ROWS; i++)
		CHECK_MSG(y[i] == (float)want, "%g, should be %d", (double)y[i], want);
	close_model(&m);
}

/* ---- tapes that differ ---------------------------------------------------------------------- */

static void start_mistake(model_t *m)
{
	open_engine(m);
	m->param[0][OUT] = declare(m, "out", WIDTH, HIDDEN * world, 1, 0);
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_FORWARD, &m->tape));
}

static void test_mistake(int64_t rows, int nsums, const char *words)
{
	model_t m = { .dtype = SRT_F32 };

	start_mistake(&m);
	srt_tape_set_mesh(m.tape, mesh, "tp");
	m.x = srt_tape_input(m.tape, SRT_F32, rows, HIDDEN);
	srt_tape_unit_begin(m.tape, m.root);
	for (int i = 0; i < nsums; i++)
		CHECK(srt_layer_linear_rowwise(m.tape, m.x, m.param[0][OUT], NULL) != NULL);
	srt_tape_unit_end(m.tape);
	CHECK_OK_OR_DIE(srt_tape_finish(m.tape));
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, srt_tape_mem_kind(m.tape),
					  srt_tape_nbytes(m.tape), "arena", &m.arena));
	CHECK_STATUS(srt_tape_bind(m.tape, m.arena), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS(words);
	close_model(&m);
}

/* The last rank has no arena; the others hear of it. */
static void test_no_arena(int allocates)
{
	model_t m = { .dtype = SRT_F32 };
	char words[64];

	start_mistake(&m);
	srt_tape_set_mesh(m.tape, mesh, "tp");
	m.x = srt_tape_input(m.tape, SRT_F32, ROWS, HIDDEN);
	if (rank == world - 1)
		srt_tape_input(m.tape, SRT_F32, (int64_t)1 << 30, (int64_t)1 << 28);
	srt_tape_unit_begin(m.tape, m.root);
	srt_layer_linear_rowwise(m.tape, m.x, m.param[0][OUT], NULL);
	srt_tape_unit_end(m.tape);
	CHECK_OK_OR_DIE(srt_tape_finish(m.tape));
	if (rank < world - 1)
		CHECK_OK_OR_DIE(srt_buffer_create(tape_device, srt_tape_mem_kind(m.tape),
						  srt_tape_nbytes(m.tape), "arena", &m.arena));
	if (allocates)
		CHECK_STATUS(srt_tape_allocate(m.tape), SRT_ERR_OUT_OF_MEMORY);
	else
		CHECK_STATUS(srt_tape_bind(m.tape, m.arena), SRT_ERR_INVALID_ARGUMENT);
	snprintf(words, sizeof(words), "tensor-parallel rank %d cannot be bound: ", world - 1);
	CHECK_ERROR_HAS(rank < world - 1 ? words : allocates ? "activations" : "it got 0");
	CHECK(srt_tape_forward(m.tape, tape_stream) != SRT_OK);
	close_model(&m);
}

static void test_late_mesh(void)
{
	model_t m = { .dtype = SRT_F32 };

	start_mistake(&m);
	srt_tape_unit_begin(m.tape, m.root);
	srt_tape_set_mesh(m.tape, mesh, "tp");
	CHECK_STATUS(srt_tape_finish(m.tape), SRT_ERR_STATE);
	CHECK_ERROR_HAS("before its first layer");
	close_model(&m);
}

static void test_plan_mesh(void)
{
	const char *const names[] = { "dp", "tp" };
	const int shape[] = { 1, 2 };
	srt_mesh_t *plan;
	model_t m = { .dtype = SRT_F32 };

	CHECK_OK_OR_DIE(srt_mesh_create(NULL, 2, shape, names, &plan));
	start_mistake(&m);
	srt_tape_set_mesh(m.tape, plan, "tp");
	CHECK_INT(srt_tape_mem_kind(m.tape), SRT_MEM_DEVICE);
	srt_tape_input(m.tape, SRT_F32, 1, 1);
	CHECK_OK_OR_DIE(srt_tape_finish(m.tape));
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, SRT_MEM_DEVICE, srt_tape_nbytes(m.tape),
					  "arena", &m.arena));
	CHECK_STATUS(srt_tape_bind(m.tape, m.arena), SRT_ERR_STATE);
	CHECK_ERROR_HAS("cannot be bound");
	close_model(&m);
	srt_mesh_destroy(plan);
}

int main(void)
{
	const char *const names[] = { "dp", "tp" };
	int shape[] = { 1, 0 };

	tape_begin();
	rank = srt_context_rank(tape_context);
	world = shape[1] = srt_context_world_size(tape_context);
	CHECK_OK_OR_DIE(srt_comm_split(srt_context_world(tape_context), rank, "alone", &alone));
	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(tape_context), 2, shape, names, &mesh));
	test_blocks();
	test_attention();
	for (int last = 0; last < 2; last++) {
		test_norms(SRT_F32, last ? SRT_ACCUMULATE_LAST : SRT_ACCUMULATE_EVERY);
		test_norms(SRT_BF16, last ? SRT_ACCUMULATE_LAST : SRT_ACCUMULATE_EVERY);
	}
	test_rounding();
	if (world > 1) {
		test_mistake(ROWS + (rank == world - 1), 1, "sum 0 is the output (6,8) f32 of");
		test_mistake(ROWS, 1 + (rank == world - 1), "missing on rank 0");
		test_no_arena(0);
		test_no_arena(1);
	}
	test_late_mesh();
	test_plan_mesh();
	srt_mesh_destroy(mesh);
	srt_comm_destroy(alone);
	return tape_end();
}
