/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matrices of engine_case.c stepped by Muon, the other parameters by AdamW: the bits of zero3 with
 * every strategy, form and place; the memory that was planned; a step that is skipped; what is
 * refused, also of a checkpoint. tests/golden/replay_hf_muon.c compares them with one rank and with
 * PyTorch. Run by test_muon.sh; an argument is a folder for a checkpoint.
 */
#include "runtime/checkpoint/formats/manifest.h"
#include "tests/engine/engine_case.h"

#include <math.h>

#define STEPS 3
#define MAX_WORLD 8
#define H 5 /* rows: over 4 ranks 2, 2, 1, 0 */

static srt_context_t *context;
static int rank, world;

/* ---- a run --------------------------------------------------------------------------------- */

/* What a case changes. */
typedef struct variant {
	const char *name;
	srt_strategy_t strategy;
	srt_flat_t flat;
	const srt_precision_t *precision; /* NULL: no casts */
	srt_offload_t offload;
	bool hybrid; /* on a mesh of two replicas */
	int nmicro, unused;
} variant_t;

/* All results of a run. */
typedef struct result {
	float *value, *state0, *state1;
} result_t;

static void build(engine_case_t *c, const variant_t *v, const srt_engine_options_t *options)
{
	const case_types_t types = {
		.stored = SRT_F32, .ngroups = 2, .muon = true, .flat = v->flat
	};
	srt_plan_t mine = SRT_PLAN_INIT, theirs[MAX_WORLD], planned = SRT_PLAN_INIT;
	size_t allocated;

	case_declare_as(c, context, options, H, &types);
	c->unused = v->unused;
	c->check = 1;
	c->delay = 1;
	CHECK_OK(srt_engine_plan(c->engine, rank, 0, &mine));
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_engine_build(c->engine));
	CHECK_INT(case_allocated(context) - allocated, case_planned(&mine));
	CHECK_OK_OR_DIE(
		srt_comm_oob_allgather(srt_context_world(context), &mine, sizeof(mine), theirs));
	for (int r = 0; r < world; r++) {
		CHECK_OK(srt_engine_plan(c->engine, r, world, &planned));
		CHECK_INT(planned.total, theirs[r].total);
		CHECK_INT(planned.staging, theirs[r].staging);
		CHECK_INT(planned.scratch, theirs[r].scratch);
		CHECK_INT(planned.peer_mapped, theirs[r].peer_mapped);
	}
	for (size_t i = 0; i < c->nparams; i++)
		CHECK_OK(srt_param_init_normal(c->param[i], 1234, 0.0f, 0.5f, c->stream));
}

static void collect(engine_case_t *c, result_t *result)
{
	result->value = case_collect(c, SRT_PARAM_VALUE);
	result->state0 = case_collect(c, SRT_PARAM_STATE0);
	result->state1 = case_collect(c, SRT_PARAM_STATE1);
}

static void result_free(result_t *r)
{
	free(r->value);
	free(r->state0);
	free(r->state1);
}

static srt_mesh_t *make_mesh(void)
{
	const int shape[] = { 2, world / 2 };
	const char *const dims[] = { "replicate", "shard" };
	srt_mesh_t *mesh = NULL;

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, dims, &mesh));
	return mesh;
}

static srt_engine_options_t make_options(const variant_t *v, srt_mesh_t *mesh)
{
	srt_engine_options_t options = case_adamw(v->strategy);

	options.mesh = mesh;
	options.precision = v->precision;
	options.microbatches = v->nmicro;
	options.offload = v->offload;
	options.skip_nonfinite = 1;
	return options;
}

static void run(const variant_t *v, result_t *result)
{
	srt_mesh_t *mesh = v->hybrid ? make_mesh() : NULL;
	const srt_engine_options_t options = make_options(v, mesh);
	size_t allocated = 0;
	engine_case_t c;

	build(&c, v, &options);
	for (int step = 0; step < STEPS; step++) {
		CHECK_OK_OR_DIE(case_step(&c, step, v->nmicro));
		CHECK_OK(srt_stream_sync(c.stream));
		if (step == 0)
			allocated = case_allocated(context);
	}
	CHECK_INT(case_allocated(context), allocated);
	collect(&c, result);
	case_destroy(&c);
	srt_mesh_destroy(mesh);
}

static void compare(const char *what, const result_t *a, const result_t *b)
{
	const size_t nbytes = case_total_nelem(context, H) * sizeof(float);

	CHECK_MSG(memcmp(a->value, b->value, nbytes) == 0, "%s: other values", what);
	CHECK_MSG(memcmp(a->state0, b->state0, nbytes) == 0, "%s: other momenta", what);
	CHECK_MSG(memcmp(a->state1, b->state1, nbytes) == 0, "%s: other second moments", what);
}

/* ---- strategies ---------------------------------------------------------------------------- */

