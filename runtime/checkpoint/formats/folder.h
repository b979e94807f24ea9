/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replacing a folder of a checkpoint as a whole, as replacement.h does a file. The new one is
 * written in a folder FOLDER.tmp-ID of the same parent, which is locked while its process lives.
 *
 *     rank 0             srt_folder_create(), then the others know the temporary folder's name
 *     each rank          its files, each synced
 *     rank 0             the manifest, synced
 *     srt_folder_commit  the folder synced; renamed; the parent synced; `latest` replaced; the
 *                        old checkpoint removed
 *
 * At any time FOLDER is the complete old checkpoint or the complete new one. Where the file system
 * cannot exchange two folders, FOLDER is absent for a moment: then the old one is
 * FOLDER.replaced, which srt_folder_find() finds.
 *
 * A lock may be seen on its own machine only (file systems of networks). So the identifier begins
 * with a hash of the machine's name, and only folders of this machine are removed as abandoned.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_FORMATS_FOLDER_H
#define SRT_RUNTIME_CHECKPOINT_FORMATS_FOLDER_H

#include <stdbool.h>

#include <shardrt/status.h>

#include "runtime/checkpoint/formats/manifest.h"

/* The file in the folder of checkpoints that has the name of the one that was saved last. */
#define SRT_LATEST_NAME "latest"

typedef struct srt_folder {
	int fd;          /* of the temporary folder, locked; -1: none */
	char *path;      /* without slashes at its end */
	char *temporary; /* NULL: none */
	char id[SRT_CHECKPOINT_ID_LENGTH + 1];
} srt_folder_t;

/* The path without slashes at its end; to be freed. SRT_ERR_INVALID_ARGUMENT: it cannot be the name
 * of a folder to save to. */
srt_status_t srt_folder_trim(const char *path, char **trimmed);
/* The path where the checkpoint is: this one or, if a save was killed while it replaced it,
 * FOLDER.replaced; to be freed. NULL without memory. */
char *srt_folder_find(const char *path);
/* Whether its manifest begins as ours do: other programs have files of this name too. */
bool srt_folder_is_checkpoint(const char *path);
/* FOLDER.tmp-ID; to be freed. NULL without memory. */
char *srt_folder_temporary(const char *path, const char *id);
/*
 * Makes the identifier and the temporary folder, and removes those of processes that were killed.
 * To be closed also after a failure. SRT_ERR_INVALID_ARGUMENT: `path` is there and is no
 * checkpoint; SRT_ERR_IO.
 */
srt_status_t srt_folder_create(srt_folder_t *folder, const char *path);
/* is_latest: the file `latest` gets its name. SRT_ERR_IO; the sentence tells if the new checkpoint
 * is in place nevertheless. */
srt_status_t srt_folder_commit(srt_folder_t *folder, bool is_latest);
/* Replaces the file `latest` of the folder `parent`. */
srt_status_t srt_latest_write(const char *parent, const char *name);
/* Removes the temporary folder if there was no commit. */
void srt_folder_close(srt_folder_t *folder);

#endif
