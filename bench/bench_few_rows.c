/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Products x W^T of a few rows x, as in decoding a language model, compared with a plain sum over
 * W's memory in the same run: GB/s of W of both, and their quotient. Products and sums alternate;
 * the best of each counts. Wall-clock times; small W stay in the caches.
 *
 *     bench/bench_few_rows [avx512|avx2|baseline] [rounds] [threads]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/cpu/matmul.h"
#include "backends/cpu/pool.h"
#include "kernels/cpu.h"

#define THREADS_MAX 64

typedef uint64_t block_t __attribute__((vector_size(16)));

typedef struct job {
	const srt_cpu_gemm_t *gemm;
	srt_cpu_matmul_t mm;
	char *scratch;
	size_t scratch_nbytes, w_nbytes;
	int nparts;
	block_t sums[THREADS_MAX];
} job_t;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void multiply_part(void *arg, int64_t first, int64_t end, int thread)
{
	const job_t *job = arg;

	for (int64_t part = first; part < end; part++)
		srt_cpu_matmul(job->gemm, &job->mm, (int)part, job->nparts,
			       job->scratch + (size_t)thread * job->scratch_nbytes);
}

static void sum_part(void *arg, int64_t first, int64_t end, int thread)
{
	job_t *job = arg;
	const size_t n = job->w_nbytes / sizeof(block_t) / (size_t)job->nparts;
	const block_t *p = (const block_t *)job->mm.b + (size_t)first * n;
	block_t s[4] = { { 0 } };

	for (size_t i = 0; i + 3 < n * (size_t)(end - first); i += 4) {
		s[0] += p[i];
		s[1] += p[i + 1];
		s[2] += p[i + 2];
		s[3] += p[i + 3];
	}
	job->sums[thread] += s[0] + s[1] + s[2] + s[3];
}

/* Best seconds of one run of each. */
static void measure(srt_cpu_pool_t *pool, job_t *job, int rounds, double *product, double *sum)
{
	const int repeats = 1 + (int)(2e7 / (double)job->w_nbytes);

	*product = *sum = HUGE_VAL;
	for (int round = 0; round < rounds; round++) {
		double t0 = now(), t1, t2;

		for (int i = 0; i < repeats; i++)
			srt_cpu_pool_run(pool, multiply_part, job, job->nparts, 1);
		t1 = now();
		for (int i = 0; i < repeats; i++)
			srt_cpu_pool_run(pool, sum_part, job, job->nparts, 1);
		t2 = now();
		*product = fmin(*product, (t1 - t0) / repeats);
		*sum = fmin(*sum, (t2 - t1) / repeats);
	}
}

/* Memory of numbers near 1, in f32, f16 and bf16. */
static void *fill(size_t nbytes)
{
	uint16_t *p = aligned_alloc(64, (nbytes + 63) / 64 * 64);

	for (size_t i = 0; p != NULL && i < nbytes / 2; i++)
		p[i] = (uint16_t)(0x3c00 + rand() % 0x380);
	return p;
}

static int bench_shape(const srt_cpu_gemm_t *gemm, srt_cpu_pool_t *pool, int rounds,
		       srt_dtype_t dtype, int64_t n, int64_t k)
{
	static const int64_t rows[] = { 1, 2, 4, 8, 16 };
	const size_t size = dtype == SRT_F32 ? 4 : 2;
	job_t job = { .gemm = gemm, .nparts = srt_cpu_pool_threads(pool) };
	void *a = fill(16 * (size_t)k * size), *c = fill(16 * (size_t)n * size);
	int failed;

	job.w_nbytes = (size_t)(n * k) * size;
	job.mm = (srt_cpu_matmul_t){ .dtype = dtype, .a = a, .b = fill(job.w_nbytes), .c = c };
	failed = a == NULL || c == NULL || job.mm.b == NULL;
	for (size_t i = 0; !failed && i < sizeof(rows) / sizeof(rows[0]); i++) {
		double product, sum;

		job.mm.shape = (srt_k_matmul_t){ .m = rows[i],
						 .n = n,
						 .k = k,
						 .trans_b = 1,
						 .lda = k,
						 .ldb = k,
						 .ldc = n,
						 .alpha = 1.0f };
		job.scratch_nbytes = srt_cpu_matmul_scratch(gemm, &job.mm, job.nparts);
		job.scratch = aligned_alloc(64, job.scratch_nbytes * (size_t)job.nparts + 64);
		if (job.scratch == NULL)
			return 1;
		measure(pool, &job, rounds, &product, &sum);
		printf("%-4s %2d x %5d x %4d, %d threads: %6.2f, sum %6.2f GB/s: %5.3f\n",
		       dtype == SRT_F32 ? "f32" : "bf16", (int)rows[i], (int)n, (int)k, job.nparts,
		       (double)job.w_nbytes / product * 1e-9, (double)job.w_nbytes / sum * 1e-9,
		       sum / product);
		fflush(stdout);
		free(job.scratch);
	}
	free(a);
	free(c);
	free((void *)(uintptr_t)job.mm.b);
	return failed;
}

int main(int argc, char **argv)
{
	static const int64_t shapes[][2] = {
		{ 576, 576 }, { 1536, 576 }, { 576, 1536 }, { 49152, 576 }, { 4096, 4096 }
	};
	const int rounds = argc > 2 ? atoi(argv[2]) : 5, threads = argc > 3 ? atoi(argv[3]) : 1;
	const srt_cpu_gemm_t *gemm = srt_cpu_gemm_find(argc > 1 ? argv[1] : "avx512");
	srt_cpu_pool_t *pool;

	if (gemm == NULL || threads < 1 || threads > THREADS_MAX ||
	    srt_cpu_pool_create(threads, true, &pool) != SRT_OK) {
		fprintf(stderr, "bench_few_rows: wrong arguments\n");
		return 1;
	}
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		for (int bf16 = 0; bf16 < 2; bf16++)
			if (bench_shape(gemm, pool, rounds, bf16 ? SRT_BF16 : SRT_F32, shapes[i][0],
					shapes[i][1])) {
				fprintf(stderr, "bench_few_rows: out of memory\n");
				return 1;
			}
	srt_cpu_pool_destroy(pool);
	return 0;
}
