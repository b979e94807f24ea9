/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The elementary functions of kernels/math.h over arrays, compiled once per instruction set
 * (SRT_ISA) for tests/test_math.c.
 */
#include "kernels/math.h"

#define NAME_(isa) srt_math_eval_##isa
#define NAME(isa) NAME_(isa)

void NAME(SRT_ISA)(int function, const float *x, float *y, int64_t n);

void NAME(SRT_ISA)(int function, const float *x, float *y, int64_t n)
{
	switch (function) {
	case 0:
		FOR_EACH(i, 0, n)
			y[i] = k_exp(x[i]);
		break;
	case 1:
		FOR_EACH(i, 0, n)
			y[i] = k_log(x[i]);
		break;
	case 2:
		FOR_EACH(i, 0, n)
			y[i] = k_sinpi(x[i], 0);
		break;
	default:
		FOR_EACH(i, 0, n)
			y[i] = k_sinpi(x[i], 1);
		break;
	}
}
