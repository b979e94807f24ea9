/* SPDX-License-Identifier: BSD-3-Clause */
/* The dialect in CUDA C. Included by dialect.h. */
#ifndef SRT_KERNELS_DIALECT_CUDA_H
#define SRT_KERNELS_DIALECT_CUDA_H

#define PREFETCH(p, i) ((void)0)
#pragma nv_diag_suppress 177 /* a lane's number that its code does not need */
#define GLOBAL
#define TABLE(v, n) static __device__ const float v[n]
#define FN static __device__ inline
#define GROUP ((int64_t)blockIdx.x)
#define LANE ((int)threadIdx.x)
#define BARRIER __syncthreads()
#define K_KERNEL(nthreads, nplaces, name, args)                                                    \
	extern "C" __global__ void __launch_bounds__(nthreads)                                     \
		K_NAME(name)(K_PLACES_##nplaces args A)
#ifdef LANES_AS_LOOP
#define KERNEL(nplaces, name, args) K_KERNEL(1, nplaces, name, args)
#else
#define KERNEL(nplaces, name, args) K_KERNEL(LANES, nplaces, name, args)
/*
 * A block is as large as the bounds say. 256 threads: eight elements of each are the elements of a
 * group, and with 32 registers a multiprocessor has all the threads that it can have.
 */
#define KERNEL_ELEMENTWISE(nplaces, name, args) K_KERNEL(WIDTH, nplaces, name, args)
#define KERNEL_COLUMNS(nplaces, name, args) K_KERNEL(COLUMNS_WIDTH, nplaces, name, args)
/* Registers for five blocks a multiprocessor, or four. */
#define KERNEL_DENSE(nplaces, name, args) K_KERNEL(K_DENSE, nplaces, name, args)
#define K_DENSE WIDTH, T_IS_F32 ? 4 : 5
#define WIDTH 256
#define COLUMNS_WIDTH 1024
#define NTHREADS ((int)blockDim.x)
#define K_WORKERS (NTHREADS / K_PART_COLUMNS) /* of a KERNEL_COLUMNS */
#endif
#define K_PLACE(i) unsigned char *p##i, unsigned long long o##i,
#define TENSOR(i, type, v) type *v = p##i ? (type *)(p##i + o##i) : 0
#define FMA(a, b, c) __fmaf_rn(a, b, c)
#define EXACT_MUL_ADD_F64(a, b, c) __fma_rn(a, b, c)
#define SQRT(a) __fsqrt_rn(a)
#define SQRT_F64(a) __dsqrt_rn(a)
#define FLOAT_OF(i) __int_as_float(i)
#define BITS_OF(f) __float_as_int(f)
#define DOUBLE_OF(i) __longlong_as_double(i)
#define BITS_OF_F64(f) __double_as_longlong(f)
#define MUL_HI(a, b) __umulhi(a, b)
#define ATOMIC_MAX(p, v) ((void)atomicMax((int *)(p), v))
#define ATOMIC_ADD_F64(p, v) ((void)atomicAdd(p, v))

#endif
