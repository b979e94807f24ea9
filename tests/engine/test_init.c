/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Initial distributions: the values of a parameter do not depend on ranks, strategy, cells or
 * backend, stay in their range, and follow the distribution (Kolmogorov-Smirnov, fixed seeds), with
 * wrong bounds that the test must find. The defaults of modules. Run by test_init.sh.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <shardrt/shardrt.h>

#include "runtime/engine/declare/declare.h"
#include "tests/harness/check.h"
#include "tests/harness/half.h"
#include "tests/harness/options.h"

enum { SEED = 2026 };

static srt_context_t *context;
static srt_stream_t *stream;
static int world;

/* ---- the same bits everywhere ---------------------------------------------------------- */

static const struct draw {
	const char *name;
	int64_t rows, columns;
	srt_init_t init;
} draws[] = {
	{ "uniform", 37, 5, { .kind = SRT_INIT_UNIFORM, .low = -0.3, .high = 0.7 } },
	{ "normal",
	  11,
	  6,
	  { .kind = SRT_INIT_NORMAL, .mean = 0.5, .std = 2.0, .has_zero_row = 1, .zero_row = 10 } },
	{ "few", 3, 1, { .kind = SRT_INIT_UNIFORM, .low = 2.0, .high = 3.0 } },
	{ "constant", 5, 3, { .kind = SRT_INIT_CONSTANT, .value = 0.1, .has_zero_row = 1 } },
	{ "one", 2, 4, { .kind = SRT_INIT_UNIFORM, .low = 0.1, .high = 0.1 } },
	{ "unit",
	  64,
	  33,
	  { .kind = SRT_INIT_UNIFORM, .high = 1.0, .has_zero_row = 1, .zero_row = 40 } },
};

/* FNV-1a 64 of all values, the same for all ranks, backends and shardings. */
static const uint64_t digests[] = { [SRT_F32] = 0xfa18730ae6ed8364u,
				    [SRT_F16] = 0x6bcb45f39a81a647u,
				    [SRT_BF16] = 0xb19b413a4fb44215u };

/* The unsharded tensor, made on this rank alone. */
static void draw_alone(const struct draw *d, srt_dtype_t dtype, void *values)
{
	const int64_t n = d->rows * d->columns;
	const size_t elem = srt_dtype_bits(dtype) / 8;
	const srt_init_t *init = &d->init;
	srt_buffer_t *buffer;
	srt_view_t y;

	CHECK_OK_OR_DIE(srt_buffer_create(srt_context_device(context), SRT_MEM_DEVICE,
					  (size_t)n * elem, d->name, &buffer));
	y = srt_view(buffer, 0, dtype);
	if (init->kind == SRT_INIT_NORMAL)
		CHECK_OK(srt_op_normal(&(srt_normal_t){ .size = sizeof(srt_normal_t),
							.y = y,
							.seed = SEED,
							.name = d->name,
							.nelem = n,
							.mean = (float)init->mean,
							.std = (float)init->std },
				       stream));
	else if (init->kind == SRT_INIT_UNIFORM)
		CHECK_OK(srt_op_uniform(&(srt_uniform_t){ .size = sizeof(srt_uniform_t),
							  .y = y,
							  .seed = SEED,
							  .name = d->name,
							  .nelem = n,
							  .low = (float)init->low,
							  .high = (float)init->high },
					stream));
	else
		CHECK_OK(srt_op_fill(y, (float)init->value, n, stream));
	CHECK_OK(srt_buffer_copy_to_host(values, buffer, 0, (size_t)n * elem, stream));
	if (init->has_zero_row)
		memset((char *)values + (size_t)(init->zero_row * d->columns) * elem, 0,
		       (size_t)d->columns * elem);
	srt_buffer_destroy(buffer);
}

