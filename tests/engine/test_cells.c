/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parameters that are cut over a mesh: steps with equal gradients have the bits of an engine on the
 * data-parallel ranks alone, and so have values that are set, loaded and initialised.
 * Run by test_cells.sh.
 */
#include <stdio.h>
#include <unistd.h>

#include "runtime/engine/declare/declare.h"
#include "tests/engine/engine_case.h"

#define STEPS 2
#define CHECK_SAME(a, b) CHECK_MSG((a) == (b), "%g, not %g", (double)(a), (double)(b))

static srt_context_t *context;

/* A mesh of all ranks with the dimension tp. */
typedef struct shape {
	int ndim, size[3];
	const char *names[3];
} shape_t;

static const shape_t shapes[] = {
	{ 2, { 1, 2 }, { "dp", "tp" } },
	{ 2, { 1, 3 }, { "dp", "tp" } },
	{ 2, { 2, 2 }, { "dp", "tp" } },
	{ 2, { 2, 2 }, { "tp", "dp" } },
	{ 2, { 3, 2 }, { "dp", "tp" } },
	{ 2, { 2, 3 }, { "dp", "tp" } },
	{ 3, { 2, 1, 3 }, { "replicate", "shard", "tp" } },
	{ 3, { 2, 2, 2 }, { "replicate", "shard", "tp" } },
};

static bool has_dim(const shape_t *shape, const char *name)
{
	for (int i = 0; i < shape->ndim; i++) {
		if (strcmp(shape->names[i], name) == 0)
			return true;
	}
	return false;
}

/* What a run leaves. */
typedef struct result {
	float *value, *grad, *state0;
	unsigned char hash[16];
	float norm;
} result_t;

static void result_free(result_t *r)
{
	free(r->value);
	free(r->grad);
	free(r->state0);
}

static void take_results(engine_case_t *c, result_t *result)
{
	srt_step_info_t state = SRT_STEP_INFO_INIT;

	CHECK_OK(srt_engine_get_step_info(c->engine, &state, c->stream));
	result->norm = state.grad_norm;
	result->value = case_collect(c, SRT_PARAM_VALUE);
	result->grad = case_collect(c, SRT_PARAM_GRAD);
	result->state0 = case_collect(c, SRT_PARAM_STATE0);
	if (srt_engine_hash(c->engine, result->hash, c->stream) != SRT_OK)
		memset(result->hash, 0, sizeof(result->hash)); /* built without libxxhash */
}

/* data_rank: of this rank among those with other data. */
static void run(const srt_engine_options_t *options, const case_types_t *types, int data_rank,
		const char *load, const char *save, result_t *result)
{
	srt_plan_t plan = SRT_PLAN_INIT;
	engine_case_t c;
	size_t allocated;

	case_declare_as(&c, context, options, 5, types);
	c.rank = data_rank;
	c.unused = 2;
	c.delay = c.check = 1;
	CHECK_OK(srt_engine_plan(c.engine,
				 srt_mesh_coordinate(options->mesh, NULL) >= 0 ?
					 srt_mesh_coordinate(options->mesh, NULL) :
					 srt_comm_rank(options->comm),
				 0, &plan));
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_engine_build(c.engine));
	CHECK_INT(case_allocated(context) - allocated, case_planned(&plan));
	for (size_t i = 0; i < c.nparams && load == NULL; i++)
		CHECK_OK(srt_param_init_normal(c.param[i], 1234, 0.0f, 0.5f, c.stream));
	if (load != NULL)
		CHECK_OK_OR_DIE(srt_engine_load(c.engine, load, c.stream));
	for (int step = 0; step < STEPS; step++)
		CHECK_OK_OR_DIE(case_step(&c, step, options->microbatches));
	take_results(&c, result);
	if (save != NULL)
		CHECK_OK(srt_engine_save(c.engine, save, NULL, 0, c.stream));
	case_destroy(&c);
}

static void compare(const result_t *a, const result_t *b, size_t nbytes, const char *what)
{
	CHECK_MSG(memcmp(a->value, b->value, nbytes) == 0, "%s: other values", what);
	CHECK_MSG(memcmp(a->grad, b->grad, nbytes) == 0, "%s: other gradients", what);
	CHECK_MSG(memcmp(a->state0, b->state0, nbytes) == 0, "%s: other states", what);
	CHECK_MSG(memcmp(a->hash, b->hash, 16) == 0, "%s: another hash", what);
	CHECK_MSG(a->norm == b->norm && a->norm > 0.0f, "%s: norm %.9g, not %.9g", what,
		  (double)b->norm, (double)a->norm);
}

