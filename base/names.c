/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A hash table from names to declared objects: open addressing, at most half full. Objects are
 * never removed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/names.h"

/* The entry of this name, or the free one where it belongs. */
static srt_name_t *find_entry(const srt_names_t *names, const char *name)
{
	size_t at = (size_t)srt_hash64(0, name, strlen(name)) & (names->room - 1);

	while (names->entries[at].name != NULL && strcmp(names->entries[at].name, name) != 0)
		at = (at + 1) & (names->room - 1);
	return &names->entries[at];
}

srt_status_t srt_names_reserve(srt_names_t *names)
{
	srt_names_t grown = { .n = names->n, .room = names->room > 0 ? 2 * names->room : 16 };

	if (names->n < names->room / 2)
		return SRT_OK;
	grown.entries = srt_calloc(grown.room, sizeof(*grown.entries), "table of names");
	if (grown.entries == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (size_t i = 0; i < names->room; i++) {
		if (names->entries[i].name != NULL)
			*find_entry(&grown, names->entries[i].name) = names->entries[i];
	}
	free(names->entries);
	*names = grown;
	return SRT_OK;
}

void srt_names_add(srt_names_t *names, const char *name, void *object)
{
	*find_entry(names, name) = (srt_name_t){ name, object };
	names->n++;
}

void *srt_names_find(const srt_names_t *names, const char *name)
{
	return names->room > 0 ? find_entry(names, name)->object : NULL;
}

void srt_names_free(srt_names_t *names)
{
	free(names->entries);
}