/* A range holds in the dtype too, where low and high are in fp32. */
static void check_range(const struct draw *d, srt_dtype_t dtype, const void *values)
{
	const srt_init_t *init = &d->init;
	const double low = (double)(float)init->low, high = (double)(float)init->high;

	if (init->kind != SRT_INIT_UNIFORM || init->low == init->high)
		return;
	for (int64_t i = 0; i < d->rows * d->columns; i++) {
		const double v = (double)half_get(dtype, values, (size_t)i);

		if (init->has_zero_row && i / d->columns == init->zero_row)
			continue;
		CHECK_MSG(v >= low && v < high, "%s: %s: %.9g is not in [%.9g, %.9g)", d->name,
			  srt_dtype_name(dtype), v, low, high);
	}
}

typedef struct layout {
	srt_strategy_t strategy;
	int ntensor; /* ranks that columns are cut over; 0: there is no mesh */
	int offload;
} layout_t;

static uint64_t test_layout(const layout_t *layout, srt_dtype_t dtype, uint64_t digest)
{
	static const char *const names[] = { "dp", "tp" };
	const size_t elem = srt_dtype_bits(dtype) / 8;
	srt_engine_options_t options = ENGINE_SGD(layout->strategy, 0.1f);
	const srt_param_options_t cut = { PARAM_BASE, .placement = { "tp", 1, 0, 0 } };
	srt_param_t *params[SRT_ARRAY_LEN(draws)];
	srt_engine_t *engine;
	srt_unit_t *root;

	options.offload.params = options.offload.grads = options.offload.state = layout->offload;
	if (layout->ntensor > 0) {
		const int size[] = { world / layout->ntensor, layout->ntensor };

		CHECK_OK_OR_DIE(
			srt_mesh_create(srt_context_world(context), 2, size, names, &options.mesh));
	}
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK(srt_unit_create(engine, NULL, "root", NULL, &root));
	for (size_t i = 0; i < SRT_ARRAY_LEN(draws); i++) {
		const int64_t shape[] = { draws[i].rows, draws[i].columns };

		CHECK_OK_OR_DIE(srt_param_create(root, draws[i].name, dtype, 2, shape,
						 layout->ntensor > 0 ? &cut : NULL, &params[i]));
	}
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	for (size_t i = 0; i < SRT_ARRAY_LEN(draws); i++)
		CHECK_OK(srt_param_init(params[i], SEED, &draws[i].init, stream));
	for (size_t i = 0; i < SRT_ARRAY_LEN(draws); i++) {
		const size_t nbytes = (size_t)(draws[i].rows * draws[i].columns) * elem;
		unsigned char *got = calloc(nbytes, 1), *want = calloc(nbytes, 1);

		CHECK_OR_DIE(got != NULL && want != NULL);
		CHECK_OK(srt_param_get(params[i], SRT_PARAM_VALUE, got, stream));
		draw_alone(&draws[i], dtype, want);
		CHECK_MSG(memcmp(got, want, nbytes) == 0, "%s of %s: other values with %s, tp %d",
			  draws[i].name, srt_dtype_name(dtype), srt_strategy_name(layout->strategy),
			  layout->ntensor);
		check_range(&draws[i], dtype, got);
		for (size_t b = 0; b < nbytes; b++)
			digest = (digest ^ got[b]) * 0x100000001b3u;
		free(got);
		free(want);
	}
	srt_engine_destroy(engine);
	srt_mesh_destroy(options.mesh);
	return digest;
}

static void test_bits(void)
{
	const layout_t layouts[] = {
		{ SRT_STRATEGY_DDP, 0, 0 },       { SRT_STRATEGY_ZERO2, 0, 0 },
		{ SRT_STRATEGY_ZERO3, 0, 0 },     { SRT_STRATEGY_ZERO3, 0, 1 },
		{ SRT_STRATEGY_ZERO3, world, 0 }, { SRT_STRATEGY_ZERO1, 2, 0 },
	};

	for (int dtype = SRT_F32; dtype <= SRT_BF16; dtype++) {
		for (size_t i = 0; i < SRT_ARRAY_LEN(layouts); i++) {
			uint64_t digest;

			if (layouts[i].ntensor > 0 && (world < 2 || world % layouts[i].ntensor))
				continue;
			digest = test_layout(&layouts[i], (srt_dtype_t)dtype, 0xcbf29ce484222325u);
			CHECK_MSG(digest == digests[dtype], "%s: digest 0x%016llxu",
				  srt_dtype_name((srt_dtype_t)dtype), (unsigned long long)digest);
		}
	}
}

