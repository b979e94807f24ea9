/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a piece of work (work.h) to the backend's slot.
 */
#include "backends/work.h"

static srt_status_t issue_launch(srt_stream_t *stream, const srt_work_t *work)
{
	srt_launch_t launch = work->u.launch.launch;

	launch.args = work->u.launch.args;
	return stream->device->backend->work->launch(stream->impl, &launch);
}

/* A slot that is NULL was not asked for when the work was made. */
srt_status_t srt_work_issue(srt_stream_t *stream, const srt_work_t *work)
{
	const srt_backend_work_ops_t *ops = stream->device->backend->work;

	switch ((srt_work_kind_t)work->kind) {
	case SRT_WORK_COPY:
		return ops->copy(stream->impl, work->u.copy.dst, work->u.copy.dst_offset,
				 work->u.copy.src, work->u.copy.src_offset, work->u.copy.nbytes);
	case SRT_WORK_COPY_ROWS:
		return ops->copy_rows(stream->impl, work->u.rows.dst, work->u.rows.src,
				      &work->u.rows.rows, 1);
	case SRT_WORK_ZERO:
		return ops->zero(stream->impl, work->u.zero.dst, work->u.zero.offset,
				 work->u.zero.nbytes);
	case SRT_WORK_LAUNCH:
		return issue_launch(stream, work);
	case SRT_WORK_MATMUL:
		return ops->matmul(stream->impl, &work->u.matmul.mm,
				   (srt_dtype_t)work->u.matmul.dtype, work->u.matmul.places,
				   (int)work->u.matmul.exact);
	case SRT_WORK_ATTENTION:
		return ops->attention(stream->impl, &work->u.attention.shape,
				      (srt_dtype_t)work->u.attention.dtype,
				      work->u.attention.places, (int)work->u.attention.exact);
	case SRT_WORK_ATTENTION_BACKWARD:
		return ops->attention_backward(stream->impl, &work->u.attention.shape,
					       (srt_dtype_t)work->u.attention.dtype,
					       work->u.attention.places,
					       (int)work->u.attention.exact);
	}
	return srt_fail(SRT_ERR_INVALID_ARGUMENT, "there is no work of kind %lld",
			(long long)work->kind);
}
