/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps of engines on meshes of shards and replicas, of every shape that the number of ranks has:
 * the bits of zero3 if a replica is 2^k consecutive ranks; gradients as a plain sum in the tree's
 * order within each replica and then over the replicas gives them; the memory that was planned.
 *
 * Reliability: a plan of hybrid with staged collectives | more than is allocated: the all-reduces
 * of replicas were planned as gathers too | exact
 * Reliability: a plan of groups of ranks, in a job over two nodes | planned as if each group had
 * the world's transport | exact, also for groups that do not exist yet
 *
 * Run by test_hybrid.sh; "short": some cases.
 */
#include "tests/engine/engine_case.h"

#define STEPS 2
#define MAX_WORLD 8
#define H 5 /* rows: over 4 ranks 2, 2, 1, 0 */

static srt_context_t *context;
static srt_comm_t *self; /* this rank alone */
static int rank, world;

/* ---- a run ---------------------------------------------------------------------------------- */

/* What a case changes. */
typedef struct variant {
	const char *name;
	case_types_t types;
	const srt_precision_t *precision; /* NULL: no casts */
	srt_accumulation_t accumulation;
	int nmicro, unused, sgd;
	srt_average_t average;
} variant_t;

/* All results of a run; 16-bit tensors as their bits, two in a float. */
typedef struct result {
	float *value, *grad, *state0;
	float norm;
} result_t;

static srt_engine_options_t make_options(const variant_t *v, srt_strategy_t strategy,
					 srt_mesh_t *mesh)
{
	static const srt_optim_options_t sgd = {
		.size = sizeof(sgd), .kind = SRT_OPTIM_SGD, .lr = 0.05f, .momentum = 0.5
	};
	srt_engine_options_t o = case_adamw(strategy);

	o.mesh = mesh;
	o.precision = v->precision;
	o.accumulation = v->accumulation;
	o.microbatches = v->nmicro;
	o.average = v->average;
	o.optim = v->sgd ? &sgd : &case_adamw_eps;
	return o;
}

/* Declares and builds; the plan is what is allocated, and each rank can plan for every other. */
static void build(engine_case_t *c, const variant_t *v, const srt_engine_options_t *options)
{
	srt_plan_t mine = SRT_PLAN_INIT, theirs[MAX_WORLD], planned = SRT_PLAN_INIT;
	size_t allocated;

	case_declare_as(c, context, options, H, &v->types);
	c->unused = v->unused;
	c->check = 1;
	CHECK_OK(srt_engine_plan(c->engine, rank, 0, &mine));
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_engine_build(c->engine));
	CHECK_INT(case_allocated(context) - allocated, case_planned(&mine));
	CHECK_OK_OR_DIE(
		srt_comm_oob_allgather(srt_context_world(context), &mine, sizeof(mine), theirs));
	for (int r = 0; r < world; r++) {
		CHECK_OK(srt_engine_plan(c->engine, r, world, &planned));
		CHECK_INT(planned.total, theirs[r].total);
		CHECK_INT(planned.param_shards, theirs[r].param_shards);
		CHECK_INT(planned.staging, theirs[r].staging);
		CHECK_INT(planned.peer_mapped, theirs[r].peer_mapped);
	}
	for (size_t i = 0; i < c->nparams; i++)
		CHECK_OK(srt_param_init_normal(c->param[i], 1234, 0.0f, 0.5f, c->stream));
}

static void collect(engine_case_t *c, result_t *result)
{
	srt_step_info_t state = SRT_STEP_INFO_INIT;

	CHECK_OK(srt_engine_get_step_info(c->engine, &state, c->stream));
	result->norm = state.grad_norm;
	result->value = case_collect(c, SRT_PARAM_VALUE);
	result->grad = case_collect(c, SRT_PARAM_GRAD);
	result->state0 = case_collect(c, SRT_PARAM_STATE0);
}

static void run(const variant_t *v, srt_strategy_t strategy, srt_mesh_t *mesh, result_t *result)
{
	const srt_engine_options_t options = make_options(v, strategy, mesh);
	engine_case_t c;

	build(&c, v, &options);
	c.delay = 1;
	for (int step = 0; step < STEPS; step++)
		CHECK_OK_OR_DIE(case_step(&c, step, v->nmicro));
	collect(&c, result);
	case_destroy(&c);
}

static void result_free(result_t *r)
{
	free(r->value);
	free(r->grad);
	free(r->state0);
}

