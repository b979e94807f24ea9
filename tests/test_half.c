/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The 16-bit types of kernels/dialect.h against their definition (tests/half.h): all 65536 values
 * widened; rounded, all values, the ties between each two and the floats beside a tie, and every
 * float whose bits end in patterns around the rounding point. `test_half all` takes all floats.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/dialect.h"
#include "tests/check.h"
#include "tests/half.h"

static float float_of(uint32_t bits)
{
	float v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

static uint32_t bits_of(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

static void check_round(uint32_t bits)
{
	float v = float_of(bits);
	uint16_t f16 = k_to_f16(v), bf16 = k_to_bf16(v);

	if (f16 != half_bits(SRT_F16, v) || bf16 != half_bits(SRT_BF16, v))
		CHECK_MSG(0, "%08x is rounded to f16 %04x, bf16 %04x, not %04x, %04x", bits, f16,
			  bf16, half_bits(SRT_F16, v), half_bits(SRT_BF16, v));
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
