/* SPDX-License-Identifier: BSD-3-Clause */
/* The CUDA backend: NVIDIA GPUs through the driver API, the portable kernels compiled by nvcc. A
 * module: srt_backend_module() is its one symbol. */
#include "backends/cuda/cuda.h"

static const srt_backend_t cuda = {
	.abi = SRT_BACKEND_ABI,
	.kernels = srt_kernels_digest,
	.name = "cuda",
	.aliases = "",
	.device = &srt_cuda_device_ops,
	.mem = &srt_cuda_mem_ops,
	.stream = &srt_cuda_stream_ops,
#ifdef SRT_WITH_NCCL
	.comm = &srt_nccl_comm_ops,
#endif
};

/* The library compares the table's ABI version with its version. */
const srt_backend_t *srt_backend_module(const srt_host_services_t *host, uint32_t abi)
{
	(void)host;
	(void)abi;
	return &cuda;
}
