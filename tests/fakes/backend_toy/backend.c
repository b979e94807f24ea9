/* SPDX-License-Identifier: BSD-3-Clause */
/* The module's one exported function, and the table of its tables. */
#include "tests/fakes/backend_toy/toy.h"

static const srt_backend_t toy = {
	.abi = SRT_BACKEND_ABI,
	.kernels = srt_kernels_digest,
	.name = "toy",
	.aliases = "",
	.device = &toy_device_ops,
	.mem = &toy_mem_ops,
	.stream = &toy_stream_ops,
};

/* The library compares toy.abi with its own number. */
const srt_backend_t *srt_backend_module(const srt_host_services_t *host, uint32_t abi)
{
	(void)host;
	(void)abi;
	return &toy;
}
