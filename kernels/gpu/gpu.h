/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tuned kernels for GPUs need beyond the dialect, for OpenCL C 1.2 and CUDA C. They are
 * written in the subset common to these (and to C11, in which tests run the CUDA text): no
 * templates, and of the instructions of warps only asynchronous copies (GPU_COPY).
 *
 *   GPU_KERNEL(nplaces, name, args, nitems, resident)
 *                                            entry of a kernel. nitems: work-items of a
 *                                            work-group; resident: work-items that a multiprocessor
 *                                            of CUDA must have registers for. In the kernel, ITEM
 *                                            is the number of the work-item, GROUP of the
 *                                            work-group
 *   GPU_LANES_KERNEL(nplaces, name, args)    a kernel of the dialect, which is in no table
 *   GPU_SHARED(v, n)                         n floats of the group; LOCAL float *v points into them
 *   GPU_SYNC                                 barrier for these
 *   GPU_FN                                   a function that is always inlined: its `const`
 *                                            arguments are constants at each call
 *   WIDE(space, type, p)                     *p as a vector type: float4, uint4, uint2; p is
 *                                            aligned to it
 *   GPU_COPY(nbytes, to, from)               where GPU_COPIES is 1: copies 4 or 16 aligned bytes to
 *                                            shared memory while the work-item goes on; to: its
 *                                            address there, GPU_AT(p), a gpu_at_t
 *   GPU_COPIED                               waits for the work-item's copies
 *   GPU_KEEP(v), GPU_KEEP_POINTER(p)         it is in a register from here on: nvcc would compute
 *                                            addresses anew in each turn of a loop
 *   GPU_UNROLLED, GPU_ROLLED                 before a loop: whole in registers; never
 *
 * With SRT_GPU_ROLLED nothing is unrolled: for devices of CPU type, which only test these kernels.
 */
#ifndef SRT_KERNELS_GPU_GPU_H
#define SRT_KERNELS_GPU_GPU_H

#include "kernels/gpu/args.h"
#include "kernels/dialect/math.h"

#if defined(SRT_K_OPENCL)
#define GPU_KERNEL(nplaces, name, args, nitems, resident)                                          \
	__kernel __attribute__((reqd_work_group_size(nitems, 1, 1))) void K_NAME(name)(            \
		K_PLACES_##nplaces args A)
#define GPU_SHARED(v, n) __local float v[n] __attribute__((aligned(16)))
#define GPU_SYNC barrier(CLK_LOCAL_MEM_FENCE)
#define GPU_FN static inline __attribute__((always_inline))
#define LOCAL __local
#define GPU_COPIES 0
#else
#ifndef GPU_KERNEL /* tests have their own, for a C compiler */
#define GPU_KERNEL(nplaces, name, args, nitems, resident)                                          \
	extern "C" __global__ void __launch_bounds__(nitems, (resident) / (nitems))                \
		K_NAME(name)(K_PLACES_##nplaces args A)
#endif
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
typedef uint32_t gpu_at_t;
#define GPU_AT(p) ((gpu_at_t)__cvta_generic_to_shared(p))
#define GPU_COPY(nbytes, to, from)                                                                 \
	asm volatile("cp.async.ca.shared.global [%0], [%1], " #nbytes ";" ::"r"(to), "l"(from)     \
		     : "memory")
#define GPU_KEEP(v) asm volatile("" : "+r"(v))
#define GPU_KEEP_POINTER(p) asm volatile("" : "+l"(p))
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
