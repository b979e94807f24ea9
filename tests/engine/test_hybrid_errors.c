/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engines on meshes: wrong options and their sentences, ranks that differ, replicas that differ,
 * infinities, files, the order in which objects are destroyed. Run by test_hybrid.sh on 4 ranks.
 */
#include <math.h>
#include <unistd.h>

#include "runtime/engine/declare/declare.h"
#include "tests/engine/engine_case.h"

static srt_context_t *context;
static int rank, world;

static srt_mesh_t *make_mesh(srt_comm_t *comm, int a, int b, const char *first, const char *second)
{
	const char *const dims[] = { first, second };
	const int shape[] = { a, b };
	srt_mesh_t *mesh = NULL;

	CHECK_OK_OR_DIE(srt_mesh_create(comm, 2, shape, dims, &mesh));
	return mesh;
}

static srt_mesh_t *make_default_mesh(void)
{
	return make_mesh(srt_context_world(context), 2, world / 2, "replicate", "shard");
}

/* ---- options -------------------------------------------------------------------------------- */

static void refuse(srt_engine_options_t options, const char *words)
{
	srt_engine_t *engine = NULL;

	CHECK_STATUS(srt_engine_create(context, &options, &engine), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(words);
	CHECK(engine == NULL);
}

#define REFUSE(words, ...) refuse((srt_engine_options_t){ ENGINE_BASE, __VA_ARGS__ }, words)

static void test_options(void)
{
	srt_mesh_t *mesh = make_default_mesh();
	srt_mesh_t *other = make_mesh(NULL, 2, 2, "nodes", "shard");
	const char *const names[] = { "replicate", "nodes", "shard" };
	const int shape[] = { 1, 2, 2 };
	srt_mesh_t *three;
	srt_mesh_t *all = make_mesh(NULL, 1, 2, "shard", "replicate");

	CHECK_OK_OR_DIE(srt_mesh_create(NULL, 3, shape, names, &three));
	REFUSE("need option mesh", .strategy = SRT_STRATEGY_HYBRID);
	REFUSE("need option mesh", .strategy = SRT_STRATEGY_ZERO3, .shard_dim = "shard");
	REFUSE("need option mesh", .strategy = SRT_STRATEGY_ZERO3, .replicate_dim = "replicate");
	REFUSE("options comm and mesh are both set", .strategy = SRT_STRATEGY_HYBRID, .mesh = mesh,
	       .comm = srt_context_world(context));
	REFUSE("option shard_dim with strategy ddp, which shards nothing", .mesh = mesh,
	       .shard_dim = "shard");
	REFUSE("strategy ddp needs a dimension of the mesh called 'replicate' or 'dp'",
	       .mesh = other);
	REFUSE("option replicate_dim is 'node', which is not a dimension of the mesh",
	       .strategy = SRT_STRATEGY_HYBRID, .mesh = other, .replicate_dim = "node");
	REFUSE("strategy hybrid needs a dimension of the mesh called 'replicate': set option "
	       "replicate_dim",
	       .strategy = SRT_STRATEGY_HYBRID, .mesh = other);
	REFUSE("strategy ddp has no use for both dimensions 'nodes' and 'shard'", .mesh = three);
	REFUSE("option shard_dim is 'shards', which is not", .strategy = SRT_STRATEGY_ZERO1,
	       .mesh = mesh, .shard_dim = "shards");
	REFUSE("name the same dimension 'shard'", .strategy = SRT_STRATEGY_HYBRID, .mesh = all,
	       .replicate_dim = "shard");
	srt_mesh_destroy(all);
	srt_mesh_destroy(three);
	srt_mesh_destroy(other);
	srt_mesh_destroy(mesh);
}

/* What a build refuses, on all ranks. */
static void refuse_build(srt_engine_options_t options, srt_status_t status, const char *a,
			 const char *b)
{
	engine_case_t c;

	case_declare(&c, context, &options, 5);
	CHECK_STATUS(srt_engine_build(c.engine), status);
	CHECK_ERROR_HAS(a);
	CHECK_ERROR_HAS(b);
	case_destroy(&c);
}

/*
 * Reliability: an engine that is built on a mesh to plan with, of as many ranks as there are |
 * "comm is NULL" | a sentence that names the mesh
 */
static void test_build(void)
{
	srt_mesh_t *mesh = make_default_mesh();
	srt_mesh_t *planned = make_mesh(NULL, 2, world / 2, "replicate", "shard");
	srt_mesh_t *turned =
		make_mesh(srt_context_world(context), world / 2, 2, "shard", "replicate");
	srt_engine_options_t o = case_adamw(SRT_STRATEGY_HYBRID);
	srt_plan_t plan = SRT_PLAN_INIT, of_built = SRT_PLAN_INIT;
	engine_case_t c, built;

	o.mesh = planned;
	refuse_build(o, SRT_ERR_STATE, "on a mesh of 4 ranks to plan with", "create the mesh with");
	case_declare(&c, context, &o, 5);
	/* The plan is that of the mesh that is built. */
	o.mesh = mesh;
	case_declare(&built, context, &o, 5);
	for (int r = 0; r < world; r++) {
		CHECK_OK(srt_engine_plan(c.engine, r, 0, &plan));
		CHECK_OK(srt_engine_plan(built.engine, r, 0, &of_built));
		CHECK_INT(plan.total, of_built.total);
		CHECK_INT(plan.param_shards, of_built.param_shards);
		CHECK_INT(plan.staging, of_built.staging);
		CHECK_INT(plan.peer_mapped, of_built.peer_mapped);
	}
	case_destroy(&built);
	CHECK_STATUS(srt_engine_plan(c.engine, 0, 2 * world, &plan), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("world_size is 8, but the engine's mesh has 4 ranks");
	case_destroy(&c);
	o.mesh = mesh;
	o.strategy = SRT_STRATEGY_DDP;
	refuse_build(o, SRT_ERR_INVALID_ARGUMENT, "ddp has no use for dimension 'shard'",
		     "no parameter is cut over it");
	o.strategy = SRT_STRATEGY_HYBRID;
	o.mesh = turned;
	o.accumulation = SRT_ACCUMULATE_TREE;
	o.microbatches = 2;
	refuse_build(o, SRT_ERR_UNSUPPORTED, "SRT_ACCUMULATE_TREE on a mesh",
		     "'replicate' before 'shard'");
	o.accumulation = SRT_ACCUMULATE_EVERY;
	o.mesh = rank == 1 ? turned : mesh;
	refuse_build(o, SRT_ERR_MISMATCH, "dimensions of the mesh", "rank 1");
	srt_mesh_destroy(mesh);
	srt_mesh_destroy(planned);
	srt_mesh_destroy(turned);
}

/*
 * Reliability: engines of one job on meshes of different sizes | the build ends by
 * `SHARDRT_TIMEOUT` | an error on all ranks with both sizes
 */
static void test_sizes(void)
{
	srt_mesh_t *mesh = make_default_mesh();
	srt_mesh_t *flat = make_mesh(srt_context_world(context), 1, world, "replicate", "shard");
	srt_engine_options_t o = case_adamw(SRT_STRATEGY_HYBRID);

	o.mesh = rank == 1 ? flat : mesh;
	refuse_build(o, SRT_ERR_MISMATCH, "dimensions of the mesh", "of 4 shards");
	srt_mesh_destroy(mesh);
	srt_mesh_destroy(flat);
}

/* ---- replicas that differ ------------------------------------------------------------------- */

/* Rank 3 has another value in a shard that rank 1 has too: both are named. */
static void test_replicas(void)
{
	srt_comm_t *group = case_group(context, "replicas");
	srt_mesh_t *mesh = make_mesh(group, 2, world / 2, "replicate", "shard");
	srt_engine_options_t o = case_adamw(SRT_STRATEGY_HYBRID);
	engine_case_t c;

	o.mesh = mesh;
	case_declare(&c, context, &o, 5);
	case_build(&c);
	CHECK_OK(srt_engine_write_begin(c.engine, c.stream));
	if (rank == world - 1)
		CHECK_OK(srt_op_fill(test_local(srt_engine_param_find(c.engine, "b1.weight"),
						SRT_PARAM_VALUE),
				     3.0f, 1, c.stream));
	CHECK_OK(srt_engine_write_end(c.engine, c.stream));
	CHECK_STATUS(case_step(&c, 0, 1), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("parameter 'b1.weight' or its optimizer state differs between rank 1 and "
			"rank 3");
	case_wait_for_all(context);
	srt_engine_reset(c.engine);
	case_destroy(&c);
	srt_mesh_destroy(mesh);
	srt_comm_destroy(group);
}

/* ---- infinities ----------------------------------------------------------------------------- */

/* Into the first gradient of the last rank whose shards are not empty. */
static void write_infinity(engine_case_t *c, srt_strategy_t strategy)
{
	CHECK_OK(srt_engine_finish_backward(c->engine, c->stream));
	if (rank == (strategy == SRT_STRATEGY_DDP ? world - 1 : world / 2))
		CHECK_OK(srt_op_fill(test_local(c->param[0], SRT_PARAM_GRAD), INFINITY, 1,
				     c->stream));
}

/*
 * An infinity in the gradient of one rank, or, if `written`, in its copy of the sum: all skip.
 *
 * Reliability: an infinity that a program writes into one replica's gradients | that rank alone
 * skips the step, the replicas differ | all ranks skip it
 */
static void test_infinity(srt_strategy_t strategy, srt_mesh_t *mesh, bool written)
{
	srt_scaler_options_t scaling = SRT_SCALER_OPTIONS_INIT;
	srt_engine_options_t o = case_adamw(strategy);
	srt_scaler_state_t scale;
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	srt_scaler_t *scaler;
	engine_case_t c;
	float *before, *after;

	o.mesh = mesh;
	scaling.init_scale = 8.0f;
	CHECK_OK_OR_DIE(srt_scaler_create(context, &scaling, &scaler));
	test_scaler_view(scaler);
	case_declare(&c, context, &o, 5);
	case_build(&c);
	before = case_collect(&c, SRT_PARAM_VALUE);
	c.poison = written ? 0.0f : INFINITY;
	CHECK_OK(case_passes(&c, 0, 1));
	if (written)
		write_infinity(&c, strategy);
	CHECK_OK(srt_scaler_step(scaler, c.engine, c.stream));
	CHECK_OK(srt_scaler_update(scaler, c.stream));
	CHECK_OK(srt_scaler_get_state(scaler, &scale, c.stream));
	CHECK_OK(srt_engine_get_step_info(c.engine, &state, c.stream));
	after = case_collect(&c, SRT_PARAM_VALUE);
	CHECK_MSG(state.step == 0 && state.skipped == 1 && scale.scale == 4.0f,
		  "%s, written %d: step %d, skipped %d, scale %g", srt_strategy_name(strategy),
		  written, (int)state.step, (int)state.skipped, (double)scale.scale);
	CHECK_BITS(before, after, case_nelem(&c));
	free(before);
	free(after);
	case_destroy(&c);
	srt_scaler_destroy(scaler);
}

/* The option skips too. */
static void test_skip_nonfinite(srt_mesh_t *mesh)
{
	srt_engine_options_t o = case_adamw(SRT_STRATEGY_HYBRID);
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	engine_case_t c;

	o.mesh = mesh;
	o.skip_nonfinite = 1;
	case_declare(&c, context, &o, 5);
	case_build(&c);
	c.poison = INFINITY;
	CHECK_OK(case_step(&c, 0, 1));
	CHECK_OK(srt_engine_get_step_info(c.engine, &state, c.stream));
	CHECK(state.step == 0 && state.skipped == 1);
	case_destroy(&c);
}

static void test_infinities(void)
{
	srt_mesh_t *mesh = make_default_mesh();

	for (int written = 0; written < 2; written++) {
		test_infinity(SRT_STRATEGY_HYBRID, mesh, written);
		test_infinity(SRT_STRATEGY_DDP, NULL, written);
	}
	test_skip_nonfinite(mesh);
	srt_mesh_destroy(mesh);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void make_engine(engine_case_t *c, srt_strategy_t strategy, srt_mesh_t *mesh, uint64_t seed)
{
	srt_engine_options_t o = case_adamw(strategy);

	o.mesh = mesh;
	case_declare(c, context, &o, 5);
	case_build(c);
	for (size_t i = 0; i < c->nparams; i++)
		CHECK_OK(srt_param_init_normal(c->param[i], seed, 0.0f, 0.5f, c->stream));
}

static void test_files(void)
{
	srt_mesh_t *mesh = make_default_mesh();
	const srt_strategy_t strategies[] = { SRT_STRATEGY_HYBRID, SRT_STRATEGY_DDP,
					      SRT_STRATEGY_ZERO3 };
	char path[64];

	snprintf(path, sizeof(path), "tests/engine/test_hybrid.%ld.tmp", (long)getppid());
	for (size_t from = 0; from < SRT_ARRAY_LEN(strategies); from++) {
		for (size_t to = 0; to < SRT_ARRAY_LEN(strategies); to++) {
			engine_case_t a, b;
			float *saved, *loaded;

			if (from != 0 && to != 0)
				continue;
			make_engine(&a, strategies[from], from == 0 ? mesh : NULL, 5);
			CHECK_OK(case_step(&a, 0, 1));
			CHECK_OK(srt_engine_save(a.engine, path, NULL, 0, a.stream));
			make_engine(&b, strategies[to], to == 0 ? mesh : NULL, 6);
			CHECK_OK(srt_engine_load(b.engine, path, b.stream));
			saved = case_collect(&a, SRT_PARAM_VALUE);
			loaded = case_collect(&b, SRT_PARAM_VALUE);
			CHECK_BITS(saved, loaded, case_nelem(&a));
			/* Both go on alike, with replicas that are equal. */
			CHECK_OK(case_step(&b, 1, 1));
			free(saved);
			free(loaded);
			case_destroy(&a);
			case_destroy(&b);
		}
	}
	case_wait_for_all(context);
	if (rank == 0)
		unlink(path);
	srt_mesh_destroy(mesh);
}

/* ---- ends ----------------------------------------------------------------------------------- */

/* The mesh and then its communicator are destroyed before the engine. */
static void test_lifetimes(void)
{
	srt_comm_t *group = case_group(context, "to go");
	srt_mesh_t *mesh = make_mesh(group, 2, world / 2, "replicate", "shard");
	srt_engine_options_t o = case_adamw(SRT_STRATEGY_HYBRID);
	engine_case_t c;

	o.mesh = mesh;
	case_declare(&c, context, &o, 5);
	case_build(&c);
	srt_mesh_destroy(mesh);
	CHECK_OK(case_step(&c, 0, 1));
	CHECK_OK(srt_stream_sync(c.stream));
	case_wait_for_all(context);
	srt_comm_destroy(group);
	CHECK(case_step(&c, 1, 1) != SRT_OK);
	CHECK_ERROR_HAS("communicator \"to go\"");
	case_wait_for_all(context);
	case_destroy(&c);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	CHECK_OR_DIE(world == 4);
	test_options();
	test_build();
	test_sizes();
	test_replicas();
	test_infinities();
	test_files();
	test_lifetimes();
	srt_context_destroy(context);
	return check_done();
}
