/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What an NVIDIA GPU and its driver cost, as a base for models of a step's time: without
 * libshardrt, by the driver's and cuBLASLt's own functions.
 *
 *     bench/bench_cuda host        calls of the driver, microseconds: one JSON object
 *     bench/bench_cuda products    the matrix products of a gpt2-124m step with cuBLASLt: CSV rows
 *
 * host: submitting an empty kernel, submitting and waiting for it, recording an event, allocating
 * and freeing 64 MiB, making a context, loading a module, locking 64 MiB of the host's memory,
 * copies of 256 MiB (GB/s; the copy on the device counts bytes read and written).
 *
 * products: m x n x k are row-major C = A B of n columns, in bf16, TF32 and fp32. A row has the
 * microseconds of the first algorithm that cuBLASLt's heuristic gives and of the best of the first
 * eight, with the best one's identifiers. A figure is the median of 3 measurements; a measurement
 * makes calls for about 2 ms. Operands are random, and rotate among copies that exceed the L2
 * cache.
 *
 * SHARDRT_CUDA_DRIVER and SHARDRT_CUBLASLT_LIBRARY name the libraries, as they do for the backend.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cuda_calls.h"

#define WORKSPACE_NBYTES ((size_t)32 << 20)
#define ROTATED_NBYTES ((size_t)192 << 20) /* several times the L2 cache */
#define MOST_ALGORITHMS 8
#define REPEATS 3
#define COPY_NBYTES ((size_t)256 << 20)
#define ALLOC_NBYTES ((size_t)64 << 20)

static int compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), compare_doubles);
	return values[n / 2];
}

/* ---- calls of the driver ----------------------------------------------------------------- */

static const char empty_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
				".visible .entry empty() { ret; }\n";

static CUmodule module;
static CUfunction empty;
static CUdeviceptr memory[2];
static void *host;

