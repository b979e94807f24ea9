/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that make files safer, and that some file systems do not have: modes, syncs, allocation.
 * Network file systems, FUSE and FAT refuse one or the other. A refusal is no failure, since the
 * file is as safe as it can be there; an error of the disk is one.
 *
 * Used by replacement.c and folder.c for every file that the library writes.
 */
#ifndef SRT_RUNTIME_CHECKPOINT_FILE_CALLS_H
#define SRT_RUNTIME_CHECKPOINT_FILE_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Whether an errno says that the file system does not have the call. */
bool srt_call_is_refused(int error);
/* The functions below: true if it is done or refused; false with errno. */
bool srt_set_mode(int fd, mode_t mode);
/* Makes the bytes of a file durable. */
bool srt_sync_file(int fd);
/* Makes the names in a folder durable. */
bool srt_sync_folder(const char *path);
/* Allocates the bytes of a file; where that is refused, finds out whether the disk has so many. */
bool srt_allocate_file(int fd, size_t nbytes);
/* The folder that a path without slashes at its end is in; to be freed. NULL without memory. */
char *srt_parent_of(const char *path);

#endif
