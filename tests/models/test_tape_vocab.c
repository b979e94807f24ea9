/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A vocabulary that is cut over tensor-parallel ranks, 1 to 4 of them: embedding, head and
 * cross-entropy against the whole model on each rank alone. Embeddings and logits have its bits;
 * losses and gradients are equal within a tolerance, and the losses have the same bits on all
 * ranks, whatever the chunks of the head, and are 0 where there is no target. With tensor parts all
 * have the bits of one rank. Wrong shapes and tapes that differ are refused.
 */
#include <stdlib.h>

#include "models/hash.h"
#include "tests/harness/half.h"
#include "tests/harness/options.h"
#include "tests/models/tape_case.h"

/* Three chunks of the head, the last one short; ranks have unequal parts of the vocabulary. */
enum {
	CONTEXT = 5,
	BATCH = 206,
	ROWS = CONTEXT * BATCH,
	WIDTH = 8,
	VOCAB = 23,
	PADDING = 17,
	NPARAMS = 2
};
enum { TABLE, POSITION };

static srt_comm_t *alone;
static srt_mesh_t *mesh;
static int rank, world;

/* How the loss is made: by the fused head, or from logits that exist. */
enum head { FUSED, LOGITS };

typedef struct model {
	int whole; /* 1: on this rank alone, without cuts */
	enum head head;
	int64_t chunk_rows;
	int nparts; /* tensor parts; 0: none */
	srt_tape_mode_t mode;
	srt_dtype_t dtype;
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *param[NPARAMS];
	srt_tape_t *tape;
	srt_tensor_t *ids, *targets, *x, *loss;
	srt_buffer_t *arena;
} model_t;

typedef struct result {
	float x[ROWS * WIDTH], losses[ROWS];
	float grads[NPARAMS][VOCAB * WIDTH];
} result_t;

static void declare(model_t *m)
{
	static const char *const names[] = { "table", "position" };
	const int64_t rows[] = { VOCAB, CONTEXT + 1 };
	srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
					 .optim = OPTIM(.kind = SRT_OPTIM_NONE) };

	if (m->whole)
		options.comm = alone;
	else
		options.mesh = mesh;
	CHECK_OK_OR_DIE(srt_engine_create(tape_context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_unit_create(m->engine, NULL, "root", NULL, &m->root));
	for (int k = 0; k < NPARAMS; k++) {
		const int64_t shape[2] = { rows[k], WIDTH };
		srt_param_options_t po = { PARAM_BASE };

		if (k == TABLE && !m->whole)
			po.placement = (srt_placement_t){ "tp", 0, 0, m->nparts };
		CHECK_OK_OR_DIE(
			srt_param_create(m->root, names[k], m->dtype, 2, shape, &po, &m->param[k]));
	}
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
}

/* Values up to 3 in size: logits up to about 30, so one rank's part may count for nothing.
 * Exact in 16 bits. */
static void set_values(const model_t *m)
{
	for (int k = 0; k < NPARAMS; k++) {
		const int64_t nelem = srt_param_nelem(m->param[k]);
		float *values = tape_zeros((size_t)nelem);
		unsigned short *halves = tape_zeros((size_t)nelem);

		for (int64_t i = 0; i < nelem; i++) {
			uint64_t h = srt_counter_hash(7, (uint64_t)k, (uint64_t)i);

			values[i] = (float)((int64_t)(h % 193) - 96) / 32.0f;
			halves[i] = half_bits(m->dtype, values[i]);
		}
		CHECK_OK(srt_param_set(m->param[k], SRT_PARAM_VALUE,
				       m->dtype == SRT_F32 ? (void *)values : (void *)halves,
				       tape_stream));
		free(values);
		free(halves);
	}
}

static srt_tensor_t *record_loss(const model_t *m)
{
	srt_tensor_t *logits;

	if (m->head == FUSED)
		return srt_layer_head_loss_colwise(m->tape, m->x, m->param[TABLE], m->targets,
						   m->chunk_rows);
	logits = srt_layer_linear_colwise(m->tape, m->x, m->param[TABLE], NULL);
	return srt_layer_cross_entropy_colwise(m->tape, logits, m->targets, VOCAB);
}

