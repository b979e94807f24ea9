/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attention of numerics mode fast on cuda, forward and backward, over the fake driver: the kernels'
 * own text with fragments exchanged among the lanes of a warp, against a plain reference in double
 * within what rounding weights and results to 16 bits costs; and what is left to the exact kernels.
 * With SRT_TEST_CUDA=device the numbers alone, on the device that there is.
 */
#include <math.h>
#include <stdlib.h>

#include "backends/core.h"
#include "tests/fake_cublaslt.h"
#include "tests/half.h"
#include "tests/random.h"

#include <shardrt/shardrt.h>

#define MOST 100000 /* elements of a tensor */
#define TRIAL 12    /* launches before the first of a type */

enum { Q, K, V, DOUT, OUT, DQ, DK, DV, NTENSORS };
static const char *const names[] = { "q", "k", "v", "dout", "out", "dq", "dk", "dv" };

static srt_device_t *device;
static srt_stream_t *stream;
static float values[NTENSORS][MOST];         /* what was uploaded, or came back */
static double wanted[NTENSORS][MOST];        /* of OUT and the gradients */
static double bounds[NTENSORS][MOST];        /* of their errors */
static double weights[1024], by_value[1024]; /* of a query */

typedef struct test_case {
	srt_attention_t shape;
	srt_dtype_t dtype;
	int packed;
	int64_t hidden; /* so many first keys with scores of -infinity */
} test_case_t;

static int64_t rows_of(const srt_attention_t *a, int tensor)
{
	int of_keys = tensor == K || tensor == V || tensor == DK || tensor == DV;

	return a->batch * (of_keys ? a->keys : a->queries);
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
}

/* ---- the reference ----------------------------------------------------------------------- */

/* One query of the head whose first elements are at q0 and k0. */
static void reference_query(const test_case_t *c, int64_t i, int64_t q0, int64_t k0, double unit)
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
	const double unit = c->dtype == SRT_F16 ? 0x1p-10 : 0x1p-7; /* two roundings' */

	memset(wanted, 0, sizeof(wanted));
	memset(bounds, 0, sizeof(bounds));
	for (int64_t b = 0; b < a->batch; b++)
		for (int64_t h = 0; h < a->heads; h++)
			for (int64_t i = 0; i < a->queries; i++)
				reference_query(c, i, b * a->queries * ld + h * a->head_dim,
						b * a->keys * ld + h * a->head_dim, unit);
}

/* ---- on the device ----------------------------------------------------------------------- */

/* Where a tensor's row begins, in a buffer of its own or in one of three. */
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
	static uint16_t halves[3 * MOST];
	srt_buffer_t *buffer = buffers[buffer_of(c, tensor)];
	const int64_t width = c->shape.heads * c->shape.head_dim, rows = rows_of(&c->shape, tensor);

	CHECK_OK_OR_DIE(srt_copy_to_host(stream, halves, buffer, 0, srt_buffer_nbytes(buffer)));
	for (int64_t r = 0; r < rows; r++)
		for (int64_t e = 0; e < width; e++) {
			uint16_t *half = &halves[at(c, tensor, r) + e];

			if (up)
				*half = half_bits(c->dtype, values[tensor][r * width + e]);
			else
				values[tensor][r * width + e] = half_value(c->dtype, *half);
		}
	if (up)
		CHECK_OK_OR_DIE(
			srt_copy_from_host(stream, buffer, 0, halves, srt_buffer_nbytes(buffer)));
}

static long fast_launches(void)
{
	long n = 0;
	const fake_cuda_call_t *call;

	for (long i = 0; (call = f->call(i)) != NULL; i++)
		n += call->kernel && strncmp(call->kernel, "k_fast_attention", 16) == 0;
	return n;
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

/* launches: of kernels of mode fast that there have to be. */
static void run(test_case_t c, long launches)
{
	const int64_t width = c.shape.heads * c.shape.head_dim;
	srt_buffer_t *buffers[NTENSORS], *stats, *scratch;
	srt_attention_views_t v = { .q.buffer = NULL };
	srt_view_t *const of[] = { &v.q, &v.k, &v.v, &v.dout, &v.out, &v.dq, &v.dk, &v.dv };
	size_t nbytes;

	random_tensors(&c);
	for (int t = 0; t < NTENSORS; t++)
		CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE,
						  (size_t)(rows_of(&c.shape, t) * width *
							   (c.packed ? 3 : 1)) *
							  2,
						  names[t], &buffers[t]));
	for (int t = 0; t < NTENSORS; t++)
		*of[t] = srt_view(buffers[t], 0, c.dtype);
	if (c.packed)
		srt_attention_packed(&c.shape, &v, v.q, v.dq);
	for (int t = Q; t <= DOUT; t++)
		copy(&c, buffers, t, 1);
	CHECK_OK_OR_DIE(srt_op_attention_scratch(device, &c.shape, &nbytes));
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, "scratch", &scratch));
	nbytes = (size_t)(c.shape.batch * c.shape.heads * c.shape.queries) * 2 * sizeof(float);
	CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, "stats", &stats));
	v.stats = srt_view(stats, 0, SRT_F32);
	v.scratch = srt_view(scratch, 0, SRT_F32);
	if (f)
		f->reset();
	CHECK_OK(srt_op_attention(stream, &c.shape, &v));
	CHECK_OK(srt_op_attention_backward(stream, &c.shape, &v));
	CHECK_OK(srt_stream_sync(stream));
	if (f)
		CHECK_INT(fast_launches(), launches);
	reference(&c);
	for (int t = OUT; t < NTENSORS; t++) {
		copy(&c, buffers, t, 0);
		compare(&c, t);
	}
	for (int t = 0; t < NTENSORS; t++)
		srt_buffer_destroy(buffers[t]);
	srt_buffer_destroy(stats);
	srt_buffer_destroy(scratch);
}

