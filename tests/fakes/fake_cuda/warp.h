/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The macros of backends/cuda/warp.h on fibers: the lanes of a warp lay down their fragments, and
 * each computes its part from all of them, by the layout that warp.h states. Copies to shared
 * memory arrive when the thread waits for them; until then there is NaN.
 */
#ifndef SRT_TESTS_FAKE_CUDA_WARP_H
#define SRT_TESTS_FAKE_CUDA_WARP_H

#include "tests/fakes/fake_cuda/shim.h"

#define FAKE_MAX_COPIES 64 /* of a thread at a time */

static float fake_given[FAKE_MAX_THREADS][12];
static const void *fake_rows[FAKE_MAX_THREADS];
static struct {
	int n;
	struct {
		void *to;
		const void *from; /* NULL: zeros */
	} copies[FAKE_MAX_COPIES];
} fake_started[FAKE_MAX_THREADS];

FAKE_FN float fake_half(uint32_t pair, int high)
{
	return K_PASTE(from, _, K_DTYPE)((uint16_t)(pair >> 16 * high));
}

FAKE_FN void fake_warp_mma(float *c, const unsigned *a, const unsigned *b, int line)
{
	const int me = (int)threadIdx.x, lane = me % 32;
	float(*given)[12] = &fake_given[me - lane];

	for (int i = 0; i < 12; i++)
		given[lane][i] = fake_half(i < 8 ? a[i / 2] : b[i / 2 - 4], i % 2);
	fake_warp_sync(line);
	for (int i = 0; i < 4; i++) {
		const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;

		for (int k = 0; k < 16; k++)
			c[i] += given[row % 8 * 4 + k % 8 / 2][row / 8 * 2 + k / 8 * 4 + k % 2] *
				given[column * 4 + k % 8 / 2][8 + k / 8 * 2 + k % 2];
	}
	fake_warp_sync(line);
}

/* Matrix m's row i is at the address of lane 8 m + i. */
FAKE_FN void fake_warp_load(unsigned *r, const void *p, int transposed, int line)
{
	const int me = (int)threadIdx.x, lane = me % 32;

	fake_touch(p, 16, 0);
	fake_rows[me] = p;
	fake_warp_sync(line);
	for (int m = 0; m < 4; m++) {
		const void *const *rows = &fake_rows[me - lane + 8 * m];
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

FAKE_FN float fake_warp_xor(float v, int bits, int line)
{
	const int me = (int)threadIdx.x;

	fake_given[me][0] = v;
	fake_warp_sync(line);
	v = fake_given[me ^ bits][0];
	fake_warp_sync(line);
	return v;
}

FAKE_FN unsigned fake_warp_pair(float low, float high)
{
	return K_PASTE(to, _, K_DTYPE)(low) | (unsigned)K_PASTE(to, _, K_DTYPE)(high) << 16;
}

FAKE_FN void fake_warp_copy(void *to, const void *from, int is)
{
	const int me = (int)threadIdx.x, n = fake_started[me].n++;

	if (n >= FAKE_MAX_COPIES)
		__builtin_trap();
	fake_touch(to, 16, 1);
	if (is)
		fake_touch(from, 16, 0);
	memset(to, 0xff, 16);
	fake_started[me].copies[n].to = to;
	fake_started[me].copies[n].from = is ? from : NULL;
}

FAKE_FN void fake_warp_wait(void)
{
	const int me = (int)threadIdx.x;

	for (int i = 0; i < fake_started[me].n; i++) {
		void *to = fake_started[me].copies[i].to;

		fake_touch(to, 16, 1);
		if (fake_started[me].copies[i].from)
			memcpy(to, fake_started[me].copies[i].from, 16);
		else
			memset(to, 0, 16);
	}
	fake_started[me].n = 0;
}

#define WARP_MMA(c, a, b) fake_warp_mma(c, a, b, __LINE__)
#define WARP_LOAD(r, p) fake_warp_load(r, p, 0, __LINE__)
#define WARP_LOAD_T(r, p) fake_warp_load(r, p, 1, __LINE__)
#define WARP_PAIR(low, high) fake_warp_pair(low, high)
#define WARP_EXP2(x) __builtin_exp2f(x)
#define WARP_LOG2(x) __builtin_log2f(x)
#define WARP_XOR(v, bits) fake_warp_xor(v, bits, __LINE__)
#define WARP_COPY(to, from, is) fake_warp_copy(to, from, is)
#define WARP_WAIT() fake_warp_wait()

#endif