/* Runs all variants of one number of micro-batches, precision and use of parameters: the first is
 * zero3. */
static void test_variants(const srt_precision_t *precision, int nmicro, int unused)
{
	const variant_t variants[] = {
		{ .name = "zero3", .strategy = SRT_STRATEGY_ZERO3 },
		{ .name = "ddp", .strategy = SRT_STRATEGY_DDP },
		{ .name = "zero1", .strategy = SRT_STRATEGY_ZERO1 },
		{ .name = "zero2, flat", .strategy = SRT_STRATEGY_ZERO2, .flat = SRT_FLAT_VIEWS },
		{ .name = "zero3, flat", .strategy = SRT_STRATEGY_ZERO3, .flat = SRT_FLAT_PADDED },
		{ .name = "hybrid", .strategy = SRT_STRATEGY_HYBRID, .hybrid = true },
		{ .name = "zero3, offloaded",
		  .strategy = SRT_STRATEGY_ZERO3,
		  .offload = { .params = 1, .grads = 1, .state = 1 } },
		{ .name = "ddp, offloaded state",
		  .strategy = SRT_STRATEGY_DDP,
		  .offload = { .state = 1 } },
	};
	result_t first, other;

	for (size_t i = 0; i < SRT_ARRAY_LEN(variants); i++) {
		variant_t v = variants[i];

		v.precision = precision;
		v.nmicro = nmicro;
		v.unused = unused;
		if (v.hybrid && world != 4)
			continue;
		run(&v, i == 0 ? &first : &other);
		if (i == 0)
			continue;
		compare(v.name, &first, &other);
		result_free(&other);
	}
	result_free(&first);
}

/* A matrix moves by the learning rate, whatever its gradient is: the mean square of a step. */
static void test_movement(void)
{
	const variant_t v = { .name = "movement", .strategy = SRT_STRATEGY_ZERO3, .nmicro = 1 };
	const srt_engine_options_t options = make_options(&v, NULL);
	const double lr = 0.001, decay = 1 - lr * 0.1;
	result_t before, after;
	engine_case_t c;
	double sum = 0;
	size_t at;

	build(&c, &v, &options);
	collect(&c, &before);
	CHECK_OK_OR_DIE(case_step(&c, 0, 1));
	collect(&c, &after);
	at = case_offset(&c, "b0.weight");
	for (size_t i = at; i < at + H * H; i++) {
		const double moved = (double)after.value[i] - (double)before.value[i] * decay;

		sum += moved * moved;
	}
	/* H singular values of 0.7 to 1.2 */
	CHECK_MSG(sum > 0.3 * H * lr * lr && sum < 1.5 * H * lr * lr, "the matrix moved by %g",
		  sqrt(sum));
	result_free(&before);
	result_free(&after);
	case_destroy(&c);
}

static void check(srt_status_t status)
{
	CHECK_OK_OR_DIE(status);
}

/* What docs/guide.md shows: a matrix by Muon, a bias by AdamW. */
static void test_guide(void)
{
	const srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	srt_optim_options_t muon = SRT_OPTIM_MUON_INIT;
	srt_param_options_t of_matrices = SRT_PARAM_OPTIONS_INIT;
	const int64_t shape[] = { 4, 3 };
	srt_param_t *weight, *bias;
	srt_view_t second;
	srt_engine_t *engine;
	srt_unit_t *unit;

	check(srt_engine_create(context, &options, &engine));
	check(srt_unit_create(engine, NULL, "linear", NULL, &unit));
	muon.lr = 0.02f;
	check(srt_engine_group_create(engine, &muon, &of_matrices.group));
	check(srt_param_create(unit, "linear.weight", SRT_F32, 2, shape, &of_matrices, &weight));
	check(srt_param_create(unit, "linear.bias", SRT_F32, 1, shape, NULL, &bias));
	check(srt_engine_build(engine));
	CHECK_STR(srt_optim_state_name(srt_engine_optim(engine), 0), "exp_avg");
	CHECK_OK(srt_optim_state(srt_engine_optim(engine), 1, 1, &second));
	srt_engine_destroy(engine);
}

/* ---- skipped steps ------------------------------------------------------------------------- */

