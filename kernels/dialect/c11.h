/* SPDX-License-Identifier: BSD-3-Clause */
/* The dialect in C11, for CPUs. Included by dialect.h. */
#ifndef SRT_KERNELS_DIALECT_C11_H
#define SRT_KERNELS_DIALECT_C11_H

#include <math.h>
#include <string.h>
#define GLOBAL
#define TABLE(v, n) static const float v[n] __attribute__((unused))
#define FN static inline __attribute__((always_inline, unused))
#define LANES_AS_LOOP
#define KERNEL(nplaces, name, args)                                                                \
	FN void name##_group(unsigned char *const *P, args A, int64_t GROUP);                      \
	static __attribute__((unused)) void K_NAME(name)(unsigned char *const *places,             \
							 const void *packed, int64_t group_begin,  \
							 int64_t group_end)                        \
	{                                                                                          \
		args A;                                                                            \
                                                                                                   \
		memcpy(&A, packed, sizeof(A));                                                     \
		for (int64_t group = group_begin; group < group_end; group++)                      \
			name##_group(places, A, group);                                            \
	}                                                                                          \
	FN void name##_group(unsigned char *const *P __attribute__((unused)),                      \
			     args A __attribute__((unused)),                                       \
			     int64_t GROUP __attribute__((unused)))
#define TENSOR(i, type, v) type *v = (type *)(void *)P[i]
#define PREFETCH(p, i)                                                                             \
	for (size_t k_byte = 0; k_byte < LANES * sizeof(*(p)); k_byte += 64)                       \
	__builtin_prefetch((const char *)((p) + (i)) + k_byte)
#if defined(__FMA__) || defined(__FP_FAST_FMAF)
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#define EXACT_MUL_ADD_F64(a, b, c) __builtin_fma(a, b, c)
#else
#include "kernels/dialect/softfma.h"
#define FMA(a, b, c) srt_softfma(a, b, c)
#define EXACT_MUL_ADD_F64(a, b, c) ((a) * (b) + (c))
#endif
#define SQRT(a) __builtin_sqrtf(a)
#define SQRT_F64(a) __builtin_sqrt(a)
FN float FLOAT_OF(int32_t i)
{
	float f;

	memcpy(&f, &i, sizeof(f));
	return f;
}
FN int32_t BITS_OF(float f)
{
	int32_t i;

	memcpy(&i, &f, sizeof(i));
	return i;
}
FN double DOUBLE_OF(int64_t i)
{
	double f;

	memcpy(&f, &i, sizeof(f));
	return f;
}
FN int64_t BITS_OF_F64(double f)
{
	int64_t i;

	memcpy(&i, &f, sizeof(i));
	return i;
}
FN uint32_t MUL_HI(uint32_t a, uint32_t b)
{
	return (uint32_t)(((uint64_t)a * b) >> 32);
}
typedef int32_t __attribute__((may_alias)) k_atomic_i32_t;
typedef int64_t __attribute__((may_alias)) k_atomic_i64_t;
FN void ATOMIC_MAX(float *p, int32_t v)
{
	k_atomic_i32_t *bits = (k_atomic_i32_t *)(void *)p;
	int32_t old = __atomic_load_n(bits, __ATOMIC_RELAXED);

	while (old < v &&
	       !__atomic_compare_exchange_n(bits, &old, v, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}
FN void ATOMIC_ADD_F64(double *p, double v)
{
	k_atomic_i64_t *bits = (k_atomic_i64_t *)(void *)p;
	int64_t old = __atomic_load_n(bits, __ATOMIC_RELAXED);

	while (!__atomic_compare_exchange_n(bits, &old, BITS_OF_F64(DOUBLE_OF(old) + v), 1,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

#endif
