/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend's tuned matrix product and attention beside the portable kernels, which the self-test
 * has compared with their digests: small cases of each kind. For backends whose kernels a driver
 * compiles or runs, when a device is opened. Part of each backend's module.
 */
#ifndef SRT_BACKENDS_TUNED_CHECK_H
#define SRT_BACKENDS_TUNED_CHECK_H

#include <stdbool.h>

#include "backends/backend.h"

typedef struct srt_tuned_check {
	const srt_host_services_t *host;
	const srt_backend_mem_ops_t *mem;
	const srt_backend_work_ops_t *work;
	void *device;
	void *stream; /* on which the work slots take the tuned kernels without a further look */
	srt_dtype_t dtype;
	/* NULL ok. Done first: what the kernels of the type need. */
	srt_status_t (*prepare)(void *device, srt_dtype_t dtype);
	/* Forms of the product to be tried by themselves: ntiles, then forced one by one (tile
	 * from 1 on; cut: 1 no, 2 yes), and at the end 0, 0. NULL: there is one. */
	int ntiles;
	void (*force)(void *device, int tile, int cut);
	int takes_mask; /* attention with a mask of bytes is tuned too */
	int is_sure;    /* the kernels are known to run: a slot that fails is an error always */
} srt_tuned_check_t;

/*
 * *works: whether the bits are the portable kernels'. If not, or if a slot fails, it is logged,
 * unless `variable` of the configuration names a form (is not "auto"): then it is an error.
 * what: the device, "OpenCL device \"Name\"".
 */
srt_status_t srt_tuned_check(const srt_tuned_check_t *check, const char *variable, const char *what,
			     bool *works);

#endif