/* ---- the distributions ----------------------------------------------------------------- */

enum { FIT_ROWS = 256, FIT_COLUMNS = 256, NFIT = FIT_ROWS * FIT_COLUMNS };
#define FIT_LIMIT 1.95 /* of sqrt(n) D: one sample in 1000 exceeds it */

static int by_value(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* The probability of a value up to x. */
static double law(const srt_init_t *init, double x)
{
	if (init->kind == SRT_INIT_NORMAL)
		return 0.5 * (1.0 + erf((x - init->mean) / (init->std * sqrt(2.0))));
	return fmin(1.0, fmax(0.0, (x - init->low) / (init->high - init->low)));
}

/* sqrt(n) D of Kolmogorov and Smirnov: how far `drawn` is from the distribution `wanted`. */
static double distance(srt_engine_t *engine, uint64_t seed, const srt_init_t *drawn,
		       const srt_init_t *wanted)
{
	static float values[NFIT];
	double d = 0.0;

	CHECK_OK(srt_param_init(srt_engine_param_at(engine, 0), seed, drawn, stream));
	CHECK_OK(srt_param_get(srt_engine_param_at(engine, 0), SRT_PARAM_VALUE, values, stream));
	qsort(values, NFIT, sizeof(*values), by_value);
	for (int i = 0; i < NFIT; i++) {
		const double p = law(wanted, (double)values[i]);

		d = fmax(d, fmax(p - (double)i / NFIT, (double)(i + 1) / NFIT - p));
	}
	return d * sqrt(NFIT);
}

static void test_fit(void)
{
	static const int64_t shape[] = { FIT_ROWS, FIT_COLUMNS };
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0.1f);
	srt_init_t inits[6] = {
		{ .kind = SRT_INIT_NORMAL, .mean = 0.5, .std = 0.02 },
		{ .kind = SRT_INIT_UNIFORM, .low = 2.0, .high = 3.0 },
	};
	srt_engine_t *engine;
	srt_param_t *param;
	srt_unit_t *root;

	CHECK_OK(srt_init_kaiming_uniform(2, shape, sqrt(5.0), &inits[2]));
	CHECK_OK(srt_init_xavier_uniform(2, shape, 1.0, &inits[3]));
	CHECK_OK(srt_init_xavier_normal(2, shape, 2.0, &inits[4]));
	CHECK_OK(srt_init_linear_bias(FIT_COLUMNS, &inits[5]));
	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK(srt_unit_create(engine, NULL, "root", NULL, &root));
	CHECK_OK_OR_DIE(srt_param_create(root, "w", SRT_F32, 2, shape, NULL, &param));
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	for (size_t i = 0; i < SRT_ARRAY_LEN(inits); i++) {
		const srt_init_t *right = &inits[i];
		srt_init_t wrong = *right;
		double d = distance(engine, SEED + i, right, right);

		CHECK_MSG(d < FIT_LIMIT, "distribution %zu: sqrt(n) D is %g", i, d);
		/* a bound and a deviation that are wrong */
		wrong.high += 0.03 * (right->high - right->low);
		wrong.std *= 1.06;
		d = distance(engine, SEED + i, &wrong, right);
		CHECK_MSG(d > FIT_LIMIT, "distribution %zu: a wrong one has sqrt(n) D %g", i, d);
		wrong = *right;
		wrong.low -= 0.03 * (right->high - right->low);
		wrong.mean += 0.04 * right->std;
		d = distance(engine, SEED + i, &wrong, right);
		CHECK_MSG(d > FIT_LIMIT, "distribution %zu: a moved one has sqrt(n) D %g", i, d);
	}
	srt_engine_destroy(engine);
}

/* ---- errors ---------------------------------------------------------------------------- */

