/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Products in numerics mode fast on cuda, against sums in double: a context whose log is kept, four
 * tensors of random values, and a product of them, as a program does it. Used by
 * test_cuda_fast_products.c and test_cuda_fast_calls.c.
 */
#ifndef SRT_TESTS_CUDA_FAST_H
#define SRT_TESTS_CUDA_FAST_H

#include <math.h>
#include <stdlib.h>

#include "tests/device/fake_cublaslt.h"
#include "tests/harness/half.h"
#include "tests/harness/random.h"

#include <shardrt/shardrt.h>

#define MOST 4096 /* elements of a tensor */
#define ROOM (MOST + 64)
enum { C, A, B, BIAS, NTENSORS };

static srt_context_t *context;
static srt_device_t *device;
static srt_stream_t *stream;
static srt_buffer_t *buffers[NTENSORS];
static float values[NTENSORS][MOST]; /* as stored: rounded to the type */
static char logged[8192];

static inline void fast_keep_log(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	(void)level;
	strncat(logged, message, sizeof(logged) - strlen(logged) - 1);
	strncat(logged, "\n", sizeof(logged) - strlen(logged) - 1);
}

/* To be called first. Without the fakes on what the machine has. */
static inline void fast_start(bool fakes)
{
	srt_log_set(fast_keep_log, SRT_LOG_INFO, NULL);
	setenv("SHARDRT_BACKEND", "cuda", 1);
	unsetenv("SHARDRT_NUMERICS");
	unsetenv("SHARDRT_CUDA_FP32");
	if (!fakes)
		return;
	fake_cublaslt_load();
	f->set("delay_us", 10);
}

static inline void fast_open(srt_numerics_t numerics)
{
	const srt_context_options_t options = { .numerics = numerics };

	logged[0] = 0;
	CHECK_OK_OR_DIE(srt_context_create(&options, &context));
	device = srt_context_device(context);
	CHECK_OK_OR_DIE(srt_stream_create(device, 0, "compute", &stream));
	for (int i = 0; i < NTENSORS; i++)
		CHECK_OK_OR_DIE(srt_buffer_create(device, SRT_MEM_DEVICE, ROOM * sizeof(float),
						  "tensor", &buffers[i]));
}

static inline void fast_close(void)
{
	for (int i = 0; i < NTENSORS; i++)
		srt_buffer_destroy(buffers[i]);
	srt_stream_destroy(stream);
	srt_context_destroy(context);
	if (!lt)
		return;
	CHECK_INT(lt->live(), 0);
	CHECK_STR(lt->complaint(), "");
	CHECK_INT(f->leaks(), 0);
	CHECK_STR(f->complaint(), "");
}

/* ---- a product and its reference --------------------------------------------------------- */

typedef struct product {
	srt_matmul_t mm;
	srt_dtype_t dtype;
	int bias, first; /* elements before the first of each tensor */
} product_t;

/* Bits from the lowest: a transposed, b transposed, a bias, accumulated. gap: elements between
 * rows. */
static inline product_t product(int64_t m, int64_t n, int64_t k, int bits, int64_t gap,
				srt_dtype_t dtype)
{
	srt_matmul_t mm = { .m = m, .n = n, .k = k, .trans_a = bits & 1, .trans_b = bits >> 1 & 1 };

	mm.accumulate = bits >> 3 & 1;
	mm.lda = (mm.trans_a ? m : k) + gap;
	mm.ldb = (mm.trans_b ? k : n) + gap;
	mm.ldc = n + gap;
	return (product_t){ .mm = mm, .dtype = dtype, .bias = bits >> 2 & 1 };
}

static inline srt_matmul_t product_views(const product_t *p)
{
	const size_t offset = (size_t)p->first * srt_dtype_bits(p->dtype) / 8;
	srt_matmul_t mm = p->mm;

	mm.c = srt_view(buffers[C], offset, p->dtype);
	mm.a = srt_view(buffers[A], offset, p->dtype);
	mm.b = srt_view(buffers[B], offset, p->dtype);
	if (p->bias)
		mm.bias = srt_view(buffers[BIAS], offset, p->dtype);
	return mm;
}

