/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that set the mode of files, make them durable, allocate their space and read them. Some
 * file systems, for example NFS, FUSE and FAT, refuse some of these calls. A refused call succeeds
 * here, because such a file system cannot make the file safer. An error of the disk is a failure.
 *
 * Used by replacement.c and folder.c for every file that the library writes.
 */
#ifndef SRT_BASE_FILE_CALLS_H
#define SRT_BASE_FILE_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <shardrt/status.h>

/* Whether an errno says that the file system does not have the call. */
bool srt_call_is_refused(int error);
/* The functions below: true if it is done or refused; false with errno. */
bool srt_set_mode(int fd, mode_t mode);
/* Makes the bytes of a file durable. */
bool srt_sync_file(int fd);
/* Makes the names in a folder durable. */
bool srt_sync_folder(const char *path);
/* Allocates nbytes for a file. If the file system does not have this call, compares nbytes with the
 * space that is free. */
bool srt_allocate_file(int fd, size_t nbytes);
/* The folder that a path without slashes at its end is in; to be freed. NULL without memory. */
char *srt_parent_of(const char *path);
/* A whole file and a terminating zero; to be freed. SRT_ERR_NOT_FOUND: no such file; SRT_ERR_IO: it
 * cannot be read, is not a regular one, or has more than max_nbytes. */
srt_status_t srt_read_text(const char *path, size_t max_nbytes, char **text, size_t *nbytes);

#endif
