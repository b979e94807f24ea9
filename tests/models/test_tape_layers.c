/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Activations, RMSNorm, BatchNorm, dropout and embeddings with a padding row on a tape: gradients
 * and plan as in test_tape; losses and gradients against digests, so that all devices have the
 * same bits; what evaluation does; masks that do not depend on how a batch is spread.
 */
#include "tests/harness/bits.h"
#include "tests/harness/half.h"
#include "tests/models/tape_case.h"

/* ---- embedding with a padding row ---------------------------------------------------------- */

static int64_t padding;

static srt_tensor_t *embedding(tape_run_t *r)
{
	return srt_layer_embedding_padded(r->tape, r->x, r->param[0], r->param[1], 5, padding);
}

/* Values and gradients are as without, but for the row's own: zero. */
static void test_padding(void)
{
	const tape_case_t c = { .name = "embedding with padding",
				.rows = 20,
				.n = 1,
				.ids = 4,
				.shape = { { 9, 3 }, { 7, 3 } },
				.build = embedding };
	uint64_t seed = random_state;
	tape_run_t plain, padded;

	padding = -1;
	tape_open(&plain, &c);
	tape_pass(&plain);
	for (padding = 0; padding < 9; padding += 2) {
		float *row = plain.grads[0] + 3 * padding, old[3] = { row[0], row[1], row[2] };
		int is_used = 0;

		random_state = seed; /* the same values */
		tape_open(&padded, &c);
		tape_pass(&padded);
		for (int i = 0; i < 20; i++)
			is_used |= ((const int32_t *)(void *)plain.xvalues)[i] == padding;
		CHECK_MSG(is_used == (padding < 4) && is_used == (old[0] != 0.0f),
			  "row %lld: its use is not as the case wants it", (long long)padding);
		row[0] = row[1] = row[2] = 0.0f;
		CHECK_BITS(padded.losses, plain.losses, 20);
		CHECK_BITS(padded.grads[0], plain.grads[0], 9 * 3);
		CHECK_BITS(padded.grads[1], plain.grads[1], 7 * 3);
		memcpy(row, old, sizeof(old));
		tape_close(&padded);
	}
	tape_close(&plain);
	padding = 2;
	tape_check_plan(&c);
}

static void test_padding_outside(void)
{
	const tape_case_t c = { .shape = { { 9, 3 } } };
	tape_run_t r = { .c = &c };

	tape_declare(&r);
	for (padding = -2; padding <= 9; padding += 11) {
		CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_TRAINING, &r.tape));
		r.x = srt_tape_input(r.tape, SRT_I32, 10, 1);
		CHECK(embedding(&r) == NULL);
		CHECK_ERROR_HAS("the table has 9 rows");
		srt_tape_destroy(r.tape);
	}
	r.tape = NULL;
	tape_close(&r);
}

/* ---- layers whose gradients can be had by differences -------------------------------------- */

static srt_buffer_t *stats;      /* running mean and variance of 9 columns */
static srt_buffer_t *half_stats; /* the same in 16 bits, at 0 and 32 bytes */
static srt_batchnorm_in_t norm = { .eps = 1e-5f, .momentum = 0.25f };
static srt_dropout_at_t at = { .seed = 42, .step = 3 };
static float rate = 0.3f;
static const char *name = "drop";

static srt_tensor_t *relu(tape_run_t *r)
{
	return srt_layer_relu(r->tape, r->x);
}

static srt_tensor_t *gelu(tape_run_t *r)
{
	return srt_layer_gelu(r->tape, r->x);
}

static srt_tensor_t *gelu_erf(tape_run_t *r)
{
	return srt_layer_gelu_erf(r->tape, r->x);
}

static srt_tensor_t *silu(tape_run_t *r)
{
	return srt_layer_silu(r->tape, r->x);
}

static srt_tensor_t *tanh_of(tape_run_t *r)
{
	return srt_layer_tanh(r->tape, r->x);
}

static srt_tensor_t *sigmoid(tape_run_t *r)
{
	return srt_layer_sigmoid(r->tape, r->x);
}