static void compare(const variant_t *v, const char *what, const result_t *a, const result_t *b)
{
	const size_t nbytes = case_total_nelem(context, H) * sizeof(float);

	CHECK_MSG(memcmp(a->value, b->value, nbytes) == 0 &&
			  memcmp(a->grad, b->grad, nbytes) == 0 &&
			  memcmp(a->state0, b->state0, nbytes) == 0 &&
			  memcmp(&a->norm, &b->norm, sizeof(float)) == 0,
		  "%s: %s; norm %.9g, %.9g", v->name, what, (double)a->norm, (double)b->norm);
	CHECK(a->norm > 0.0f && a->norm < 1e6f);
}

/* ---- shapes ------------------------------------------------------------------------------- */

static srt_mesh_t *make_mesh(int replicate, int shard, bool shard_first)
{
	const int shape[] = { shard_first ? shard : replicate, shard_first ? replicate : shard };
	const char *const dims[] = { shard_first ? "shard" : "replicate",
				     shard_first ? "replicate" : "shard" };
	srt_mesh_t *mesh = NULL;

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, dims, &mesh));
	return mesh;
}

static bool is_power(int n)
{
	return (n & (n - 1)) == 0;
}

static const variant_t variants[] = {
	{ .name = "fp32", .nmicro = 1 },
	{ .name = "every, unused on rank 0", .nmicro = 3, .unused = 2 },
	{ .name = "last, unused", .nmicro = 3, .unused = 1, .accumulation = SRT_ACCUMULATE_LAST },
	{ .name = "tree", .nmicro = 2, .unused = 2, .accumulation = SRT_ACCUMULATE_TREE },
	{ .name = "bf16, reduced in f32",
	  .precision = PRECISION(.param = SRT_BF16, .reduce = SRT_F32),
	  .nmicro = 2,
	  .unused = 2 },
	{ .name = "bf16, reduced in bf16",
	  .precision = PRECISION(.param = SRT_BF16),
	  .nmicro = 2,
	  .sgd = 1 },
	{ .name = "f32, reduced in bf16, divided first",
	  .precision = PRECISION(.reduce = SRT_BF16),
	  .nmicro = 1,
	  .average = SRT_AVERAGE_FIRST },
	{ .name = "f16 alone", .types = { .stored = SRT_F16 }, .nmicro = 2, .unused = 2 },
	{ .name = "stored in bf16, last",
	  .types = { .stored = SRT_BF16, .ngroups = 3 },
	  .nmicro = 2,
	  .accumulation = SRT_ACCUMULATE_LAST },
	{ .name = "last all-reduce, fp32",
	  .nmicro = 3,
	  .unused = 2,
	  .accumulation = SRT_ACCUMULATE_LAST_ALL_REDUCE },
	{ .name = "last all-reduce, f16",
	  .types = { .stored = SRT_F16 },
	  .nmicro = 2,
	  .accumulation = SRT_ACCUMULATE_LAST_ALL_REDUCE },
	{ .name = "last all-reduce, bf16",
	  .precision = PRECISION(.param = SRT_BF16),
	  .nmicro = 2,
	  .accumulation = SRT_ACCUMULATE_LAST_ALL_REDUCE },
};

/* On a mesh all strategies have the same bits, and where they must be, those of zero3. */
static void test_variant(const variant_t *v, int replicate, int shard, bool shard_first)
{
	const bool is_last = v->accumulation == SRT_ACCUMULATE_LAST_ALL_REDUCE;
	const bool is_zero3 =
		!shard_first && is_power(shard) && (!is_last || replicate == 1 || shard == 1);
	srt_mesh_t *mesh = make_mesh(replicate, shard, shard_first);
	variant_t flat = *v; /* by turns */
	result_t hybrid, other;

	flat.types.flat = (srt_flat_t)((v - variants) % 3);
	if (v->accumulation != SRT_ACCUMULATE_TREE || (is_power(world) && !shard_first)) {
		run(&flat, SRT_STRATEGY_HYBRID, mesh, &hybrid);
		run(v, SRT_STRATEGY_ZERO1, mesh, &other);
		compare(v, "hybrid and zero1 on the mesh", &hybrid, &other);
		result_free(&other);
		if (is_zero3) {
			variant_t plain = *v;

			if (is_last)
				plain.accumulation = SRT_ACCUMULATE_EVERY;
			run(&plain, SRT_STRATEGY_ZERO3, NULL, &other);
			compare(v, "hybrid and zero3 without a mesh", &hybrid, &other);
		} else {
			run(v, SRT_STRATEGY_ZERO2, mesh, &other);
			compare(v, "hybrid and zero2 on the mesh", &hybrid, &other);
		}
		result_free(&other);
		result_free(&hybrid);
	}
	srt_mesh_destroy(mesh);
}