static void refuse(srt_param_t *param, const srt_init_t *init, const char *words)
{
	CHECK_STATUS(srt_param_init(param, SEED, init, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS(words);
}

/* All ranks refuse, those without a row too. */
static void test_refused(void)
{
	static const int64_t shape[] = { 1, 2 };
	const srt_engine_options_t options = ENGINE_SGD(SRT_STRATEGY_ZERO3, 0.1f);
	srt_init_t init = { .kind = SRT_INIT_UNIFORM, .low = 1.001, .high = 1.002 };
	srt_engine_t *engine;
	srt_param_t *param;
	srt_unit_t *root;
	srt_view_t view;

	CHECK_OK_OR_DIE(srt_engine_create(context, &options, &engine));
	CHECK_OK(srt_unit_create(engine, NULL, "root", NULL, &root));
	CHECK_OK_OR_DIE(srt_param_create(root, "w", SRT_BF16, 2, shape, NULL, &param));
	CHECK_STATUS(srt_param_init(param, SEED, &(srt_init_t){ .value = 1.0 }, stream),
		     SRT_ERR_STATE);
	CHECK_ERROR_HAS("srt_param_init");
	CHECK_OK_OR_DIE(srt_engine_build(engine));
	refuse(param, &init, "bf16 has no value from 1.00100005 to below 1.00199997");
	init.high = 1.0;
	refuse(param, &init, "the range is from 1.001 to 1;");
	init.high = (double)INFINITY;
	refuse(param, &init, "must be finite");
	init.high = init.low * (1.0 + 1e-9);
	refuse(param, &init, "are one fp32 value");
	init = (srt_init_t){ .kind = SRT_INIT_NORMAL, .std = -1.0 };
	refuse(param, &init, "parameter 'w' has mean 0 and std -1");
	init.std = 1e300; /* infinite in fp32 */
	refuse(param, &init, "must be finite in fp32");
	init = (srt_init_t){ .value = 1.0, .has_zero_row = 1, .zero_row = 1 };
	refuse(param, &init, "zero_row is 1, but parameter 'w' has 1 rows");
	init.zero_row = -1;
	refuse(param, &init, "zero_row is -1");
	init = (srt_init_t){ .kind = (srt_init_kind_t)7 };
	refuse(param, &init, "no distribution number 7");
	CHECK_OK(srt_unit_forward_begin(root, stream));
	CHECK_OK(srt_param_data(param, &view));
	CHECK_STATUS(srt_param_init(param, SEED, &(srt_init_t){ .value = 1.0 }, stream),
		     SRT_ERR_STATE);
	CHECK_ERROR_HAS("while its unit 'root' is in use");
	CHECK_OK(srt_unit_forward_end(root, stream));
	srt_engine_destroy(engine);
}

/* ---- the defaults of modules ----------------------------------------------------------- */

static void check_default(const char *kind, const char *name, int ndim, const int64_t *shape,
			  int64_t fan_in, const srt_init_t *want)
{
	const srt_init_query_t query = { .size = sizeof(query),
					 .kind = kind,
					 .name = name,
					 .ndim = ndim,
					 .shape = shape,
					 .fan_in = fan_in };
	srt_init_t got;

	CHECK_OK_OR_DIE(srt_init_default(&query, &got));
	CHECK_MSG(memcmp(&got, want, sizeof(got)) == 0,
		  "%s %s: kind %d, value %.17g, mean %.17g, std %.17g, from %.17g to %.17g", kind,
		  name, (int)got.kind, got.value, got.mean, got.std, got.low, got.high);
}

static srt_status_t ask(const char *kind, const char *name, int ndim)
{
	static const int64_t shape[] = { 4, 3, 2, 2, 2, 2 };
	const srt_init_query_t query = {
		.size = sizeof(query), .kind = kind, .name = name, .ndim = ndim, .shape = shape
	};
	srt_init_t init;

	return srt_init_default(&query, &init);
}

static void test_defaults(void)
{
	static const int64_t square[] = { 8, 8 }, row[] = { 1, 1, 8 }, cube[] = { 4, 2, 3 };
	static const int64_t none[] = { 4, 0 };
	const srt_init_t zero = { .value = 0.0 }, one = { .value = 1.0 };
	const srt_init_t linear = { .kind = SRT_INIT_UNIFORM,
				    .low = -0x1.6a09e667f3bcbp-2, /* as torch, 1 ulp below that */
				    .high = 0x1.6a09e667f3bcbp-2 };
	const srt_init_t bias = { .kind = SRT_INIT_UNIFORM,
				  .low = -0x1.6a09e667f3bccp-2, /* of the bias */
				  .high = 0x1.6a09e667f3bccp-2 };
	const srt_init_t xavier = { .kind = SRT_INIT_UNIFORM,
				    .low = -0.6123724356957946,
				    .high = 0.6123724356957946 };
	const srt_init_t empty = { .kind = SRT_INIT_UNIFORM, .low = -0.0 };
	srt_init_query_t padded = { .size = sizeof(padded),
				    .kind = "Embedding",
				    .name = "weight",
				    .ndim = 2,
				    .shape = square,
				    .has_padding = 1 };
	srt_init_t init;

	check_default("Linear", "weight", 2, square, 0, &linear);
	check_default("Linear", "bias", 1, square, 8, &bias);
	check_default("Linear", "bias", 1, square, 0, &empty);
	check_default("Linear", "weight", 2, none, 0, &empty);
	check_default("BatchNorm1d", "num_batches_tracked", 0, NULL, 0, &zero);
	check_default("BatchNorm1d", "running_var", 1, square, 0, &one);
	check_default("MultiheadAttention", "out_proj.weight", 2, square, 0, &linear);
	check_default("MultiheadAttention", "out_proj.bias", 1, square, 8, &zero);
	check_default("MultiheadAttention", "bias_k", 3, row, 0,
		      &(srt_init_t){ .kind = SRT_INIT_NORMAL, .std = sqrt(2.0 / 16.0) });
	check_default("TransformerDecoder", "layers.11.linear2.bias", 1, square, 8, &bias);
	check_default("TransformerDecoder", "layers.11.linear2.weight", 2, square, 0, &linear);
	check_default("Transformer", "decoder.layers.0.linear2.weight", 2, square, 0, &xavier);
	check_default("Transformer", "decoder.norm.weight", 1, square, 0, &one);
	CHECK_OK(srt_init_default(&padded, &init));
	CHECK(init.kind == SRT_INIT_NORMAL && init.has_zero_row && init.zero_row == 0);
	/* receptive fields: fan_in 2 * 3, fan_out 4 * 3 */
	CHECK_OK(srt_init_xavier_normal(3, cube, 3.0, &init));
	CHECK(init.std == 3.0 * sqrt(2.0 / 18.0));

	CHECK_STATUS(ask("Conv2d", "weight", 4), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("'Conv2d'");
	CHECK_ERROR_HAS("Linear, Embedding, LayerNorm, BatchNorm1d, MultiheadAttention, "
			"TransformerEncoderLayer, TransformerDecoderLayer, TransformerEncoder, "
			"TransformerDecoder, Transformer");
	CHECK_STATUS(ask("Linear", "weights", 2), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("module Linear has no parameter 'weights'");
	CHECK_ERROR_HAS("but: weight, bias");
	CHECK_STATUS(ask("Linear", "weight.x", 2), SRT_ERR_NOT_FOUND);
	CHECK_STATUS(ask("Transformer", "encoder", 2), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("encoder.*, decoder.*");
	CHECK_STATUS(ask("Transformer", "encoder.layers..norm1.bias", 1), SRT_ERR_NOT_FOUND);
	CHECK_ERROR_HAS("module TransformerEncoder has no parameter 'layers..norm1.bias'");
	CHECK_STATUS(ask("Linear", "weight", 1), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("1 dimensions has no fan_in");
	CHECK_STATUS(ask("Linear", "weight", 6), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_init_linear_bias(-1, &init), SRT_ERR_INVALID_ARGUMENT);
	CHECK_STATUS(srt_init_kaiming_uniform(2, (const int64_t[]){ 2, -1 }, 1.0, &init),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("size 1 of the shape is -1");
}

int main(void)
{
	CHECK_OK_OR_DIE(srt_context_create(NULL, &context));
	CHECK_OK_OR_DIE(srt_stream_create(srt_context_device(context), 0, "test", &stream));
	world = srt_context_world_size(context);
	test_bits();
	test_fit();
	test_refused();
	test_defaults();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	return check_done();
}
