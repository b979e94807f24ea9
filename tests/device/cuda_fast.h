/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Products in numerics mode fast on cuda, against sums in double: a context whose log is kept, four
 * tensors of random values, and a product of them, as a program does it.
 */
#ifndef SRT_TESTS_CUDA_FAST_H
#define SRT_TESTS_CUDA_FAST_H

#include <shardrt/shardrt.h>

#include "tests/fakes/load.h"

enum { MOST = 16384 }; /* elements of a tensor */

extern srt_context_t *fast_context;
extern srt_device_t *fast_device;
extern srt_stream_t *fast_stream;
extern char fast_logged[8192];

/* main() calls this first. fakes = false: the driver and cuBLASLt of the machine. */
void fast_start(bool fakes);
void fast_open(srt_numerics_t numerics);
void fast_close(void);

typedef struct product {
	srt_matmul_t mm;
	srt_dtype_t dtype, c_dtype; /* c_dtype 0: dtype */
	int bias, first;            /* elements before the first of each tensor */
} product_t;

/* Bits from the lowest: a transposed, b transposed, a bias, accumulated. gap: elements between
 * rows. */
product_t product(int64_t m, int64_t n, int64_t k, int bits, int64_t gap, srt_dtype_t dtype);
srt_matmul_t product_views(const product_t *p);

/* New values of all tensors. */
void product_upload(const product_t *p);
void product_download(const product_t *p, float *c);

/* Largest error over the bound of fp32 sums in any order and one rounding; `operands` is the
 * relative error of each operand's rounding. `times`: the number of consecutive products. */
double product_error(const product_t *p, const float *c, double operands, int times);

/* One product on new values; computed: how many the fake cuBLASLt has to compute for it. */
void product_check(const product_t *p, long computed);

#endif
