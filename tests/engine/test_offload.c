/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Offload: what is in host memory does not change a bit of values, gradients, states and norm, and
 * the plan has every byte on both devices. Gradients are clipped, scaled, skipped, accumulated and
 * stepped by the program on the host. Copies run while units compute. Files do not depend on it.
 * Run by test_offload.sh.
 */
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include <shardrt/scaler.h>

#include "collectives/comm.h"
#include "tests/engine/engine_case.h"

#define H 5
#define STEPS 3

static srt_context_t *context;
static srt_mesh_t *meshes[3]; /* NULL, replicate x shard, dp x tp */

typedef struct variant {
	const char *name;
	case_types_t types;
	const srt_precision_t *precision; /* NULL: no casts */
	srt_accumulation_t accumulation;
	int nmicro, unused, scaled;
	float divide_factor;
} variant_t;

static const variant_t variants[] = {
	{ .name = "fp32", .nmicro = 1 },
	{ .name = "every", .nmicro = 3, .unused = 2 },
	{ .name = "last", .nmicro = 2, .unused = 1, .accumulation = SRT_ACCUMULATE_LAST },
	{ .name = "bf16, reduced in f32, scaled",
	  .precision = PRECISION(.param = SRT_BF16, .reduce = SRT_F32),
	  .nmicro = 2,
	  .unused = 2,
	  .scaled = 1 },
	{ .name = "bf16, last, three groups",
	  .types = { .ngroups = 3 },
	  .precision = PRECISION(.param = SRT_BF16),
	  .nmicro = 2,
	  .accumulation = SRT_ACCUMULATE_LAST },
	{ .name = "stored in bf16, reduced in f32",
	  .types = { .stored = SRT_BF16 },
	  .precision = PRECISION(.reduce = SRT_F32),
	  .nmicro = 3 },
	{ .name = "f16 alone, scaled", .types = { .stored = SRT_F16 }, .nmicro = 2, .scaled = 1 },
	{ .name = "f16, last all-reduce, scaled",
	  .types = { .stored = SRT_F16 },
	  .nmicro = 2,
	  .scaled = 1,
	  .accumulation = SRT_ACCUMULATE_LAST_ALL_REDUCE },
	{ .name = "never resharded, own factor",
	  .types = { .reshard = SRT_RESHARD_NEVER },
	  .nmicro = 1,
	  .divide_factor = 3.0f },
};

static const struct {
	const char *name;
	srt_offload_t what;
} offloads[] = {
	{ "nothing", { 0 } },
	{ "state", { .state = 1 } },
	{ "params, grads, state", { .params = 1, .grads = 1, .state = 1 } },
	{ "params, state", { .params = 1, .state = 1 } },
	{ "grads, state", { .grads = 1, .state = 1 } },
};

/* All results of a training. */
typedef struct result {
	float *of[4];
	srt_step_info_t state;
	srt_scaler_state_t scaler;
	srt_plan_t plan;
} result_t;

static void result_free(result_t *r)
{
	for (int i = 0; i < 4; i++)
		free(r->of[i]);
}

static srt_engine_options_t make_options(const variant_t *v, srt_strategy_t strategy,
					 srt_mesh_t *mesh, srt_offload_t offload)
{
	srt_engine_options_t options = case_adamw(strategy);

	options.mesh = mesh;
	options.precision = v->precision;
	options.accumulation = v->accumulation;
	options.microbatches = v->nmicro;
	options.divide_factor = v->divide_factor;
	options.optim = &case_adamw_eps;
	options.offload = offload;
	return options;
}

/* The engine, built as planned. */
static void build(engine_case_t *c, const srt_engine_options_t *options, const case_types_t *types,
		  srt_plan_t *plan)
{
	size_t allocated;

	case_declare_as(c, context, options, H, types);
	*plan = (srt_plan_t)SRT_PLAN_INIT;
	CHECK_OK(srt_engine_plan(c->engine, c->rank, 0, plan));
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_engine_build(c->engine));
	CHECK_INT(case_allocated(context) - allocated, case_planned(plan));
	for (size_t i = 0; i < c->nparams; i++)
		CHECK_OK(srt_param_init_normal(c->param[i], 1234, 0.0f, 0.5f, c->stream));
}

