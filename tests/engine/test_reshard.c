/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Units that are resharded to groups of n ranks after the forward pass: the bits of
 * SRT_RESHARD_ALWAYS, the memory that was planned, and which gathers run within the groups.
 * Run by test_reshard.sh; "short": some cases.
 */
#include "collectives/comm.h"
#include "runtime/engine/engine.h"
#include "tests/engine/engine_case.h"

#define H 5 /* rows: over 4 ranks 2, 2, 1, 0 */
#define MAX_WORLD 8

static srt_context_t *context;
static int world;
static bool is_short;

/* ---- trainings ---------------------------------------------------------------------------- */

typedef enum program {
	PLAIN,      /* steps */
	REUSES,     /* each pass runs each block twice; evaluation between the passes */
	RECOMPUTES, /* blocks run forward again in the backward pass */
	CHANGES,    /* values are read and changed between passes */
	NPROGRAMS,
} program_t;

typedef struct variant {
	const char *name;
	case_types_t types;
	const srt_precision_t *precision; /* NULL: no casts */
	srt_accumulation_t accumulation;
	int nmicro, unused;
	srt_offload_t offload;
	int prefetch;
} variant_t;

/* In 16 bits, two blocks share a slot only without prefetching. */
static const variant_t variants[] = {
	{ .name = "fp32", .nmicro = 1, .prefetch = 1 },
	{ .name = "bf16, reduced in f32, 3 micro-batches, no prefetch",
	  .precision = PRECISION(.param = SRT_BF16, .reduce = SRT_F32),
	  .types = { .flat = SRT_FLAT_VIEWS },
	  .nmicro = 3,
	  .unused = 2 },
	{ .name = "f16 alone, last, no prefetch",
	  .types = { .stored = SRT_F16 },
	  .nmicro = 2,
	  .accumulation = SRT_ACCUMULATE_LAST },
	{ .name = "offload, prefetch 2",
	  .types = { .flat = SRT_FLAT_PADDED },
	  .nmicro = 2,
	  .offload = { .params = 1, .grads = 1, .state = 1 },
	  .prefetch = 2 },
};

/* All results of a run; 16-bit tensors as their bits, two in a float. */
typedef struct result {
	float *value, *grad, *state0;
	float norm;
	uint32_t ngathers; /* starts on all communicators of the engine together */
	uint32_t nregathers;
	srt_plan_t plan;
} result_t;

static srt_status_t forward_block(engine_case_t *c, int b)
{
	SRT_TRY(srt_unit_forward_begin(c->block[b], c->stream));
	if (b == 1) {
		SRT_TRY(srt_unit_forward_begin(c->inner, c->stream));
		SRT_TRY(srt_unit_forward_end(c->inner, c->stream));
	}
	return srt_unit_forward_end(c->block[b], c->stream);
}

static srt_status_t backward_block(engine_case_t *c, int b, int step, int micro)
{
	char name[32];

	snprintf(name, sizeof(name), "b%d", b);
	SRT_TRY(case_backward_unit(c, c->block[b], name, step, micro));
	if (b == 1) {
		SRT_TRY(case_backward_unit(c, c->inner, "b1.inner", step, micro));
		SRT_TRY(srt_unit_backward_end(c->inner, c->stream));
	}
	return srt_unit_backward_end(c->block[b], c->stream);
}

/* A pass that runs the blocks `times` times, and recomputes them or not. */
static srt_status_t run_pass(engine_case_t *c, int step, int micro, int times, bool recomputes)
{
	SRT_TRY(srt_unit_forward_begin(c->root, c->stream));
	for (int i = 0; i < times * NBLOCKS; i++)
		SRT_TRY(forward_block(c, i / times));
	SRT_TRY(srt_unit_forward_end(c->root, c->stream));
	SRT_TRY(case_backward_unit(c, c->root, "root", step, micro));
	for (int i = times * NBLOCKS - 1; i >= 0; i--) {
		if (recomputes)
			SRT_TRY(forward_block(c, i / times));
		SRT_TRY(backward_block(c, i / times, step, micro));
	}
	return srt_unit_backward_end(c->root, c->stream);
}