static srt_tensor_t *swiglu(tape_run_t *r)
{
	srt_tensor_t *gate = srt_layer_linear(r->tape, r->x, r->param[0], NULL);

	return srt_layer_mul(r->tape, srt_layer_silu(r->tape, gate),
			     srt_layer_linear(r->tape, r->x, r->param[1], NULL));
}

/* Both inputs of a product are one tensor. */
static srt_tensor_t *cube(tape_run_t *r)
{
	return srt_layer_mul(r->tape, r->x, srt_layer_mul(r->tape, r->x, r->x));
}

static srt_tensor_t *rmsnorm(tape_run_t *r)
{
	return srt_layer_rmsnorm(r->tape, r->x, r->param[0], 1e-5f);
}

static srt_tensor_t *batchnorm(tape_run_t *r)
{
	return srt_layer_batchnorm(r->tape, r->x, r->param[0], r->param[1], &norm);
}

static srt_tensor_t *dropout(tape_run_t *r)
{
	return srt_layer_dropout(r->tape, r->x, name, rate, &at);
}

/* All at once, values and parameters used several times. */
static srt_tensor_t *several(tape_run_t *r)
{
	srt_tensor_t *y = srt_layer_rmsnorm(r->tape, r->x, r->param[0], 1e-5f);
	srt_tensor_t *z = srt_layer_silu(r->tape, srt_layer_batchnorm(r->tape, y, r->param[0],
								      r->param[1], &norm));

	z = srt_layer_add(r->tape, z, srt_layer_dropout(r->tape, z, name, rate, &at));
	z = srt_layer_add(r->tape, srt_layer_tanh(r->tape, z), srt_layer_sigmoid(r->tape, y));
	z = srt_layer_rmsnorm(r->tape, z, r->param[1], 1e-5f);
	return srt_layer_add(r->tape, srt_layer_gelu_erf(r->tape, z), y);
}

#define ONE_INPUT .rows = 7, .n = 9
typedef struct digest_case {
	tape_case_t c;
	int use_running;
	uint64_t digest; /* of losses and gradients */
} digest_case_t;

static const digest_case_t cases[] = {
	{ { .name = "relu", ONE_INPUT, .corner = 1, .build = relu }, 0, 0x64f6388fc69cdf1cu },
	{ { .name = "gelu", ONE_INPUT, .build = gelu }, 0, 0xc54f09bf66c0492au },
	{ { .name = "gelu_erf", ONE_INPUT, .build = gelu_erf }, 0, 0xacb7c826db3d10cau },
	{ { .name = "silu", ONE_INPUT, .build = silu }, 0, 0x7df0676266684097u },
	{ { .name = "tanh", ONE_INPUT, .build = tanh_of }, 0, 0xa3cfa9de1d7c8bd3u },
	{ { .name = "sigmoid", ONE_INPUT, .build = sigmoid }, 0, 0x2215914bcd18c6c4u },
	{ { .name = "swiglu", ONE_INPUT, .shape = { { 5, 9 }, { 5, 9 } }, .build = swiglu },
	  0,
	  0xd4848c1f694fce5cu },
	{ { .name = "cube", ONE_INPUT, .build = cube }, 0, 0x2f32c61ea30c493bu },
	{ { .name = "rmsnorm", ONE_INPUT, .shape = { { 9 } }, .build = rmsnorm },
	  0,
	  0xfb7d5c266429b05fu },
	{ { .name = "batchnorm", ONE_INPUT, .shape = { { 9 }, { 9 } }, .build = batchnorm },
	  0,
	  0x50cdcfd083d81ee4u },
	{ { .name = "batchnorm without bias", ONE_INPUT, .shape = { { 9 } }, .build = batchnorm },
	  0,
	  0x7b8e758d611f77a1u },
	{ { .name = "batchnorm, running",
	    ONE_INPUT,
	    .shape = { { 9 }, { 9 } },
	    .build = batchnorm },
	  1,
	  0x02d77cb671262214u },
	{ { .name = "dropout", ONE_INPUT, .build = dropout }, 0, 0xefc33dd31eec0e53u },
	{ { .name = "several", ONE_INPUT, .shape = { { 9 }, { 9 } }, .build = several },
	  0,
	  0x48f63f3e9328f148u },
};

