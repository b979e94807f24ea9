/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A piece of work for a stream as plain data: what the operations (launch.c, runtime/ops_*.c) put
 * on streams.
 */
#ifndef SRT_BACKENDS_WORK_H
#define SRT_BACKENDS_WORK_H

#include <string.h>

#include "backends/core.h"

typedef enum srt_work_kind {
	SRT_WORK_COPY,
	SRT_WORK_COPY_ROWS,
	SRT_WORK_ZERO,
	SRT_WORK_LAUNCH,
	SRT_WORK_MATMUL,
	SRT_WORK_ATTENTION,
	SRT_WORK_ATTENTION_BACKWARD,
} srt_work_kind_t;

/* Arguments of the slots of srt_backend_work_ops_t; memory is the backend's own. */
typedef struct srt_work {
	int64_t kind;
	union {
		struct {
			void *dst, *src;
			size_t dst_offset, src_offset, nbytes;
		} copy;
		struct {
			void *dst, *src;
			srt_copy_rows_t rows;
		} rows;
		struct {
			void *dst;
			size_t offset, nbytes;
		} zero;
		struct {
			srt_launch_t launch; /* without args, which are here: */
			_Alignas(16) unsigned char args[SRT_LAUNCH_MAX_ARGS];
		} launch;
		struct {
			srt_matmul_t mm; /* without views */
			int64_t dtype, exact;
			srt_place_t places[4];
		} matmul;
		struct {
			srt_attention_t shape;
			int64_t dtype, exact;
			srt_place_t places[12];
		} attention; /* and its backward pass */
	} u;
} srt_work_t;

static inline void srt_work_init(srt_work_t *work, srt_work_kind_t kind)
{
	memset(work, 0, sizeof(*work));
	work->kind = kind;
}

/* Gives it to the backend at once. SRT_ERR_UNSUPPORTED without srt_fail(): there is no such kernel
 * or tuned operation. */
srt_status_t srt_work_issue(srt_stream_t *stream, const srt_work_t *work);

#endif
