/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SHARDRT_AUDIT=1 finds a wrong element of a reduced gradient in the step that made it, with the
 * same error on all ranks, which names the parameter, the unit and the rank; then the engine goes
 * on. Without a wrong element it finds none, and the bits are those without it.
 *
 * Reliability: a device or a transport that stores a wrong element of a sum of gradients | worse
 * training | `SHARDRT_AUDIT=1` names the parameter, the unit and the rank in that step
 *
 * Run with SHARDRT_AUDIT=1 by test_audit.sh; "short": some cases, "clean": prints the hashes of the
 * cases without planting.
 */
#include "runtime/engine/layout/layout.h"
#include "runtime/engine/layout/shard.h"
#include "tests/engine/planted.h"

static srt_context_t *context;
static int rank, world;
static bool is_short, is_clean;

typedef enum mesh_kind { NO_MESH, REPLICAS, TENSOR } mesh_kind_t;

typedef struct variant {
	const char *name;
	srt_strategy_t strategy;
	int64_t h; /* rows; 0: 5 */
	mesh_kind_t mesh;
	srt_accumulation_t accumulation;
	int nmicro; /* 0: 1 */
	case_types_t types;
	const srt_precision_t *precision; /* NULL: no casts */
	srt_offload_t offload;
	srt_average_t average;
} variant_t;

#define REDUCED_IN(param_dtype, reduce_dtype)                                                      \
	.precision = PRECISION(.param = (param_dtype), .reduce = (reduce_dtype))

static const variant_t variants[] = {
	{ "ddp", SRT_STRATEGY_DDP, .nmicro = 1 },
	{ "zero3", SRT_STRATEGY_ZERO3, .nmicro = 1 },
	{ "hybrid", SRT_STRATEGY_HYBRID, .mesh = REPLICAS },
	{ "zero2, bf16, every", SRT_STRATEGY_ZERO2, .nmicro = 2, REDUCED_IN(SRT_BF16, SRT_BF16) },
	{ "zero1, one row", SRT_STRATEGY_ZERO1, .h = 1 },
	{ "zero2", SRT_STRATEGY_ZERO2, .average = SRT_AVERAGE_FIRST },
	{ "kept, flat", SRT_STRATEGY_ZERO3,
	  .types = { .reshard = SRT_RESHARD_NEVER, .flat = SRT_FLAT_VIEWS } },
	{ "zero3, every", SRT_STRATEGY_ZERO3, .nmicro = 3 },
	{ "ddp, every", SRT_STRATEGY_DDP, .nmicro = 3 },
	{ "zero3, last", SRT_STRATEGY_ZERO3, .nmicro = 3, .accumulation = SRT_ACCUMULATE_LAST },
	{ "zero1, tree", SRT_STRATEGY_ZERO1, .nmicro = 4, .accumulation = SRT_ACCUMULATE_TREE },
	{ "zero3, last, f32 sums", SRT_STRATEGY_ZERO3, .nmicro = 2,
	  .accumulation = SRT_ACCUMULATE_LAST, REDUCED_IN(SRT_BF16, SRT_F32) },
	{ "ddp, f16", SRT_STRATEGY_DDP, REDUCED_IN(SRT_F16, SRT_F16) },
	{ "zero3, offload", SRT_STRATEGY_ZERO3, .nmicro = 2,
	  .offload = { .params = 1, .grads = 1, .state = 1 } },
	{ "ddp, offload", SRT_STRATEGY_DDP, .offload = { .grads = 1, .state = 1 } },
	{ "hybrid, bf16, every", SRT_STRATEGY_HYBRID, .mesh = REPLICAS, .nmicro = 2,
	  REDUCED_IN(SRT_BF16, SRT_BF16) },
	{ "hybrid, last all-reduce", SRT_STRATEGY_HYBRID, .mesh = REPLICAS, .nmicro = 2,
	  .accumulation = SRT_ACCUMULATE_LAST_ALL_REDUCE },
	{ "zero3, tensor parallel", SRT_STRATEGY_ZERO3, .mesh = TENSOR },
	{ "ddp, tensor parallel", SRT_STRATEGY_DDP, .mesh = TENSOR },
};