static void put_stats(void)
{
	float values[18];

	for (int i = 0; i < 9; i++) {
		values[i] = 0.125f * (float)(i - 4);
		values[9 + i] = 0.25f + 0.125f * (float)i;
	}
	CHECK_OK(srt_buffer_copy_from_host(stats, 0, values, sizeof(values), tape_stream));
}

static void test_digest(const digest_case_t *d)
{
	uint64_t h = DIGEST_START;
	tape_run_t r;

	random_state = 88172645463325252u;
	put_stats();
	tape_open(&r, &d->c);
	tape_pass(&r);
	h = digest_floats(h, r.losses, (size_t)r.loss->rows);
	h = digest_floats(h, r.xgrad, (size_t)(d->c.rows * d->c.n));
	for (int k = 0; k < r.nparams; k++)
		h = digest_floats(h, r.grads[k], (size_t)srt_param_nelem(r.param[k]));
	CHECK_MSG(h == d->digest, "%s: losses and gradients have the digest 0x%016llxu", d->c.name,
		  (unsigned long long)h);
	tape_close(&r);
}

static void test_cases(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		norm.use_running = cases[i].use_running;
		test_digest(&cases[i]);
		tape_check_gradients(&cases[i].c);
		tape_check_plan(&cases[i].c);
		tape_check_dtypes(&cases[i].c);
	}
	norm.use_running = 0;
	CHECK_MSG(tape_digest == 0x6879b20ae0bdaadeu, "16 bits: the digest is 0x%016llxu",
		  (unsigned long long)tape_digest);
}

/* ---- evaluation ---------------------------------------------------------------------------- */

/* The case's layers on a forward tape, at the run's values. */
static void evaluate(tape_run_t *r, float *y)
{
	srt_tape_t *training = r->tape;
	srt_tensor_t *x = r->x, *out;
	srt_buffer_t *arena;

	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_FORWARD, &r->tape));
	r->x = srt_tape_input(r->tape, SRT_F32, r->c->rows, r->c->n);
	srt_tape_unit_begin(r->tape, r->root);
	out = r->c->build(r);
	srt_tape_keep(r->tape, out);
	srt_tape_unit_end(r->tape);
	CHECK_OK_OR_DIE(srt_tape_finish(r->tape));
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, SRT_MEM_DEVICE, srt_tape_nbytes(r->tape),
					  "evaluation", &arena));
	CHECK_OK_OR_DIE(srt_tape_bind(r->tape, arena));
	tape_put(srt_tensor_view(r->x), r->xvalues, r->c->rows * r->c->n);
	CHECK_OK(srt_tape_forward(r->tape, tape_stream));
	tape_get(srt_tensor_view(out), y, r->c->rows * r->c->n);
	CHECK_OK(srt_stream_sync(tape_stream));
	srt_tape_destroy(r->tape);
	srt_buffer_destroy(arena);
	r->tape = training;
	r->x = x;
}

