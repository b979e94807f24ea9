/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of parameters, set. */
#ifndef SRT_RUNTIME_ENGINE_VALUES_VALUES_H
#define SRT_RUNTIME_ENGINE_VALUES_VALUES_H

#include "runtime/engine/engine.h"

/* ---- values.c */
/* Around a change of values on *home, outside of passes: what comes before and after it. `call` is
 * for messages. */
srt_status_t srt_param_write_begin(srt_param_t *param, const char *call, srt_stream_t *stream,
				   srt_stream_t **home);
srt_status_t srt_param_write_end(srt_param_t *param, srt_stream_t *home, srt_stream_t *stream);
/* Sets this rank's shard from its own elements in host memory. */
srt_status_t srt_param_set_shard(srt_param_t *param, const char *call, const void *elements,
				 srt_stream_t *stream);
/* Sets this rank's shard of values or reduced gradients from the unsharded tensor, which is on the
 * device or on_host. */
srt_status_t srt_param_set_full(srt_param_t *param, srt_param_what_t what, srt_view_t full,
				bool on_host, srt_stream_t *stream);

/* ---- optim_state.c */
/* Creates the engine's optimizer with group 0. */
srt_status_t srt_engine_optim_new(srt_engine_t *engine, const srt_optim_options_t *options);
/* Sets this rank's codes of state k in 8 bits, or its absmax (2), as they are. */
srt_status_t srt_param_set_state8(srt_param_t *param, int k, const void *bytes,
				  srt_stream_t *stream);

/* ---- full_params.c */
/* Frees the memory of all that are summoned. */
void srt_full_drop(srt_engine_t *engine);

#endif
