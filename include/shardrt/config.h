/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The configuration table: every SHARDRT_* environment variable that the library reads,
 * with its type, range, default and meaning. Nothing else in the library calls getenv().
 */
#ifndef SHARDRT_CONFIG_H
#define SHARDRT_CONFIG_H

#include <stddef.h>

#include <shardrt/export.h>
#include <shardrt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Type of a variable's value. */
typedef enum srt_config_type {
	SRT_CONFIG_STRING,
	SRT_CONFIG_ENUM, /* one of the words of `range`, separated by '|' */
	SRT_CONFIG_INT,  /* decimal, `range` is "min..max" */
	SRT_CONFIG_BOOL, /* 0|1|no|yes|off|on|false|true */
	SRT_CONFIG_TIME, /* seconds, fractions allowed */
	SRT_CONFIG_SIZE, /* bytes; suffixes k, m, g are powers of 1024 */
} srt_config_type_t;

/** One variable. All strings are static. */
typedef struct srt_config_entry {
	const char *name; /* "SHARDRT_BACKEND" */
	srt_config_type_t type;
	const char *default_value; /* as one would write it in the environment; "" = unset */
	const char *unit;          /* "s", "bytes", "threads" or "" */
	const char *range;         /* words or "min..max"; "" = anything */
	const char *help;          /* one sentence */
} srt_config_entry_t;

/** Number of variables in the table. Thread-safe. */
SRT_API size_t srt_config_count(void);

/** The i-th variable, NULL past the end. The table is sorted by name. Thread-safe. */
SRT_API const srt_config_entry_t *srt_config_at(size_t i);

/**
 * The text of a variable's present value: the environment's, or the default.
 * @param name e.g. "SHARDRT_TIMEOUT".
 * @param[out] value a string that lives as long as the environment is not changed.
 * @param[out] is_set may be NULL; 1 if it comes from the environment.
 * @return SRT_ERR_NOT_FOUND for a name outside the table, SRT_ERR_INVALID_ARGUMENT when the
 *         environment's value is malformed or out of range (the last error says what is allowed).
 * Thread-safe as long as nobody calls setenv() meanwhile.
 */
SRT_API srt_status_t srt_config_value(const char *name, const char **value, int *is_set);

/**
 * Looks for SHARDRT_* variables in the environment that the table does not know.
 * Calls `report` for each with the nearest known name (NULL when none is near); `report` NULL: they
 * are counted only. `arg` may be NULL.
 * @return how many there are.
 */
SRT_API size_t srt_config_unknown(void (*report)(const char *name, const char *nearest, void *arg),
				  void *arg);

#ifdef __cplusplus
}
#endif
#endif
