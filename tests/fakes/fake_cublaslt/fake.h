/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the fake's files share: the contents of cuBLASLt's opaque descriptors, a product that waits
 * for its stream, counting and complaining. Matrices are by columns, as cuBLASLt counts.
 */
#ifndef SRT_TESTS_FAKE_CUBLASLT_FAKE_H
#define SRT_TESTS_FAKE_CUBLASLT_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include <cublasLt.h>
#include <cuda.h>

#define MAGIC 0x1ab5ab1eu
#define WORKSPACE_ALIGN 256u                 /* as cublasLtMatmul() documents */
#define WANTED_WORKSPACE ((uint64_t)1 << 16) /* of each algorithm, if there is so much */

typedef struct layout {
	uint32_t magic, type;
	uint64_t rows, cols;
	int64_t ld, stride;
	int32_t batch, zero;
} layout_t;

typedef struct product {
	uint32_t magic, compute, scale;
	int32_t trans_a, trans_b;
	uint32_t epilogue;
	uint64_t bias;
} product_t;

typedef struct preference {
	uint32_t magic, schemes;
	uint64_t workspace;
	uint32_t align[4]; /* of a, b, c, d */
} preference_t;

/* What an algorithm was given for. */
typedef struct algorithm {
	uint64_t problem, workspace;
	uint32_t align[5]; /* and the bias's */
	uint32_t magic;
} algorithm_t;

_Static_assert(sizeof(algorithm_t) <= sizeof(cublasLtMatmulAlgo_t), "algorithm");

typedef struct job {
	struct job *next;
	layout_t a, b, c, d;
	product_t product;
	float alpha, beta;
	const void *pa, *pb, *pc;
	void *pd, *workspace;
	uint64_t workspace_nbytes;
} job_t;

/* fake_cublaslt.c */
void fake_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Counts a call; not 0: what it has to fail with. */
int fake_enter(const char *name);
bool fake_refuses(int kind);
/* Puts a product into a stream; it lives as long as a handle does. */
CUresult fake_put(CUstream stream, job_t *job, CUhostFn fn);
void fake_computed(size_t workspace_nbytes);

#define ENTER()                                                                                    \
	do {                                                                                       \
		int code_ = fake_enter(__func__);                                                  \
		if (code_)                                                                         \
			return (cublasStatus_t)code_;                                              \
	} while (0)

#endif