static void read_values(engine_case_t *c)
{
	free(case_collect(c, SRT_PARAM_VALUE));
}

/* Parts of the old values are kept when the values change. */
static void change_values(engine_case_t *c, int step)
{
	CHECK_OK(case_forward(c, step));
	if (step == 0)
		CHECK_OK(srt_param_init_normal(c->param[11], 77, 0.0f, 0.25f, c->stream));
	else
		for (size_t i = 0; i < c->nparams; i++)
			CHECK_OK(srt_param_init_normal(c->param[i], 99, 0.0f, 0.25f, c->stream));
	read_values(c);
	if (step == 2 && c->engine->home.device == c->engine->device) {
		CHECK_OK(srt_engine_write_begin(c->engine, c->stream));
		CHECK_OK(srt_op_scale(c->param[2]->views.local, c->param[2]->views.local, 2.0f,
				      c->param[2]->shard.nelem, c->stream));
		CHECK_OK(srt_engine_write_end(c->engine, c->stream));
	}
}

static void run_step(engine_case_t *c, program_t program, int step, int nmicro)
{
	for (int m = 0; m < nmicro; m++) {
		CHECK_OK(srt_engine_microbatch(c->engine, m, nmicro));
		if (m == 0 && program == CHANGES)
			change_values(c, step);
		if (program == REUSES)
			CHECK_OK(case_forward(c, step)); /* evaluation */
		if (m == 1 && program == CHANGES) {
			CHECK_OK(case_forward(c, step));
			read_values(c);
			CHECK_OK(case_backward(c, step, m));
			continue;
		}
		CHECK_OK_OR_DIE(
			run_pass(c, step, m, program == REUSES ? 2 : 1, program == RECOMPUTES));
	}
	CHECK_OK_OR_DIE(srt_engine_step(c->engine, c->stream));
}

static srt_engine_options_t make_options(const variant_t *v, srt_strategy_t strategy,
					 srt_mesh_t *mesh)
{
	srt_engine_options_t o = case_adamw(strategy);

	o.mesh = mesh;
	o.precision = v->precision;
	o.accumulation = v->accumulation;
	o.microbatches = v->nmicro;
	o.offload = v->offload;
	o.prefetch = v->prefetch;
	o.optim = &case_adamw_eps;
	return o;
}

static uint32_t count_starts(const srt_engine_t *engine)
{
	uint32_t n = engine->comm->nstarts;

	if (engine->comms.shard != NULL && engine->comms.shard != engine->comm)
		n += engine->comms.shard->nstarts;
	return n + (engine->comms.group != NULL ? engine->comms.group->nstarts : 0);
}

/* Declares and builds; the plan is what is allocated, and each rank can plan for every other. */
static void build(engine_case_t *c, const variant_t *v, srt_strategy_t strategy, srt_mesh_t *mesh,
		  int reshard, srt_plan_t *plan)
{
	const srt_engine_options_t options = make_options(v, strategy, mesh);
	srt_plan_t theirs[MAX_WORLD], planned = SRT_PLAN_INIT;
	case_types_t types = v->types;
	size_t allocated;

	types.reshard = reshard;
	case_declare_as(c, context, &options, H, &types);
	c->unused = v->unused;
	c->check = c->delay = 1;
	*plan = (srt_plan_t)SRT_PLAN_INIT;
	CHECK_OK_OR_DIE(srt_engine_plan(c->engine, c->rank, 0, plan));
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_engine_build(c->engine));
	CHECK_INT(case_allocated(context) - allocated, case_planned(plan));
	CHECK_OK_OR_DIE(
		srt_comm_oob_allgather(srt_context_world(context), plan, sizeof(*plan), theirs));
	for (int r = 0; r < world; r++) {
		CHECK_OK(srt_engine_plan(c->engine, r, world, &planned));
		CHECK_INT(planned.total, theirs[r].total);
		CHECK_INT(planned.unsharded, theirs[r].unsharded);
		CHECK_INT(planned.staging, theirs[r].staging);
		CHECK_INT(planned.peer_mapped, theirs[r].peer_mapped);
	}
	for (size_t i = 0; i < c->nparams; i++)
		CHECK_OK(srt_param_init_normal(c->param[i], 1234, 0.0f, 0.5f, c->stream));
}

