/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conversions of 16-bit types by NVIDIA GPUs' instructions, from compute capability 8.0 on: to
 * nearest even, subnormals kept, equal to those of dialect.h for all values but for the bits of a
 * NaN that is widened, which are free. Narrowing makes another NaN than ours, hence the selection.
 * Included by dialect.h.
 */
#ifndef SRT_KERNELS_DIALECT_HALF_CUDA_H
#define SRT_KERNELS_DIALECT_HALF_CUDA_H

FN float k_from_f16(uint16_t h)
{
	float v;

	asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(h));
	return v;
}
FN uint16_t k_to_f16(float v)
{
	uint16_t h;

	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
	return v != v ? 0x7e00 : h;
}
FN float k_rounded_f16(float v)
{
	return k_from_f16(k_to_f16(v));
}
FN uint16_t k_to_bf16(float v)
{
	uint16_t h;

	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(v));
	return v != v ? 0x7fc0 : h;
}
FN float k_rounded_bf16(float v)
{
	return k_from_bf16(k_to_bf16(v));
}

#endif
