/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of a manifest (manifest.h). */
#include "runtime/checkpoint/formats/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/hash128.h"
#include "base/replacement.h"

/* The whole file; to be freed. */
static srt_status_t read_file(const char *path, char **text, size_t *nbytes)
{
	/* O_NONBLOCK: opening a FIFO must not block before fstat() */
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	srt_status_t status = SRT_OK;
	struct stat st;

	if (fd < 0)
		return srt_fail(errno == ENOENT || errno == ENOTDIR ? SRT_ERR_NOT_FOUND :
								      SRT_ERR_IO,
				"cannot open %s: %s", path, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size > SRT_MANIFEST_MAX_NBYTES)
		status = srt_fail(SRT_ERR_IO,
				  "cannot read %s: it is not a regular file of at most %zu bytes",
				  path, SRT_MANIFEST_MAX_NBYTES);
	else if ((*text = srt_calloc((size_t)st.st_size + 1, 1, "a manifest")) == NULL)
		status = SRT_ERR_OUT_OF_MEMORY;
	for (*nbytes = 0; status == SRT_OK && *nbytes < (size_t)st.st_size;) {
		const ssize_t n = read(fd, *text + *nbytes, (size_t)st.st_size - *nbytes);

		if (n > 0)
			*nbytes += (size_t)n;
		else if (n == 0 || errno != EINTR)
			status = srt_fail(SRT_ERR_IO, "cannot read %s: %s", path,
					  n == 0 ? "it became shorter" : strerror(errno));
	}
	close(fd);
	return status;
}

srt_status_t srt_manifest_read(const char *folder, srt_manifest_t *m)
{
	char *path, *text = NULL;
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	size_t nbytes = 0;

	SRT_TRY(srt_hash_require("reading a sharded checkpoint"));
	path = srt_asprintf("%s/%s", folder, SRT_MANIFEST_NAME);
	if (path != NULL)
		status = read_file(path, &text, &nbytes);
	if (status == SRT_OK) {
		status = srt_manifest_parse(text, nbytes, m);
		if (status != SRT_OK)
			srt_fail_prefix(status, "%s: ", path);
	}
	free(text);
	free(path);
	return status;
}

srt_status_t srt_manifest_save(const srt_manifest_t *m, const char *folder)
{
	char *path = srt_asprintf("%s/%s", folder, SRT_MANIFEST_NAME), *text = NULL;
	srt_replacement_t r = { .fd = -1 };
	srt_status_t status = SRT_ERR_OUT_OF_MEMORY;
	size_t nbytes = 0;

	if (path != NULL)
		status = srt_manifest_write(m, &text, &nbytes);
	if (status == SRT_OK)
		status = srt_replacement_open(&r, path, false);
	if (status == SRT_OK)
		status = srt_replacement_write(&r, text, nbytes);
	if (status == SRT_OK)
		status = srt_replacement_commit(&r);
	srt_replacement_close(&r);
	free(text);
	free(path);
	return status;
}
