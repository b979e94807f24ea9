/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels with the faults that the fake must find, and two without; for
 * tests/fakes/test_fake_cuda.c. Their places are floats, `nelem` of them.
 */
#include "tests/fakes/fake_cuda/shim.h"

/* y[i] = value: a block a 64 elements. */
KERNEL(1, plain_fill, srt_k_elem_t)
{
	TENSOR(0, float, y);
	int64_t i = GROUP * LANES + LANE;

	if (i < A.nelem)
		y[i] = (float)A.value;
}

/* Writes one element too many. */
KERNEL(1, fault_overflow, srt_k_elem_t)
{
	TENSOR(0, float, y);

	for (int64_t i = LANE; i <= A.nelem; i += LANES)
		y[i] = 1.0f;
}

/* y[i] = x[i + 1] through shared memory, with its barrier and without. */
KERNEL(2, plain_shift, srt_k_elem_t)
{
	SHARED(float, row, LANES);
	TENSOR(0, float, y);
	TENSOR(1, float, x);

	row[LANE] = x[LANE];
	SYNC;
	y[LANE] = row[(LANE + 1) % LANES];
}

KERNEL(2, fault_shift_race, srt_k_elem_t)
{
	SHARED(float, row, LANES);
	TENSOR(0, float, y);
	TENSOR(1, float, x);

	row[LANE] = x[LANE];
	y[LANE] = row[(LANE + 1) % LANES];
}

/* All blocks write the same element. */
KERNEL(1, fault_blocks_race, srt_k_elem_t)
{
	TENSOR(0, float, y);

	FOR_LANE_0
	{
		y[0] = (float)GROUP;
	}
}

/* A float at an address that is no multiple of 4, and a vector at one that is none of 16. */
KERNEL(1, fault_misaligned, srt_k_elem_t)
{
	TENSOR(0, unsigned char, y);
	float *odd = (float *)(void *)(y + 2);

	FOR_LANE_0
	{
		odd[0] = 1.0f;
	}
}

KERNEL(2, fault_misaligned_vector, srt_k_elem_t)
{
	TENSOR(0, float, y);
	TENSOR(1, float, x);
	uint32_t w[4];

	FOR_LANE_0
	{
		k_load_4(w, x + 1);
		k_store_4(y, w);
	}
}

/* Only half of the threads reach the barrier. */
KERNEL(1, fault_divergent, srt_k_elem_t)
{
	TENSOR(0, float, y);

	y[LANE] = 0;
	if (LANE < LANES / 2)
		SYNC;
}

/* Reads what nobody has written to shared memory. */
KERNEL(1, fault_shared_unset, srt_k_elem_t)
{
	SHARED(float, row, LANES);
	TENSOR(0, float, y);

	if (LANE)
		row[LANE] = 1.0f;
	SYNC;
	y[LANE] = row[LANE];
}
