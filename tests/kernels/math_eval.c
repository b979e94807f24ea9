/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The elementary functions of kernels/dialect/math.h over arrays, compiled once per instruction set
 * (SRT_ISA) for tests/kernels/test_math.c, whose table has the same order.
 */
#include "kernels/dialect/math.h"

#define NAME_(isa) srt_math_eval_##isa
#define NAME(isa) NAME_(isa)

#define EVAL(number, value)                                                                        \
	case number:                                                                               \
		FOR_EACH(i, 0, n)                                                                  \
			y[i] = value;                                                              \
		break

void NAME(SRT_ISA)(int function, const float *x, float *y, int64_t n);

void NAME(SRT_ISA)(int function, const float *x, float *y, int64_t n)
{
	switch (function) {
		EVAL(0, k_exp(x[i]));
		EVAL(1, k_log(x[i]));
		EVAL(2, k_sinpi(x[i], 0));
		EVAL(3, k_sinpi(x[i], 1));
		EVAL(4, k_expm1(x[i]));
		EVAL(5, k_tanh(x[i]));
		EVAL(6, k_sigmoid(x[i]));
		EVAL(7, k_erf(x[i]));
		EVAL(8, k_normal_law(x[i]).below);
		EVAL(9, k_normal_law(x[i]).bell);
		EVAL(10, k_sin(x[i], 0));
		EVAL(11, k_sin(x[i], 1));
		EVAL(12, k_rsqrt(x[i]));
		EVAL(13, k_powi(x[i], 3));
		EVAL(14, k_powi(x[i], -2));
		EVAL(15, k_powi(x[i], 1001));
		EVAL(16, k_powi(x[i], -1000));
		EVAL(17, k_powi(x[i], 0));
	}
}
