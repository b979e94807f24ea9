/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The excerpts of docs/guide.md that are not in examples/: each does what the guide says of it.
 * Run by test_guide.sh.
 */
#include <math.h>

#include <shardrt/ops.h>
#include <shardrt/shardrt.h>

#include "tests/harness/check.h"
#include "tests/harness/options.h"

enum { N = 12, STEPS = 4 };
#define LR 0.125f

static srt_context_t *context;
static srt_stream_t *stream;
static srt_buffer_t *memory;
static srt_engine_t *engine;
static srt_unit_t *root, *unit[2];
static srt_param_t *param[2];
static srt_optim_t *optim; /* the engine's */

static void check(srt_status_t status)
{
	CHECK_OK_OR_DIE(status);
}

static void declare(const srt_engine_options_t *options, const srt_unit_options_t *of_unit)
{
	static const char *const units[] = { "embedding", "head" };
	static const char *const params[] = { "embedding.weight", "head.weight" };
	const int64_t shape[] = { N };
	const srt_init_query_t query = { sizeof(query), "Embedding", "weight", 1, shape, 0, 0, 0 };
	srt_init_t init;

	check(srt_engine_create(context, options, &engine));
	optim = srt_engine_optim(engine);
	check(srt_unit_create(engine, NULL, "model", NULL, &root)); /* without parameters */
	for (int i = 0; i < 2; i++) {
		check(srt_unit_create(engine, root, units[i], of_unit, &unit[i]));
		check(srt_param_create(unit[i], params[i], SRT_F32, 1, shape, NULL, &param[i]));
	}
	check(srt_engine_build(engine));
	check(srt_init_default(&query, &init)); /* here a normal distribution of std 1 */
	for (int i = 0; i < 2; i++)
		check(srt_param_init(param[i], 1, &init, stream));
}

static void destroy(void)
{
	check(srt_stream_sync(stream));
	srt_engine_destroy(engine);
}

/* The forward pass, then gradients: those of (value - sample)^2, times the scale. */
static void run(int step, float factor, srt_view_t scale)
{
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;
	srt_normal_t sample = SRT_NORMAL_INIT;
	srt_loss_t mse = SRT_LOSS_INIT;
	int accumulate;
	check(srt_unit_types(unit[0], &types));
	mse.rows = 1, mse.n = N, mse.scale = scale, mse.loss = srt_view(memory, 0, SRT_F32);
	mse.target = sample.y = srt_view(memory, 64, types.compute);
	sample.seed = 2 + (uint64_t)srt_context_rank(context), sample.name = "samples";
	sample.first = step * N, sample.nelem = N, sample.std = factor;
	check(srt_op_normal(&sample, stream));
	check(srt_unit_forward_begin(root, stream));
	for (int i = 0; i < 2; i++) {
		check(srt_unit_forward_begin(unit[i], stream));
		check(srt_unit_forward_end(unit[i], stream));
	}
	check(srt_unit_forward_end(root, stream));
	check(srt_unit_backward_begin(root, stream));
	for (int i = 1; i >= 0; i--) {
		check(srt_unit_backward_begin(unit[i], stream));
		check(srt_param_data(param[i], &mse.x));
		check(srt_param_grad(param[i], &mse.dx, &accumulate));
		CHECK_INT(accumulate, 0);
		check(srt_op_mse(&mse, stream));
		check(srt_param_grad_ready(param[i]));
		check(srt_unit_backward_end(unit[i], stream));
	}
	check(srt_unit_backward_end(root, stream));
}

static void get(srt_param_what_t what, float values[2][N])
{
	for (int i = 0; i < 2; i++)
		check(srt_param_get(param[i], what, values[i], stream));
}

static int64_t count_elements(const srt_param_t *p)
{
	srt_part_t part;

	check(srt_param_part(p, srt_context_rank(context), &part));
	return part.nelem;
}

/* ---- an optimizer of one's own --------------------------------------------------------- */

static void own_step(float lr)
{
	check(srt_engine_finish_backward(engine, stream)); /* from here on gradients may be read */
	check(srt_engine_write_begin(engine, stream));     /* from here on values may be written */
	for (int i = 0; i < 2; i++) {
		srt_view_t value, grad;

		check(srt_param_local(param[i], SRT_PARAM_VALUE, &value));
		check(srt_param_local(param[i], SRT_PARAM_GRAD, &grad));
		check(srt_op_axpy(value, grad, -lr, count_elements(param[i]), stream));
	}
	check(srt_engine_write_end(engine, stream));
	check(srt_engine_step(engine, stream)); /* ends the step: drops the gradients */
}