static void test_shape(const shape_t *shape, const srt_precision_t *precision, int nmicro)
{
	const bool hybrid = has_dim(shape, "replicate");
	const srt_strategy_t strategies[] = { SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO1,
					      SRT_STRATEGY_ZERO2, SRT_STRATEGY_ZERO3,
					      SRT_STRATEGY_HYBRID };
	const case_types_t whole = { .stored = SRT_F32 };
	case_types_t cut = { .stored = SRT_F32, .cut_over = "tp" };
	const char *rest[2];
	const size_t nbytes = case_total_nelem(context, 5) * sizeof(float);
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_DDP);
	srt_mesh_t *mesh, *data;
	result_t want, got;
	char what[96], path[64];
	int nrest = 0;

	for (int i = 0; i < shape->ndim; i++) {
		if (strcmp(shape->names[i], "tp") != 0)
			rest[nrest++] = shape->names[i];
	}
	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), shape->ndim, shape->size,
					shape->names, &mesh));
	CHECK_OK_OR_DIE(srt_mesh_slice(mesh, nrest, rest, &data));
	snprintf(path, sizeof(path), "test_cells.%d.safetensors", srt_mesh_size(mesh, "tp"));
	options.precision = precision;
	options.microbatches = nmicro;
	options.comm = srt_mesh_comm(data, NULL);
	run(&options, &whole, srt_mesh_coordinate(data, NULL), NULL, NULL, &want);
	options.comm = NULL;
	options.mesh = mesh;
	for (size_t s = 0; s < SRT_ARRAY_LEN(strategies); s++) {
		if (hybrid ? strategies[s] == SRT_STRATEGY_DDP :
			     strategies[s] == SRT_STRATEGY_HYBRID)
			continue;
		options.strategy = strategies[s];
		cut.flat = (srt_flat_t)((s + 1) % 3);
		cut.cut_parts = s % 2 ? 2 * srt_mesh_size(mesh, "tp") : 0;
		run(&options, &cut, srt_mesh_coordinate(data, NULL), NULL, path, &got);
		snprintf(what, sizeof(what), "%s on %d x %d x %d", srt_strategy_name(strategies[s]),
			 shape->size[0], shape->size[1], shape->ndim > 2 ? shape->size[2] : 1);
		compare(&want, &got, nbytes, what);
		result_free(&got);
	}
	result_free(&want);
	/* The file has whole tensors: ones that are cut elsewhere, and whole ones, start from the
	 * same values. */
	cut.cut_parts = cut.cut_parts ? 0 : 2 * srt_mesh_size(mesh, "tp");
	run(&options, &cut, srt_mesh_coordinate(data, NULL), path, NULL, &got);
	options.mesh = NULL;
	options.comm = srt_mesh_comm(data, NULL);
	options.strategy = SRT_STRATEGY_DDP;
	run(&options, &whole, srt_mesh_coordinate(data, NULL), path, NULL, &want);
	compare(&want, &got, nbytes, "loaded");
	result_free(&got);
	result_free(&want);
	case_wait_for_all(context);
	if (srt_context_rank(context) == 0)
		CHECK(unlink(path) == 0);
	srt_mesh_destroy(data);
	srt_mesh_destroy(mesh);
}

