/* SPDX-License-Identifier: BSD-3-Clause */
/* See cast.h. */
#include "runtime/checkpoint/cast.h"

#include <shardrt/ops_elements.h>

#include "base/base.h"
#include "runtime/engine/layout/layout.h"

srt_status_t srt_cast_open(srt_cast_t *cast, srt_device_t *device)
{
	const size_t nbytes = SRT_CAST_NELEM * sizeof(float);

	SRT_TRY(srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, "elements to be rounded",
				  &cast->from));
	return srt_buffer_create(device, SRT_MEM_DEVICE, nbytes, "rounded elements", &cast->to);
}

void srt_cast_close(srt_cast_t *cast)
{
	srt_buffer_destroy(cast->from);
	srt_buffer_destroy(cast->to);
	*cast = (srt_cast_t){ 0 };
}

srt_status_t srt_cast_block(const srt_cast_t *cast, srt_dtype_t from, const void *in,
			    srt_dtype_t to, void *out, size_t nelem, srt_stream_t *stream)
{
	SRT_TRY(srt_buffer_copy_from_host(cast->from, 0, in, nelem * srt_dtype_size(from), stream));
	SRT_TRY(srt_op_cast(srt_view(cast->to, 0, to), srt_view(cast->from, 0, from),
			    (int64_t)nelem, stream));
	return srt_buffer_copy_to_host(out, cast->to, 0, nelem * srt_dtype_size(to), stream);
}

/* Wider elements are written from the end on, so that no element is overwritten before it is
 * read. */
static srt_status_t cast_blocks(const srt_cast_t *cast, srt_dtype_t from, srt_dtype_t to,
				size_t nelem, char *shard, srt_stream_t *home)
{
	const size_t nfrom = srt_dtype_size(from), nto = srt_dtype_size(to);
	const size_t nblocks = (nelem + SRT_CAST_NELEM - 1) / SRT_CAST_NELEM;

	for (size_t i = 0; i < nblocks; i++) {
		const size_t first = (nto > nfrom ? nblocks - 1 - i : i) * SRT_CAST_NELEM;
		const size_t n = nelem - first < SRT_CAST_NELEM ? nelem - first : SRT_CAST_NELEM;

		SRT_TRY(srt_cast_block(cast, from, shard + first * nfrom, to, shard + first * nto,
				       n, home));
	}
	return SRT_OK;
}

srt_status_t srt_cast_shard(srt_cast_t *cast, srt_engine_t *engine, srt_dtype_t from,
			    srt_dtype_t to, size_t nelem, void *shard, srt_stream_t *stream)
{
	srt_stream_t *home;

	SRT_TRY(srt_home_enter(engine, stream, &home));
	if (cast->to == NULL)
		SRT_TRY(srt_cast_open(cast, engine->home.device));
	return cast_blocks(cast, from, to, nelem, shard, home);
}
