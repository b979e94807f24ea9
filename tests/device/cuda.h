/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of the CUDA backend itself, which is linked in here instead of loaded, over the fake
 * driver: a device of the backend, and a buffer's floats. */
#ifndef SRT_TESTS_CUDA_H
#define SRT_TESTS_CUDA_H

#include "backends/cuda/cuda.h"
#include "tests/device/fake_cuda.h"
#include "tests/harness/device.h"

#define N 1000
#define NBYTES (N * sizeof(float))

static inline srt_device_t *cuda_device(void)
{
	srt_device_t *device;

	CHECK_OK_OR_DIE(test_open_device("cuda", "", 0, &device));
	return device;
}

/* To be called first. */
static inline void cuda_add(void)
{
	setenv("SHARDRT_CUDA_DRIVER", FAKE_CUDA_PATH, 1);
	fake_cuda_load();
	f->set("kernels", 1);
	CHECK_OK_OR_DIE(srt_backend_add(srt_backend_module(srt_host_services(), SRT_BACKEND_ABI)));
}

/* All N floats of b, behind what is on the stream. */
static inline void cuda_check_all(srt_stream_t *s, srt_buffer_t *b, float expected)
{
	float y[N];
	int wrong = 0;

	test_get(s, y, b, 0, NBYTES);
	for (int i = 0; i < N; i++)
		wrong += y[i] != expected;
	CHECK_INT(wrong, 0);
}

static inline srt_status_t cuda_do_nothing(void *arg)
{
	(void)arg;
	return SRT_OK;
}

#endif