static int count_microbatches(const variant_t *v)
{
	return v->nmicro > 0 ? v->nmicro : 1;
}

static bool is_possible(const variant_t *v)
{
	if (v->accumulation == SRT_ACCUMULATE_TREE && (world & (world - 1)) != 0)
		return false;
	return v->mesh == NO_MESH || (world % 2 == 0 && (v->mesh == TENSOR || world > 2));
}

static void build(engine_case_t *c, const variant_t *v, srt_mesh_t **mesh)
{
	static const char *const names[][2] = {
		[REPLICAS] = { "replicate", "shard" }, [TENSOR] = { "dp", "tp" }
	};
	const int shape[] = { world / 2, 2 };
	srt_engine_options_t o = case_adamw(v->strategy);
	case_types_t types = v->types;

	*mesh = NULL;
	if (v->mesh != NO_MESH)
		CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape,
						names[v->mesh], mesh));
	types.stored = SRT_F32;
	types.cut_over = v->mesh == TENSOR ? "tp" : NULL;
	o.mesh = *mesh;
	o.precision = v->precision;
	o.accumulation = v->accumulation;
	o.microbatches = count_microbatches(v);
	o.average = v->average;
	o.offload = v->offload;
	case_declare_as(c, context, &o, v->h > 0 ? v->h : 5, &types);
	if (v->mesh == TENSOR) /* whose ranks have the same data */
		c->rank = rank / 2;
	c->unused = 2;
	case_build(c);
}

/* The ranks whose sums are wrong. */
static bool is_named(const srt_engine_t *engine, int r)
{
	return r == fault.rank ||
	       (fault.where == BEFORE_SUM && srt_shard_count(engine, world) == 1);
}

/* A step with the fault fails on all ranks. */
static void expect_fault(engine_case_t *c, const variant_t *v, int step)
{
	const int nmicro = count_microbatches(v);
	char text[160], ranks[32] = "";
	srt_status_t status;

	fault.planted = false;
	status = case_step(c, step, nmicro);
	CHECK_MSG(status == SRT_ERR_DEVICE, "%s: rank %d, parameter '%s', where %d: status %d (%s)",
		  v->name, fault.rank, fault.param->name, (int)fault.where, (int)status,
		  status == SRT_OK ? "no error" : srt_error_last());
	CHECK(fault.planted == (fault.rank == rank));
	if (status == SRT_ERR_DEVICE) {
		snprintf(text, sizeof(text),
			 "the gradient of parameter '%s' of unit '%s' in step %llu, micro-batch %d "
			 "of %d, has a wrong sum",
			 fault.param->name, fault.param->unit->name,
			 (unsigned long long)c->engine->step.nsteps + 1, fault.micro + 1, nmicro);
		CHECK_ERROR_HAS(text);
		for (int r = 0; r < world; r++) {
			if (is_named(c->engine, r))
				snprintf(ranks + strlen(ranks), sizeof(ranks) - strlen(ranks),
					 "%s%d", ranks[0] != '\0' ? ", " : "", r);
		}
		snprintf(text, sizeof(text), " on rank %s, in elements ", ranks);
		CHECK_ERROR_HAS(text);
		CHECK_ERROR_HAS("SHARDRT_COLLECTIVES");
	}
	fault.param = NULL;
	CHECK_OK_OR_DIE(srt_engine_reset(c->engine));
}

static int64_t shard_nelem(const srt_param_t *param, int r)
{
	int64_t first;

	return srt_shard_range(param, r, world, &first);
}