static void test_skip(void)
{
	const variant_t v = { .name = "skip", .strategy = SRT_STRATEGY_ZERO3, .nmicro = 1 };
	const srt_engine_options_t options = make_options(&v, NULL);
	srt_step_info_t info = SRT_STEP_INFO_INIT;
	result_t before, after;
	engine_case_t c;

	build(&c, &v, &options);
	CHECK_OK_OR_DIE(case_step(&c, 0, 1));
	collect(&c, &before);
	c.poison = INFINITY;
	CHECK_OK_OR_DIE(case_step(&c, 1, 1));
	collect(&c, &after);
	compare("a step with an infinity", &before, &after);
	CHECK_OK(srt_optim_get_step_info(srt_engine_optim(c.engine), 1, &info, c.stream));
	CHECK_INT(info.skipped, 1);
	CHECK_INT(info.step, 1);
	c.poison = 0.0f;
	CHECK_OK_OR_DIE(case_step(&c, 1, 1));
	result_free(&after);
	collect(&c, &after);
	for (size_t i = 0; i < case_nelem(&c); i++)
		CHECK(isfinite((double)after.value[i]));
	CHECK(memcmp(before.value, after.value, case_nelem(&c) * sizeof(float)) != 0);
	result_free(&before);
	result_free(&after);
	case_destroy(&c);
}

/* ---- what is refused ------------------------------------------------------------------------ */

/* An engine with one parameter in a group of Muon, which cannot be planned or built. */
static void refuse_param(int ndim, srt_dtype_t dtype, const srt_engine_options_t *options,
			 srt_status_t status, const char *why)
{
	const srt_optim_options_t muon = SRT_OPTIM_MUON_INIT;
	srt_engine_options_t o = *options;
	const int64_t shape[] = { 3, 2, 2 };
	srt_plan_t plan = SRT_PLAN_INIT;
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *param;

	o.optim = &muon;
	CHECK_OK_OR_DIE(srt_engine_create(context, &o, &engine));
	CHECK_OK(srt_unit_create(engine, NULL, "root", NULL, &unit));
	CHECK_OK(srt_param_create(unit, "w", dtype, ndim, shape, NULL, &param));
	CHECK_STATUS(srt_engine_plan(engine, rank, 0, &plan), status);
	CHECK_ERROR_HAS(why);
	CHECK_STATUS(srt_engine_build(engine), status);
	CHECK_ERROR_HAS(why);
	srt_engine_destroy(engine);
}

