/* SPDX-License-Identifier: BSD-3-Clause */
/* Casts of rows; see half.h. Called by tuned.c (products) and attention_half.c. */
#include "backends/cpu/half.h"
#include "kernels/table.h"

#define ALONE_GROUPS 16 /* fewer groups run on the caller: waking threads costs more */

typedef struct cast_job {
	srt_kernel_cpu_fn *fn;
	unsigned char *places[2];
	srt_k_elem_t args;
} cast_job_t;

srt_cpu_half_t srt_cpu_half(srt_dtype_t dtype, srt_cpu_isa_t isa)
{
	return (srt_cpu_half_t){
		.widen = srt_kernel_cpu(dtype == SRT_F16 ? SRT_K_CAST_FROM_F16 :
							   SRT_K_CAST_FROM_BF16,
					SRT_F32, isa),
		.round = srt_kernel_cpu(SRT_K_CAST_FROM_F32, dtype, isa),
	};
}

static void cast_part(void *arg, int64_t first, int64_t end, int thread)
{
	const cast_job_t *job = arg;

	(void)thread;
	job->fn(job->places, &job->args, first, end);
}

/* Distances are in bytes. Adjacent rows count as one row. */
static void cast_rows(srt_kernel_cpu_fn *fn, srt_cpu_pool_t *pool, int64_t rows, int64_t cols,
		      unsigned char *y, int64_t pitch_y, unsigned char *x, int64_t pitch_x,
		      int touch)
{
	cast_job_t job = { .fn = fn, .args = { .nelem = touch ? rows * cols : cols } };
	const int64_t ngroups = srt_kernel_grid(SRT_K_CAST_FROM_F32, &job.args);

	for (int64_t i = 0; i < (touch && rows ? 1 : rows); i++) {
		job.places[0] = y + i * pitch_y;
		job.places[1] = x + i * pitch_x;
		if (!pool || ngroups < ALONE_GROUPS)
			cast_part(&job, 0, ngroups, 0);
		else
			srt_cpu_pool_run(pool, cast_part, &job, ngroups, ALONE_GROUPS);
	}
}

void srt_cpu_widen(const srt_cpu_half_t *half, srt_cpu_pool_t *pool, int64_t rows, int64_t cols,
		   float *y, int64_t ldy, const uint16_t *x, int64_t ldx)
{
	cast_rows(half->widen, pool, rows, cols, (unsigned char *)y, ldy * (int64_t)sizeof(*y),
		  (unsigned char *)(uintptr_t)x, ldx * (int64_t)sizeof(*x),
		  ldy == cols && ldx == cols);
}

void srt_cpu_round(const srt_cpu_half_t *half, srt_cpu_pool_t *pool, int64_t rows, int64_t cols,
		   uint16_t *y, int64_t ldy, const float *x, int64_t ldx)
{
	cast_rows(half->round, pool, rows, cols, (unsigned char *)y, ldy * (int64_t)sizeof(*y),
		  (unsigned char *)(uintptr_t)x, ldx * (int64_t)sizeof(*x),
		  ldy == cols && ldx == cols);
}
