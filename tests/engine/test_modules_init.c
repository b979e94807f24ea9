/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Module trees: what is ignored, parameters without values, and initial values, which have one hash
 * at every number of ranks, with every strategy, policy and form of units. Run by test_modules.sh.
 */
#include "tests/engine/module_case.h"

#define FIND(name) srt_engine_param_find(engine, name)

static srt_context_t *context;
static srt_stream_t *stream;

static void test_ignored(void)
{
	srt_engine_t *engine = modules_create_engine(context, NULL), *own;
	srt_wrap_options_t options = { .size = sizeof(options), .root_name = NULL };
	srt_module_t *root = modules_create_blocks(), *block;
	srt_comm_t *alone;

	CHECK_OK_OR_DIE(srt_comm_split(srt_context_world(context), srt_context_rank(context),
				       "alone", &alone));
	own = modules_create_engine(context, alone);
	CHECK_OK(srt_unit_create(own, NULL, "ignored", NULL, &options.ignored));
	block = srt_module_find(root, "blocks.0");
	CHECK_OK(srt_module_ignore(block, NULL));
	CHECK_OK(srt_module_ignore(srt_module_find(root, "head"), "weight"));
	CHECK_OK(srt_module_add_buffer(block, "buffer", SRT_F32, 0, NULL));
	CHECK_OK(srt_module_wrap(srt_module_find(block, "fc"), NULL));
	CHECK_STATUS(srt_engine_wrap(engine, root, NULL, &options), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'blocks.0.fc' (Linear) is marked as a unit");
	srt_module_destroy(root);

	root = modules_create_blocks();
	block = srt_module_find(root, "blocks.0");
	CHECK_OK(srt_module_ignore(block, NULL));
	CHECK_OK(srt_module_ignore(srt_module_find(root, "head"), "weight"));
	CHECK_OK(srt_module_add_buffer(block, "buffer", SRT_F32, 0, NULL));
	CHECK_OK(srt_engine_wrap(engine, root, WRAP(.rule = SRT_WRAP_ALWAYS), &options));
	modules_check_units(engine, "root() emb(emb.weight) blocks() blocks.1() "
				    "blocks.1.fc(blocks.1.fc.weight) head()");
	modules_check_units(own, "ignored(blocks.0.attn.weight blocks.0.attn.proj.weight "
				 "blocks.0.fc.weight head.weight)");
	CHECK(srt_module_unit(block) == NULL && srt_module_buffer(block, "buffer") != NULL);
	CHECK_OK(srt_engine_build(engine));
	CHECK_STATUS(srt_engine_materialize(engine, NULL, stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS(
		"initial values of module 'head' (Linear)"); /* its weight is in an engine ... */
	CHECK_OK(srt_engine_build(own));                     /* ... that is not built */
	CHECK_OK(srt_module_reset(srt_module_find(root, "head"), 1, stream));
	CHECK_INT(engine->declared.nunset, 0);
	CHECK_STATUS(srt_unit_forward_begin(options.ignored, stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS(
		"3 parameters have no values before the first forward pass: "
		"'blocks.0.attn.weight', 'blocks.0.attn.proj.weight', 'blocks.0.fc.weight';");
	srt_engine_destroy(engine);
	srt_engine_destroy(own);

	engine = modules_create_engine(context, NULL); /* without another engine: in none */
	root = modules_create_blocks();
	CHECK_OK(srt_module_ignore(srt_module_find(root, "blocks"), NULL));
	CHECK_OK(srt_engine_wrap(engine, root, NULL, NULL));
	modules_check_units(engine, "root(emb.weight head.weight)");
	CHECK(srt_module_param(srt_module_find(root, "blocks.1.fc"), "weight") == NULL);
	srt_engine_destroy(engine);

	engine = modules_create_engine(context, NULL); /* this one itself */
	root = modules_create_blocks();
	own = modules_create_engine(context, NULL);
	CHECK_OK(srt_unit_create(own, NULL, "root", NULL, &options.ignored));
	CHECK_STATUS(srt_engine_wrap(own, root, NULL, &options), SRT_ERR_STATE);
	srt_module_destroy(root);
	srt_engine_destroy(own);
	srt_engine_destroy(engine);
	srt_comm_destroy(alone);
}

/* ---- parameters without values --------------------------------------------------------------- */

static srt_status_t step(srt_engine_t *engine)
{
	SRT_TRY(srt_unit_forward_begin(engine->units[0], stream));
	SRT_TRY(srt_unit_forward_end(engine->units[0], stream));
	return srt_stream_sync(stream);
}

static srt_status_t reset_nothing(srt_module_t *module, uint64_t seed, srt_stream_t *on, void *arg)
{
	(void)module;
	(void)seed;
	(void)on;
	(void)arg;
	return SRT_OK;
}

static void test_unset(void)
{
	srt_engine_t *engine = modules_create_engine(context, NULL);
	srt_module_t *root = modules_create_blocks();
	const int64_t none = 0;
	float values[8] = { 0 };
	srt_param_t *param;

	CHECK_OK(srt_module_add_param(root, "empty", SRT_F32, 1, &none, NULL));
	CHECK_OK(srt_module_set_reset(root, reset_nothing, NULL));
	CHECK_OK(srt_engine_wrap(engine, root, NULL, NULL));
	CHECK_OK(srt_engine_build(engine));
	CHECK_STATUS(step(engine), SRT_ERR_STATE);
	CHECK_ERROR_HAS("6 parameters have no values before the first forward pass: 'emb.weight', "
			"'blocks.0.attn.weight', ");
	CHECK_ERROR_HAS("srt_engine_materialize()");
	param = FIND("blocks.0.attn.weight");
	CHECK(srt_module_is_unset(srt_module_find(root, "blocks.0.attn")));
	CHECK_OK(srt_param_set(param, SRT_PARAM_VALUE, values, stream));
	CHECK(!srt_module_is_unset(srt_module_find(root, "blocks.0.attn")));
	CHECK(!srt_module_is_unset(root));
	CHECK_OK(srt_param_init_normal(FIND("head.weight"), 1, 0, 1, stream));
	CHECK(test_local(FIND("emb.weight"), SRT_PARAM_VALUE).buffer);
	CHECK_OK(srt_param_init_constant(FIND("blocks.0.fc.weight"), 1, stream));
	CHECK_OK(srt_param_init_constant(FIND("blocks.1.fc.weight"), 1, stream));
	CHECK_STATUS(step(engine), SRT_ERR_STATE);
	CHECK_ERROR_HAS("1 parameter has no values before the first forward pass: "
			"'blocks.0.attn.proj.weight'; call");
	CHECK_OK(srt_engine_materialize(engine, NULL, stream)); /* the whole unit again */
	CHECK_OK(step(engine));
	CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, values, stream));
	CHECK(values[0] == 1.0f && values[7] == 1.0f);
	CHECK_OK(srt_param_init_constant(param, 2.0f, stream));
	CHECK_OK(srt_engine_materialize(engine, NULL, stream)); /* nothing is without values */
	CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, values, stream));
	CHECK(values[0] == 2.0f);
	srt_engine_destroy(engine);

	engine = modules_create_engine(context,
				       NULL); /* declared without a tree: zero, and no error */
	CHECK_OK(srt_unit_create(engine, NULL, "root", NULL, &(srt_unit_t *){ NULL }));
	CHECK_OK(srt_param_create(engine->units[0], "w", SRT_F32, 1, (int64_t[]){ 3 }, NULL,
				  &param));
	CHECK_OK(srt_engine_build(engine));
	CHECK_STATUS(srt_engine_materialize(engine, NULL, stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("no module tree");
	CHECK_OK(step(engine));
	srt_engine_destroy(engine);
}

/* An engine that refuses a parameter, then one that does not. */

static void test_refused(void)
{
	srt_module_t *root = modules_add(NULL, NULL, "Model"),
		     *a = modules_add_layer(root, "a", "A", 2);
	srt_module_t *b = modules_add(root, "b", "B");
	srt_engine_t *engine = modules_create_engine(context, NULL);
	const int64_t two = 2;

	CHECK_OK(srt_module_add_param(b, "weight", SRT_F16, 1, &two, NULL));
	CHECK_STATUS(srt_engine_wrap(engine, root, NULL, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("parameter 'b.weight' has dtype f16 and 'a.weight' has f32");
	srt_engine_destroy(engine);
	CHECK(srt_module_param(a, "bias") == NULL);
	CHECK_OK(srt_module_wrap(b, NULL));
	engine = modules_create_engine(context, NULL);
	CHECK_OK(srt_engine_wrap(engine, root, NULL, NULL));
	modules_check_units(engine, "root(a.weight) b(b.weight)");
	srt_engine_destroy(engine);
}

/* ---- one hash ------------------------------------------------------------------------------- */

enum { SEED = 7, WIDTH = 6, VOCAB = 11 };

static void add_param(srt_module_t *module, const char *name, int64_t rows, int64_t columns,
		      const srt_param_options_t *options)
{
	const int64_t shape[] = { rows, columns };

	CHECK_OK(srt_module_add_param(module, name, SRT_F32, columns > 0 ? 2 : 1, shape, options));
}

static srt_module_t *add_linear(srt_module_t *parent, const char *name, int64_t in, int64_t out,
				const srt_param_options_t *options)
{
	srt_module_t *module = modules_add(parent, name, "Linear");

	add_param(module, "weight", out, in, options);
	add_param(module, "bias", out, 0, NULL);
	return module;
}

static void add_block(srt_module_t *list, const char *name, int is_frozen, int is_cut)
{
	const srt_param_options_t frozen = { PARAM_BASE, .frozen = is_frozen };
	const srt_param_options_t cut = { PARAM_BASE,
					  .placement = { is_cut ? "tp" : NULL, is_cut, 0, 0 } };
	srt_module_t *block = modules_add(list, name, "Block"), *module;

	module = modules_add(block, "norm", "LayerNorm");
	add_param(module, "weight", WIDTH, 0, &frozen);
	add_param(module, "bias", WIDTH, 0, &frozen);
	module = modules_add(block, "attn", "MultiheadAttention");
	add_param(module, "in_proj_weight", 3 * WIDTH, WIDTH, &frozen);
	add_param(module, "in_proj_bias", 3 * WIDTH, 0, &frozen);
	add_linear(module, "out_proj", WIDTH, WIDTH, NULL);
	add_linear(block, "fc", WIDTH, 4, &cut);
}

/* An own kind's reset, which sets from the host, and its buffer on the device. */
static srt_status_t reset_scale(srt_module_t *module, uint64_t seed, srt_stream_t *on, void *arg)
{
	srt_normal_t noise = SRT_NORMAL_INIT;

	(void)arg;
	SRT_TRY(srt_param_set(srt_module_param(module, "scale"), SRT_PARAM_VALUE, &(float){ 0.25f },
			      on));
	noise.y = test_buffer_view(srt_module_buffer(module, "noise"));
	noise.seed = seed, noise.name = "noise", noise.nelem = 3;
	return srt_op_normal(&noise, on);
}

/* has_mixed: block 1 has frozen parameters and others. */
static srt_module_t *create_model(int is_cut, int has_mixed)
{
	const int64_t three = 3, width = WIDTH;
	const srt_init_t ones = { .kind = SRT_INIT_CONSTANT, .value = 1 };
	const srt_init_t small = { .kind = SRT_INIT_UNIFORM, .low = -0.01, .high = 0.01 };
	srt_module_t *root = modules_add(NULL, NULL, "Model"), *emb, *list, *head, *module;

	emb = modules_add(root, "emb", "Embedding");
	add_param(emb, "weight", VOCAB, WIDTH, NULL);
	list = modules_add(root, "blocks", "ModuleList");
	add_block(list, "0", 0, is_cut);
	add_block(list, "1", has_mixed, is_cut);
	module = modules_add(root, "bn", "BatchNorm1d");
	add_param(module, "weight", WIDTH, 0, NULL);
	add_param(module, "bias", WIDTH, 0, NULL);
	CHECK_OK(srt_module_add_buffer(module, "running_mean", SRT_F32, 1, &width));
	CHECK_OK(srt_module_add_buffer(module, "running_var", SRT_F32, 1, &width));
	CHECK_OK(srt_module_add_buffer(module, "num_batches_tracked", SRT_I64, 0, NULL));
	module = modules_add(root, "own", "Scale"); /* one element, for more ranks than that */
	add_param(module, "scale", 1, 0, NULL);
	CHECK_OK(srt_module_add_buffer(module, "noise", SRT_F32, 1, &three));
	CHECK_OK(srt_module_set_reset(module, reset_scale, NULL));
	module = modules_add(root, "deferred", "Anything");
	add_param(module, "w", 5, 2, NULL);
	CHECK_OK(srt_module_record_init(module, "w", &ones));
	CHECK_OK(srt_module_record_init(module, "w", &small));
	head = modules_add(root, "head", "Linear"); /* its weight is the embedding's */
	CHECK_OK(srt_module_tie(head, "weight", emb, "weight"));
	add_param(head, "bias", VOCAB, 0, NULL);
	return root;
}

/* FNV-1a 64 of all parameters by their names, which another policy puts into another order. */
static const char *const names[] = {
	"emb.weight",
	"blocks.0.norm.weight",
	"blocks.0.attn.in_proj_weight",
	"blocks.0.attn.in_proj_bias",
	"blocks.0.attn.out_proj.weight",
	"blocks.0.attn.out_proj.bias",
	"blocks.0.fc.weight",
	"blocks.0.fc.bias",
	"blocks.1.norm.bias",
	"blocks.1.attn.in_proj_weight",
	"blocks.1.fc.weight",
	"bn.weight",
	"bn.bias",
	"own.scale",
	"deferred.w",
	"head.bias",
};

enum { NNAMES = sizeof(names) / sizeof(names[0]), MAX_NELEM = 3 * WIDTH * WIDTH };

static uint64_t digest_of(srt_engine_t *engine, float values[NNAMES][MAX_NELEM])
{
	uint64_t digest = 0xcbf29ce484222325u;

	for (size_t i = 0; i < NNAMES; i++) {
		srt_param_t *param = FIND(names[i]);
		const unsigned char *bytes = (const unsigned char *)values[i];

		CHECK_OR_DIE(param != NULL && srt_param_nelem(param) <= MAX_NELEM);
		CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, values[i], stream));
		for (size_t k = 0; k < (size_t)srt_param_nelem(param) * sizeof(float); k++)
			digest = (digest ^ bytes[k]) * 0x100000001b3u;
	}
	return digest;
}

static void check_buffers(srt_module_t *root)
{
	const srt_module_t *bn = srt_module_find(root, "bn");
	float mean[WIDTH], var[WIDTH], noise[3];
	int64_t count = -1;

	CHECK_OK(srt_unit_buffer_get(srt_module_buffer(bn, "running_mean"), mean, stream));
	CHECK_OK(srt_unit_buffer_get(srt_module_buffer(bn, "running_var"), var, stream));
	CHECK_OK(srt_unit_buffer_get(srt_module_buffer(bn, "num_batches_tracked"), &count, stream));
	CHECK_OK(srt_unit_buffer_get(srt_module_buffer(srt_module_find(root, "own"), "noise"),
				     noise, stream));
	CHECK(mean[0] == 0 && mean[WIDTH - 1] == 0 && var[0] == 1 && var[WIDTH - 1] == 1);
	CHECK(count == 0 && noise[0] != 0 && noise[2] != 0);
}

/* PyTorch's values: bounds, and values that are set by the module around. */
static void check_values(float values[NNAMES][MAX_NELEM])
{
	const float *in_proj = values[2], *out_proj = values[4], *deferred = values[14];

	for (int i = 0; i < 3 * WIDTH * WIDTH; i++)
		CHECK(in_proj[i] * in_proj[i] < 6.0f / (4 * WIDTH));
	for (int i = 0; i < WIDTH * WIDTH; i++)
		CHECK(out_proj[i] * out_proj[i] <= 1.0f / WIDTH);
	for (int i = 0; i < WIDTH; i++)
		CHECK(values[5][i] == 0 && values[1][i] == 1 && values[8][i] == 0);
	for (int i = 0; i < 10; i++)
		CHECK(deferred[i] != 0 && deferred[i] * deferred[i] <= 1e-4f);
	CHECK(values[13][0] == 0.25f);
}

static const srt_wrap_policy_t *choose_policy(int i)
{
	static const char *const kinds[] = { "Block", "Embedding", NULL };
	static const srt_wrap_policy_t policies[] = {
		{ .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_KINDS, .kinds = kinds },
		{ .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_ALWAYS },
		{ .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_NONE },
		{ .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_SIZE, .min_nelem = 70 },
	};

	return &policies[i % 4];
}

/* With values of an initialisation, or set whole. */
static void check_digest(const srt_engine_options_t *options, srt_flat_t flat, int is_cut,
			 int is_eager, float values[NNAMES][MAX_NELEM])
{
	static int ncalls;
	const srt_wrap_policy_t *policy = choose_policy(ncalls++);
	const srt_unit_options_t unit = { .size = sizeof(unit), .flat = flat };
	const srt_wrap_options_t wrap = { .size = sizeof(wrap), .root = &unit, .units = &unit };
	const srt_materialize_options_t init = { .size = sizeof(init), .seed = SEED };
	/* frozen and trainable parameters in one flat one need views */
	srt_module_t *root = create_model(is_cut, flat != SRT_FLAT_PADDED);
	srt_engine_t *engine;
	uint64_t digest;

	CHECK_OK_OR_DIE(srt_engine_create(context, options, &engine));
	CHECK_OK_OR_DIE(srt_engine_wrap(engine, root, policy, &wrap));
	CHECK(FIND("head.weight") == FIND("emb.weight"));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	if (is_eager) {
		for (size_t i = 0; i < NNAMES; i++)
			CHECK_OK(srt_param_set(FIND(names[i]), SRT_PARAM_VALUE, values[i], stream));
	} else {
		CHECK_OK(srt_engine_materialize(engine, &init, stream));
		CHECK_OK(step(engine));
		check_buffers(root);
	}
	digest = digest_of(engine, values);
	CHECK_MSG(digest == 0x334c9d5696f333c2u,
		  "strategy %d, policy %d, %s, flat %d, cut %d: %016llx", (int)options->strategy,
		  (int)policy->rule, is_eager ? "eager" : "deferred", (int)flat, is_cut,
		  (unsigned long long)digest);
	check_values(values);
	srt_engine_destroy(engine);
}

/* In all forms of units, deferred and then with the values of the form before set whole. */
static void check_forms(const srt_engine_options_t *options, int is_cut)
{
	static const srt_flat_t forms[] = { SRT_FLAT_NO, SRT_FLAT_VIEWS, SRT_FLAT_PADDED };
	static float values[NNAMES][MAX_NELEM];

	for (size_t f = 0; f < SRT_ARRAY_LEN(forms); f++) {
		check_digest(options, forms[f], is_cut, 0, values);
		check_digest(options, forms[f], is_cut, 1, values);
	}
}

/* On a mesh of two dimensions, the second with n ranks. */
static void check_mesh(srt_strategy_t strategy, const char *const *dims, int n, int is_cut)
{
	const int shape[] = { srt_context_world_size(context) / n, n };
	srt_engine_options_t options = ENGINE_SGD(strategy, 0.1f);

	CHECK_OK_OR_DIE(srt_mesh_create(srt_context_world(context), 2, shape, dims, &options.mesh));
	check_forms(&options, is_cut);
	srt_mesh_destroy(options.mesh);
}

static void test_one_hash(void)
{
	static const char *const hybrid[] = { "replicate", "shard" }, *const tensor[] = { "dp",
											  "tp" };
	const srt_strategy_t strategies[] = { SRT_STRATEGY_DDP, SRT_STRATEGY_ZERO1,
					      SRT_STRATEGY_ZERO2, SRT_STRATEGY_ZERO3 };
	srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0.1f);
	const int world = srt_context_world_size(context);

	for (size_t s = 0; s < SRT_ARRAY_LEN(strategies); s++) {
		options.strategy = strategies[s];
		check_forms(&options, 0);
	}
	options.offload = (srt_offload_t){ .params = 1, .grads = 1, .state = 1 };
	check_forms(&options, 0);
	check_mesh(SRT_STRATEGY_HYBRID, hybrid, world, 0);
	check_mesh(SRT_STRATEGY_ZERO3, tensor, world, 1); /* five ranks cut four columns */
	if (world % 2 != 0 || world == 2)
		return;
	check_mesh(SRT_STRATEGY_HYBRID, hybrid, 2, 0);
	check_mesh(SRT_STRATEGY_ZERO3, tensor, 2, 1);
}

/* ---- callbacks, and records and defaults that are incomplete ----------------------------- */

static void check_reset(srt_module_t *root, const char *words)
{
	srt_engine_t *engine = modules_create_engine(context, NULL);

	CHECK_OK_OR_DIE(srt_engine_wrap(engine, root, NULL, NULL));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	CHECK_STATUS(srt_engine_materialize(engine, NULL, stream), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS(words);
	srt_engine_destroy(engine);
}

/* param_init comes before records and reset functions, with each policy; and its failures. */
static srt_status_t init_threes(srt_module_t *module, uint64_t seed, srt_stream_t *on, void *arg)
{
	const char *name;
	int *ncalls = arg;

	if (seed != SEED)
		return srt_fail(SRT_ERR_STATE, "another seed");
	for (size_t i = 0; (name = srt_module_param_name(module, i))[0]; i++)
		SRT_TRY(srt_param_init_constant(srt_module_param(module, name), 3, on));
	(*ncalls)++;
	return SRT_OK;
}

static void test_callback(void)
{
	static float values[NNAMES][MAX_NELEM];
	int ncalls = 0;
	srt_materialize_options_t init = { sizeof(init), 0, init_threes, &ncalls };

	for (int i = 0; i < 3; i++) {
		srt_engine_t *engine = modules_create_engine(context, NULL);

		CHECK_OK_OR_DIE(
			srt_engine_wrap(engine, create_model(0, 1), choose_policy(i), NULL));
		CHECK_OK_OR_DIE(srt_engine_build(engine));
		init.seed = SEED + 1;
		CHECK_STATUS(srt_engine_materialize(engine, &init, stream), SRT_ERR_STATE);
		CHECK_ERROR_HAS("param_init of module '");
		CHECK_ERROR_HAS("another seed");
		init.seed = SEED;
		CHECK_OK(srt_engine_materialize(engine, &init, stream));
		CHECK_OK(step(engine));
		digest_of(engine, values);
		for (size_t k = 0; k < NNAMES; k++)
			CHECK(values[k][0] == 3.0f);
		CHECK(ncalls > 0);
		ncalls = 0;
		srt_engine_destroy(engine);
	}
}

static void test_incomplete(void)
{
	const srt_init_t ones = { .kind = SRT_INIT_CONSTANT, .value = 1 };
	srt_module_t *root = modules_add(NULL, NULL, "Linear");

	add_param(root, "weight", 2, 3, NULL);
	add_param(root, "bias", 2, 0, NULL);
	CHECK_STATUS(srt_module_record_init(root, "gain", &ones), SRT_ERR_NOT_FOUND);
	CHECK_OK(srt_module_record_init(root, "weight", &ones));
	check_reset(root, "(Linear): nothing is recorded for parameter 'bias'");
	root = modules_add(NULL, NULL, "Linear");
	add_param(root, "weight", 2, 3, NULL);
	add_param(root, "gain", 2, 0, NULL);
	check_reset(root, "initial values of module '' (Linear): ");
	CHECK_ERROR_HAS("gain");
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	test_ignored();
	test_unset();
	test_refused();
	test_one_hash();
	test_callback();
	test_incomplete();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
