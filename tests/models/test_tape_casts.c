/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a tape rounds: what enters and leaves units under a policy, bit for bit against casts that
 * are recorded; contributions to a gradient; dtypes that do not match.
 */
#include "tests/harness/half.h"
#include "tests/harness/options.h"
#include "tests/models/tape_case.h"

static int count_layers(const srt_tape_t *tape, const char *name)
{
	int n = 0;

	for (int i = 0; i < tape->nnodes; i++)
		n += tape->nodes[i].layer != NULL && strcmp(tape->nodes[i].layer->name, name) == 0;
	return n;
}

/* ---- one unit ---------------------------------------------------------------------------- */

static srt_tensor_t *three_uses(tape_run_t *r, srt_tensor_t *x)
{
	srt_tensor_t *y = srt_layer_linear(r->tape, x, r->param[0], r->param[1]);

	y = srt_layer_add(r->tape, y, srt_layer_gelu(r->tape, x));
	return srt_layer_layernorm(r->tape, srt_layer_add(r->tape, y, x), r->param[1], NULL, 1e-5f);
}

static srt_tensor_t *entering(tape_run_t *r)
{
	return three_uses(r, r->x);
}

static srt_dtype_t compute;

static srt_tensor_t *cast_first(tape_run_t *r)
{
	return three_uses(r, srt_layer_cast(r->tape, r->x, compute));
}

/* The output in fp32, by the policy or by a cast. */
static srt_tensor_t *leaving(tape_run_t *r)
{
	return srt_tape_unit_output(r->tape, three_uses(r, r->x));
}

static srt_tensor_t *cast_last(tape_run_t *r)
{
	return srt_layer_cast(r->tape, three_uses(r, r->x), SRT_F32);
}

/* Equal bits with two policies and ways to record, and the same casts. */
static void check_same(const srt_precision_t *p, srt_tensor_t *(*build)(tape_run_t *),
		       const srt_precision_t *other_p, srt_tensor_t *(*other_build)(tape_run_t *),
		       int ncasts)
{
	const tape_case_t c = { .name = "policy",
				.precision = p,
				.rows = 6,
				.n = 5,
				.shape = { { 5, 5 }, { 5 } },
				.build = build };
	tape_case_t other = c;
	uint64_t seed = random_state;
	tape_run_t got, want;

	other.precision = other_p;
	other.build = other_build;
	tape_open(&got, &c);
	random_state = seed; /* the same values */
	tape_open(&want, &other);
	tape_pass(&got);
	tape_pass(&want);
	CHECK_INT(count_layers(got.tape, "cast"), ncasts);
	CHECK_INT(count_layers(want.tape, "cast"), ncasts);
	CHECK_BITS(got.losses, want.losses, 6);
	CHECK_BITS(got.xgrad, want.xgrad, 30);
	CHECK_BITS(got.grads[0], want.grads[0], 25);
	CHECK_BITS(got.grads[1], want.grads[1], 5);
	tape_close(&got);
	tape_close(&want);
}

/* Masters in fp32, compute in 16 bits. x is cast once for three uses, the output for the mse. */
static void test_unit(srt_dtype_t cast, srt_dtype_t dtype)
{
	const srt_precision_t policies[] = {
		{ .size = sizeof(srt_precision_t), .param = cast, .rule = SRT_PRECISION_FSDP2 },
		{ .size = sizeof(srt_precision_t), .param = cast, .rule = SRT_PRECISION_FSDP1 }
	};
	const srt_precision_t keeps = { .size = sizeof(keeps), .param = cast, .keep_inputs = 1 };
	const srt_precision_t leaves = { .size = sizeof(leaves), .param = cast, .output = SRT_F32 };

	compute = dtype;
	for (int i = 0; i < 2; i++)
		check_same(&policies[i], entering, &keeps, cast_first, 2);
	check_same(&leaves, leaving, &policies[0], cast_last, 2);
	check_same(&policies[0], leaving, &policies[0], entering, 2);
}

