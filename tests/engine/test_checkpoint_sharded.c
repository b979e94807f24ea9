/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sharded checkpoints, run by test_checkpoint_sharded.sh: from every arrangement of ranks to every
 * other the same tensors, and runs that are resumed with the bits of one that never stopped.
 *
 *     test_checkpoint_sharded save|load FOLDER ARRANGEMENT [FILE]   one half, for pairs of worlds
 *     test_checkpoint_sharded resume FOLDER                  within one job
 */
#include <unistd.h>

#include "tests/engine/engine_case.h"
#include "tests/harness/half.h"

static srt_context_t *context;
static srt_stream_t *stream;

/* ---- a state that does not depend on the arrangement ------------------------------------- */

typedef struct arrangement {
	const char *name;
	srt_strategy_t strategy;
	srt_flat_t flat;
	int tp;       /* ranks that parameters are cut over; 0: no mesh; -1: all */
	int parts;    /* srt_placement_t.nparts */
	int replicas; /* 0: no mesh */
	bool offload;
	srt_dtype_t stored;
} arrangement_t;

static const arrangement_t arrangements[] = {
	{ .name = "ddp", .strategy = SRT_STRATEGY_DDP },
	{ .name = "zero1", .strategy = SRT_STRATEGY_ZERO1 },
	{ .name = "zero2", .strategy = SRT_STRATEGY_ZERO2 },
	{ .name = "zero3", .strategy = SRT_STRATEGY_ZERO3 },
	{ .name = "ddp-flat", .strategy = SRT_STRATEGY_DDP, .flat = SRT_FLAT_VIEWS },
	{ .name = "zero1-flat", .strategy = SRT_STRATEGY_ZERO1, .flat = SRT_FLAT_VIEWS },
	{ .name = "zero2-flat", .strategy = SRT_STRATEGY_ZERO2, .flat = SRT_FLAT_VIEWS },
	{ .name = "padded", .strategy = SRT_STRATEGY_ZERO3, .flat = SRT_FLAT_PADDED },
	{ .name = "views", .strategy = SRT_STRATEGY_ZERO3, .flat = SRT_FLAT_VIEWS },
	{ .name = "offload", .strategy = SRT_STRATEGY_ZERO3, .offload = true },
	{ .name = "hybrid", .strategy = SRT_STRATEGY_HYBRID, .replicas = 2 },
	{ .name = "tp", .strategy = SRT_STRATEGY_ZERO3, .tp = 2, .parts = 4 },
	{ .name = "tp-views", .strategy = SRT_STRATEGY_ZERO3, .flat = SRT_FLAT_VIEWS, .tp = 2 },
	{ .name = "tp-all", .strategy = SRT_STRATEGY_ZERO1, .tp = -1 },
	{ .name = "bf16", .strategy = SRT_STRATEGY_ZERO3, .stored = SRT_BF16 },
};

static const arrangement_t *find(const char *name)
{
	for (size_t i = 0; i < SRT_ARRAY_LEN(arrangements); i++) {
		if (strcmp(arrangements[i].name, name) == 0)
			return &arrangements[i];
	}
	CHECK_OR_DIE(false);
	return NULL;
}

/* What a checkpoint is of. */
typedef struct subject {
	engine_case_t c;
	srt_mesh_t *mesh;
	srt_unit_buffer_t *count, *mean, *empty;
	srt_scaler_t *scaler;
} subject_t;

static srt_mesh_t *make_mesh(const arrangement_t *a)
{
	static const char *const tp_names[] = { "dp", "tp" };
	static const char *const hybrid_names[] = { "replicate", "shard" };
	const int world = srt_context_world_size(context);
	const int n = a->tp < 0 ? world : a->tp > 0 ? a->tp : world / a->replicas;
	const int size[] = { world / n, n };
	srt_mesh_t *mesh;

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, size,
					a->tp != 0 ? tp_names : hybrid_names, &mesh));
	return mesh;
}

static void subject_create(subject_t *s, const arrangement_t *a)
{
	const int64_t three = 3, none = 0;
	case_types_t types = { .stored = a->stored, .flat = a->flat, .ngroups = 3 };
	srt_engine_options_t options = case_adamw(a->strategy);

	types.cut_over = a->tp != 0 ? "tp" : NULL;
	types.cut_parts = a->parts;
	memset(s, 0, sizeof(*s));
	options.offload.params = options.offload.state = options.offload.grads = a->offload;
	if (a->tp != 0 || a->replicas > 0)
		options.mesh = s->mesh = make_mesh(a);
	case_declare_as(&s->c, context, &options, 5, &types);
	CHECK_OK_OR_DIE(
		srt_unit_buffer_create(s->c.block[0], "b0.mean", SRT_F32, 1, &three, &s->mean));
	CHECK_OK_OR_DIE(
		srt_unit_buffer_create(s->c.block[0], "b0.count", SRT_I64, 0, NULL, &s->count));
	CHECK_OK_OR_DIE(srt_unit_buffer_create(s->c.root, "none", SRT_F32, 1, &none, &s->empty));
	case_build(&s->c);
	CHECK_OK_OR_DIE(srt_scaler_create(context, NULL, &s->scaler));
}

