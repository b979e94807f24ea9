/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps of the engine in every combination of stored, compute and reduce dtype: two strategies at a
 * time have the bits of ddp and the memory that was planned, one value of each cast point is what
 * the rule says, and values of one's own are computed with.
 * Run by test_engine_types.sh.
 */
#include "runtime/engine/declare/declare.h"
#include "tests/engine/engine_case.h"
#include "tests/harness/half.h"

#define STEPS 2

static srt_context_t *context;

/* All results of a run; 16-bit tensors as their bits, two in a float. */
typedef struct result {
	float *value, *grad, *state0;
	float norm;
} result_t;

static void run(const srt_engine_options_t *options, const case_types_t *types, int64_t h,
		result_t *result)
{
	const int nmicro = options->microbatches;
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	srt_plan_t plan = SRT_PLAN_INIT;
	engine_case_t c;
	size_t allocated;

	case_declare_as(&c, context, options, h, types);
	c.unused = 2;
	c.delay = c.check = 1;
	CHECK_OK(srt_engine_plan(c.engine, c.rank, 0, &plan));
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_engine_build(c.engine));
	CHECK_INT(case_allocated(context) - allocated, case_planned(&plan));
	for (size_t i = 0; i < c.nparams; i++)
		CHECK_OK(srt_param_init_normal(c.param[i], 1234, 0.0f, 0.5f, c.stream));
	for (int step = 0; step < STEPS; step++)
		CHECK_OK_OR_DIE(case_step(&c, step, nmicro));
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

/*
 * ddp against zero3 and another strategy, compared as bytes: equal NaNs are made by the stores. The
 * other one is number `turn` of three, and the units are flat in one form, the other or not at all.
 */
static void compare_strategies(srt_engine_options_t options, case_types_t types, int turn)
{
	static const struct {
		srt_strategy_t strategy;
		int reshard;
	} others[] = { { SRT_STRATEGY_ZERO3, 0 },
		       { SRT_STRATEGY_ZERO1, 0 },
		       { SRT_STRATEGY_ZERO2, SRT_RESHARD_ALWAYS },
		       { SRT_STRATEGY_ZERO3, SRT_RESHARD_NEVER } };
	const int64_t h = 5;
	size_t nbytes = case_total_nelem(context, h) * sizeof(float);
	result_t ddp, other;

	run(&options, &types, h, &ddp);
	CHECK(ddp.norm > 0.0f && ddp.norm < 1e6f);
	for (int i = 0; i < (int)SRT_ARRAY_LEN(others); i++) {
		if (i > 0 && i != 1 + turn)
			continue;
		options.strategy = others[i].strategy;
		types.reshard = others[i].reshard;
		types.flat = (srt_flat_t)((turn + i) % 3);
		run(&options, &types, h, &other);
		CHECK_MSG(memcmp(ddp.value, other.value, nbytes) == 0 &&
				  memcmp(ddp.grad, other.grad, nbytes) == 0 &&
				  memcmp(ddp.state0, other.state0, nbytes) == 0 &&
				  memcmp(&ddp.norm, &other.norm, sizeof(float)) == 0,
			  "%s, flat %d, differs from ddp: stored %s, param %d, reduce %d, rule %d, "
			  "accumulation %d, average %d; norm %.9g, %.9g",
			  srt_strategy_name(options.strategy), (int)types.flat,
			  srt_dtype_name(types.stored), (int)options.precision->param,
			  (int)options.precision->reduce, (int)options.precision->rule,
			  (int)options.accumulation, (int)options.average, (double)ddp.norm,
			  (double)other.norm);
		result_free(&other);
	}
	result_free(&ddp);
}