static void start_tape(model_t *m)
{
	CHECK_OK_OR_DIE(srt_tape_create(tape_device, m->mode, &m->tape));
	srt_tape_set_mesh(m->tape, m->whole ? NULL : mesh, "tp");
	if (m->nparts > 0)
		srt_tape_set_tensor_parts(m->tape, m->nparts);
	m->ids = srt_tape_input(m->tape, SRT_I32, ROWS, 1);
	m->targets = srt_tape_input(m->tape, SRT_I32, ROWS, 1);
	srt_tape_unit_begin(m->tape, m->root);
}

static void bind(model_t *m)
{
	CHECK_OK_OR_DIE(srt_tape_finish(m->tape));
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, srt_tape_mem_kind(m->tape),
					  srt_tape_nbytes(m->tape), "arena", &m->arena));
}

static void open_model(model_t *m)
{
	declare(m);
	set_values(m);
	start_tape(m);
	m->x = srt_layer_embedding_rowwise_padded(m->tape, m->ids, m->param[TABLE],
						  m->param[POSITION], CONTEXT, PADDING);
	srt_tape_keep(m->tape, m->x);
	m->loss = record_loss(m);
	srt_tape_keep(m->tape, m->loss);
	srt_tape_unit_end(m->tape);
	bind(m);
	CHECK_OK_OR_DIE(srt_tape_bind(m->tape, m->arena));
}

static void close_model(model_t *m)
{
	CHECK_OK(srt_stream_sync(tape_stream));
	srt_tape_destroy(m->tape);
	srt_buffer_destroy(m->arena);
	srt_engine_destroy(m->engine);
}

/* Three passes: the last one overwrites what the others' peers read. */
static void run(const model_t *m, result_t *r)
{
	int32_t ids[ROWS], targets[ROWS];

	memset(r, 0, sizeof(*r));
	for (int i = 0; i < ROWS; i++) {
		ids[i] = (int32_t)(srt_counter_hash(1, (uint64_t)i, 0) % VOCAB);
		targets[i] = (int32_t)(srt_counter_hash(2, (uint64_t)i, 0) % VOCAB);
		if (i % 7 == 3)
			targets[i] = -1;
	}
	for (int i = 0; i < 3; i++) {
		const uint64_t allocations = srt_device_allocations(tape_device);

		CHECK_OK(srt_op_fill(srt_view(m->arena, 0, SRT_F32), NAN,
				     (int64_t)(srt_buffer_nbytes(m->arena) / sizeof(float)),
				     tape_stream));
		tape_put(srt_tensor_view(m->ids), ids, ROWS);
		tape_put(srt_tensor_view(m->targets), targets, ROWS);
		CHECK_OK_OR_DIE(srt_tape_forward(m->tape, tape_stream));
		if (m->mode == SRT_TAPE_TRAINING) {
			CHECK_OK_OR_DIE(srt_tape_backward(m->tape, 1.0f / 64.0f, (srt_view_t){ 0 },
							  tape_stream));
			CHECK_OK_OR_DIE(srt_engine_step(m->engine, tape_stream));
		}
		/* A stream with a thread takes scratch when it runs a command. */
		CHECK_OK(srt_stream_sync(tape_stream));
		CHECK(i == 0 || srt_device_allocations(tape_device) == allocations);
	}
	tape_get(srt_tensor_view(m->x), r->x, ROWS * WIDTH);
	tape_get(srt_tensor_view(m->loss), r->losses, ROWS);
	for (int k = 0; k < NPARAMS && m->mode == SRT_TAPE_TRAINING; k++) {
		const int64_t nelem = srt_param_nelem(m->param[k]);
		unsigned short halves[VOCAB * WIDTH];

		CHECK_OK(srt_param_get(m->param[k], SRT_PARAM_GRAD,
				       m->dtype == SRT_F32 ? (void *)r->grads[k] : (void *)halves,
				       tape_stream));
		for (int64_t i = 0; i < nelem && m->dtype != SRT_F32; i++)
			r->grads[k][i] = half_value(m->dtype, halves[i]);
	}
}

/* The largest difference as a part of the largest value. */
static double difference(const float *got, const float *want, size_t n)
{
	double most = 0.0, largest = 0.0;

	for (size_t i = 0; i < n; i++) {
		const double off = fabs((double)got[i] - (double)want[i]);

		most = off > most || off != off ? off : most;
		largest = fabs((double)want[i]) > largest ? fabs((double)want[i]) : largest;
	}
	return most / largest;
}