static void subject_destroy(subject_t *s)
{
	srt_scaler_destroy(s->scaler);
	case_destroy(&s->c);
	srt_mesh_destroy(s->mesh);
}

static const srt_param_what_t whats[] = { SRT_PARAM_VALUE, SRT_PARAM_STATE0, SRT_PARAM_STATE1 };

/* Element i of a tensor, from the name. */
static float element(const srt_param_t *p, srt_param_what_t what, int64_t i)
{
	uint32_t name = 0;

	for (const char *at = srt_param_name(p); *at != '\0'; at++)
		name = name * 31 + (unsigned char)*at;
	return case_random(name, (uint32_t)what, (uint32_t)i, 7);
}

static bool has(const srt_param_t *p, srt_param_what_t what)
{
	return what == SRT_PARAM_VALUE || srt_param_requires_grad(p);
}

static const srt_step_info_t wanted_state = { .size = sizeof(srt_step_info_t),
					      .step = 17,
					      .lr = 0.25f,
					      .clip_coef = 0.5f,
					      .grad_norm = -1.0f,
					      .base_lr = 0.5f,
					      .min_lr = 0.125f,
					      .warmup = 3,
					      .lr_steps = 100,
					      .schedule = SRT_SCHEDULE_LINEAR,
					      .skipped = 2 };
static const srt_scaler_state_t wanted_scaler = { 1024.0f, 5, 2000, 2.0, 0.5 };

static void subject_fill(subject_t *s)
{
	const float mean[] = { 1.5f, -2.0f, (float)s->c.rank };
	const int64_t count = (int64_t)1 << 40 | s->c.rank;
	srt_step_info_t state = wanted_state;

	for (size_t i = 0; i < s->c.nparams; i++) {
		srt_param_t *p = s->c.param[i];
		const int64_t n = srt_param_nelem(p);
		float *x = calloc((size_t)n + 1, sizeof(*x));

		CHECK_OR_DIE(x != NULL);
		for (size_t k = 0; k < SRT_ARRAY_LEN(whats); k++) {
			for (int64_t e = 0; e < n; e++)
				half_put(s->c.stored, x, (size_t)e, element(p, whats[k], e));
			if (k == 0)
				CHECK_OK_OR_DIE(srt_param_set(p, SRT_PARAM_VALUE, x, s->c.stream));
			else if (has(p, whats[k]))
				CHECK_OK_OR_DIE(srt_param_set(p, whats[k], x, s->c.stream));
		}
		if (srt_param_requires_grad(p))
			CHECK_OK(test_set_steps(s->c.engine, p, (int32_t)i + 3, s->c.stream));
		free(x);
	}
	for (size_t g = 0; g < 3; g++) {
		state.step = wanted_state.step + (int32_t)g;
		CHECK_OK(srt_optim_set_step_info(srt_engine_optim(s->c.engine), g, &state,
						 s->c.stream));
	}
	CHECK_OK(srt_scaler_set_state(s->scaler, &wanted_scaler, s->c.stream));
	CHECK_OK(srt_unit_buffer_set(s->mean, mean, s->c.stream));
	CHECK_OK(srt_unit_buffer_set(s->count, &count, s->c.stream));
}

static void check_param(subject_t *s, size_t i, bool is_rounded)
{
	srt_param_t *p = s->c.param[i];
	const int64_t n = srt_param_nelem(p);
	float *x = calloc((size_t)n + 1, sizeof(*x));
	int32_t steps;

	CHECK_OR_DIE(x != NULL);
	for (size_t k = 0; k < SRT_ARRAY_LEN(whats); k++) {
		if (!has(p, whats[k]))
			continue;
		CHECK_OK_OR_DIE(srt_param_get(p, whats[k], x, s->c.stream));
		for (int64_t e = 0; e < n; e++) {
			const float saved = element(p, whats[k], e);
			const float want = is_rounded ? half_round(SRT_BF16, saved) : saved;
			const float got = half_get(s->c.stored, x, (size_t)e);

			CHECK_MSG(got == half_round(s->c.stored, want),
				  "%s, tensor %d: element %lld is %g, not %g", srt_param_name(p),
				  (int)whats[k], (long long)e, (double)got, (double)want);
		}
	}
	if (srt_param_requires_grad(p)) {
		CHECK_OK(test_get_steps(s->c.engine, p, &steps, s->c.stream));
		CHECK_INT(steps, i + 3);
	}
	free(x);
}