/* A mesh of one dimension is what the strategy is without one. */
static void test_one_dim(const variant_t *v)
{
	const char *const dims[] = { "dp" }, *const others[] = { "nodes" };
	const srt_strategy_t strategies[] = { SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO3 };
	srt_mesh_t *mesh = NULL, *named = NULL;
	result_t plain, on_mesh;
	srt_engine_options_t o;
	engine_case_t c;

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 1, &world, dims, &mesh));
	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 1, &world, others, &named));
	run(v, SRT_STRATEGY_DDP, NULL, &plain);
	for (size_t i = 0; i < SRT_ARRAY_LEN(strategies); i++) {
		run(v, strategies[i], mesh, &on_mesh);
		compare(v, "a mesh of one dimension", &plain, &on_mesh);
		result_free(&on_mesh);
	}
	o = make_options(v, SRT_STRATEGY_ZERO3, named);
	o.shard_dim = "nodes";
	build(&c, v, &o);
	srt_mesh_destroy(named); /* the engine keeps it */
	for (int step = 0; step < STEPS; step++)
		CHECK_OK_OR_DIE(case_step(&c, step, v->nmicro));
	collect(&c, &on_mesh);
	case_destroy(&c);
	compare(v, "a dimension of another name", &plain, &on_mesh);
	result_free(&on_mesh);
	result_free(&plain);
	srt_mesh_destroy(mesh);
}

/* ---- gradients against a plain computation ------------------------------------------------- */

/* This rank's gradients of one micro-batch, not reduced. */
static float *local_grads(int micro)
{
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_DDP);
	engine_case_t c;
	float *grads;

	options.comm = self;
	case_declare(&c, context, &options, H);
	case_build(&c);
	CHECK_OK_OR_DIE(case_forward(&c, 0));
	CHECK_OK_OR_DIE(case_backward(&c, 0, micro));
	CHECK_OK_OR_DIE(srt_engine_step(c.engine, c.stream));
	grads = case_collect(&c, SRT_PARAM_GRAD);
	case_destroy(&c);
	return grads;
}

/* The tree of docs/numerics.md: neighbours 2i and 2i+1, left + right, an odd last one passes up. */
static float tree_sum(float *x, int n)
{
	while (n > 1) {
		for (int i = 0; i < n / 2; i++)
			x[i] = x[2 * i] + x[2 * i + 1];
		if (n % 2)
			x[n / 2] = x[n - 1];
		n = (n + 1) / 2;
	}
	return x[0];
}

/* Adds to sums[replica][n] the gradients of a micro-batch, summed within each replica. */
static void add_microbatch(int micro, int replicate, int shard, bool shard_first, size_t n,
			   float *sums)
{
	float *local = local_grads(micro), *all = calloc(n * (size_t)world, sizeof(*all));
	float x[MAX_WORLD];

	CHECK_OR_DIE(all != NULL);
	CHECK_OK_OR_DIE(
		srt_comm_oob_allgather(srt_context_world(context), local, n * sizeof(*local), all));
	for (int p = 0; p < replicate; p++) {
		for (size_t i = 0; i < n; i++) {
			float *sum = &sums[(size_t)p * n + i];

			for (int s = 0; s < shard; s++)
				x[s] = all[(size_t)(shard_first ? s * replicate + p :
								  p * shard + s) *
						   n +
					   i];
			*sum = micro == 0 ? tree_sum(x, shard) : *sum + tree_sum(x, shard);
		}
	}
	free(all);
	free(local);
}

