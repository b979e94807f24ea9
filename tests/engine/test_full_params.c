/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Full parameters on demand: every rank has all values and gradients of a unit, with each strategy,
 * dtype, offload and mesh; what it writes reaches the shards, and a step goes on from it; memory is
 * freed; what is refused, and by which sentence. Run by test_full_params.sh.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/engine/declare/declare.h"
#include "tests/engine/engine_case.h"
#include "tests/harness/half.h"

enum { H = 5, MOST = 64 }; /* rows of most parameters; elements of any */

static srt_context_t *context;
static int rank, world;

typedef struct setup {
	srt_strategy_t strategy;
	srt_dtype_t stored;
	srt_dtype_t compute;
	int offload;
	int first, second; /* sizes of the mesh, 0: none */
	const char *dims[2];
} setup_t;

static const setup_t setups[] = {
	{ SRT_STRATEGY_DDP, SRT_F32, SRT_DTYPE_NONE, 0, 0, 0, { 0 } },
	{ SRT_STRATEGY_ZERO1, SRT_F32, SRT_BF16, 0, 0, 0, { 0 } },
	{ SRT_STRATEGY_ZERO2, SRT_F16, SRT_DTYPE_NONE, 0, 0, 0, { 0 } },
	{ SRT_STRATEGY_ZERO3, SRT_F32, SRT_DTYPE_NONE, 0, 0, 0, { 0 } },
	{ SRT_STRATEGY_ZERO3, SRT_F32, SRT_BF16, 0, 0, 0, { 0 } },
	{ SRT_STRATEGY_ZERO3, SRT_BF16, SRT_DTYPE_NONE, 1, 0, 0, { 0 } },
	{ SRT_STRATEGY_DDP, SRT_F32, SRT_BF16, 1, 0, 0, { 0 } },
	{ SRT_STRATEGY_ZERO3, SRT_F32, SRT_BF16, 0, 1, 2, { "dp", "tp" } },
	{ SRT_STRATEGY_ZERO1, SRT_F32, SRT_DTYPE_NONE, 0, 2, 2, { "dp", "tp" } },
	{ SRT_STRATEGY_HYBRID, SRT_F32, SRT_DTYPE_NONE, 1, 2, 2, { "replicate", "shard" } },
};

static const char *describe(const setup_t *s)
{
	static char text[96];

	snprintf(text, sizeof(text), "%s in %s, compute %d, offload %d, mesh %d x %d",
		 srt_strategy_name(s->strategy), srt_dtype_name(s->stored), (int)s->compute,
		 s->offload, s->first, s->second);
	return text;
}

static void start(engine_case_t *c, const setup_t *s, srt_mesh_t **mesh)
{
	const srt_precision_t precision = { .size = sizeof(precision), .param = s->compute };
	srt_engine_options_t options = case_adamw(s->strategy);
	case_types_t types = { .stored = s->stored };

	*mesh = NULL;
	if (s->first > 0) {
		const int size[] = { s->first, s->second };

		CHECK_OK_OR_DIE(
			srt_mesh_create(srt_context_world(context), 2, size, s->dims, mesh));
		options.mesh = *mesh;
		types.cut_over = strcmp(s->dims[1], "tp") == 0 ? "tp" : NULL;
	}
	options.precision = &precision;
	if (s->stored == SRT_F16)
		options.optim = &case_adamw_eps; /* 1e-8 is 0 there */
	options.offload.params = options.offload.grads = options.offload.state = s->offload;
	case_declare_as(c, context, &options, H, &types);
	c->unused = 1;
	if (types.cut_over != NULL) /* partitions of a tensor have one gradient */
		c->rank = rank / s->second;
	case_build(c);
}

static void stop(engine_case_t *c, srt_mesh_t *mesh)
{
	case_destroy(c);
	srt_mesh_destroy(mesh);
}

static size_t nbytes_of(const srt_param_t *param)
{
	return (size_t)srt_param_nelem(param) * (srt_dtype_bits(param->dtype) / 8);
}

