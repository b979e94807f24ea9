/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the operations' arguments share: a device, a stream, two buffers. */
#ifndef SRT_TESTS_KERNELS_OPS_CHECK_H
#define SRT_TESTS_KERNELS_OPS_CHECK_H

#include <shardrt/ops.h>

#include "tests/harness/device.h"

enum { GUARDS = 500 };

static srt_device_t *device;
static srt_stream_t *s;
static srt_buffer_t *a, *b; /* 1000 floats each; b ends in GUARDS floats that nothing may touch */

static srt_view_t at(srt_buffer_t *buffer, size_t element)
{
	return srt_view(buffer, element * sizeof(float), SRT_F32);
}

static const srt_view_t absent;

#define REFUSED(call, words)                                                                       \
	do {                                                                                       \
		CHECK_STATUS(call, SRT_ERR_INVALID_ARGUMENT);                                      \
		CHECK_ERROR_HAS(words);                                                            \
	} while (0)

/* Checks a call with `with`, a copy of the valid arguments `good` in which `field = value`. */
#define WITH(good, change, check)                                                                  \
	do {                                                                                       \
		__typeof__(good) with = good;                                                      \
		with.change;                                                                       \
		check;                                                                             \
	} while (0)
#define REFUSED_WITH(op, good, change, words) WITH(good, change, REFUSED(op(&with, s), words))
#define ACCEPTED_WITH(op, good, change) WITH(good, change, CHECK_OK(op(&with, s)))

static void ops_open(void)
{
	float guard[GUARDS];

	device = test_device(1, "inline");
	s = test_stream(device, "s");
	a = test_buffer(device, 1000 * sizeof(float), "a");
	b = test_buffer(device, 1000 * sizeof(float), "b");
	for (int i = 0; i < GUARDS; i++)
		guard[i] = 77.0f;
	test_put(s, b, (1000 - GUARDS) * sizeof(float), guard, sizeof(guard));
}

static void ops_close(void)
{
	float guard[GUARDS];
	int touched = 0;

	test_get(s, guard, b, (1000 - GUARDS) * sizeof(float), sizeof(guard));
	for (int i = 0; i < GUARDS; i++)
		touched += guard[i] != 77.0f;
	CHECK_INT(touched, 0);
	srt_stream_destroy(s);
	srt_buffer_destroy(a);
	srt_buffer_destroy(b);
	CHECK_INT(srt_device_allocated(device), 0);
	srt_device_close(device);
}

#endif