/* Step 1 has an infinity on the last rank, if the variant is scaled. */
static void step(engine_case_t *c, const variant_t *v, srt_scaler_t *scaler, int s)
{
	if (!v->scaled) {
		CHECK_OK_OR_DIE(case_step(c, s, v->nmicro));
		return;
	}
	c->poison = s == 1 ? INFINITY : 0.0f;
	CHECK_OK(srt_scaler_scale(scaler, NULL, 0, c->stream));
	CHECK_OK_OR_DIE(case_passes(c, s, v->nmicro));
	CHECK_OK(srt_scaler_unscale(scaler, c->engine, c->stream));
	CHECK_OK(srt_engine_clip(c->engine, 2, 0.5f, c->stream));
	CHECK_OK(srt_scaler_step(scaler, c->engine, c->stream));
	CHECK_OK(srt_scaler_update(scaler, c->stream));
}

static void run(const variant_t *v, const srt_engine_options_t *options, const case_types_t *types,
		result_t *r)
{
	srt_scaler_options_t scaler_options = SRT_SCALER_OPTIONS_INIT;
	srt_scaler_t *scaler;
	engine_case_t c;

	scaler_options.init_scale = 4.0f;
	scaler_options.rule = SRT_SCALER_SHARDED;
	memset(r, 0, sizeof(*r));
	build(&c, options, types, &r->plan);
	CHECK_OK_OR_DIE(srt_scaler_create(context, &scaler_options, &scaler));
	c.unused = v->unused;
	c.delay = c.check = 1;
	for (int s = 0; s < STEPS; s++) {
		if (s == 2)
			CHECK_OK(srt_optim_set_lr(srt_engine_optim(c.engine), SRT_OPTIM_ALL_GROUPS,
						  0.01f, c.stream));
		step(&c, v, scaler, s);
	}
	r->state = (srt_step_info_t)SRT_STEP_INFO_INIT;
	CHECK_OK(srt_engine_get_step_info(c.engine, &r->state, c.stream));
	CHECK_OK(srt_scaler_get_state(scaler, &r->scaler, c.stream));
	CHECK_INT(r->state.skipped, v->scaled);
	r->of[0] = case_collect(&c, SRT_PARAM_VALUE);
	r->of[1] = case_collect(&c, SRT_PARAM_GRAD);
	r->of[2] = case_collect(&c, SRT_PARAM_STATE0);
	r->of[3] = case_collect(&c, SRT_PARAM_STATE1);
	srt_scaler_destroy(scaler);
	case_destroy(&c);
}

static void compare(const char *what, const char *offload, const result_t *a, const result_t *b)
{
	const size_t nbytes = case_total_nelem(context, H) * sizeof(float);
	bool equal = memcmp(&a->state, &b->state, sizeof(a->state)) == 0 &&
		     memcmp(&a->scaler, &b->scaler, sizeof(a->scaler)) == 0;

	for (int i = 0; i < 4; i++)
		equal = equal && memcmp(a->of[i], b->of[i], nbytes) == 0;
	CHECK_MSG(equal, "%s: with %s offloaded the bits differ; norm %.9g, %.9g", what, offload,
		  (double)a->state.grad_norm, (double)b->state.grad_norm);
}

/* The device has nothing of what is offloaded but what one unit needs at a time. */
static void check_plan(const srt_offload_t *what, const srt_plan_t *none, const srt_plan_t *plan)
{
	CHECK_INT(plan->optimizer_state, 0);
	CHECK_INT(plan->host_state, none->optimizer_state);
	CHECK_INT(plan->host_params, none->param_shards);
	CHECK_INT(plan->grad_shards, what->grads ? 0 : none->grad_shards);
	CHECK(plan->host_grads >= none->grad_shards);
	CHECK_INT(plan->host_total,
		  plan->host_params + plan->host_grads + plan->host_state + plan->host_staging);
}

