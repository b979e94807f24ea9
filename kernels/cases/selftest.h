/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Self-test of the kernels: every case of cases.def at the small sizes of its family with
 * ordinary values, at the last of them with special ones too, and the digest of all memory against
 * the one compiled in (digests.def). Backends run it on a device by backends/common/selftest.h.
 */
#ifndef SRT_KERNELS_CASES_SELFTEST_H
#define SRT_KERNELS_CASES_SELFTEST_H

#include "kernels/cases/cases.h"

/* Runs one launch synchronously on a memory object of nbytes bytes, filled from `bytes` before and
 * copied back after. launch->places have their offsets in it; mem is NULL where a place is absent,
 * else to be replaced by the object. */
typedef srt_status_t srt_selftest_run_fn(void *context, const srt_command_t *launch,
					 unsigned char *bytes, size_t nbytes);

#define SRT_SELFTEST_ALL SRT_K_COUNT

/* Runs the cases of one kernel in a dtype, or SRT_SELFTEST_ALL of the dtype, which take some
 * milliseconds. SRT_OK, what `run` returned, SRT_ERR_OUT_OF_MEMORY, or SRT_ERR_DEVICE when bits
 * differ; *name is then the kernel's name (else NULL). The thread must have the default
 * floating-point environment. */
srt_status_t srt_kernels_selftest(srt_kernel_id_t which, srt_dtype_t dtype,
				  srt_selftest_run_fn *run, void *context, const char **name);

/* The digest that `run` gives for a case whose kernel exists in the dtype. */
srt_status_t srt_kernels_selftest_case(const srt_kernel_case_t *c, srt_dtype_t dtype,
				       srt_selftest_run_fn *run, void *context, uint64_t *digest);

#endif
