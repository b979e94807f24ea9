/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU backend: host memory, threads, the portable kernels built for several instruction
 * sets. */
#include "backends/cpu/cpu.h"

static const srt_backend_t cpu = {
	.abi = SRT_BACKEND_ABI,
	.kernels = srt_kernels_digest,
	.name = "cpu",
	.aliases = "",
	.device = &srt_cpu_device_ops,
	.mem = &srt_cpu_mem_ops,
	.stream = &srt_cpu_stream_ops,
};

const srt_backend_t *srt_backend_cpu(void)
{
	return &cpu;
}
