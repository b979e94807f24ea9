/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a warp does together, for attention in numerics mode fast: the few instructions of tensor
 * cores (sm_80 and later) as macros. Tests run the same text on a processor, with macros of their
 * own that exchange the fragments (tests/fake_cuda/warp.h).
 *
 *   WARP_KERNEL(nplaces, name, args)  entry of a block of WARP_THREADS threads
 *   WARP_MMA(c, a, b)    c (16,8) += a (16,16) b (16,8); c in fp32, a and b of the type K_DTYPE
 *   WARP_LOAD(r, p)      r[0..3] = four (8,8) matrices of 16-bit elements; p is the address of
 *                        the row, 16 bytes of shared memory, that this lane gives
 *   WARP_LOAD_T(r, p)    the same, each matrix transposed
 *   WARP_EXP2(x)         2^x, about 2 ulp
 *   WARP_XOR(v, bits)    v of lane ^ bits
 *
 * A lane's part, with g = lane / 4 and t = lane % 4, two neighbouring columns in each register of a
 * and b: a[0] (g, 2t), a[1] (g + 8, 2t), a[2] (g, 2t + 8), a[3] (g + 8, 2t + 8); b[0] rows 2t and
 * 2t + 1 of column g, b[1] those 8 further; c[0], c[1] (g, 2t) and the next, c[2], c[3] 8 rows
 * further.
 */
#ifndef SRT_BACKENDS_CUDA_WARP_H
#define SRT_BACKENDS_CUDA_WARP_H

#include "kernels/dialect.h"

#define WARP_THREADS 128
#define WARP_FN static __device__ __forceinline__

#ifndef WARP_KERNEL
#define WARP_KERNEL(nplaces, name, args)                                                           \
	extern "C" __global__ void __launch_bounds__(WARP_THREADS)                                 \
		K_NAME(name)(K_PLACES_##nplaces args A)
#define WARP_EXP2(x) warp_exp2(x)
#define WARP_XOR(v, bits) __shfl_xor_sync(0xffffffffu, v, bits)
#define WARP_MMA(c, a, b) warp_mma(c, a, b)
#define WARP_LOAD(r, p) warp_load(r, p)
#define WARP_LOAD_T(r, p) warp_load_t(r, p)

WARP_FN float warp_exp2(float x)
{
	float y;

	asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* Older devices have not got them: code for these is compiled, and not launched. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define WARP_ASM(...) ((void)0)
#else
#define WARP_ASM(...) asm volatile(__VA_ARGS__)
#endif

#if T_IS_F16
#define WARP_TYPES "f32.f16.f16.f32"
#else
#define WARP_TYPES "f32.bf16.bf16.f32"
#endif
WARP_FN void warp_mma(float *c, const unsigned *a, const unsigned *b)
{
	WARP_ASM("mma.sync.aligned.m16n8k16.row.col." WARP_TYPES
		 " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

WARP_FN void warp_load(unsigned *r, const void *p)
{
	WARP_ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		 : "r"((unsigned)__cvta_generic_to_shared(p))
		 : "memory");
}

WARP_FN void warp_load_t(unsigned *r, const void *p)
{
	WARP_ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		 : "r"((unsigned)__cvta_generic_to_shared(p))
		 : "memory");
}
#endif

/* Two numbers of the 16-bit type, the first in the lower half. */
WARP_FN unsigned warp_pair(float low, float high)
{
	return (unsigned)K_PASTE(to, _, K_DTYPE)(low) | (unsigned)K_PASTE(to, _, K_DTYPE)(high)
								<< 16;
}

#endif
