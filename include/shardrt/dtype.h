/* SPDX-License-Identifier: BSD-3-Clause */
/* Element types. A dtype is a run-time value; its properties come from one table. */
#ifndef SHARDRT_DTYPE_H
#define SHARDRT_DTYPE_H

#include <stddef.h>

#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(enumerator, text, safetensors name, bits per element) */
#define SRT_DTYPE_TABLE(X)                                                                         \
	X(SRT_F32, "f32", "F32", 32)                                                               \
	X(SRT_F16, "f16", "F16", 16)                                                               \
	X(SRT_BF16, "bf16", "BF16", 16)                                                            \
	X(SRT_F64, "f64", "F64", 64)                                                               \
	X(SRT_I32, "i32", "I32", 32)                                                               \
	X(SRT_I64, "i64", "I64", 64)                                                               \
	X(SRT_U8, "u8", "U8", 8)

/**
 * Element type of a tensor. SRT_DTYPE_NONE is of no tensor: a zero-initialised view has it, and an
 * option that is a dtype has it for "as it is". A function that needs a dtype refuses it.
 */
typedef enum srt_dtype {
	SRT_DTYPE_NONE = 0,
#define SRT_DTYPE_ENUM(name, text, st, bits) name,
	SRT_DTYPE_TABLE(SRT_DTYPE_ENUM)
#undef SRT_DTYPE_ENUM
		SRT_DTYPE_COUNT
} srt_dtype_t;

/** Bits of one element; 0 for SRT_DTYPE_NONE and a value outside the enum. Thread-safe. */
SRT_API unsigned srt_dtype_bits(srt_dtype_t dtype);

/**
 * Name of a dtype such as "f32"; "none" for SRT_DTYPE_NONE, "?" for a value outside the enum.
 * Static string. Thread-safe.
 */
SRT_API const char *srt_dtype_name(srt_dtype_t dtype);

/**
 * Bytes that nelem elements take, rounded up to whole bytes.
 * @param[out] nbytes set on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for SRT_DTYPE_NONE, a value outside the enum, or when the
 * product overflows size_t. Thread-safe.
 */
SRT_API srt_status_t srt_dtype_nbytes(srt_dtype_t dtype, size_t nelem, size_t *nbytes);

#ifdef __cplusplus
}
#endif
#endif
