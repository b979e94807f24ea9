/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA C for a C compiler: what the kernels' text uses of it, on fibers (fiber.c). Included before
 * the text. Device code of this project keeps to what C11 and CUDA C++ have in common; its entries
 * are declared by K_KERNEL (kernels/dialect/dialect.h), of which this has its own version: the
 * entry takes cuLaunchKernel's array of parameters and is a row of the fake's table.
 */
#ifndef SRT_TESTS_FAKE_CUDA_SHIM_H
#define SRT_TESTS_FAKE_CUDA_SHIM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/dialect/softfma.h"
#include "tests/fakes/fake_cuda/kernel.h"

#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed" /* loops that nvcc unrolls */
#endif

#define __CUDACC__ 1
#define __host__
#define __device__ __attribute__((unused))
#define __global__
#define __forceinline__ inline
#define __restrict__ restrict
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
/* One block runs at a time. */
#define __shared__ static __attribute__((section("fake_shared")))

#define threadIdx fake_thread_idx
#define blockIdx fake_block_idx
#define blockDim fake_block_dim
#define gridDim fake_grid_dim

#define __syncthreads() fake_barrier(__LINE__)

/* Not instrumented: what they do to memory they say themselves. */
#define FAKE_FN static inline __attribute__((unused, no_sanitize("thread")))

/* ---- arithmetic ---------------------------------------------------------------------------- */
/* What touches no memory is instrumented, too: only then compilers inline it. */
#define FAKE_INLINE static inline __attribute__((unused))

#ifdef __FMA__
#define __fmaf_rn(a, b, c) __builtin_fmaf(a, b, c)
#define __fma_rn(a, b, c) __builtin_fma(a, b, c)
#else
/* The processor's instruction where it has one. The assembler reads the flag, which is no access
 * of the kernel's. */
FAKE_INLINE float __fmaf_rn(float a, float b, float c)
{
#ifdef __x86_64__
	bool has;

	__asm__("movb fake_has_fma(%%rip), %0" : "=q"(has));
	if (has) {
		__asm__("vfmadd231ss %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
		return c;
	}
#endif
	return srt_softfma(a, b, c);
}
#define __fma_rn(a, b, c) ((a) * (b) + (c)) /* a * b is exact wherever it is used */
#endif
#define __fadd_rn(a, b) ((float)(a) + (float)(b))
#define __fsub_rn(a, b) ((float)(a) - (float)(b))
#define __fmul_rn(a, b) ((float)(a) * (float)(b))
#define __fdiv_rn(a, b) ((float)(a) / (float)(b))
#define __fsqrt_rn(a) __builtin_sqrtf(a)
#define __dsqrt_rn(a) __builtin_sqrt(a)

#define FAKE_BITS(name, to, from)                                                                  \
	FAKE_INLINE to name(from v)                                                                \
	{                                                                                          \
		to bits;                                                                           \
                                                                                                   \
		memcpy(&bits, &v, sizeof(bits));                                                   \
		return bits;                                                                       \
	}
FAKE_BITS(__int_as_float, float, int)
FAKE_BITS(__uint_as_float, float, unsigned)
FAKE_BITS(__float_as_int, int, float)
FAKE_BITS(__float_as_uint, unsigned, float)
FAKE_BITS(__longlong_as_double, double, long long)
FAKE_BITS(__double_as_longlong, long long, double)
FAKE_INLINE unsigned __umulhi(unsigned a, unsigned b)
{
	return (unsigned)(((uint64_t)a * b) >> 32);
}

/* ---- vectors of 16 bytes and less ---------------------------------------------------------- */
#define FAKE_VECTOR2(type, name, nbytes)                                                           \
	typedef struct name {                                                                      \
		type x, y;                                                                         \
	} __attribute__((aligned(nbytes))) name;                                                   \
	FAKE_FN name make_##name(type x, type y)                                                   \
	{                                                                                          \
		return (name){ x, y };                                                             \
	}
#define FAKE_VECTOR4(type, name, nbytes)                                                           \
	typedef struct name {                                                                      \
		type x, y, z, w;                                                                   \
	} __attribute__((aligned(nbytes))) name;                                                   \
	FAKE_FN name make_##name(type x, type y, type z, type w)                                   \
	{                                                                                          \
		return (name){ x, y, z, w };                                                       \
	}
FAKE_VECTOR2(float, float2, 8)
FAKE_VECTOR2(int, int2, 8)
FAKE_VECTOR2(unsigned, uint2, 8)
FAKE_VECTOR2(unsigned short, ushort2, 4)
FAKE_VECTOR2(double, double2, 16)
FAKE_VECTOR4(float, float4, 16)
FAKE_VECTOR4(int, int4, 16)
FAKE_VECTOR4(unsigned, uint4, 16)
FAKE_VECTOR4(unsigned short, ushort4, 8)

/* ---- memory -------------------------------------------------------------------------------- */
#define __ldg(p) (*(p))
#define __ldcs(p) (*(p))
#define __ldcg(p) (*(p))
#define __stcs(p, v) ((void)(*(p) = (v)))
#define __stcg(p, v) ((void)(*(p) = (v)))

#define FAKE_ATOMIC(name, type, expression)                                                        \
	FAKE_FN type name(void *p, type v)                                                         \
	{                                                                                          \
		type old, now;                                                                     \
                                                                                                   \
		fake_atomic(p, sizeof(old));                                                       \
		memcpy(&old, p, sizeof(old));                                                      \
		now = (expression);                                                                \
		memcpy(p, &now, sizeof(now));                                                      \
		return old;                                                                        \
	}
FAKE_ATOMIC(fake_atomic_max_int, int, old > v ? old : v)
FAKE_ATOMIC(fake_atomic_add_int, int, (int)((unsigned)old + (unsigned)v))
FAKE_ATOMIC(fake_atomic_add_uint, unsigned, old + v)
FAKE_ATOMIC(fake_atomic_add_ull, unsigned long long, old + v)
FAKE_ATOMIC(fake_atomic_add_float, float, old + v)
FAKE_ATOMIC(fake_atomic_add_double, double, old + v)
FAKE_ATOMIC(fake_atomic_or_uint, unsigned, old | v)
#define atomicMax(p, v) fake_atomic_max_int(p, v)
#define atomicOr(p, v) fake_atomic_or_uint(p, v)
#define atomicAdd(p, v)                                                                            \
	_Generic(*(p), int                                                                         \
		 : fake_atomic_add_int, unsigned                                                   \
		 : fake_atomic_add_uint, unsigned long long                                        \
		 : fake_atomic_add_ull, float                                                      \
		 : fake_atomic_add_float, double                                                   \
		 : fake_atomic_add_double)(p, v)

/* ---- entries ------------------------------------------------------------------------------- */
#define K_TOUCH(p, nbytes, write) fake_touch(p, nbytes, write)
#include "kernels/dialect/dialect.h"

#define FAKE_PASS(i) *(unsigned char **)fake_q[2 * (i)], *(unsigned long long *)fake_q[2 * (i) + 1],
#define FAKE_PASS_1 FAKE_PASS(0)
#define FAKE_PASS_2 FAKE_PASS_1 FAKE_PASS(1)
#define FAKE_PASS_3 FAKE_PASS_2 FAKE_PASS(2)
#define FAKE_PASS_4 FAKE_PASS_3 FAKE_PASS(3)
#define FAKE_PASS_5 FAKE_PASS_4 FAKE_PASS(4)
#define FAKE_PASS_6 FAKE_PASS_5 FAKE_PASS(5)
#define FAKE_PASS_7 FAKE_PASS_6 FAKE_PASS(6)
#define FAKE_PASS_8 FAKE_PASS_7 FAKE_PASS(7)
#define FAKE_PASS_9 FAKE_PASS_8 FAKE_PASS(8)
#define FAKE_PASS_10 FAKE_PASS_9 FAKE_PASS(9)
#define FAKE_PASS_11 FAKE_PASS_10 FAKE_PASS(10)
#define FAKE_PASS_12 FAKE_PASS_11 FAKE_PASS(11)

/* An entry in the table; `threads` a block at most, or exactly. */
#define FAKE_ROW(entry, threads, exactly, nplaces, args)                                           \
	static const fake_kernel_t entry##_kernel = {                                              \
		#entry,                                                                            \
		entry##_run,                                                                       \
		threads,                                                                           \
		exactly,                                                                           \
		nplaces,                                                                           \
		2 * (nplaces) + 1,                                                                 \
		{ [0 ... 2 * (nplaces)-1] = 8, [2 * (nplaces)] = sizeof(args) },                   \
	};                                                                                         \
	static const fake_kernel_t *const entry##_row                                              \
		__attribute__((section("fake_kernels"), used)) = &entry##_kernel;

