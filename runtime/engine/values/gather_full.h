/* SPDX-License-Identifier: BSD-3-Clause */
/* Unsharded tensors in pieces, for runtime/checkpoint/. */
#ifndef SRT_RUNTIME_ENGINE_VALUES_GATHER_FULL_H
#define SRT_RUNTIME_ENGINE_VALUES_GATHER_FULL_H

#include "runtime/engine/engine.h"

/* Memory that a tensor is copied to: of the device or of the host. A tensor that does not fit the
 * latter comes in pieces. */
typedef struct srt_gather_sink {
	srt_view_t to; /* the whole tensor; without buffer: to the host */
	void *host;    /* NULL: nothing is copied */
	size_t host_nbytes;
	/* Uses the piece that begins at this byte of the tensor; NULL: there is one piece only. */
	void (*take)(void *arg, const void *piece, size_t offset, size_t nbytes);
	void *arg;
} srt_gather_sink_t;

/* srt_param_get() into a sink, of a built engine. For values after srt_writes_before_read(). */
srt_status_t srt_param_gather(srt_param_t *param, srt_param_what_t what,
			      const srt_gather_sink_t *sink, srt_stream_t *stream);
/* Copies nbytes of the device into a sink. Blocking, unless it is on the device. */
srt_status_t srt_gather_copy(srt_view_t src, size_t nbytes, const srt_gather_sink_t *sink,
			     srt_stream_t *stream);

#endif