static void refuse_group(const srt_optim_options_t *group, const char *why)
{
	const srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	srt_engine_t *engine;
	size_t index;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_STATUS(srt_engine_group_create(engine, group, &index), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(why);
	srt_engine_destroy(engine);
}

/* A list of one parameter of 6 elements. */
static void refuse_list(int64_t rows, srt_dtype_t dtype, srt_status_t status, const char *why)
{
	const srt_optim_options_t muon = SRT_OPTIM_MUON_INIT;
	srt_device_t *device = srt_context_device(context);
	srt_optim_param_t param = SRT_OPTIM_PARAM_INIT;
	srt_stream_t *stream;
	srt_buffer_t *buffer;
	srt_optim_t *optim;

	check(srt_stream_create(device, 0, "test", &stream));
	check(srt_buffer_create(device, SRT_MEM_DEVICE, 64, "test", &buffer));
	param.name = "w";
	param.nelem = 6;
	param.rows = rows;
	param.cols = 3;
	param.value = param.grad = srt_view(buffer, 0, dtype);
	CHECK_STATUS(srt_optim_create(device, &muon, 1, &param, 1, &optim, stream), status);
	CHECK_ERROR_HAS(why);
	srt_stream_destroy(stream);
	srt_buffer_destroy(buffer);
}

static void refuse_sharded(void)
{
	const srt_optim_options_t muon = SRT_OPTIM_MUON_INIT;
	srt_stream_t *stream;
	srt_optim_t *optim;

	check(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	CHECK_STATUS(srt_sharded_optim_create(context, NULL, &muon, 1, NULL, 0, &optim, stream),
		     SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS("not for sharded tensors");
	srt_stream_destroy(stream);
}

static void test_refused(void)
{
	srt_engine_options_t options = SRT_ENGINE_OPTIONS_INIT;
	srt_optim_options_t muon = SRT_OPTIM_MUON_INIT;
	const srt_optim_options_t sgd = SRT_OPTIM_SGD_INIT;
	const char *const dims[] = { "dp", "tp" };
	const int shape[] = { 1, world };
	srt_mesh_t *mesh = NULL;

	refuse_param(1, SRT_F32, &options, SRT_ERR_INVALID_ARGUMENT, "has 1 dimensions");
	refuse_param(3, SRT_F32, &options, SRT_ERR_INVALID_ARGUMENT, "has 3 dimensions");
	refuse_param(2, SRT_BF16, &options, SRT_ERR_UNSUPPORTED, "is stored in bf16");
	if (world > 1) {
		CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, dims, &mesh));
		options.mesh = mesh;
		refuse_param(2, SRT_F32, &options, SRT_ERR_UNSUPPORTED, "tensor-parallel");
		srt_mesh_destroy(mesh);
	}
	refuse_list(0, SRT_F32, SRT_ERR_INVALID_ARGUMENT, "Muon steps matrices");
	refuse_list(3, SRT_F32, SRT_ERR_INVALID_ARGUMENT, "3 rows and 3 columns");
	refuse_list(2, SRT_BF16, SRT_ERR_UNSUPPORTED, "both must be f32");
	refuse_sharded();
	refuse_group(&sgd, "one of AdamW (2) and one of Muon (4)");
	muon.ns_steps = 100;
	refuse_group(&muon, "ns_steps is 100");
	muon = (srt_optim_options_t)SRT_OPTIM_MUON_INIT;
	muon.ns_coefficients[1] = NAN;
	refuse_group(&muon, "ns_coefficients[1]");
	muon = (srt_optim_options_t)SRT_OPTIM_MUON_INIT;
	muon.maximize = 1;
	refuse_group(&muon, "only SGD, Adam and AdamW have it");
	muon = (srt_optim_options_t)SRT_OPTIM_MUON_INIT;
	muon.kind = SRT_OPTIM_ADAMW;
	refuse_group(&muon, "only SGD and Muon have it");
}

/* ---- checkpoints ---------------------------------------------------------------------------- */

/* Two matrices: "w" by Muon or by AdamW, "v" by Muon. */
static srt_engine_t *make_matrices(bool w_by_muon)
{
	const srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	const srt_optim_options_t muon = SRT_OPTIM_MUON_INIT;
	srt_param_options_t by_muon = SRT_PARAM_OPTIONS_INIT;
	const int64_t shape[] = { 4, 3 };
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *param;

	check(srt_engine_create(context, &options, &engine));
	check(srt_unit_create(engine, NULL, "root", NULL, &unit));
	check(srt_engine_group_create(engine, &muon, &by_muon.group));
	check(srt_param_create(unit, "w", SRT_F32, 2, shape, w_by_muon ? &by_muon : NULL, &param));
	check(srt_param_create(unit, "v", SRT_F32, 2, shape, &by_muon, &param));
	check(srt_engine_build(engine));
	return engine;
}

/* Rank 0 writes the manifest again as older versions did. */
static void drop_groups(const char *folder)
{
	srt_manifest_t m = { .world = 0 };
	int ranks[MAX_WORLD];

	if (rank == 0) {
		CHECK_OK_OR_DIE(srt_manifest_read(folder, &m));
		for (size_t g = 0; g < m.ngroups; g++) {
			free(m.groups[g].optimizer);
			m.groups[g].optimizer = NULL;
		}
		for (size_t i = 0; i < m.ntensors; i++)
			m.tensors[i].group = -1;
		CHECK_OK(srt_manifest_save(&m, folder));
		srt_manifest_clear(&m);
	}
	check(srt_comm_oob_allgather(srt_context_world(context), &rank, sizeof(rank), ranks));
}

/* A matrix that moved from Muon to AdamW or back is not loaded, unless a checkpoint does not say
 * who stepped it. */
static void test_moved(const char *folder)
{
	srt_checkpoint_options_t values = SRT_CHECKPOINT_OPTIONS_INIT;
	srt_engine_t *from, *to;
	srt_stream_t *stream;
	srt_status_t status;

	check(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	values.values_only = 1;
	for (int moves_to_muon = 0; moves_to_muon < 2; moves_to_muon++) {
		from = make_matrices(!moves_to_muon);
		to = make_matrices(moves_to_muon);
		status = srt_checkpoint_save(from, folder, NULL, stream);
		if (status == SRT_ERR_UNSUPPORTED) {
			printf("SKIP: checkpoints: %s\n", srt_error_last());
		} else {
			CHECK_OK_OR_DIE(status);
			CHECK_OK(srt_checkpoint_load(from, folder, NULL, stream));
			CHECK_STATUS(srt_checkpoint_load(to, folder, NULL, stream),
				     SRT_ERR_INVALID_ARGUMENT);
			CHECK_ERROR_HAS(moves_to_muon ?
						"parameter 'w' was stepped by adamw when the "
						"checkpoint was saved, but is stepped by muon" :
						"parameter 'w' was stepped by muon when the "
						"checkpoint was saved, but is stepped by adamw");
			CHECK_OK(srt_checkpoint_load(to, folder, &values, stream));
			drop_groups(folder);
			CHECK_OK(srt_checkpoint_load(to, folder, NULL, stream));
		}
		srt_engine_destroy(from);
		srt_engine_destroy(to);
	}
	srt_stream_destroy(stream);
}

int main(int argc, char **argv)
{
	const srt_precision_t bf16 = { .size = sizeof(bf16), .param = SRT_BF16, .reduce = SRT_F32 };

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	CHECK_OR_DIE(world <= MAX_WORLD);
	test_variants(NULL, 1, 0);
	test_variants(NULL, 2, 1);
	test_variants(&bf16, 2, 2);
	test_movement();
	test_guide();
	test_skip();
	test_refused();
	if (argc > 1)
		test_moved(argv[1]);
	srt_context_destroy(context);
	return check_done();
}
