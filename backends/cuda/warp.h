/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The instructions of a warp for attention on tensor cores (compute capability 8.0 and later).
 * Tests compile the same kernels for the processor, with macros that exchange the fragments
 * (tests/fakes/fake_cuda/warp.h).
 *
 *   WARP_MMA(c, a, b)          c (16,8) += a (16,16) b (16,8); c in fp32, a and b of type K_DTYPE
 *   WARP_LOAD(r, p)            r[0..3] = four (8,8) matrices of 16-bit elements; p is the address
 *                              of the row that this lane supplies: 16 bytes of shared memory
 *   WARP_LOAD_T(r, p)          the same, each matrix transposed
 *   WARP_PAIR(low, high)       two numbers rounded to the type, in one register
 *   WARP_EXP2(x), WARP_LOG2(x) about 2 ulp, subnormal numbers are 0
 *   WARP_XOR(v, bits)          v of lane ^ bits
 *   WARP_COPY(to, from, is)    starts a copy of 16 bytes to shared memory; zeros if `is` is 0
 *   WARP_WAIT()                waits for all copies of this thread
 *
 * A lane's elements, with g = lane / 4 and t = lane % 4; a register has two neighbouring columns
 * of a, or rows of b: a[0] (g, 2t), a[1] (g + 8, 2t), a[2] (g, 2t + 8), a[3] (g + 8, 2t + 8);
 * b[0] (2t, g), b[1] (2t + 8, g); c[0], c[1] (g, 2t) and the next column, c[2], c[3] 8 rows
 * further.
 */
#ifndef SRT_BACKENDS_CUDA_WARP_H
#define SRT_BACKENDS_CUDA_WARP_H

#include "kernels/gpu/gpu.h"

#ifndef WARP_MMA /* tests have their own */
#define WARP_MMA(c, a, b) warp_mma(c, a, b)
#define WARP_LOAD(r, p) warp_load(r, p)
#define WARP_LOAD_T(r, p) warp_load_transposed(r, p)
#define WARP_PAIR(low, high) warp_pair(low, high)
#define WARP_EXP2(x) warp_exp2(x)
#define WARP_LOG2(x) warp_log2(x)
#define WARP_XOR(v, bits) __shfl_xor_sync(0xffffffffu, v, bits)
#define WARP_COPY(to, from, is) warp_copy(to, from, is)
#define WARP_WAIT() asm volatile("cp.async.wait_all;" ::: "memory")

#if T_IS_F16
#define WARP_TYPE "f16"
#else
#define WARP_TYPE "bf16"
#endif

GPU_FN void warp_mma(float *c, const unsigned *a, const unsigned *b)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." WARP_TYPE "." WARP_TYPE ".f32 "
		     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

GPU_FN void warp_load(unsigned *r, const void *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"((unsigned)__cvta_generic_to_shared(p))
		     : "memory");
}

GPU_FN void warp_load_transposed(unsigned *r, const void *p)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"((unsigned)__cvta_generic_to_shared(p))
		     : "memory");
}

GPU_FN unsigned warp_pair(float low, float high)
{
	unsigned r;

	asm("cvt.rn." WARP_TYPE "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
	return r;
}

GPU_FN float warp_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

GPU_FN float warp_log2(float x)
{
	float y;

	asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

GPU_FN void warp_copy(void *to, const void *from, int is)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
		     :
		     : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(is ? 16 : 0)
		     : "memory");
}
#endif

#define WARP_LANE ((int)threadIdx.x % 32)
#define WARP_INDEX ((int)threadIdx.x / 32)

/* The maximum over the four lanes that share rows of c. */
GPU_FN float warp_row_max(float v)
{
	v = fmaxf(v, WARP_XOR(v, 1));
	return fmaxf(v, WARP_XOR(v, 2));
}

GPU_FN float warp_row_sum(float v)
{
	v += WARP_XOR(v, 1);
	return v + WARP_XOR(v, 2);
}

/* sum + the products of two pairs */
GPU_FN float warp_dot(unsigned a, unsigned b, float sum)
{
	sum = FMA(K_PASTE(from, _, K_DTYPE)((uint16_t)a), K_PASTE(from, _, K_DTYPE)((uint16_t)b),
		  sum);
	return FMA(K_PASTE(from, _, K_DTYPE)((uint16_t)(a >> 16)),
		   K_PASTE(from, _, K_DTYPE)((uint16_t)(b >> 16)), sum);
}

#endif