static void launch(void)
{
	CU(cuLaunchKernel(empty, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

static void launch_and_wait(void)
{
	launch();
	CU(cuStreamSynchronize(stream));
}

static void record_event(void)
{
	CU(cuEventRecord(before, stream));
}

static void alloc_and_free(void)
{
	CUdeviceptr p;

	CU(cuMemAlloc(&p, ALLOC_NBYTES));
	CU(cuMemFree(p));
}

static void load_module(void)
{
	CUmodule other;

	CU(cuModuleLoadData(&other, empty_ptx));
	CU(cuModuleUnload(other));
}

static void lock_memory(void)
{
	CU(cuMemHostRegister(host, ALLOC_NBYTES, 0));
	CU(cuMemHostUnregister(host));
}

/* Microseconds of the host for a call: the median of REPEATS times, each of `calls`. */
static void measure_call(const char *name, void (*call)(void), int calls)
{
	double times[REPEATS];

	call();
	CU(cuStreamSynchronize(stream));
	for (int r = 0; r < REPEATS; r++) {
		const double start = now_us();

		for (int i = 0; i < calls; i++)
			call();
		times[r] = (now_us() - start) / calls;
		CU(cuStreamSynchronize(stream));
	}
	printf("\"%s_us\": %.2f, ", name, median(times, REPEATS));
}

static void measure_copy(const char *name, CUdeviceptr to, CUdeviceptr from, double bytes)
{
	double times[REPEATS];

	for (int r = -1; r < REPEATS; r++) {
		float ms;

		CU(cuEventRecord(before, stream));
		CU(cuMemcpyAsync(to, from, COPY_NBYTES, stream));
		CU(cuEventRecord(after, stream));
		CU(cuStreamSynchronize(stream));
		CU(cuEventElapsedTime(&ms, before, after));
		if (r >= 0)
			times[r] = (double)ms;
	}
	printf("\"%s_gbps\": %.1f%s", name, 1e-6 * bytes / median(times, REPEATS),
	       strcmp(name, "copy_device") ? ", " : "}\n");
}

static void run_host(void)
{
	host = aligned_alloc(4096, COPY_NBYTES);
	if (host == NULL)
		fail_bench("host", "out of memory");
	memset(host, 1, COPY_NBYTES);
	CU(cuModuleLoadData(&module, empty_ptx));
	CU(cuModuleGetFunction(&empty, module, "empty"));
	for (int i = 0; i < 2; i++)
		CU(cuMemAlloc(&memory[i], COPY_NBYTES));
	printf("{\"context_us\": %.0f, ", context_us);
	measure_call("launch", launch, 500);
	measure_call("launch_wait", launch_and_wait, 200);
	measure_call("event_record", record_event, 500);
	measure_call("alloc_free_64m", alloc_and_free, 10);
	measure_call("module_load", load_module, 5);
	measure_call("host_lock_64m", lock_memory, 3);
	measure_copy("copy_pageable_to_device", memory[0], (CUdeviceptr)(uintptr_t)host,
		     COPY_NBYTES);
	CU(cuMemHostRegister(host, COPY_NBYTES, 0));
	measure_copy("copy_to_device", memory[0], (CUdeviceptr)(uintptr_t)host, COPY_NBYTES);
	measure_copy("copy_from_device", (CUdeviceptr)(uintptr_t)host, memory[0], COPY_NBYTES);
	measure_copy("copy_device", memory[1], memory[0], 2.0 * COPY_NBYTES);
}

/* ---- matrix products --------------------------------------------------------------------- */

/* Row-major: C [m][n] = op(A) op(B), k deep. */
typedef struct product {
	const char *name;
	int64_t m, n, k, lda, ldb, ldc;
	char ta, tb;
	bool accumulate;
} product_t;

#define VOCAB 50257
#define WHOLE 50256 /* of VOCAB what tensor cores can take in 16 bytes */
#define PADDED 50304
/* Products of linear layers: forward x W^T, gradient of x dy W, gradient of W dy^T x. */
#define LINEAR(name, m, n, k)                                                                      \
	{ name " forward", m, n, k, k, k, n, 'N', 'T', false },                                    \
		{ name " dx", m, k, n, n, k, k, 'N', 'N', false },                                 \
	{                                                                                          \
		name " dw", n, k, m, n, k, k, 'T', 'N', false                                      \
	}
/* Products of the head, whose rows of logits are ld apart. */
#define HEAD(name, m, n, ld)                                                                       \
	{ name " forward", m, n, 768, 768, 768, ld, 'N', 'T', false },                             \
		{ name " dx", m, 768, n, ld, 768, 768, 'N', 'N', false },                          \
	{                                                                                          \
		name " dw", n, 768, m, ld, 768, 768, 'T', 'N', true                                \
	}

static const product_t products[] = {
	LINEAR("qkv", 16384, 2304, 768),
	LINEAR("out", 16384, 768, 768),
	LINEAR("up", 16384, 3072, 768),
	LINEAR("down", 16384, 768, 3072),
	HEAD("head 512", 512, VOCAB, VOCAB),
	HEAD("head 512 ld 50304", 512, VOCAB, PADDED),
	HEAD("head 512 n 50304", 512, PADDED, PADDED),
	HEAD("head 4096", 4096, VOCAB, VOCAB),
	HEAD("head 4096 ld 50304", 4096, VOCAB, PADDED),
	HEAD("head 4096 n 50304", 4096, PADDED, PADDED),
	HEAD("head 4096 n 50256", 4096, WHOLE, PADDED),
	HEAD("head 4096 n 1", 4096, 1, PADDED),
	{ "square 8192", 8192, 8192, 8192, 8192, 8192, 8192, 'N', 'T', false },
};

typedef struct type {
	const char *name;
	cudaDataType_t type;
	cublasComputeType_t compute;
	size_t nbytes;
} type_t;

static const type_t types[] = {
	{ "bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2 },
	{ "tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4 },
	{ "f32", CUDA_R_32F, CUBLAS_COMPUTE_32F, 4 },
};

static cublasLtHandle_t handle;
static CUdeviceptr workspace, operands[3]; /* a, b, c: of the largest product */
static size_t operand_nbytes[3];

static size_t elements_of(const product_t *p, int operand)
{
	const int64_t rows[3] = { p->ta == 'T' ? p->k : p->m, p->tb == 'T' ? p->n : p->k, p->m };
	const int64_t ld[3] = { p->lda, p->ldb, p->ldc };

	return (size_t)(rows[operand] * ld[operand]);
}

/* Numbers about 1, of any sign and mantissa, valid in every type that reads them. */
static void fill_operand(CUdeviceptr to, size_t nbytes)
{
	const size_t n = nbytes / 2;
	uint16_t *values = malloc(nbytes);
	uint32_t state = 1;

	if (values == NULL)
		fail_bench("products", "out of memory");
	for (size_t i = 0; i < n; i++) {
		state = state * 1664525u + 1013904223u;
		values[i] = (uint16_t)((state >> 16 & 0x807f) | 0x3f00);
	}
	CU(cuMemcpyHtoD(to, values, nbytes));
	free(values);
}

static void allocate_operands(void)
{
	for (int i = 0; i < 3; i++) {
		for (size_t p = 0; p < sizeof(products) / sizeof(products[0]); p++) {
			const size_t nbytes = 4 * elements_of(&products[p], i);

			if (nbytes > operand_nbytes[i])
				operand_nbytes[i] = nbytes;
		}
		if (operand_nbytes[i] < ROTATED_NBYTES)
			operand_nbytes[i] = ROTATED_NBYTES;
		CU(cuMemAlloc(&operands[i], operand_nbytes[i]));
		fill_operand(operands[i], operand_nbytes[i]);
	}
	CU(cuMemAlloc(&workspace, WORKSPACE_NBYTES));
}

typedef struct call {
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, c;
	float beta;
	size_t nbytes[3]; /* of the operands, to rotate among copies */
} call_t;

static void set_transposed(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which, char t)
{
	const int32_t op = t == 'T' ? CUBLAS_OP_T : CUBLAS_OP_N;

	LT(cublasLtMatmulDescSetAttribute(desc, which, &op, sizeof(op)));
}

/* A row-major matrix is its transpose by columns: B is the first operand, as in fast.c. */
static void describe(const product_t *p, const type_t *type, call_t *call)
{
	const bool ta = p->ta == 'T', tb = p->tb == 'T';

	LT(cublasLtMatmulDescCreate(&call->desc, type->compute, CUDA_R_32F));
	set_transposed(call->desc, CUBLASLT_MATMUL_DESC_TRANSA, p->tb);
	set_transposed(call->desc, CUBLASLT_MATMUL_DESC_TRANSB, p->ta);
	LT(cublasLtMatrixLayoutCreate(&call->b, type->type, (uint64_t)(tb ? p->k : p->n),
				      (uint64_t)(tb ? p->n : p->k), p->ldb));
	LT(cublasLtMatrixLayoutCreate(&call->a, type->type, (uint64_t)(ta ? p->m : p->k),
				      (uint64_t)(ta ? p->k : p->m), p->lda));
	LT(cublasLtMatrixLayoutCreate(&call->c, type->type, (uint64_t)p->n, (uint64_t)p->m,
				      p->ldc));
	call->beta = p->accumulate ? 1.0f : 0.0f;
	for (int i = 0; i < 3; i++)
		call->nbytes[i] = (type->nbytes * elements_of(p, i) + 255) & ~(size_t)255;
}

static int request(const call_t *call, cublasLtMatmulHeuristicResult_t *results)
{
	const size_t nbytes = WORKSPACE_NBYTES;
	const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	cublasLtMatmulPreference_t preference;
	cublasStatus_t code;
	int n = 0;

	LT(cublasLtMatmulPreferenceCreate(&preference));
	LT(cublasLtMatmulPreferenceSetAttribute(preference,
						CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &nbytes,
						sizeof(nbytes)));
	LT(cublasLtMatmulPreferenceSetAttribute(preference,
						CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
						&schemes, sizeof(schemes)));
	code = lt.cublasLtMatmulAlgoGetHeuristic(handle, call->desc, call->b, call->a, call->c,
						 call->c, preference, MOST_ALGORITHMS, results, &n);
	LT(cublasLtMatmulPreferenceDestroy(preference));
	return code == CUBLAS_STATUS_SUCCESS ? n : 0;
}

static CUdeviceptr operand_at(const call_t *call, int operand, int i)
{
	const size_t copies = operand_nbytes[operand] / call->nbytes[operand];

	return operands[operand] + (size_t)i % (copies ? copies : 1) * call->nbytes[operand];
}

static void multiply(const call_t *call, const cublasLtMatmulHeuristicResult_t *result, int i)
{
	const float one = 1.0f;
	void *c = (void *)operand_at(call, 2, i);

	LT(cublasLtMatmul(handle, call->desc, &one, (const void *)operand_at(call, 1, i), call->b,
			  (const void *)operand_at(call, 0, i), call->a, &call->beta, c, call->c, c,
			  call->c, &result->algo, (void *)workspace, WORKSPACE_NBYTES, stream));
}

static double time_calls(const call_t *call, const cublasLtMatmulHeuristicResult_t *result, int n)
{
	float ms;

	CU(cuEventRecord(before, stream));
	for (int i = 0; i < n; i++)
		multiply(call, result, i);
	CU(cuEventRecord(after, stream));
	CU(cuStreamSynchronize(stream));
	CU(cuEventElapsedTime(&ms, before, after));
	return 1e3 * (double)ms / n;
}

static double measure_algorithm(const call_t *call, const cublasLtMatmulHeuristicResult_t *result)
{
	double times[REPEATS];
	int n;

	time_calls(call, result, 1); /* warms up */
	n = 1 + (int)(2e3 / time_calls(call, result, 2));
	n = n > 50 ? 50 : n;
	for (int r = 0; r < REPEATS; r++)
		times[r] = time_calls(call, result, n);
	return median(times, REPEATS);
}

static int attribute_of(const cublasLtMatmulHeuristicResult_t *result,
			cublasLtMatmulAlgoConfigAttributes_t attribute)
{
	int32_t value = -1;
	size_t written;

	lt.cublasLtMatmulAlgoConfigGetAttribute(&result->algo, attribute, &value, sizeof(value),
						&written);
	return value;
}

static void measure_product(const product_t *p, const type_t *type)
{
	cublasLtMatmulHeuristicResult_t results[MOST_ALGORITHMS];
	call_t call;
	double first = 0, best = 0;
	int n, which = 0;

	describe(p, type, &call);
	n = request(&call, results);
	for (int i = 0; i < n; i++) {
		const double us = measure_algorithm(&call, &results[i]);

		if (i == 0)
			first = best = us;
		if (us < best) {
			best = us;
			which = i;
		}
	}
	printf("%s,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%c%c,%" PRId64 ",%" PRId64 ",%" PRId64
	       ",%d,",
	       p->name, type->name, p->m, p->n, p->k, p->ta, p->tb, p->lda, p->ldb, p->ldc, n);
	if (n)
		printf("%.1f,%.1f,%.0f,%d,%d,%d,%d,%zu\n", first, best,
		       2e-6 * (double)p->m * (double)p->n * (double)p->k / best,
		       attribute_of(&results[which], CUBLASLT_ALGO_CONFIG_ID),
		       attribute_of(&results[which], CUBLASLT_ALGO_CONFIG_TILE_ID),
		       attribute_of(&results[which], CUBLASLT_ALGO_CONFIG_STAGES_ID),
		       attribute_of(&results[which], CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
		       results[which].workspaceSize);
	else
		printf(",,,,,,,\n");
	fflush(stdout);
	LT(cublasLtMatmulDescDestroy(call.desc));
	LT(cublasLtMatrixLayoutDestroy(call.a));
	LT(cublasLtMatrixLayoutDestroy(call.b));
	LT(cublasLtMatrixLayoutDestroy(call.c));
}

static void run_products(void)
{
	load_cublaslt();
	LT(cublasLtCreate(&handle));
	allocate_operands();
	printf("product,type,m,n,k,transposed,lda,ldb,ldc,algorithms,first_us,best_us,best_tflops,"
	       "algorithm,tile,stages,split_k,workspace\n");
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
		for (size_t p = 0; p < sizeof(products) / sizeof(products[0]); p++)
			measure_product(&products[p], &types[t]);
}

int main(int argc, char **argv)
{
	const bool is_host = argc == 2 && strcmp(argv[1], "host") == 0;

	if (!is_host && (argc != 2 || strcmp(argv[1], "products") != 0)) {
		fprintf(stderr, "usage: bench_cuda host|products\n");
		return 2;
	}
	open_device();
	if (is_host)
		run_host();
	else
		run_products();
	return 0;
}
