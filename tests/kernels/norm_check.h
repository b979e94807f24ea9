/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the norms' kernels work on: a case's tensors in numbers that the dtype has. */
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

static inline float *norm_tensor(srt_dtype_t dtype, int64_t n, float (*source)(void))
{
	float *x = kc_floats(n, source);

	kc_round(dtype, x, n);
	return x;
}

static inline norm_t norm_make(srt_dtype_t dtype, int64_t rows, int64_t n, float (*source)(void))
{
	norm_t t = { .dtype = dtype, .rows = rows, .n = n };

	t.x = norm_tensor(dtype, rows * n, source);
	t.dy = norm_tensor(dtype, rows * n, source);
	t.gamma = norm_tensor(dtype, n, kc_mild);
	t.beta = norm_tensor(dtype, n, kc_mild);
	t.old = norm_tensor(dtype, rows * n + n, kc_mild);
	t.want = kc_floats(rows * n + n, NULL);
	t.want2 = kc_floats(n, NULL);
	t.mean = kc_floats(rows + n, NULL);
	t.rstd = kc_floats(rows + n, NULL);
	t.h = kc_floats(rows * n, NULL);
	return t;
}

static inline void norm_free(norm_t *t)
{
	float *all[] = { t->x,    t->dy,    t->gamma, t->beta, t->old,
			 t->want, t->want2, t->mean,  t->rstd, t->h };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		free(all[i]);
}

#endif
