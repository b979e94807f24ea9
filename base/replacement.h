/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replacing a file as a whole: a temporary file in the folder of the target is written, synced and
 * renamed, so that the target is complete at any time. After a failure it is what it was.
 * Used by safetensors_write.c, and for manifests and the file `latest`.
 */
#ifndef SRT_BASE_REPLACEMENT_H
#define SRT_BASE_REPLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <shardrt/status.h>

typedef struct srt_replacement {
	int fd;          /* of the temporary file; -1: none */
	char *path;      /* the target; a symbolic link is resolved */
	char *temporary; /* NULL: none */
	pid_t pid;       /* of the process that created it */
} srt_replacement_t;

/* Locks a temporary file or folder that this process has just created, so that no process takes it
 * for abandoned. Returns fd, or closes it and returns -1 with errno; EEXIST: try another name.
 * fd: -1 with errno of the creation is allowed. */
int srt_lock_created(int fd);
/*
 * Creates the temporary file, with the mode of the target if there is one. To be closed also after
 * a failure. A target that is a symbolic link is replaced, or the file that it names if `follows`.
 * SRT_ERR_INVALID_ARGUMENT: the target is not a regular file; SRT_ERR_IO.
 */
srt_status_t srt_replacement_open(srt_replacement_t *r, const char *path, bool follows);
/* Allocates the whole file, so that a full disk is found before anything is written. SRT_ERR_IO. */
srt_status_t srt_replacement_allocate(const srt_replacement_t *r, size_t nbytes);
/* Writes all bytes at the end of what was written by this call before. SRT_ERR_IO. */
srt_status_t srt_replacement_write(const srt_replacement_t *r, const void *bytes, size_t nbytes);
/* Makes the temporary file durable, so that a commit takes no time. SRT_ERR_IO. */
srt_status_t srt_replacement_sync(const srt_replacement_t *r);
/* Syncs and renames. SRT_ERR_IO; the sentence tells if the new file is in place nevertheless. */
srt_status_t srt_replacement_commit(srt_replacement_t *r);
/* Removes the temporary file if there was no commit; in a child by fork() it is left alone. */
void srt_replacement_close(srt_replacement_t *r);

#endif
