/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests of the OpenCL backend itself, which is linked in here instead of loaded: a device of
 * the backend, or a skip where there is none. */
#ifndef SRT_TESTS_OPENCL_H
#define SRT_TESTS_OPENCL_H

#include "backends/opencl/opencl.h"
#include "tests/harness/device.h"

static inline const srt_backend_t *opencl_backend(void)
{
	return srt_backend_module(srt_host_services(), SRT_BACKEND_ABI);
}

/* To be called first. */
static inline void opencl_add(void)
{
	int ndevices;

	CHECK_OK_OR_DIE(srt_backend_add(opencl_backend()));
	CHECK_OK_OR_DIE(opencl_backend()->device->probe(srt_host_services(), &ndevices));
	if (!ndevices)
		CHECK_SKIP("%s", srt_error_last());
}

#endif