static void test_strategies(void)
{
	static const srt_dtype_t stored[] = { SRT_F32, SRT_F16, SRT_BF16 };
	const srt_precision_t other = { .size = sizeof(other),
					.param = SRT_BF16,
					.reduce = SRT_F32 };
	srt_precision_t p = SRT_PRECISION_INIT;
	int n = 0;

	for (size_t s = 0; s < SRT_ARRAY_LEN(stored); s++) {
		for (int param = SRT_DTYPE_NONE; param <= SRT_BF16; param++) {
			for (int reduce = SRT_DTYPE_NONE; reduce <= SRT_BF16; reduce++) {
				/* The other options by turns. */
				srt_engine_options_t o = case_adamw(SRT_STRATEGY_DDP);
				case_types_t types = { .stored = stored[s] };

				p.param = (srt_dtype_t)param;
				p.reduce = (srt_dtype_t)reduce;
				p.rule = n % 3 == 1 ? SRT_PRECISION_FSDP1 : SRT_PRECISION_FSDP2;
				types.of_block1 = n % 5 == 2 ? &other : NULL;
				o.precision = &p;
				o.optim = &case_adamw_eps;
				o.average = n % 7 == 3 ? SRT_AVERAGE_FIRST : SRT_AVERAGE_DEFAULT;
				o.microbatches = 1 + n % 3;
				o.accumulation = n % 2 ? SRT_ACCUMULATE_LAST : SRT_ACCUMULATE_EVERY;
				/* Each strategy meets each pair of two of the dtypes. */
				compare_strategies(o, types, ((int)s + param + reduce) % 3);
				n++;
			}
		}
	}
}

/* One parameter of one element, whose gradients on `rank` are the given ones, and +0 on the others;
 * the reduced gradient. rank -1: on all. */
static float reduce_values(srt_comm_t *comm, const srt_precision_t *precision, srt_dtype_t stored,
			   srt_accumulation_t accumulation, const float *values, int nmicro,
			   int rank)
{
	const srt_engine_options_t options = { .size = sizeof(options),
					       .prefetch = 1,
					       .comm = comm,
					       .strategy = SRT_STRATEGY_ZERO3,
					       .precision = precision,
					       .average = SRT_AVERAGE_SUM,
					       .accumulation = accumulation,
					       .microbatches = nmicro,
					       .optim = OPTIM(.kind = SRT_OPTIM_SGD) };
	const int64_t one = 1;
	unsigned char bytes[4];
	srt_stream_t *stream;
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *param;
	srt_view_t view;
	int accumulate;

	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &unit));
	CHECK_OK_OR_DIE(srt_param_create(unit, "w", stored, 1, &one, NULL, &param));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	for (int m = 0; m < nmicro; m++) {
		CHECK_OK(srt_engine_microbatch(engine, m, nmicro));
		CHECK_OK(srt_unit_forward_begin(unit, stream));
		CHECK_OK(srt_unit_forward_end(unit, stream));
		CHECK_OK(srt_unit_backward_begin(unit, stream));
		CHECK_OK(srt_param_grad(param, &view, &accumulate));
		if (rank < 0 || srt_context_rank(context) == rank) {
			srt_view_t more = view;

			if (accumulate) {
				srt_buffer_t *scratch;

				CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context),
								  SRT_MEM_DEVICE, 4, "scratch",
								  &scratch));
				more = srt_view(scratch, 0, view.dtype);
				CHECK_OK(srt_op_fill(more, values[m], 1, stream));
				CHECK_OK(srt_op_add(view, view, more, 1, stream));
				CHECK_OK(srt_stream_sync(stream));
				srt_buffer_destroy(scratch);
			} else {
				CHECK_OK(srt_op_fill(view, values[m], 1, stream));
			}
			CHECK_OK(srt_param_grad_ready(param));
		}
		CHECK_OK(srt_unit_backward_end(unit, stream));
	}
	CHECK_OK(srt_engine_finish_backward(engine, stream));
	CHECK_OK(srt_param_get(param, SRT_PARAM_GRAD, bytes, stream));
	srt_engine_destroy(engine);
	srt_stream_destroy(stream);
	return half_get(stored, bytes, 0);
}

