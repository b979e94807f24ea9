/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/device/cuda_fast.h"

#include <math.h>

#include "tests/harness/half.h"
#include "tests/harness/random.h"

enum { C, A, B, BIAS, NTENSORS, PADDED = MOST + 64 };

srt_context_t *fast_context;
srt_device_t *fast_device;
srt_stream_t *fast_stream;
static srt_buffer_t *buffers[NTENSORS];
static float values[NTENSORS][MOST]; /* as stored: rounded to the type */
char fast_logged[8192];

static void fast_keep_log(srt_log_level_t level, const char *message, void *arg)
{
	(void)arg;
	(void)level;
	strncat(fast_logged, message, sizeof(fast_logged) - strlen(fast_logged) - 1);
	strncat(fast_logged, "\n", sizeof(fast_logged) - strlen(fast_logged) - 1);
}

void fast_start(bool fakes)
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

void fast_open(srt_numerics_t numerics)
{
	const srt_context_options_t options = { .size = sizeof(options), .numerics = numerics };

	fast_logged[0] = 0;
	CHECK_OK_OR_DIE(srt_context_create(&options, &fast_context));
	fast_device = srt_context_device(fast_context);
	CHECK_OK_OR_DIE(srt_stream_create(fast_device, 0, "compute", &fast_stream));
	for (int i = 0; i < NTENSORS; i++)
		CHECK_OK_OR_DIE(srt_buffer_create(fast_device, SRT_MEM_DEVICE,
						  PADDED * sizeof(float), "tensor", &buffers[i]));
}

void fast_close(void)
{
	for (int i = 0; i < NTENSORS; i++)
		srt_buffer_destroy(buffers[i]);
	srt_stream_destroy(fast_stream);
	srt_context_destroy(fast_context);
	if (lt == NULL)
		return;
	CHECK_INT(lt->live(), 0);
	CHECK_STR(lt->complaint(), "");
	CHECK_INT(f->leaks(), 0);
	CHECK_STR(f->complaint(), "");
}

product_t product(int64_t m, int64_t n, int64_t k, int bits, int64_t gap, srt_dtype_t dtype)
{
	srt_matmul_t mm = { .size = sizeof(srt_matmul_t),
			    .batch = 1,
			    .alpha = 1.0f,
			    .m = m,
			    .n = n,
			    .k = k,
			    .trans_a = bits & 1,
			    .trans_b = bits >> 1 & 1 };

	mm.accumulate = bits >> 3 & 1;
	mm.lda = (mm.trans_a ? m : k) + gap;
	mm.ldb = (mm.trans_b ? k : n) + gap;
	mm.ldc = n + gap;
	return (product_t){ .mm = mm, .dtype = dtype, .bias = bits >> 2 & 1 };
}

static srt_dtype_t type_of(const product_t *p, int tensor)
{
	return tensor == C && p->c_dtype ? p->c_dtype : p->dtype;
}

static srt_view_t view_of(const product_t *p, int tensor)
{
	const srt_dtype_t dtype = type_of(p, tensor);

	return srt_view(buffers[tensor], (size_t)p->first * srt_dtype_bits(dtype) / 8, dtype);
}

srt_matmul_t product_views(const product_t *p)
{
	srt_matmul_t mm = p->mm;

	mm.c = view_of(p, C);
	mm.a = view_of(p, A);
	mm.b = view_of(p, B);
	if (p->bias)
		mm.bias = view_of(p, BIAS);
	return mm;
}

void product_upload(const product_t *p)
{
	static unsigned char bytes[PADDED * sizeof(float)];

	for (int t = 0; t < NTENSORS; t++) {
		for (int i = 0; i < MOST; i++) {
			values[t][i] = half_round(type_of(p, t), random_float());
			half_put(type_of(p, t), bytes, (size_t)(p->first + i), values[t][i]);
		}
		CHECK_OK_OR_DIE(srt_buffer_copy_from_host(buffers[t], 0, bytes, sizeof(bytes),
							  fast_stream));
	}
}

void product_download(const product_t *p, float *c)
{
	static unsigned char bytes[PADDED * sizeof(float)];

	CHECK_OK(srt_buffer_copy_to_host(bytes, buffers[C], 0, sizeof(bytes), fast_stream));
	for (int i = 0; i < MOST; i++)
		c[i] = half_get(type_of(p, C), bytes, (size_t)(p->first + i));
}

double product_error(const product_t *p, const float *c, double operands, int times)
{
	const srt_matmul_t *mm = &p->mm;
	const double alpha = (double)mm->alpha;
	const srt_dtype_t dtype = type_of(p, C);
	const double unit = dtype == SRT_F32 ? 0x1p-24 : dtype == SRT_F16 ? 0x1p-11 : 0x1p-8;
	/* cuBLASLt's products of a few rows round before they add the bias, and C. */
	const int roundings = times + (p->bias && mm->accumulate);
	const int64_t items = mm->batch;
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
			((double)(mm->k + 2) * 0x1p-24 + unit * roundings + 2 * operands);
		error = fabs((double)c[at] - sum) / bound;
		most = error > most || isnan(error) ? error : most;
	}
	return most;
}

/* What lies between the rows of C stays. */
static int product_gaps_stay(const product_t *p, const float *c)
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

void product_check(const product_t *p, long computed)
{
	static float c[MOST];
	const srt_matmul_t mm = product_views(p);
	const long before = lt != NULL ? lt->computed() : 0;
	double error;

	product_upload(p);
	CHECK_OK(srt_op_matmul(&mm, fast_stream));
	product_download(p, c);
	error = product_error(p, c, 0, 1);
	CHECK_MSG(error <= 1.0, "%lld x %lld x %lld, type %d to %d: error %g of the bound",
		  (long long)mm.m, (long long)mm.n, (long long)mm.k, (int)p->dtype, (int)mm.c.dtype,
		  error);
	CHECK(product_gaps_stay(p, c));
	if (lt != NULL)
		CHECK_INT(lt->computed() - before, computed);
}
