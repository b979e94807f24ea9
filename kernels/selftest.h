/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Self-test of the kernels on a device: each kernel on a fixed small input, the results' digest
 * against the one compiled in. A backend runs it when it opens a device, through its own launch,
 * and refuses the device in exact mode if it fails.
 */
#ifndef SRT_KERNELS_SELFTEST_H
#define SRT_KERNELS_SELFTEST_H

#include "kernels/table.h"

/* Runs one launch synchronously. launch->places is empty: place i is to be nbytes[i] bytes of
 * device memory, filled from host[i] before and copied back to it after; host[i] NULL = absent. */
typedef srt_status_t srt_selftest_run_fn(void *context, const srt_launch_t *launch,
					 unsigned char *const *host, const size_t *nbytes);

/* Runs all cases of a dtype, or those of one kernel in it. SRT_OK, what `run` returned,
 * SRT_ERR_OUT_OF_MEMORY, or SRT_ERR_DEVICE when bits differ; *kernel is then the kernel's name
 * (else NULL). All of a dtype take some milliseconds. Kernels of SRT_F32 are tried when a device is
 * opened; the 16-bit ones, whose programs are often not needed, one by one before their first
 * launch. */
srt_status_t srt_kernels_selftest(srt_dtype_t dtype, srt_selftest_run_fn *run, void *context,
				  const char **kernel);
srt_status_t srt_kernels_selftest_one(srt_kernel_id_t which, srt_dtype_t dtype,
				      srt_selftest_run_fn *run, void *context, const char **kernel);

/* Number of cases, and one of them: its kernel, the digest that `run` gives and the expected one
 * (for the tests, and for whoever has changed a kernel on purpose). SRT_ERR_UNSUPPORTED: the kernel
 * does not exist for the dtype. */
int srt_kernels_selftest_count(void);
srt_status_t srt_kernels_selftest_case(int number, srt_dtype_t dtype, srt_selftest_run_fn *run,
				       void *context, srt_kernel_id_t *kernel, uint64_t *digest,
				       uint64_t *expected);

#endif