/* Training moves the running statistics as torch does; evaluation takes them and moves nothing. */
static void test_batchnorm_evaluation(void)
{
	const tape_case_t c = {
		.name = "batchnorm", ONE_INPUT, .shape = { { 9 }, { 9 } }, .build = batchnorm
	};
	float before[18], running[18], after[18], y[63], want[63];
	tape_run_t r;

	put_stats();
	CHECK_OK(srt_buffer_copy_to_host(before, stats, 0, sizeof(before), tape_stream));
	tape_open(&r, &c);
	tape_pass(&r);
	CHECK_OK(srt_buffer_copy_to_host(running, stats, 0, sizeof(running), tape_stream));
	evaluate(&r, y);
	CHECK_OK(srt_buffer_copy_to_host(after, stats, 0, sizeof(after), tape_stream));
	CHECK_OK(srt_stream_sync(tape_stream));
	CHECK_BITS(after, running, 18);
	for (int j = 0; j < 9; j++) {
		double mean = 0.0, squares = 0.0;

		for (int i = 0; i < 7; i++)
			mean += (double)r.xvalues[9 * i + j] / 7.0;
		for (int i = 0; i < 7; i++)
			squares += pow((double)r.xvalues[9 * i + j] - mean, 2.0);
		CHECK(fabs((double)running[j] - (0.25 * mean + 0.75 * (double)before[j])) < 1e-6);
		CHECK(fabs((double)running[9 + j] -
			   (0.25 * squares / 6.0 + 0.75 * (double)before[9 + j])) < 1e-6);
	}
	for (int i = 0; i < 63; i++) {
		float rstd = 1.0f / sqrtf(running[9 + i % 9] + 1e-5f);

		want[i] = fmaf((r.xvalues[i] - running[i % 9]) * rstd, r.values[0][i % 9],
			       r.values[1][i % 9]);
	}
	CHECK_BITS(y, want, 63);
	tape_close(&r);
}

/* Running statistics in 16 bits: those in fp32 of the same values, rounded after each pass; with
 * them training has the same results, and evaluation those of the widened statistics. */
static void test_batchnorm_half_stats(srt_dtype_t dtype)
{
	const tape_case_t c = {
		.name = "batchnorm", ONE_INPUT, .shape = { { 9 }, { 9 } }, .build = batchnorm
	};
	const srt_batchnorm_in_t in_f32 = norm;
	const srt_view_t halves[] = { srt_view(half_stats, 0, dtype),
				      srt_view(half_stats, 32, dtype) };
	float want[18], got[18], y_want[63], y[63], losses[7];
	tape_run_t r;

	put_stats(); /* exact in 16 bits */
	tape_open(&r, &c);
	tape_pass(&r);
	memcpy(losses, r.losses, sizeof(losses));
	tape_get(norm.running_mean, want, 18);
	for (int i = 0; i < 18; i++)
		want[i] = half_round(dtype, want[i]);
	tape_put(norm.running_mean, want, 18);
	evaluate(&r, y_want);
	put_stats();
	for (int k = 0; k < 2; k++)
		CHECK_OK(srt_op_cast(halves[k], k ? in_f32.running_var : in_f32.running_mean, 9,
				     tape_stream));
	norm.running_mean = halves[0];
	norm.running_var = halves[1];
	srt_tape_destroy(r.tape);
	srt_buffer_destroy(r.arena);
	tape_record(&r);
	tape_pass(&r);
	CHECK_BITS(r.losses, losses, 7);
	for (int k = 0; k < 2; k++)
		tape_get(halves[k], got + 9 * k, 9);
	CHECK_BITS(got, want, 18);
	evaluate(&r, y);
	CHECK_BITS(y, y_want, 63);
	tape_close(&r);
	norm = in_f32;
}

static void test_batchnorm_mistakes(void)
{
	const tape_case_t c = { .shape = { { 9 }, { 9 } } };
	const srt_batchnorm_in_t none = { .eps = 1e-5f };
	const char *const why[] = { "running mean", "one row" };
	tape_run_t r = { .c = &c };

	tape_declare(&r);
	for (int k = 0; k < 2; k++) {
		CHECK_OK_OR_DIE(srt_tape_create(tape_device,
						k ? SRT_TAPE_TRAINING : SRT_TAPE_FORWARD, &r.tape));
		r.x = srt_tape_input(r.tape, SRT_F32, 1, 9);
		CHECK(srt_layer_batchnorm(r.tape, r.x, r.param[0], r.param[1], &none) == NULL);
		CHECK_ERROR_HAS(why[k]);
		srt_tape_destroy(r.tape);
	}
	r.tape = NULL;
	tape_close(&r);
}

/* ---- dropout's masks ----------------------------------------------------------------------- */

