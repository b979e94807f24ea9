/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention of numerics mode fast on cuda, forward and backward, over the fakes of the driver and
 * of cuBLASLt: against a plain reference in double within what rounding weights and results to
 * the type costs; the rows' maxima and sums, also of large scores, to more digits; what is left to
 * the exact kernels; each call failing in turn. With
 * SRT_TEST_CUDA=device the numbers alone, on the device that there is, and larger ones.
 */
#include <math.h>
#include <stdlib.h>

#include "device/device.h"
#include "tests/fakes/load.h"
#include "tests/harness/half.h"
#include "tests/harness/random.h"

#include <shardrt/shardrt.h>

#define MOST 270000 /* elements of a tensor */
#define MOST_KEYS 1100
#define MOST_ROWS 2100 /* queries of all heads */

enum { Q, K, V, DOUT, OUT, DQ, DK, DV, NTENSORS };
static const char *const names[] = { "q", "k", "v", "dout", "out", "dq", "dk", "dv" };

static srt_device_t *device;
static srt_stream_t *stream;
static float values[NTENSORS][MOST];                   /* what was uploaded, or came back */
static double wanted[NTENSORS][MOST];                  /* of OUT and the gradients */
static double bounds[NTENSORS][MOST];                  /* of their errors */
static double wanted_stats[MOST_ROWS][2];              /* maximum, sum */
static double weights[MOST_KEYS], by_value[MOST_KEYS]; /* of a query */

typedef struct test_case {
	srt_attention_t shape;
	srt_dtype_t dtype;
	int packed;
	int64_t hidden; /* so many first keys with scores of -infinity */
	int masked;
	int growing; /* scores of about 190, whose maximum grows over 257 keys and then stays */
} test_case_t;

static int64_t rows_of(const srt_attention_t *a, int tensor)
{
	int of_keys = tensor == K || tensor == V || tensor == DK || tensor == DV;

	return a->batch * (of_keys ? a->keys : a->queries);
}

/* Elements are multiples of 1/8, so the products' sums are exact. The first element of each head
 * makes the scores large; that of key 256 is the largest. */
static void grow_scores(const srt_attention_t *a)
{
	for (int t = Q; t <= K; t++)
		for (int64_t i = 0; i < MOST; i++)
			values[t][i] = floorf(values[t][i] * 8) / 8;
	for (int64_t i = 0; i < a->queries * a->heads; i++)
		values[Q][i * a->head_dim] = 32.0f + (float)(i / a->heads % 8) / 4;
	for (int64_t i = 0; i < a->keys * a->heads; i++) {
		const int64_t key = i / a->heads;

		values[K][i * a->head_dim] =
			key == 256 ? 17.0f : 16.0f + (float)(key < 256 ? key / 64 : 4) / 8;
	}
}

static void random_tensors(const test_case_t *c)
{
	for (int t = Q; t <= DOUT; t++)
		for (int64_t i = 0; i < MOST; i++)
			values[t][i] = half_round(c->dtype, random_float());
	/* Products that overflow, of finite numbers: nothing that multiplies them is NaN. */
	for (int64_t i = 0; c->hidden && i < c->shape.queries * c->shape.heads; i++)
		values[Q][i * c->shape.head_dim] = 4.0f;
	for (int64_t i = 0; i < c->hidden * c->shape.heads; i++)
		values[K][i * c->shape.head_dim] =
			half_value(c->dtype, half_bits(c->dtype, -3e38f));
	if (c->growing)
		grow_scores(&c->shape);
}

/* ---- the reference ----------------------------------------------------------------------- */

