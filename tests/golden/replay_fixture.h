/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fixture of the replays of the loss scaler's tables (replay.h): recorded tensors on the host
 * and on the device, and their comparison. It is in replay_scaler.c; replay_sparse.c and
 * replay_sequences.c use it too.
 */
#ifndef SRT_TESTS_REPLAY_FIXTURE_H
#define SRT_TESTS_REPLAY_FIXTURE_H

#include "tests/golden/replay.h"

/* One device buffer, large enough for any row, cut anew for each. */
typedef struct fixture {
	golden_t *golden;
	verdict_t *verdict;
	srt_stream_t *stream;
	srt_buffer_t *buffer;
	size_t used;
	size_t nsums, nreordered; /* of sparse gradients; in an order that is not ours */
} fixture_t;

typedef struct values {
	srt_dtype_t dtype;
	size_t n;
	float *x;   /* widened; NULL for integers */
	int64_t *i; /* NULL for floats */
} values_t;

/* A recorded tensor; marks it as seen. Integers are SRT_I64. */
srt_status_t fixture_recorded(fixture_t *f, const char *key, values_t *v);
void fixture_drop(values_t *v);

/* Memory on the device; the same with contents. */
srt_status_t fixture_alloc(fixture_t *f, size_t nbytes, srt_dtype_t dtype, srt_view_t *view);
srt_status_t fixture_put_bytes(fixture_t *f, const void *bytes, size_t nbytes, srt_dtype_t dtype,
			       srt_view_t *view);
srt_status_t fixture_put(fixture_t *f, const values_t *v, srt_view_t *view);

/* n floats of a view, widened; the caller's to free. */
srt_status_t fixture_get(fixture_t *f, srt_view_t view, size_t n, float **x);

/* Bits, but for NaN. */
bool fixture_same(const float *a, const float *b, size_t n);

/* Unscales in place, with found_inf and the scale by themselves or both in the step state. */
srt_status_t fixture_unscale(fixture_t *f, srt_view_t g, size_t n, float inv_scale, bool by_state,
			     float *found);

/* The first n elements of a view against a recorded tensor of n elements and the view's dtype. */
srt_status_t fixture_compare(fixture_t *f, srt_view_t view, const char *key);

/* A row of the table of sparse gradients. */
srt_status_t replay_sparse_row(fixture_t *f, const json_t *row);
/* The table of the state machine. */
srt_status_t replay_sequences(fixture_t *f, srt_context_t *context);

#endif
