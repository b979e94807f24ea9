/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peak speed of a CPU rank: independent multiply-adds in registers, without memory accesses.
 * peak_fma.c, compiled once for each instruction set -> the speed of one thread; peak.c -> that of
 * a rank.
 */
#ifndef SRT_TOOLS_PEAK_H
#define SRT_TOOLS_PEAK_H

#include <stdint.h>

/** Does n rounds of multiply-adds; the result is a value to keep the compiler from removing them.
 * @return floating-point operations of a round. */
typedef double tool_peak_fn(int64_t n, float *result);

tool_peak_fn tool_peak_baseline;
tool_peak_fn tool_peak_avx2;
tool_peak_fn tool_peak_avx512;
tool_peak_fn tool_peak_neon;

/**
 * Measures for some milliseconds, on all threads at the same time. Time when the threads did not
 * run is not counted.
 * @param isa of srt_device_info_t. @param nthreads compute threads of the rank.
 * @return FLOP/s of the rank; 0: it is not known for this instruction set.
 */
double tool_peak(const char *isa, int nthreads);

/** The best instruction set of this processor that kernels can be built for. Static. */
const char *tool_peak_best_isa(void);

#endif