/* buffers_of: the rank whose buffers it has. */
static void subject_check(subject_t *s, bool is_rounded, int buffers_of)
{
	const float want_mean[] = { 1.5f, -2.0f, (float)buffers_of };
	srt_scaler_state_t scaler;
	srt_step_info_t state = SRT_STEP_INFO_INIT;
	float mean[3];
	int64_t count;

	for (size_t i = 0; i < s->c.nparams; i++)
		check_param(s, i, is_rounded);
	for (size_t g = 0; g < 3; g++) {
		CHECK_OK(srt_optim_get_step_info(s->c.engine->optim, g, &state, s->c.stream));
		CHECK_INT(state.step, wanted_state.step + (int32_t)g);
		state.step = wanted_state.step;
		CHECK(memcmp(&state, &wanted_state, sizeof(state)) == 0);
	}
	CHECK_OK(srt_scaler_get_state(s->scaler, &scaler, s->c.stream));
	CHECK(scaler.scale == wanted_scaler.scale);
	CHECK_INT(scaler.growth_tracker, wanted_scaler.growth_tracker);
	CHECK_INT(scaler.growth_interval, wanted_scaler.growth_interval);
	CHECK(scaler.growth_factor == wanted_scaler.growth_factor);
	CHECK(scaler.backoff_factor == wanted_scaler.backoff_factor);
	CHECK_OK(srt_unit_buffer_get(s->mean, mean, s->c.stream));
	CHECK_OK(srt_unit_buffer_get(s->count, &count, s->c.stream));
	CHECK_BITS(mean, want_mean, 3);
	CHECK(count == ((int64_t)1 << 40 | buffers_of));
}

/* ---- from arrangement to arrangement ------------------------------------------------------ */

static const uint64_t wanted_seed = 0x0123456789abcdefu;

/* The hash of the parameters is that of their checkpoint, and of their file if there is one. */
static void check_hash(const engine_case_t *c, const char *folder, const char *plain)
{
	const char *paths[] = { folder, plain };
	unsigned char wanted[16], hash[16];
	srt_file_t *file;

	CHECK_OK_OR_DIE(srt_engine_hash(c->engine, wanted, c->stream));
	for (int i = 0; i < 2 && paths[i] != NULL; i++) {
		CHECK_OK_OR_DIE(srt_file_open(paths[i], &file));
		CHECK_OK(srt_file_hash_params(file, hash, NULL));
		CHECK_MSG(memcmp(hash, wanted, sizeof(hash)) == 0, "the hash of %s differs",
			  paths[i]);
		srt_file_close(file);
	}
}

/* plain: a file of unsharded tensors is written too; or NULL. */
static void test_save(const char *folder, const arrangement_t *a, const char *plain)
{
	uint64_t seed = wanted_seed;
	const srt_checkpoint_entry_t entries[] = { { sizeof(entries[0]), "seed", &seed,
						     sizeof(seed) },
						   { sizeof(entries[0]), "nothing", NULL, 0 } };
	srt_checkpoint_options_t options = { .size = sizeof(options),
					     .entries = entries,
					     .nentries = 2 };
	subject_t s;

	subject_create(&s, a);
	subject_fill(&s);
	options.scaler = s.scaler;
	CHECK_OK(srt_checkpoint_save(s.c.engine, folder, &options, s.c.stream));
	subject_check(&s, a->stored == SRT_BF16, s.c.rank);
	if (plain != NULL)
		CHECK_OK(srt_engine_save(s.c.engine, plain, NULL, 0, s.c.stream));
	check_hash(&s.c, folder, plain);
	subject_destroy(&s);
}