/* Where micro-batches are added, by sums that differ: the values of PyTorch's probes. */
static void test_cast_points(void)
{
	static const float values[] = { 2048.0f, 0.75f, -2048.0f, 0.5f };
	static const struct {
		srt_dtype_t param, reduce;
		srt_precision_rule_t rule;
		srt_accumulation_t accumulation;
		float sum;
	} cases[] = {
		/* In fp32: the shards' sums, or SUM_GRAD. */
		{ SRT_F16, SRT_F16, SRT_PRECISION_FSDP2, SRT_ACCUMULATE_EVERY, 1.25f },
		{ SRT_F16, SRT_F32, SRT_PRECISION_FSDP2, SRT_ACCUMULATE_LAST, 1.25f },
		{ SRT_BF16, SRT_F32, SRT_PRECISION_FSDP2, SRT_ACCUMULATE_LAST, 1.25f },
		/* In fp16: 2048.75 is 2048 and 0.75 is lost. */
		{ SRT_F16, SRT_F16, SRT_PRECISION_FSDP2, SRT_ACCUMULATE_LAST, 0.5f },
		{ SRT_F16, SRT_F32, SRT_PRECISION_FSDP1, SRT_ACCUMULATE_LAST, 0.5f },
		{ SRT_DTYPE_NONE, SRT_F16, SRT_PRECISION_FSDP2, SRT_ACCUMULATE_LAST, 0.5f },
		{ SRT_DTYPE_NONE, SRT_F16, SRT_PRECISION_FSDP1, SRT_ACCUMULATE_LAST, 1.25f },
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(cases); i++) {
		const srt_precision_t p = { .size = sizeof(p),
					    .param = cases[i].param,
					    .reduce = cases[i].reduce,
					    .rule = cases[i].rule };
		float sum = reduce_values(NULL, &p, SRT_F32, cases[i].accumulation, values, 4, 0);

		CHECK_MSG(sum == cases[i].sum, "case %zu: the sum is %g, not %g", i, (double)sum,
			  (double)cases[i].sum);
	}
	/* Without casts in the stored dtype. */
	CHECK(reduce_values(NULL, NULL, SRT_F16, SRT_ACCUMULATE_EVERY, values, 4, 0) == 0.5f);
	CHECK(reduce_values(NULL, NULL, SRT_F32, SRT_ACCUMULATE_EVERY, values, 4, 0) == 1.25f);
}

/* An equal sum of micro-batches on one rank and on all ranks of a group. */
static void test_tree(void)
{
	enum { NLEAVES = 8 };
	static const float values[NLEAVES] = { 0x1p24f, 1, 1, 1, -0x1p24f, 0.5f, 3, 1 };
	const srt_precision_t p = { .size = sizeof(p), .param = SRT_BF16, .reduce = SRT_F32 };
	int world = srt_context_world_size(context), size = 1;
	float alone, in_order = 0;
	const int all[] = { 0, 1, 2, 3 };
	srt_comm_t *group = NULL, *self = NULL;

	while (2 * size <= world && 2 * size <= (int)SRT_ARRAY_LEN(all))
		size *= 2;
	for (int r = 0; r < world; r++) {
		srt_comm_t *made;

		CHECK_OK_OR_DIE(
			srt_comm_create_group(srt_context_world(context), &r, 1, "alone", &made));
		self = made != NULL ? made : self;
	}
	CHECK_OK_OR_DIE(
		srt_comm_create_group(srt_context_world(context), all, size, "group", &group));
	for (int i = 0; i < NLEAVES; i++)
		in_order += values[i];
	alone = reduce_values(self, &p, SRT_F32, SRT_ACCUMULATE_TREE, values, NLEAVES, -1);
	CHECK(alone == ((values[0] + values[1]) + (values[2] + values[3])) +
			       ((values[4] + values[5]) + (values[6] + values[7])));
	CHECK(alone != in_order);
	if (group != NULL) {
		int n = NLEAVES / size, first = srt_comm_rank(group) * n;
		float sum = reduce_values(group, &p, SRT_F32, SRT_ACCUMULATE_TREE, values + first,
					  n, -1);

		CHECK_BITS(&alone, &sum, 1);
		sum = reduce_values(group, NULL, SRT_F32, SRT_ACCUMULATE_TREE, values + first, n,
				    -1);
		CHECK_BITS(&alone, &sum, 1);
	}
	srt_comm_destroy(group);
	srt_comm_destroy(self);
}