/* All ranks have the values that this one has. */
static void check_ranks_equal(const float *values, size_t n)
{
	float *all = tape_zeros(n * (size_t)world);

	CHECK_OK_OR_DIE(srt_comm_oob_allgather(srt_context_world(tape_context), values,
					       n * sizeof(float), all));
	for (int r = 0; r < world; r++)
		CHECK_BITS(all + (size_t)r * n, values, n);
	free(all);
}

/* The largest difference of a loss, as a part of 1 + the loss. */
static double loss_difference(const float *got, const float *want)
{
	double most = 0.0;

	for (int i = 0; i < ROWS; i++) {
		const double off = fabs((double)got[i] - (double)want[i]) / (1.0 + (double)want[i]);

		most = off > most || off != off ? off : most;
	}
	return most;
}

static void check_result(const result_t *got, const result_t *want, srt_dtype_t dtype)
{
	const double worst = loss_difference(got->losses, want->losses);
	const double limit = dtype == SRT_F32 ? 2e-6 : dtype == SRT_F16 ? 4e-3 : 3e-2;

	CHECK_BITS(got->x, want->x, ROWS * WIDTH);
	check_ranks_equal(got->losses, ROWS);
	CHECK_MSG(worst <= 1e-6, "a loss is off by %.2e", worst);
	for (int k = 0; k < NPARAMS; k++) {
		const double off = difference(got->grads[k], want->grads[k], VOCAB * WIDTH);

		CHECK_MSG(off <= limit, "gradient %d of %s: off by %.2e, at most %.2e", k,
			  srt_dtype_name(dtype), off, limit);
		check_ranks_equal(got->grads[k], VOCAB * WIDTH);
	}
}

/* With tensor parts all ranks have the bits of one rank, whatever the chunks of the head; without
 * a head that is fused the losses are the same. They are those without parts within a tolerance. */
static void test_parts(srt_dtype_t dtype, int nparts, const result_t *without)
{
	static result_t want, got;

	for (int i = 0; i < 4; i++) {
		model_t m = { .whole = i == 0,
			      .head = i == 3 ? LOGITS : FUSED,
			      .chunk_rows = i == 2 ? 2 * SRT_HEAD_ROWS : 0,
			      .nparts = nparts,
			      .mode = SRT_TAPE_TRAINING,
			      .dtype = dtype };

		open_model(&m);
		run(&m, &got);
		close_model(&m);
		check_result(&got, without, dtype);
		if (i == 0)
			want = got;
		CHECK_BITS(got.losses, want.losses, ROWS);
		for (int k = 0; k < NPARAMS && (i < 2 || m.chunk_rows); k++)
			CHECK_BITS(got.grads[k], want.grads[k], VOCAB * WIDTH);
	}
}

static void test_model(srt_dtype_t dtype)
{
	static result_t want, first, got;
	model_t whole = { .whole = 1, .mode = SRT_TAPE_TRAINING, .dtype = dtype };

	open_model(&whole);
	run(&whole, &want);
	close_model(&whole);
	CHECK(want.losses[0] > 0.0f && want.grads[TABLE][0] != 0.0f);
	CHECK(want.losses[3] == 0.0f);
	for (int i = 0; i < 3; i++) {
		model_t m = { .head = i == 2 ? LOGITS : FUSED,
			      .chunk_rows = i == 1 ? 2 * SRT_HEAD_ROWS : 0,
			      .mode = SRT_TAPE_TRAINING,
			      .dtype = dtype };

		open_model(&m);
		run(&m, &got);
		close_model(&m);
		check_result(&got, &want, dtype);
		if (i == 0)
			first = got;
		CHECK_BITS(got.losses, first.losses, ROWS);
		if (i == 1)
			for (int k = 0; k < NPARAMS; k++)
				CHECK_BITS(got.grads[k], first.grads[k], VOCAB * WIDTH);
		if (world == 1)
			CHECK_BITS(got.losses, want.losses, ROWS);
	}
	for (int nparts = 2; nparts <= SRT_TAPE_MOST_PARTS; nparts *= 2)
		if (nparts % world == 0)
			test_parts(dtype, nparts, &want);
	for (int i = 0; i < 2; i++) {
		model_t m = { .head = i ? LOGITS : FUSED,
			      .mode = SRT_TAPE_FORWARD,
			      .dtype = dtype };

		open_model(&m);
		run(&m, &got);
		close_model(&m);
		CHECK_BITS(got.losses, first.losses, ROWS);
	}
}

