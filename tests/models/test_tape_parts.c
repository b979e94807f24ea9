/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tensor parts, 2 to 8 of them, on 1, 2 and 4 tensor-parallel ranks: values and gradients have the
 * bits of plain sums (parts_case.h), in each dtype, kept and recomputed. Arenas have the size that
 * is planned without ranks. Parts that do not fit are refused.
 */
#include <stdlib.h>

#include "tests/harness/half.h"
#include "tests/harness/options.h"
#include "tests/models/parts_case.h"
#include "tests/models/tape_case.h"

static srt_mesh_t *mesh;
static int rank, world;
/* Cases that would fail if parts were added in this order. */
static int shown[PARTS_NKINDS][PARTS_NORDERS];

typedef struct model {
	parts_case_t c;
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *weight[PARTS_BLOCKS], *bias;
	srt_tape_t *tape;
	srt_tensor_t *x, *by[PARTS_BLOCKS], *y; /* by: outputs are multiplied by it */
	srt_buffer_t *arena;
} model_t;

/* Elements of this rank, the first of them. */
static int64_t own_of(const model_t *m, int64_t *first)
{
	const int64_t most = parts_chunk(&m->c) * (m->c.nparts / world);

	*first = most * rank;
	return most < m->c.n - *first ? most : m->c.n - *first;
}

/* Projections with separate weights, and projections in one weight. */
static int weights_of(const model_t *m)
{
	return m->c.kind == PARTS_SEVERAL ? PARTS_BLOCKS : 1;
}

static int joint_of(const model_t *m)
{
	return m->c.kind == PARTS_JOINT ? PARTS_BLOCKS : 1;
}

/* ---- model ------------------------------------------------------------------------------- */

static srt_param_t *declare(const model_t *m, const char *name, int64_t rows, int64_t n, int dim,
			    int nblocks)
{
	const int64_t shape[2] = { rows, n };
	srt_param_options_t options = { PARAM_BASE };
	srt_param_t *param;

	if (dim >= 0)
		options.placement = (srt_placement_t){ "tp", dim, nblocks, m->c.nparts };
	CHECK_OK_OR_DIE(
		srt_param_create(m->root, name, m->c.dtype, n ? 2 : 1, shape, &options, &param));
	return param;
}

static void set_param(const model_t *m, srt_param_t *param, const float *values)
{
	const size_t nelem = (size_t)srt_param_nelem(param);
	void *stored = tape_zeros(nelem);

	for (size_t i = 0; i < nelem; i++)
		half_put(m->c.dtype, stored, i, values[i]);
	CHECK_OK(srt_param_set(param, SRT_PARAM_VALUE, stored, tape_stream));
	free(stored);
}

static void get_grad(const model_t *m, srt_param_t *param, float *values)
{
	const size_t nelem = (size_t)srt_param_nelem(param);
	void *stored = tape_zeros(nelem);

	CHECK_OK(srt_param_get(param, SRT_PARAM_GRAD, stored, tape_stream));
	for (size_t i = 0; i < nelem; i++)
		values[i] = half_get(m->c.dtype, stored, i);
	free(stored);
}

/* Rows and columns of a weight, as (h, other) of parts_weight(). */
static void set_weight(const model_t *m, int k)
{
	float values[PARTS_BLOCKS * PARTS_MOST * PARTS_OUT];
	const int joint = joint_of(m);
	int64_t at = 0;

	if (m->c.kind == PARTS_ROWWISE)
		for (int64_t o = 0; o < PARTS_OUT; o++)
			for (int64_t h = 0; h < m->c.n; h++)
				values[at++] = parts_weight(&m->c, 0, h, o);
	else if (m->c.kind == PARTS_NORMS)
		for (int64_t d = 0; d < PARTS_HEAD; d++)
			values[at++] = parts_weight(&m->c, 0, 0, d);
	else
		for (int64_t row = 0; row < joint * m->c.n; row++)
			for (int64_t i = 0; i < PARTS_WIDTH; i++)
				values[at++] = parts_weight(&m->c, k + (int)(row / m->c.n),
							    row % m->c.n, i);
	set_param(m, m->weight[k], values);
}

