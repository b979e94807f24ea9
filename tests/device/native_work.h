/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program's own work on a stream, for tests of native handles on any device: a kernel of OpenCL,
 * or a host function in the order of the native queue, or of the stream where there is no queue.
 */
#ifndef SRT_TESTS_NATIVE_WORK_H
#define SRT_TESTS_NATIVE_WORK_H

#include "tests/harness/device.h"

typedef struct native_work native_work_t;

/* For tensors of at most nelem floats. */
native_work_t *native_work_create(srt_device_t *device, size_t nelem);
void native_work_destroy(native_work_t *work);

/* x[i] += value for nelem floats from an offset in bytes, by functions that are enqueued. */
void native_work_add(native_work_t *work, srt_stream_t *stream, srt_buffer_t *x, size_t offset,
		     size_t nelem, float value);

#endif