static void run(const variant_t *v, srt_strategy_t strategy, srt_mesh_t *mesh, int reshard,
		program_t program, result_t *result)
{
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	engine_case_t c;
	uint32_t before;

	build(&c, v, strategy, mesh, reshard, &result->plan);
	before = count_starts(c.engine);
	for (int step = 0; step < (program == CHANGES ? 3 : 2); step++)
		run_step(&c, program, step, v->nmicro);
	result->ngathers = count_starts(c.engine) - before;
	result->nregathers = c.engine->comms.group != NULL ? c.engine->comms.group->nstarts : 0;
	CHECK_OK(srt_engine_get_step_info(c.engine, &state, c.stream));
	result->norm = state.grad_norm;
	result->value = case_collect(&c, SRT_PARAM_VALUE);
	result->grad = case_collect(&c, SRT_PARAM_GRAD);
	result->state0 = case_collect(&c, SRT_PARAM_STATE0);
	case_destroy(&c);
}

static void result_free(result_t *r)
{
	free(r->value);
	free(r->grad);
	free(r->state0);
}

static void compare(const variant_t *v, int n, program_t program, const result_t *a,
		    const result_t *b)
{
	const size_t nbytes = case_total_nelem(context, H) * sizeof(float);

	CHECK_MSG(memcmp(a->value, b->value, nbytes) == 0 &&
			  memcmp(a->grad, b->grad, nbytes) == 0 &&
			  memcmp(a->state0, b->state0, nbytes) == 0 &&
			  memcmp(&a->norm, &b->norm, sizeof(float)) == 0,
		  "%s, groups of %d, program %d: norm %.9g, %.9g", v->name, n, (int)program,
		  (double)a->norm, (double)b->norm);
	CHECK(a->norm > 0.0f && a->norm < 1e6f);
}

/* Groups of n ranks against SRT_RESHARD_ALWAYS: the same values and as many gathers, some of them
 * within the groups. */
static void test_programs(const variant_t *v, srt_strategy_t strategy, srt_mesh_t *mesh, int n)
{
	for (program_t program = PLAIN; program < NPROGRAMS; program++) {
		result_t always, groups;

		if (is_short && program != PLAIN && program != CHANGES)
			continue;
		run(v, strategy, mesh, SRT_RESHARD_ALWAYS, program, &always);
		run(v, strategy, mesh, n, program, &groups);
		compare(v, n, program, &always, &groups);
		CHECK_INT(always.ngathers, groups.ngathers);
		CHECK_MSG(groups.nregathers > 0 && groups.nregathers < groups.ngathers,
			  "%s, program %d: %u of %u gathers are within groups", v->name,
			  (int)program, groups.nregathers, groups.ngathers);
		CHECK(groups.plan.unsharded > always.plan.unsharded);
		CHECK_INT(groups.plan.total - groups.plan.unsharded -
				  (groups.plan.staging - always.plan.staging),
			  always.plan.total - always.plan.unsharded);
		result_free(&always);
		result_free(&groups);
	}
}

/* ---- which gathers ------------------------------------------------------------------------- */

static void count_gathers(const engine_case_t *c, uint32_t *all, uint32_t *group)
{
	*group = c->engine->comms.group->nstarts;
	*all = c->engine->comm->nstarts;
}

/* With one slot for four blocks: b0, b1 and b2 lose it in the forward pass. Later gathers are
 * within the group, until the values change. */