static void test_load(const char *folder, const arrangement_t *a, bool is_rounded)
{
	uint64_t seed = 0;
	const srt_checkpoint_entry_t entries[] = { { sizeof(entries[0]), "seed", &seed,
						     sizeof(seed) },
						   { sizeof(entries[0]), "nothing", NULL, 0 } };
	srt_checkpoint_options_t options = { .size = sizeof(options),
					     .entries = entries,
					     .nentries = 2 };
	const bool casts = is_rounded != (a->stored == SRT_BF16);
	subject_t s;

	subject_create(&s, a);
	options.scaler = s.scaler;
	if (casts) {
		CHECK_STATUS(srt_checkpoint_load(s.c.engine, folder, &options, s.c.stream),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS("bf16");
		CHECK_ERROR_HAS("srt_checkpoint_options_t.cast");
		options.cast = 1;
	}
	CHECK_OK(srt_checkpoint_load(s.c.engine, folder, &options, s.c.stream));
	CHECK(seed == wanted_seed);
	subject_check(&s, is_rounded, 0);
	subject_destroy(&s);
}

/* ---- resumed runs ------------------------------------------------------------------------- */

#define BEFORE 3
#define AFTER 3

typedef struct run {
	const char *name;
	srt_engine_options_t engine;
	case_types_t types;
} run_t;

static void begin(engine_case_t *c, const run_t *run, srt_strategy_t strategy, srt_flat_t flat)
{
	srt_engine_options_t options = run->engine;
	case_types_t types = run->types;

	options.strategy = strategy;
	types.flat = flat;
	case_declare_as(c, context, &options, 5, &types);
	c->delay = 1;
	case_build(c);
}

/* b2.unused has a gradient in every other step. */
static void make_steps(engine_case_t *c, int first, int n)
{
	const int nmicro =
		c->engine->options.microbatches > 1 ? c->engine->options.microbatches : 1;

	for (int step = first; step < first + n; step++) {
		c->unused = step % 2;
		CHECK_OK_OR_DIE(case_step(c, step, nmicro));
	}
}

static void compare(engine_case_t *a, engine_case_t *b, const char *name)
{
	for (int what = 0; what <= SRT_PARAM_STATE2; what++) {
		float *x, *y;

		if (what == SRT_PARAM_GRAD)
			continue;
		x = case_collect(a, (srt_param_what_t)what);
		y = case_collect(b, (srt_param_what_t)what);
		CHECK_MSG(memcmp(x, y, case_nelem(a) * sizeof(*x)) == 0, "%s: tensor %d differs",
			  name, what);
		free(x);
		free(y);
	}
	for (size_t i = 0; i < a->nparams; i++) {
		int32_t x, y;

		if (!srt_param_requires_grad(a->param[i]))
			continue;
		CHECK_OK(test_get_steps(a->engine, a->param[i], &x, a->stream));
		CHECK_OK(test_get_steps(b->engine, b->param[i], &y, b->stream));
		CHECK_INT(x, y);
	}
	for (size_t g = 0; g < (a->ngroups > 0 ? a->ngroups : 1); g++) {
		srt_step_info_t x = SRT_STEP_INFO_INIT, y = SRT_STEP_INFO_INIT;

		CHECK_OK(srt_optim_get_step_info(srt_engine_optim(a->engine), g, &x, a->stream));
		CHECK_OK(srt_optim_get_step_info(srt_engine_optim(b->engine), g, &y, b->stream));
		CHECK_MSG(memcmp(&x, &y, sizeof(x)) == 0, "%s: step states differ", name);
		CHECK_INT(x.step, BEFORE + AFTER);
	}
}

/* A thread writes the checkpoint while the next steps are made if `meanwhile` is set. */
static void test_resume(const char *folder, const run_t *run, srt_strategy_t from,
			srt_strategy_t to, bool meanwhile)
{
	engine_case_t whole, first, second;
	srt_checkpoint_write_t *write = NULL;

	begin(&whole, run, from, SRT_FLAT_NO);
	make_steps(&whole, 0, BEFORE + AFTER);
	begin(&first, run, from, SRT_FLAT_NO);
	make_steps(&first, 0, BEFORE);
	if (meanwhile)
		CHECK_OK_OR_DIE(srt_checkpoint_save_begin(first.engine, folder, NULL, &write,
							  first.stream));
	else
		CHECK_OK_OR_DIE(srt_checkpoint_save(first.engine, folder, NULL, first.stream));
	make_steps(&first, BEFORE, AFTER); /* a save changes nothing */
	if (meanwhile) {
		CHECK_OK_OR_DIE(srt_checkpoint_save_end(write));
		CHECK(srt_checkpoint_save_done(NULL));
	}
	compare(&whole, &first, run->name);
	begin(&second, run, to, to == SRT_STRATEGY_ZERO3 ? SRT_FLAT_VIEWS : SRT_FLAT_NO);
	CHECK_OK_OR_DIE(srt_checkpoint_load(second.engine, folder, NULL, second.stream));
	make_steps(&second, BEFORE, AFTER);
	compare(&whole, &second, run->name);
	case_destroy(&whole);
	case_destroy(&first);
	case_destroy(&second);
}

static void test_resumes(const char *folder)
{
	static const srt_precision_t bf16 = { .size = sizeof(bf16),
					      .param = SRT_BF16,
					      .reduce = SRT_F32 };
	const int world = srt_context_world_size(context);
	const run_t runs[] = {
		{ "schedule, amsgrad, clipping",
		  { ENGINE_BASE, .norm_p = 2, .max_norm = 1.0f,
		    .optim = OPTIM(.kind = SRT_OPTIM_ADAM, .lr = 0.05f, .min_lr = 0.01f,
				   .warmup = 2, .lr_steps = 5, .amsgrad = 1, ADAM_BASE) },
		  { .stored = SRT_F32 } },
		{ "bf16",
		  { ENGINE_BASE, .precision = &bf16,
		    .optim = OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 0.05f, ADAM_BASE) },
		  { .ngroups = 3 } },
		{ "stored f16",
		  { ENGINE_BASE,
		    .optim = OPTIM(.kind = SRT_OPTIM_SGD, .lr = 0.1f, .momentum = 0.9) },
		  { .stored = SRT_F16, .ngroups = 2 } },
		{ "offload, accumulation",
		  { .size = sizeof(srt_engine_options_t),
		    .prefetch = 1,
		    .microbatches = 2,
		    .accumulation =
			    (world & (world - 1)) == 0 ? SRT_ACCUMULATE_TREE : SRT_ACCUMULATE_LAST,
		    .offload = { .params = 1, .grads = 1, .state = 1 },
		    .optim = OPTIM(.kind = SRT_OPTIM_ADAMW, .lr = 0.05f, ADAM_BASE) },
		  { .stored = SRT_F32 } },
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(runs); i++) {
		test_resume(folder, &runs[i], SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO3, false);
		test_resume(folder, &runs[i], SRT_STRATEGY_ZERO3, SRT_STRATEGY_ZERO1, true);
	}
}