/* The rows of the table as columns: the logits of a row of 1, 0, 0, ... are its first column. */
static void test_columns(void)
{
	model_t m = { .mode = SRT_TAPE_FORWARD, .dtype = SRT_F32 };
	float one[WIDTH] = { 1.0f }, got[VOCAB], table[VOCAB * WIDTH];
	srt_tensor_t *x, *y;

	declare(&m);
	set_values(&m);
	CHECK_OK(srt_param_get(m.param[TABLE], SRT_PARAM_VALUE, table, tape_stream));
	start_tape(&m);
	x = srt_tape_input(m.tape, SRT_F32, 1, WIDTH);
	y = srt_layer_linear_colwise(m.tape, x, m.param[TABLE], NULL);
	y = srt_layer_gather_columns(m.tape, y, VOCAB);
	srt_tape_keep(m.tape, y);
	srt_tape_unit_end(m.tape);
	bind(&m);
	CHECK_OK_OR_DIE(srt_tape_bind(m.tape, m.arena));
	tape_put(srt_tensor_view(x), one, WIDTH);
	CHECK_OK_OR_DIE(srt_tape_forward(m.tape, tape_stream));
	tape_get(srt_tensor_view(y), got, VOCAB);
	for (int i = 0; i < VOCAB; i++)
		CHECK(got[i] == table[i * WIDTH]);
	close_model(&m);
}

/* ---- mistakes ------------------------------------------------------------------------------- */

enum mistake { WHOLE_TABLE, NARROW_LOGITS, TWO_ROWS, UNALIKE, NMISTAKES };

static void test_mistake(enum mistake mistake)
{
	static const char *const words[] = {
		[WHOLE_TABLE] = "embedding_rowwise: tensor-parallel rank",
		[NARROW_LOGITS] = "cross-entropy: logits of 8 columns",
		[TWO_ROWS] = "gather_columns: needs one row",
		[UNALIKE] = ("sum 0 is the statistics (512,3) f32 of head_loss_colwise table on "
			     "rank 0 and the statistics (1024,3)"),
	};
	model_t m = { .mode = SRT_TAPE_FORWARD, .dtype = SRT_F32 };
	srt_tensor_t *x;

	declare(&m);
	start_tape(&m);
	x = srt_tape_input(m.tape, SRT_F32, ROWS, WIDTH);
	if (mistake == WHOLE_TABLE)
		srt_layer_embedding_rowwise(m.tape, m.ids, m.param[POSITION], NULL, CONTEXT);
	if (mistake == NARROW_LOGITS)
		srt_layer_cross_entropy_colwise(m.tape, x, m.targets, VOCAB + WIDTH * world);
	if (mistake == TWO_ROWS)
		srt_layer_gather_columns(m.tape, x, WIDTH * world);
	if (mistake == UNALIKE)
		srt_layer_head_loss_colwise(m.tape, x, m.param[TABLE], m.targets,
					    (rank == world - 1 ? 2 : 1) * SRT_HEAD_ROWS);
	srt_tape_unit_end(m.tape);
	if (mistake == UNALIKE) {
		bind(&m);
		CHECK_STATUS(srt_tape_bind(m.tape, m.arena), SRT_ERR_MISMATCH);
	} else {
		CHECK_STATUS(srt_tape_finish(m.tape), SRT_ERR_INVALID_ARGUMENT);
	}
	CHECK_ERROR_HAS(words[mistake]);
	close_model(&m);
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
	test_model(SRT_F32);
	test_model(SRT_F16);
	test_model(SRT_BF16);
	test_columns();
	for (enum mistake mistake = 0; mistake < NMISTAKES && world > 1; mistake++)
		test_mistake(mistake);
	srt_mesh_destroy(mesh);
	srt_comm_destroy(alone);
	return tape_end();
}