/* Copies a full tensor to `bytes`, or writes it. */
static void access_full(engine_case_t *c, srt_param_t *param, srt_param_what_t what, bool on_host,
			bool write, void *bytes)
{
	const size_t nbytes = nbytes_of(param);
	srt_stream_t *s = c->stream;
	srt_view_t view;

	CHECK_OK_OR_DIE(srt_param_full(param, what, &view));
	CHECK(view.dtype == param->dtype);
	if (nbytes == 0)
		return;
	if (on_host) {
		void *host = srt_view_host(view);

		CHECK_OR_DIE(host != NULL);
		memcpy(write ? host : bytes, write ? bytes : host, nbytes);
	} else if (write) {
		CHECK_OK(srt_buffer_copy_from_host(view.buffer, view.offset, bytes, nbytes, s));
	} else {
		CHECK_OK(srt_buffer_copy_to_host(bytes, view.buffer, view.offset, nbytes, s));
	}
}

/* New values of a parameter: others for each key. */
static void make_values(const srt_param_t *param, uint32_t key, void *bytes)
{
	for (int64_t i = 0; i < srt_param_nelem(param); i++)
		half_put(param->dtype, bytes, (size_t)i,
			 case_random(key, (uint32_t)param->index, (uint32_t)i, 3));
}

static void check_values(engine_case_t *c, size_t i, const void *want, const char *what)
{
	char got[MOST * 4] = { 0 };

	CHECK_OK(srt_param_get(c->param[i], SRT_PARAM_VALUE, got, c->stream));
	CHECK_MSG(memcmp(got, want, nbytes_of(c->param[i])) == 0, "'%s': other values %s",
		  srt_param_name(c->param[i]), what);
}

/* ---- values ---------------------------------------------------------------------------- */

static size_t expected_nbytes(const engine_case_t *c)
{
	size_t nbytes = 0;

	for (size_t i = 0; i < c->nparams; i++)
		nbytes += (nbytes_of(c->param[i]) + 255) / 256 * 256;
	return nbytes;
}

static void test_values(const setup_t *s, bool on_host)
{
	srt_full_params_options_t options = SRT_FULL_PARAMS_OPTIONS_INIT, look;
	char before[MAX_CASE_PARAMS][MOST * 4], bytes[MOST * 4];
	engine_case_t c, set;
	srt_mesh_t *mesh, *other;
	size_t allocated;
	uint64_t made;
	float *a, *b;

	options.offload_to_cpu = on_host;
	look = options;
	look.writeback = 0;
	start(&c, s, &mesh);
	for (size_t i = 0; i < c.nparams; i++)
		CHECK_OK(srt_param_get(c.param[i], SRT_PARAM_VALUE, before[i], c.stream));
	CHECK_OK(case_step(&c, 0, 1));
	for (size_t i = 0; i < c.nparams; i++)
		CHECK_OK(srt_param_get(c.param[i], SRT_PARAM_VALUE, before[i], c.stream));
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_unit_full_params_begin(c.root, &look, c.stream));
	CHECK_INT(case_allocated(context) - allocated, expected_nbytes(&c));
	for (size_t i = 0; i < c.nparams; i++) {
		access_full(&c, c.param[i], SRT_PARAM_VALUE, on_host, false, bytes);
		CHECK_MSG(memcmp(bytes, before[i], nbytes_of(c.param[i])) == 0,
			  "'%s': other values with %s", srt_param_name(c.param[i]), describe(s));
		make_values(c.param[i], 1, bytes); /* is dropped */
		access_full(&c, c.param[i], SRT_PARAM_VALUE, on_host, true, bytes);
	}
	CHECK_OK(srt_unit_full_params_end(c.root, c.stream));
	CHECK_INT(case_allocated(context), allocated);
	for (size_t i = 0; i < c.nparams; i++)
		check_values(&c, i, before[i], "without writeback");

	CHECK_OK_OR_DIE(srt_unit_full_params_begin(c.root, &options, c.stream));
	for (size_t i = 0; i < c.nparams; i++) {
		make_values(c.param[i], 2, bytes);
		access_full(&c, c.param[i], SRT_PARAM_VALUE, on_host, true, bytes);
		check_values(&c, i, before[i], "before the end"); /* of the shards */
	}
	CHECK_OK(srt_unit_full_params_end(c.root, c.stream));
	CHECK_INT(case_allocated(context), allocated);

	/* A twin that was set goes the same way. */
	start(&set, s, &other);
	CHECK_OK(case_step(&set, 0, 1));
	for (size_t i = 0; i < c.nparams; i++) {
		make_values(c.param[i], 2, bytes);
		check_values(&c, i, bytes, "with writeback");
		CHECK_OK(srt_param_set(set.param[i], SRT_PARAM_VALUE, bytes, set.stream));
	}
	made = srt_device_allocations(srt_context_device(context));
	CHECK_OK(case_step(&c, 1, 1));
	CHECK_INT(srt_device_allocations(srt_context_device(context)), made);
	CHECK_OK(case_step(&set, 1, 1));
	for (size_t i = 0; i < c.nparams; i++) {
		CHECK_OK(srt_param_get(set.param[i], SRT_PARAM_VALUE, bytes, set.stream));
		check_values(&c, i, bytes, "a step later");
	}
	a = case_collect(&c, SRT_PARAM_STATE1);
	b = case_collect(&set, SRT_PARAM_STATE1);
	CHECK_MSG(memcmp(a, b, case_nelem(&c) * (srt_dtype_bits(s->stored) / 8)) == 0,
		  "other states a step later, %s", describe(s));
	free(a);
	free(b);
	stop(&set, other);
	stop(&c, mesh);
}