/*
 * Reliability: ranks that end two saves in different orders | success on all ranks, and each
 * checkpoint has a file of the other one | an error on all ranks that names both folders; neither
 * is completed
 */
static void test_order(const char *folder, const char *other)
{
	const run_t run = { "order", { ENGINE_BASE, .optim = OPTIM_SGD(0.1f) }, { 0 } };
	const int turned = srt_context_rank(context) == 0;
	srt_checkpoint_write_t *writes[2];
	engine_case_t c;

	begin(&c, &run, SRT_STRATEGY_ZERO3, SRT_FLAT_NO);
	for (int same = srt_context_world_size(context) < 2; same < 2; same++) {
		const int first = same ? 1 : turned;

		CHECK_OK_OR_DIE(
			srt_checkpoint_save_begin(c.engine, folder, NULL, &writes[0], c.stream));
		CHECK_OK_OR_DIE(
			srt_checkpoint_save_begin(c.engine, other, NULL, &writes[1], c.stream));
		for (int i = 0; i < 2; i++) {
			CHECK_STATUS(srt_checkpoint_save_end(writes[first ^ i]),
				     same ? SRT_OK : SRT_ERR_MISMATCH);
			if (same)
				continue;
			CHECK_ERROR_HAS(folder);
			CHECK_ERROR_HAS(other);
			CHECK_ERROR_HAS("end saves in one order on all ranks");
		}
		CHECK_STATUS(srt_checkpoint_load(c.engine, folder, NULL, c.stream),
			     same ? SRT_OK : SRT_ERR_NOT_FOUND);
		CHECK_STATUS(srt_checkpoint_load(c.engine, other, NULL, c.stream),
			     same ? SRT_OK : SRT_ERR_NOT_FOUND);
	}
	case_destroy(&c);
	if (srt_context_rank(context) == 0) {
		CHECK_OK(srt_checkpoint_remove(folder));
		CHECK_OK(srt_checkpoint_remove(other));
	}
}

int main(int argc, char **argv)
{
	CHECK_OR_DIE(argc >= 3);
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	if (strcmp(argv[1], "resume") == 0) {
		test_resumes(argv[2]);
	} else if (strcmp(argv[1], "order") == 0) {
		CHECK_OR_DIE(argc >= 4);
		test_order(argv[2], argv[3]);
	} else {
		CHECK_OR_DIE(argc >= 4);
		if (strcmp(argv[1], "save") == 0)
			test_save(argv[2], find(argv[3]), argv[4]);
		else
			test_load(argv[2], find(argv[3]), strcmp(argv[1], "load-bf16") == 0);
	}
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
