/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The macros of backends/cuda/warp.h on fibers: the lanes of a warp lay down their fragments, and
 * each computes its part from all of them, by the layout that warp.h states, or with a fault that
 * a test has planted (kernel.h).
 */
#ifndef SRT_TESTS_FAKE_CUDA_WARP_H
#define SRT_TESTS_FAKE_CUDA_WARP_H

#include "tests/fake_cuda/shim.h"

static uint32_t fake_given[FAKE_MAX_THREADS][6];
static const void *fake_rows[FAKE_MAX_THREADS];

FAKE_FN float fake_half(uint32_t pair, int high)
{
	return K_PASTE(from, _, K_DTYPE)((uint16_t)(pair >> 16 * high));
}

FAKE_FN void fake_warp_mma(float *c, const unsigned *a, const unsigned *b, int line)
{
	const int me = (int)threadIdx.x, lane = me % 32;
	uint32_t(*given)[6] = &fake_given[me - lane];

	memcpy(fake_given[me], a, 4 * sizeof(*a));
	memcpy(fake_given[me] + 4, b, 2 * sizeof(*b));
	fake_warp_sync(line);
	for (int i = 0; i < 4; i++) {
		const int row = lane / 4 + i / 2 * 8;
		int column = lane % 4 * 2 + i % 2;

		if (fake_warp_fault == FAKE_WARP_ROWS && i >= 2)
			column ^= 1;
		for (int k = 0; k < 16; k++) {
			const int pair = k % 8 / 2;
			const uint32_t x = given[row % 8 * 4 + pair][row / 8 + k / 8 * 2];
			const uint32_t y = given[column * 4 + pair][4 + k / 8];

			if (fake_warp_fault == FAKE_WARP_TERM && lane == 13 && i == 3 && k == 15)
				continue;
			c[i] += fake_half(x, k % 2) * fake_half(y, k % 2);
		}
	}
	fake_warp_sync(line);
}

/* Matrix m's row i is at the address of lane 8 m + i. */
FAKE_FN void fake_warp_load(unsigned *r, const void *p, int transposed, int line)
{
	const int me = (int)threadIdx.x, lane = me % 32;

	fake_touch(p, 16, 0);
	fake_rows[me] = p;
	transposed = transposed && fake_warp_fault != FAKE_WARP_TRANSPOSED;
	fake_warp_sync(line);
	for (int m = 0; m < 4; m++) {
		const int swapped = fake_warp_fault == FAKE_WARP_LOAD && (m == 1 || m == 2);
		const void *const *rows = &fake_rows[me - lane + 8 * (swapped ? 3 - m : m)];
		uint16_t pair[2];

		for (int i = 0; i < 2; i++) {
			const int row = transposed ? lane % 4 * 2 + i : lane / 4;
			const int column = transposed ? lane / 4 : lane % 4 * 2 + i;

			memcpy(&pair[i], (const char *)rows[row] + 2 * column, 2);
		}
		r[m] = pair[0] | (uint32_t)pair[1] << 16;
	}
	fake_warp_sync(line);
}

FAKE_FN float fake_warp_exp2(float x)
{
	return __builtin_exp2f(x) * (fake_warp_fault == FAKE_WARP_EXP2 ? 1.125f : 1.0f);
}

FAKE_FN float fake_warp_xor(float v, int bits, int line)
{
	const int other = fake_lane ^ (fake_warp_fault == FAKE_WARP_XOR ? 0 : bits);

	return __uint_as_float(fake_warp_exchange(__float_as_uint(v), other, line));
}

#define WARP_EXP2(x) fake_warp_exp2(x)
#define WARP_XOR(v, bits) fake_warp_xor(v, bits, __LINE__)
#define WARP_MMA(c, a, b) fake_warp_mma(c, a, b, __LINE__)
#define WARP_LOAD(r, p) fake_warp_load(r, p, 0, __LINE__)
#define WARP_LOAD_T(r, p) fake_warp_load(r, p, 1, __LINE__)

#define WARP_KERNEL(nplaces, name, args) FAKE_WARP_KERNEL_(K_NAME(name), nplaces, args)
#define FAKE_WARP_KERNEL_(entry, nplaces, args) FAKE_WARP_KERNEL(entry, nplaces, args)
#define FAKE_WARP_KERNEL(entry, nplaces, args)                                                     \
	static void entry(K_PLACES_##nplaces args A);                                              \
	static __attribute__((no_sanitize("thread"))) void entry##_run(void **fake_q)              \
	{                                                                                          \
		entry(FAKE_PASS_##nplaces *(args *)fake_q[2 * (nplaces)]);                         \
	}                                                                                          \
	FAKE_ROW(entry, WARP_THREADS, 1, nplaces, args)                                            \
	static __attribute__((noinline)) void entry(K_PLACES_##nplaces args A)

#endif
