/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sequence parallelism over 1, 2 and 4 ranks: the gradients of all parameters, and the losses, have
 * the bits of the same tape without it, where a rank has 128 rows; in each dtype, kept and
 * recomputed, with frozen gains, and with a reader of gathered rows that no loss depends on. Its
 * arena is smaller. Layers that need all rows, and rows that cannot be divided, are refused.
 */
#include <string.h>

#include "tests/harness/options.h"
#include "tests/models/tape_case.h"

enum { OWN_ROWS = 128, N = 16, VOCAB = 16, MOST_RANKS = 4, ROWS = OWN_ROWS * MOST_RANKS };

enum { TABLE, GAMMA, UP, UNUSED, DOWN, DOWN_BIAS, SCALE, SHIFT, OUT, NPARAMS };

/* dim: that is cut; -1: none. */
static const struct {
	const char *name;
	int64_t shape[2];
	int ndim, dim;
} params[NPARAMS] = {
	[TABLE] = { "table", { VOCAB, N }, 2, 0 }, [GAMMA] = { "gamma", { N, 0 }, 1, -1 },
	[UP] = { "up", { N, N }, 2, 0 },           [UNUSED] = { "unused", { N, N }, 2, 0 },
	[DOWN] = { "down", { N, N }, 2, 1 },       [DOWN_BIAS] = { "bias", { N, 0 }, 1, -1 },
	[SCALE] = { "scale", { N, 0 }, 1, -1 },    [SHIFT] = { "shift", { N, 0 }, 1, -1 },
	[OUT] = { "out", { N, N }, 2, 0 },
};

typedef struct variant {
	int rows; /* sequence parallelism */
	int recompute, unused, frozen;
	srt_dtype_t dtype;
} variant_t;

typedef struct model {
	variant_t v;
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *param[NPARAMS];
	srt_tape_t *tape;
	srt_tensor_t *ids, *loss;
	srt_buffer_t *arena;
} model_t;

typedef struct result {
	float grad[NPARAMS][VOCAB * N], loss[ROWS];
	size_t nbytes;
} result_t;

static srt_mesh_t *mesh;
static int world;

static int is_trained(const model_t *m, int k)
{
	return !(m->v.frozen && (k == GAMMA || k == SHIFT)) && (k != UNUSED || m->v.unused);
}

static void open_engine(model_t *m)
{
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
					       .optim = OPTIM(.kind = SRT_OPTIM_NONE),
					       .mesh = mesh };

	CHECK_OK_OR_DIE(srt_engine_create(tape_context, &options, &m->engine));
	CHECK_OK_OR_DIE(srt_unit_create(m->engine, NULL, "root", NULL, &m->root));
	for (int k = 0; k < NPARAMS; k++) {
		srt_param_options_t o = { PARAM_BASE, .frozen = !is_trained(m, k) };

		if (params[k].dim >= 0)
			o.placement = (srt_placement_t){ .mesh_dim = "tp",
							 .tensor_dim = params[k].dim,
							 .nparts = MOST_RANKS };
		CHECK_OK_OR_DIE(srt_param_create(m->root, params[k].name, m->v.dtype,
						 params[k].ndim, params[k].shape, &o,
						 &m->param[k]));
	}
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	for (int k = 0; k < NPARAMS; k++)
		CHECK_OK(srt_param_init_normal(m->param[k], (uint64_t)k, 0.1f, 0.5f, tape_stream));
}

static void start_tape(model_t *m, int64_t rows)
{
	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &m->tape));
	srt_tape_set_mesh(m->tape, mesh, "tp");
	srt_tape_set_tensor_parts(m->tape, MOST_RANKS);
	if (m->v.rows)
		srt_tape_set_sequence_parallel(m->tape);
	m->ids = srt_tape_input(m->tape, SRT_I32, rows, 1);
	srt_tape_unit_begin(m->tape, m->root);
}

/* x += down(relu(up(rmsnorm(x)))); sum(out(layernorm(x))) */
static void record(model_t *m)
{
	srt_tape_t *t = m->tape;
	srt_param_t *const *p = m->param;
	srt_tensor_t *x = srt_layer_embedding_rowwise(t, m->ids, p[TABLE], NULL, 1), *y, *z;

	if (m->v.recompute)
		srt_tape_recompute_begin(t);
	y = srt_layer_rmsnorm(t, x, p[GAMMA], 1e-5f);
	z = srt_layer_linear_colwise(t, y, p[UP], NULL);
	if (m->v.unused)
		srt_tape_keep(t, srt_layer_linear_colwise(t, y, p[UNUSED], NULL));
	z = srt_layer_linear_rowwise(t, srt_layer_relu(t, z), p[DOWN], p[DOWN_BIAS]);
	x = srt_layer_add(t, x, z);
	if (m->v.recompute)
		srt_tape_recompute_end(t);
	x = srt_layer_layernorm(t, x, p[SCALE], p[SHIFT], 1e-5f);
	m->loss = srt_layer_sum(t, srt_layer_linear_colwise(t, x, p[OUT], NULL));
	srt_tape_keep(t, m->loss);
	srt_tape_unit_end(t);
}

