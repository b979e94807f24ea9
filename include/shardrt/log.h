/* SPDX-License-Identifier: BSD-3-Clause */
/* Log messages go to a callback that the program sets; without one, to standard error. */
#ifndef SHARDRT_LOG_H
#define SHARDRT_LOG_H

#include <shardrt/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Severity, most severe first. */
typedef enum srt_log_level {
	SRT_LOG_ERROR,
	SRT_LOG_WARN,
	SRT_LOG_INFO,
	SRT_LOG_DEBUG,
	SRT_LOG_TRACE,
} srt_log_level_t;

/**
 * Receives one message without a trailing newline. May be called from any thread of the
 * library, also concurrently; must not call back into libshardrt.
 */
typedef void srt_log_fn(srt_log_level_t level, const char *message, void *arg);

/**
 * Sets the receiver of messages at or above a severity; NULL makes the library silent. Until the
 * first call messages of the level SHARDRT_LOG (warn if it is not set) are printed on standard
 * error. Thread-safe, but a message in progress may still reach the previous receiver.
 */
SRT_API void srt_log_set(srt_log_fn *fn, srt_log_level_t max_level, void *arg);

/** Name of a level, e.g. "warn". Static string. Thread-safe. */
SRT_API const char *srt_log_level_name(srt_log_level_t level);

#ifdef __cplusplus
}
#endif
#endif
