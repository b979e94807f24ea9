/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flat units: where each element is, compared with a table that is filled element by element; steps
 * with the bits of units that are not flat; the flat shard as one tensor of the program; what is
 * refused. Run by test_flat.sh.
 */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/engine/declare/declare.h"
#include "tests/engine/engine_case.h"

static srt_context_t *context;
static int rank, world;

static const char *const form_names[] = { "rows", "views", "padded" };

/* ---- where elements are ---------------------------------------------------------------- */

enum { NSHAPES = 6, MOST_FLAT = 256 };
/* A scalar in one dimension, an empty tensor, one that spans several ranks. */
static const int64_t shapes[NSHAPES][2] = { { 3, 1 }, { 5, 7 }, { 1, 1 },
					    { 0, 3 }, { 7, 1 }, { 2, 2 } };

/* An engine on a mesh of `nranks` to plan with. */
typedef struct planned {
	srt_mesh_t *mesh;
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *param[NSHAPES];
} planned_t;

static void planned_create(planned_t *p, int nranks, srt_flat_t flat, srt_dtype_t stored,
			   const srt_precision_t *precision, int nparams)
{
	static const char *const names[] = { "dp" };
	srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
					 .precision = precision,
					 .optim = OPTIM(.kind = SRT_OPTIM_SGD) };
	const srt_unit_options_t unit = { .size = sizeof(unit), .flat = flat };

	CHECK_OK_OR_DIE(srt_mesh_create(NULL, 1, &nranks, names, &p->mesh));
	options.mesh = p->mesh;
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &p->engine));
	CHECK_OK_OR_DIE(srt_unit_create(p->engine, NULL, "root", &unit, &p->unit));
	for (int i = 0; i < nparams; i++) {
		char name[16];

		snprintf(name, sizeof(name), "p%d", i);
		CHECK_OK_OR_DIE(
			srt_param_create(p->unit, name, stored, 2, shapes[i], NULL, &p->param[i]));
	}
}

static void planned_destroy(planned_t *p)
{
	srt_engine_destroy(p->engine);
	srt_mesh_destroy(p->mesh);
}

/* The flat parameter element by element: which parameter is there, -1: none. Returns its size. */
static int64_t fill_table(int64_t align, int nparams, int *table)
{
	int64_t n = 0;

	for (int i = 0; i < nparams; i++) {
		while (n % align != 0)
			table[n++] = -1;
		for (int64_t k = 0; k < shapes[i][0] * shapes[i][1]; k++)
			table[n++] = i;
	}
	return n;
}

static void check_rank(const planned_t *p, int r, const int *table, int64_t n, int64_t chunk)
{
	for (int i = 0; i < NSHAPES && p->param[i] != NULL; i++) {
		int64_t before = 0, count = 0, at = -1;
		srt_part_t part;

		for (int64_t k = 0; k < n && k < (r + 1) * chunk; k++) {
			if (table[k] != i)
				continue;
			if (k < r * chunk)
				before++;
			else if (count++ == 0)
				at = k - r * chunk;
		}
		CHECK_OK(srt_param_part(p->param[i], r, &part));
		CHECK_MSG(part.is_flat && part.nelem == count && part.ndim == 2, "p%d, rank %d", i,
			  r);
		CHECK_MSG(count == 0 || (part.first == before && part.shard_offset == at),
			  "p%d, rank %d: %lld at %lld", i, r, (long long)part.first,
			  (long long)part.shard_offset);
	}
}

static void test_layout(int nranks, srt_flat_t flat, srt_dtype_t stored, srt_dtype_t compute,
			int64_t align)
{
	const srt_precision_t precision = { .size = sizeof(precision), .param = compute };

	for (int nparams = 0; nparams <= NSHAPES; nparams++) {
		int table[MOST_FLAT];
		const int64_t n = fill_table(flat == SRT_FLAT_VIEWS ? align : 1, nparams, table);
		const int64_t chunk = (n + nranks - 1) / nranks;
		planned_t p = { 0 };

		planned_create(&p, nranks, flat, stored, &precision, nparams);
		for (int r = 0; r < nranks; r++) {
			int64_t own = n - r * chunk;
			srt_flat_sizes_t sizes = SRT_FLAT_SIZES_INIT;

			own = own < 0 ? 0 : own > chunk ? chunk : own;
			CHECK_OK(srt_unit_flat_sizes(p.unit, r, &sizes));
			CHECK_INT(sizes.flat_nelem, flat == SRT_FLAT_VIEWS ? chunk * nranks : n);
			CHECK_INT(sizes.shard_nelem, chunk);
			CHECK_INT(sizes.padding, flat == SRT_FLAT_VIEWS ? 0 : chunk - own);
			check_rank(&p, r, table, n, chunk);
		}
		planned_destroy(&p);
	}
}

