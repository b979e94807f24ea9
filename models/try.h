/* SPDX-License-Identifier: BSD-3-Clause */
/* Failures in models/ and the tools: the one macro that hides a return, and their sentence. */
#ifndef SRT_MODELS_TRY_H
#define SRT_MODELS_TRY_H

#include <shardrt/status.h>

#ifndef SRT_TRY
#define SRT_TRY(expr)                                                                              \
	do {                                                                                       \
		srt_status_t srt_try_status_ = (expr);                                             \
		if (srt_try_status_ != SRT_OK)                                                     \
			return srt_try_status_;                                                    \
	} while (0)
#endif

/** Sets the thread's last error to a printf-like sentence; returns status. */
srt_status_t srt_model_fail(srt_status_t status, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
