/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A source of programs that are linked with --wrap=srt_comm_create_world: SRT_TEST_NODES (job.h) of
 * contexts.
 */
#include "tests/harness/job.h"

srt_status_t __real_srt_comm_create_world(srt_bootstrap_t *b, srt_device_t *device,
					  srt_comm_t **comm);
srt_status_t __wrap_srt_comm_create_world(srt_bootstrap_t *b, srt_device_t *device,
					  srt_comm_t **comm);

srt_status_t __wrap_srt_comm_create_world(srt_bootstrap_t *b, srt_device_t *device,
					  srt_comm_t **comm)
{
	job_pretend_nodes(b);
	return __real_srt_comm_create_world(b, device, comm);
}