static void test_variant(const variant_t *v, srt_strategy_t strategy, int mesh, bool all)
{
	const char *cut = mesh == 2 ? "tp" : NULL;
	case_types_t types = v->types;
	char what[128];
	result_t none;

	if (types.stored == 0)
		types.stored = SRT_F32;
	types.cut_over = cut;
	types.flat = (srt_flat_t)((v - variants) % 3); /* by turns */
	snprintf(what, sizeof(what), "%s, strategy %d, mesh %d", v->name, (int)strategy, mesh);
	for (size_t i = 0; i < SRT_ARRAY_LEN(offloads) && (all || i < 3); i++) {
		const srt_engine_options_t options =
			make_options(v, strategy, meshes[mesh], offloads[i].what);
		result_t result;

		run(v, &options, &types, i == 0 ? &none : &result);
		if (i == 0)
			continue;
		compare(what, offloads[i].name, &none, &result);
		check_plan(&offloads[i].what, &none.plan, &result.plan);
		result_free(&result);
	}
	result_free(&none);
}

/* ---- the program's own optimizer ----------------------------------------------------------- */

/* values -= gradient / 8, by the program where the shards are. */
static void step_own(engine_case_t *c, srt_device_t *home)
{
	srt_event_t *ready, *done;
	srt_stream_t *stream;

	CHECK_OK_OR_DIE(srt_stream_create(home, 0, "own", &stream));
	CHECK_OK_OR_DIE(srt_event_create(srt_stream_device(c->stream), &ready));
	CHECK_OK_OR_DIE(srt_event_create(home, &done));
	CHECK_OK(srt_engine_finish_backward(c->engine, c->stream));
	CHECK_OK(srt_engine_write_begin(c->engine, c->stream));
	CHECK_OK(srt_event_record(ready, c->stream));
	CHECK_OK(srt_stream_wait_event(stream, ready));
	for (size_t i = 0; i < c->nparams; i++) {
		const srt_view_t value = test_local(c->param[i], SRT_PARAM_VALUE);
		const srt_view_t grad = test_local(c->param[i], SRT_PARAM_GRAD);
		const int64_t nelem = c->param[i]->shard.nelem;

		if (!srt_param_requires_grad(c->param[i]))
			continue;
		CHECK_OK(srt_op_scale(grad, grad, -0.125f, nelem, stream));
		CHECK_OK(srt_op_add(value, value, grad, nelem, stream));
	}
	CHECK_OK(srt_event_record(done, stream));
	CHECK_OK(srt_stream_wait_event(c->stream, done));
	CHECK_OK(srt_engine_write_end(c->engine, c->stream));
	CHECK_OK(srt_engine_step(c->engine, c->stream));
	srt_event_destroy(ready);
	srt_event_destroy(done);
	srt_stream_destroy(stream);
}

static float *train_own(srt_offload_t what)
{
	srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
					 .offload = what,
					 .optim = OPTIM(.kind = SRT_OPTIM_NONE, .lr = 1.0f) };
	const case_types_t types = { .stored = SRT_F32 };
	srt_device_t *home = srt_context_device(context);
	engine_case_t c;
	srt_plan_t plan = SRT_PLAN_INIT;
	float *values;

	build(&c, &options, &types, &plan);
	if (what.params || what.grads || what.state)
		CHECK_OK_OR_DIE(srt_context_host(context, &home));
	for (int s = 0; s < STEPS; s++) {
		CHECK_OK_OR_DIE(case_passes(&c, s, 1));
		step_own(&c, home);
	}
	values = case_collect(&c, SRT_PARAM_VALUE);
	case_destroy(&c);
	return values;
}

static void test_own(void)
{
	static const srt_offload_t some[] = { { .params = 1 }, { .grads = 1 }, { .state = 1 } };
	const size_t nbytes = case_total_nelem(context, H) * sizeof(float);
	float *want = train_own((srt_offload_t){ 0 });

	for (size_t i = 0; i < SRT_ARRAY_LEN(some); i++) {
		float *values = train_own(some[i]);

		CHECK_MSG(memcmp(values, want, nbytes) == 0, "own steps, offload %zu", i);
		free(values);
	}
	free(want);
}

/* ---- files --------------------------------------------------------------------------------- */

