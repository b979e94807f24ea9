/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backend "linked": the toy device (tests/fakes/backend_toy/) with a library like NCCL for
 * collectives. It proves collectives/transports/nccl/ without NCCL: see comm.c.
 */
#include "tests/fakes/backend_linked/linked.h"

static const srt_backend_t linked = {
	.abi = SRT_BACKEND_ABI,
	.kernels = srt_kernels_digest,
	.name = "linked",
	.aliases = "",
	.device = &toy_device_ops,
	.mem = &toy_mem_ops,
	.stream = &toy_stream_ops,
	.comm = &linked_comm_ops,
};

const srt_backend_t *srt_backend_module(const srt_host_services_t *host, uint32_t abi)
{
	(void)host;
	(void)abi;
	return &linked;
}
