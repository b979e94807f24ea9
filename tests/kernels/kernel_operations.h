/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cases (kernels/cases/cases.h) by the operations of <shardrt/ops.h> that have tuned versions.
 * Read by tests/kernels/test_conformance, tests/kernels/all_cases.h and bench/bench_kernels.
 */
#ifndef SRT_TESTS_KERNEL_OPERATIONS_H
#define SRT_TESTS_KERNEL_OPERATIONS_H

#include "device/device.h"
#include "kernels/cases/cases.h"

/* A kernel's arguments and places by the operation that has tuned versions; SRT_ERR_UNSUPPORTED
 * (no last error) for a kernel that is launched as it is. */
srt_status_t kernel_case_operation(srt_stream_t *stream, srt_kernel_id_t kernel, srt_dtype_t dtype,
				   const void *args, const srt_view_t *views);

/* The backward pass of attention, which is one operation of three kernels, on the arguments and
 * places of the second of them, attention_backward_q; dout is out too. The scratch place's
 * contents are undefined after it. */
srt_status_t kernel_case_attention_backward(srt_stream_t *stream, srt_dtype_t dtype,
					    const void *args, const srt_view_t *views);

#endif