static const srt_offload_t all_offloaded = { .params = 1, .grads = 1, .state = 1 };

/* Two steps from a file, or from initial values, then a file unless save is NULL. */
static float *train_file(srt_mesh_t *mesh, srt_offload_t what, const char *load, const char *save)
{
	const case_types_t types = { .stored = SRT_F32, .cut_over = mesh != NULL ? "tp" : NULL };
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	engine_case_t c;
	srt_plan_t plan = SRT_PLAN_INIT;
	float *values;

	options.mesh = mesh;
	options.offload = what;
	build(&c, &options, &types, &plan);
	if (mesh != NULL) /* ranks among which parameters are cut have the same data */
		c.rank = srt_mesh_coordinate(mesh, "dp");
	if (load != NULL)
		CHECK_OK_OR_DIE(srt_engine_load(c.engine, load, c.stream));
	for (int s = 0; s < 2; s++)
		CHECK_OK_OR_DIE(case_step(&c, s, 1));
	if (save != NULL)
		CHECK_OK_OR_DIE(srt_engine_save(c.engine, save, NULL, 0, c.stream));
	values = case_collect(&c, SRT_PARAM_VALUE);
	case_destroy(&c);
	return values;
}

static void check_same_file(const char *a, const char *b)
{
	FILE *file[2] = { fopen(a, "rb"), fopen(b, "rb") };
	long nbytes = 0;
	int byte[2];

	CHECK_OR_DIE(file[0] != NULL && file[1] != NULL);
	do {
		byte[0] = getc(file[0]);
		byte[1] = getc(file[1]);
		nbytes++;
	} while (byte[0] == byte[1] && byte[0] != EOF);
	CHECK_MSG(byte[0] == byte[1] && nbytes > 1000, "%s and %s differ at byte %ld", a, b,
		  nbytes);
	fclose(file[0]);
	fclose(file[1]);
}

/* Offload changes no byte of a file, and no bit of a training that begins with the file of ranks
 * among which parameters were cut. */
static void test_files(void)
{
	static const char *const names[] = { "dp", "tp" };
	const int world = srt_context_world_size(context), shape[] = { world / 2, 2 };
	const size_t nbytes = case_total_nelem(context, H) * sizeof(float);
	char path[2][64];
	srt_mesh_t *mesh;
	float *values[2];

	if (world % 2 != 0)
		return;
	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, names, &mesh));
	for (int i = 0; i < 2; i++) {
		snprintf(path[i], sizeof(path[i]), "test_offload.%d.%d.safetensors", world, i);
		free(train_file(mesh, i == 0 ? (srt_offload_t){ 0 } : all_offloaded, NULL,
				path[i]));
	}
	case_wait_for_all(context);
	if (srt_context_rank(context) == 0)
		check_same_file(path[0], path[1]);
	for (int i = 0; i < 2; i++)
		values[i] = train_file(NULL, i == 0 ? (srt_offload_t){ 0 } : all_offloaded, path[i],
				       NULL);
	CHECK_MSG(memcmp(values[0], values[1], nbytes) == 0,
		  "offload changes what is trained from a file");
	case_wait_for_all(context);
	for (int i = 0; i < 2; i++) {
		if (srt_context_rank(context) == 0)
			CHECK(unlink(path[i]) == 0);
		free(values[i]);
	}
	srt_mesh_destroy(mesh);
}

/* ---- overlap ------------------------------------------------------------------------------- */

static atomic_bool gate_open;

static srt_status_t wait_gate(void *arg)
{
	(void)arg;
	while (!atomic_load(&gate_open))
		usleep(100);
	return SRT_OK;
}

/* Closes the gate after the present work of the compute stream. */
static void close_gate(engine_case_t *c)
{
	atomic_store(&gate_open, false);
	CHECK_OK(srt_stream_host_fn(c->stream, wait_gate, NULL));
}

static void open_gate(engine_case_t *c)
{
	atomic_store(&gate_open, true);
	CHECK_OK(srt_stream_sync(c->stream));
}