static void own_flat_step(float lr)
{
	srt_flat_sizes_t sizes = SRT_FLAT_SIZES_INIT;

	check(srt_engine_finish_backward(engine, stream));
	check(srt_engine_write_begin(engine, stream));
	for (int i = 0; i < 2; i++) {
		srt_view_t value, grad;

		check(srt_unit_local(unit[i], SRT_PARAM_VALUE, &value));
		check(srt_unit_local(unit[i], SRT_PARAM_GRAD, &grad));
		check(srt_unit_flat_sizes(unit[i], srt_context_rank(context), &sizes));
		check(srt_op_axpy(value, grad, -lr, sizes.shard_nelem, stream));
	}
	check(srt_engine_write_end(engine, stream));
	check(srt_engine_step(engine, stream));
}

static srt_optim_t *make_optimizer(void)
{
	srt_optim_param_t list[2] = { SRT_OPTIM_PARAM_INIT, SRT_OPTIM_PARAM_INIT };
	srt_optim_t *own;

	for (int i = 0; i < 2; i++) {
		list[i].name = srt_param_name(param[i]);
		list[i].nelem = count_elements(param[i]);
		check(srt_param_local(param[i], SRT_PARAM_VALUE, &list[i].value));
		check(srt_param_local(param[i], SRT_PARAM_GRAD, &list[i].grad));
	}
	check(srt_optim_create(srt_context_device(context), OPTIM_SGD(LR), 1, list, 2, &own,
			       stream));
	return own;
}

/* Steps of the engine's optimizer; ends the training. */
static void train_steps(float values[2][N])
{
	for (int step = 0; step < STEPS; step++) {
		run(step, 1.0f, (srt_view_t){ 0 });
		check(srt_engine_step(engine, stream));
	}
	get(SRT_PARAM_VALUE, values);
	destroy();
}

/* Steps by own_step() or the like have these values. */
static void check_own_steps(void (*step_by)(float lr), const float expected[2][N])
{
	float values[2][N];

	for (int step = 0; step < STEPS; step++) {
		run(step, 1.0f, (srt_view_t){ 0 });
		step_by(LR);
	}
	get(SRT_PARAM_VALUE, values);
	CHECK_BITS(values[0], expected[0], 2 * N);
	destroy();
}

static void test_own_optimizer(void)
{
	const srt_unit_options_t flat = { .size = sizeof(flat), .flat = SRT_FLAT_VIEWS };
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, LR);
	float expected[2][N], values[2][N];
	srt_optim_t *own;

	declare(&options, NULL); /* the engine's SGD */
	train_steps(expected);
	options.optim = OPTIM(.kind = SRT_OPTIM_NONE);
	declare(&options, NULL);
	check_own_steps(own_step, expected);
	declare(&options, &flat);
	check_own_steps(own_flat_step, expected);

	declare(&options, NULL);
	own = make_optimizer();
	for (int step = 0; step < STEPS; step++) {
		run(step, 1.0f, (srt_view_t){ 0 });
		check(srt_engine_finish_backward(engine, stream));
		check(srt_engine_write_begin(engine, stream));
		check(srt_optim_step(own, stream));
		check(srt_engine_write_end(engine, stream));
		check(srt_engine_step(engine, stream));
	}
	get(SRT_PARAM_VALUE, values);
	CHECK_BITS(values[0], expected[0], 2 * N);
	check(srt_stream_sync(stream));
	srt_optim_destroy(own);
	destroy();
}

/* ---- fp16 with a scaler ---------------------------------------------------------------- */

static srt_scaler_t *create_in_fp16(void)
{
	srt_precision_t precision = SRT_PRECISION_INIT;
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, LR);
	srt_scaler_options_t scaling = SRT_SCALER_OPTIONS_INIT;
	srt_scaler_t *scaler;

	precision.param = SRT_F16;
	precision.reduce = SRT_F32;
	options.precision = &precision;
	scaling.growth_interval = 2;
	check(srt_scaler_create(context, &scaling, &scaler));
	declare(&options, NULL); /* the parameters are SRT_F32 */
	return scaler;
}

static void scaled_step(srt_scaler_t *scaler, int step, float factor)
{
	srt_view_t scale;

	check(srt_scaler_view(scaler, &scale));
	run(step, factor, scale); /* gradients of scale * loss */
	check(srt_scaler_unscale(scaler, engine, stream));
	check(srt_engine_clip(engine, 2, 1.0f, stream));
	check(srt_scaler_step(scaler, engine, stream)); /* or drops the step */
	check(srt_scaler_update(scaler, stream));
}