static void open_engine(model_t *m)
{
	static const char *const names[] = { "q", "k", "v" };
	const int nweights = weights_of(m), joint = joint_of(m);
	srt_engine_options_t options = { ENGINE_BASE, .mesh = mesh, .strategy = SRT_STRATEGY_ZERO3,
					 .optim = OPTIM(.kind = SRT_OPTIM_NONE) };
	float bias[PARTS_OUT];

	CHECK_OK_OR_DIE(srt_engine_create(tape_context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_unit_create(m->engine, NULL, "root", NULL, &m->root));
	for (int k = 0; k < nweights; k++)
		m->weight[k] = m->c.kind == PARTS_ROWWISE ?
				       declare(m, names[k], PARTS_OUT, m->c.n, 1, 1) :
			       m->c.kind == PARTS_NORMS ?
				       declare(m, names[k], PARTS_HEAD, 0, -1, 0) :
				       declare(m, names[k], joint * m->c.n, PARTS_WIDTH, 0, joint);
	m->bias = m->c.has_bias ? declare(m, "bias", PARTS_OUT, 0, -1, 0) : NULL;
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	for (int k = 0; k < nweights; k++)
		set_weight(m, k);
	for (int64_t i = 0; i < PARTS_OUT; i++)
		bias[i] = parts_bias(i);
	if (m->bias != NULL)
		set_param(m, m->bias, bias);
}

/* So the gradient of y, a projection or a norm, is a factor of parts_case.h. */
static srt_tensor_t *multiply(model_t *m, srt_tensor_t *y, int k)
{
	return srt_layer_mul(m->tape, y, m->by[k]);
}

static void record_several(model_t *m)
{
	for (int k = 0; k < PARTS_BLOCKS; k++) {
		srt_tensor_t *y;

		if (k == 1 && m->c.section == PARTS_AFTER_FIRST)
			srt_tape_recompute_begin(m->tape);
		y = srt_layer_linear_colwise(m->tape, m->x, m->weight[k], NULL);
		y = multiply(m, y, k);
		m->y = k ? srt_layer_add(m->tape, m->y, y) : y;
	}
}

static void record_layers(model_t *m)
{
	const srt_rmsnorm_in_t in = { .eps = 0.0f };

	if (m->c.section == PARTS_RECOMPUTED)
		srt_tape_recompute_begin(m->tape);
	if (m->c.kind == PARTS_SEVERAL)
		record_several(m);
	else if (m->c.kind == PARTS_ROWWISE)
		m->y = srt_layer_linear_rowwise(m->tape, m->x, m->weight[0], m->bias);
	else if (m->c.kind == PARTS_NORMS)
		m->y = multiply(m, srt_layer_rmsnorm_colwise(m->tape, m->x, m->weight[0], &in), 0);
	else
		m->y = multiply(m,
				srt_layer_linear_colwise_blocks(m->tape, m->x, m->weight[0], NULL,
								parts_blocks(&m->c)),
				0);
	if (m->c.section != PARTS_KEPT)
		srt_tape_recompute_end(m->tape);
}

static void record(model_t *m, const srt_mesh_t *on)
{
	int64_t first;
	const int64_t own = own_of(m, &first) * parts_units(&m->c);
	const int is_cut = m->c.kind == PARTS_ROWWISE || m->c.kind == PARTS_NORMS;

	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &m->tape));
	srt_tape_set_mesh(m->tape, on, "tp");
	srt_tape_set_tensor_parts(m->tape, m->c.nparts);
	m->x = srt_tape_input(m->tape, m->c.dtype, PARTS_ROWS, is_cut ? own : PARTS_WIDTH);
	if (!m->c.no_grad)
		srt_tensor_require_grad(m->x);
	for (int k = 0; k < weights_of(m); k++)
		m->by[k] = srt_tape_input(m->tape, m->c.dtype, PARTS_ROWS, joint_of(m) * own);
	srt_tape_unit_begin(m->tape, m->root);
	record_layers(m);
	srt_tape_keep(m->tape, m->y);
	srt_tape_keep(m->tape, srt_layer_sum(m->tape, m->y));
	srt_tape_unit_end(m->tape);
	CHECK_OK_OR_DIE(srt_tape_finish(m->tape));
}

/* The arena has the size that a tape has that is recorded without the ranks. */
static void check_plan(const model_t *m)
{
	const char *const names[] = { "dp", "tp" };
	const int shape[] = { 1, world };
	model_t plan = *m;
	srt_mesh_t *on;

	CHECK_OK_OR_DIE(srt_mesh_create(NULL, 2, shape, names, &on));
	record(&plan, on);
	CHECK_INT(srt_tape_nbytes(plan.tape), srt_tape_nbytes(m->tape));
	srt_tape_destroy(plan.tape);
	srt_mesh_destroy(on);
}

static void open_model(model_t *m)
{
	open_engine(m);
	record(m, mesh);
	if (rank == 0)
		check_plan(m);
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, srt_tape_mem_kind(m->tape),
					  srt_tape_nbytes(m->tape), "arena", &m->arena));
	CHECK_OK_OR_DIE(srt_tape_bind(m->tape, m->arena));
}

static void close_model(const model_t *m)
{
	CHECK_OK(srt_stream_sync(tape_stream));
	srt_tape_destroy(m->tape);
	srt_buffer_destroy(m->arena);
	srt_engine_destroy(m->engine);
}