/* Gradients have memory for trainable parameters only. */
static void test_frozen_memory(void)
{
	const srt_param_options_t frozen = { PARAM_BASE, .frozen = 1 };
	const int64_t large[] = { 4096, 16 }, small[] = { 16, 3 };
	srt_plan_t before = SRT_PLAN_INIT, after = SRT_PLAN_INIT;
	srt_param_t *param;
	planned_t p = { 0 };

	planned_create(&p, 3, SRT_FLAT_VIEWS, SRT_F32, NULL, 0);
	CHECK_OK(srt_param_create(p.unit, "adapter", SRT_F32, 2, small, NULL, &param));
	CHECK_OK(srt_engine_plan(p.engine, 0, 0, &before));
	CHECK_OK(srt_param_create(p.unit, "base", SRT_F32, 2, large, &frozen, &param));
	CHECK_OK(srt_engine_plan(p.engine, 0, 0, &after));
	CHECK(after.param_shards >= before.param_shards + 4096 * 16 / 3 * sizeof(float) - 64);
	CHECK_INT(after.grad_shards, 16 * 3 * sizeof(float)); /* all of them are on rank 0 */
	CHECK_INT(after.unsharded_grads, before.unsharded_grads);
	CHECK_OK(srt_engine_plan(p.engine, 2, 0, &after)); /* has nothing to train */
	CHECK_INT(after.grad_shards, 0);
	planned_destroy(&p);
}

/* ---- steps ----------------------------------------------------------------------------- */

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

static void run(const srt_engine_options_t *options, srt_flat_t flat, int64_t h, const char *load,
		const char *save, result_t *result)
{
	const case_types_t types = { .flat = flat };
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	srt_plan_t plan = SRT_PLAN_INIT;
	size_t allocated;
	engine_case_t c;

	case_declare_as(&c, context, options, h, &types);
	c.unused = 2;
	c.delay = c.check = 1;
	CHECK_OK(srt_engine_plan(c.engine, rank, 0, &plan));
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_engine_build(c.engine));
	CHECK_INT(case_allocated(context) - allocated, case_planned(&plan));
	for (size_t i = 0; i < c.nparams && load == NULL; i++)
		CHECK_OK(srt_param_init_normal(c.param[i], 1234, 0.0f, 0.5f, c.stream));
	if (load != NULL)
		CHECK_OK_OR_DIE(srt_engine_load(c.engine, load, c.stream));
	for (int step = 0; step < 2; step++)
		CHECK_OK_OR_DIE(case_step(&c, step, options->microbatches));
	CHECK_OK(srt_engine_get_step_info(c.engine, &state, c.stream));
	result->norm = state.grad_norm;
	result->value = case_collect(&c, SRT_PARAM_VALUE);
	result->grad = case_collect(&c, SRT_PARAM_GRAD);
	result->state0 = case_collect(&c, SRT_PARAM_STATE0);
	memset(result->hash, 0, sizeof(result->hash));
	if (srt_engine_hash(c.engine, result->hash, c.stream) != SRT_OK)
		CHECK_ERROR_HAS("libxxhash");
	if (save != NULL)
		CHECK_OK(srt_engine_save(c.engine, save, NULL, 0, c.stream));
	case_destroy(&c);
}

static void compare(const result_t *a, const result_t *b, int64_t h, const char *what)
{
	const size_t nbytes = case_total_nelem(context, h) * sizeof(float);

	CHECK_MSG(memcmp(a->value, b->value, nbytes) == 0, "%s: other values", what);
	CHECK_MSG(memcmp(a->grad, b->grad, nbytes) == 0, "%s: other gradients", what);
	CHECK_MSG(memcmp(a->state0, b->state0, nbytes) == 0, "%s: other states", what);
	CHECK_MSG(memcmp(a->hash, b->hash, 16) == 0, "%s: another hash", what);
	CHECK_MSG(a->norm == b->norm && a->norm > 0.0f, "%s: norm %.9g, not %.9g", what,
		  (double)b->norm, (double)a->norm);
}

