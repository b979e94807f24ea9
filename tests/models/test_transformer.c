/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Transformer on random values: losses and gradients against a digest, so that all devices have
 * the same bits; in f16 and bf16, under a policy and with parameters of these dtypes, near those in
 * fp32; with recomputed layers the same bits. tests/golden has recorded values.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/ops.h>
#include <shardrt/shardrt.h>

#include "models/transformer.h"
#include "tests/harness/bits.h"
#include "tests/harness/check.h"
#include "tests/harness/half.h"
#include "tests/harness/options.h"

enum { SRC = 5, TGT = 3, BATCH = 2, WIDTH = 8, VOCAB = 11, MAX_GRADS = 4096 };

static srt_context_t *context;
static srt_device_t *device;
static srt_stream_t *stream;

typedef struct options {
	srt_dtype_t dtype;
	srt_precision_t precision; /* but for the size */
	int recompute;
} options_t;

typedef struct result {
	float loss[TGT * BATCH], grads[MAX_GRADS];
	size_t ngrads, nbytes;
	srt_dtype_t logits;
} result_t;

typedef struct model {
	srt_engine_t *engine;
	srt_transformer_t *transformer;
	srt_tape_t *tape;
	srt_transformer_io_t io;
	srt_buffer_t *arena, *stats;
} model_t;

static void open_model(model_t *m, const options_t *o)
{
	const srt_transformer_config_t config = {
		.layers = 2, .heads = 2, .width = WIDTH, .ff = 6, .vocab = VOCAB, .batch = BATCH
	};
	srt_precision_t precision = o->precision;
	const srt_engine_options_t engine = { ENGINE_BASE, .strategy = SRT_STRATEGY_ZERO3,
					      .precision = &precision,
					      .optim = OPTIM(.kind = SRT_OPTIM_SGD) };
	const srt_model_options_t options = { .dtype = o->dtype, .recompute = o->recompute };
	const float stats[] = { 0.1f, -0.2f, 1.3f, 0.7f }; /* mean, variance */
	srt_view_t mean, var;

	precision.size = sizeof(precision);
	CHECK_OK_OR_DIE(srt_engine_create(context, &engine, &m->engine));
	CHECK_OK_OR_DIE(srt_transformer_declare(m->engine, &config, &options, &m->transformer));
	CHECK_OK_OR_DIE(srt_engine_build(m->engine));
	for (size_t i = 0; srt_engine_param_at(m->engine, i) != NULL; i++)
		CHECK_OK(srt_param_init_normal(srt_engine_param_at(m->engine, i), 3, 0.2f, 0.3f,
					       stream));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, 512, "stats", &m->stats));
	mean = srt_view(m->stats, 0, SRT_F32);
	var = srt_view(m->stats, BATCH * sizeof(float), SRT_F32);
	CHECK_OK(srt_buffer_copy_from_host(m->stats, 0, stats, sizeof(stats), stream));
	if (o->precision.buffer == SRT_F16) {
		const srt_view_t half_mean = srt_view(m->stats, 256, SRT_F16);
		const srt_view_t half_var = srt_view(m->stats, 264, SRT_F16);

		CHECK_OK(srt_op_cast(half_mean, mean, BATCH, stream));
		CHECK_OK(srt_op_cast(half_var, var, BATCH, stream));
		mean = half_mean;
		var = half_var;
	}
	CHECK_OK_OR_DIE(srt_tape_create(device, SRT_TAPE_TRAINING, &m->tape));
	CHECK_OK(srt_transformer_record_loss(m->transformer, m->tape, SRC, TGT, mean, var, &m->io));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, srt_tape_nbytes(m->tape), "arena",
					  &m->arena));
	CHECK_OK_OR_DIE(srt_tape_bind(m->tape, m->arena));
}

static void close_model(model_t *m)
{
	CHECK_OK(srt_stream_sync(stream));
	srt_tape_destroy(m->tape);
	srt_transformer_destroy(m->transformer);
	srt_engine_destroy(m->engine);
	srt_buffer_destroy(m->arena);
	srt_buffer_destroy(m->stats);
}