/* The rows of cells of whole parts, of which the last ones may be short or empty. */
static void test_tensor_parts(void)
{
	static const char *const names[] = { "dp", "tp" };
	const int ntp = srt_context_world_size(context), size[] = { 1, ntp };
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 1.0f);
	srt_engine_t *engine;
	srt_unit_t *root;

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, size, names, &options.mesh));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK(srt_unit_create(engine, NULL, "root", NULL, &root));
	for (int each = 1; each <= 4; each *= 2)
		for (int64_t n = 1; n <= 5 * ntp; n++) {
			const int64_t of_rank = (n + each * ntp - 1) / (each * ntp) * each;
			const srt_param_options_t o = { PARAM_BASE,
							.placement = { "tp", 0, 0, each * ntp } };
			char name[32];
			srt_param_t *p;
			int64_t rows, first = 0;
			srt_part_t part;

			snprintf(name, sizeof(name), "%d.%d", each, (int)n);
			CHECK_OK_OR_DIE(srt_param_create(root, name, SRT_F32, 1, &n, &o, &p));
			for (int r = 0; r < ntp; r++, first += rows) {
				rows = n - first < of_rank ? n - first : of_rank;
				CHECK_OK(srt_param_part(p, r, &part));
				CHECK_INT(part.offset[0], first);
				CHECK_INT(part.size[0], rows);
				CHECK_INT(part.nelem, rows);
			}
			CHECK_INT(first, n);
			CHECK_INT(srt_param_partition(p, &rows), 1);
			CHECK_OK(srt_param_part(p, srt_context_rank(context), &part));
			CHECK_INT(rows, part.size[0]);
		}
	srt_engine_destroy(engine);
	srt_mesh_destroy(options.mesh);
}

/* Cells of uneven size and the order of blocks in them. */
static void test_parts(void)
{
	static const char *const names[] = { "dp", "tp" };
	const int ntp = srt_context_world_size(context), size[] = { 1, ntp };
	const int rank = srt_context_rank(context);
	const int64_t n = 6 * ntp, global[] = { 2, n, 2 }, uneven = 2 * ntp - 1;
	const srt_param_options_t blocks = { PARAM_BASE, .placement = { "tp", 1, 3, 0 } },
				  rows = { PARAM_BASE, .placement = { "tp", 0, 0, 0 } };
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 1.0f);
	float *values = calloc((size_t)(4 * n), sizeof(*values)), *cell;
	srt_engine_t *engine;
	srt_stream_t *stream;
	srt_param_t *p, *q;
	srt_unit_t *root;
	srt_view_t view;
	int64_t shape[SRT_MAX_DIMS];
	srt_part_t part;

	CHECK_OR_DIE(values != NULL);
	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, size, names, &options.mesh));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK(srt_unit_create(engine, NULL, "root", NULL, &root));
	CHECK_OK(srt_param_create(root, "blocks", SRT_F32, 3, global, &blocks, &p));
	CHECK_OK(srt_param_create(root, "rows", SRT_F32, 1, &uneven, &rows, &q));
	CHECK_INT(srt_param_partition(p, shape), 3);
	CHECK(shape[0] == 2 && shape[1] == 6 && shape[2] == 2);
	CHECK_INT(srt_param_partition(q, shape), 1);
	CHECK_INT(shape[0], rank < ntp - 1 ? 2 : 1);
	for (int r = 0; r < ntp; r++) {
		CHECK_OK(srt_param_part(p, r, &part)); /* of three blocks: no box */
		CHECK(part.is_flat && part.first == 0 && part.nelem == 24 && part.size[0] == 0);
		CHECK_OK(srt_param_part(q, r, &part));
		CHECK(!part.is_flat && part.first == 0 && part.nelem == part.size[0]);
		CHECK(part.offset[0] == 2 * r && part.size[0] == (r < ntp - 1 ? 2 : 1));
	}
	CHECK_STATUS(srt_param_part(p, ntp, &part), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("srt_param_part of 'blocks': rank is");
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	for (int64_t i = 0; i < 4 * n; i++)
		values[i] = (float)i;
	CHECK_OK(srt_param_set(p, SRT_PARAM_VALUE, values, stream));
	CHECK_OK(srt_param_set(q, SRT_PARAM_VALUE, values, stream));
	CHECK_OK(srt_unit_forward_begin(root, stream));
	CHECK_OK(srt_param_data(p, &view));
	cell = calloc(24, sizeof(*cell));
	CHECK_OR_DIE(cell != NULL);
	CHECK_OK(srt_buffer_copy_to_host(cell, view.buffer, view.offset, 24 * sizeof(*cell),
					 stream));
	/* [o][block][2 of each][inner] of [2][3 blocks][2 ntp][2] */
	for (int64_t i = 0; i < 24; i++) {
		int64_t inner = i % 2, k = i / 2 % 2, block = i / 4 % 3, o = i / 12;

		CHECK_SAME(cell[i],
			   (float)(((o * 3 + block) * 2 * ntp + 2 * rank + k) * 2 + inner));
	}
	CHECK_OK(srt_param_data(q, &view));
	CHECK_OK(srt_buffer_copy_to_host(cell, view.buffer, view.offset, sizeof(*cell), stream));
	CHECK_SAME(cell[0], (float)(2 * rank));
	CHECK_OK(srt_unit_forward_end(root, stream));
	memset(values, 0, (size_t)(4 * n) * sizeof(*values));
	CHECK_OK(srt_param_get(p, SRT_PARAM_VALUE, values, stream));
	for (int64_t i = 0; i < 4 * n; i++)
		CHECK_SAME(values[i], (float)i);
	free(cell);
	free(values);
	CHECK_OK(srt_stream_sync(stream));
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_mesh_destroy(options.mesh);
}