/* What the tree cannot do is refused, in a sentence. */
static void test_tree_refused(void)
{
	const srt_precision_t p = { .size = sizeof(p), .param = SRT_BF16 };
	srt_engine_options_t options = { .size = sizeof(options),
					 .prefetch = 1,
					 .strategy = SRT_STRATEGY_DDP,
					 .accumulation = SRT_ACCUMULATE_TREE,
					 .microbatches = 3,
					 .optim = OPTIM(.kind = SRT_OPTIM_SGD) };
	int world = srt_context_world_size(context);
	srt_engine_t *engine;
	engine_case_t c;

	CHECK_STATUS(srt_engine_create(context, &options, &engine), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("must be a power of two");
	options.microbatches = 4;
	options.precision = &p;
	case_declare(&c, context, &options, 5);
	CHECK_STATUS(srt_engine_build(c.engine), SRT_ERR_UNSUPPORTED);
	CHECK_ERROR_HAS((world & (world - 1)) != 0 ? "a power of two, not" : "reduced in bf16");
	case_destroy(&c);
	if ((world & (world - 1)) != 0)
		return;
	options.precision = NULL;
	case_declare(&c, context, &options, 5);
	case_build(&c);
	CHECK_STATUS(srt_engine_microbatch(c.engine, 0, 3), SRT_ERR_INVALID_ARGUMENT);
	case_destroy(&c);
}

/* SRT_DTYPE_NONE is no dtype of a tensor, and i32 none of a policy: both are refused by name. */
static void test_no_dtype(void)
{
	const srt_precision_t integers = { .size = sizeof(integers), .reduce = SRT_I32 };
	const srt_engine_options_t options = case_adamw(SRT_STRATEGY_DDP);
	const int64_t shape[] = { 4 };
	const srt_sharding_t sharding = SRT_SHARDING_INIT;
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;
	srt_engine_t *engine;
	srt_unit_t *unit;
	srt_param_t *param;
	srt_unit_buffer_t *buffer;
	srt_sharded_tensor_t *tensor;

	CHECK_STATUS(srt_precision_resolve(NULL, SRT_DTYPE_NONE, &types), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("stored is none");
	CHECK_STATUS(srt_precision_resolve(&integers, SRT_F32, &types), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("reduce of a precision is i32");
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_unit_create(engine, NULL, "root", NULL, &unit));
	CHECK_STATUS(srt_param_create(unit, "w", SRT_DTYPE_NONE, 1, shape, NULL, &param),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("none");
	CHECK_STATUS(srt_unit_buffer_create(unit, "b", SRT_DTYPE_NONE, 1, shape, &buffer),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("none");
	srt_engine_destroy(engine);
	CHECK_STATUS(srt_sharded_tensor_create(context, NULL, "t", SRT_DTYPE_NONE, 1, shape,
					       &sharding, &tensor),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("none");
}

/* Values that the program writes to its shards are computed with, and steps go on from them. */
static void test_own_values(srt_strategy_t strategy)
{
	const srt_precision_t p = { .size = sizeof(p), .param = SRT_BF16 };
	srt_engine_options_t options = { ENGINE_BASE, .strategy = strategy, .precision = &p,
					 .optim = OPTIM(.kind = SRT_OPTIM_NONE) };
	srt_view_t view;
	engine_case_t c;

	case_declare(&c, context, &options, 5);
	case_build(&c);
	for (int step = 0; step < 4; step++) {
		float want = 1.0f + (float)step, *host;
		size_t n = (size_t)srt_param_nelem(c.tied);

		CHECK_OK_OR_DIE(case_passes(&c, step, 1));
		CHECK(test_local(c.tied, SRT_PARAM_GRAD).buffer == NULL);
		CHECK_STATUS(srt_param_get(c.tied, SRT_PARAM_GRAD, NULL, c.stream), SRT_ERR_STATE);
		CHECK_ERROR_HAS("srt_engine_finish_backward()");
		CHECK_OK(srt_engine_finish_backward(c.engine, c.stream));
		CHECK_OK(srt_engine_write_begin(c.engine, c.stream));
		CHECK_STATUS(srt_unit_forward_begin(c.root, c.stream), SRT_ERR_STATE);
		for (size_t i = 0; i < c.nparams; i++) {
			srt_part_t part;

			CHECK_OK(srt_param_part(c.param[i], c.rank, &part));
			view = test_local(c.param[i], SRT_PARAM_VALUE);
			CHECK_OK(srt_op_fill(view, want, part.nelem, c.stream));
		}
		CHECK_OK(srt_engine_write_end(c.engine, c.stream));
		CHECK_OK(srt_engine_step(c.engine, c.stream));
		CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
		CHECK_OK(srt_param_data(c.tied, &view));
		CHECK(view.dtype == SRT_BF16);
		host = calloc(n, sizeof(*host));
		CHECK_OR_DIE(host != NULL);
		CHECK_OK(srt_buffer_copy_to_host(host, view.buffer, view.offset, n * 2, c.stream));
		for (size_t i = 0; i < n; i++)
			CHECK(half_get(SRT_BF16, host, i) == want);
		free(host);
		CHECK_OK(srt_unit_forward_end(c.root, c.stream));
	}
	case_destroy(&c);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	test_cast_points();
	test_tree();
	test_tree_refused();
	test_no_dtype();
	for (srt_strategy_t s = SRT_STRATEGY_DDP; s <= SRT_STRATEGY_ZERO3; s++)
		test_own_values(s);
	test_strategies();
	srt_context_destroy(context);
	return check_done();
}
