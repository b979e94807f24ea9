/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every kernel, one launch after the other without a wait, gives on the device of SHARDRT_BACKEND
 * the bits that it gives on the cpu, twice in a row, and leaves nothing allocated. In float: the
 * order of launches is that of any dtype, and devices take long to compile the others.
 */
#include "tests/harness/device.h"
#include "tests/kernels/all_cases.h"

int main(void)
{
	srt_device_t *cpu = test_cpu_device(1, "inline"), *device = test_device(1, "threads");
	all_cases_t all = all_cases_make(false, true);
	unsigned char *want, *got;

	CHECK_OK_OR_DIE(all_cases_run(&all, cpu, &want));
	srt_device_close(cpu);
	for (int run = 0; run < 2; run++) {
		const char *which;

		CHECK_OK_OR_DIE(all_cases_run(&all, device, &got));
		which = all_cases_differ(&all, got, want);
		CHECK_MSG(which == NULL, "%s differs", which);
		free(got);
	}
	CHECK_INT(srt_device_allocated(device), 0);
	srt_device_close(device);
	free(want);
	all_cases_free(&all);
	return check_done();
}
