/* SPDX-License-Identifier: BSD-3-Clause */
/* See file_calls.h. */
#include "base/file_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/base.h"

bool srt_call_is_refused(int error)
{
	return error == EINVAL || error == ENOSYS || error == EPERM || error == ENOTSUP ||
	       error == EOPNOTSUPP || error == ENOTTY;
}

bool srt_set_mode(int fd, mode_t mode)
{
	return fchmod(fd, mode) == 0 || srt_call_is_refused(errno);
}

bool srt_sync_file(int fd)
{
	return fsync(fd) == 0 || srt_call_is_refused(errno);
}

bool srt_sync_folder(const char *path)
{
	const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool done;
	int error;

	if (fd < 0)
		return srt_call_is_refused(errno);
	/* EBADF: of a file system that syncs only what is open for writing */
	done = srt_sync_file(fd) || errno == EBADF;
	error = errno;
	close(fd);
	errno = error;
	return done;
}

bool srt_allocate_file(int fd, size_t nbytes)
{
	struct statvfs fs;
	int error;

	do
		error = fallocate(fd, 0, 0, (off_t)nbytes) == 0 ? 0 : errno;
	while (error == EINTR);
	if (srt_call_is_refused(error)) {
		error = 0;
		/* no blocks: it does not tell */
		if (fstatvfs(fd, &fs) == 0 && fs.f_blocks > 0 && fs.f_frsize > 0 &&
		    nbytes / fs.f_frsize >= fs.f_bavail)
			error = ENOSPC;
	}
	errno = error;
	return error == 0;
}

char *srt_parent_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *parent = srt_strdup(slash != NULL ? path : ".");

	if (parent != NULL && slash != NULL)
		parent[slash == path ? 1 : slash - path] = '\0';
	return parent;
}

/* Reads the file from its begin to its end into `text`. SRT_ERR_IO. */
static srt_status_t read_all(int fd, const char *path, char *text, size_t nbytes)
{
	for (size_t at = 0; at < nbytes;) {
		const ssize_t n = read(fd, text + at, nbytes - at);

		if (n > 0)
			at += (size_t)n;
		else if (n == 0 || errno != EINTR)
			return srt_fail(SRT_ERR_IO, "cannot read %s: %s", path,
					n == 0 ? "it became shorter" : strerror(errno));
	}
	return SRT_OK;
}

srt_status_t srt_read_text(const char *path, size_t max_nbytes, char **text, size_t *nbytes)
{
	/* O_NONBLOCK: opening a FIFO must not block before fstat() */
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	struct stat st;
	char *bytes;

	if (fd < 0)
		return srt_fail(errno == ENOENT || errno == ENOTDIR ? SRT_ERR_NOT_FOUND :
								      SRT_ERR_IO,
				"cannot open %s: %s", path, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > max_nbytes) {
		close(fd);
		return srt_fail(SRT_ERR_IO,
				"cannot read %s: it is not a regular file of at most %zu bytes",
				path, max_nbytes);
	}
	bytes = srt_calloc((size_t)st.st_size + 1, 1, "the text of a file");
	if (bytes != NULL)
		status = read_all(fd, path, bytes, (size_t)st.st_size);
	close(fd);
	if (status != SRT_OK) {
		free(bytes);
		return status;
	}
	*text = bytes;
	*nbytes = (size_t)st.st_size;
	return SRT_OK;
}
