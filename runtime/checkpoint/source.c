/* SPDX-License-Identifier: BSD-3-Clause */
/* See source.h. */
#include "runtime/checkpoint/source.h"

#include "base/base.h"

srt_status_t srt_source_check(const srt_file_source_t *source, const srt_needed_t *needed)
{
	const int64_t heads = source->interleaved_heads;

	if (source->transposed && (needed->ndim != 2 || needed->is_buffer))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"'%s' is not a parameter of two dimensions and cannot be "
				"transposed in a file",
				needed->name);
	if (heads == 0)
		return SRT_OK;
	if (heads > 0 && !source->transposed && !needed->is_buffer && needed->ndim > 0 &&
	    needed->shape[0] % 3 == 0 && needed->shape[0] / 3 % heads == 0)
		return SRT_OK;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"'%s' cannot have the rows of %lld heads interleaved in a file: it is not "
			"a parameter with 3 rows for each head, or is transposed too",
			needed->name, (long long)heads);
}