static void close_model(model_t *m)
{
	CHECK_OK(srt_stream_sync(tape_stream));
	srt_tape_destroy(m->tape);
	srt_buffer_destroy(m->arena);
	srt_engine_destroy(m->engine);
}

/* Elements that this rank has. */
static int64_t count_own(const srt_param_t *param)
{
	int64_t shape[SRT_MAX_DIMS], nelem = 1;
	const int ndim = srt_param_partition(param, shape);

	for (int i = 0; i < ndim; i++)
		nelem *= shape[i];
	return nelem;
}

static void run(const model_t *m, result_t *r)
{
	const int64_t rows = (int64_t)OWN_ROWS * world;
	const srt_view_t ids = srt_tensor_view(m->ids);
	int32_t tokens[ROWS];

	for (int i = 0; i < rows; i++)
		tokens[i] = i * 7919 % 10007 % VOCAB;
	CHECK_OK(srt_op_fill(srt_view(m->arena, 0, SRT_F32), NAN,
			     (int64_t)(srt_buffer_nbytes(m->arena) / sizeof(float)), tape_stream));
	CHECK_OK(srt_buffer_copy_from_host(ids.buffer, ids.offset, tokens,
					   (size_t)rows * sizeof(*tokens), tape_stream));
	CHECK_OK_OR_DIE(srt_tape_forward(m->tape, tape_stream));
	CHECK_OK_OR_DIE(srt_tape_backward(m->tape, 0.5f, (srt_view_t){ 0 }, tape_stream));
	CHECK_OK(srt_engine_finish_backward(m->engine, tape_stream));
	for (int k = 0; k < NPARAMS; k++)
		if (is_trained(m, k) && k != UNUSED)
			tape_get(test_local(m->param[k], SRT_PARAM_GRAD), r->grad[k],
				 count_own(m->param[k]));
	tape_get(srt_tensor_view(m->loss), r->loss, rows);
	CHECK_OK_OR_DIE(srt_engine_step(m->engine, tape_stream));
}

static void compute(variant_t v, result_t *r)
{
	model_t m = { .v = v };

	memset(r, 0, sizeof(*r));
	open_engine(&m);
	start_tape(&m, (int64_t)OWN_ROWS * world);
	record(&m);
	CHECK_OK_OR_DIE(srt_tape_finish(m.tape));
	r->nbytes = srt_tape_nbytes(m.tape);
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, srt_tape_mem_kind(m.tape), r->nbytes,
					  "arena", &m.arena));
	CHECK_OK_OR_DIE(srt_tape_bind(m.tape, m.arena));
	run(&m, r);
	run(&m, r); /* overwrites what the peers of the first pass read */
	close_model(&m);
}

static void test_variant(variant_t v)
{
	static result_t whole, own;

	v.rows = 0;
	compute(v, &whole);
	v.rows = 1;
	compute(v, &own);
	for (int k = 0; k < NPARAMS; k++)
		CHECK(memcmp(whole.grad[k], own.grad[k], sizeof(own.grad[k])) == 0);
	CHECK(memcmp(whole.loss, own.loss, sizeof(own.loss)) == 0);
	CHECK(whole.loss[0] == whole.loss[0] && whole.grad[TABLE][0] == whole.grad[TABLE][0]);
	CHECK(world == 1 ? own.nbytes == whole.nbytes : own.nbytes < whole.nbytes);
}

static void test_refused(void)
{
	model_t m = { .v = { .rows = 1, .dtype = SRT_F32 } };
	srt_tensor_t *x;

	open_engine(&m);
	start_tape(&m, (int64_t)OWN_ROWS * world + 1);
	srt_layer_embedding_rowwise(m.tape, m.ids, m.param[TABLE], NULL, 1);
	srt_tape_unit_end(m.tape);
	CHECK(srt_tape_finish(m.tape) == (world > 1 ? SRT_ERR_INVALID_ARGUMENT : SRT_OK));
	srt_tape_destroy(m.tape);
	start_tape(&m, OWN_ROWS * world);
	x = srt_layer_embedding_rowwise(m.tape, m.ids, m.param[TABLE], NULL, 1);
	srt_layer_linear(m.tape, x, m.param[UP], NULL);
	srt_tape_unit_end(m.tape);
	if (world > 1) {
		CHECK(srt_tape_finish(m.tape) == SRT_ERR_UNSUPPORTED);
		CHECK(strstr(srt_error_last(), "linear: needs all rows") != NULL);
	}
	close_model(&m);
}

int main(void)
{
	static const char *const names[] = { "dp", "tp" };
	int sizes[] = { 1, 0 };

	tape_begin();
	world = sizes[1] = srt_context_world_size(tape_context);
	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(tape_context), 2, sizes, names, &mesh));
	test_variant((variant_t){ .dtype = SRT_F32 });
	test_variant((variant_t){ .dtype = SRT_F32, .unused = 1 });
	test_variant((variant_t){ .dtype = SRT_F32, .recompute = 1, .frozen = 1 });
	test_variant((variant_t){ .dtype = SRT_BF16, .frozen = 1 });
	test_variant((variant_t){ .dtype = SRT_BF16, .recompute = 1 });
	test_variant((variant_t){ .dtype = SRT_F16, .unused = 1 });
	test_refused();
	srt_mesh_destroy(mesh);
	return tape_end();
}
