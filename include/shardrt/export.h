/* SPDX-License-Identifier: BSD-3-Clause */
/* SRT_API marks the symbols that libshardrt exports; everything else is hidden. */
#ifndef SHARDRT_EXPORT_H
#define SHARDRT_EXPORT_H

#if defined(__GNUC__) || defined(__clang__)
#define SRT_API __attribute__((visibility("default")))
#else
#define SRT_API
#endif

#endif
