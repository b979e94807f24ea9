/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every operation once, at sizes of real use, gives on the device of SHARDRT_BACKEND the bits that
 * it gives on the cpu, twice in a row, and leaves nothing allocated.
 */
#include "tests/all_ops.h"
#include "tests/device.h"

int main(void)
{
	srt_device_t *cpu = test_cpu_device(1, "inline"), *device = test_device(1, "threads");
	unsigned char *want, *got;

	CHECK_OK_OR_DIE(all_ops(cpu, &want));
	srt_device_close(cpu);
	for (int run = 0; run < 2; run++) {
		CHECK_OK_OR_DIE(all_ops(device, &got));
		CHECK_BITS((const float *)(const void *)got, (const float *)(const void *)want,
			   OPS_NBYTES / sizeof(float));
		free(got);
	}
	CHECK_INT(srt_device_allocated(device), 0);
	srt_device_close(device);
	free(want);
	return check_done();
}
