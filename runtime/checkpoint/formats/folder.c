/* SPDX-License-Identifier: BSD-3-Clause */
/* See folder.h; and srt_checkpoint_remove(). */
#include "runtime/checkpoint/formats/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <shardrt/checkpoint.h>

#include "base/base.h"
#include "base/hash128.h"
#include "base/file_calls.h"
#include "base/replacement.h"

#define TEMPORARY ".tmp-"
#define REPLACED ".replaced"
/* Digits of an identifier that are the hash of the machine's name. */
#define HOST_DIGITS 6

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/* NAME.tmp-, and an identifier. */
static bool is_temporary(const char *name)
{
	const size_t n = strlen(name), tail = sizeof(TEMPORARY) - 1 + SRT_CHECKPOINT_ID_LENGTH;
	const char *at = n > tail ? name + n - tail : "";

	return strncmp(at, TEMPORARY, sizeof(TEMPORARY) - 1) == 0 &&
	       strspn(at + sizeof(TEMPORARY) - 1, "0123456789abcdef") == SRT_CHECKPOINT_ID_LENGTH;
}

static bool is_replaced(const char *name)
{
	const size_t n = strlen(name), tail = sizeof(REPLACED) - 1;

	return n > tail && strcmp(name + n - tail, REPLACED) == 0;
}