/* One query of the head whose first elements are at q0 and k0. */
static void reference_query(const test_case_t *c, int64_t i, int64_t q0, int64_t k0, double unit,
			    double *stats)
{
	const srt_attention_t *a = &c->shape;
	const int64_t ld = a->heads * a->head_dim,
		      n = a->causal && i + 1 < a->keys ? i + 1 : a->keys;
	const int64_t qi = q0 + i * ld;
	double most = -1e30, z = 0, mean = 0, size = 0;

	for (int64_t j = 0; j < n; j++) {
		weights[j] = 0;
		by_value[j] = 0;
		for (int64_t e = 0; e < a->head_dim; e++) {
			weights[j] +=
				(double)values[Q][qi + e] * (double)values[K][k0 + j * ld + e];
			by_value[j] +=
				(double)values[DOUT][qi + e] * (double)values[V][k0 + j * ld + e];
		}
		weights[j] *= (double)a->scale;
		most = weights[j] > most ? weights[j] : most;
	}
	for (int64_t j = 0; j < n; j++)
		z += weights[j] = exp(weights[j] - most);
	stats[0] = most;
	stats[1] = z;
	for (int64_t j = 0; j < n; j++) {
		weights[j] /= z;
		mean += weights[j] * by_value[j];
		size += fabs(weights[j] * by_value[j]);
	}
	for (int64_t j = 0; j < n; j++) {
		const double ds = weights[j] * (by_value[j] - mean) * (double)a->scale;
		/* D is of rounded results: of a row's size, not of its sum. */
		const double ds_bound = weights[j] * (fabs(by_value[j]) + fabs(mean) + size + 1) *
					(double)a->scale * unit;

		for (int64_t e = 0; e < a->head_dim; e++) {
			const int64_t kj = k0 + j * ld + e;

			wanted[OUT][qi + e] += weights[j] * (double)values[V][kj];
			bounds[OUT][qi + e] += weights[j] * fabs((double)values[V][kj]) * unit;
			wanted[DV][kj] += weights[j] * (double)values[DOUT][qi + e];
			bounds[DV][kj] += weights[j] * fabs((double)values[DOUT][qi + e]) * unit;
			wanted[DQ][qi + e] += ds * (double)values[K][kj];
			bounds[DQ][qi + e] += ds_bound * fabs((double)values[K][kj]);
			wanted[DK][kj] += ds * (double)values[Q][qi + e];
			bounds[DK][kj] += ds_bound * fabs((double)values[Q][qi + e]);
		}
	}
}

static void reference(const test_case_t *c)
{
	const srt_attention_t *a = &c->shape;
	const int64_t ld = a->heads * a->head_dim;
	/* Two roundings'; of fp32, those of sums. */
	const double unit = c->dtype == SRT_F32 ? 0x1p-18 : c->dtype == SRT_F16 ? 0x1p-10 : 0x1p-7;

	memset(wanted, 0, sizeof(wanted));
	memset(bounds, 0, sizeof(bounds));
	for (int64_t b = 0; b < a->batch; b++)
		for (int64_t h = 0; h < a->heads; h++)
			for (int64_t i = 0; i < a->queries; i++)
				reference_query(c, i, b * a->queries * ld + h * a->head_dim,
						b * a->keys * ld + h * a->head_dim, unit,
						wanted_stats[(b * a->heads + h) * a->queries + i]);
}

/* ---- on the device ----------------------------------------------------------------------- */

/* Where a tensor's row begins, in a separate buffer or in one of three. */
static int64_t at(const test_case_t *c, int tensor, int64_t row)
{
	const int64_t width = c->shape.heads * c->shape.head_dim;
	int part = tensor >= DQ ? tensor - DQ : tensor;

	return c->packed && part <= V && tensor != OUT ? row * 3 * width + part * width :
							 row * width;
}

static int buffer_of(const test_case_t *c, int tensor)
{
	if (!c->packed || tensor == DOUT || tensor == OUT)
		return tensor;
	return tensor < DQ ? Q : DQ;
}

static void copy(const test_case_t *c, srt_buffer_t *const *buffers, int tensor, int up)
{
	static float bytes[3 * MOST];
	srt_buffer_t *buffer = buffers[buffer_of(c, tensor)];
	const int64_t width = c->shape.heads * c->shape.head_dim, rows = rows_of(&c->shape, tensor);

	CHECK_OK_OR_DIE(
		srt_buffer_copy_to_host(bytes, buffer, 0, srt_buffer_nbytes(buffer), stream));
	for (int64_t r = 0; r < rows; r++)
		for (int64_t e = 0; e < width; e++) {
			const size_t i = (size_t)(at(c, tensor, r) + e);
			float *value = &values[tensor][r * width + e];

			if (up)
				half_put(c->dtype, bytes, i, *value);
			else
				*value = half_get(c->dtype, bytes, i);
		}
	if (up)
		CHECK_OK_OR_DIE(srt_buffer_copy_from_host(buffer, 0, bytes,
							  srt_buffer_nbytes(buffer), stream));
}