/* The gradient of an fp32 input is that of the 16-bit tensor, widened; parameters' are rounded. */
static void test_gradient_values(srt_dtype_t cast, srt_dtype_t dtype)
{
	const srt_precision_t p = { .size = sizeof(p), .param = cast };
	const tape_case_t c = { .name = "gradient values",
				.precision = &p,
				.rows = 6,
				.n = 5,
				.shape = { { 5, 5 }, { 5 } },
				.build = entering };
	tape_run_t r;

	tape_open(&r, &c);
	tape_pass(&r);
	CHECK_INT(srt_tensor_dtype(r.x), SRT_F32);
	for (int i = 0; i < 30; i++)
		CHECK(r.xgrad[i] == half_round(dtype, r.xgrad[i]));
	for (int i = 0; i < 25; i++)
		CHECK(r.grads[0][i] == half_round(dtype, r.grads[0][i]));
	tape_close(&r);
}

/* ---- units in units ------------------------------------------------------------------------ */

/* A root that computes in bf16 with a unit in f16; the parameters are 1 by 1. */
typedef struct nested {
	srt_engine_t *engine;
	srt_unit_t *root, *child;
	srt_param_t *root_weight, *child_weight;
	srt_tape_t *tape;
	srt_tensor_t *x, *loss;
	srt_buffer_t *arena;
} nested_t;

static void declare_nested(nested_t *t, srt_precision_rule_t rule)
{
	const srt_precision_t outer = { .size = sizeof(outer), .param = SRT_BF16, .rule = rule };
	const srt_precision_t inner = { .size = sizeof(inner), .param = SRT_F16, .rule = rule };
	const srt_engine_options_t options = { ENGINE_BASE, .strategy = SRT_STRATEGY_DDP,
					       .precision = &outer,
					       .optim = OPTIM(.kind = SRT_OPTIM_NONE) };
	const srt_unit_options_t unit = { .size = sizeof(unit), .precision = &inner };
	const int64_t one[] = { 1, 1 };

	*t = (nested_t){ 0 };
	CHECK_OK_OR_DIE(srt_engine_create(tape_context, &options, &t->engine));
	CHECK_OK_OR_DIE(srt_unit_create(t->engine, NULL, "root", NULL, &t->root));
	CHECK_OK_OR_DIE(srt_param_create(t->root, "a", SRT_F32, 2, one, NULL, &t->root_weight));
	CHECK_OK_OR_DIE(srt_unit_create(t->engine, t->root, "child", &unit, &t->child));
	CHECK_OK_OR_DIE(srt_param_create(t->child, "b", SRT_F32, 2, one, NULL, &t->child_weight));
	CHECK_OK_OR_DIE(srt_engine_build(t->engine));
	CHECK_OK(srt_param_init_constant(t->root_weight, 1.0f, tape_stream));
	CHECK_OK(srt_param_init_constant(t->child_weight, 1.0f, tape_stream));
	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &t->tape));
	t->x = srt_tape_input(t->tape, SRT_F32, 1, 1);
	srt_tensor_require_grad(t->x);
}

static void bind_nested(nested_t *t)
{
	srt_tape_keep(t->tape, t->loss);
	CHECK_OK(srt_tape_finish(t->tape));
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, SRT_MEM_DEVICE, srt_tape_nbytes(t->tape),
					  "arena", &t->arena));
	CHECK_OK_OR_DIE(srt_tape_bind(t->tape, t->arena));
}

static void close_nested(nested_t *t)
{
	CHECK_OK(srt_stream_sync(tape_stream));
	srt_tape_destroy(t->tape);
	srt_buffer_destroy(t->arena);
	srt_engine_destroy(t->engine);
}

/* x crosses two boundaries at its first use: it is rounded to bf16 for the root, then to f16. What
 * is made in the root enters the unit too, what leaves it stays as it is. */
