/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The backend "fake": the cpu backend as a device whose driver has streams, with the k-th call into
 * it failing. Running something for k = 1, 2, ... until nothing fails any more shows that every
 * failure is reported and cleaned up.
 *
 *     CHECK_OK_OR_DIE(fake_backend_add());
 *     for (long k = 1; ; k++) {
 *             fake_backend_fail_at(k);
 *             ... open a device of the backend "fake", run, clean up ...
 *             if (!fake_backend_failed()) break;
 *     }
 *
 * Counted are the calls that may fail: opening, allocation, export and import, streams, events,
 * commands. What fails on a stream is the stream's failure. Freeing and destroying never fail.
 * Thread-safe.
 */
#ifndef SRT_TESTS_FAKE_BACKEND_H
#define SRT_TESTS_FAKE_BACKEND_H

#include <stdbool.h>

#include <shardrt/status.h>

/* Makes the backend known to srt_device_open() and srt_context_create(); once per process. */
srt_status_t fake_backend_add(void);

/* Starts counting anew; the k-th call from now on fails, 0 = none. */
void fake_backend_fail_at(long k);

/* Whether that call has come. */
bool fake_backend_failed(void);

/* Name of the slot that failed, e.g. "kernel"; "" if none has. */
const char *fake_backend_failed_slot(void);

#endif