static void put(srt_tensor_t *x, const void *values)
{
	const srt_view_t view = srt_tensor_view(x);

	CHECK_OK(srt_buffer_copy_from_host(view.buffer, view.offset, values,
					   (size_t)(srt_tensor_rows(x) * srt_tensor_cols(x)) * 4,
					   stream));
}

static void feed(const model_t *m)
{
	int32_t src[SRC * BATCH], tgt[TGT * BATCH];
	float bias[WIDTH], zero[WIDTH] = { 0 };

	for (int i = 0; i < SRC * BATCH; i++)
		src[i] = (i * 7 + 2) % VOCAB;
	for (int i = 0; i < TGT * BATCH; i++)
		tgt[i] = (i * 5 + 1) % VOCAB;
	for (int i = 0; i < WIDTH; i++)
		bias[i] = 0.125f * (float)(i - 3);
	put(m->io.src, src);
	put(m->io.tgt, tgt);
	put(m->io.vocab_bias, bias);
	put(m->io.long_buffer, zero);
}

static void get_grads(const model_t *m, result_t *r)
{
	r->ngrads = 0;
	for (size_t i = 0; srt_engine_param_at(m->engine, i) != NULL; i++) {
		srt_param_t *param = srt_engine_param_at(m->engine, i);
		const srt_dtype_t dtype = test_local(param, SRT_PARAM_VALUE).dtype;
		const size_t n = (size_t)srt_param_nelem(param);
		float *grad = r->grads + r->ngrads;

		CHECK_OR_DIE(r->ngrads + n <= MAX_GRADS);
		CHECK_OK(srt_param_get(param, SRT_PARAM_GRAD, grad, stream));
		for (size_t k = n; k-- > 0 && dtype != SRT_F32;)
			grad[k] = half_get(dtype, grad, k);
		r->ngrads += n;
	}
}

static void pass(const options_t *o, result_t *r)
{
	model_t m = { 0 };
	srt_view_t loss;

	memset(r, 0, sizeof(*r));
	open_model(&m, o);
	feed(&m);
	CHECK_OK(srt_tape_forward(m.tape, stream));
	CHECK_OK(srt_tape_backward(m.tape, 0.125f, (srt_view_t){ 0 }, stream));
	loss = srt_tensor_view(m.io.loss);
	CHECK_OK(srt_buffer_copy_to_host(r->loss, loss.buffer, loss.offset, sizeof(r->loss),
					 stream));
	CHECK_OK(srt_engine_finish_backward(m.engine, stream));
	get_grads(&m, r);
	r->nbytes = srt_tape_nbytes(m.tape);
	r->logits = srt_tensor_dtype(m.io.logits);
	close_model(&m);
}

static void check_digest(const char *what, const result_t *r, uint64_t want)
{
	uint64_t h = digest_floats(DIGEST_START, r->loss, TGT * BATCH);

	h = digest_floats(h, r->grads, r->ngrads);
	CHECK_MSG(h == want, "%s: losses and gradients have the digest 0x%016llxu", what,
		  (unsigned long long)h);
}

/* Within some roundings of the largest. */
static void check_close(const char *what, const float *got, const float *want, size_t n,
			double rounding)
{
	double most = 0.0;

	for (size_t i = 0; i < n; i++)
		most = fmax(most, fabs((double)want[i]));
	for (size_t i = 0; i < n; i++)
		CHECK_MSG(fabs((double)got[i] - (double)want[i]) <= 32.0 * rounding * most,
			  "%s[%zu] is %g, in f32 %g", what, i, (double)got[i], (double)want[i]);
}

