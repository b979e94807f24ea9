/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU entries of the kernels: which instruction sets were built, which of them this processor
 * runs, and the tables that cpu.c made for each. Constant data only. Called by the cpu backend.
 */
#include "config.h"

#include "kernels/cpu.h"

#include <stdbool.h>

#ifdef HAVE_AVX2
#include <cpuid.h>
#endif

#ifdef HAVE_AVX2
#define FOR_AVX2(...) __VA_ARGS__
#else
#define FOR_AVX2(...)
#endif
#ifdef HAVE_AVX512
#define FOR_AVX512(...) __VA_ARGS__
#else
#define FOR_AVX512(...)
#endif
#ifdef HAVE_NEON
#define FOR_NEON(...) __VA_ARGS__
#else
#define FOR_NEON(...)
#endif

/* One table per type and instruction set, from cpu.c. */
#define DECLARE(dtype)                                                                             \
	extern srt_kernel_cpu_fn *const srt_kernels_cpu_##dtype##_baseline[SRT_K_COUNT];           \
	FOR_AVX2(extern srt_kernel_cpu_fn *const srt_kernels_cpu_##dtype##_avx2[SRT_K_COUNT];)     \
	FOR_AVX512(extern srt_kernel_cpu_fn *const srt_kernels_cpu_##dtype##_avx512[SRT_K_COUNT];)
DECLARE(f32)
DECLARE(f16)
DECLARE(bf16)

/* [dtype][isa]; a dtype that has no row has no kernels. */
#define ROW(dtype)                                                                                 \
	{                                                                                          \
		[SRT_ISA_BASELINE] = srt_kernels_cpu_##dtype##_baseline,                           \
		FOR_AVX2([SRT_ISA_AVX2] = srt_kernels_cpu_##dtype##_avx2, )                        \
			FOR_AVX512([SRT_ISA_AVX512] = srt_kernels_cpu_##dtype##_avx512, )          \
				FOR_NEON([SRT_ISA_NEON] = srt_kernels_cpu_##dtype##_baseline, )    \
	}
static srt_kernel_cpu_fn *const *const cpu_tables[SRT_DTYPE_COUNT][SRT_ISA_COUNT] = {
	[SRT_F32] = ROW(f32),
	[SRT_F16] = ROW(f16),
	[SRT_BF16] = ROW(bf16),
};

const char *srt_cpu_isa_name(srt_cpu_isa_t isa)
{
	static const char *const names[SRT_ISA_COUNT] = { "baseline", "avx2", "avx512", "neon" };

	return (unsigned)isa < SRT_ISA_COUNT ? names[isa] : "?";
}

#ifdef HAVE_AVX2
/* clang 14 knows no __builtin_cpu_supports("f16c"). */
static bool has_f16c(void)
{
	unsigned a, b, c = 0, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

int srt_cpu_isa_usable(srt_cpu_isa_t isa)
{
	switch (isa) {
	case SRT_ISA_BASELINE:
		return 1;
#ifdef HAVE_AVX2
	case SRT_ISA_AVX2:
		__builtin_cpu_init();
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
		       has_f16c();
#endif
#ifdef HAVE_AVX512
	case SRT_ISA_AVX512:
		__builtin_cpu_init();
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
		       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
		       __builtin_cpu_supports("fma") && has_f16c();
#endif
#ifdef HAVE_NEON
	case SRT_ISA_NEON:
		return 1;
#endif
	default:
		return 0;
	}
}

srt_kernel_cpu_fn *srt_kernel_cpu(srt_kernel_id_t kernel, srt_dtype_t dtype, srt_cpu_isa_t isa)
{
	srt_kernel_cpu_fn *const *table;

	if ((unsigned)kernel >= SRT_K_COUNT || (unsigned)dtype >= SRT_DTYPE_COUNT ||
	    (unsigned)isa >= SRT_ISA_COUNT)
		return NULL;
	table = cpu_tables[dtype][isa];
	return table != NULL ? table[kernel] : NULL;
}