/* last_all_reduce: micro-batches are added within the replica, else after the sum over replicas. */
static void test_gradients(int replicate, int shard, bool shard_first, bool last_all_reduce)
{
	const bool last = last_all_reduce && replicate > 1 && shard > 1;
	const variant_t v = { .name = "gradients",
			      .nmicro = 2,
			      .accumulation = last_all_reduce ? SRT_ACCUMULATE_LAST_ALL_REDUCE :
								SRT_ACCUMULATE_EVERY };
	const size_t n = case_total_nelem(context, H);
	float *sums = calloc(n * (size_t)replicate, sizeof(*sums)),
	      *want = calloc(n, sizeof(*want));
	srt_mesh_t *mesh = make_mesh(replicate, shard, shard_first);
	const srt_engine_options_t o = make_options(&v, SRT_STRATEGY_HYBRID, mesh);
	float x[MAX_WORLD], *grads;
	engine_case_t c;

	CHECK_OR_DIE(sums != NULL && want != NULL);
	for (int m = 0; m < v.nmicro; m++) {
		if (!last)
			memset(sums, 0, n * (size_t)replicate * sizeof(*sums));
		add_microbatch(m, replicate, shard, shard_first, n, sums);
		for (size_t i = 0; i < n && (!last || m == v.nmicro - 1); i++) {
			for (int p = 0; p < replicate; p++)
				x[p] = sums[(size_t)p * n + i];
			x[0] = tree_sum(x, replicate) / (float)world;
			want[i] = m == 0 || last ? x[0] : want[i] + x[0];
		}
	}
	build(&c, &v, &o);
	CHECK_OK_OR_DIE(case_step(&c, 0, v.nmicro));
	grads = case_collect(&c, SRT_PARAM_GRAD);
	CHECK_BITS(grads, want, n);
	case_destroy(&c);
	srt_mesh_destroy(mesh);
	free(grads);
	free(want);
	free(sums);
}

/* ---- reset ---------------------------------------------------------------------------------- */

/* A step that is dropped after its first micro-batch leaves nothing. */
static void test_reset(const variant_t *v, int replicate, int shard)
{
	srt_mesh_t *mesh = make_mesh(replicate, shard, false);
	const srt_engine_options_t o = make_options(v, SRT_STRATEGY_HYBRID, mesh);
	result_t plain, reset;
	engine_case_t c;

	run(v, SRT_STRATEGY_HYBRID, mesh, &plain);
	build(&c, v, &o);
	for (int step = 0; step < STEPS; step++) {
		CHECK_OK(srt_engine_microbatch(c.engine, 0, v->nmicro));
		CHECK_OK(case_forward(&c, 7));
		CHECK_OK(case_backward(&c, 7, 0));
		CHECK_OK(srt_engine_reset(c.engine));
		CHECK_OK_OR_DIE(case_step(&c, step, v->nmicro));
	}
	collect(&c, &reset);
	case_destroy(&c);
	compare(v, "after a reset", &plain, &reset);
	result_free(&plain);
	result_free(&reset);
	srt_mesh_destroy(mesh);
}

/* ---- all shapes ----------------------------------------------------------------------------- */

/* Shards that have replicas. turn: of this shape among those, which share the variants. */
static void test_hybrid(int replicate, int shard, int turn, int nturns)
{
	const bool is_long = check_is_long();

	for (int i = 0; i < (int)SRT_ARRAY_LEN(variants); i++) {
		if (is_long || i % nturns == turn)
			test_variant(&variants[i], replicate, shard, false);
		if (is_long || i == 1)
			test_variant(&variants[i], replicate, shard, true);
	}
	for (int last = 0; last < 2; last++) {
		test_gradients(replicate, shard, false, last);
		test_gradients(replicate, shard, true, last);
	}
	test_reset(&variants[1], replicate, shard);
	test_reset(&variants[9], replicate, shard);
}

static void test_shapes(void)
{
	int nhybrid = 0, turn = 0;

	for (int shard = 2; shard < world; shard++)
		nhybrid += world % shard == 0;
	for (int shard = 1; shard <= world; shard++) {
		if (world % shard != 0)
			continue;
		if (shard > 1 && shard < world) {
			test_hybrid(world / shard, shard, turn++, nhybrid);
			continue;
		}
		test_variant(&variants[0], world / shard, shard, false);
		test_variant(&variants[9], world / shard, shard, false);
		test_gradients(world / shard, shard, false, true);
	}
}

int main(int argc, char **argv)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	CHECK_OR_DIE(world <= MAX_WORLD);
	CHECK_OK_OR_DIE(srt_comm_split(srt_context_world(context), rank, "alone", &self));
	if (argc > 1 && strcmp(argv[1], "short") == 0) {
		test_variant(&variants[6], 2, world / 2, false);
		test_variant(&variants[9], 2, world / 2, false);
		test_gradients(2, world / 2, true, true);
		test_gradients(world / 2, 2, false, false);
	} else {
		test_shapes();
		test_one_dim(&variants[4]);
	}
	srt_comm_destroy(self);
	srt_context_destroy(context);
	return check_done();
}
