/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Module trees: what is ignored, parameters without values, and initial values, which have one hash
 * at every number of ranks, with every strategy and policy. Run by test_modules.sh.
 */
#include "tests/engine/module_case.h"

static srt_context_t *context;
static srt_stream_t *stream;

/* ---- what is ignored ----------------------------------------------------------------------- */

static void test_ignored(void)
{
	srt_engine_t *engine = modules_create_engine(context, NULL), *own;
	srt_wrap_options_t options = { .root_name = NULL };
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
	CHECK_OK(srt_engine_wrap(engine, root, &(srt_wrap_policy_t){ .rule = SRT_WRAP_ALWAYS },
				 &options));
	modules_check_units(engine, "root() emb(emb.weight) blocks() blocks.1() "
				    "blocks.1.fc(blocks.1.fc.weight) head()");
	modules_check_units(own, "ignored(blocks.0.attn.weight blocks.0.attn.proj.weight "
				 "blocks.0.fc.weight head.weight)");
	CHECK(srt_module_unit(block) == NULL && srt_module_buffer(block, "buffer") != NULL);
	CHECK_OK(srt_engine_build(engine));
	CHECK_STATUS(srt_engine_materialize(engine, NULL, stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("reset of module 'head' (Linear)"); /* its weight is in an engine ... */
	CHECK_OK(srt_engine_build(own));                    /* ... that is not built */
	CHECK_OK(srt_module_reset(srt_module_find(root, "head"), 1, stream));
	CHECK_INT(engine->nunset, 0);
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
	param = srt_engine_find(engine, "blocks.0.attn.weight");
	CHECK(srt_module_is_unset(srt_module_find(root, "blocks.0.attn")));
	CHECK_OK(srt_param_set(param, values, stream));
	CHECK(!srt_module_is_unset(srt_module_find(root, "blocks.0.attn")));
	CHECK(!srt_module_is_unset(root));
	CHECK_OK(srt_param_init_normal(srt_engine_find(engine, "head.weight"), 1, 0, 1, stream));
	CHECK(srt_param_local(srt_engine_find(engine, "emb.weight"), SRT_PARAM_VALUE).buffer);
	CHECK_OK(srt_param_init_constant(srt_engine_find(engine, "blocks.0.fc.weight"), 1, stream));
	CHECK_OK(srt_param_init_constant(srt_engine_find(engine, "blocks.1.fc.weight"), 1, stream));
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

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	test_ignored();
	test_unset();
	test_refused();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
