/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions of the library and of its numeric contract. */
#ifndef SHARDRT_VERSION_H
#define SHARDRT_VERSION_H

#include <shardrt/export.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SRT_VERSION_MAJOR 0
#define SRT_VERSION_MINOR 1
#define SRT_VERSION_PATCH 0

/** Raised by any change of the bits that docs/numerics.md defines. */
#define SRT_NUMERICS_VERSION 2

/** Version of the linked library, "major.minor.patch". Static string. Thread-safe. */
SRT_API const char *srt_version_string(void);

/** SRT_NUMERICS_VERSION of the linked library. Thread-safe. */
SRT_API int srt_numerics_version(void);

/**
 * The features of the build, one "name: value" a line, as `shardrt-info` prints them.
 * Static string. Thread-safe.
 */
SRT_API const char *srt_build_info(void);

#ifdef __cplusplus
}
#endif
#endif
