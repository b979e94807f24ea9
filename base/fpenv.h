/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floating-point environment of docs/numerics.md: round to nearest, subnormals kept,
 * exceptions masked. Every compute thread sets it; on a thread of the caller the former one is
 * restored. A caller may have another one, for example after loading a library built with -Ofast.
 */
#ifndef SRT_BASE_FPENV_H
#define SRT_BASE_FPENV_H

#include <stdint.h>

#if defined(__SSE2__)
#include <xmmintrin.h>

typedef uint32_t srt_fpenv_t;
#define SRT_FPENV_DEFAULT 0x1f80u /* all exceptions masked, nearest, no FTZ, no DAZ */

static inline srt_fpenv_t srt_fpenv_get(void)
{
	return _mm_getcsr();
}
static inline void srt_fpenv_set(srt_fpenv_t env)
{
	_mm_setcsr(env);
}

#elif defined(__aarch64__)

typedef uint64_t srt_fpenv_t;
#define SRT_FPENV_DEFAULT 0u /* FPCR: nearest, no FZ, no FZ16, no default NaN, no traps */

static inline srt_fpenv_t srt_fpenv_get(void)
{
	uint64_t fpcr;

	__asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
	return fpcr;
}
static inline void srt_fpenv_set(srt_fpenv_t env)
{
	__asm__ volatile("msr fpcr, %0" : : "r"(env));
}

#else
#error "no way known to set the floating-point environment of this processor"
#endif

/* Sets the environment that kernels need; returns the one to restore. Compilers move arithmetic
 * across a change of the environment, but not across a barrier where it reads and writes
 * memory. */
static inline srt_fpenv_t srt_fpenv_enter(void)
{
	srt_fpenv_t old = srt_fpenv_get();

	srt_fpenv_set(SRT_FPENV_DEFAULT);
	__asm__ volatile("" ::: "memory");
	return old;
}
static inline void srt_fpenv_leave(srt_fpenv_t old)
{
	__asm__ volatile("" ::: "memory");
	srt_fpenv_set(old);
}

#endif
