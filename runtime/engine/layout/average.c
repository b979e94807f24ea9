/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The divisors of gradient averages. Normally the sum is divided once. Because the range of fp16 is
 * small, its gradients are also divided before the sum (PyTorch's _get_gradient_divide_factors).
 * Called by flow.c.
 */
#include <shardrt/coll.h>

#include "base/base.h"
#include "base/fpenv.h"

/* The largest power of two p such that f / q is an integer and f / q > q for all smaller ones q. */
static float compute_predivisor(float f)
{
	float p = 1.0f;

	/* f / p is exact; from 2^24 on every float is an integer */
	while (f / p > p && (f / p >= 0x1p24f || (float)(int32_t)(f / p) == f / p))
		p *= 2.0f;
	return p;
}

/* In the environment of the kernels, since gradients depend on the results. The operands are in
 * memory: see srt_fpenv_enter(). */
static void divide(srt_dtype_t dtype, const int64_t *nranks, const float *factor, float *pre,
		   float *post)
{
	const float f = *factor == 0.0f ? (float)*nranks : *factor;

	*pre = dtype == SRT_F16 ? compute_predivisor(f) : 1.0f;
	*post = f / *pre;
}

srt_status_t srt_coll_divide_factors(srt_dtype_t dtype, int64_t nranks, float factor, float *pre,
				     float *post)
{
	srt_fpenv_t env;

	SRT_NOT_NULL(pre);
	SRT_NOT_NULL(post);
	if (!srt_dtype_is_float(dtype))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_coll_divide_factors: gradients are f32, f16 or bf16, not %s",
				srt_dtype_name(dtype));
	if (nranks < 1 || !(factor >= 0.0f && factor <= 0x1.fffffep127f))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"srt_coll_divide_factors: %lld ranks, factor %g", (long long)nranks,
				(double)factor);
	env = srt_fpenv_enter();
	divide(dtype, &nranks, &factor, pre, post);
	srt_fpenv_leave(env);
	return SRT_OK;
}
