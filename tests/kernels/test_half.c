/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The 16-bit types of kernels/dialect/dialect.h against their definition
 * (tests/harness/half.h): all 65536 values widened; rounded, all values, the ties between each
 * two and the floats next to a tie, and every float whose bits end in patterns around the
 * rounding point; by the functions and by the casts of every instruction set, some of which are
 * instructions. `test_half all` takes all floats.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/dialect/dialect.h"
#include "tests/harness/bits.h"
#include "tests/harness/check.h"
#include "tests/harness/half.h"

#define BATCH 2043 /* less than a group, and a tail for vectors of any length */

/* A cast of n elements by each instruction set into y, compared with want as 16 or 32 bits. */
static void check_cast(srt_kernel_id_t kernel, srt_dtype_t dtype, const void *x, const void *want,
		       int64_t n)
{
	const size_t size = dtype == SRT_F32 ? 4 : 2;
	srt_k_elem_t args = { .nelem = n };
	uint32_t y[BATCH];
	unsigned char *places[] = { (void *)y, (void *)(uintptr_t)x };

	for (int isa = 0; isa < SRT_ISA_COUNT; isa++) {
		if (!srt_cpu_isa_usable(isa))
			continue;
		memset(y, 0x55, sizeof(y));
		srt_kernel_cpu(kernel, dtype, isa)(places, &args, 0, 1);
		for (int64_t i = 0; i < n && dtype == SRT_F32; i++)
			if (float_of(y[i]) != float_of(y[i]))
				y[i] = 0x7fc00000;
		CHECK_MSG(!memcmp(y, want, (size_t)n * size), "%s casts to %s otherwise",
			  srt_cpu_isa_name(isa), srt_dtype_name(dtype));
	}
}

/* Floats to be rounded are collected. */
static uint32_t batch[BATCH];
static int64_t nbatch;

static void flush(void)
{
	uint16_t f16[BATCH], bf16[BATCH];

	for (int64_t i = 0; i < nbatch; i++) {
		float v = float_of(batch[i]);

		f16[i] = half_bits(SRT_F16, v);
		bf16[i] = half_bits(SRT_BF16, v);
		if (k_to_f16(v) != f16[i] || k_to_bf16(v) != bf16[i])
			CHECK_MSG(0, "%08x is rounded to f16 %04x, bf16 %04x, not %04x, %04x",
				  batch[i], k_to_f16(v), k_to_bf16(v), f16[i], bf16[i]);
		if (bits_of(k_rounded_f16(v)) != bits_of(k_from_f16(f16[i])) ||
		    bits_of(k_rounded_bf16(v)) != bits_of(k_from_bf16(bf16[i])))
			CHECK_MSG(0, "%08x is rounded in place to %a, %a", batch[i],
				  (double)k_rounded_f16(v), (double)k_rounded_bf16(v));
	}
	check_cast(SRT_K_CAST_FROM_F32, SRT_F16, batch, f16, nbatch);
	check_cast(SRT_K_CAST_FROM_F32, SRT_BF16, batch, bf16, nbatch);
	nbatch = 0;
}

static void check_round(uint32_t bits)
{
	batch[nbatch++] = bits;
	if (nbatch == BATCH)
		flush();
}

/* All values widened by the casts; the last groups are of odd lengths. */
static void check_widening(void)
{
	uint16_t h[BATCH];
	uint32_t f16[BATCH], bf16[BATCH];

	for (uint32_t first = 0; first < 0x10000; first += BATCH) {
		for (uint32_t i = 0; i < BATCH; i++) {
			float v = half_value(SRT_F16, (uint16_t)(first + i));
			float w = half_value(SRT_BF16, (uint16_t)(first + i));

			h[i] = (uint16_t)(first + i);
			f16[i] = v != v ? 0x7fc00000 : bits_of(v);
			bf16[i] = w != w ? 0x7fc00000 : bits_of(w);
		}
		check_cast(SRT_K_CAST_FROM_F16, SRT_F32, h, f16, BATCH);
		check_cast(SRT_K_CAST_FROM_BF16, SRT_F32, h, bf16, BATCH);
	}
}

static void check_value(srt_dtype_t dtype, uint16_t h, float got)
{
	float want = half_value(dtype, h);
	int same = want != want ? got != got : bits_of(got) == bits_of(want);

	CHECK_MSG(same, "%s %04x is widened to %a, not %a", dtype == SRT_F16 ? "f16" : "bf16", h,
		  (double)got, (double)want);
}

int main(int argc, char **argv)
{
	int all = argc > 1 && !strcmp(argv[1], "all");

	for (uint32_t h = 0; h < 0x10000; h++) {
		/* the value itself and the float in the middle between it and the next one */
		float f16 = half_value(SRT_F16, (uint16_t)h),
		      next = half_value(SRT_F16, (uint16_t)(h + 1));
		uint32_t tie = bits_of((float)(((double)f16 + (double)next) / 2));

		check_value(SRT_F16, (uint16_t)h, k_from_f16((uint16_t)h));
		check_value(SRT_BF16, (uint16_t)h, k_from_bf16((uint16_t)h));
		check_round(bits_of(f16));
		for (uint32_t d = 0; d < 3; d++) {
			check_round(tie - 1 + d);
			check_round((h << 16) - 1 + d);
			check_round((h << 16) + 0x7fff + d);
			check_round((h << 16) + 0x0fff + d);
			check_round((h << 16) + 0x2fff + d);
		}
	}
	for (uint64_t bits = 0; bits < (uint64_t)1 << 32 && all; bits++)
		check_round((uint32_t)bits);
	flush();
	check_widening();
	/* Rounded once: by way of a half, 1 + 2^-8 + 2^-13 would be a tie in bfloat. */
	CHECK_INT(k_to_bf16(0x1.0102p0f), half_bits(SRT_BF16, 0x1.0102p0f));
	CHECK_INT(k_to_f16(NAN), 0x7e00);
	CHECK_INT(k_to_bf16(-NAN), 0x7fc0);
	CHECK_INT(k_to_f16(65519.99f), 0x7bff);
	CHECK_INT(k_to_f16(-65520.0f), 0xfc00);
	CHECK_INT(k_to_f16(0x1p-25f), 0);
	CHECK_INT(k_to_f16(0x1.000002p-25f), 1);
	return check_done();
}