/* ---- gradients ------------------------------------------------------------------------- */

static void check_no_grad(srt_param_t *param, const char *words)
{
	srt_view_t view;

	CHECK_STATUS(srt_param_full(param, SRT_PARAM_GRAD, &view), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS(words);
}

/* Gradients that are written back are stepped; after the step they can be read. */
static void test_grads(const setup_t *s, bool on_host)
{
	srt_full_params_options_t options = SRT_FULL_PARAMS_OPTIONS_INIT;
	char grad[MOST * 4], bytes[MOST * 4];
	engine_case_t c, set;
	srt_mesh_t *mesh, *other;
	srt_step_info_t state = SRT_STEP_INFO_INIT, want = SRT_STEP_INFO_INIT;
	size_t allocated;

	options.with_grads = 1;
	options.offload_to_cpu = on_host;
	start(&c, s, &mesh);
	start(&set, s, &other);
	CHECK_STATUS(srt_unit_full_params_begin(c.root, &options, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("with gradients, but there are no reduced ones");
	CHECK_OK(case_passes(&c, 0, 1));
	CHECK_STATUS(srt_unit_full_params_begin(c.root, &options, c.stream), SRT_ERR_STATE);
	CHECK_ERROR_HAS("with gradients, but there are no reduced ones");
	CHECK_OK(srt_engine_finish_backward(c.engine, c.stream));
	CHECK_OK(case_passes(&set, 0, 1));
	allocated = case_allocated(context);
	CHECK_OK_OR_DIE(srt_unit_full_params_begin(c.root, &options, c.stream));
	CHECK_OK(srt_engine_finish_backward(set.engine, set.stream));
	for (size_t i = 0; i < c.nparams; i++) {
		const int64_t nelem = srt_param_nelem(c.param[i]);
		srt_stream_t *home;
		srt_view_t local;

		if (c.param[i]->frozen) {
			check_no_grad(c.param[i], "it is frozen");
			continue;
		}
		if (srt_param_get(c.param[i], SRT_PARAM_GRAD, grad, c.stream) != SRT_OK) {
			check_no_grad(c.param[i], "no rank had one in the last step");
			continue;
		}
		access_full(&c, c.param[i], SRT_PARAM_GRAD, on_host, false, bytes);
		CHECK_MSG(memcmp(bytes, grad, nbytes_of(c.param[i])) == 0,
			  "'%s': another gradient with %s", srt_param_name(c.param[i]),
			  describe(s));
		for (int64_t k = 0; k < nelem; k++)
			half_put(c.param[i]->dtype, bytes, (size_t)k,
				 2.0f * half_get(c.param[i]->dtype, bytes, (size_t)k));
		access_full(&c, c.param[i], SRT_PARAM_GRAD, on_host, true, bytes);
		/* the twin doubles its shards */
		local = test_local(set.param[i], SRT_PARAM_GRAD);
		home = set.engine->home.stream != NULL ? set.engine->home.stream : set.stream;
		CHECK_OK(srt_op_scale(local, local, 2.0f, set.param[i]->shard.nelem, home));
	}
	CHECK_OK(srt_unit_full_params_end(c.root, c.stream));
	CHECK_INT(case_allocated(context), allocated);
	CHECK_OK(srt_engine_step(c.engine, c.stream));
	CHECK_OK(srt_engine_step(set.engine, set.stream));
	for (size_t i = 0; i < c.nparams; i++) {
		CHECK_OK(srt_param_get(set.param[i], SRT_PARAM_VALUE, bytes, set.stream));
		check_values(&c, i, bytes, "stepped by the written gradients");
	}
	CHECK_OK(srt_engine_get_step_info(c.engine, &state, c.stream));
	CHECK_OK(srt_engine_get_step_info(set.engine, &want, set.stream));
	CHECK_MSG(state.grad_norm == want.grad_norm && state.grad_norm > 0.0f, "norm %g, not %g",
		  (double)state.grad_norm, (double)want.grad_norm);
	CHECK_OK_OR_DIE(srt_unit_full_params_begin(c.block[0], &options, c.stream));
	CHECK_OK(srt_param_get(c.param[2], SRT_PARAM_GRAD, grad, c.stream));
	access_full(&c, c.param[2], SRT_PARAM_GRAD, on_host, false, bytes);
	CHECK(memcmp(bytes, grad, nbytes_of(c.param[2])) == 0);
	CHECK_OK(srt_unit_full_params_end(c.block[0], c.stream));
	stop(&set, other);
	stop(&c, mesh);
}

/* ---- units, ranks and what is refused -------------------------------------------------- */

#define REFUSED(call, words)                                                                       \
	do {                                                                                       \
		CHECK_STATUS(call, SRT_ERR_STATE);                                                 \
		CHECK_ERROR_HAS(words);                                                            \
	} while (0)

/* Nested units, in any order; a unit alone. */
static void test_nested(void)
{
	const srt_full_params_options_t alone = { .size = sizeof(alone), .writeback = 1 };
	char bytes[MOST * 4];
	srt_param_t *inner, *block, *other;
	engine_case_t c;
	srt_mesh_t *mesh;
	srt_view_t view;

	start(&c, &setups[3], &mesh);
	inner = srt_engine_param_find(c.engine, "b1.inner.weight");
	block = srt_engine_param_find(c.engine, "b1.weight");
	other = srt_engine_param_find(c.engine, "b2.weight");
	CHECK_OK_OR_DIE(srt_unit_full_params_begin(c.block[1], NULL, c.stream)); /* and inner */
	CHECK_OK(srt_param_full(inner, SRT_PARAM_VALUE, &view));
	REFUSED(srt_param_full(other, SRT_PARAM_VALUE, &view),
		"the full tensor of parameter 'b2.weight' is not there");
	REFUSED(srt_param_full(inner, SRT_PARAM_GRAD, &view), "with option with_grads");
	REFUSED(srt_unit_full_params_begin(c.inner, NULL, c.stream), "by that of unit 'b1'");
	REFUSED(srt_unit_full_params_begin(c.root, NULL, c.stream), "'b1' is summoned already");
	CHECK_OK_OR_DIE(srt_unit_full_params_begin(c.root, &alone, c.stream));
	CHECK_OK(srt_unit_full_params_begin(c.block[2], &alone, c.stream));
	REFUSED(srt_unit_full_params_end(c.inner, c.stream), "it is summoned by that of 'b1'");
	REFUSED(srt_unit_full_params_end(c.block[0], c.stream), "without srt_unit_full");
	make_values(block, 4, bytes);
	access_full(&c, block, SRT_PARAM_VALUE, false, true, bytes);
	make_values(inner, 4, bytes);
	access_full(&c, inner, SRT_PARAM_VALUE, false, true, bytes);
	make_values(other, 4, bytes);
	access_full(&c, other, SRT_PARAM_VALUE, false, true, bytes);
	CHECK_OK(srt_unit_full_params_end(c.block[1], c.stream));
	REFUSED(srt_param_full(inner, SRT_PARAM_VALUE, &view), "is not there");
	CHECK_OK(srt_unit_full_params_end(c.root, c.stream));
	CHECK_OK(srt_unit_full_params_end(c.block[2], c.stream));
	for (size_t i = 0; i < c.nparams; i++) {
		if (c.param[i] != block && c.param[i] != inner && c.param[i] != other)
			continue;
		make_values(c.param[i], 4, bytes);
		check_values(&c, i, bytes, "of nested units");
	}
	stop(&c, mesh);
}

static void test_rank0(void)
{
	srt_full_params_options_t options = {
		.size = sizeof(options), .recurse = 1, .rank0_only = 1, .writeback = 1
	};
	char bytes[MOST * 4], want[MOST * 4];
	const size_t allocated = case_allocated(context);
	engine_case_t c;
	srt_mesh_t *mesh;
	srt_view_t view;
	size_t built;

	start(&c, &setups[3], &mesh);
	CHECK_STATUS(srt_unit_full_params_begin(c.root, &options, c.stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("writeback with rank0_only of unit 'root'");
	options.writeback = 0;
	CHECK_OK(srt_param_get(c.param[0], SRT_PARAM_VALUE, want, c.stream));
	built = case_allocated(context);
	CHECK_OK_OR_DIE(srt_unit_full_params_begin(c.root, &options, c.stream));
	CHECK_INT(case_allocated(context) - built, rank == 0 ? expected_nbytes(&c) : 0);
	if (rank == 0) {
		access_full(&c, c.param[0], SRT_PARAM_VALUE, false, false, bytes);
		CHECK(memcmp(bytes, want, nbytes_of(c.param[0])) == 0);
	} else {
		CHECK_STATUS(srt_param_full(c.param[0], SRT_PARAM_VALUE, &view), SRT_ERR_NOT_FOUND);
		CHECK_ERROR_HAS("'root.weight' is on rank 0 alone");
	}
	CHECK_OK(srt_unit_full_params_end(c.root, c.stream));
	CHECK_OK(case_step(&c, 0, 1));
	stop(&c, mesh);
	CHECK_INT(case_allocated(context), allocated);
}

/* The calls that a summoned unit refuses, and those states that refuse to summon. */
static void test_refused(void)
{
	static const float zeros[MOST];
	srt_stream_t *other;
	engine_case_t c;
	srt_mesh_t *mesh;
	srt_view_t view;

	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "other", &other));
	case_declare(&c, context, &(srt_engine_options_t)ENGINE_SGD(SRT_STRATEGY_DDP, 0.1f), H);
	REFUSED(srt_unit_full_params_begin(c.root, NULL, c.stream), "before srt_engine_build()");
	case_destroy(&c);
	start(&c, &setups[3], &mesh);
	CHECK_OK(srt_unit_forward_begin(c.root, c.stream));
	REFUSED(srt_unit_full_params_begin(c.block[0], NULL, c.stream), "inside a pass of root");
	CHECK_OK(srt_unit_forward_end(c.root, c.stream));
	CHECK_OK(srt_unit_backward_begin(c.root, c.stream));
	REFUSED(srt_unit_full_params_begin(c.block[0], NULL, c.stream), "inside a pass of root");
	CHECK_OK(srt_unit_backward_end(c.root, c.stream));
	CHECK_OK(srt_engine_write_begin(c.engine, c.stream));
	REFUSED(srt_unit_full_params_begin(c.block[0], NULL, c.stream), "write_end() first");
	CHECK_OK(srt_engine_write_end(c.engine, c.stream));

	CHECK_OK(srt_unit_full_params_begin(c.block[0], NULL, c.stream));
	REFUSED(srt_unit_forward_begin(c.root, c.stream),
		"srt_unit_forward_begin while the full parameters of unit 'b0' are summoned");
	REFUSED(srt_engine_finish_backward(c.engine, c.stream), "_params_end() of unit");
	REFUSED(srt_engine_step(c.engine, c.stream), "srt_engine_step while the full parameters");
	REFUSED(srt_engine_write_begin(c.engine, c.stream), "srt_engine_write_begin while");
	REFUSED(srt_param_set(c.param[0], SRT_PARAM_VALUE, zeros, c.stream), "srt_param_set while");
	REFUSED(srt_param_init_constant(c.param[0], 1.0f, c.stream), "srt_param_init_constant");
	REFUSED(srt_engine_save(c.engine, "unused", NULL, 0, c.stream), "srt_engine_save while");
	REFUSED(srt_engine_load(c.engine, "unused", c.stream), "srt_engine_load while");
	CHECK_STATUS(srt_param_full(c.param[2], SRT_PARAM_STATE0, &view), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_unit_full_params_end(c.block[0], other), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("with another stream");
	CHECK_OK(srt_unit_full_params_end(c.block[0], c.stream));
	CHECK_OK(srt_engine_step(c.engine, c.stream));

	/* between the reduction and the step */
	CHECK_OK(case_passes(&c, 1, 1));
	CHECK_OK(srt_engine_finish_backward(c.engine, c.stream));
	CHECK_OK(srt_unit_full_params_begin(c.root, NULL, c.stream));
	REFUSED(srt_engine_clip(c.engine, 2, 1.0f, c.stream), "srt_engine_clip while");
	REFUSED(srt_engine_step(c.engine, c.stream), "srt_engine_step while");
	CHECK_OK(srt_unit_full_params_end(c.root, c.stream));
	CHECK_OK(srt_engine_clip(c.engine, 2, 1.0f, c.stream));
	CHECK_OK(srt_engine_step(c.engine, c.stream));

	/* dropped by a reset, and by the engine's end */
	CHECK_OK(srt_unit_full_params_begin(c.root, NULL, c.stream));
	CHECK_OK(srt_engine_reset(c.engine));
	REFUSED(srt_unit_full_params_end(c.root, c.stream), "without srt_unit_full_params_begin()");
	CHECK_OK(case_step(&c, 2, 1));
	CHECK_OK(srt_unit_full_params_begin(c.root, NULL, c.stream));
	stop(&c, mesh);
	srt_stream_destroy(other);
}

/* Ranks that write different values: found with SHARDRT_CHECK=1, else each keeps its own shard. */
static void test_differing(bool on_host)
{
	const srt_full_params_options_t options = {
		.size = sizeof(options), .recurse = 1, .writeback = 1, .offload_to_cpu = on_host
	};
	char bytes[MOST * 4], before[MOST * 4];
	engine_case_t c;
	srt_mesh_t *mesh;
	srt_param_t *param;

	start(&c, &setups[3], &mesh);
	param = srt_engine_param_find(c.engine, "b0.weight");
	CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, before, c.stream));
	CHECK_OK_OR_DIE(srt_unit_full_params_begin(c.block[0], &options, c.stream));
	make_values(param, 100 + (uint32_t)rank, bytes);
	access_full(&c, param, SRT_PARAM_VALUE, on_host, true, bytes);
	if (c.engine->checks.on && world > 1) {
		CHECK_STATUS(srt_unit_full_params_end(c.block[0], c.stream), SRT_ERR_MISMATCH);
		CHECK_ERROR_HAS("rank 0 and rank 1 wrote different values to the full tensor of "
				"parameter 'b0.weight'");
		for (size_t i = 0; i < c.nparams; i++) {
			if (c.param[i] == param)
				check_values(&c, i, before, "after a refused end");
		}
	} else {
		char got[MOST * 4];

		CHECK_OK(srt_unit_full_params_end(c.block[0], c.stream));
		CHECK_OK(srt_param_get(param, SRT_PARAM_VALUE, got, c.stream));
		for (int r = 0; r < world; r++) {
			srt_part_t part;

			CHECK_OK(srt_param_part(param, r, &part));
			make_values(param, 100 + (uint32_t)r, bytes);
			CHECK_MSG(memcmp(got + part.first * 4, bytes + part.first * 4,
					 (size_t)part.nelem * 4) == 0,
				  "not the shard that rank %d wrote", r);
		}
	}
	CHECK_OK(case_step(&c, 0, 1));
	stop(&c, mesh);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	rank = srt_context_rank(context);
	world = srt_context_world_size(context);
	for (size_t i = 0; i < SRT_ARRAY_LEN(setups); i++) {
		if (setups[i].first > 0 && setups[i].first * setups[i].second != world)
			continue;
		for (int on_host = 0; on_host < 2; on_host++) {
			test_values(&setups[i], on_host);
			test_grads(&setups[i], on_host);
		}
	}
	test_nested();
	test_rank0();
	test_refused();
	for (int on_host = 0; on_host < 2; on_host++)
		test_differing(on_host);
	srt_context_destroy(context);
	return check_done();
}
