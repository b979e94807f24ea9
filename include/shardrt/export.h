/* SPDX-License-Identifier: BSD-3-Clause */
/* SRT_API marks the symbols that libshardrt exports; everything else is hidden. */
#ifndef SHARDRT_EXPORT_H
#define SHARDRT_EXPORT_H

#if defined(__GNUC__) || defined(__clang__)
#define SRT_API __attribute__((visibility("default")))
#else
#define SRT_API
#endif

/* SRT_NODISCARD before the name of an enum: a compiler of C++17 or C23 warns where a call's result
 * of this type is ignored. A cast to void says that this is meant. */
#if (defined(__cplusplus) && __cplusplus >= 201703L) ||                                            \
	(defined(__STDC_VERSION__) && __STDC_VERSION__ >= 202000L)
#define SRT_NODISCARD [[nodiscard]]
#else
#define SRT_NODISCARD
#endif

#endif