#undef K_KERNEL
#define K_KERNEL(threads, nplaces, name, args) FAKE_KERNEL_(K_NAME(name), nplaces, args, threads)
#undef KERNEL_DENSE
#define KERNEL_DENSE(nplaces, name, args) K_KERNEL(WIDTH, nplaces, name, args)
/* The macros of kernels/gpu/gpu.h. */
#define GPU_KERNEL(nplaces, name, args, nitems, resident)                                          \
	FAKE_KERNEL_(K_NAME(name), nplaces, args, nitems)
/* At once: an access each, which compilers do not report alike of a struct. */
FAKE_FN void fake_copy(void *to, const void *from, size_t nbytes)
{
	fake_touch(from, nbytes, 0);
	fake_touch(to, nbytes, 1);
	memcpy(to, from, nbytes);
}
typedef uintptr_t gpu_at_t;
#define GPU_AT(p) ((gpu_at_t)(p))
#define GPU_COPY(nbytes, to, from) fake_copy((void *)(to), from, nbytes)
#define GPU_KEEP(v) ((void)0)
#define GPU_KEEP_POINTER(p) ((void)0)
#define GPU_COPIED ((void)0)
#define FAKE_KERNEL_(entry, nplaces, args, threads) FAKE_KERNEL(entry, nplaces, args, threads)
#define FAKE_KERNEL(entry, nplaces, args, threads)                                                 \
	static void entry(K_PLACES_##nplaces args A);                                              \
	static __attribute__((no_sanitize("thread"))) void entry##_run(void **fake_q)              \
	{                                                                                          \
		entry(FAKE_PASS_##nplaces *(args *)fake_q[2 * (nplaces)]);                         \
	}                                                                                          \
	FAKE_ROW(entry, threads, 1, nplaces, args)                                                 \
	static __attribute__((noinline)) void entry(K_PLACES_##nplaces args A)

#endif
