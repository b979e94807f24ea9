/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of declared objects. */
#ifndef SRT_BASE_NAMES_H
#define SRT_BASE_NAMES_H

#include <stddef.h>

#include <shardrt/status.h>

typedef struct srt_name {
	const char *name; /* NULL: free */
	void *object;
} srt_name_t;

/* All zero: empty. Names are borrowed. */
typedef struct srt_names {
	size_t n, room; /* room is 0 or a power of two */
	srt_name_t *entries;
} srt_names_t;

/* Memory for one more name. */
srt_status_t srt_names_reserve(srt_names_t *names);
/* Adds a name that is not in the table. Memory must have been reserved. */
void srt_names_add(srt_names_t *names, const char *name, void *object);
/* NULL: there is no such name. */
void *srt_names_find(const srt_names_t *names, const char *name);
/* Frees the table. */
void srt_names_free(srt_names_t *names);

#endif