static void test_nested(void)
{
	const float x = 1.0f + 0x1p-7f + 0x1p-9f + 0x1p-20f; /* bf16: 1 + 2^-7 */
	const float huge = 100000.0f;                        /* bf16: 99840, f16: infinite */
	srt_tensor_t *y, *z;
	nested_t t;
	float loss;

	declare_nested(&t, SRT_PRECISION_FSDP2);
	srt_tape_unit_begin(t.tape, t.root);
	srt_tape_unit_begin(t.tape, t.child);
	y = srt_layer_linear(t.tape, t.x, t.child_weight, NULL);
	srt_tape_unit_end(t.tape);
	CHECK_INT(srt_tensor_dtype(y), SRT_F16);
	CHECK_INT(count_layers(t.tape, "cast"), 2);
	z = srt_layer_linear(t.tape, t.x, t.root_weight, NULL); /* the root's cast again */
	CHECK_INT(srt_tensor_dtype(z), SRT_BF16);
	srt_tape_unit_begin(t.tape, t.child);
	z = srt_layer_linear(t.tape, z, t.child_weight, NULL); /* made in the root: cast */
	CHECK_INT(srt_tensor_dtype(z), SRT_F16);
	srt_layer_linear(t.tape, t.x, t.child_weight, NULL); /* another pass: cast again */
	srt_tape_unit_end(t.tape);
	CHECK_INT(count_layers(t.tape, "cast"), 4);
	t.loss = srt_layer_sum(t.tape, srt_layer_add(t.tape, y, z));
	srt_tape_unit_end(t.tape);
	bind_nested(&t);
	tape_put(srt_tensor_view(t.x), &x, 1);
	CHECK_OK(srt_tape_forward(t.tape, tape_stream));
	tape_get(srt_tensor_view(t.loss), &loss, 1);
	CHECK(loss == 2.0f * half_round(SRT_BF16, x));
	tape_put(srt_tensor_view(t.x), &huge, 1);
	CHECK_OK(srt_tape_forward(t.tape, tape_stream));
	tape_get(srt_tensor_view(t.loss), &loss, 1);
	CHECK(isinf(loss));
	close_nested(&t);
}

/* FSDP1 casts inputs of the root alone: the unit gets bf16 and refuses it where it runs. */
static void test_nested_fsdp1(void)
{
	nested_t t;

	declare_nested(&t, SRT_PRECISION_FSDP1);
	srt_tape_unit_begin(t.tape, t.root);
	srt_tape_unit_begin(t.tape, t.child);
	t.loss = srt_layer_linear(t.tape, t.x, t.child_weight, NULL);
	srt_tape_unit_end(t.tape);
	CHECK_INT(srt_tensor_dtype(t.loss), SRT_BF16);
	t.loss = srt_layer_sum(t.tape, t.loss);
	srt_tape_unit_end(t.tape);
	bind_nested(&t);
	CHECK(srt_tape_forward(t.tape, tape_stream) == SRT_ERR_INVALID_ARGUMENT);
	CHECK_MSG(strstr(srt_error_last(),
			 "linear: parameter b is f16, but the layer computes in bf16") != NULL,
		  "%s", srt_error_last());
	close_nested(&t);
}

/* ---- contributions to a gradient ----------------------------------------------------------- */

/* Three uses of x with gradients of 2048, 1 and 1: added one by one in f16, by the last use first,
 * 2048 + 1 is 2048, 1 + 1 + 2048 is 2050. */
