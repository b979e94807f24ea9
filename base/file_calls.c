/* SPDX-License-Identifier: BSD-3-Clause */
/* See file_calls.h. */
#include "base/file_calls.h"

#include <errno.h>
#include <fcntl.h>
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
