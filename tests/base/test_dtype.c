/* SPDX-License-Identifier: BSD-3-Clause */
/* Properties of dtypes: complete tables, sizes rounded up, overflow refused, output untouched. */
#include "base/base.h"
#include "tests/harness/check.h"

#include <shardrt/dtype.h>

int main(void)
{
	size_t nbytes = 12345;

	for (int d = SRT_DTYPE_NONE + 1; d < SRT_DTYPE_COUNT; d++) {
		srt_dtype_t dtype = (srt_dtype_t)d;
		size_t size = srt_dtype_bits(dtype) / 8;

		CHECK(srt_dtype_bits(dtype) % 8 == 0 && size > 0);
		CHECK(strcmp(srt_dtype_name(dtype), "?") != 0);
		for (int e = 0; e < d; e++)
			CHECK(strcmp(srt_dtype_name(dtype), srt_dtype_name((srt_dtype_t)e)) != 0);
		for (size_t n = 0; n < 70; n++) {
			CHECK_OK(srt_dtype_nbytes(dtype, n, &nbytes));
			CHECK_INT(nbytes, n * size);
		}
		CHECK_OK(srt_dtype_nbytes(dtype, SIZE_MAX / size, &nbytes));
		CHECK(nbytes == SIZE_MAX / size * size);
		if (size == 1)
			continue;
		nbytes = 12345;
		CHECK_STATUS(srt_dtype_nbytes(dtype, SIZE_MAX / size + 1, &nbytes),
			     SRT_ERR_INVALID_ARGUMENT);
		CHECK_ERROR_HAS(srt_dtype_name(dtype));
		CHECK_STATUS(srt_dtype_nbytes(dtype, SIZE_MAX, &nbytes), SRT_ERR_INVALID_ARGUMENT);
		CHECK_INT(nbytes, 12345);
	}
	CHECK_INT(srt_dtype_bits(SRT_F32), 32);
	CHECK_STR(srt_dtype_name(SRT_BF16), "bf16");
	CHECK_INT(SRT_DTYPE_NONE, 0);
	CHECK_INT(srt_dtype_bits(SRT_DTYPE_NONE), 0);
	CHECK_STR(srt_dtype_name(SRT_DTYPE_NONE), "none");
	CHECK_STATUS(srt_dtype_nbytes(SRT_DTYPE_NONE, 1, &nbytes), SRT_ERR_INVALID_ARGUMENT);
	CHECK_ERROR_HAS("none");
	CHECK_INT(srt_dtype_bits(SRT_DTYPE_COUNT), 0);
	CHECK_INT(srt_dtype_bits((srt_dtype_t)-1), 0);
	CHECK_STR(srt_dtype_name((srt_dtype_t)-1), "?");
	nbytes = 12345;
	CHECK_STATUS(srt_dtype_nbytes(SRT_DTYPE_COUNT, 1, &nbytes), SRT_ERR_INVALID_ARGUMENT);
	CHECK_INT(nbytes, 12345);
	return check_done();
}
