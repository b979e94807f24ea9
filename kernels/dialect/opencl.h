/* SPDX-License-Identifier: BSD-3-Clause */
/* The dialect in OpenCL C 1.2. Included by dialect.h. */
#ifndef SRT_KERNELS_DIALECT_OPENCL_H
#define SRT_KERNELS_DIALECT_OPENCL_H

#define PREFETCH(p, i) ((void)0)
#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#define GLOBAL __global
#define TABLE(v, n) __constant float v[n]
#define FN static inline
#define GROUP ((int64_t)get_group_id(0))
#define LANE ((int)get_local_id(0))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#ifdef LANES_AS_LOOP
#define KERNEL(nplaces, name, args)                                                                \
	__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void K_NAME(name)(                 \
		K_PLACES_##nplaces args A)
#else
#define KERNEL(nplaces, name, args)                                                                \
	__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void K_NAME(name)(             \
		K_PLACES_##nplaces args A)
#endif
#define K_PLACE(i) __global uchar *p##i, ulong o##i,
#define TENSOR(i, type, v) __global type *v = p##i ? (__global type *)(p##i + o##i) : 0
#define FMA(a, b, c) fma(a, b, c)
#define EXACT_MUL_ADD_F64(a, b, c) fma(a, b, c)
#define SQRT(a) sqrt(a)
#define SQRT_F64(a) sqrt(a)
#define FLOAT_OF(i) as_float(i)
#define BITS_OF(f) as_int(f)
#define DOUBLE_OF(i) as_double(i)
#define BITS_OF_F64(f) as_long(f)
#ifdef LANES_AS_LOOP /* as compilers vectorise it */
#define MUL_HI(a, b) ((uint)(((ulong)(a) * (b)) >> 32))
#else
#define MUL_HI(a, b) mul_hi(a, b)
#endif
#define ATOMIC_MAX(p, v) ((void)atomic_max((volatile __global int *)(p), v))
FN void ATOMIC_ADD_F64(__global double *p, double v)
{
	volatile __global long *bits = (volatile __global long *)p;
	long old = *bits, seen;

	while ((seen = atom_cmpxchg(bits, old, as_long(as_double(old) + v))) != old)
		old = seen;
}

#endif