static void test_counts(int n)
{
	const variant_t v = { .name = "counts", .nmicro = 1 };
	uint32_t all0, group0, all, group;
	srt_plan_t plan = SRT_PLAN_INIT;
	engine_case_t c;

	build(&c, &v, SRT_STRATEGY_ZERO3, NULL, n, &plan);
	CHECK_OK(case_step(&c, 0, 1));
	count_gathers(&c, &all0, &group0);
	CHECK_OK(case_forward(&c, 1));
	count_gathers(&c, &all, &group);
	/* root, four blocks, inner: once each of all ranks */
	CHECK_INT(all - all0, 6);
	CHECK_INT(group - group0, 0);
	CHECK(c.block[0]->unshard.has_part && !c.block[0]->unshard.is_gathered);
	CHECK(!c.block[3]->unshard.has_part && c.block[3]->unshard.is_gathered);
	CHECK(!c.root->unshard.has_part);
	CHECK_OK(case_forward(&c, 1)); /* evaluation of the same values */
	count_gathers(&c, &all0, &group0);
	CHECK_INT(all0 - all, 1); /* b3, which had no part yet */
	CHECK_INT(group0 - group, 4 - 1);
	CHECK_OK(srt_param_init_normal(c.param[2], 1, 0.0f, 1.0f, c.stream));
	CHECK(!c.block[0]->unshard.has_part &&
	      c.block[1]->unshard.has_part); /* param[2] is of b0 */
	CHECK_OK(srt_engine_reset(c.engine));
	CHECK(!c.block[1]->unshard.has_part);
	case_destroy(&c);
}

/* ---- options ------------------------------------------------------------------------------- */

static srt_plan_t plan_of(srt_strategy_t strategy, srt_mesh_t *mesh, int reshard)
{
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = strategy, .mesh = mesh,
					       .optim = OPTIM(.kind = SRT_OPTIM_SGD) };
	const case_types_t types = { .stored = SRT_F32, .reshard = reshard };
	srt_plan_t plan = SRT_PLAN_INIT;
	engine_case_t c;

	case_declare_as(&c, context, &options, H, &types);
	CHECK_OK(srt_engine_plan(c.engine, c.rank, 0, &plan));
	case_destroy(&c);
	return plan;
}

static void check_equal(srt_plan_t a, srt_plan_t b)
{
	CHECK_INT(a.total, b.total);
	CHECK_INT(a.unsharded, b.unsharded);
	CHECK_INT(a.peer_mapped, b.peer_mapped);
	CHECK_INT(a.nslots, b.nslots);
}

static void check_refused(int reshard, int other, srt_status_t expected, const char *words)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	const srt_unit_options_t of[] = {
		{ .size = sizeof(of[0]), .reshard = reshard },
		{ .size = sizeof(of[0]), .reshard = other },
	};
	const int64_t shape[] = { 4 };
	srt_engine_t *engine;
	srt_unit_t *root, *child;
	srt_param_t *param;
	srt_plan_t plan = SRT_PLAN_INIT;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", &of[0], &root));
	CHECK_OK_OR_DIE(srt_unit_create(engine, root, "child", &of[1], &child));
	CHECK_OK_OR_DIE(srt_param_create(root, "w", SRT_F32, 1, shape, NULL, &param));
	if (expected != SRT_ERR_MISMATCH) { /* between the ranks */
		CHECK_STATUS(srt_engine_plan(engine, 0, 0, &plan), expected);
		CHECK_ERROR_HAS(words);
	}
	CHECK_OK(srt_engine_plan(engine, 0, 1, &plan)); /* one rank has no groups */
	CHECK_STATUS(srt_engine_build(engine), expected);
	CHECK_ERROR_HAS(words);
	srt_engine_destroy(engine);
}

