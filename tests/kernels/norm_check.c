/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/kernels/norm_check.h"

static float *norm_tensor(srt_dtype_t dtype, int64_t n, float (*source)(void))
{
	float *x = kc_floats(n, source);

	kc_round(dtype, x, n);
	return x;
}

norm_t norm_make(srt_dtype_t dtype, int64_t rows, int64_t n, float (*source)(void))
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

void norm_free(norm_t *t)
{
	float *all[] = { t->x,    t->dy,    t->gamma, t->beta, t->old,
			 t->want, t->want2, t->mean,  t->rstd, t->h };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		free(all[i]);
}