/* The element of a cell with 5 dimensions that is cut on one of them. */
static int64_t whole_index(const int64_t *whole, const int64_t *cell, int cut, int64_t first,
			   int64_t i)
{
	int64_t at[5], index = 0;

	for (int d = 5; d-- > 0; i /= cell[d])
		at[d] = i % cell[d] + (d == cut ? first : 0);
	for (int d = 0; d < 5; d++)
		index = index * whole[d] + at[d];
	return index;
}

/* Parameters of 5 dimensions, cut on the first, a middle and the last one: the elements of the
 * cells, a step that halves each value, and a file. The data-parallel ranks have shards of the
 * cells. */
static void test_five(int ndp, int ntp, srt_strategy_t strategy, int offload)
{
	static const char *const names[] = { "dp", "tp" };
	static const int64_t whole[SRT_MAX_DIMS] = { 5, 2, 7, 3, 4 };
	enum { NELEM = 5 * 2 * 7 * 3 * 4, NPARAMS = 3 };
	const int size[] = { ndp, ntp };
	srt_engine_options_t options = {
		ENGINE_BASE, .strategy = strategy,
		.offload = { .params = offload, .grads = offload, .state = offload },
		.optim = OPTIM_SGD(1.0f)
	};
	static float values[NELEM], cell_values[NELEM];
	char path[64];
	srt_param_t *p[NPARAMS];
	srt_engine_t *engine;
	srt_stream_t *stream;
	srt_unit_t *root;

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, size, names, &options.mesh));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK(srt_unit_create(engine, NULL, "root", NULL, &root));
	for (int k = 0; k < NPARAMS; k++) {
		static const char *const param_names[] = { "first", "middle", "last" };
		const srt_param_options_t how = { PARAM_BASE, .placement = { "tp", 2 * k, 0, 0 } };

		CHECK_OK_OR_DIE(
			srt_param_create(root, param_names[k], SRT_F32, 5, whole, &how, &p[k]));
	}
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	for (int k = 0; k < NPARAMS; k++) {
		for (int i = 0; i < NELEM; i++)
			values[i] = (float)(i + k * NELEM);
		CHECK_OK(srt_param_set(p[k], SRT_PARAM_VALUE, values, stream));
	}
	CHECK_OK(srt_unit_forward_begin(root, stream));
	CHECK_OK(srt_unit_forward_end(root, stream));
	CHECK_OK(srt_unit_backward_begin(root, stream));
	for (int k = 0; k < NPARAMS; k++) {
		const int cut = 2 * k;
		const int64_t chunk = (whole[cut] + ntp - 1) / ntp;
		const int64_t first = chunk * srt_mesh_coordinate(options.mesh, "tp");
		int64_t cell[SRT_MAX_DIMS], nelem = 1;
		srt_view_t view, grad;
		int accumulate;

		CHECK_INT(srt_param_partition(p[k], cell), 5);
		for (int d = 0; d < 5; d++) {
			int64_t rest = whole[d] - first < 0 ? 0 : whole[d] - first;

			CHECK_INT(cell[d], d != cut ? whole[d] : rest < chunk ? rest : chunk);
			nelem *= cell[d];
		}
		CHECK_OK(srt_param_data(p[k], &view));
		CHECK_OK(srt_buffer_copy_to_host(cell_values, view.buffer, view.offset,
						 (size_t)nelem * sizeof(float), stream));
		for (int64_t i = 0; i < nelem; i++)
			CHECK_SAME(cell_values[i],
				   (float)(whole_index(whole, cell, cut, first, i) + k * NELEM));
		CHECK_OK(srt_param_grad(p[k], &grad, &accumulate));
		CHECK_OK(srt_op_scale(grad, view, 0.5f, nelem, stream));
		CHECK_OK(srt_param_grad_ready(p[k]));
	}
	CHECK_OK(srt_unit_backward_end(root, stream));
	CHECK_OK(srt_engine_step(engine, stream));
	snprintf(path, sizeof(path), "test_cells.five.%d.safetensors", ndp * ntp);
	CHECK_OK(srt_engine_save(engine, path, NULL, 0, stream));
	for (int loads = 0; loads < 2; loads++) {
		for (int k = 0; k < NPARAMS; k++) {
			CHECK_OK(srt_param_get(p[k], SRT_PARAM_VALUE, values, stream));
			for (int i = 0; i < NELEM; i++)
				CHECK_SAME(values[i], (float)(i + k * NELEM) * 0.5f);
			CHECK_OK(srt_param_init_constant(p[k], 0.0f, stream));
		}
		if (loads == 0)
			CHECK_OK(srt_engine_load(engine, path, stream));
	}
	case_wait_for_all(context);
	if (srt_context_rank(context) == 0)
		CHECK(unlink(path) == 0);
	CHECK_OK(srt_stream_sync(stream));
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	srt_mesh_destroy(options.mesh);
}