static const tape_case_t mask_case = { .name = "dropout", .rows = 12, .n = 50, .build = dropout };

/* The gradients of a pass at the same values; how many of them are zero. */
static int zeros_of_pass(float *xgrad)
{
	int zeros = 0;
	tape_run_t r;

	random_state = 17;
	tape_open(&r, &mask_case);
	tape_pass(&r);
	memcpy(xgrad, r.xgrad, 600 * sizeof(float));
	for (int i = 0; i < 600; i++)
		zeros += xgrad[i] == 0.0f;
	tape_close(&r);
	return zeros;
}

static void test_masks(void)
{
	float first[600], other[600];

	CHECK(abs(zeros_of_pass(first) - 180) < 45); /* 4 standard deviations */
	zeros_of_pass(other);
	CHECK_BITS(other, first, 600);
	at.step++;
	zeros_of_pass(other);
	CHECK(memcmp(other, first, sizeof(first)) != 0);
	at.step--;
	name = "another";
	zeros_of_pass(other);
	CHECK(memcmp(other, first, sizeof(first)) != 0);
	name = "drop";
	rate = 0.0f;
	CHECK_INT(zeros_of_pass(other), 0);
	rate = 1.0f;
	CHECK_INT(zeros_of_pass(other), 600);
	rate = 0.3f;
}

/* Ranks and micro-batches: parts of a batch, at their global rows, give what the whole gives. */
static void test_masks_in_parts(int nparts)
{
	tape_case_t part_case = mask_case;
	int64_t rows = mask_case.rows / nparts;
	tape_run_t whole, part;

	part_case.rows = rows;
	tape_open(&whole, &mask_case);
	tape_pass(&whole);
	for (int k = 0; k < nparts; k++) {
		int64_t from = k * rows * part_case.n;
		size_t nelem = (size_t)(rows * part_case.n);

		tape_open(&part, &part_case);
		memcpy(part.xvalues, whole.xvalues + from, nelem * 4);
		memcpy(part.target_values, (const float *)whole.target_values + from, nelem * 4);
		at.first_row = k * rows;
		tape_pass(&part);
		CHECK_BITS(part.losses, whole.losses + k * rows, (size_t)rows);
		CHECK_BITS(part.xgrad, whole.xgrad + from, nelem);
		tape_close(&part);
	}
	at.first_row = 0;
	tape_close(&whole);
}

static void test_dropout_evaluation(void)
{
	srt_tape_t *tape;
	srt_tensor_t *x;

	CHECK_OK_OR_DIE(srt_tape_create(tape_device, SRT_TAPE_FORWARD, &tape));
	x = srt_tape_input(tape, SRT_F32, 2, 3);
	CHECK(x != NULL && srt_layer_dropout(tape, x, "drop", 0.5f, &at) == x);
	CHECK(srt_layer_dropout(tape, x, "drop", 1.5f, &at) == NULL);
	CHECK_ERROR_HAS("not from 0 to 1");
	srt_tape_destroy(tape);
}

int main(void)
{
	tape_begin();
	CHECK_OK_OR_DIE(srt_buffer_create(tape_device, SRT_MEM_DEVICE, 18 * sizeof(float),
					  "statistics", &stats));
	CHECK_OK_OR_DIE(
		srt_buffer_create(tape_device, SRT_MEM_DEVICE, 64, "half statistics", &half_stats));
	norm.running_mean = srt_view(stats, 0, SRT_F32);
	norm.running_var = srt_view(stats, 9 * sizeof(float), SRT_F32);
	test_padding();
	test_padding_outside();
	test_cases();
	test_batchnorm_evaluation();
	test_batchnorm_half_stats(SRT_F16);
	test_batchnorm_half_stats(SRT_BF16);
	test_batchnorm_mistakes();
	test_masks();
	for (int nparts = 2; nparts <= 4; nparts++)
		test_masks_in_parts(nparts);
	test_dropout_evaluation();
	srt_buffer_destroy(stats);
	srt_buffer_destroy(half_stats);
	return tape_end();
}