/* Each strategy in both forms, against ddp that is not flat; other options by turns. */
static void test_steps(void)
{
	static const int64_t sizes[] = { 5, 1, 7 };
	int turn = 0;

	for (srt_strategy_t s = SRT_STRATEGY_DDP; s <= SRT_STRATEGY_ZERO3; s++) {
		for (srt_flat_t flat = SRT_FLAT_VIEWS; flat <= SRT_FLAT_PADDED; flat++, turn++) {
			const int64_t h = sizes[turn % 3];
			srt_engine_options_t options = case_adamw(SRT_STRATEGY_DDP);
			char what[64];
			result_t want, got;

			options.microbatches = 1 + turn % 2;
			options.accumulation =
				turn % 4 == 1 ? SRT_ACCUMULATE_LAST : SRT_ACCUMULATE_EVERY;
			run(&options, SRT_FLAT_NO, h, NULL, NULL, &want);
			options.strategy = s;
			for (int all = 0; all < 2; all++) {
				options.offload = (srt_offload_t){ .params = all,
								   .grads = all,
								   .state = all };
				run(&options, flat, h, NULL, NULL, &got);
				snprintf(what, sizeof(what), "%s, %s%s", srt_strategy_name(s),
					 form_names[flat], all ? ", offloaded" : "");
				compare(&want, &got, h, what);
				result_free(&got);
			}
			result_free(&want);
		}
	}
}

/* A file does not depend on the form. */
static void test_files(void)
{
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	result_t want, got;
	char path[64];

	options.microbatches = 1;
	for (srt_flat_t flat = SRT_FLAT_NO; flat <= SRT_FLAT_PADDED; flat++) {
		snprintf(path, sizeof(path), "test_flat.%d.%s.safetensors", world,
			 form_names[flat]);
		run(&options, flat, 5, NULL, path, &got);
		result_free(&got);
		run(&options, (srt_flat_t)((flat + 1) % 3), 5, path, NULL, &got);
		if (flat == SRT_FLAT_NO)
			want = got;
		else
			compare(&want, &got, 5, path);
		if (flat != SRT_FLAT_NO)
			result_free(&got);
		case_wait_for_all(context);
		if (rank == 0)
			CHECK(unlink(path) == 0);
	}
	result_free(&want);
}

/* ---- the flat shard as one tensor ------------------------------------------------------ */

enum { NPARAMS = 3 };
static const int64_t unit_shapes[NPARAMS][2] = { { 3, 3 }, { 2, 1 }, { 4, 5 } };

typedef struct program {
	srt_engine_t *engine;
	srt_stream_t *stream;
	srt_unit_t *unit;
	srt_param_t *param[NPARAMS];
} program_t;

static void program_create(program_t *p, srt_strategy_t strategy, srt_flat_t flat)
{
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = strategy,
					       .optim = OPTIM(.kind = SRT_OPTIM_NONE) };
	const srt_unit_options_t unit = { .size = sizeof(unit), .flat = flat };

	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &p->stream));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &p->engine));
	CHECK_OK_OR_DIE(srt_unit_create(p->engine, NULL, "root", &unit, &p->unit));
	for (int i = 0; i < NPARAMS; i++) {
		static const char *const names[] = { "a", "b", "c" };

		CHECK_OK_OR_DIE(srt_param_create(p->unit, names[i], SRT_F32, 2, unit_shapes[i],
						 NULL, &p->param[i]));
	}
	CHECK(test_unit_local(p->unit, SRT_PARAM_VALUE).buffer == NULL);
	CHECK_ERROR_HAS("before srt_engine_build()");
	CHECK_OK_OR_DIE(srt_engine_build(p->engine));
	for (int i = 0; i < NPARAMS; i++)
		CHECK_OK(srt_param_init_normal(p->param[i], 5, 0.0f, 1.0f, p->stream));
}

/* Gradients that are twice the values, summed over the ranks and divided by their number. */
static void program_passes(const program_t *p)
{
	CHECK_OK(srt_unit_forward_begin(p->unit, p->stream));
	CHECK_OK(srt_unit_forward_end(p->unit, p->stream));
	CHECK_OK(srt_unit_backward_begin(p->unit, p->stream));
	for (int i = 0; i < NPARAMS; i++) {
		srt_view_t value, grad;
		int accumulate;

		CHECK_OK(srt_param_data(p->param[i], &value));
		CHECK_OK(srt_param_grad(p->param[i], &grad, &accumulate));
		CHECK_OK(srt_op_scale(grad, value, 2.0f, srt_param_nelem(p->param[i]), p->stream));
		CHECK_OK(srt_param_grad_ready(p->param[i]));
	}
	CHECK_OK(srt_unit_backward_end(p->unit, p->stream));
	CHECK(test_unit_local(p->unit, SRT_PARAM_GRAD).buffer == NULL);
	CHECK_OK(srt_engine_finish_backward(p->engine, p->stream));
}