/* Placements that mean nothing. */
static void test_refused(void)
{
	const int size[] = { 1, srt_context_world_size(context) };
	static const char *const names[] = { "dp", "tp" };
	static const srt_placement_t wrong[] = {
		{ "dp", 0, 0, 0 }, { "other", 0, 0, 0 }, { "tp", 2, 0, 0 }, { "tp", -1, 0, 0 },
		{ "tp", 1, 2, 0 }, { NULL, 1, 0, 0 },    { NULL, 0, 0, 2 },
	};
	const int64_t shape[] = { 4, 3 };
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0);
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *p;

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, size, names, &options.mesh));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK(srt_unit_create(engine, NULL, "root", NULL, &root));
	for (size_t i = 0; i < SRT_ARRAY_LEN(wrong); i++) {
		const srt_param_options_t o = { PARAM_BASE, .placement = wrong[i] };

		CHECK(srt_param_create(root, "p", SRT_F32, 2, shape, &o, &p) ==
		      SRT_ERR_INVALID_ARGUMENT);
		CHECK(strstr(srt_error_last(), "'p'") != NULL);
	}
	for (int nparts = -1; nparts <= size[1] + 1; nparts += size[1] + 2) {
		const srt_param_options_t o = { PARAM_BASE, .placement = { "tp", 0, 0, nparts } };
		char words[96];

		snprintf(words, sizeof(words), "has %d parts, which the %d ranks of 'tp' cannot",
			 nparts, size[1]);
		CHECK_STATUS(srt_param_create(root, "p", SRT_F32, 2, shape, &o, &p),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS(words);
	}
	srt_engine_destroy(engine);
	srt_mesh_destroy(options.mesh);
}

int main(void)
{
	static const srt_precision_t bf16 = { .size = sizeof(bf16),
					      .param = SRT_BF16,
					      .reduce = SRT_BF16 };
	int world;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	world = srt_context_world_size(context);
	for (size_t i = 0; i < SRT_ARRAY_LEN(shapes); i++) {
		int n = 1;

		for (int d = 0; d < shapes[i].ndim; d++)
			n *= shapes[i].size[d];
		if (n != world)
			continue;
		test_shape(&shapes[i], NULL, 1);
		test_shape(&shapes[i], &bf16, 2);
	}
	test_parts();
	test_tensor_parts();
	for (int strategy = SRT_STRATEGY_DDP; strategy <= SRT_STRATEGY_ZERO3; strategy++) {
		const int ndp = world % 2 == 0 && world > 2 ? 2 : 1;

		test_five(ndp, world / ndp, (srt_strategy_t)strategy, 0);
		test_five(ndp, world / ndp, (srt_strategy_t)strategy, 1);
	}
	test_five(1, world, SRT_STRATEGY_ZERO3, 0);
	test_five(world, 1, SRT_STRATEGY_ZERO3, 0);
	test_refused();
	srt_context_destroy(context);
	return check_done();
}
