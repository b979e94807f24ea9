/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libfake_cublaslt.so: the functions of cuBLASLt that the cuda backend calls, over the fake
 * driver (tests/fakes/fake_cuda/), and what a test can ask of them. A product is computed when
 * its stream comes to it, as a host function there, from the descriptors alone. What is wrong
 * is a complaint: layouts that are not legal, an algorithm given for another problem, less
 * alignment or workspace than was promised.
 */
#ifndef SRT_TESTS_FAKE_CUBLASLT_FAKE_CUBLASLT_H
#define SRT_TESTS_FAKE_CUBLASLT_FAKE_CUBLASLT_H

#include <stddef.h>

enum {
	FAKE_REFUSE_BIAS = 1,
};

typedef struct fake_cublaslt_api {
	/* Forgets calls, faults and complaints. */
	void (*reset)(void);
	/* The k-th call from now on that returns a status returns `code` and does nothing; 0 =
	 * none. */
	void (*fail_at)(long k, int code);
	/* Heuristics know no algorithm for products of this kind; 0 = none. */
	void (*refuse)(int kind);
	/* Calls of a name, NULL = of all. */
	long (*count)(const char *name);
	/* Products that have been computed so far. */
	long (*computed)(void);
	/* Bytes of workspace that the last of them had. */
	size_t (*workspace)(void);
	/* Handles and descriptors that live. */
	long (*live)(void);
	long (*complaints)(void);
	/* The first one; "" if none. */
	const char *(*complaint)(void);
} fake_cublaslt_api_t;

/* The one symbol apart from cuBLASLt's. It takes the driver's cuLaunchHostFunc. */
#define FAKE_CUBLASLT_API_SYMBOL "fake_cublaslt_api"
typedef const fake_cublaslt_api_t *fake_cublaslt_api_fn(void *launch_host_func);

#endif
