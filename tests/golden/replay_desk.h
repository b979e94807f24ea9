/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the replays of tables about the loss scaler share (replay.h): recorded tensors on the host
 * and on the device, and their comparison. replay_scaler.c has it, replay_sparse.c uses it too.
 */
#ifndef SRT_TESTS_REPLAY_DESK_H
#define SRT_TESTS_REPLAY_DESK_H

#include "tests/golden/replay.h"

enum { DESK_NBYTES = 1 << 20 };

/* One device buffer, cut anew for each row. */
typedef struct desk {
	golden_t *golden;
	verdict_t *verdict;
	srt_stream_t *stream;
	srt_buffer_t *buffer;
	size_t used;
	size_t nsums, nreordered; /* of sparse gradients; in an order that is not ours */
} desk_t;

typedef struct values {
	srt_dtype_t dtype;
	size_t n;
	float *x;   /* widened; NULL for integers */
	int64_t *i; /* NULL for floats */
} values_t;

/* A recorded tensor; marks it as seen. Integers are SRT_I64. */
srt_status_t desk_recorded(desk_t *d, const char *key, values_t *v);
void desk_drop(values_t *v);

/* Room on the device; the same with contents. */
srt_status_t desk_take(desk_t *d, size_t nbytes, srt_dtype_t dtype, srt_view_t *view);
srt_status_t desk_put_bytes(desk_t *d, const void *bytes, size_t nbytes, srt_dtype_t dtype,
			    srt_view_t *view);
srt_status_t desk_put(desk_t *d, const values_t *v, srt_view_t *view);

/* n floats of a view, widened; the caller's to free. */
srt_status_t desk_get(desk_t *d, srt_view_t view, size_t n, float **x);

/* Bits, but for NaN. */
bool desk_same(const float *a, const float *b, size_t n);

/* Unscales in place, with found_inf and the scale by themselves or both in the step state. */
srt_status_t desk_unscale(desk_t *d, srt_view_t g, size_t n, float inv_scale, bool by_state,
			  float *found);

/* The first n elements of a view against a recorded tensor of n elements and the view's dtype. */
srt_status_t desk_compare(desk_t *d, srt_view_t view, const char *key);

/* A row of the table of sparse gradients. */
srt_status_t replay_sparse_row(desk_t *d, const json_t *row);

#endif
