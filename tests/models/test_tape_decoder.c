/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The layers that decoders add on a tape: gates, rotary positions, RMSNorm of heads and with 1 +
 * weight, soft cap, scale: gradients and plan as in test_tape; losses and gradients against
 * digests, so that all devices have the same bits; what is refused.
 */
#include "tests/harness/bits.h"
#include "tests/models/tape_case.h"

static srt_tensor_t *rmsnorm_heads(tape_run_t *r)
{
	const srt_rmsnorm_in_t in = { .eps = 1e-5f };

	return srt_layer_rmsnorm_of(r->tape, r->x, r->param[0], &in);
}

static srt_tensor_t *rmsnorm_one_plus(tape_run_t *r)
{
	const srt_rmsnorm_in_t in = { .eps = 1e-5f, .one_plus = 1 };

	return srt_layer_rmsnorm_of(r->tape, r->x, r->param[0], &in);
}

static srt_tensor_t *scale(tape_run_t *r)
{
	return srt_layer_scale(r->tape, r->x, 0.7f);
}

static srt_tensor_t *softcap(tape_run_t *r)
{
	return srt_layer_softcap(r->tape, r->x, 0.7f);
}

static srt_tensor_t *glu_silu(tape_run_t *r)
{
	return srt_layer_glu(r->tape, r->x, tape_extra(r, SRT_F32, 7, 9), SRT_GLU_SILU);
}

static srt_tensor_t *glu_gelu(tape_run_t *r)
{
	return srt_layer_glu(r->tape, r->x, tape_extra(r, SRT_F32, 7, 9), SRT_GLU_GELU_TANH);
}

static srt_tensor_t *glu_gelu_erf(tape_run_t *r)
{
	return srt_layer_glu(r->tape, r->x, tape_extra(r, SRT_F32, 7, 9), SRT_GLU_GELU_ERF);
}

/* Both inputs are one tensor, which is used before. */
static srt_tensor_t *glu_of_one(tape_run_t *r)
{
	srt_tensor_t *y = srt_layer_tanh(r->tape, r->x);

	return srt_layer_glu(r->tape, y, srt_layer_glu(r->tape, y, y, SRT_GLU_SILU), SRT_GLU_SILU);
}

/* One of the inputs takes no gradient. */
static srt_tensor_t *glu_of_constant(tape_run_t *r)
{
	srt_tensor_t *a = tape_extra(r, SRT_F32, 7, 9), *b = tape_extra(r, SRT_F32, 7, 9);

	a->needs_grad = b->needs_grad = 0;
	a = srt_layer_glu(r->tape, a, r->x, SRT_GLU_SILU);
	return srt_layer_glu(r->tape, a, b, SRT_GLU_GELU_TANH);
}

static srt_buffer_t *tables; /* cos and sin of 5 positions, (5,2) each */
static srt_rotary_in_t rotary_in = { .npositions = 5 };

/* Positions below 5, as tape_extra() fills them. x is used twice: a gradient is added to. */
static srt_tensor_t *rotary(tape_run_t *r, int64_t head_dim, int64_t dim)
{
	srt_tensor_t *y;

	rotary_in.positions = tape_extra(r, SRT_I32, r->c->rows, 1);
	rotary_in.head_dim = head_dim;
	rotary_in.dim = dim;
	y = srt_layer_rotary(r->tape, srt_layer_tanh(r->tape, r->x), &rotary_in);
	return srt_layer_add(r->tape, y, srt_layer_rotary(r->tape, r->x, &rotary_in));
}

static srt_tensor_t *rotary_whole(tape_run_t *r)
{
	return rotary(r, 4, 4);
}

static srt_tensor_t *rotary_part(tape_run_t *r)
{
	return rotary(r, 3, 2);
}

#define ONE_INPUT .rows = 7, .n = 9
typedef struct digest_case {
	tape_case_t c;
	uint64_t digest; /* of losses and gradients */
} digest_case_t;