/* New values of all tensors. */
static inline void product_upload(const product_t *p)
{
	static unsigned char bytes[ROOM * sizeof(float)];

	for (int t = 0; t < NTENSORS; t++) {
		for (int i = 0; i < MOST; i++) {
			values[t][i] = half_round(p->dtype, random_float());
			half_put(p->dtype, bytes, (size_t)(p->first + i), values[t][i]);
		}
		CHECK_OK_OR_DIE(srt_copy_from_host(stream, buffers[t], 0, bytes, sizeof(bytes)));
	}
}

static inline void product_download(const product_t *p, float *c)
{
	static unsigned char bytes[ROOM * sizeof(float)];

	CHECK_OK(srt_copy_to_host(stream, bytes, buffers[C], 0, sizeof(bytes)));
	for (int i = 0; i < MOST; i++)
		c[i] = half_get(p->dtype, bytes, (size_t)(p->first + i));
}

/* Largest error over the bound of fp32 sums in any order and one rounding; `operands` is the
 * relative error of each operand's rounding. `times`: so many products one after the other. */
static inline double product_error(const product_t *p, const float *c, double operands, int times)
{
	const srt_matmul_t *mm = &p->mm;
	const double alpha = mm->alpha != 0.0f ? (double)mm->alpha : 1.0;
	const double unit = p->dtype == SRT_F32 ? 0x1p-24 : p->dtype == SRT_F16 ? 0x1p-11 : 0x1p-8;
	const int64_t items = mm->batch ? mm->batch : 1;
	double most = 0;

	for (int64_t e = 0; e < items * mm->m * mm->n; e++) {
		int64_t item = e / (mm->m * mm->n), i = e / mm->n % mm->m, j = e % mm->n;
		int64_t at = item * mm->stride_c + i * mm->ldc + j;
		double sum = 0, size = 0, bound, error;

		for (int64_t k = 0; k < mm->k; k++) {
			double x = (double)
				values[A][item * mm->stride_a +
					  (mm->trans_a ? k * mm->lda + i : i * mm->lda + k)];
			double y = (double)
				values[B][item * mm->stride_b +
					  (mm->trans_b ? j * mm->ldb + k : k * mm->ldb + j)];

			sum += x * y;
			size += fabs(x * y);
		}
		sum = sum * alpha + (p->bias ? (double)values[BIAS][j] : 0);
		sum = sum * times + (mm->accumulate ? (double)values[C][at] : 0);
		bound = (size * fabs(alpha) + 4) * times *
			((double)(mm->k + 2) * 0x1p-24 + unit * times + 2 * operands);
		error = fabs((double)c[at] - sum) / bound;
		most = error > most || isnan(error) ? error : most;
	}
	return most;
}

/* What lies between the rows of C stays. */
static inline int product_gaps_stay(const product_t *p, const float *c)
{
	const srt_matmul_t *mm = &p->mm;

	if (mm->batch > 1)
		return 1;
	for (int64_t i = 0; i < mm->m; i++)
		for (int64_t j = mm->n; j < mm->ldc; j++)
			if (c[i * mm->ldc + j] != values[C][i * mm->ldc + j])
				return 0;
	return 1;
}

/* One product on new values; computed: how many the fake cuBLASLt has to compute for it. */
static inline void product_check(const product_t *p, long computed)
{
	static float c[MOST];
	const srt_matmul_t mm = product_views(p);
	const long before = lt ? lt->computed() : 0;
	double error;

	product_upload(p);
	CHECK_OK(srt_op_matmul(stream, &mm));
	product_download(p, c);
	error = product_error(p, c, 0, 1);
	CHECK_MSG(error <= 1.0, "%lld x %lld x %lld, type %d: error %g of the bound",
		  (long long)mm.m, (long long)mm.n, (long long)mm.k, (int)p->dtype, error);
	CHECK(product_gaps_stay(p, c));
	if (lt)
		CHECK_INT(lt->computed() - before, computed);
}

#endif
