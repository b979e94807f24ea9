/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU backend's matrix product of floats compared with that of f16 and bf16, with OpenBLAS and
 * with oneDNN, one thread, one run: the products of a training step of nano, char and gpt2-124m
 * (forward x W^T, backward dy W and dy^T x). All alternate, so that a change of the machine's load
 * affects all; the best of each counts.
 *
 *     bench/bench_matmul [all|avx512|avx2|baseline] [rounds]
 *
 * all, the default if the processor has AVX-512: ours with AVX-512 compared with oneDNN, and ours
 * with AVX2 compared with OpenBLAS limited to AVX2. avx2 limits both libraries to AVX2. fast: the
 * products of numerics mode fast (backends/cpu/onednn.h), of floats and of bf16, with AVX-512.
 *
 * The libraries are loaded if they are installed; this project does not need them. A third
 * argument, the name of a backend, adds that backend's srt_op_matmul() on the device of
 * SHARDRT_DEVICE, and all times are wall-clock times (else thread times, which other programs
 * affect less). For one core of PoCL:
 *
 *     POCL_MAX_PTHREAD_COUNT=1 bench/bench_matmul avx512 9 opencl
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shardrt/ops.h>

#include "device/device.h"
#include "backends/cpu/matmul.h"
#include "backends/cpu/onednn.h"
#include "kernels/cpu.h"

/* cblas_sgemm and dnnl_sgemm (row-major), as their headers declare them. */
typedef void cblas_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
		      int lda, const float *b, int ldb, float beta, float *c, int ldc);
