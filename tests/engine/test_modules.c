/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Module trees: names and order, wrap policies, what several units use, and errors.
 * test_modules_init.c has initial values. Run by test_modules.sh.
 */
#include "tests/engine/module_case.h"

static srt_context_t *context;
static srt_stream_t *stream;

/* ---- the tree ------------------------------------------------------------------------------ */

static void test_building(void)
{
	const int64_t shape[] = { 3, -1 }, large[] = { INT64_MAX, 2 };
	srt_module_t *root = modules_add(NULL, NULL, "Model"), *a = modules_add(root, "a", "Block"),
		     *other, *none;
	srt_engine_t *engine;

	CHECK_STATUS(srt_module_create(NULL, "a", "Model", &none), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_create(root, "a", "Block", &none), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("already has a child, parameter or buffer 'a'");
	CHECK_STATUS(srt_module_create(root, "a.b", "Block", &none), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_create(root, "", "Block", &none), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_create(root, "b", "", &none), SRT_ERR_INVALID_ARGUMENT);
	CHECK_OK(srt_module_add_param(a, "w", SRT_F32, 1, shape, NULL));
	CHECK_STATUS(srt_module_add_param(a, "w", SRT_F32, 1, shape, NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_add_param(a, "s", SRT_F32, 0, shape, NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is a scalar");
	CHECK_STATUS(srt_module_add_param(a, "s", SRT_F32, 2, shape, NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_add_param(a, "s", SRT_F32, 2, large, NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("too large");
	CHECK_STATUS(srt_module_add_param(a, "s", SRT_I32, 1, shape, NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_add_param(a, "s", SRT_F32, SRT_MAX_DIMS + 1, shape, NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_add_buffer(a, "w", SRT_F32, 0, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_add_buffer(a, "b", (srt_dtype_t)99, 0, NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_add_buffer(a, "b", SRT_DTYPE_NONE, 0, NULL),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("none");
	CHECK_OK(srt_module_add_buffer(a, "b", SRT_I64, 0, NULL));
	CHECK_STATUS(srt_module_tie(root, "w", a, "b"), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_module_tie(root, "a", a, "w"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_share(a, "up", root), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("below itself");
	other = modules_add(NULL, NULL, "Other");
	CHECK_STATUS(srt_module_share(a, "other", other), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("different trees");
	CHECK_STATUS(srt_module_tie(other, "w", a, "w"), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_wrap(root, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_ignore(root, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_module_ignore(a, "x"), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(srt_module_reset(a, 1, stream), SRT_ERR_STATE);
	CHECK(srt_module_param(a, "w") == NULL && srt_module_unit(a) == NULL);
	engine = modules_create_engine(context, NULL);
	CHECK_STATUS(srt_engine_wrap(engine, a, NULL, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("not the root of its tree");
	CHECK_OK(srt_engine_wrap(engine, root, NULL, NULL));
	srt_module_destroy(root); /* the engine's: not freed */
	CHECK(srt_engine_module(engine) == root && srt_module_find(root, "a") == a);
	CHECK_STATUS(srt_engine_wrap(engine, other, NULL, NULL), SRT_ERR_STATE);
	CHECK_STATUS(srt_module_create(a, "late", "Late", &none), SRT_ERR_STATE);
	CHECK_STATUS(srt_module_add_param(a, "late", SRT_F32, 1, shape, NULL), SRT_ERR_STATE);
	CHECK_STATUS(srt_module_wrap(a, NULL), SRT_ERR_STATE);
	CHECK_STATUS(srt_engine_materialize(engine, NULL, stream), SRT_ERR_STATE);
	srt_engine_destroy(engine);
	engine = modules_create_engine(context, NULL);
	CHECK(srt_engine_module(engine) == NULL);
	CHECK_OK(srt_engine_wrap(engine, other, NULL, NULL));
	srt_engine_destroy(engine);
	srt_module_destroy(NULL);
}

/* a and b share m, which comes first in b when it is created, and in a in the order of the tree. */
static void test_shared(bool wrapped)
{
	srt_module_t *root = modules_add(NULL, NULL, "Model"),
		     *a = modules_add_layer(root, "a", "Block", 2);
	srt_module_t *b = modules_add_layer(root, "b", "Block", 3),
		     *m = modules_add_layer(b, "m", "Linear", 5);
	static const char *const blocks[] = { "Block", NULL };
	const srt_wrap_policy_t policy = { .size = sizeof(policy),
					   .rule = SRT_WRAP_KINDS,
					   .kinds = blocks };
	srt_engine_t *engine = modules_create_engine(context, NULL);

	CHECK_OK(srt_module_share(a, "n", m));
	CHECK_OK(srt_module_tie(b, "own", a, "weight"));
	CHECK_OK(srt_module_tie(m, "second", m, "weight"));
	if (wrapped)
		CHECK_OK(srt_module_wrap(m, NULL));
	CHECK_OK(srt_engine_wrap(engine, root, &policy, NULL));
	/* what both blocks use belongs to the root, which contains them */
	modules_check_units(engine, wrapped ? "root(a.weight) a() a.n(a.n.weight) b(b.weight)" :
					      "root(a.weight a.n.weight) a() b(b.weight)");
	CHECK_STR(srt_module_path(m), "a.n");
	CHECK(srt_module_find(root, "b.m") == m && srt_module_find(root, "a.n.") == NULL);
	CHECK(srt_module_find(root, "a.x") == NULL && srt_module_find(b, "") == b);
	CHECK(srt_module_child_at(root, 1) == b && srt_module_child_at(root, 2) == NULL);
	CHECK(srt_engine_param_find(engine, "b.m.weight") == srt_module_param(m, "weight"));
	CHECK(srt_engine_param_find(engine, "b.own") == srt_module_param(a, "weight"));
	CHECK(srt_engine_param_find(engine, "b.m.second") == srt_module_param(m, "second"));
	CHECK(srt_module_is_alias(b, "own") && srt_module_is_alias(m, "second"));
	CHECK(!srt_module_is_alias(m, "weight") && !srt_module_is_alias(a, "weight"));
	CHECK(srt_module_unit(m) == (wrapped ? engine->units[2] : engine->units[0]));
	CHECK(srt_module_is_unit(m) == wrapped && srt_module_unit(a) == engine->units[1]);
	if (wrapped)
		CHECK(engine->units[2]->parent == engine->units[0]);
	CHECK_OK(srt_engine_build(engine));
	CHECK_OK(srt_engine_materialize(engine, NULL, stream));
	CHECK_INT(engine->declared.nunset, 0);
	srt_engine_destroy(engine);
}

/* ---- policies ------------------------------------------------------------------------------ */

static int wrap_fc(const srt_module_t *module, srt_unit_options_t *options, void *arg)
{
	const char *path = srt_module_path(module);
	int *ncalls = arg;

	(*ncalls)++;
	options->reshard = SRT_RESHARD_NEVER;
	return strcmp(path, "blocks.0.fc") == 0 || strcmp(path, "head") == 0;
}

static void test_policies(void)
{
	static const char *const blocks[] = { "Block", "MultiheadAttention", NULL };
	static const char *const linear[] = { "Linear", NULL }, *const none[] = { NULL };
	static int ncalls;
	const srt_wrap_policy_t size = { .size = sizeof(size),
					 .rule = SRT_WRAP_SIZE,
					 .min_nelem = 5 };
	const srt_wrap_policy_t lists[] = {
		{ .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_KINDS, .kinds = linear },
		size,
		{ .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_KINDS, .kinds = blocks },
	};
	const struct {
		srt_wrap_policy_t policy;
		const char *units;
	} cases[] = {
		{ { .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_NONE },
		  "root(emb.weight blocks.0.attn.weight blocks.0.attn.proj.weight "
		  "blocks.0.fc.weight blocks.1.fc.weight head.weight)" },
		{ { .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_ALWAYS },
		  "root() emb(emb.weight) blocks() blocks.0() blocks.0.attn(blocks.0.attn.weight) "
		  "blocks.0.attn.proj(blocks.0.attn.proj.weight) blocks.0.fc(blocks.0.fc.weight) "
		  "blocks.1() blocks.1.fc(blocks.1.fc.weight) head(head.weight)" },
		{ { .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_KINDS, .kinds = blocks },
		  "root(emb.weight head.weight) blocks.0(blocks.0.fc.weight) "
		  "blocks.0.attn(blocks.0.attn.weight blocks.0.attn.proj.weight) "
		  "blocks.1(blocks.1.fc.weight)" },
		/* fc of 5 becomes a unit, its block has nothing left; attention is a leaf, so that
		 * block 0 has 12 left; the list is excluded */
		{ size, "root(head.weight) emb(emb.weight) blocks.0(blocks.0.attn.weight "
			"blocks.0.attn.proj.weight) blocks.0.fc(blocks.0.fc.weight) "
			"blocks.1.fc(blocks.1.fc.weight)" },
		{ { .size = sizeof(srt_wrap_policy_t),
		    .rule = SRT_WRAP_SIZE,
		    .min_nelem = 8,
		    .leaf_kinds = none },
		  "root(emb.weight blocks.0.fc.weight blocks.1.fc.weight head.weight) "
		  "blocks.0.attn(blocks.0.attn.weight blocks.0.attn.proj.weight)" },
		{ { .size = sizeof(srt_wrap_policy_t),
		    .rule = SRT_WRAP_SIZE,
		    .min_nelem = 20,
		    .leaf_kinds = linear,
		    .excluded_kinds = blocks },
		  "root(emb.weight head.weight) blocks(blocks.0.attn.weight "
		  "blocks.0.attn.proj.weight blocks.0.fc.weight blocks.1.fc.weight)" },
		{ { .size = sizeof(srt_wrap_policy_t),
		    .rule = SRT_WRAP_SIZE,
		    .min_nelem = 100000000 },
		  "root(emb.weight blocks.0.attn.weight blocks.0.attn.proj.weight "
		  "blocks.0.fc.weight blocks.1.fc.weight head.weight)" },
		{ { .size = sizeof(srt_wrap_policy_t),
		    .rule = SRT_WRAP_CALLBACK,
		    .callback = wrap_fc,
		    .arg = &ncalls },
		  "root(emb.weight blocks.0.attn.weight blocks.0.attn.proj.weight "
		  "blocks.1.fc.weight) blocks.0.fc(blocks.0.fc.weight) head(head.weight)" },
		{ { .size = sizeof(srt_wrap_policy_t),
		    .rule = SRT_WRAP_AND,
		    .policies = lists,
		    .npolicies = 2 },
		  "root(emb.weight blocks.0.attn.weight blocks.0.attn.proj.weight head.weight) "
		  "blocks.0.fc(blocks.0.fc.weight) blocks.1.fc(blocks.1.fc.weight)" },
		{ { .size = sizeof(srt_wrap_policy_t),
		    .rule = SRT_WRAP_OR,
		    .policies = lists,
		    .npolicies = 3 },
		  "root() emb(emb.weight) blocks.0() "
		  "blocks.0.attn(blocks.0.attn.weight) "
		  "blocks.0.attn.proj(blocks.0.attn.proj.weight) blocks.0.fc(blocks.0.fc.weight) "
		  "blocks.1() blocks.1.fc(blocks.1.fc.weight) head(head.weight)" },
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(cases); i++) {
		srt_engine_t *engine = modules_create_engine(context, NULL);

		CHECK_OK(srt_engine_wrap(engine, modules_create_blocks(), &cases[i].policy, NULL));
		modules_check_units(engine, cases[i].units);
		if (cases[i].policy.rule == SRT_WRAP_CALLBACK) {
			CHECK_INT(ncalls, 9); /* not of the root */
			CHECK_INT(engine->units[1]->reshard, SRT_RESHARD_NEVER);
			CHECK_INT(engine->units[0]->reshard, 0);
		}
		srt_engine_destroy(engine);
	}
}

/* A mark has its options with each policy, and where the policy does not look. */
static void test_marks(void)
{
	const srt_precision_t half = { .size = sizeof(half), .param = SRT_F16 };
	const srt_unit_options_t marked = { .size = sizeof(marked),
					    .precision = &half,
					    .reshard = SRT_RESHARD_NEVER };
	const srt_unit_options_t others = { .size = sizeof(others), .reshard = SRT_RESHARD_ALWAYS };
	const srt_wrap_options_t options = { .size = sizeof(options),
					     .root_name = "model",
					     .units = &others };
	const srt_wrap_policy_t policy = { .size = sizeof(policy),
					   .rule = SRT_WRAP_SIZE,
					   .min_nelem = 6 };
	srt_engine_t *engine = modules_create_engine(context, NULL);
	srt_module_t *root = modules_create_blocks();

	CHECK_OK(srt_module_wrap(srt_module_find(root, "blocks.0.attn.proj"), &marked));
	CHECK_OK(srt_module_wrap(srt_module_find(root, "head"), NULL));
	CHECK_OK(srt_engine_wrap(engine, root, &policy, &options));
	modules_check_units(
		engine, "model(blocks.1.fc.weight) emb(emb.weight) blocks.0(blocks.0.attn.weight "
			"blocks.0.fc.weight) blocks.0.attn.proj(blocks.0.attn.proj.weight) "
			"head(head.weight)");
	CHECK_INT(engine->units[3]->reshard, SRT_RESHARD_NEVER);
	CHECK(engine->units[3]->types.compute == SRT_F16);
	CHECK(engine->units[3]->parent == engine->units[2]);
	CHECK_INT(engine->units[4]->reshard, SRT_RESHARD_ALWAYS);
	CHECK_INT(engine->units[0]->reshard, 0);
	srt_engine_destroy(engine);
}

/* ---- several modules as one unit ------------------------------------------------------------ */

/* emb and head share a weight; block 1 has a unit that runs between them. */
static void test_together(void)
{
	const srt_unit_options_t marked = { .size = sizeof(marked), .reshard = SRT_RESHARD_NEVER };
	srt_engine_t *engine = modules_create_engine(context, NULL);
	srt_module_t *root = modules_create_blocks(), *emb = srt_module_find(root, "emb");
	srt_module_t *head = srt_module_find(root, "head");
	srt_module_t *ends[] = { head, emb };
	srt_module_t *pair[] = { srt_module_find(root, "blocks.0.attn.proj"),
				 srt_module_find(root, "blocks.1.fc") };
	srt_unit_t *unit;

	CHECK_OK(srt_module_tie(head, "tied", emb, "weight"));
	CHECK_OK(srt_module_wrap_together(ends, 2, &marked));
	CHECK_OK(srt_module_wrap_together(pair, 2, NULL));
	CHECK_STATUS(srt_module_wrap(emb, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("'emb' (Embedding) is in one unit with other modules already");
	CHECK_OK(srt_module_wrap(srt_module_find(root, "blocks.0"), NULL));
	CHECK_OK(srt_engine_wrap(engine, root, NULL, NULL));
	modules_check_units(engine, "root() emb(emb.weight head.weight) "
				    "blocks.0(blocks.0.attn.weight blocks.0.fc.weight) "
				    "blocks.0.attn.proj(blocks.0.attn.proj.weight "
				    "blocks.1.fc.weight)");
	unit = srt_module_unit(head);
	CHECK(unit == engine->units[1] && unit == srt_module_unit(emb));
	CHECK(srt_module_is_unit(head) && srt_module_is_unit(emb));
	CHECK_INT(unit->reshard, SRT_RESHARD_NEVER);
	CHECK(srt_engine_param_find(engine, "head.tied") ==
	      srt_engine_param_find(engine, "emb.weight"));
	/* a unit in block 0 and in the list is below what contains both */
	CHECK(engine->units[3]->parent == engine->units[0]);
	CHECK_OK(srt_engine_build(engine));
	CHECK_OK(srt_engine_materialize(engine, NULL, stream));
	CHECK_INT(engine->declared.nunset, 0);
	CHECK_OK(srt_unit_forward_begin(engine->units[0], stream));
	for (int i = 0; i < 2; i++) { /* for emb, then for head */
		CHECK_OK(srt_unit_forward_begin(unit, stream));
		CHECK_OK(srt_unit_forward_end(unit, stream));
		CHECK_OK(srt_unit_forward_begin(engine->units[2 + i], stream));
		CHECK_OK(srt_unit_forward_end(engine->units[2 + i], stream));
	}
	CHECK_OK(srt_unit_forward_end(engine->units[0], stream));
	CHECK_OK(srt_stream_sync(stream));
	srt_engine_destroy(engine);
}

static void check_together(srt_module_t *const *modules, size_t n, const char *words)
{
	CHECK_STATUS(srt_module_wrap_together(modules, n, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(words);
}

static void test_together_errors(void)
{
	srt_module_t *root = modules_create_blocks(), *other = modules_create_blocks();
	srt_module_t *fc = srt_module_find(root, "blocks.0.fc");
	srt_module_t *trees[] = { fc, srt_module_find(other, "head") }, *with_root[] = { fc, root };
	srt_module_t *nested[] = { srt_module_find(root, "blocks.0.attn.proj"),
				   srt_module_find(root, "blocks.0") };
	srt_module_t *crossed[][2] = {
		{ srt_module_find(other, "blocks.0"), srt_module_find(other, "blocks.1.fc") },
		{ srt_module_find(other, "blocks.1"), srt_module_find(other, "blocks.0.fc") },
	};
	srt_engine_t *engine = modules_create_engine(context, NULL);

	check_together(trees, 0, "nmodules is 0");
	check_together(trees, 2, "'blocks.0.fc' (Linear) and 'head' (Linear) are in different");
	check_together(with_root, 2, "module is the root (Model)");
	CHECK_OK(srt_module_wrap(fc, NULL)); /* the failures have marked nothing */
	CHECK_OK(srt_module_wrap_together(nested, 2, NULL));
	CHECK_STATUS(srt_engine_wrap(engine, root, NULL, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("that are the unit 'blocks.0', one is below another");
	for (int i = 0; i < 2; i++)
		CHECK_OK(srt_module_wrap_together(crossed[i], 2, NULL));
	CHECK_STATUS(srt_engine_wrap(engine, other, NULL, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("or in a unit that is");
	srt_module_destroy(root);
	srt_module_destroy(other);
	srt_engine_destroy(engine);
}

static void check_policy(const srt_wrap_policy_t *policy, const char *words)
{
	srt_engine_t *engine = modules_create_engine(context, NULL);
	srt_module_t *root = modules_create_blocks();

	CHECK_STATUS(srt_engine_wrap(engine, root, policy, NULL), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(words);
	CHECK(srt_engine_module(engine) == NULL);
	srt_module_destroy(root);
	srt_engine_destroy(engine);
}

static void test_policy_errors(void)
{
	static const char *const kinds[] = { "Linear", NULL };
	const srt_wrap_policy_t bad = { .size = sizeof(bad), .rule = SRT_WRAP_KINDS };
	const srt_wrap_policy_t policies[] = {
		bad,
		{ .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_CALLBACK },
		{ .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_AND },
		{ .size = sizeof(srt_wrap_policy_t),
		  .rule = SRT_WRAP_OR,
		  .policies = &bad,
		  .npolicies = 1 },
		{ .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_ALWAYS, .kinds = kinds },
		{ .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_SIZE, .min_nelem = -1 },
		{ .size = sizeof(srt_wrap_policy_t),
		  .rule = SRT_WRAP_KINDS,
		  .kinds = kinds,
		  .min_nelem = 1 },
		{ .size = sizeof(srt_wrap_policy_t), .rule = SRT_WRAP_SIZE, .arg = context },
		{ .size = sizeof(srt_wrap_policy_t), .rule = (srt_wrap_rule_t)99 },
	};
	static const char *const words[] = {
		"kinds is missing",    "callback is missing",
		"policies is missing", "kinds is missing",
		"kinds is only for",   "min_nelem must be at least 0",
		"only for SRT_WRAP_",  "arg is only for SRT_WRAP_CALLBACK",
		"99 is not a rule",
	};

	for (size_t i = 0; i < SRT_ARRAY_LEN(policies); i++)
		check_policy(&policies[i], words[i]);
}

static void test_print(void)
{
	const int64_t shape[] = { 2, 3 };
	const srt_param_options_t frozen = { PARAM_BASE, .frozen = 1 };
	srt_module_t *root = modules_add(NULL, NULL, "Model"),
		     *a = modules_add(root, "a", "Linear");
	srt_engine_t *engine = modules_create_engine(context, NULL);
	char text[1024];
	FILE *out = fmemopen(text, sizeof(text), "w");

	CHECK_OK(srt_module_add_param(a, "weight", SRT_F32, 2, shape, &frozen));
	CHECK_OK(srt_module_add_buffer(a, "count", SRT_I64, 0, NULL));
	CHECK_OK(srt_module_tie(modules_add(root, "b", "Linear"), "weight", a, "weight"));
	CHECK_OK(srt_module_wrap(a, NULL));
	CHECK_OK(srt_module_share(root, "c", a));
	CHECK_OK(srt_engine_wrap(engine, root, NULL, NULL));
	CHECK_OR_DIE(out != NULL);
	CHECK_OK(srt_module_print(root, out));
	fclose(out);
	CHECK_STR(text, "Model, unit root\n"
			"  a (Linear), unit a\n"
			"    weight f32 (2, 3), frozen, of unit root\n"
			"    buffer count i64 ()\n"
			"  b (Linear)\n"
			"    weight, tied to a.weight\n"
			"  c (Linear), the same as a\n");
	srt_engine_destroy(engine);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	test_building();
	test_shared(false);
	test_shared(true);
	test_policies();
	test_marks();
	test_together();
	test_together_errors();
	test_policy_errors();
	test_print();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
