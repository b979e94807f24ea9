/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tuned kernels for GPUs need beyond the dialect, for OpenCL C 1.2 and CUDA C. They are
 * written in the subset common to these (and to C11, in which tests run the CUDA text): no
 * templates, and of the instructions of warps only asynchronous copies (GPU_COPY).
 *
 *   GPU_KERNEL(nplaces, name, args, nitems)  entry of a work-group of so many work-items; ITEM is
 *                                            a work-item's number, GROUP the group's
 *   GPU_LANES_KERNEL(nplaces, name, args)    a kernel of the dialect, which is in no table
 *   GPU_SHARED(v, n)                         n floats of the group; LOCAL float *v points into them
 *   GPU_SYNC                                 barrier for these
 *   GPU_FN                                   a function that is always inlined: its `const`
 *                                            arguments are constants at each call
 *   WIDE(space, type, p)                     *p as a vector type: float4, uint4, uint2; p is
 *                                            aligned to it
 *   GPU_COPY(nbytes, to, from)               where GPU_COPIES is 1: copies 4 or 16 aligned bytes to
 *                                            shared memory while the work-item goes on
 *   GPU_COPIED                               waits for the work-item's copies
 *   GPU_UNROLLED, GPU_ROLLED                 before a loop: whole in registers; never
 *
 * With SRT_GPU_ROLLED nothing is unrolled: for devices of CPU type, which only test these kernels.
 */
#ifndef SRT_KERNELS_GPU_GPU_H
#define SRT_KERNELS_GPU_GPU_H

#include "kernels/gpu/args.h"
#include "kernels/dialect/math.h"

#if defined(SRT_K_OPENCL)
#define GPU_KERNEL(nplaces, name, args, nitems)                                                    \
	__kernel __attribute__((reqd_work_group_size(nitems, 1, 1))) void K_NAME(name)(            \
		K_PLACES_##nplaces args A)
#define GPU_SHARED(v, n) __local float v[n] __attribute__((aligned(16)))
#define GPU_SYNC barrier(CLK_LOCAL_MEM_FENCE)
#define GPU_FN static inline __attribute__((always_inline))
#define LOCAL __local
#define GPU_COPIES 0
#else
#ifndef GPU_KERNEL /* tests have their own, for a C compiler */
#define GPU_KERNEL(nplaces, name, args, nitems)                                                    \
	extern "C" __global__ void __launch_bounds__(nitems, GPU_ITEMS / (nitems))                 \
		K_NAME(name)(K_PLACES_##nplaces args A)
#endif
/* Work-items that a multiprocessor has registers for at a time, at least. Slices that go through
 * registers need more registers. */
#define GPU_ITEMS (T_IS_F32 ? 384 : 256)
#define GPU_SHARED(v, n) __shared__ __align__(16) float v[n]
#define GPU_SYNC __syncthreads()
#define GPU_FN static __device__ __forceinline__
#define LOCAL
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define GPU_COPIES 0
#else
#define GPU_COPIES 1
#endif
#ifndef GPU_COPY
#define GPU_COPY(nbytes, to, from)                                                                 \
	asm volatile("cp.async.ca.shared.global [%0], [%1], " #nbytes                              \
		     ";" ::"r"((unsigned)__cvta_generic_to_shared(to)),                            \
		     "l"(from)                                                                     \
		     : "memory")
#define GPU_COPIED asm volatile("cp.async.wait_all;" ::: "memory")
#endif
#endif
#define GPU_LANES_KERNEL KERNEL
#define ITEM LANE
#define WIDE(space, type, p) (*(space type *)(p))

#ifdef SRT_GPU_ROLLED
#define GPU_UNROLLED
#define GPU_ROLLED
#else
#define GPU_UNROLLED UNROLLED
#define GPU_ROLLED _Pragma("unroll 1")
#endif

#endif
