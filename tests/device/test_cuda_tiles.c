/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tiles of 128 rows of the tuned product, as CUDA text on the fake driver, against the portable
 * kernels: those of which a work-item computes 16 x 8 elements and those of 8 x 8. Only on a device
 * of one multiprocessor are they the fastest for matrices that are small enough for a test.
 */
#include "device/device.h"
#include "tests/fakes/load.h"
#include "tests/kernels/tuned_tensor.h"

static long count_launches(const char *kernel)
{
	long n = 0;

	for (long i = 0; f->call(i) != NULL; i++)
		n += f->call(i)->kernel != NULL && !strcmp(f->call(i)->kernel, kernel);
	return n;
}

static void check_launches(const char *tile, srt_dtype_t dtype, long least)
{
	char name[64];

	snprintf(name, sizeof(name), "k_matmul_%s_%s", tile, srt_dtype_name(dtype));
	CHECK_MSG(count_launches(name) >= least, "%ld launches of %s, not %ld",
		  count_launches(name), name, least);
}

int main(void)
{
	setenv("SHARDRT_BACKEND", "cuda", 1);
	setenv("SHARDRT_CUDA_DRIVER", FAKE_CUDA_PATH, 1);
	setenv("SHARDRT_CUDA_TUNED", "tiled", 1);
	fake_cuda_load();
	f->set("multiprocessors", 1);
	tt_form = "cuda";
	tt_device = test_device(2, "inline");
	tt_stream = test_stream(tt_device, "test");
	for (int dtype = SRT_F32; dtype <= SRT_BF16; dtype += SRT_BF16 - SRT_F32) {
		srt_device_prepare(tt_device, (srt_dtype_t)dtype);
		f->reset();
		tt_test_matmul_large((srt_dtype_t)dtype);
		check_launches("128x128", (srt_dtype_t)dtype, 24);
		check_launches("128x64", (srt_dtype_t)dtype, 4);
		f->reset();
		tt_test_attention_large((srt_dtype_t)dtype);
		check_launches("128x128", (srt_dtype_t)dtype, 10);
		check_launches("128x64", (srt_dtype_t)dtype, 9);
	}
	srt_stream_destroy(tt_stream);
	srt_device_close(tt_device);
	CHECK_STR(f->complaint(), "");
	return check_done();
}