typedef int dnnl_fn(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
		    int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

enum { OURS, F16, BF16, FAST, FAST_BF16, AVX2, OPENBLAS, ONEDNN, DEVICE, NLIBS };

typedef struct bench {
	const srt_cpu_gemm_t *gemm;
	const srt_cpu_gemm_t *avx2; /* the AVX2 kernel to compare with OpenBLAS, or NULL */
	void *scratch;
	srt_cpu_onednn_t *fast; /* or NULL */
	srt_cpu_pool_t *pool;   /* of one thread, for it */
	void *half[3]; /* memory for a, b, c in 16 bits: small numbers in f16 and in bf16 */
	cblas_fn *cblas;
	dnnl_fn *dnnl;
	srt_device_t *device; /* of another backend, or NULL */
	srt_stream_t *stream;
	srt_buffer_t *buffers[3]; /* a, b, c on the device */
	clockid_t clock;
	int rounds;
	double log_ratio
		[NLIBS]; /* of ours, to the library, in speed; 16 bits: of its time to floats' */
	double extreme[NLIBS]; /* the worst */
	int count;
} bench_t;

static double read_clock(const bench_t *b)
{
	struct timespec t;

	clock_gettime(b->clock, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 1 if it failed; the message is the last error. */
static int run_on_device(const bench_t *b, const srt_cpu_matmul_t *mm)
{
	return srt_op_matmul(
		       &(srt_matmul_t){
			       .size = sizeof(srt_matmul_t),
			       .batch = 1,
			       .alpha = 1.0f,
			       .m = mm->shape.m,
			       .n = mm->shape.n,
			       .k = mm->shape.k,
			       .trans_a = mm->shape.trans_a,
			       .trans_b = mm->shape.trans_b,
			       .a = srt_view(b->buffers[0], 0, SRT_F32),
			       .b = srt_view(b->buffers[1], 0, SRT_F32),
			       .c = srt_view(b->buffers[2], 0, SRT_F32),
			       .lda = mm->shape.lda,
			       .ldb = mm->shape.ldb,
			       .ldc = mm->shape.ldc,
		       },
		       b->stream) != SRT_OK;
}

/* 1 if it failed. */
static int run_type(const bench_t *b, int lib, srt_cpu_matmul_t mm)
{
	if (lib != FAST) {
		mm.dtype = lib == F16 ? SRT_F16 : SRT_BF16;
		mm.a = b->half[0];
		mm.b = b->half[1];
		mm.c = b->half[2];
	}
	if (lib == FAST || lib == FAST_BF16)
		return srt_cpu_onednn_matmul(b->fast, b->pool, &mm, b->scratch) != SRT_OK;
	srt_cpu_matmul(b->gemm, &mm, 0, 1, b->scratch);
	return 0;
}

static int run_product(const bench_t *b, int lib, const srt_cpu_matmul_t *mm)
{
	int m = (int)mm->shape.m, n = (int)mm->shape.n, k = (int)mm->shape.k;
	int lda = (int)mm->shape.lda, ldb = (int)mm->shape.ldb;

	if (lib == OURS)
		srt_cpu_matmul(b->gemm, mm, 0, 1, b->scratch);
	else if (lib <= FAST_BF16)
		return run_type(b, lib, *mm);
	else if (lib == AVX2)
		srt_cpu_matmul(b->avx2, mm, 0, 1, b->scratch);
	else if (lib == OPENBLAS)
		b->cblas(101, mm->shape.trans_a ? 112 : 111, mm->shape.trans_b ? 112 : 111, m, n, k,
			 1.0f, mm->a, lda, mm->b, ldb, 0.0f, mm->c, n);
	else if (lib == DEVICE)
		return run_on_device(b, mm);
	else
		b->dnnl(mm->shape.trans_a ? 'T' : 'N', mm->shape.trans_b ? 'T' : 'N', m, n, k, 1.0f,
			mm->a, lda, mm->b, ldb, 0.0f, mm->c, n);
	return 0;
}

static int is_present(const bench_t *b, int lib)
{
	return lib <= BF16 || (lib <= FAST_BF16 && b->fast != NULL) ||
	       (lib == AVX2 && b->avx2 != NULL) || (lib == OPENBLAS && b->cblas != NULL) ||
	       (lib == ONEDNN && b->dnnl != NULL) || (lib == DEVICE && b->device != NULL);
}

/* The operands on the device; 1 if that failed. */
static int put_on_device(bench_t *b, const srt_cpu_matmul_t *mm)
{
	const float *host[3] = { mm->a, mm->b, mm->c };
	const int64_t n[3] = { mm->shape.m * mm->shape.k, mm->shape.n * mm->shape.k,
			       mm->shape.m * mm->shape.n };

	for (int i = 0; b->device != NULL && i < 3; i++) {
		size_t nbytes = (size_t)n[i] * sizeof(float);

		if (srt_buffer_create(b->device, SRT_MEM_DEVICE, nbytes, "operand",
				      &b->buffers[i]) != SRT_OK ||
		    srt_buffer_copy_from_host(b->buffers[i], 0, host[i], nbytes, b->stream) !=
			    SRT_OK)
			return 1;
	}
	return 0;
}

/* Best seconds of one product by each; 1 if one failed. */
static int measure_product(bench_t *b, const srt_cpu_matmul_t *mm, int repeats, double best[NLIBS])
{
	for (int lib = 0; lib < NLIBS; lib++)
		best[lib] = HUGE_VAL;
	for (int round = 0; round < b->rounds; round++) {
		for (int lib = 0; lib < NLIBS; lib++) {
			double t = read_clock(b);

			if (!is_present(b, lib))
				continue;
			for (int i = 0; i < repeats; i++)
				if (run_product(b, lib, mm))
					return 1;
			if (lib == DEVICE && srt_stream_sync(b->stream) != SRT_OK)
				return 1;
			t = (read_clock(b) - t) / repeats;
			best[lib] = t < best[lib] ? t : best[lib];
		}
	}
	return 0;
}

static float *fill_numbers(int64_t n)
{
	float *p = aligned_alloc(64, ((size_t)n * sizeof(*p) + 63) / 64 * 64);

	for (int64_t i = 0; p != NULL && i < n; i++)
		p[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
	return p;
}

/* Memory of 16-bit numbers near 1 of either type. */
static void *fill_halves(int64_t n)
{
	uint16_t *p = aligned_alloc(64, ((size_t)n * sizeof(*p) + 63) / 64 * 64);

	for (int64_t i = 0; p != NULL && i < n; i++)
		p[i] = (uint16_t)(0x3c00 + rand() % 0x380);
	return p;
}

static size_t scratch_nbytes(const bench_t *b, srt_cpu_matmul_t mm)
{
	size_t own = srt_cpu_matmul_scratch(b->gemm, &mm, 1);
	size_t avx2 = b->avx2 != NULL ? srt_cpu_matmul_scratch(b->avx2, &mm, 1) : 0, half;

	mm.dtype = SRT_F16;
	half = srt_cpu_matmul_scratch(b->gemm, &mm, 1);
	own = own > half ? own : half;
	mm.dtype = SRT_F32;
	half = b->fast != NULL ? srt_cpu_onednn_scratch(&mm) : 0;
	own = own > half ? own : half;
	return (own > avx2 ? own : avx2) / 64 * 64 + 64;
}

/* GFLOP/s of all, and ours over each library's. */
static void print_shape(bench_t *b, const char *model, const srt_cpu_matmul_t *mm,
			const double best[NLIBS])
{
	double flops = 2.0 * (double)mm->shape.m * (double)mm->shape.n * (double)mm->shape.k;

	printf("%-10s %c%c %6d x %5d x %5d", model, mm->shape.trans_a ? 'T' : 'N',
	       mm->shape.trans_b ? 'T' : 'N', (int)mm->shape.m, (int)mm->shape.n, (int)mm->shape.k);
	for (int lib = 0; lib < NLIBS; lib++)
		if (is_present(b, lib))
			printf(" %9.1f", flops / best[lib] * 1e-9);
	for (int lib = F16; lib < NLIBS; lib++) {
		double ratio = best[lib] / best[lib == OPENBLAS && b->avx2 != NULL ? AVX2 : OURS];
		double last = b->extreme[lib];

		if (!is_present(b, lib) || lib == AVX2)
			continue;
		printf(" %9.3f", ratio);
		b->log_ratio[lib] += log(ratio);
		if (b->count == 0 || (lib <= FAST_BF16 ? ratio > last : ratio < last))
			b->extreme[lib] = ratio;
	}
	printf("\n");
	b->count++;
}

/* Measures and prints a shape; 0 or 1 if memory ran out or the device failed. */
static int bench_shape(bench_t *b, const char *model, srt_cpu_matmul_t mm)
{
	double flops = 2.0 * (double)mm.shape.m * (double)mm.shape.n * (double)mm.shape.k,
	       best[NLIBS];
	int repeats = 1 + (int)(1e8 / flops), failed;
	float *x = fill_numbers(mm.shape.m * mm.shape.k),
	      *y = fill_numbers(mm.shape.n * mm.shape.k),
	      *z = fill_numbers(mm.shape.m * mm.shape.n);
	const int64_t nelem[3] = { mm.shape.m * mm.shape.k, mm.shape.n * mm.shape.k,
				   mm.shape.m * mm.shape.n };

	for (int i = 0; i < 3; i++)
		b->half[i] = fill_halves(nelem[i]);
	mm.shape.lda = mm.shape.trans_a ? mm.shape.m : mm.shape.k;
	mm.shape.ldb = mm.shape.trans_b ? mm.shape.k : mm.shape.n;
	mm.shape.ldc = mm.shape.n;
	mm.a = x;
	mm.b = y;
	mm.c = z;
	b->scratch = aligned_alloc(64, scratch_nbytes(b, mm));
	failed = x == NULL || y == NULL || z == NULL || b->half[0] == NULL || b->half[1] == NULL ||
		 b->half[2] == NULL || b->scratch == NULL || put_on_device(b, &mm) ||
		 measure_product(b, &mm, repeats, best);
	if (!failed)
		print_shape(b, model, &mm, best);
	for (int i = 0; i < 3; i++) {
		srt_buffer_destroy(b->buffers[i]);
		b->buffers[i] = NULL;
		free(b->half[i]);
	}
	free(x);
	free(y);
	free(z);
	free(b->scratch);
	return failed;
}

static int bench_model(bench_t *b, const char *model, int64_t rows, int64_t d)
{
	const int64_t in_out[][2] = {
		{ d, 3 * d }, { d, d }, { d, 4 * d }, { 4 * d, d }, { d, 256 }
	};
	int failed = 0;

	for (size_t i = 0; i < sizeof(in_out) / sizeof(in_out[0]); i++) {
		int64_t in = in_out[i][0], out = in_out[i][1];

		failed |= bench_shape(b, model,
				      (srt_cpu_matmul_t){ .dtype = SRT_F32,
							  .shape.alpha = 1.0f,
							  .shape.m = rows,
							  .shape.n = out,
							  .shape.k = in,
							  .shape.trans_b = 1 });
		failed |= bench_shape(b, model,
				      (srt_cpu_matmul_t){ .dtype = SRT_F32,
							  .shape.m = rows,
							  .shape.n = in,
							  .shape.k = out,
							  .shape.alpha = 1.0f });
		failed |= bench_shape(b, model,
				      (srt_cpu_matmul_t){ .dtype = SRT_F32,
							  .shape.alpha = 1.0f,
							  .shape.m = out,
							  .shape.n = in,
							  .shape.k = rows,
							  .shape.trans_a = 1 });
	}
	return failed;
}

/* A function of a library that may be missing. */
static void load_library(const char *library, const char *symbol, void *function)
{
	void *handle = dlopen(library, RTLD_NOW);
	void *address = handle != NULL ? dlsym(handle, symbol) : NULL;

	memcpy(function, &address, sizeof(address));
}

static int open_device(bench_t *b, const char *backend)
{
	srt_device_request_t request = { .selector = srt_config_string("SHARDRT_DEVICE"),
					 .local_size = 1,
					 .threads = 1,
					 .exact = 1 };

	b->clock = CLOCK_MONOTONIC;
	return srt_device_open(backend, &request, SRT_NUMERICS_EXACT, &b->device) != SRT_OK ||
	       srt_stream_create(b->device, 0, "bench", &b->stream) != SRT_OK;
}

static void print_head(const bench_t *b, const char *isa, const char *device)
{
	const char *const names[NLIBS] = { isa,    "f16",      "bf16",   "fast", "fast bf16",
					   "avx2", "OpenBLAS", "oneDNN", device };
	const char *const ratios[NLIBS] = {
		[F16] = "f16/f32",         [BF16] = "bf16/f32",      [FAST] = "fast/f32",
		[FAST_BF16] = "fbf16/f32", [OPENBLAS] = "/OpenBLAS", [ONEDNN] = "/oneDNN",
		[DEVICE] = "time",
	};

	printf("GFLOP/s of one thread; ours:     ");
	for (int lib = 0; lib < NLIBS; lib++)
		if (is_present(b, lib))
			printf(" %9s", names[lib]);
	for (int lib = 0; lib < NLIBS; lib++)
		if (is_present(b, lib) && ratios[lib] != NULL)
			printf(" %9s", ratios[lib]);
	printf("\n");
}

static void print_means(const bench_t *b, const char *isa, const char *device)
{
	const char *const names[NLIBS] = { "", "f16",      "bf16",   "fast f32", "fast bf16",
					   "", "OpenBLAS", "oneDNN", device };

	for (int lib = F16; lib <= FAST_BF16; lib++)
		if (is_present(b, lib))
			printf("time of %s / f32 with %s: geometric mean %.3f, most %.3f\n",
			       names[lib], isa, exp(b->log_ratio[lib] / b->count), b->extreme[lib]);
	for (int lib = OPENBLAS; lib < NLIBS; lib++)
		if (is_present(b, lib))
			printf("%s%s, ours with %s: geometric mean %.3f, least %.3f\n",
			       lib == DEVICE ? "time of " : "ours / ", names[lib],
			       lib == OPENBLAS && b->avx2 != NULL ? "avx2" : isa,
			       exp(b->log_ratio[lib] / b->count), b->extreme[lib]);
}

int main(int argc, char **argv)
{
	bench_t b = { .rounds = argc > 2 ? atoi(argv[2]) : 5, .clock = CLOCK_THREAD_CPUTIME_ID };
	int all = argc < 2 || strcmp(argv[1], "all") == 0, isa = SRT_ISA_COUNT - 1;
	const char *name, *device = argc > 3 ? argv[3] : "";

	while (isa > 0 && (!srt_cpu_isa_usable((srt_cpu_isa_t)isa) ||
			   (!all && strcmp(argv[1], srt_cpu_isa_name((srt_cpu_isa_t)isa)))))
		isa--;
	name = srt_cpu_isa_name((srt_cpu_isa_t)isa);
	b.gemm = srt_cpu_gemm_find(name);
	if (all && strcmp(name, "avx512") == 0)
		b.avx2 = srt_cpu_gemm_find("avx2");
	setenv("OMP_NUM_THREADS", "1", 1);
	setenv("OPENBLAS_NUM_THREADS", "1", 1);
	if (b.avx2 != NULL || strcmp(name, "avx2") == 0)
		setenv("OPENBLAS_CORETYPE", "Haswell", 0);
	if (strcmp(name, "avx2") == 0)
		setenv("DNNL_MAX_CPU_ISA", "AVX2", 0);
	load_library("libopenblas.so.0", "cblas_sgemm", &b.cblas);
	load_library("libdnnl.so.2", "dnnl_sgemm", &b.dnnl);
	if (argc > 3 && open_device(&b, device)) {
		fprintf(stderr, "bench_matmul: %s\n", srt_error_last());
		return 1;
	}
	if (!strcmp(name, "avx512") && srt_cpu_pool_create(1, false, &b.pool) == SRT_OK)
		b.fast = srt_cpu_onednn_open();
	print_head(&b, name, device);
	if (b.gemm == NULL || bench_model(&b, "nano", 384, 128) ||
	    bench_model(&b, "char", 1536, 384) || bench_model(&b, "gpt2-124m", 256, 768)) {
		fprintf(stderr, "bench_matmul: %s\n",
			b.device != NULL ? srt_error_last() : "out of memory");
		return 1;
	}
	print_means(&b, name, device);
	srt_cpu_onednn_close(b.fast);
	srt_cpu_pool_destroy(b.pool);
	srt_stream_destroy(b.stream);
	if (b.device != NULL)
		srt_device_close(b.device);
	return 0;
}