/* What the shard has of each parameter is where the part says, and zeros are between. */
static void check_shard(const program_t *p, srt_param_what_t what)
{
	const srt_view_t view = test_unit_local(p->unit, what);
	float shard[64] = { 0 }, full[32];
	bool seen[64] = { false };
	srt_flat_sizes_t sizes = SRT_FLAT_SIZES_INIT;

	CHECK_OR_DIE(view.buffer != NULL);
	CHECK_OK(srt_unit_flat_sizes(p->unit, rank, &sizes));
	CHECK_OR_DIE(sizes.shard_nelem <= 64);
	CHECK_OK(srt_buffer_copy_to_host(shard, view.buffer, view.offset,
					 (size_t)sizes.shard_nelem * sizeof(float), p->stream));
	for (int i = 0; i < NPARAMS; i++) {
		srt_part_t part;

		CHECK_OK(srt_param_get(p->param[i], what, full, p->stream));
		CHECK_OK(srt_param_part(p->param[i], rank, &part));
		CHECK_BITS(full + part.first, shard + part.shard_offset, (size_t)part.nelem);
		for (int64_t k = 0; k < part.nelem; k++)
			seen[part.shard_offset + k] = true;
	}
	for (int64_t k = 0; k < sizes.shard_nelem; k++)
		CHECK_MSG(seen[k] || shard[k] == 0.0f, "padding %lld is %g", (long long)k,
			  (double)shard[k]);
}

static void test_unit_shard(srt_strategy_t strategy, srt_flat_t flat)
{
	program_t p;
	float before[32], after[32];
	srt_flat_sizes_t sizes = SRT_FLAT_SIZES_INIT;

	program_create(&p, strategy, flat);
	CHECK_OK(srt_unit_flat_sizes(p.unit, rank, &sizes));
	check_shard(&p, SRT_PARAM_VALUE);
	for (int step = 0; step < 2; step++) {
		CHECK_OK(srt_param_get(p.param[2], SRT_PARAM_VALUE, before, p.stream));
		program_passes(&p);
		check_shard(&p, SRT_PARAM_GRAD);
		CHECK_OK(srt_engine_write_begin(p.engine, p.stream));
		CHECK_OK(srt_op_axpy(test_unit_local(p.unit, SRT_PARAM_VALUE),
				     test_unit_local(p.unit, SRT_PARAM_GRAD), -0.25f,
				     sizes.shard_nelem, p.stream));
		CHECK_OK(srt_engine_write_end(p.engine, p.stream));
		CHECK_OK(srt_engine_step(p.engine, p.stream));
		CHECK_OK(srt_param_get(p.param[2], SRT_PARAM_VALUE, after, p.stream));
		for (int k = 0; k < 20; k++)
			CHECK(fabsf(after[k] - before[k] * 0.5f) <= 1e-6f); /* rounded sums */
		check_shard(&p, SRT_PARAM_VALUE);
	}
	CHECK(test_unit_local(p.unit, SRT_PARAM_STATE0).buffer == NULL);
	CHECK_STATUS(srt_unit_flat_sizes(p.unit, world, &sizes), SRT_ERR_INVALID_ARGUMENT);
	CHECK_OK(srt_stream_sync(p.stream));
	srt_engine_destroy(p.engine);
	srt_stream_destroy(p.stream);
}

/* ---- what is refused ------------------------------------------------------------------- */

static void refuse(srt_unit_t *unit, const char *name, srt_dtype_t dtype, int ndim, int frozen,
		   const char *sentence)
{
	const srt_param_options_t options = { PARAM_BASE, .frozen = frozen };
	const int64_t shape[] = { 2, 2 };
	srt_param_t *param;

	CHECK(srt_param_create(unit, name, dtype, ndim, shape, &options, &param) != SRT_OK);
	CHECK_ERROR_HAS(name);
	CHECK_ERROR_HAS(sentence);
}

