/* SPDX-License-Identifier: BSD-3-Clause */
/* The file `latest` of a folder with checkpoints (folder.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <shardrt/checkpoint.h>

#include "base/base.h"
#include "runtime/checkpoint/formats/folder.h"
#include "base/replacement.h"

/* What was set aside as damaged, here and by shardrt-train. */
#define DAMAGED ".damaged"
#define MOST_NUMBERS 1000

static bool is_set_aside(const char *name)
{
	return strstr(name, DAMAGED) != NULL;
}

/* A folder, which no file can replace, gets the name PATH.damaged, or PATH.damaged-N. */
static srt_status_t set_aside_folder(const char *path)
{
	struct stat st;
	char *aside = NULL;
	int number = 1;
	bool done;

	if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
		return SRT_OK;
	do {
		free(aside);
		aside = number == 1 ? srt_asprintf("%s" DAMAGED, path) :
				      srt_asprintf("%s" DAMAGED "-%d", path, number);
	} while (aside != NULL && lstat(aside, &st) == 0 && number++ < MOST_NUMBERS);
	if (aside == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	done = rename(path, aside) == 0;
	if (done)
		srt_log(SRT_LOG_WARN, "%s is a folder, not a file: it has the name %s now", path,
			aside);
	free(aside);
	return done ? SRT_OK :
		      srt_fail(SRT_ERR_IO, "%s is a folder, not a file, and cannot be renamed: %s",
			       path, strerror(errno));
}

srt_status_t srt_latest_write(const char *parent, const char *name)
{
	char *path = srt_asprintf("%s/%s", parent, SRT_LATEST_NAME);
	char *line = srt_asprintf("%s\n", name);
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	srt_replacement_t r = { .fd = -1 };

	if (path == NULL || line == NULL)
		goto out;
	status = set_aside_folder(path);
	if (status == SRT_OK)
		status = srt_replacement_open(&r, path, false);
	if (status == SRT_OK)
		status = srt_replacement_write(&r, line, strlen(line));
	if (status == SRT_OK)
		status = srt_replacement_commit(&r);
	srt_replacement_close(&r);
out:
	free(line);
	free(path);
	return status;
}

/* Without the index: an error that is not "no checkpoints" if there are some. */
static srt_status_t fail_without_index(const char *parent)
{
	char name[NAME_MAX + 1] = "";
	DIR *dir = opendir(parent);
	const struct dirent *entry;
	int n = 0;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		char *path = entry->d_name[0] != '.' && !is_set_aside(entry->d_name) ?
				     srt_asprintf("%s/%s", parent, entry->d_name) :
				     NULL;

		if (path != NULL && srt_folder_is_checkpoint(path)) {
			/* The last one by name, as names of steps are. */
			if (n++ == 0 || strcmp(entry->d_name, name) > 0)
				snprintf(name, sizeof(name), "%s", entry->d_name);
		}
		free(path);
	}
	if (dir != NULL)
		closedir(dir);
	if (n == 0)
		return srt_fail(SRT_ERR_NOT_FOUND,
				"%s has no file '%s', which names the latest checkpoint, and no "
				"checkpoint",
				parent, SRT_LATEST_NAME);
	return srt_fail(SRT_ERR_FORMAT,
			"%s has %d checkpoint%s, the last by name '%s', but no file '%s', which "
			"names the latest one: write its name into that file (echo '%s' > %s/%s)",
			parent, n, n == 1 ? "" : "s", name, SRT_LATEST_NAME, name, parent,
			SRT_LATEST_NAME);
}

srt_status_t srt_checkpoint_latest(const char *parent, char *folder, size_t nfolder)
{
	char name[256], *path, *found;
	bool is_there;
	ssize_t n;
	int fd;

	SRT_NOT_NULL(parent);
	SRT_NOT_NULL(folder);
	path = srt_asprintf("%s/%s", parent, SRT_LATEST_NAME);
	if (path == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	free(path);
	if (fd < 0 && errno == ENOENT)
		return fail_without_index(parent);
	if (fd < 0)
		return srt_fail(SRT_ERR_IO,
				"the file '%s' of %s, which names the latest checkpoint, cannot be "
				"read: %s",
				SRT_LATEST_NAME, parent, strerror(errno));
	n = read(fd, name, sizeof(name));
	close(fd);
	if (n < 2 || n == (ssize_t)sizeof(name) || memchr(name, '\0', (size_t)n) != NULL ||
	    memchr(name, '/', (size_t)n) != NULL || name[n - 1] != '\n' || name[0] == '.')
		return srt_fail(SRT_ERR_FORMAT, "%s/%s does not have the name of a checkpoint",
				parent, SRT_LATEST_NAME);
	name[n - 1] = '\0';
	path = srt_asprintf("%s/%s", parent, name);
	found = path != NULL ? srt_folder_find(path) : NULL;
	free(path);
	if (found == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	is_there = srt_folder_is_checkpoint(found);
	free(found);
	if (!is_there)
		return srt_fail(SRT_ERR_FORMAT,
				"%s/%s names the checkpoint '%s', which is not there or has no %s "
				"of a checkpoint",
				parent, SRT_LATEST_NAME, name, SRT_MANIFEST_NAME);
	if ((size_t)snprintf(folder, nfolder, "%s/%s", parent, name) >= nfolder)
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"the path of the latest checkpoint in %s has more than %zu bytes",
				parent, nfolder);
	return SRT_OK;
}