/* Copies end while the compute of a unit does not: else a wait here would not return. */
static void test_overlap(void)
{
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	const case_types_t types = { .stored = SRT_F32 };
	srt_device_info_t info = SRT_DEVICE_INFO_INIT;
	engine_case_t c;
	srt_plan_t plan = SRT_PLAN_INIT;

	CHECK_OK(srt_device_get_info(srt_context_device(context), &info));
	if (!info.async_streams) /* the caller runs a command at the call */
		return;
	options.offload = (srt_offload_t){ .params = 1, .grads = 1, .state = 1 };
	build(&c, &options, &types, &plan);
	CHECK_OK_OR_DIE(case_step(&c, 0, 1)); /* from here on the order of the units is known */
	CHECK_OK(srt_stream_sync(c.stream));
	CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
	close_gate(&c);
	CHECK_OK(srt_unit_forward_begin(c.block[0], c.stream)); /* prefetches the next one */
	CHECK_OK(srt_event_sync(c.block[1]->unshard.gathered));
	open_gate(&c);
	CHECK_OK(srt_unit_forward_end(c.block[0], c.stream));
	CHECK_OK(srt_unit_forward_end(c.root, c.stream));

	CHECK_OK(case_backward_unit(&c, c.root, "root", 1, 0));
	CHECK_OK(case_backward_unit(&c, c.block[0], "b0", 1, 0));
	CHECK_OK(srt_unit_backward_end(c.block[0], c.stream));
	close_gate(&c);
	CHECK_OK(srt_event_sync(c.engine->home.landed));
	open_gate(&c);
	CHECK_OK(srt_unit_backward_end(c.root, c.stream));
	CHECK_OK(srt_engine_step(c.engine, c.stream));
	case_destroy(&c);
}

/* ---- what is refused ----------------------------------------------------------------------- */

static void test_errors(void)
{
	srt_engine_options_t options = case_adamw(SRT_STRATEGY_ZERO3);
	engine_case_t c;
	srt_engine_t *engine;

	options.offload.params = 1;
	CHECK_STATUS(srt_engine_create(context, &options, &engine), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("params without state");
	options.offload = (srt_offload_t){ .grads = 1 };
	CHECK_STATUS(srt_engine_create(context, &options, &engine), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("grads without state");
	if (srt_context_world_size(context) == 1)
		return;
	/* Ranks that declare different things. */
	options.offload = (srt_offload_t){ .state = srt_context_rank(context) == 1 };
	case_declare(&c, context, &options, H);
	CHECK_STATUS(srt_engine_build(c.engine), SRT_ERR_MISMATCH);
	CHECK_ERROR_HAS("offload");
	case_destroy(&c);
}

static void make_meshes(void)
{
	static const char *const hybrid[] = { "replicate", "shard" }, *const cells[] = { "dp",
											 "tp" };
	const int shape[] = { 2, srt_context_world_size(context) / 2 };

	if (srt_context_world_size(context) % 2 != 0 || srt_context_world_size(context) < 4)
		return;
	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, hybrid, &meshes[1]));
	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, cells, &meshes[2]));
}

int main(int argc, char **argv)
{
	const bool all = argc > 1 && strcmp(argv[1], "all") == 0;

	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	make_meshes();
	for (size_t i = 0; i < SRT_ARRAY_LEN(variants); i++) {
		if (all || i % 3 != 2)
			test_variant(&variants[i], SRT_STRATEGY_ZERO3, 0, all);
		for (int s = SRT_STRATEGY_DDP; s < SRT_STRATEGY_ZERO3; s++) {
			if (all || (int)(i % 3) == s)
				test_variant(&variants[i], (srt_strategy_t)s, 0, all);
		}
		if (meshes[1] != NULL)
			test_variant(&variants[i], SRT_STRATEGY_HYBRID, 1, all);
		if (meshes[2] != NULL && (all || i % 2 == 1))
			test_variant(&variants[i], SRT_STRATEGY_ZERO3, 2, all);
	}
	test_own();
	test_files();
	test_overlap();
	test_errors();
	for (int i = 1; i < 3; i++)
		srt_mesh_destroy(meshes[i]);
	srt_context_destroy(context);
	return check_done();
}
