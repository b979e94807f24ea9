/* SPDX-License-Identifier: BSD-3-Clause */
/* Versions of the library and of its numeric contract, and which features this build has. */
#ifndef SHARDRT_VERSION_H
#define SHARDRT_VERSION_H

#include <stddef.h>
#include <stdint.h>

#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SRT_VERSION_MAJOR 0
#define SRT_VERSION_MINOR 1
#define SRT_VERSION_PATCH 0

/** A version as a number that can be compared, also by #if: 10203 is 1.2.3. */
#define SRT_VERSION_NUMBER(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
/** The version of these headers. */
#define SRT_VERSION SRT_VERSION_NUMBER(SRT_VERSION_MAJOR, SRT_VERSION_MINOR, SRT_VERSION_PATCH)

/** Raised by any change of the bits that docs/numerics.md defines. */
#define SRT_NUMERICS_VERSION 2

/** SRT_VERSION of the linked library. Thread-safe. */
SRT_API int srt_version(void);

/** Version of the linked library, "major.minor.patch". Static string. Thread-safe. */
SRT_API const char *srt_version_string(void);

/** SRT_NUMERICS_VERSION of the linked library. Thread-safe. */
SRT_API int srt_numerics_version(void);

/**
 * How the library was built: host, compiler, sanitizers, backends, instruction sets of the CPU
 * kernels, collectives; one "name: value" a line, as `shardrt-info` prints them.
 * Static string. Thread-safe.
 */
SRT_API const char *srt_build_info(void);

/** What an optional package gives. */
typedef enum srt_feature {
	SRT_FEATURE_BINDING,     /* hwloc */
	SRT_FEATURE_HASH,        /* xxHash */
	SRT_FEATURE_CHECKPOINTS, /* jansson and xxHash */
	SRT_FEATURE_LINKS,       /* libsodium */
	SRT_FEATURE_TOKENIZERS,  /* jansson, PCRE2 and utf8proc, in libshardrt-models */
	SRT_FEATURE_UCX,         /* loaded at run time, as the next ones */
	SRT_FEATURE_PMIX,
	SRT_FEATURE_ONEDNN,
	SRT_FEATURE_OPENCL,
	SRT_FEATURE_CUDA,
} srt_feature_t;

/** Whether a feature can be used. */
typedef enum srt_feature_state {
	SRT_FEATURE_MISSING, /* not in this build, or it cannot be used on this machine */
	SRT_FEATURE_BUILT,   /* part of the library */
	SRT_FEATURE_FOUND,   /* its library or driver was found at run time, and can be used */
} srt_feature_state_t;

/** A feature of this build on this machine, filled by srt_feature_get_info(). The strings are
 * static, except `why_missing`. */
typedef struct srt_feature_info {
	size_t size;      /* set by SRT_FEATURE_INFO_INIT */
	const char *name; /* for people: "sharded checkpoints" */
	/* Debian's names of what the build needs: "libjansson-dev libxxhash-dev" */
	const char *packages;
	const char *command; /* a command of the README that needs it */
	srt_feature_state_t state;
	char why_missing[512]; /* of a missing feature: a sentence; else "" */
} srt_feature_info_t;

/** Sets srt_feature_info_t.size. */
#define SRT_FEATURE_INFO_INIT                                                                      \
	{                                                                                          \
		.size = sizeof(srt_feature_info_t)                                                 \
	}

/** Number of features: those of srt_feature_t, from 0 on. Thread-safe. */
SRT_API size_t srt_feature_count(void);

/**
 * Looks for a feature: libraries that are loaded at run time are loaded, drivers are asked for
 * devices; nothing is opened. If it is missing, the call succeeds, and `why_missing` says why.
 * @param[out] info its size is set; filled on success only.
 * @return SRT_ERR_INVALID_ARGUMENT for a number that is not one of srt_feature_t. Thread-safe.
 */
SRT_API srt_status_t srt_feature_get_info(srt_feature_t feature, srt_feature_info_t *info);

#ifdef __cplusplus
}
#endif
#endif
