/* SPDX-License-Identifier: BSD-3-Clause */
/* The OpenCL backend: any device with OpenCL 1.2, the portable kernels compiled on it. A module:
 * srt_backend_module() is its one symbol. */
#include "backends/opencl/opencl.h"

static const srt_backend_t opencl = {
	.abi = SRT_BACKEND_ABI,
	.kernels = srt_kernels_digest,
	.name = "opencl",
	.aliases = "xpu",
	.device = &srt_ocl_device_ops,
	.mem = &srt_ocl_mem_ops,
	.stream = &srt_ocl_stream_ops,
};

/* The library compares the table's ABI version with its version. */
const srt_backend_t *srt_backend_module(const srt_host_services_t *host, uint32_t abi)
{
	(void)host;
	(void)abi;
	return &opencl;
}
