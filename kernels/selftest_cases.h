/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of the self-test's cases (selftest_cases.c), which selftest.c runs.
 */
#ifndef SRT_KERNELS_SELFTEST_CASES_H
#define SRT_KERNELS_SELFTEST_CASES_H

#include "kernels/table.h"

/*
 * One case. places: a letter and a number of elements for each place, in order, and maybe @ and
 * the number of its first sample, which is 1000 times the place's if it is not said:
 *   f numbers, x numbers with special values among them, p positive numbers, m fours, z zeros,
 *   e and y as x, but f16 and bf16 in any case,
 *   F X P M Z the same, but floats where the others are of the launch's dtype,
 *   i numbers 0..6 (32-bit), c bytes of which some are 0, d zeros and b multiples of 0.75
 *   (64-bit), s step state, t one with a scale, u parameter states, g segments, h groups, k keys
 *   (64-bit) that rise in runs of 64, q how many different ones 131 of them are, n even numbers,
 *   - absent.
 * digests: of each dtype, F32(its) or ALL(f32's, f16's, bf16's).
 */
typedef struct srt_selftest_case {
	srt_kernel_id_t kernel;
	uint64_t digests[SRT_DTYPE_COUNT];
	const char *places;
	const void *args;
} srt_selftest_case_t;

extern const srt_selftest_case_t srt_selftest_cases[];
extern const int srt_selftest_ncases;

#endif