srt_status_t srt_folder_trim(const char *path, char **trimmed)
{
	const char *name;
	size_t n;

	*trimmed = srt_strdup(path);
	if (*trimmed == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	for (n = strlen(*trimmed); n > 1 && (*trimmed)[n - 1] == '/'; n--)
		(*trimmed)[n - 1] = '\0';
	name = name_of(*trimmed);
	if (*name != '\0' && *name != '.' && strcmp(name, SRT_LATEST_NAME) != 0 &&
	    !is_temporary(name) && !is_replaced(name))
		return SRT_OK;
	free(*trimmed);
	*trimmed = NULL;
	return srt_fail(SRT_ERR_INVALID_ARGUMENT,
			"'%s' is not the name of a folder to save to: it must not be '%s', begin "
			"with '.' or end in " REPLACED " or in %s and %d hexadecimal digits",
			path, SRT_LATEST_NAME, TEMPORARY, SRT_CHECKPOINT_ID_LENGTH);
}

/* ---- removal ---------------------------------------------------------------------------- */

/* What comes after a text, after digits; NULL: it is not there, also if `at` is NULL. */
static const char *skip(const char *at, const char *text)
{
	return at != NULL && strncmp(at, text, strlen(text)) == 0 ? at + strlen(text) : NULL;
}

static const char *skip_digits(const char *at, size_t least)
{
	const size_t n = at != NULL ? strspn(at, "0123456789") : 0;

	return n >= least ? at + n : NULL;
}

/* Files that a checkpoint has, complete or not: the manifest, rank-DDDDD-of-DDDDD.safetensors, also
 * with -partK, and their temporary files (replacement.h), NAME.tmp-PID-I. */
static bool is_file_of_ours(const char *name)
{
	const char *at = skip(name, SRT_MANIFEST_NAME), *part;

	if (at == NULL) {
		at = skip_digits(skip(name, "rank-"), 5);
		at = skip_digits(skip(at, "-of-"), 5);
		part = skip_digits(skip(at, "-part"), 1);
		at = skip(part != NULL ? part : at, ".safetensors");
	}
	if (at == NULL || *at == '\0')
		return at != NULL;
	at = skip_digits(skip(at, TEMPORARY), 1);
	at = skip_digits(skip(at, "-"), 1);
	return at != NULL && *at == '\0';
}

/* Removes the files of a checkpoint, the manifest last, so that what is left of it is known as one;
 * then the folder, unless it has others: ENOTEMPTY. errno. */
static bool remove_files(const char *path)
{
	const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry;
	bool removed = true;

	if (dir == NULL) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while ((entry = readdir(dir)) != NULL)
		if (is_file_of_ours(entry->d_name) && strcmp(entry->d_name, SRT_MANIFEST_NAME) != 0)
			removed = unlinkat(fd, entry->d_name, 0) == 0 && removed;
	if (removed)
		unlinkat(fd, SRT_MANIFEST_NAME, 0);
	closedir(dir);
	return rmdir(path) == 0;
}

/* Warns of a folder that stays because remove_files() has found other files in it. */
static void report_left(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;

	do {
		entry = dir != NULL ? readdir(dir) : NULL;
	} while (entry != NULL &&
		 (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
	srt_log(SRT_LOG_WARN,
		"the files of an old checkpoint are removed, but the folder %s stays: it has other "
		"files, such as '%s'",
		path, entry != NULL ? entry->d_name : "?");
	if (dir != NULL)
		closedir(dir);
}

/* The begin of the identifiers that this machine makes. */
static void hash_host(char digits[HOST_DIGITS + 1])
{
	struct utsname host = { .nodename = "" };
	char all[17];

	uname(&host);
	snprintf(all, sizeof(all), "%016" PRIx64,
		 srt_xxh3_64(host.nodename, strlen(host.nodename)));
	memcpy(digits, all, HOST_DIGITS);
	digits[HOST_DIGITS] = '\0';
}

/* Removes temporary folders of processes of this machine that no longer run. A failure leaves them
 * there. */
static void remove_abandoned(const char *parent)
{
	DIR *dir = opendir(parent);
	char host[HOST_DIGITS + 1];
	const struct dirent *entry;

	hash_host(host);
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		const size_t n = strlen(entry->d_name);
		char *path;
		int fd;

		if (!is_temporary(entry->d_name) ||
		    memcmp(entry->d_name + n - SRT_CHECKPOINT_ID_LENGTH, host, HOST_DIGITS) != 0)
			continue;
		path = srt_asprintf("%s/%s", parent, entry->d_name);
		fd = path != NULL ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) :
				    -1;
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
			remove_files(path);
		if (fd >= 0)
			close(fd);
		free(path);
	}
	if (dir != NULL)
		closedir(dir);
}

bool srt_folder_is_checkpoint(const char *path)
{
	char *manifest = srt_asprintf("%s/%s", path, SRT_MANIFEST_NAME);
	char head[sizeof(SRT_MANIFEST_HEAD) - 1];
	const int fd = manifest != NULL ? open(manifest, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
	const bool is = fd >= 0 && read(fd, head, sizeof(head)) == (ssize_t)sizeof(head) &&
			memcmp(head, SRT_MANIFEST_HEAD, sizeof(head)) == 0;

	if (fd >= 0)
		close(fd);
	free(manifest);
	return is;
}

/* FOLDER.replaced; to be freed. NULL without memory. */
static char *replaced_of(const char *path)
{
	return srt_asprintf("%s" REPLACED, path);
}

/* FOLDER.replaced, to be freed, if that is a checkpoint. */
static char *find_replaced(const char *path)
{
	char *replaced = replaced_of(path);

	if (replaced != NULL && srt_folder_is_checkpoint(replaced))
		return replaced;
	free(replaced);
	return NULL;
}

char *srt_folder_find(const char *path)
{
	char *trimmed = NULL, *replaced = NULL;
	struct stat st;

	if (lstat(path, &st) != 0 && errno == ENOENT && srt_folder_trim(path, &trimmed) == SRT_OK)
		replaced = find_replaced(trimmed);
	free(trimmed);
	if (replaced == NULL)
		return srt_strdup(path);
	srt_log(SRT_LOG_WARN, "%s is not there: reading %s, which a save has left", path, replaced);
	return replaced;
}

/* ---- creation --------------------------------------------------------------------------- */

char *srt_folder_temporary(const char *path, const char *id)
{
	return srt_asprintf("%s" TEMPORARY "%s", path, id);
}

static srt_status_t make_id(char id[SRT_CHECKPOINT_ID_LENGTH + 1])
{
	uint64_t random;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return srt_fail(SRT_ERR_SYSTEM, "no random identifier of a checkpoint: %s",
				strerror(errno));
	hash_host(id);
	snprintf(id + HOST_DIGITS, SRT_CHECKPOINT_ID_LENGTH + 1 - HOST_DIGITS, "%0*" PRIx64,
		 SRT_CHECKPOINT_ID_LENGTH - HOST_DIGITS, random >> 4 * HOST_DIGITS);
	return SRT_OK;
}

/* Creates and locks it; -1 with errno. */
static int create_locked(const char *path, mode_t mode)
{
	if (mkdir(path, mode) != 0)
		return -1;
	return srt_lock_created(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

srt_status_t srt_folder_create(srt_folder_t *f, const char *path)
{
	struct stat st;
	char *parent;
	mode_t mode = 0777;
	bool exists;

	*f = (srt_folder_t){ .fd = -1 };
	SRT_TRY(srt_folder_trim(path, &f->path));
	exists = lstat(f->path, &st) == 0;
	if (exists && !(S_ISDIR(st.st_mode) && srt_folder_is_checkpoint(f->path)))
		return srt_fail(SRT_ERR_INVALID_ARGUMENT,
				"%s is there and is %s: choose another name to save to", f->path,
				S_ISLNK(st.st_mode) ? "a symbolic link" : "not a checkpoint");
	/* A folder that others may not read must not become one that they may. */
	if (exists)
		mode = (st.st_mode & 07777) | 0700;
	parent = srt_parent_of(f->path);
	if (parent == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	remove_abandoned(parent);
	free(parent);
	for (int i = 0; i < 100 && f->fd < 0; i++) {
		SRT_TRY(make_id(f->id));
		free(f->temporary);
		f->temporary = srt_folder_temporary(f->path, f->id);
		if (f->temporary == NULL)
			return SRT_ERR_OUT_OF_MEMORY;
		f->fd = create_locked(f->temporary, mode);
		if (f->fd < 0 && errno != EEXIST)
			break;
	}
	if (f->fd < 0)
		return srt_fail(SRT_ERR_IO, "cannot create the folder %s: %s", f->temporary,
				strerror(errno));
	if (exists && !srt_set_mode(f->fd, mode)) /* the umask may have taken bits away */
		return srt_fail(SRT_ERR_IO, "cannot set the mode of %s: %s", f->temporary,
				strerror(errno));
	return SRT_OK;
}

/* ---- commit ----------------------------------------------------------------------------- */

/*
 * Renames the temporary folder. A checkpoint that is there becomes the folder *old, to be freed;
 * NULL: there was none. False: errno.
 */
static bool rename_folder(const srt_folder_t *f, char **old)
{
	*old = NULL;
	if (rename(f->temporary, f->path) == 0) { /* there was none, or an empty folder */
		*old = find_replaced(f->path);    /* a killed save may have left it */
		return true;
	}
	if (errno != EEXIST && errno != ENOTEMPTY)
		return false;
	if (renameat2(AT_FDCWD, f->temporary, AT_FDCWD, f->path, RENAME_EXCHANGE) == 0) {
		*old = srt_strdup(f->temporary);
		return true;
	}
	/* The file system cannot exchange folders. */
	if (!srt_call_is_refused(errno))
		return false;
	*old = replaced_of(f->path);
	if (*old == NULL) {
		errno = ENOMEM;
		return false;
	}
	if (srt_folder_is_checkpoint(*old))
		remove_files(*old); /* of a save that was killed; the checkpoint is newer */
	if (rename(f->path, *old) == 0) {
		int error;

		if (rename(f->temporary, f->path) == 0)
			return true;
		error = errno;
		rename(*old, f->path); /* if this fails too, it is found where it is */
		errno = error;
	}
	free(*old);
	*old = NULL;
	return false;
}

srt_status_t srt_folder_commit(srt_folder_t *f, bool is_latest)
{
	char *parent = srt_parent_of(f->path);
	char *old;
	srt_status_t status;
	bool synced;
	int error;

	if (parent == NULL)
		return SRT_ERR_OUT_OF_MEMORY;
	if (!srt_sync_folder(f->temporary) || !rename_folder(f, &old)) {
		error = errno;
		status = srt_fail(SRT_ERR_IO, "cannot save %s: %s%s", f->path, strerror(error),
				  error == ENOTEMPTY ? ": move away the files in its " REPLACED :
						       "");
		free(parent);
		return status;
	}
	synced = srt_sync_folder(parent);
	error = errno;
	status = is_latest ? srt_latest_write(parent, name_of(f->path)) : SRT_OK;
	if (status == SRT_OK && !synced)
		status = srt_fail(SRT_ERR_IO, "the folder %s cannot be synced: %s", parent,
				  strerror(error));
	/* The old one only when the new one is durable; what stays, the next save removes. */
	if (status == SRT_OK && old != NULL && !remove_files(old) && errno == ENOTEMPTY)
		report_left(old);
	free(old);
	free(f->temporary);
	f->temporary = NULL;
	free(parent);
	if (status != SRT_OK)
		return srt_fail_prefix(status,
				       "%s is complete and in place, but the file '%s' may still "
				       "name an earlier checkpoint, and a failure of the machine "
				       "may undo both: ",
				       f->path, SRT_LATEST_NAME);
	return SRT_OK;
}

void srt_folder_close(srt_folder_t *f)
{
	if (f->temporary != NULL && f->fd >= 0)
		remove_files(f->temporary);
	if (f->fd >= 0)
		close(f->fd);
	free(f->temporary);
	free(f->path);
	*f = (srt_folder_t){ .fd = -1 };
}

/* ---- public calls ----------------------------------------------------------------------- */

/* Removes a checkpoint. Under its temporary name it is none; what is left of it, the next save
 * removes. Other files stay in a folder of the old name. errno. */
static bool remove_checkpoint(const char *path, const char *temporary)
{
	if (rename(path, temporary) != 0)
		return false;
	if (remove_files(temporary))
		return true;
	if (errno != ENOTEMPTY || rename(temporary, path) != 0)
		return false;
	report_left(path);
	return true;
}

/* A link to a folder that is elsewhere: the link is removed, and what it names stays. errno. */
static bool remove_link(const char *path)
{
	if (unlink(path) != 0)
		return false;
	srt_log(SRT_LOG_WARN,
		"%s was a symbolic link: it is removed, but not the checkpoint that it named",
		path);
	return true;
}

static bool is_link(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

srt_status_t srt_checkpoint_remove(const char *folder)
{
	char id[SRT_CHECKPOINT_ID_LENGTH + 1];
	/* FOLDER.replaced first, so that it does not come back. */
	char *paths[2] = { NULL }, *temporary = NULL;
	srt_status_t status;
	int nremoved = 0;

	SRT_NOT_NULL(folder);
	SRT_TRY(srt_folder_trim(folder, &paths[1]));
	status = make_id(id);
	if (status == SRT_OK) {
		paths[0] = replaced_of(paths[1]);
		temporary = srt_folder_temporary(paths[1], id);
		if (paths[0] == NULL || temporary == NULL)
			status = SRT_ERR_OUT_OF_MEMORY;
	}
	for (int i = 0; i < 2 && status == SRT_OK; i++) {
		if (!srt_folder_is_checkpoint(paths[i]))
			continue;
		nremoved++;
		if (is_link(paths[i]) ? !remove_link(paths[i]) :
					!remove_checkpoint(paths[i], temporary))
			status = srt_fail(SRT_ERR_IO, "cannot remove the checkpoint %s: %s",
					  paths[i], strerror(errno));
	}
	if (status == SRT_OK && nremoved == 0)
		status = srt_fail(SRT_ERR_NOT_FOUND, "%s is not a checkpoint", folder);
	free(temporary);
	free(paths[0]);
	free(paths[1]);
	return status;
}
