/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Program binaries on disk, in the folder opencl/ of the user's cache. A file's name is a hash of
 * its key. The key contains all inputs of a binary; it is stored in the file and compared, and the
 * binary has a checksum. A truncated, overwritten or foreign entry is ignored. A file is created by
 * renaming, so several ranks may write the same one. A binary is code, so neither the folder nor an
 * entry may be writable for other users. A rank without an entry waits for a process
 * that compiles the same program, so ranks that start together compile it once.
 * A failure here is not an error for the caller: without a cache programs are compiled again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/opencl/opencl.h"

#define PATH_NBYTES 1024
#define MAX_BINARY ((uint64_t)1 << 30)
/* A process that compiles longer is assumed to hang or to be stopped. */
#define LOCK_WAIT_MS 120000
#define LOCK_POLL_MS 10

typedef struct header {
	char magic[8];
	uint64_t key_nbytes, binary_nbytes, checksum;
} header_t;

static const char magic[8] = "SRTOCL1";

uint64_t srt_ocl_hash(const void *data, size_t nbytes)
{
	const unsigned char *p = data;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < nbytes; i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h;
}

static bool file_path(const srt_host_services_t *host, const char *key, char *path,
		      size_t path_nbytes)
{
	size_t used;
	int n;

	if (!host->cache_folder("opencl", path, path_nbytes))
		return false;
	used = strlen(path);
	n = snprintf(path + used, path_nbytes - used, "/%016llx.bin",
		     (unsigned long long)srt_ocl_hash(key, strlen(key)));
	return n > 0 && (size_t)n < path_nbytes - used;
}

/* Reads the key and the binary after the header. NULL: `why` is set. */
static unsigned char *read_entry(const srt_host_services_t *host, FILE *f, const char *key,
				 size_t *nbytes, const char **why)
{
	size_t key_nbytes = strlen(key);
	unsigned char *bytes;
	header_t header;
	struct stat st;

	*why = "not a file of this user that only this user may write to";
	if (fstat(fileno(f), &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
	    (st.st_mode & (S_IWGRP | S_IWOTH)))
		return NULL;
	*why = "cut off";
	if (fread(&header, sizeof(header), 1, f) != 1)
		return NULL;
	if (memcmp(header.magic, magic, sizeof(magic)) != 0 || header.key_nbytes != key_nbytes ||
	    header.binary_nbytes > MAX_BINARY ||
	    (uint64_t)st.st_size != sizeof(header) + header.key_nbytes + header.binary_nbytes) {
		*why = "not of this program, or cut off";
		return NULL;
	}
	*nbytes = (size_t)header.binary_nbytes;
	bytes = host->alloc(key_nbytes + *nbytes);
	if (bytes == NULL)
		return NULL;
	if (fread(bytes, key_nbytes + *nbytes, 1, f) != 1)
		goto bad;
	*why = "of another program or driver";
	if (memcmp(bytes, key, key_nbytes) != 0)
		goto bad;
	*why = "damaged";
	if (srt_ocl_hash(bytes + key_nbytes, *nbytes) != header.checksum)
		goto bad;
	memmove(bytes, bytes + key_nbytes, *nbytes);
	return bytes;

bad:
	host->free(bytes);
	return NULL;
}

unsigned char *srt_ocl_cache_load(const srt_host_services_t *host, const char *key, size_t *nbytes)
{
	char path[PATH_NBYTES];
	unsigned char *binary;
	const char *why;
	FILE *f;
	int fd;

	if (!file_path(host, key, path, sizeof(path)))
		return NULL;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	f = fdopen(fd, "rb");
	if (f == NULL) {
		close(fd);
		return NULL;
	}
	binary = read_entry(host, f, key, nbytes, &why);
	fclose(f);
	if (binary == NULL)
		host->log(SRT_LOG_DEBUG, "cache: %s is %s: compiling anew", path, why);
	return binary;
}

static bool write_entry(FILE *f, const char *key, const unsigned char *binary, size_t nbytes)
{
	header_t header = {
		.key_nbytes = strlen(key),
		.binary_nbytes = nbytes,
		.checksum = srt_ocl_hash(binary, nbytes),
	};

	memcpy(header.magic, magic, sizeof(magic));
	return fwrite(&header, sizeof(header), 1, f) == 1 && fwrite(key, strlen(key), 1, f) == 1 &&
	       fwrite(binary, nbytes, 1, f) == 1;
}

void srt_ocl_cache_store(const srt_host_services_t *host, const char *key,
			 const unsigned char *binary, size_t nbytes)
{
	char path[PATH_NBYTES], temporary[PATH_NBYTES + 8];
	bool written;
	FILE *f;
	int fd;

	if (!file_path(host, key, path, sizeof(path)))
		return;
	snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
	fd = mkstemp(temporary);
	if (fd < 0)
		goto failed;
	f = fdopen(fd, "wb");
	if (f == NULL) {
		close(fd);
		goto remove;
	}
	written = write_entry(f, key, binary, nbytes);
	if (fclose(f) == 0 && written && rename(temporary, path) == 0)
		return;
remove:
	unlink(temporary);
failed:
	host->log(SRT_LOG_DEBUG, "cache: %s cannot be written: %s", path, strerror(errno));
}

/* ---- one compiles, the others wait --------------------------------------------------------- */

/* Each entry locks one byte of an empty file: locks end with the process and need no removal. Two
 * entries on one byte only wait for each other. */
int srt_ocl_cache_lock(const srt_host_services_t *host, const char *key)
{
#ifdef F_OFD_SETLK
	struct flock byte = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };
	const struct timespec poll = { .tv_nsec = LOCK_POLL_MS * 1000000L };
	char path[PATH_NBYTES];
	size_t used;
	int fd;

	if (!host->cache_folder("opencl", path, sizeof(path)))
		return -1;
	used = strlen(path);
	if (snprintf(path + used, sizeof(path) - used, "/.lock") >= (int)(sizeof(path) - used))
		return -1;
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	byte.l_start = (off_t)(srt_ocl_hash(key, strlen(key)) & 0x3fffffff);
	for (int ms = 0; fcntl(fd, F_OFD_SETLK, &byte) != 0; ms += LOCK_POLL_MS) {
		if ((errno != EAGAIN && errno != EACCES && errno != EINTR) || ms > LOCK_WAIT_MS) {
			close(fd);
			return -1;
		}
		nanosleep(&poll, NULL);
	}
	return fd;
#else
	(void)host;
	(void)key;
	return -1;
#endif
}

void srt_ocl_cache_unlock(int lock)
{
	if (lock >= 0)
		close(lock);
}