static void test_contributions(void)
{
	const tape_case_t c = { .dtype = SRT_F16, .shape = { { 1, 1 }, { 1, 1 } } };
	const float values[] = { 2048.0f, 1.0f }, x = 1.0f;

	for (int large_last = 0; large_last <= 1; large_last++) {
		tape_run_t r = { .c = &c };
		srt_tensor_t *y[3];
		float dx;

		tape_declare(&r);
		for (int k = 0; k < 2; k++)
			CHECK_OK(srt_param_init_constant(r.param[k], values[k], tape_stream));
		CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &r.tape));
		r.x = srt_tape_input(r.tape, SRT_F16, 1, 1);
		srt_tensor_require_grad(r.x);
		srt_tape_unit_begin(r.tape, r.root);
		for (int use = 0; use < 3; use++)
			y[use] = srt_layer_linear(r.tape, r.x,
						  r.param[use == (large_last ? 2 : 0) ? 0 : 1],
						  NULL);
		for (int use = 0; use < 3; use++)
			srt_layer_sum(r.tape, y[use]);
		srt_tape_unit_end(r.tape);
		CHECK_OK_OR_DIE(srt_tape_finish(r.tape));
		CHECK_OK_OR_DIE(srt_buffer_create(tape_device, SRT_MEM_DEVICE,
						  srt_tape_nbytes(r.tape), "arena", &r.arena));
		CHECK_OK_OR_DIE(srt_tape_bind(r.tape, r.arena));
		tape_put(srt_tensor_view(r.x), &x, 1);
		CHECK_OK(srt_tape_forward(r.tape, tape_stream));
		CHECK_OK(srt_tape_backward(r.tape, 1.0f, (srt_view_t){ 0 }, tape_stream));
		tape_get(srt_tensor_grad(r.x), &dx, 1);
		CHECK_MSG(dx == (large_last ? 2048.0f : 2050.0f), "the gradient is %g", (double)dx);
		tape_close(&r);
	}
}

/* ---- mistakes ------------------------------------------------------------------------------ */

static void check_refused(const tape_run_t *r, const srt_tensor_t *y, const char *why)
{
	CHECK(y == NULL);
	CHECK_ERROR_HAS(why);
	srt_tape_destroy(r->tape);
}

static void begin_mistake(tape_run_t *r, srt_dtype_t dtype)
{
	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &r->tape));
	r->x = srt_tape_input(r->tape, dtype, 2, 3);
}

static void test_mistakes(void)
{
	const tape_case_t c = { .shape = { { 3, 3 } } };
	tape_run_t r = { .c = &c };

	tape_declare(&r);
	begin_mistake(&r, SRT_F16);
	check_refused(&r, srt_layer_add(r.tape, r.x, srt_tape_input(r.tape, SRT_F32, 2, 3)),
		      "add: the inputs are f16 and f32; srt_layer_cast()");
	begin_mistake(&r, SRT_I32);
	check_refused(&r, srt_layer_gelu(r.tape, r.x), "gelu: an input is i32, must be f32");
	begin_mistake(&r, SRT_I32);
	check_refused(&r, srt_layer_cast(r.tape, r.x, SRT_F32), "cast from i32 to f32");
	begin_mistake(&r, SRT_F32);
	check_refused(&r, srt_layer_cast(r.tape, r.x, SRT_F64), "cast from f32 to f64");
	begin_mistake(&r, SRT_I32);
	check_refused(&r, srt_layer_sum(r.tape, r.x), "sum: an input is i32");
	begin_mistake(&r, SRT_BF16);
	check_refused(&r, srt_layer_linear_rows(r.tape, r.x, r.param[0], NULL, 2, 2),
		      "linear: rows 2 to 3 of parameter a, which has 3 rows");
	begin_mistake(&r, SRT_BF16);
	check_refused(&r, srt_layer_transpose(r.tape, r.x, 4, 1), "not a matrix of 4 rows");
	begin_mistake(&r, SRT_BF16);
	srt_tape_loss_dtype(r.tape, r.x, SRT_F16);
	check_refused(&r, NULL, "a loss of dtype f16");
	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &r.tape));
	check_refused(&r, srt_tape_input(r.tape, SRT_F64, 2, 3), "the dtype f32, f16, bf16");
	r.tape = NULL;
	tape_close(&r);
}

int main(void)
{
	tape_begin();
	test_unit(SRT_F16, SRT_F16);
	test_unit(SRT_BF16, SRT_BF16);
	test_gradient_values(SRT_F16, SRT_F16);
	test_gradient_values(SRT_BF16, SRT_BF16);
	test_nested();
	test_nested_fsdp1();
	test_contributions();
	test_mistakes();
	return tape_end();
}