static test_case_t of(int64_t queries, int64_t keys, int64_t head_dim, int causal,
		      srt_dtype_t dtype)
{
	return (test_case_t){ .shape = { .batch = 1,
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
	const srt_attention_t shape = of(4, 4, 64, 0, SRT_BF16).shape;
	const size_t nbytes = (size_t)(4 * shape.heads * shape.head_dim * 2);
	srt_view_t views[NTENSORS];
	srt_buffer_t *buffers[NTENSORS], *stats, *scratch;
	srt_attention_views_t v;
	size_t scratch_nbytes;

	for (int t = 0; t < NTENSORS; t++) {
		CHECK_OK_OR_DIE(
			srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, names[t], &buffers[t]));
		views[t] = srt_view(buffers[t], 0, SRT_BF16);
	}
	CHECK_OK_OR_DIE(srt_op_attention_scratch(device, &shape, &scratch_nbytes));
	CHECK_OK_OR_DIE(
		srt_buffer_create(device, SRT_MEM_DEVICE, scratch_nbytes, "scratch", &scratch));
	f->fail_call("cuMemHostRegister", 1, CUDA_ERROR_NOT_SUPPORTED);
	CHECK_OK_OR_DIE(srt_buffer_wrap_host(device, host, sizeof(host), 0, "stats", &stats));
	CHECK_STR(f->failed(), "cuMemHostRegister");
	v = (srt_attention_views_t){ .q = views[Q],
				     .k = views[K],
				     .v = views[V],
				     .dout = views[DOUT],
				     .out = views[OUT],
				     .dq = views[DQ],
				     .dk = views[DK],
				     .dv = views[DV],
				     .stats = srt_view(stats, 0, SRT_F32),
				     .scratch = srt_view(scratch, 0, SRT_F32) };
	CHECK_OK(srt_stream_sync(stream));
	f->reset();
	CHECK_STATUS(srt_op_attention(stream, &shape, &v), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is in host memory that CUDA device");
	CHECK_STATUS(srt_op_attention_backward(stream, &shape, &v), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("is in host memory that CUDA device");
	CHECK_OK(srt_stream_sync(stream));
	CHECK_INT(fast_launches(), 0);
	for (int t = 0; t < NTENSORS; t++)
		srt_buffer_destroy(buffers[t]);
	srt_buffer_destroy(stats);
	srt_buffer_destroy(scratch);
}

/* Numerics is fast by default where it can be had. */
static srt_context_t *open_context(void)
{
	const srt_context_options_t options = { .numerics = SRT_NUMERICS_DEFAULT };
	srt_context_t *context;

	setenv("SHARDRT_BACKEND", "cuda", 1);
	unsetenv("SHARDRT_NUMERICS");
	/* No other kernels in the place of those that are tested here. */
	setenv("SHARDRT_CUDA_TUNED", "tiled", 1);
	if (!on_device())
		fake_cublaslt_load();
	CHECK_OK_OR_DIE(srt_context_create(&options, &context));
	if (on_device() && srt_context_numerics(context) != SRT_NUMERICS_FAST) {
		printf("SKIP: no numerics fast on this device: SHARDRT_LOG=info says why\n");
		exit(77);
	}
	CHECK_INT(srt_context_numerics(context), SRT_NUMERICS_FAST);
	return context;
}

int main(void)
{
	srt_context_t *context = open_context();
	test_case_t c;

	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	run(of(70, 70, 64, 1, SRT_BF16), TRIAL + 3);
	run(of(130, 130, 64, 1, SRT_F16), TRIAL + 3);
	run(of(33, 100, 64, 0, SRT_F16), 3);
	run(of(100, 33, 64, 1, SRT_BF16), 3); /* keys end before the queries do */
	run(of(20, 90, 128, 1, SRT_BF16), 3); /* and keys that nobody sees */
	run(of(66, 40, 128, 0, SRT_F16), 3);
	run(of(1, 1, 64, 1, SRT_F16), 3);
	c = of(65, 65, 64, 1, SRT_BF16);
	c.packed = 1;
	c.shape.batch = 2;
	run(c, 3);
	c = of(70, 100, 64, 0, SRT_BF16); /* queries whose first tile has no weight */
	c.hidden = 70;
	run(c, 3);
	/* For the exact kernels: another head_dim. */
	run(of(10, 10, 32, 1, SRT_BF16), 0);
	c = of(10, 10, 64, 1, SRT_BF16);
	c.shape.heads = 1;
	run(c, 3);
	if (f)
		test_unseen_statistics();
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	if (f)
		CHECK_STR(f->complaint(), "");
	return check_done();
}
