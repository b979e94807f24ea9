/* SPDX-License-Identifier: BSD-3-Clause */
/* The UCX transport of a library that is built without UCX: it is never chosen. */
#include "collectives/collective.h"
#include "collectives/transports/ucx/ucx.h"

const srt_transport_t srt_transport_ucx = {
	.name = "ucx",
	.describe = srt_ucx_describe,
	.choose = srt_ucx_choose,
};

srt_status_t srt_ucx_probe(void)
{
	return srt_fail(SRT_ERR_UNSUPPORTED, "this library was built without UCX; configure it "
					     "--with-ucx (Debian: libucx-dev)");
}

void srt_ucx_worker_destroy(struct srt_ucx_worker *worker)
{
	(void)worker;
}