static void test_refused(void)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	const srt_param_options_t frozen = { PARAM_BASE, .frozen = 1 };
	const int64_t shape[] = { 2, 2 };
	srt_unit_options_t of_unit = { .size = sizeof(of_unit), .flat = (srt_flat_t)3 };
	srt_flat_sizes_t sizes = SRT_FLAT_SIZES_INIT;
	srt_engine_t *engine;
	srt_unit_t *root, *padded, *views, *rows;
	srt_param_t *param;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_STATUS(srt_unit_create(engine, NULL, "root", &of_unit, &root),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("option flat of unit 'root' is 3");
	of_unit.flat = SRT_FLAT_VIEWS;
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", &of_unit, &root));
	CHECK_OK_OR_DIE(srt_unit_create(engine, root, "views", &of_unit, &views));
	of_unit.flat = SRT_FLAT_PADDED;
	CHECK_OK_OR_DIE(srt_unit_create(engine, root, "padded", &of_unit, &padded));
	CHECK_OK_OR_DIE(srt_unit_create(engine, root, "rows", NULL, &rows));
	refuse(padded, "ids", SRT_I32, 1, 0, "must have a float dtype");
	refuse(padded, "scalar", SRT_F32, 0, 0, "declare it 1-D with one element");
	CHECK_OK(srt_param_create(padded, "weight", SRT_F32, 2, shape, NULL, &param));
	refuse(padded, "half", SRT_F16, 1, 0, "must have one dtype");
	refuse(padded, "base", SRT_F32, 1, 1,
	       "and 'weight' is trainable: the parameters of a unit");
	CHECK_ERROR_HAS("must have uniform requires_grad");
	CHECK_OK(srt_param_create(rows, "row", SRT_F32, 2, shape, NULL, &param));
	CHECK_OK(srt_param_create(views, "first", SRT_F32, 2, shape, NULL, &param));
	CHECK_OK(srt_param_create(views, "second", SRT_F32, 2, shape, &frozen, &param));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	CHECK(test_unit_local(root, SRT_PARAM_VALUE).buffer == NULL);
	CHECK_ERROR_HAS("unit 'root' has no parameters");
	CHECK(test_unit_local(views, SRT_PARAM_VALUE).buffer == NULL);
	CHECK_ERROR_HAS("unit 'views' has frozen and trainable parameters");
	CHECK(test_unit_local(rows, SRT_PARAM_VALUE).buffer == NULL);
	CHECK_ERROR_HAS("unit 'rows' is not flat");
	CHECK_STATUS(srt_unit_flat_sizes(rows, 0, &sizes), SRT_ERR_INVALID_ARGUMENT);
	srt_engine_destroy(engine);
}

/* Ranks that declare other forms are refused together. */
static void test_mismatch(void)
{
	const srt_unit_options_t flat = { .size = sizeof(flat),
					  .flat = rank == world - 1 ? SRT_FLAT_PADDED :
								      SRT_FLAT_VIEWS };
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	const int64_t shape[] = { 2, 2 };
	srt_engine_t *engine;
	srt_unit_t *root;
	srt_param_t *param;

	options.comm = case_group(context, "other forms");
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", &flat, &root));
	CHECK_OK_OR_DIE(srt_param_create(root, "weight", SRT_F32, 2, shape, NULL, &param));
	CHECK_STATUS(srt_engine_build(engine), world > 1 ? SRT_ERR_MISMATCH : SRT_OK);
	if (world > 1) {
		CHECK_ERROR_HAS("different units");
		CHECK_ERROR_HAS("flat 2 on rank");
	}
	srt_engine_destroy(engine);
	case_wait_for_all(context);
	srt_comm_destroy(options.comm);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	for (srt_flat_t flat = SRT_FLAT_VIEWS; flat <= SRT_FLAT_PADDED; flat++) {
		for (int nranks = 1; nranks <= 9; nranks++) {
			test_layout(nranks, flat, SRT_F32, SRT_DTYPE_NONE, 4);
			test_layout(nranks, flat, SRT_F32, SRT_BF16, 8);
			test_layout(nranks, flat, SRT_F16, SRT_F32, 4);
		}
		test_layout(100, flat, SRT_F32, SRT_DTYPE_NONE, 4);
		test_unit_shard(SRT_STRATEGY_DDP, flat);
		test_unit_shard(SRT_STRATEGY_ZERO1, flat);
		test_unit_shard(SRT_STRATEGY_ZERO3, flat);
	}
	test_frozen_memory();
	test_steps();
	test_files();
	test_refused();
	test_mismatch();
	srt_context_destroy(context);
	return check_done();
}