static void test_scaler(void)
{
	srt_scaler_t *scaler = create_in_fp16();
	float before[2][N], after[2][N];
	srt_unit_types_t types = SRT_UNIT_TYPES_INIT;
	srt_scaler_state_t scale;
	srt_step_info_t state = SRT_STEP_INFO_INIT;

	check(srt_unit_types(unit[0], &types));
	CHECK(types.stored == SRT_F32 && types.compute == SRT_F16 && types.reduce == SRT_F32);
	get(SRT_PARAM_VALUE, before);
	scaled_step(scaler, 0, 1.0f); /* 65536 * 2 * (value - sample) is infinite in fp16 */
	get(SRT_PARAM_VALUE, after);
	CHECK_BITS(before[0], after[0], 2 * N);
	check(srt_engine_get_step_info(engine, &state, stream));
	CHECK_INT(state.step, 0);
	CHECK_INT(state.skipped, 1);
	check(srt_scaler_get_state(scaler, &scale, stream));
	CHECK(scale.scale == 32768.0f);
	for (int step = 1; step < 8; step++)
		scaled_step(scaler, step, 0.001f);
	check(srt_engine_get_step_info(engine, &state, stream));
	CHECK_INT(state.step + state.skipped, 8);
	CHECK(state.step >= 4);
	get(SRT_PARAM_VALUE, after);
	CHECK(fabsf(after[0][0]) < fabsf(before[0][0]));
	check(srt_stream_sync(stream));
	srt_scaler_destroy(scaler);
	destroy();
}

/* ---- learning rate, dropped steps ------------------------------------------------------ */

static void test_learning_rate(void)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, LR);
	float before[2][N], after[2][N];
	srt_step_info_t state = SRT_STEP_INFO_INIT;

	declare(&options, NULL);
	for (int step = 0; step < STEPS; step++) {
		float lr = LR / (float)(1 + step);

		check(srt_optim_set_lr(optim, SRT_OPTIM_ALL_GROUPS, lr, stream));
		run(step, 1.0f, (srt_view_t){ 0 });
		check(srt_engine_step(engine, stream));
		check(srt_engine_get_step_info(engine, &state, stream));
		CHECK(state.lr == lr);
	}
	get(SRT_PARAM_VALUE, before);
	run(STEPS, 1.0f, (srt_view_t){ 0 });
	check(srt_engine_reset(engine)); /* instead of srt_engine_step() */
	get(SRT_PARAM_VALUE, after);
	CHECK_BITS(before[0], after[0], 2 * N);
	check(srt_engine_get_step_info(engine, &state, stream));
	CHECK_INT(state.step, STEPS);
	destroy();
}

static void test_full_params(void)
{
	const srt_engine_options_t declared = ENGINE_SGD(SRT_STRATEGY_ZERO3, LR);
	const srt_full_params_options_t options = { .size = sizeof(options), .writeback = 1 };
	float before[2][N], after[2][N];
	srt_view_t value;

	declare(&declared, NULL);
	get(SRT_PARAM_VALUE, before);
	check(srt_unit_full_params_begin(unit[1], &options, stream)); /* on all ranks */
	check(srt_param_full(param[1], SRT_PARAM_VALUE, &value));
	check(srt_op_scale(value, value, 0.5f, srt_param_nelem(param[1]), stream));
	check(srt_unit_full_params_end(unit[1], stream));
	get(SRT_PARAM_VALUE, after);
	CHECK_BITS(before[0], after[0], N);
	for (int i = 0; i < N; i++)
		CHECK(after[1][i] == 0.5f * before[1][i]);
	destroy();
}

/* ---- resuming -------------------------------------------------------------------------- */

typedef struct saved {
	float value[2][N], exp_avg[2][N], exp_avg_sq[2][N];
	int32_t steps[2];
	srt_step_info_t state; /* step, skipped steps, schedule */
} saved_t;

static void save(saved_t *to)
{
	for (int i = 0; i < 2; i++) {
		check(srt_param_get(param[i], SRT_PARAM_VALUE, to->value[i], stream));
		check(srt_param_get(param[i], SRT_PARAM_STATE0, to->exp_avg[i], stream));
		check(srt_param_get(param[i], SRT_PARAM_STATE1, to->exp_avg_sq[i], stream));
		check(srt_optim_get_steps(optim, srt_optim_find(optim, srt_param_name(param[i])),
					  &to->steps[i], stream));
	}
	to->state = (srt_step_info_t)SRT_STEP_INFO_INIT;
	check(srt_engine_get_step_info(engine, &to->state, stream));
}

static void restore(const saved_t *from)
{
	for (int i = 0; i < 2; i++) {
		check(srt_param_set(param[i], SRT_PARAM_VALUE, from->value[i], stream));
		check(srt_param_set(param[i], SRT_PARAM_STATE0, from->exp_avg[i], stream));
		check(srt_param_set(param[i], SRT_PARAM_STATE1, from->exp_avg_sq[i], stream));
		check(srt_optim_set_steps(optim, srt_optim_find(optim, srt_param_name(param[i])),
					  from->steps[i], stream));
	}
	check(srt_optim_set_step_info(optim, 0, &from->state, stream));
}

