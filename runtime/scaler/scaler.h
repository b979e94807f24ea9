/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside of the gradient scaler: scaler.c creates it, scales, gets and sets; unscale.c has the
 * calls of a step and their order.
 */
#ifndef SRT_RUNTIME_SCALER_SCALER_H
#define SRT_RUNTIME_SCALER_SCALER_H

#include <shardrt/scaler.h>

#include "device/device.h"
#include "runtime/ops/step.h"

/* An engine, or a program's optimizer by its found_inf, that is not READY. */
typedef struct srt_scaler_user {
	const void *object; /* compared only */
	size_t offset;
	bool stepped; /* false: UNSCALED */
} srt_scaler_user_t;

struct srt_scaler {
	srt_scaler_options_t options; /* complete */
	int world;                    /* ranks of options.comm */
	bool in_use;                  /* scaled, or its view was handed out */
	srt_scaler_user_t *users;
	size_t nusers, room;

	/* Absent if disabled. The scaler's srt_k_step_state_t, of which scale, inv_scale,
	 * growth_tracker and found_inf (the sum over users) are used; this rank's finding; those of
	 * all ranks. */
	srt_buffer_t *buffer;
	srt_view_t state, scale, found_inf;
	srt_view_t local_found, all_found; /* all_found: if world > 1 */
	srt_coll_t *gather;                /* if world > 1 */
	srt_event_t *done;                 /* the last call's work */
};

/* Around what a call queues: it comes after the work of earlier calls, perhaps on other streams. */
srt_status_t srt_scaler_begin(srt_scaler_t *scaler, srt_stream_t *stream);
srt_status_t srt_scaler_end(srt_scaler_t *scaler, srt_stream_t *stream);

#endif