static void put_inputs(const model_t *m)
{
	float values[PARTS_ROWS * PARTS_BLOCKS * PARTS_MOST * PARTS_HEAD];
	int64_t first, at = 0;
	const int64_t own = own_of(m, &first), unit = parts_units(&m->c);
	const int joint = joint_of(m);

	for (int k = 0; k < weights_of(m); k++) {
		at = 0;
		for (int64_t r = 0; r < PARTS_ROWS; r++)
			for (int64_t j = 0; j < joint * own * unit; j++)
				values[at++] = parts_factor(&m->c, k + (int)(j / unit / own),
							    first + j / unit % own, r);
		tape_put(srt_tensor_view(m->c.kind == PARTS_ROWWISE ? m->x : m->by[k]), values, at);
	}
	at = 0;
	for (int64_t r = 0; r < PARTS_ROWS && m->c.kind == PARTS_NORMS; r++)
		for (int64_t j = 0; j < own * unit; j++)
			values[at++] = parts_x_of_head(r, first + j / unit, j % unit);
	for (int64_t r = 0;
	     r < PARTS_ROWS && m->c.kind != PARTS_NORMS && m->c.kind != PARTS_ROWWISE; r++)
		for (int64_t i = 0; i < PARTS_WIDTH; i++)
			values[at++] = parts_x(r, i);
	if (at > 0 && m->c.kind != PARTS_ROWWISE)
		tape_put(srt_tensor_view(m->x), values, at);
}

/* Twice: the second one overwrites what the others' peers read. Nothing is allocated. */
static void run(const model_t *m)
{
	for (int i = 0; i < 2; i++) {
		const uint64_t allocations = srt_device_allocations(tape_device);

		CHECK_OK(srt_op_fill(srt_view(m->arena, 0, SRT_F32), NAN,
				     (int64_t)(srt_buffer_nbytes(m->arena) / sizeof(float)),
				     tape_stream));
		put_inputs(m);
		CHECK_OK_OR_DIE(srt_tape_forward(m->tape, tape_stream));
		CHECK_OK_OR_DIE(srt_tape_backward(m->tape, 0.5f, (srt_view_t){ 0 }, tape_stream));
		CHECK_OK_OR_DIE(srt_engine_step(m->engine, tape_stream));
		CHECK_OK(srt_stream_sync(tape_stream));
		CHECK(i == 0 || srt_device_allocations(tape_device) == allocations);
	}
}

/* ---- comparison ------------------------------------------------------------------------------ */

static void check_sums(const model_t *m)
{
	float want[PARTS_ROWS * PARTS_OUT], got[PARTS_ROWS * PARTS_OUT];
	int64_t rows, n = parts_count(&m->c, &rows), at = 0;

	for (int64_t r = 0; r < rows; r++)
		for (int64_t i = 0; i < n; i++)
			want[at++] = parts_want(&m->c, r, i, PARTS_TREE);
	if (m->c.kind == PARTS_NORMS)
		get_grad(m, m->weight[0], got);
	else
		tape_get(m->c.kind == PARTS_ROWWISE ? srt_tensor_view(m->y) : srt_tensor_grad(m->x),
			 got, at);
	CHECK_BITS(got, want, (size_t)at);
}

/* Values and gradients that are not cut, so exact but for the dtype. */
static void check_others(const model_t *m)
{
	const int joint = joint_of(m);
	float got[PARTS_BLOCKS * PARTS_MOST * PARTS_OUT];

	if (m->c.kind == PARTS_NORMS)
		return;
	for (int k = 0; k < weights_of(m); k++) {
		const int64_t n = m->c.kind == PARTS_ROWWISE ? PARTS_OUT : PARTS_WIDTH;

		get_grad(m, m->weight[k], got);
		for (int64_t row = 0; row < joint * m->c.n; row++)
			for (int64_t i = 0; i < n; i++) {
				const int block = k + (int)(row / m->c.n);
				const int64_t h = row % m->c.n;
				float sum = 0.0f;

				for (int64_t r = 0; r < PARTS_ROWS; r++)
					sum += 0.5f * parts_factor(&m->c, block, h, r) *
					       (m->c.kind == PARTS_ROWWISE ? 1.0f : parts_x(r, i));
				sum = half_round(m->c.dtype, sum);
				CHECK(got[m->c.kind == PARTS_ROWWISE ? i * m->c.n + h :
								       row * n + i] == sum);
			}
	}
	if (m->bias == NULL)
		return;
	get_grad(m, m->bias, got);
	for (int64_t i = 0; i < PARTS_OUT; i++)
		CHECK(got[i] == 0.5f * PARTS_ROWS);
}

