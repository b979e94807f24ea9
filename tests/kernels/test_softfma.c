/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software fma of kernels/dialect/softfma.h against fmaf: cases made to be hard (ties after
 * cancellation, sums far apart, subnormal and overflowing results, zeros of both signs, infinities,
 * NaN), all combinations of special values, and random bits. Scalar, vectorised and four-lane
 * forms.
 */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/dialect/softfma.h"
#include "tests/harness/bits.h"
#include "tests/harness/check.h"
#include "tests/harness/random.h"

#define NLANES 64

/* NaN as a class. */
static uint32_t result_bits(float f)
{
	return f != f ? 0x7fc00000u : bits_of(f);
}

/* A float whose mantissa is short, full of ones, or random, at an exponent near `exponent`. */
static float shaped(int exponent, int spread)
{
	uint32_t r = random32(), mantissa = random32() & 0x7fffffu;
	int e = exponent + (int)(r % (unsigned)(2 * spread + 1)) - spread;

	switch ((r >> 16) % 4) {
	case 0:
		mantissa &= 0x7ff000u;
		break;
	case 1:
		mantissa |= 0x7ff000u;
		break;
	case 2:
		mantissa = 1u << (random32() % 23);
		break;
	default:
		break;
	}
	e = e < 0 ? 0 : e > 254 ? 254 : e;
	return float_of((r & 0x80000000u) | (uint32_t)e << 23 | mantissa);
}

static void check_lanes(const float *a, const float *b, const float *c)
{
	float vector[NLANES], four[NLANES];

	for (int i = 0; i < NLANES; i++)
		vector[i] = srt_softfma(a[i], b[i], c[i]);
	memcpy(four, vector, sizeof(four));
#if defined(__SSE2__)
	for (int i = 0; i < NLANES; i += 4)
		_mm_storeu_ps(four + i, srt_softfma4(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i),
						     _mm_loadu_ps(c + i)));
#endif
	for (int i = 0; i < NLANES; i++) {
		uint32_t want = result_bits(fmaf(a[i], b[i], c[i]));

		if (result_bits(vector[i]) != want || result_bits(four[i]) != want)
			printf("fma(%a, %a, %a): want %08" PRIx32 "\n", (double)a[i], (double)b[i],
			       (double)c[i], want);
		CHECK(result_bits(vector[i]) == want);
		CHECK(result_bits(four[i]) == want);
	}
}

/* Every triple of special values. */
static void test_special(void)
{
	static const uint32_t special[] = {
		0x00000000, 0x00000001, 0x00000002, 0x007fffff, 0x00800000, 0x00800001, 0x00ffffff,
		0x01000000, 0x1f800000, 0x20000000, 0x33800000, 0x33ffffff, 0x34000000, 0x3f7fffff,
		0x3f800000, 0x3f800001, 0x3fffffff, 0x40000000, 0x4b7fffff, 0x5f7fffff, 0x7effffff,
		0x7f000000, 0x7f7fffff, 0x7f800000, 0x7fc00000,
	};
	enum { N = 2 * sizeof(special) / sizeof(special[0]) };
	float a[NLANES], b[NLANES], c[NLANES], value[N];
	int lane = 0;

	for (int i = 0; i < N; i++)
		value[i] = float_of(special[i / 2] | (i % 2 ? 0x80000000u : 0));
	for (int i = 0; i < N * N * N; i++) {
		a[lane] = value[i % N];
		b[lane] = value[i / N % N];
		c[lane] = value[i / N / N];
		if (++lane < NLANES && i + 1 < N * N * N)
			continue;
		for (; lane < NLANES; lane++)
			a[lane] = b[lane] = c[lane] = 1.0f;
		check_lanes(a, b, c);
		lane = 0;
	}
}

/* Random triples around all exponents; c near -a*b, near ties, or far below and above. */
static void test_random(int rounds)
{
	float a[NLANES], b[NLANES], c[NLANES];

	for (int n = 0; n < rounds; n++) {
		for (int i = 0; i < NLANES; i++) {
			int ea = (int)(random32() % 255), eb = (int)(random32() % 255);
			int ep = ea + eb - 127;

			switch (n % 4) {
			case 0: /* product and sum in range or just out of it */
				eb = 127 + (int)(random32() % 60) - 30;
				ea = 127 + (int)(random32() % 60) - 30;
				ep = ea + eb - 127;
				break;
			case 1: /* results around the smallest normal */
				ea = (int)(random32() % 126) + 1;
				eb = 127 - ea + (int)(random32() % 30) - 25;
				ep = 1;
				break;
			default:
				break;
			}
			a[i] = shaped(ea, 0);
			b[i] = shaped(eb, 1);
			c[i] = shaped(ep, n % 3 == 0 ? 2 : 30);
			if (n % 5 == 0)
				c[i] = -(a[i] * b[i]);
			if (n % 7 == 0) {
				a[i] = float_of(random32());
				b[i] = float_of(random32());
				c[i] = float_of(random32());
			}
		}
		check_lanes(a, b, c);
	}
}

int main(void)
{
	random_state = 0x9e3779b97f4a7c15u;
	test_special();
	test_random(80000);
	return check_done();
}