/* One element of one parameter, in each place that there is. */
static void plant_everywhere(engine_case_t *c, const variant_t *v, int r, const srt_param_t *param)
{
	const int nmicro = count_microbatches(v);
	/* On one rank unreduced gradients are added. */
	const bool every =
		v->accumulation == SRT_ACCUMULATE_EVERY && srt_shard_dp_size(c->engine, world) > 1;
	const bool last_all = v->accumulation == SRT_ACCUMULATE_LAST_ALL_REDUCE;
	const srt_unit_t *unit = param->unit;
	const int last = every ? (int)(param->index % (size_t)nmicro) : nmicro - 1;
	const bool is_16 = srt_dtype_size(unit->types.reduce) == 2;

	for (int where = BEFORE_SUM; where <= AFTER_STORE; where++) {
		if ((where < AFTER_STORE && unit->grads.reduce == NULL) ||
		    (where == AFTER_SECOND && unit->grads.all_reduce == NULL))
			continue;
		/* A part of the sums on a mesh belongs to ranks that depend on the mesh. */
		if (where == BEFORE_SUM && (v->mesh != NO_MESH || srt_roles_sums_apart(unit)))
			continue;
		fault = (struct planted_fault){ .param = param,
						.where = (where_t)where,
						.rank = r,
						.micro = where == AFTER_SUM && last_all ? 0 : last,
						.element = shard_nelem(param, r) / 2,
						.delta = is_16 ? 4.0f : 0.01f };
		if (where == BEFORE_SUM) { /* in the rank's shard */
			int64_t first;

			srt_shard_range(param, r, world, &first);
			fault.element += first;
		}
		expect_fault(c, v, 1);
	}
}

static void test_planted(const variant_t *v)
{
	engine_case_t c;
	srt_mesh_t *mesh;
	int nplanted = 0;

	build(&c, v, &mesh);
	CHECK_OK_OR_DIE(case_step(&c, 0, count_microbatches(v)));
	for (int r = 0; r < world; r++) {
		int nparams = 0;

		for (size_t i = 0; i < c.nparams; i++) {
			/* With tensor parallelism a parameter's cells differ. */
			if (!srt_param_requires_grad(c.param[i]) ||
			    shard_nelem(c.param[i], r) == 0 || (is_short && nparams > 1))
				continue;
			plant_everywhere(&c, v, r, c.param[i]);
			nparams++;
		}
		nplanted += nparams;
	}
	CHECK(nplanted > 0);
	CHECK_OK(case_step(&c, 1, count_microbatches(v)));
	case_destroy(&c);
	srt_mesh_destroy(mesh);
}

/* Prints the hash after two steps. */
static void print_hash(const variant_t *v)
{
	unsigned char hash[16];
	srt_status_t status;
	engine_case_t c;
	srt_mesh_t *mesh;

	build(&c, v, &mesh);
	for (int step = 0; step < 2; step++)
		CHECK_OK_OR_DIE(case_step(&c, step, count_microbatches(v)));
	status = srt_engine_hash(c.engine, hash, c.stream);
	CHECK_MSG(status == SRT_OK || status == SRT_ERR_UNSUPPORTED, "%s: %s", v->name,
		  srt_error_last());
	for (int i = 0; rank == 0 && status == SRT_OK && i < 16; i++)
		printf("%02x%s", hash[i], i == 15 ? "\n" : "");
	case_destroy(&c);
	srt_mesh_destroy(mesh);
}

int main(int argc, char **argv)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	is_short = argc > 1 && strcmp(argv[1], "short") == 0;
	is_clean = argc > 1 && strcmp(argv[1], "clean") == 0;
	for (size_t i = 0; i < SRT_ARRAY_LEN(variants) && (!is_short || i < 4); i++) {
		if (!is_possible(&variants[i]))
			continue;
		if (is_clean)
			print_hash(&variants[i]);
		else
			test_planted(&variants[i]);
	}
	srt_context_destroy(context);
	return check_done();
}
