/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See replacement.h. A temporary file is locked while the process that writes it lives. The next
 * one that replaces the same target removes those that are not locked: their processes were killed.
 */
#include "base/replacement.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file_calls.h"

/* Whether the name is the target's name, then ".tmp-". */
static bool is_temporary(const char *name, const char *target)
{
	size_t n = strlen(target);

	return strncmp(name, target, n) == 0 && strncmp(name + n, ".tmp-", 5) == 0;
}

/* Removes the temporary files of processes that no longer run. A failure leaves them there. */
static void remove_abandoned(const srt_replacement_t *r)
{
	const char *slash = strrchr(r->path, '/'), *target = slash != NULL ? slash + 1 : r->path;
	char *parent = srt_parent_of(r->path);
	DIR *dir = parent != NULL ? opendir(parent) : NULL;
	const int folder = dir != NULL ? dirfd(dir) : -1;
	const struct dirent *entry;

	free(parent);
	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL) {
		int fd;

		if (!is_temporary(entry->d_name, target))
			continue;
		fd = openat(folder, entry->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0)
			continue;
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			unlinkat(folder, entry->d_name, 0);
		close(fd);
	}
	closedir(dir);
}

int srt_lock_created(int fd)
{
	struct stat st;

	if (fd < 0)
		return -1;
	/* Since its creation another process may have taken it for abandoned. A file system may
	 * have no locks. That is not an error: nothing is removed on it. */
	if ((flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) ||
	    (fstat(fd, &st) == 0 && st.st_nlink == 0)) {
		close(fd);
		errno = EEXIST;
		return -1;
	}
	return fd;
}

/* If the target is a symbolic link, the file that it names is written. */
static srt_status_t resolve_link(srt_replacement_t *r)
{
	struct stat st;
	char *real;

	if (lstat(r->path, &st) != 0 || !S_ISLNK(st.st_mode))
		return SRT_OK;
	real = realpath(r->path, NULL);
	if (real == NULL)
		return srt_fail(SRT_ERR_IO, "cannot save to the symbolic link %s: %s", r->path,
				strerror(errno));
	free(r->path);
	r->path = real;
	return SRT_OK;
}

srt_status_t srt_replacement_open(srt_replacement_t *r, const char *path, bool follows)
{
	struct stat st;
	mode_t mode;
	bool exists;

	*r = (srt_replacement_t){ .fd = -1, .path = srt_strdup(path), .pid = getpid() };
	if (r->path == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (follows)
		SRT_TRY(resolve_link(r));
	exists = lstat(r->path, &st) == 0 && !S_ISLNK(st.st_mode);
	if (exists && !S_ISREG(st.st_mode))
		return srt_fail(
			SRT_ERR_INVALID_ARGUMENT,
			"%s exists and is not a regular file: choose another name to save to",
			r->path);
	/* A file that others may not read must not become one that they may. */
	mode = exists ? st.st_mode & 0777 : 0666;
	remove_abandoned(r);
	for (int i = 0; i < 100; i++) {
		r->temporary = srt_asprintf("%s.tmp-%ld-%d", r->path, (long)getpid(), i);
		if (r->temporary == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		r->fd = srt_lock_created(
			open(r->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));
		if (r->fd >= 0)
			break;
		free(r->temporary);
		r->temporary = NULL;
		if (errno != EEXIST)
			break;
	}
	if (r->fd < 0)
		return srt_fail(SRT_ERR_IO,
				"cannot create a temporary file in the folder of %s: %s", r->path,
				strerror(errno));
	if (exists && !srt_set_mode(r->fd, mode)) /* the umask may have taken bits away */
		return srt_fail(SRT_ERR_IO, "cannot set the mode of %s: %s", r->temporary,
				strerror(errno));
	return SRT_OK;
}

srt_status_t srt_replacement_allocate(const srt_replacement_t *r, size_t nbytes)
{
	if (!srt_allocate_file(r->fd, nbytes))
		return srt_fail(SRT_ERR_IO, "cannot allocate the %zu bytes of %s: %s", nbytes,
				r->temporary, strerror(errno));
	return SRT_OK;
}

srt_status_t srt_replacement_write(const srt_replacement_t *r, const void *bytes, size_t nbytes)
{
	const char *from = bytes;

	while (nbytes > 0) {
		const ssize_t n = write(r->fd, from, nbytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return srt_fail(SRT_ERR_IO, "cannot write %s: %s", r->temporary,
					n < 0 ? strerror(errno) : "0 bytes were written");
		from += n;
		nbytes -= (size_t)n;
	}
	return SRT_OK;
}

/* Makes the rename durable. */
static srt_status_t sync_parent(const srt_replacement_t *r)
{
	char *parent = srt_parent_of(r->path);
	const bool done = parent != NULL && srt_sync_folder(parent);

	free(parent);
	if (done)
		return SRT_OK;
	return srt_fail(SRT_ERR_IO,
			"%s is complete and in place, but after a power failure the previous file "
			"may be there again: its folder cannot be synced: %s",
			r->path, strerror(errno));
}

srt_status_t srt_replacement_sync(const srt_replacement_t *r)
{
	if (!srt_sync_file(r->fd))
		return srt_fail(SRT_ERR_IO, "cannot save %s: %s", r->path, strerror(errno));
	return SRT_OK;
}

srt_status_t srt_replacement_commit(srt_replacement_t *r)
{
	int error = 0;

	if (!srt_sync_file(r->fd))
		error = errno;
	/* close() may report a failed write of a network file system */
	if (close(r->fd) != 0 && !error)
		error = errno;
	r->fd = -1;
	if (!error && rename(r->temporary, r->path) != 0)
		error = errno;
	if (error)
		return srt_fail(SRT_ERR_IO, "cannot save %s: %s", r->path, strerror(error));
	free(r->temporary);
	r->temporary = NULL;
	return sync_parent(r);
}

void srt_replacement_close(srt_replacement_t *r)
{
	if (r->fd >= 0)
		close(r->fd);
	if (r->temporary != NULL && r->pid == getpid())
		unlink(r->temporary);
	free(r->temporary);
	free(r->path);
}