static void compare(const test_case_t *c, int tensor)
{
	const int64_t n = rows_of(&c->shape, tensor) * c->shape.heads * c->shape.head_dim;
	double worst = 0;

	for (int64_t i = 0; i < n; i++) {
		double error = fabs((double)values[tensor][i] - wanted[tensor][i]);

		error /= bounds[tensor][i] + 1e-6;
		worst = error > worst || isnan(error) ? error : worst;
	}
	CHECK_MSG(worst <= 1.0, "%s of %lld x %lld, head_dim %lld, type %d: %g of the bound",
		  names[tensor], (long long)c->shape.queries, (long long)c->shape.keys,
		  (long long)c->shape.head_dim, (int)c->dtype, worst);
}

/* Maxima and sums are floats: they show an error that rounding to 16 bits hides. */
static void compare_stats(const test_case_t *c, srt_buffer_t *stats)
{
	static float got[MOST_ROWS][2];
	const int64_t n = c->shape.batch * c->shape.heads * c->shape.queries;
	double worst[2] = { 0, 0 };

	CHECK_OK_OR_DIE(srt_buffer_copy_to_host(got, stats, 0, (size_t)n * sizeof(got[0]), stream));
	for (int64_t i = 0; i < n; i++)
		for (int k = 0; k < 2; k++) {
			const double error = fabs((double)got[i][k] - wanted_stats[i][k]) /
					     (fabs(wanted_stats[i][k]) + 1);

			worst[k] = error > worst[k] || isnan(error) ? error : worst[k];
		}
	CHECK_MSG(
		worst[0] <= 0x1p-18 && worst[1] <= 0x1p-15,
		"statistics of %lld x %lld, head_dim %lld, type %d: maxima differ by %g, sums by %g",
		(long long)c->shape.queries, (long long)c->shape.keys, (long long)c->shape.head_dim,
		(int)c->dtype, worst[0], worst[1]);
}

/* What a case needs on the device. */
typedef struct setting {
	srt_buffer_t *buffers[NTENSORS], *stats, *scratch, *mask;
	srt_attention_views_t views;
} setting_t;

static void set_up(test_case_t *c, setting_t *s)
{
	srt_attention_views_t *v = &s->views;
	srt_view_t *const of[] = { &v->q, &v->k, &v->v, &v->dout, &v->out, &v->dq, &v->dk, &v->dv };
	const int64_t width = c->shape.heads * c->shape.head_dim * (c->packed ? 3 : 1);
	const size_t nkeys = (size_t)(c->shape.batch * c->shape.keys);
	unsigned char *ones = malloc(nkeys);
	size_t nbytes;

	CHECK_OR_DIE(ones != NULL);
	memset(ones, 1, nkeys);
	*s = (setting_t){ .views = SRT_ATTENTION_VIEWS_INIT };
	random_tensors(c);
	for (int t = 0; t < NTENSORS; t++) {
		nbytes = (size_t)(rows_of(&c->shape, t) * width) * srt_dtype_bits(c->dtype) / 8;
		CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, names[t],
						  &s->buffers[t]));
		*of[t] = srt_view(s->buffers[t], 0, c->dtype);
	}
	if (c->packed)
		srt_attention_set_packed(&c->shape, v, v->q, v->dq);
	for (int t = Q; t <= DOUT; t++)
		copy(c, s->buffers, t, 1);
	CHECK_OK_OR_DIE(srt_op_attention_scratch(device, &c->shape, &nbytes));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, "scratch", &s->scratch));
	nbytes = (size_t)(c->shape.batch * c->shape.heads * c->shape.queries) * 2 * sizeof(float);
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, "stats", &s->stats));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nkeys, "mask", &s->mask));
	CHECK_OK_OR_DIE(srt_buffer_copy_from_host(s->mask, 0, ones, nkeys, stream));
	v->stats = srt_view(s->stats, 0, SRT_F32);
	v->scratch = srt_view(s->scratch, 0, SRT_F32);
	if (c->masked)
		v->mask = srt_view(s->mask, 0, SRT_U8);
	free(ones);
}

