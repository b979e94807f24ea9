/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Status codes and the sentence that goes with them.
 *
 * Every function that can fail returns an srt_status_t. On failure the calling
 * thread's last error holds one full sentence: what happened, on which rank, to
 * which tensor, unit or device, and what to do about it.
 *
 * NULL for a pointer is SRT_ERR_INVALID_ARGUMENT, with a sentence that names the argument, and has
 * no other effect, unless a description allows NULL. Functions without a status answer it with 0,
 * "", NULL or an absent view (its buffer is NULL), those that return a rank with -1.
 */
#ifndef SHARDRT_STATUS_H
#define SHARDRT_STATUS_H

#include <shardrt/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(enumerator, value, text): the enum and srt_status_string() are made from this table. A value
 * never changes. */
#define SRT_STATUS_TABLE(X)                                                                        \
	X(SRT_OK, 0, "success")                                                                    \
	X(SRT_ERR_INVALID_ARGUMENT, 1, "invalid argument")                                         \
	X(SRT_ERR_OUT_OF_MEMORY, 2, "out of memory")                                               \
	X(SRT_ERR_UNSUPPORTED, 3, "not supported")                                                 \
	X(SRT_ERR_STATE, 4, "call not allowed in this state")                                      \
	X(SRT_ERR_NOT_FOUND, 5, "not found")                                                       \
	X(SRT_ERR_MISMATCH, 6, "ranks disagree")                                                   \
	X(SRT_ERR_PEER_DEAD, 7, "a peer rank is gone")                                             \
	X(SRT_ERR_TIMEOUT, 8, "deadline passed")                                                   \
	X(SRT_ERR_ABORTED, 9, "aborted")                                                           \
	X(SRT_ERR_IO, 10, "input/output error")                                                    \
	X(SRT_ERR_FORMAT, 11, "malformed data")                                                    \
	X(SRT_ERR_DEVICE, 12, "device error")                                                      \
	X(SRT_ERR_SYSTEM, 13, "operating system error")

/** Result of a call. SRT_OK is 0. C++17 and C23 warn where it is ignored. */
typedef enum SRT_NODISCARD srt_status {
#define SRT_STATUS_ENUM(name, value, text) name = value,
	SRT_STATUS_TABLE(SRT_STATUS_ENUM)
#undef SRT_STATUS_ENUM
		SRT_STATUS_COUNT
} srt_status_t;

/**
 * Short name of a status, e.g. "out of memory".
 * @return a static string, never NULL; "unknown status" for a value outside the enum.
 * Thread-safe.
 */
SRT_API const char *srt_status_string(srt_status_t status);

/**
 * The sentence that describes the last failure on the calling thread.
 * @return a string owned by the library, valid until the next failing call on the same
 *         thread; "" if nothing has failed yet. Never NULL.
 * Thread-safe: each thread has its own.
 */
SRT_API const char *srt_error_last(void);

/**
 * Sets the calling thread's last error, for a library on top of this one: its functions then fail
 * as this library's do. Failures that this library returned are passed on without it.
 * @param message the sentence, copied; it may be srt_error_last(). One of 1024 bytes or more is cut
 *        and ends with "...".
 * @return status; SRT_ERR_INVALID_ARGUMENT if message is NULL.
 * Thread-safe.
 */
SRT_API srt_status_t srt_error_set(srt_status_t status, const char *message);

#ifdef __cplusplus
}
#endif
#endif
