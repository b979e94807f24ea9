/* SPDX-License-Identifier: BSD-3-Clause */
/* The one macro of models/ and the tools that hides a return: passes a failure on. */
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

#endif