static void tear_down(setting_t *s)
{
	for (int t = 0; t < NTENSORS; t++)
		srt_buffer_destroy(s->buffers[t]);
	srt_buffer_destroy(s->stats);
	srt_buffer_destroy(s->scratch);
	srt_buffer_destroy(s->mask);
}

static void check_numbers(const test_case_t *c, const setting_t *s)
{
	reference(c);
	compare_stats(c, s->stats);
	for (int t = OUT; t < NTENSORS; t++) {
		copy(c, s->buffers, t, 0);
		compare(c, t);
	}
}

/* Launches of the kernels on tensor cores. */
static long count_fast(void)
{
	long n = 0;

	for (long i = 0; f->call(i) != NULL; i++)
		n += f->call(i)->kernel != NULL &&
		     strstr(f->call(i)->kernel, "k_fast_attention_") != NULL;
	return n;
}

/* On a stream that was given the memory which the operations ask for. launches: of the kernels on
 * tensor cores. */
static void run(test_case_t c, long launches)
{
	srt_stream_t *const old = stream;
	size_t nbytes = 0;
	setting_t s;

	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "attention", &stream));
	set_up(&c, &s);
	for (int backward = 0; backward <= 1; backward++)
		CHECK_OK(srt_op_attention_memory(device, &c.shape, c.dtype, backward, c.masked,
						 &nbytes));
	CHECK_OK(srt_stream_reserve(stream, nbytes));
	CHECK_OK(srt_stream_sync(stream));
	if (f != NULL)
		f->reset();
	CHECK_OK(srt_op_attention(&c.shape, &s.views, stream));
	CHECK_OK(srt_op_attention_backward(&c.shape, &s.views, stream));
	CHECK_OK(srt_stream_sync(stream));
	if (f != NULL) {
		CHECK_INT(count_fast(), launches);
		CHECK_INT(f->count("cuMemAlloc"), 0);
	}
	check_numbers(&c, &s);
	tear_down(&s);
	srt_stream_destroy(stream);
	stream = old;
}

static test_case_t of(int64_t queries, int64_t keys, int64_t head_dim, int causal,
		      srt_dtype_t dtype)
{
	return (test_case_t){ .shape = { .size = sizeof(srt_attention_t),
					 .batch = 1,
					 .queries = queries,
					 .keys = keys,
					 .heads = 2,
					 .head_dim = head_dim,
					 .scale = 0.35f,
					 .causal = causal },
			      .dtype = dtype };
}

/* Statistics in host memory that the driver would not lock are no kernel's, of either pass. */
static void test_unseen_statistics(void)
{
	static unsigned char host[4096] __attribute__((aligned(4096)));
	test_case_t c = of(4, 4, 64, 0, SRT_BF16);
	srt_buffer_t *unseen;
	setting_t s;

	set_up(&c, &s);
	f->fail_call("cuMemHostRegister", 1, CUDA_ERROR_NOT_SUPPORTED);
	CHECK_OK_OR_DIE(srt_buffer_wrap_host(device, host, sizeof(host), 0, "stats", &unseen));
	CHECK_STR(f->failed(), "cuMemHostRegister");
	s.views.stats = srt_view(unseen, 0, SRT_F32);
	CHECK_OK(srt_stream_sync(stream));
	f->reset();
	CHECK_STATUS(srt_op_attention(&c.shape, &s.views, stream), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is pinned host memory");
	CHECK_STATUS(srt_op_attention_backward(&c.shape, &s.views, stream),
		     SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is pinned host memory");
	CHECK_OK(srt_stream_sync(stream));
	CHECK_INT(count_fast(), 0);
	srt_buffer_destroy(unseen);
	tear_down(&s);
}

/* The k-th call of the driver fails: an error with a sentence, or the numbers. */
static int fails_well(int k)
{
	test_case_t c = of(5, 3, 64, 1, SRT_BF16);
	srt_stream_t *const old = stream;
	srt_status_t status;
	setting_t s;
	int came;

	set_up(&c, &s);
	CHECK_OK(srt_stream_sync(stream));
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "failing", &stream));
	f->reset();
	f->fail_at(k, CUDA_ERROR_UNKNOWN);
	status = srt_op_attention(&c.shape, &s.views, stream);
	if (status == SRT_OK)
		status = srt_op_attention_backward(&c.shape, &s.views, stream);
	if (status == SRT_OK)
		status = srt_stream_sync(stream);
	came = f->failed()[0] != 0;
	f->fail_at(0, CUDA_SUCCESS);
	if (status == SRT_OK) {
		check_numbers(&c, &s);
	} else {
		CHECK(came);
		CHECK(srt_error_last()[0]);
	}
	srt_stream_destroy(stream);
	stream = old;
	tear_down(&s);
	return came;
}