static void test_model(model_t m)
{
	open_model(&m);
	run(&m);
	if (!m.c.no_grad)
		check_sums(&m);
	check_others(&m);
	close_model(&m);
}

static void test_kind(parts_kind_t kind, srt_dtype_t dtype, int nparts)
{
	model_t m = { .c = { .kind = kind, .dtype = dtype, .nparts = nparts, .n = PARTS_MOST } };

	for (parts_order_t order = 0; order < PARTS_NORDERS; order++)
		shown[kind][order] += parts_show(&m.c, order);
	for (m.c.section = 0;
	     m.c.section <= (kind == PARTS_SEVERAL ? PARTS_AFTER_FIRST : PARTS_RECOMPUTED);
	     m.c.section++)
		test_model(m);
	m.c.section = PARTS_RECOMPUTED;
	m.c.has_bias = kind == PARTS_ROWWISE;
	m.c.no_grad = kind == PARTS_COLWISE || kind == PARTS_SEVERAL;
	if (m.c.has_bias || m.c.no_grad)
		test_model(m);
	m.c.section = PARTS_KEPT;
	m.c.no_grad = 0;
	m.c.n = PARTS_MOST - 3; /* the last part is shorter, the last of 8 empty */
	if (kind != PARTS_NORMS)
		test_model(m);
}

/* ---- mistakes ------------------------------------------------------------------------------ */

enum mistake { LATE, THREE, UNLIKE, RUNS, NMISTAKES };

static void test_mistake(enum mistake mistake)
{
	static const char *const words[] = {
		[LATE] = "the tensor parts of a tape are set before its first layer",
		[THREE] = "3 tensor parts for",
		[UNLIKE] = "which are not its",
		[RUNS] = "runs of a row cannot be divided among this rank's",
	};
	const srt_rmsnorm_in_t in = { .eps = 0.0f };
	model_t m = { .c = { .dtype = SRT_F32, .nparts = 4, .n = PARTS_MOST - 1 } };
	srt_param_t *norm;

	CHECK_OK_OR_DIE(
		srt_engine_create(tape_context,
				  &(srt_engine_options_t){ ENGINE_BASE, .mesh = mesh,
							   .optim = OPTIM(.kind = SRT_OPTIM_NONE) },
				  &m.engine));
	CHECK_OK_OR_DIE(srt_unit_create(m.engine, NULL, "root", NULL, &m.root));
	m.weight[0] = declare(&m, "weight", m.c.n, PARTS_WIDTH, 0, 1);
	norm = declare(&m, "norm", PARTS_HEAD, 0, -1, 0);
	CHECK_OK_OR_DIE(srt_engine_build(m.engine));
	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &m.tape));
	srt_tape_set_mesh(m.tape, mesh, "tp");
	srt_tape_set_tensor_parts(m.tape, mistake == THREE ? 3 : mistake == UNLIKE ? 4 : 8);
	m.x = srt_tape_input(m.tape, SRT_F32, PARTS_ROWS,
			     mistake == RUNS ? PARTS_HEAD : PARTS_WIDTH);
	srt_tape_unit_begin(m.tape, m.root);
	if (mistake == UNLIKE)
		srt_layer_linear_rowwise(m.tape, m.x, m.weight[0], NULL);
	if (mistake == RUNS)
		srt_layer_rmsnorm_colwise(m.tape, m.x, norm, &in);
	if (mistake == LATE) {
		srt_layer_relu(m.tape, m.x);
		srt_tape_set_tensor_parts(m.tape, 4);
	}
	srt_tape_unit_end(m.tape);
	CHECK(srt_tape_finish(m.tape) != SRT_OK);
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
	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(tape_context), 2, shape, names, &mesh));
	for (int nparts = world > 1 ? world : 2; nparts <= SRT_TAPE_MOST_PARTS; nparts *= 2)
		for (parts_kind_t kind = 0; kind < PARTS_NKINDS; kind++) {
			test_kind(kind, SRT_F32, nparts);
			test_kind(kind, SRT_F16, nparts);
			test_kind(kind, SRT_BF16, nparts);
		}
	for (parts_kind_t kind = 0; kind < PARTS_NKINDS; kind++) {
		const int has_blocks = kind == PARTS_SEVERAL || kind == PARTS_JOINT;

		CHECK(shown[kind][PARTS_ONE_BY_ONE] && shown[kind][PARTS_ROUNDED]);
		CHECK(shown[kind][PARTS_BLOCKS_TURNED] || !has_blocks);
	}
	for (enum mistake mistake = 0; mistake < NMISTAKES; mistake++)
		if (mistake != UNLIKE || world > 1)
			test_mistake(mistake);
	srt_mesh_destroy(mesh);
	return tape_end();
}