static const digest_case_t cases[] = {
	{ { .name = "rmsnorm of heads", ONE_INPUT, .shape = { { 3 } }, .build = rmsnorm_heads },
	  0x0ecd77cf63ff80dcu },
	{ { .name = "rmsnorm, one plus", ONE_INPUT, .shape = { { 9 } }, .build = rmsnorm_one_plus },
	  0xa984c2932de26502u },
	{ { .name = "scale", ONE_INPUT, .build = scale }, 0x193ee8128c92f707u },
	{ { .name = "softcap", ONE_INPUT, .build = softcap }, 0x2e9b0147421c43a9u },
	{ { .name = "glu", ONE_INPUT, .build = glu_silu }, 0xaa5284011038a735u },
	{ { .name = "glu, gelu", ONE_INPUT, .build = glu_gelu }, 0x255b602375d01a80u },
	{ { .name = "glu, gelu_erf", ONE_INPUT, .build = glu_gelu_erf }, 0x1c2ba7067e9e1d9fu },
	{ { .name = "glu of one tensor", ONE_INPUT, .build = glu_of_one }, 0x411ced77ae8a7f72u },
	{ { .name = "glu of a constant", ONE_INPUT, .build = glu_of_constant },
	  0x854c97d66af7ac76u },
	{ { .name = "rotary", .rows = 7, .n = 12, .build = rotary_whole }, 0x09100bcf038ddd40u },
	{ { .name = "rotary of a part", ONE_INPUT, .build = rotary_part }, 0x8b63aa9e6f323af7u },
};

static void test_digest(const digest_case_t *d)
{
	uint64_t h = DIGEST_START;
	tape_run_t r;

	random_state = 88172645463325252u;
	tape_open(&r, &d->c);
	tape_pass(&r);
	h = digest_floats(h, r.losses, (size_t)r.loss->rows);
	h = digest_floats(h, r.xgrad, (size_t)(d->c.rows * d->c.n));
	for (int k = 0; k < r.nparams; k++)
		h = digest_floats(h, r.grads[k], (size_t)srt_param_nelem(r.param[k]));
	for (int k = 0; k < r.nextra; k++)
		if (r.extra[k]->needs_grad)
			h = digest_floats(h, r.extra_grads[k], tape_nelem(r.extra[k]));
	CHECK_MSG(h == d->digest, "%s: losses and gradients have the digest 0x%016llxu", d->c.name,
		  (unsigned long long)h);
	tape_close(&r);
}

static void test_cases(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		test_digest(&cases[i]);
		tape_check_gradients(&cases[i].c);
		tape_check_plan(&cases[i].c);
		tape_check_dtypes(&cases[i].c);
	}
	CHECK_MSG(tape_digest == 0x4d6202370c196123u, "16 bits: the digest is 0x%016llxu",
		  (unsigned long long)tape_digest);
}

static void put_tables(void)
{
	float values[20];

	for (int i = 0; i < 20; i++)
		values[i] = i < 10 ? 1.0f - 0.0625f * (float)i : 0.03125f * (float)(i - 10);
	CHECK_OK(srt_buffer_copy_from_host(tables, 0, values, sizeof(values), tape_stream));
	rotary_in.cos = srt_view(tables, 0, SRT_F32);
	rotary_in.sin = srt_view(tables, 10 * sizeof(float), SRT_F32);
}

/* A norm of heads that do not divide a row, shapes that differ, heads of another length. */
static void test_mistakes(void)
{
	static const char *const why[] = { "rows of 9 values are not runs of 4",
					   "gate (7,9) and up (7,3)", "in heads of 4 values",
					   "of which 3 are rotated", "the cap is 0" };
	const tape_case_t c = { .shape = { { 4 } } };
	const srt_rmsnorm_in_t in = { .eps = 1e-5f };
	tape_run_t r = { .c = &c };

	tape_declare(&r);
	for (int k = 0; k < 5; k++) {
		CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &r.tape));
		r.x = srt_tape_input(r.tape, SRT_F32, 7, 9);
		rotary_in.positions = srt_tape_input(r.tape, SRT_I32, 7, 1);
		rotary_in.head_dim = k == 2 ? 4 : 9;
		rotary_in.dim = k == 3 ? 3 : 2;
		if (k == 0)
			CHECK(srt_layer_rmsnorm_of(r.tape, r.x, r.param[0], &in) == NULL);
		else if (k == 1)
			CHECK(srt_layer_glu(r.tape, r.x, srt_tape_input(r.tape, SRT_F32, 7, 3),
					    SRT_GLU_SILU) == NULL);
		else if (k < 4)
			CHECK(srt_layer_rotary(r.tape, r.x, &rotary_in) == NULL);
		else
			CHECK(srt_layer_softcap(r.tape, r.x, 0.0f) == NULL);
		CHECK_ERROR_HAS(why[k]);
		srt_tape_destroy(r.tape);
	}
	r.tape = NULL;
	tape_close(&r);
}

int main(void)
{
	tape_begin();
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, SRT_MEM_DEVICE, 20 * sizeof(float), "tables",
					  &tables));
	put_tables();
	test_cases();
	test_mistakes();
	srt_buffer_destroy(tables);
	return tape_end();
}