static void test_failures(void)
{
	int k = 1;

	while (fails_well(k))
		k++;
	CHECK_MSG(k > 5, "only %d calls of the driver", k);
}

/* Head sizes, types, numbers of queries and keys on both sides of tiles' ends; causal or not. */
static void test_sizes(void)
{
	static const int64_t sizes[][2] = { { 1, 1 },    { 1, 70 },    { 17, 17 },  { 33, 31 },
					    { 64, 63 },  { 64, 64 },   { 65, 65 },  { 100, 33 },
					    { 33, 100 }, { 129, 129 }, { 200, 200 } };
	int n = 0;

	for (int i = 0; i < (int)(sizeof(sizes) / sizeof(sizes[0])); i++)
		for (int head_dim = 64; head_dim <= 128; head_dim += 64, n++)
			for (int causal = 0; causal <= 1; causal++)
				run(of(sizes[i][0], sizes[i][1], head_dim, causal,
				       n % 3 ? SRT_BF16 : SRT_F16),
				    3);
}

/* What the exact kernels compute. */
static void test_left(void)
{
	test_case_t c = of(10, 10, 64, 1, SRT_BF16);

	c.masked = 1;
	run(c, 0);
	c.masked = 0;
	c.shape.scale = -0.5f;
	run(c, 0);
	run(of(33, 40, 64, 1, SRT_F32), 0);
	run(of(20, 30, 40, 0, SRT_F16), 0);
	run(of(9, 12, 7, 0, SRT_F16), 0); /* heads that begin at odd elements */
}

static srt_context_t *open_context(void)
{
	const srt_context_options_t options = { .size = sizeof(options),
						.numerics = SRT_NUMERICS_FAST };
	srt_context_t *context;

	setenv("SHARDRT_BACKEND", "cuda", 1);
	if (!on_device())
		fake_cublaslt_load();
	CHECK_OK_OR_DIE(srt_context_create(&options, &context));
	return context;
}

int main(void)
{
	srt_context_t *context = open_context();
	test_case_t c;

	device = srt_context_device(context);
	srt_device_prepare(device, SRT_F16);
	srt_device_prepare(device, SRT_BF16);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	test_sizes();
	c = of(65, 65, 64, 1, SRT_BF16);
	c.packed = 1;
	c.shape.batch = 3;
	run(c, 3);
	c.shape.head_dim = 128;
	run(c, 3);
	c = of(70, 100, 64, 0, SRT_BF16); /* queries whose first keys have no weight */
	c.hidden = 70;
	run(c, 3);
	c.shape.head_dim = 128;
	run(c, 3);
	for (int64_t head_dim = 64; head_dim <= 128; head_dim += 64) {
		c = of(64, 1024, head_dim, 0, head_dim == 64 ? SRT_BF16 : SRT_F16);
		c.growing = 1;
		run(c, 3);
	}
	test_left();
	if (f != NULL) {
		test_unseen_statistics();
		test_failures();
	} else {
		run(of(1024, 1024, 64, 1, SRT_BF16), 3);
		run(of(1000, 1001, 128, 1, SRT_F16), 3);
	}
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	if (f != NULL)
		CHECK_STR(f->complaint(), "");
	return check_done();
}