static void test_options(void)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	const srt_unit_options_t wrong = { .size = sizeof(wrong), .reshard = -3 };
	const int rank = srt_context_rank(context);
	char words[96];
	srt_engine_t *engine;
	srt_unit_t *unit;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_STATUS(srt_unit_create(engine, NULL, "root", &wrong, &unit),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is -3, must be 0, SRT_RESHARD_NEVER, SRT_RESHARD_ALWAYS or a number of");
	srt_engine_destroy(engine);

	snprintf(words, sizeof(words), "'root' is %d, must be a factor of the %d ranks", world - 1,
		 world);
	check_refused(world - 1, 0, SRT_ERR_INVALID_ARGUMENT, words);
	check_refused(world + 1, 0, SRT_ERR_INVALID_ARGUMENT, "must be a factor of");
	check_refused(2, rank == 0 ? SRT_RESHARD_ALWAYS : 0, SRT_ERR_MISMATCH, "reshard");
	if (world % 6 == 0)
		check_refused(2, 3, SRT_ERR_UNSUPPORTED, "groups of one size");
	/* One is NEVER, all are ALWAYS; and where nothing is sharded there are no groups. */
	check_equal(plan_of(SRT_STRATEGY_ZERO3, NULL, 1),
		    plan_of(SRT_STRATEGY_ZERO3, NULL, SRT_RESHARD_NEVER));
	check_equal(plan_of(SRT_STRATEGY_ZERO1, NULL, world),
		    plan_of(SRT_STRATEGY_ZERO1, NULL, SRT_RESHARD_ALWAYS));
	check_equal(plan_of(SRT_STRATEGY_DDP, NULL, 3), plan_of(SRT_STRATEGY_DDP, NULL, 0));
}

/* ---- meshes --------------------------------------------------------------------------------- */

static srt_mesh_t *make_mesh(int first, int second, const char *const *dims)
{
	const int shape[] = { first, second };
	srt_mesh_t *mesh = NULL;

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, dims, &mesh));
	return mesh;
}

/* Two replicas, or two tensor-parallel ranks, of shards in groups of n. */
static void test_meshes(int n)
{
	static const char *const hybrid[] = { "replicate", "shard" }, *const tensor[] = { "dp",
											  "tp" };
	srt_mesh_t *replicas = make_mesh(2, world / 2, hybrid);
	srt_mesh_t *cells = make_mesh(world / 2, 2, tensor);
	variant_t v = variants[0];

	if (n < world / 2 && world / 2 % n == 0) {
		test_programs(&v, SRT_STRATEGY_HYBRID, replicas, n);
		v.types.cut_over = "tp";
		test_programs(&v, SRT_STRATEGY_ZERO3, cells, n);
	}
	/* The shard group, and all ranks. */
	check_equal(plan_of(SRT_STRATEGY_HYBRID, replicas, world / 2),
		    plan_of(SRT_STRATEGY_HYBRID, replicas, SRT_RESHARD_ALWAYS));
	check_equal(plan_of(SRT_STRATEGY_HYBRID, replicas, world),
		    plan_of(SRT_STRATEGY_HYBRID, replicas, SRT_RESHARD_ALWAYS));
	srt_mesh_destroy(cells);
	srt_mesh_destroy(replicas);
}

int main(int argc, char **argv)
{
	is_short = argc > 1 && strcmp(argv[1], "short") == 0;
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	world = srt_context_world_size(context);
	CHECK_OR_DIE(world >= 4 && world <= MAX_WORLD && world % 2 == 0);
	if (!is_short)
		test_options();
	if (srt_config_bool("SHARDRT_CHECK") == 0)
		test_counts(2);
	for (size_t i = 0; i < SRT_ARRAY_LEN(variants); i++) {
		if (is_short ? i != 1 : world == 8 && i != 0)
			continue;
		for (int n = 2; n < world; n++)
			if (world % n == 0)
				test_programs(&variants[i], SRT_STRATEGY_ZERO3, NULL, n);
	}
	if (!is_short)
		test_programs(&variants[0], SRT_STRATEGY_ZERO1, NULL, 2);
	test_meshes(2);
	srt_context_destroy(context);
	return check_done();
}