static void test_dtypes(void)
{
	static const struct {
		const char *name;
		options_t options;
		srt_dtype_t logits;
		double rounding;
		uint64_t digest;
	} cases[] = {
		{ "f32", { .dtype = SRT_F32 }, SRT_F32, 0.0, 0x40ab5fa38e72a899u },
		{ "FSDP1 f16",
		  { .precision = { .param = SRT_F16,
				   .buffer = SRT_F16,
				   .rule = SRT_PRECISION_FSDP1 } },
		  SRT_F16,
		  0x1p-11,
		  0x84e76a88d5a0fa24u },
		{ "FSDP2 bf16",
		  { .precision = { .param = SRT_BF16, .reduce = SRT_F32, .output = SRT_F32 } },
		  SRT_F32,
		  0x1p-8,
		  0x49e7e58790c7f244u },
		{ "pure f16", { .dtype = SRT_F16 }, SRT_F16, 0x1p-11, 0xe86a3bd5b19e5a24u },
	};
	static result_t want, got, again;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		options_t options = cases[i].options;

		pass(&options, &got);
		if (i == 0)
			want = got;
		CHECK_INT(got.ngrads, want.ngrads);
		CHECK_INT(got.logits, cases[i].logits);
		check_close(cases[i].name, got.loss, want.loss, TGT * BATCH, cases[i].rounding);
		check_close(cases[i].name, got.grads, want.grads, want.ngrads, cases[i].rounding);
		check_digest(cases[i].name, &got, cases[i].digest);
		options.recompute = 1;
		pass(&options, &again);
		CHECK_BITS(again.loss, got.loss, TGT * BATCH);
		CHECK_BITS(again.grads, got.grads, got.ngrads);
		CHECK_MSG(again.nbytes < got.nbytes, "%zu bytes, %zu recomputed", got.nbytes,
			  again.nbytes);
	}
}

static void test_sizes(void)
{
	const srt_transformer_config_t config = {
		.layers = 1, .heads = 3, .width = WIDTH, .ff = 6, .vocab = VOCAB, .batch = BATCH
	};
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_DDP, 0);
	srt_transformer_t *transformer;
	srt_engine_t *engine;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_STATUS(srt_transformer_declare(engine, &config, NULL, &transformer),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("layers 1, heads 3");
	CHECK_ERROR_HAS("width a multiple of heads");
	srt_engine_destroy(engine);
}

/* The tree's units, and the initial values of torch.nn.Transformer, which draws all matrices in it
 * again. */
static void test_modules(void)
{
	static const char *const units[] = { "", "transformer.encoder.layers.0",
					     "transformer.decoder.layers.0" };
	static const char *const others[] = { "transformer.encoder", "output_proj", "bn" };
	const srt_transformer_config_t config = {
		.layers = 1, .heads = 2, .width = WIDTH, .ff = 6, .vocab = VOCAB, .batch = BATCH
	};
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0);
	const float bound = sqrtf(6.0f / (WIDTH + WIDTH)); /* xavier_uniform_ of out_proj */
	float out[WIDTH * WIDTH], norm[WIDTH], largest = 0;
	srt_transformer_t *transformer;
	srt_engine_t *engine;
	srt_module_t *root;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK_OR_DIE(srt_transformer_declare(engine, &config, NULL, &transformer));
	root = srt_engine_module(engine);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		CHECK(srt_module_is_unit(srt_module_find(root, units[i])));
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		CHECK(!srt_module_is_unit(srt_module_find(root, others[i])));
	CHECK(srt_engine_param_find(engine, "output_proj.weight") ==
	      srt_engine_param_find(engine, "embed_tokens.weight"));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	CHECK_OK(srt_engine_materialize(engine, NULL, stream));
	CHECK_OK(srt_param_get(
		srt_engine_param_find(engine,
				      "transformer.decoder.layers.0.self_attn.out_proj.weight"),
		SRT_PARAM_VALUE, out, stream));
	CHECK_OK(srt_param_get(srt_engine_param_find(engine, "transformer.encoder.norm.weight"),
			       SRT_PARAM_VALUE, norm, stream));
	for (int i = 0; i < WIDTH * WIDTH; i++)
		largest = fmaxf(largest, fabsf(out[i]));
	CHECK_MSG(largest > 1.0f / sqrtf(WIDTH) && largest <= bound, "largest %g", (double)largest);
	CHECK(norm[0] == 1.0f && norm[WIDTH - 1] == 1.0f);
	srt_transformer_destroy(transformer);
	srt_engine_destroy(engine);
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	test_sizes();
	test_modules();
	test_dtypes();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
