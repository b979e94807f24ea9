/* SPDX-License-Identifier: BSD-3-Clause */
/* The tensors of a case of the norms' kernels, with values that the dtype can store. */
#ifndef SRT_TESTS_NORM_CHECK_H
#define SRT_TESTS_NORM_CHECK_H

#include "tests/kernels/kernel_check.h"

typedef struct norm {
	srt_dtype_t dtype;
	int64_t rows, n;
	float *x, *dy, *gamma, *beta; /* (rows,n) (rows,n) (n) (n) */
	float *old, *want, *want2;    /* (rows,n) and n more, the same, (n): outputs */
	float *mean, *rstd;           /* of rows or of columns */
	float *h;                     /* (rows,n) */
} norm_t;

norm_t norm_make(srt_dtype_t dtype, int64_t rows, int64_t n, float (*source)(void));
void norm_free(norm_t *t);

#endif