static void step_adamw(int first, int n)
{
	for (int step = first; step < first + n; step++) {
		run(step, 1.0f, (srt_view_t){ 0 });
		check(srt_engine_step(engine, stream));
	}
}

static void test_resume(void)
{
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, LR);
	saved_t half, expected, resumed;

	memset(&expected, 0, sizeof(expected));
	memset(&resumed, 0, sizeof(resumed));
	options.optim = OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = LR, ADAM_BASE, .warmup = 3,
			      .lr_steps = 2 * STEPS);
	declare(&options, NULL);
	step_adamw(0, STEPS);
	save(&half);
	step_adamw(STEPS, STEPS);
	save(&expected);
	destroy();
	options.strategy = SRT_STRATEGY_DDP;
	declare(&options, NULL);
	restore(&half);
	step_adamw(STEPS, STEPS);
	save(&resumed);
	CHECK(memcmp(&resumed, &expected, sizeof(resumed)) == 0);
	destroy();
}

/* ---- compute on the processor ---------------------------------------------------------- */

/* The program's kernel: gradients that make a step of learning rate 1 set all values to 0. */
static void copy_values(float *grad, const float *value)
{
	for (int i = 0; i < N; i++)
		grad[i] = value[i];
}

static void run_on_host(int i)
{
	srt_view_t value, grad;
	int accumulate;

	check(srt_unit_backward_begin(unit[i], stream));
	check(srt_param_data(param[i], &value));
	check(srt_param_grad(param[i], &grad, &accumulate));
	check(srt_stream_sync(stream)); /* the values are there, the gradient may be written */
	copy_values(srt_view_host(grad), srt_view_host(value));
	check(srt_param_grad_ready(param[i]));
	check(srt_unit_backward_end(unit[i], stream));
}

static void test_host_compute(void)
{
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 1.0f);
	float values[2][N];
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;

	check(srt_device_get_info(srt_context_device(context), &info));
	if (!info.host_memory)
		return;
	declare(&options, NULL);
	check(srt_unit_forward_begin(root, stream));
	for (int i = 0; i < 2; i++) {
		check(srt_unit_forward_begin(unit[i], stream));
		check(srt_unit_forward_end(unit[i], stream));
	}
	check(srt_unit_forward_end(root, stream));
	check(srt_unit_backward_begin(root, stream));
	run_on_host(1);
	run_on_host(0);
	check(srt_unit_backward_end(root, stream));
	check(srt_engine_step(engine, stream));
	get(SRT_PARAM_VALUE, values);
	for (int i = 0; i < 2 * N; i++) /* the average of three ranks is rounded */
		CHECK(fabsf(values[i / N][i % N]) < 1e-6f);
	destroy();
}

static void declare_hybrid(int nreplicas, int nshards)
{
	const int shape[] = { nreplicas, nshards };
	const char *const names[] = { "replicate", "shard" };
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, LR);

	options.strategy = SRT_STRATEGY_HYBRID;
	check(srt_mesh_create(srt_context_world(context), 2, shape, names, &options.mesh));
	declare(&options, NULL);
	srt_mesh_destroy(options.mesh); /* the engine keeps it */
}

static void test_hybrid(void)
{
	const int world = srt_context_world_size(context), nshards = world % 2 == 0 ? 2 : 1;
	const srt_engine_options_t zero3 = ENGINE_SGD(SRT_STRATEGY_ZERO3, LR);
	float expected[2][N], values[2][N];

	declare(&zero3, NULL);
	train_steps(expected);
	declare_hybrid(world / nshards, nshards);
	train_steps(values);
	CHECK_BITS(values[0], expected[0], 2 * N);
}

static void declare_offloaded(void)
{
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, LR);

	options.offload = (srt_offload_t){ .params = 1, .grads = 1, .state = 1 };
	declare(&options, NULL);
}

static void test_offload(void)
{
	const srt_engine_options_t zero3 = ENGINE_SGD(SRT_STRATEGY_ZERO3, LR);
	float expected[2][N], values[2][N];
	srt_plan_t plan = SRT_PLAN_INIT;

	declare(&zero3, NULL);
	train_steps(expected);
	declare_offloaded();
	check(srt_engine_plan(engine, 0, 0, &plan));
	CHECK(plan.host_total > 0 && plan.grad_shards == 0);
	train_steps(values);
	CHECK_BITS(values[0], expected[0], 2 * N);
}

int main(void)
{
	check(srt_context_create(NULL, &context));
	check(srt_stream_create(srt_context_device(context), 0, "compute", &stream));
	check(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE, 256, "data", &memory));
	test_own_optimizer();
	test_scaler();
	test_learning_rate();
	test_full_params();
	test_resume();
	test_host_compute();
	test_hybrid();
	test_offload();
	srt_buffer_destroy(memory);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
