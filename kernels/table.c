/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel table: descriptions and grids from kernels.def, the CPU entries of the instruction
 * sets that were built, and the small host-side helpers of the launchers. Constant data only.
 */
#include "config.h"

#include "kernels/table.h"

#include <stdbool.h>

#ifdef HAVE_AVX2
#include <cpuid.h>
#endif

#include <shardrt/ops.h>

#define SAME_LAYOUT(device, host) _Static_assert(sizeof(device) == sizeof(host), #host)
#define SAME_FIELD(device, host, field)                                                            \
	_Static_assert(offsetof(device, field) == offsetof(host, field), #host "." #field)

SAME_LAYOUT(srt_k_step_state_t, srt_step_state_t);
SAME_FIELD(srt_k_step_state_t, srt_step_state_t, found_inf);
SAME_FIELD(srt_k_step_state_t, srt_step_state_t, grad_norm);
SAME_FIELD(srt_k_step_state_t, srt_step_state_t, lr_steps);
SAME_LAYOUT(srt_k_param_state_t, srt_param_state_t);
SAME_FIELD(srt_k_param_state_t, srt_param_state_t, bias2);
SAME_LAYOUT(srt_k_segment_t, srt_optim_segment_t);
SAME_FIELD(srt_k_segment_t, srt_optim_segment_t, param);
SAME_LAYOUT(srt_k_group_t, srt_optim_group_t);
SAME_FIELD(srt_k_group_t, srt_optim_group_t, weight_decay);

/* Every struct is a whole number of its widest member: no compiler pads its end. */
#define K(NAME, name, access, args, grid)                                                          \
	_Static_assert(sizeof(args) % 8 == 0, #args);                                              \
	_Static_assert(sizeof(access) - 1 <= SRT_LAUNCH_MAX_PLACES, #name);                        \
	static int64_t grid_##name(const void *p)                                                  \
	{                                                                                          \
		const args *a = p;                                                                 \
                                                                                                   \
		(void)a;                                                                           \
		return grid;                                                                       \
	}
#include "kernels/kernels.def"

typedef struct srt_kernel_row {
	srt_kernel_info_t info;
	int64_t (*grid)(const void *args);
} srt_kernel_row_t;

static const srt_kernel_row_t kernel_rows[SRT_K_COUNT] = {
#define K(NAME, name, access, args, grid)                                                          \
	[SRT_K_##NAME] = { { #name, access, sizeof(access) - 1, sizeof(args) }, grid_##name },
#include "kernels/kernels.def"
};

const srt_kernel_info_t *srt_kernel_info(srt_kernel_id_t kernel)
{
	return (unsigned)kernel < SRT_K_COUNT ? &kernel_rows[kernel].info : NULL;
}

int64_t srt_kernel_grid(srt_kernel_id_t kernel, const void *args)
{
	return kernel_rows[kernel].grid(args);
}

/* One table per instruction set, from cpu.c. */
extern srt_kernel_cpu_fn *const srt_kernels_cpu_f32_baseline[SRT_K_COUNT];
#ifdef HAVE_AVX2
extern srt_kernel_cpu_fn *const srt_kernels_cpu_f32_avx2[SRT_K_COUNT];
#endif
#ifdef HAVE_AVX512
extern srt_kernel_cpu_fn *const srt_kernels_cpu_f32_avx512[SRT_K_COUNT];
#endif

/* [dtype][isa]; a dtype that has no row has no kernels. */
static srt_kernel_cpu_fn *const *const cpu_tables[SRT_DTYPE_COUNT][SRT_ISA_COUNT] = {
	[SRT_F32] = {
		[SRT_ISA_BASELINE] = srt_kernels_cpu_f32_baseline,
#ifdef HAVE_AVX2
		[SRT_ISA_AVX2] = srt_kernels_cpu_f32_avx2,
#endif
#ifdef HAVE_AVX512
		[SRT_ISA_AVX512] = srt_kernels_cpu_f32_avx512,
#endif
	},
};

const char *srt_cpu_isa_name(srt_cpu_isa_t isa)
{
	static const char *const names[SRT_ISA_COUNT] = { "baseline", "avx2", "avx512" };

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
	return table ? table[kernel] : NULL;
}

uint64_t srt_kernel_name_hash(const char *name)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 0x100000001b3u;
	return h;
}

void srt_kernel_split(double x, float *hi, float *lo)
{
	*hi = (float)x;
	*lo = (float)(x - (double)*hi);
}
